"""Requests of each strategy, in a conversation whose turns are separate processes.

The turns are a first one, a follow-up, a failing one and a message after it, streamed and collected.
With a Responses server, its recorded requests are compared with the complete table of requests. With
convo's own endpoint, the tests check the token counts of the model and the items that each link lists as sent.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import Strategy
from convo.strategies.strategy import STRATEGIES
from tests.command_runner import CommandResult, Convo, Launch
from tests.loopback_server import LoopbackServer, error_response
from tests.request_items import assistant_answer, message_lines, state_fields, user_messages

pytestmark = pytest.mark.usefixtures("server")

REJECTION = {"message": "The server does not like this.", "type": "invalid_request_error", "param": None, "code": "odd"}
ENCRYPTED_REASONING = {"include": ["reasoning.encrypted_content"]}

STREAMED = ((), (), (), ())
COLLECTED = (("--no-stream",), ("--json",), ("--json",), ("--no-stream",))
"""The flags of each of the four turns."""


@dataclass(frozen=True)
class CommandChat:
    """One conversation under test: each turn runs the real command in a new process."""

    launch: Launch
    convo: Convo
    strategy: Strategy
    flags: tuple[tuple[str, ...], ...]

    def start(self, text: str, *flags: str) -> CommandResult:
        return self.launch("chat", f"--{self.strategy}", "-n", "mine", "-s", "Be brief.", *flags, *self.flags[0], text)

    def continue_chat(self, turn: int, text: str) -> CommandResult:
        return self.launch("chat", "--from", "mine", *self.flags[turn], text)

    def links(self) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = self.convo("inspect", "mine", "--json").json()["links"]
        return links

    def answer_text(self, got: CommandResult, turn: int) -> str:
        """The printed text of the answer."""
        answer: str = got.json()["output_text"] if "--json" in self.flags[turn] else got.out.removesuffix("\n")
        return answer


def body(model: str, items: list[dict[str, Any]], state: dict[str, Any]) -> dict[str, Any]:
    """A complete request of the table; the transport adds `stream` to every request."""
    return {"model": model, "instructions": "Be brief.", "input": items, **state, "stream": True}


def client_requests(model: str, reasoning_fields: dict[str, Any]) -> list[dict[str, Any]]:
    """The four requests with a client-side owner: each has the complete history and `store: false`."""
    fields = {"store": False, **reasoning_fields}
    one, two = user_messages("one"), user_messages("two")
    return [
        body(model, one, fields),
        body(model, [*one, assistant_answer("one"), *two], fields),
        body(model, [*one, assistant_answer("one"), *two, assistant_answer("two"), *user_messages("three")], fields),
        body(
            model,
            [*one, assistant_answer("one"), *two, assistant_answer("two"), *user_messages("three", "four")],
            fields,
        ),
    ]


def conversation_requests(model: str, conversation: str) -> list[dict[str, Any]]:
    """The four requests with a conversation: each has the unconfirmed items."""
    state = {"conversation": conversation}
    return [body(model, user_messages(*texts), state) for texts in (["one"], ["two"], ["three"], ["three", "four"])]


def chain_requests(model: str, first: str, second: str) -> list[dict[str, Any]]:
    """The four requests with a chain: each has the items after the last confirmed response."""
    turns = [({}, ["one"]), (first, ["two"]), (second, ["three"]), (second, ["three", "four"])]
    return [
        body(model, user_messages(*texts), {"previous_response_id": previous_id} if previous_id else {})
        for previous_id, texts in turns
    ]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(
    ("model", "reasoning_fields", "flags"),
    [("gpt-5-mini", ENCRYPTED_REASONING, STREAMED), ("gpt-4o-mini", {}, COLLECTED)],
    ids=["streamed-reasoning", "collected-plain"],
)
def test_each_strategy_sends_exactly_the_requests_of_the_table(
    server: LoopbackServer,
    launch: Launch,
    convo: Convo,
    strategy: Strategy,
    model: str,
    reasoning_fields: dict[str, Any],
    flags: tuple[tuple[str, ...], ...],
) -> None:
    chat = CommandChat(launch, convo, strategy, flags)
    turns = [chat.start("one", "-m", model), chat.continue_chat(1, "two")]
    server.arm(error_response(400, REJECTION))
    turns += [chat.continue_chat(2, "three"), chat.continue_chat(3, "four")]
    assert [got.exit for got in turns] == [0, 0, 1, 0]
    assert [chat.answer_text(turns[turn], turn) for turn in (0, 1, 3)] == ["one", "two", "four"]
    links = chat.links()
    expected = {
        Strategy.REPLAY: client_requests(model, reasoning_fields),
        Strategy.SESSION: client_requests(model, reasoning_fields),
        Strategy.CONVERSATION: conversation_requests(model, links[0]["conversation_id"]),
        Strategy.CHAIN: chain_requests(model, links[0]["response_id"], links[1]["response_id"]),
    }
    assert server.bodies == expected[strategy]
    assert [link["status"] for link in links] == ["completed", "completed", "failed", "completed"]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_model_of_the_embedded_endpoint_receives_the_whole_history_with_any_owner(
    launch: Launch, convo: Convo, tmp_path: Path, strategy: Strategy
) -> None:
    replies = [{"text": "One."}, {"text": "Two."}, {"error": REJECTION | {"status": 400}}, {"text": "Four."}]
    (tmp_path / "script.json").write_text(json.dumps({"replies": replies}))
    chat = CommandChat(launch, convo, strategy, ((), ("--no-stream",), ("--json",), ("--json",)))

    turns = [chat.start("one", "-m", "scripted/script.json")]
    turns += [chat.continue_chat(turn, text) for turn, text in ((1, "two"), (2, "three"), (3, "four"))]

    assert [got.exit for got in turns] == [0, 0, 1, 0]
    assert [chat.answer_text(turns[turn], turn) for turn in (0, 1, 3)] == ["One.", "Two.", "Four."]
    links = chat.links()
    input_tokens = [link["usage"] and link["usage"]["input_tokens"] for link in links]
    assert input_tokens == [count and count + len(["Be", "brief."]) for count in (1, 3, None, 6)]
    assert [len(link["sent"]) for link in links] == (
        [1, 1, 1, 2] if STRATEGIES[strategy].is_server_side else [1, 3, 5, 6]
    )
    previous_ids = [link["previous_response_id"] for link in links]
    if strategy is Strategy.CHAIN:
        assert previous_ids == [None, links[0]["response_id"], links[1]["response_id"], links[1]["response_id"]]
    else:
        assert previous_ids == [None] * 4
    conversations = {link["conversation_id"] for link in links}
    assert len(conversations) == 1
    assert (conversations == {None}) == (strategy is not Strategy.CONVERSATION)


@pytest.mark.parametrize("strategy", [Strategy.REPLAY, Strategy.SESSION])
def test_the_store_flag_sends_store_true_with_every_strategy(
    server: LoopbackServer, convo: Convo, strategy: Strategy
) -> None:
    got = convo("chat", f"--{strategy}", "--store", "one")
    assert got.exit == 0
    assert state_fields(server.bodies[0]) == {"store": True}


def test_a_replay_file_edited_between_two_processes_is_the_history_that_is_sent(
    server: LoopbackServer, launch: Launch, tmp_path: Path
) -> None:
    path = tmp_path / "talk.json"
    launch("chat", "--replay", "--from", "talk.json", "one")
    path.write_text(path.read_text().replace('"one"', '"uno"'))

    assert launch("chat", "--replay", "--from", "talk.json", "two").exit == 0

    assert message_lines(server.bodies[1]["input"]) == ["user: uno", "assistant: uno", "user: two"]
    assert message_lines(server.scripts.requests[1].input) == ["user: uno", "assistant: uno", "user: two"]
