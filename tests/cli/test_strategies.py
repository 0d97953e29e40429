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

REFUSED = {"message": "The server does not like this.", "type": "invalid_request_error", "param": None, "code": "odd"}
SEALED = {"include": ["reasoning.encrypted_content"]}

STREAMED = ((), (), (), ())
COLLECTED = (("--no-stream",), ("--json",), ("--json",), ("--no-stream",))
"""The flags of each of the four turns."""


@dataclass(frozen=True)
class Talk:
    """One conversation under test: each turn runs the real command in a new process."""

    launch: Launch
    convo: Convo
    strategy: Strategy
    flags: tuple[tuple[str, ...], ...]

    def begin(self, words: str, *more: str) -> CommandResult:
        return self.launch("chat", f"--{self.strategy}", "-n", "mine", "-s", "Be brief.", *more, *self.flags[0], words)

    def go_on(self, turn: int, words: str) -> CommandResult:
        return self.launch("chat", "--from", "mine", *self.flags[turn], words)

    def links(self) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = self.convo("inspect", "mine", "--json").json()["links"]
        return links

    def heard(self, got: CommandResult, turn: int) -> str:
        """The printed text of the answer."""
        answer: str = got.json()["output_text"] if "--json" in self.flags[turn] else got.out.removesuffix("\n")
        return answer


def body(model: str, items: list[dict[str, Any]], where: dict[str, Any]) -> dict[str, Any]:
    """A complete request of the table; the transport adds `stream` to every request."""
    return {"model": model, "instructions": "Be brief.", "input": items, **where, "stream": True}


def at_client(model: str, sealed: dict[str, Any]) -> list[dict[str, Any]]:
    """The four requests with a client-side owner: each has the complete history and `store: false`."""
    kept = {"store": False, **sealed}
    one, two = user_messages("one"), user_messages("two")
    return [
        body(model, one, kept),
        body(model, [*one, assistant_answer("one"), *two], kept),
        body(model, [*one, assistant_answer("one"), *two, assistant_answer("two"), *user_messages("three")], kept),
        body(
            model, [*one, assistant_answer("one"), *two, assistant_answer("two"), *user_messages("three", "four")], kept
        ),
    ]


def in_conversation(model: str, conversation: str) -> list[dict[str, Any]]:
    """The four requests with a conversation: each has the unconfirmed items."""
    where = {"conversation": conversation}
    return [body(model, user_messages(*words), where) for words in (["one"], ["two"], ["three"], ["three", "four"])]


def on_chain(model: str, first: str, second: str) -> list[dict[str, Any]]:
    """The four requests with a chain: each has the items after the last confirmed response."""
    turns = [({}, ["one"]), (first, ["two"]), (second, ["three"]), (second, ["three", "four"])]
    return [
        body(model, user_messages(*words), {"previous_response_id": before} if before else {})
        for before, words in turns
    ]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(
    ("model", "sealed", "flags"),
    [("gpt-5-mini", SEALED, STREAMED), ("gpt-4o-mini", {}, COLLECTED)],
    ids=["streamed-reasoning", "collected-plain"],
)
def test_each_strategy_sends_exactly_the_requests_of_the_table(
    server: LoopbackServer,
    launch: Launch,
    convo: Convo,
    strategy: Strategy,
    model: str,
    sealed: dict[str, Any],
    flags: tuple[tuple[str, ...], ...],
) -> None:
    talk = Talk(launch, convo, strategy, flags)
    turns = [talk.begin("one", "-m", model), talk.go_on(1, "two")]
    server.arm(error_response(400, REFUSED))
    turns += [talk.go_on(2, "three"), talk.go_on(3, "four")]
    assert [got.exit for got in turns] == [0, 0, 1, 0]
    assert [talk.heard(turns[at], at) for at in (0, 1, 3)] == ["one", "two", "four"]
    links = talk.links()
    expected = {
        Strategy.REPLAY: at_client(model, sealed),
        Strategy.SESSION: at_client(model, sealed),
        Strategy.CONVERSATION: in_conversation(model, links[0]["conversation_id"]),
        Strategy.CHAIN: on_chain(model, links[0]["response_id"], links[1]["response_id"]),
    }
    assert server.bodies == expected[strategy]
    assert [link["status"] for link in links] == ["completed", "completed", "failed", "completed"]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_model_of_the_embedded_endpoint_receives_the_whole_history_with_any_owner(
    launch: Launch, convo: Convo, tmp_path: Path, strategy: Strategy
) -> None:
    replies = [{"text": "One."}, {"text": "Two."}, {"error": REFUSED | {"status": 400}}, {"text": "Four."}]
    (tmp_path / "script.json").write_text(json.dumps({"replies": replies}))
    talk = Talk(launch, convo, strategy, ((), ("--no-stream",), ("--json",), ("--json",)))

    turns = [talk.begin("one", "-m", "scripted/script.json")]
    turns += [talk.go_on(at, words) for at, words in ((1, "two"), (2, "three"), (3, "four"))]

    assert [got.exit for got in turns] == [0, 0, 1, 0]
    assert [talk.heard(turns[at], at) for at in (0, 1, 3)] == ["One.", "Two.", "Four."]
    links = talk.links()
    words_seen = [link["usage"] and link["usage"]["input_tokens"] for link in links]
    assert words_seen == [words and words + len(["Be", "brief."]) for words in (1, 3, None, 6)]
    assert [len(link["sent"]) for link in links] == (
        [1, 1, 1, 2] if STRATEGIES[strategy].is_server_side else [1, 3, 5, 6]
    )
    before = [link["previous_response_id"] for link in links]
    if strategy is Strategy.CHAIN:
        assert before == [None, links[0]["response_id"], links[1]["response_id"], links[1]["response_id"]]
    else:
        assert before == [None] * 4
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
    place = tmp_path / "talk.json"
    launch("chat", "--replay", "--from", "talk.json", "one")
    place.write_text(place.read_text().replace('"one"', '"uno"'))

    assert launch("chat", "--replay", "--from", "talk.json", "two").exit == 0

    assert message_lines(server.bodies[1]["input"]) == ["user: uno", "assistant: uno", "user: two"]
    assert message_lines(server.scripts.requests[1].input) == ["user: uno", "assistant: uno", "user: two"]
