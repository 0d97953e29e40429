"""`convo lint` and `convo repair` of chains and conversations at a remote endpoint, over HTTP on loopback."""

from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import stored_sessions
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer

pytestmark = pytest.mark.usefixtures("server")

CALL = {"call": {"name": "weather", "arguments": {"city": "Bonn"}}}


def create_interrupted_turn(server: LoopbackServer, **state: str) -> str:
    """Create a turn, and a turn that ends with a call without output, as another client; returns the last id."""
    anchor = dict(state)

    async def respond(text: str) -> str:
        events = server.endpoint().create({"model": "gpt-5-mini", "input": text, **anchor})
        return str([event async for event in events][-1]["response"]["id"])

    server.replies({"text": "Hello."}, CALL, {"text": "Never mind."})
    first = server.run(respond("hi"))
    anchor = state or {"previous_response_id": first}
    return server.run(respond("weather?"))


def test_an_unrecorded_chain_is_linted_and_continues_from_its_last_response(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    last = create_interrupted_turn(server)
    lint = convo("lint", last, "--json")
    assert (lint.exit, [one["code"] for one in lint.json()["findings"]]) == (4, ["call-without-output"])
    got = convo("repair", last, "--as", "mended")
    assert (got.exit, got.err) == (0, "")
    (record,) = stored_sessions(home)
    assert (record.strategy, record.handle, record.scope.url) == (Strategy.CHAIN, last, server.url)
    next_turn = convo("chat", "--from", "mended", "go on")
    assert (next_turn.exit, next_turn.out) == (0, "Never mind.\n")
    body = server.bodies[-1]
    assert (body["previous_response_id"], [item["type"] for item in body["input"]]) == (
        last,
        ["function_call_output", "message"],
    )


def test_a_message_continues_a_chain_of_another_client_and_answers_its_open_call(
    server: LoopbackServer, convo: Convo
) -> None:
    last = create_interrupted_turn(server)
    got = convo("chat", "--chain", "--from", last, "and now?")
    assert (got.exit, got.out) == (0, "Never mind.\n")
    body = server.bodies[-1]
    assert (body["previous_response_id"], [item["type"] for item in body["input"]]) == (
        last,
        ["function_call_output", "message"],
    )


def test_a_remote_conversation_is_repaired_into_the_local_store_without_a_write_request(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    conversation = str(server.run(server.endpoint().create_conversation())["id"])
    create_interrupted_turn(server, conversation=conversation)
    request_count = len(server.bodies)
    assert convo("repair", conversation, "--as", "mended").exit == 0
    assert len(server.bodies) == request_count
    (record,) = stored_sessions(home)
    assert (record.strategy, record.scope.url, record.model.partition("/")[0]) == (
        Strategy.SESSION,
        server.url,
        "openai",
    )
    assert convo("lint", "mended").exit == 0
    assert convo("lint", conversation).exit == 4
