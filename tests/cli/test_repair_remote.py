"""`convo lint` and `convo repair` of chains and conversations at a remote endpoint, over HTTP on loopback."""

from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import stored_sessions
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer

pytestmark = pytest.mark.usefixtures("server")

CALL = {"call": {"name": "weather", "arguments": {"city": "Bonn"}}}


def interrupted(server: LoopbackServer, **state: str) -> str:
    """Create a turn, and a turn that ends with a call without output, as another client; returns the last id."""
    said = dict(state)

    async def asked(words: str) -> str:
        events = server.endpoint().create({"model": "gpt-5-mini", "input": words, **said})
        return str([event async for event in events][-1]["response"]["id"])

    server.replies({"text": "Hello."}, CALL, {"text": "Never mind."})
    first = server.run(asked("hi"))
    said = state or {"previous_response_id": first}
    return server.run(asked("weather?"))


def test_an_unrecorded_chain_is_linted_and_continues_from_its_last_response(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    last = interrupted(server)
    found = convo("lint", last, "--json")
    assert (found.exit, [one["code"] for one in found.json()["findings"]]) == (4, ["call-without-output"])
    got = convo("repair", last, "--as", "mended")
    assert (got.exit, got.err) == (0, "")
    (record,) = stored_sessions(home)
    assert (record.strategy, record.handle, record.scope.url) == (Strategy.CHAIN, last, server.url)
    answered = convo("chat", "--from", "mended", "go on")
    assert (answered.exit, answered.out) == (0, "Never mind.\n")
    body = server.bodies[-1]
    assert (body["previous_response_id"], [item["type"] for item in body["input"]]) == (
        last,
        ["function_call_output", "message"],
    )


def test_a_record_that_has_only_the_id_of_its_last_response_keeps_it(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    last = interrupted(server)
    assert convo("chat", "--chain", "--from", last, "and now?").exit == 1
    (record,) = stored_sessions(home)
    assert (record.handle, record.link_id) == (last, None)
    assert convo("lint", record.name).out.count(" has no output") == 1
    assert convo("repair", record.name, "--as", "mended").exit == 0
    (mended,) = [one for one in stored_sessions(home) if one.name == "mended"]
    assert (mended.strategy, mended.handle) == (Strategy.CHAIN, last)
    assert convo("chat", "--from", "mended", "go on").exit == 0


def test_a_remote_conversation_is_repaired_into_the_local_store_without_a_write_request(
    server: LoopbackServer, convo: Convo, home: Path
) -> None:
    conversation = str(server.run(server.endpoint().create_conversation())["id"])
    interrupted(server, conversation=conversation)
    asked = len(server.bodies)
    assert convo("repair", conversation, "--as", "mended").exit == 0
    assert len(server.bodies) == asked
    (record,) = stored_sessions(home)
    assert (record.strategy, record.scope.url, record.model.partition("/")[0]) == (
        Strategy.SESSION,
        server.url,
        "openai",
    )
    assert convo("lint", "mended").exit == 0
    assert convo("lint", conversation).exit == 4
