"""Common server faults, and the requests of each strategy after them."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import Strategy
from convo.strategies.strategy import STRATEGIES
from tests.cli.chat_commands import ECHO, start_session
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo, Launch
from tests.loopback_server import (
    Fault,
    LoopbackServer,
    commit_then_cut,
    conversation_locked,
    cut_after,
    cut_before_headers,
    error_response,
    ignore_state,
    overloaded,
    rate_limited,
    raw_stream,
)
from tests.request_items import message_lines, partial_answer, state_fields, user_messages

pytestmark = pytest.mark.usefixtures("server")

REMOTE = [Strategy.CONVERSATION, Strategy.CHAIN]
ONE_AND_MORE = [
    Strategy.CHAIN,
    *(pytest.param(one, marks=pytest.mark.full) for one in Strategy if one != Strategy.CHAIN),
]
"""One strategy by default, for what does not depend on it."""

LONG = "a message that is long enough to come in several pieces"
KEY = "sk-visible-nowhere-0123456789"


def expected_messages(strategy: Strategy, *messages: str) -> list[str]:
    return list(messages) if STRATEGIES[strategy].is_server_side else ["user: one", "assistant: one", *messages]


def server_messages(server: LoopbackServer, conversation: str) -> list[str]:
    """The messages of a conversation at the server."""
    page = server.run(server.endpoint().list_conversation_items(conversation, limit=100, order="asc"))
    return message_lines(page.items)


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("fault", [rate_limited(0.01), overloaded(0.01)], ids=["429", "503"])
def test_a_request_to_a_busy_server_is_retried_unchanged(
    server: LoopbackServer, convo: Convo, strategy: Strategy, fault: Fault
) -> None:
    start_session(convo, strategy)
    server.arm(fault)
    got = convo("chat", "-c", "two")
    assert (got.exit, got.out) == (0, "two\n")
    assert got.err.count("; retry 1 of 3 in ") == 1
    assert len(server.bodies) == 3
    assert server.bodies[1] == server.bodies[2]
    assert message_lines(server.bodies[2]["input"]) == expected_messages(strategy, "user: two")


def test_a_request_to_a_locked_conversation_is_retried(server: LoopbackServer, convo: Convo) -> None:
    conversation = start_session(convo, Strategy.CONVERSATION)
    server.arm(conversation_locked({"retry-after": "0"}), conversation_locked({"retry-after": "0"}))
    assert convo("chat", "-c", "two").out == "two\n"
    assert server.bodies[1] == server.bodies[2] == server.bodies[3]
    assert server_messages(server, conversation) == ["user: one", "assistant: one", "user: two", "assistant: two"]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_connection_that_fails_before_the_headers_is_retried(
    server: LoopbackServer, convo: Convo, strategy: Strategy
) -> None:
    start_session(convo, strategy)
    server.arm(cut_before_headers())
    assert convo("chat", "-c", "two").out == "two\n"
    assert server.bodies[1] == server.bodies[2]
    assert len(server.scripts.requests) == 2


@pytest.mark.parametrize("strategy", Strategy)
def test_after_a_broken_stream_the_partial_answer_is_sent_as_text(
    server: LoopbackServer, convo: Convo, strategy: Strategy
) -> None:
    start_session(convo, strategy)
    server.arm(cut_after(6))
    broken = convo("chat", "-c", LONG)
    partial = broken.out.rstrip("\n")
    assert (broken.exit, len(server.bodies)) == (1, 2)
    assert "the connection to openai broke before the response ended" in broken.err
    assert LONG.startswith(partial)
    assert 0 < len(partial) < len(LONG)

    assert convo("chat", "-c", "three").exit == 0

    assert server.bodies[2]["input"][-3:] == [*user_messages(LONG), partial_answer(partial), *user_messages("three")]
    assert len(server.bodies[2]["input"]) == (3 if STRATEGIES[strategy].is_server_side else 5)
    assert state_fields(server.bodies[2]) == state_fields(server.bodies[1])


def test_a_lost_answer_of_a_conversation_is_read_and_not_requested_twice(server: LoopbackServer, convo: Convo) -> None:
    conversation = start_session(convo, Strategy.CONVERSATION)
    server.arm(commit_then_cut())
    got = convo("chat", "-c", "--json", "two")
    assert (got.exit, got.json()["output_text"], got.json()["status"]) == (0, "two", "completed")
    assert (got.json()["response_id"], got.json()["usage"]) == (None, None)
    assert "the server had already stored 2 items of this turn; using them" in got.err
    assert len(server.bodies) == 2
    assert server_messages(server, conversation) == ["user: one", "assistant: one", "user: two", "assistant: two"]
    link = convo("inspect", "mine", "--json").json()["links"][1]
    assert (len(link["sent"]), len(link["saw"]), len(link["output"])) == (1, 3, 1)

    assert convo("chat", "-c", "three").exit == 0
    assert message_lines(server.bodies[2]["input"]) == ["user: three"]


def test_a_lost_answer_that_a_conversation_completed_replaces_the_partial_one(
    server: LoopbackServer, convo: Convo
) -> None:
    conversation = start_session(convo, Strategy.CONVERSATION)
    server.arm(commit_then_cut(after=6))
    broken = convo("chat", "-c", LONG)
    assert broken.exit == 1
    assert broken.out.rstrip("\n") in LONG

    assert convo("chat", "-c", "three").exit == 0

    assert message_lines(server.bodies[2]["input"]) == ["user: three"]
    history = ["user: one", "assistant: one", f"user: {LONG}", f"assistant: {LONG}", "user: three", "assistant: three"]
    assert server_messages(server, conversation) == history
    record = convo("inspect", "mine", "--json").json()
    assert message_lines([record["items"][key] for key in record["links"][-1]["saw"]]) == history[:-1]


def test_a_failed_read_of_the_conversation_is_retried_before_anything_is_sent_twice(
    server: LoopbackServer, convo: Convo
) -> None:
    conversation = start_session(convo, Strategy.CONVERSATION)
    items_fault = replace(rate_limited(0.0), path=f"/v1/conversations/{conversation}/items", method="GET")
    server.arm(commit_then_cut(), items_fault)
    assert convo("chat", "-c", "two").out == "two\n"
    assert len(server.bodies) == 2
    assert server_messages(server, conversation) == ["user: one", "assistant: one", "user: two", "assistant: two"]


def test_an_item_that_another_client_added_meanwhile_keeps_its_position(server: LoopbackServer, convo: Convo) -> None:
    conversation = start_session(convo, Strategy.CONVERSATION)
    server.run(add_turn(server, conversation, "by the way"))
    server.arm(commit_then_cut())
    assert convo("chat", "-c", "two").out == "two\n"
    history = [
        "user: one",
        "assistant: one",
        "user: by the way",
        "assistant: by the way",
        "user: two",
        "assistant: two",
    ]
    assert server_messages(server, conversation) == history
    record = convo("inspect", "mine", "--json").json()
    last = record["links"][-1]
    assert message_lines([record["items"][key] for key in [*last["saw"], *last["output"]]]) == history


async def add_turn(server: LoopbackServer, conversation: str, text: str) -> None:
    """Add a turn to the conversation as another client."""
    async for _ in server.endpoint().create({"model": "gpt-5-mini", "input": text, "conversation": conversation}):
        pass


def test_on_a_chain_a_lost_answer_is_only_an_unused_fork(server: LoopbackServer, convo: Convo) -> None:
    first = start_session(convo, Strategy.CHAIN)
    server.arm(commit_then_cut())
    assert convo("chat", "-c", "two").out == "two\n"
    assert server.bodies[1] == server.bodies[2]
    assert state_fields(server.bodies[2]) == {"previous_response_id": first}
    convo("chat", "-c", "three")
    last = server.scripts.requests[-1].input
    assert message_lines(last) == ["user: one", "assistant: one", "user: two", "assistant: two", "user: three"]


@pytest.mark.parametrize("strategy", REMOTE)
def test_an_answer_generated_without_the_history_is_an_error_and_is_not_shown(
    server: LoopbackServer, convo: Convo, strategy: Strategy
) -> None:
    handle = start_session(convo, strategy)
    server.arm(ignore_state())
    got = convo("chat", "-c", "two")
    assert (got.exit, got.out, len(server.bodies)) == (1, "", 2)
    assert f"convo: the endpoint responded without the history of {handle}\n  try: this endpoint stores" in got.err

    assert convo("chat", "-c", "--json", "three").exit == 0
    assert message_lines(server.bodies[2]["input"]) == ["user: two", "user: three"]
    assert state_fields(server.bodies[2]) == state_fields(server.bodies[1])


@pytest.mark.parametrize("strategy", Strategy)
def test_a_stream_without_a_terminal_event_is_an_error_and_its_input_is_kept(
    server: LoopbackServer, convo: Convo, strategy: Strategy
) -> None:
    start_session(convo, strategy)
    server.arm(raw_stream(b"data: [DONE]\n\n"))
    got = convo("chat", "-c", "--json", "two")
    assert (got.exit, got.json()["error"]["code"], len(server.bodies)) == (1, "stream_broken", 2)
    assert convo("chat", "-c", "three").exit == 0
    assert message_lines(server.bodies[2]["input"]) == expected_messages(strategy, "user: two", "user: three")


@pytest.mark.parametrize("strategy", ONE_AND_MORE)
def test_organization_and_project_are_sent_with_every_request(
    server: LoopbackServer, convo: Convo, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    start_session(convo, strategy)
    convo("chat", "-c", "two")
    sent = {
        (request.headers.get("openai-organization"), request.headers.get("openai-project"))
        for request in server.requests
    }
    assert sent == {("org-1", "proj-1")}


@pytest.mark.parametrize("strategy", ONE_AND_MORE)
def test_the_key_is_sent_to_the_server_and_printed_nowhere(
    server: LoopbackServer, launch: Launch, strategy: Strategy, tmp_path: Path
) -> None:
    env = {"OPENAI_API_KEY": KEY, "CONVO_DEBUG": "1"}
    error: dict[str, Any] = {"message": f"Incorrect API key provided: {KEY}.", "type": "x", "code": None}
    got = [launch("chat", f"--{strategy}", "one", env=env)]
    server.arm(error_response(401, error), error_response(400, error))
    got += [launch("chat", "-c", "two", env=env), launch("chat", "-c", "--json", "three", env=env)]
    assert [one.exit for one in got] == [0, 1, 1]
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert not [one for one in got if KEY in one.out + one.err]
    files = [file for file in tmp_path.rglob("*") if file.is_file() and "loopback" not in file.parts]
    assert any(file.name == "convo.db" for file in files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


# -- unusable response ids -------------------------------------------------------------------------


def response_with_id(response_id: str | None, text: str, previous_id: str | None = None) -> Fault:
    """A stream with one complete response that has this id."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": f"msg_{text}", "role": "assistant", "status": "completed", "content": [part]}
    response = {"id": response_id, "status": "completed", "output": [item], "previous_response_id": previous_id}
    event = {"type": "response.completed", "sequence_number": 0, "response": response}
    return raw_stream(f"data: {json.dumps(event)}\n\n".encode())


def test_a_chain_reports_a_response_without_an_id_and_loses_no_input(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    """Without the error, the next turn would be sent without the earlier messages."""
    server.arm(response_with_id(None, "a"))
    got = convo("chat", "--chain", "-n", "mine", "one")
    assert got.exit == 1
    assert "convo: the response has no id, and a chain needs one to continue\n" in got.err
    assert "use --session or --replay" in got.err
    assert convo("chat", "-q", "--from", "mine", "two").exit == 0
    assert [item["content"][0]["text"] for item in server.bodies[-1]["input"]] == ["one", "two"]


@pytest.mark.parametrize("owner", ["--session", "--replay"])
def test_a_client_that_owns_the_state_needs_no_response_id(owner: str, server: LoopbackServer, convo: Convo) -> None:
    server.arm(response_with_id(None, "a"))
    got = convo("chat", owner, "-n", "mine", "one")
    assert (got.exit, got.out) == (0, "a\n")
    assert convo("chat", "--from", "mine", "--json", "two").exit == 0


@pytest.mark.parametrize("owner", ["--chain", "--session"])
def test_a_reused_response_id_hides_no_response(owner: str, server: LoopbackServer, convo: Convo) -> None:
    previous_id = "resp_1" if owner == "--chain" else None
    server.arm(
        response_with_id("resp_1", "a"),
        response_with_id("resp_1", "b", previous_id),
        response_with_id("resp_1", "c", previous_id),
    )
    assert convo("chat", owner, "-n", "mine", "one").exit == 0
    for text in ("two", "three"):
        got = convo("chat", "--from", "mine", text)
        assert got.exit == 0
        assert "warning: the endpoint reused the response id resp_1; this response is stored as try_" in got.err
    links = convo("inspect", "mine", "--json").json()["links"]
    assert [link["response_id"] == "resp_1" for link in links] == [True, False, False]
    assert [link["children"] for link in links] == [[links[1]["response_id"]], [links[2]["response_id"]], []]
    output = convo("inspect", "mine").out
    assert [text for text in ("one → a", "two → b", "three → c") if text not in output] == []
    for argv in (
        ["inspect", "mine", "--html", "-"],
        ["export", "mine"],
        ["next", "mine", "x"],
        ["diff", "mine", "mine"],
    ):
        assert convo(*argv).exit == 0, argv


@pytest.mark.parametrize("parents", [{"resp_1": "resp_1"}, {"resp_1": "resp_2", "resp_2": "resp_1"}])
def test_circular_response_chains_are_shown(parents: dict[str, str], convo: Convo, home: Path) -> None:
    """An older convo stored such chains, and an imported file can contain them."""
    for text in ("one", "two"):
        assert convo("chat", *ECHO, *(("-n", "mine") if text == "one" else ("--from", "mine")), text).exit == 0
    links = [link["response_id"] for link in convo("inspect", "mine", "--json").json()["links"]]
    ids = dict(zip(("resp_1", "resp_2"), links, strict=True))
    with closing(sqlite3.connect(home / DATABASE)) as db, db:
        for child, parent in parents.items():
            statement = "UPDATE links SET parent = (SELECT n FROM links WHERE id = ?) WHERE id = ?"
            db.execute(statement, (ids[parent], ids[child]))
    output = convo("inspect", "mine").out
    assert [text for text in ("one → one", "two → two") if text not in output] == []
    read_commands = (
        ["inspect", "mine", "--html", "-"],
        ["inspect", "mine", "--json"],
        ["inspect", links[0]],
        ["lint", "mine"],
    )
    other_commands = (
        ["export", "mine", "--format", "html"],
        ["next", "mine", "x"],
        ["chat", "--from", "mine", "three"],
    )
    for argv in (
        *read_commands,
        *other_commands,
        ["chat", "--fork", "mine@1", "again"],
        ["sessions", "rm", "mine", "--yes"],
    ):
        got = convo(*argv)
        assert got.exit == 0, (argv, got.err)
