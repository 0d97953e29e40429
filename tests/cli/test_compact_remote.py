"""`convo compact` and the automatic compaction of a chat, with an endpoint of the Responses API over HTTP."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.chat_commands import LONG, stored_conversation, stored_messages, stored_sessions
from tests.command_runner import Convo
from tests.loopback_server import Fault, LoopbackServer, error_response, pause_after, raw_stream

NOT_FOUND = {"message": "Previous response with id 'resp_1' not found.", "type": "invalid_request_error"}


@pytest.fixture
def server(server: LoopbackServer) -> LoopbackServer:
    server.replies({"text": "Short."}, {"text": LONG})
    return server


def chat_two_turns(convo: Convo, owner: str) -> None:
    for text in ("one", "two"):
        flags = [owner, "-n", "mine", "-m", "openai/any"] if text == "one" else ["--from", "mine"]
        assert convo("chat", "-q", *flags, f"{text} {LONG}").exit == 0


def compactions(server: LoopbackServer) -> list[dict[str, object]]:
    return [request.json for request in server.requests if request.path == "/v1/responses/compact"]


def disable_compaction_endpoint(server: LoopbackServer) -> None:
    fault = error_response(404, {"message": "Not found", "type": "invalid_request_error"})
    server.arm(Fault(error_response=fault.error_response, path="/v1/responses/compact"))


def test_a_chain_is_compacted_by_its_id_without_any_items_in_the_request(
    convo: Convo, server: LoopbackServer, home: Path
) -> None:
    chat_two_turns(convo, "--chain")
    old = stored_sessions(home)[0].handle
    got = convo("compact", "mine")
    assert got.exit == 0, got.err
    assert compactions(server) == [{"model": "any", "previous_response_id": old}]
    assert convo("chat", "-q", "--from", "mine", "three").exit == 0
    last = server.bodies[-1]
    assert "previous_response_id" not in last
    assert [item["type"] for item in last["input"]] == ["message", "message", "compaction", "message"]
    assert not any("id" in item for item in last["input"])


@pytest.mark.parametrize("owner", ["--session", "--replay"])
def test_the_items_of_client_owned_state_are_sent_for_compaction_and_stay_client_owned(
    convo: Convo, server: LoopbackServer, owner: str
) -> None:
    chat_two_turns(convo, owner)
    assert convo("compact", "mine").exit == 0
    assert list(compactions(server)[0]) == ["model", "input"]
    assert convo("chat", "-q", "--from", "mine", "three").exit == 0
    assert server.bodies[-1]["store"] is False
    assert "compaction" in [item["type"] for item in server.bodies[-1]["input"]]


def test_a_chain_that_the_server_deleted_is_compacted_from_its_items(convo: Convo, server: LoopbackServer) -> None:
    chat_two_turns(convo, "--chain")
    gone = error_response(400, {**NOT_FOUND, "param": "previous_response_id", "code": "previous_response_not_found"})
    server.arm(Fault(error_response=gone.error_response, path="/v1/responses/compact"))
    got = convo("compact", "mine")
    assert got.exit == 0, got.err
    assert "compacted by input instead" in got.err
    assert [list(body) for body in compactions(server)] == [["model", "previous_response_id"], ["model", "input"]]


def test_a_named_compaction_mode_is_not_replaced_by_another(convo: Convo, server: LoopbackServer, home: Path) -> None:
    chat_two_turns(convo, "--chain")
    before = stored_conversation(home, "mine")
    gone = error_response(400, {**NOT_FOUND, "param": "previous_response_id", "code": "previous_response_not_found"})
    server.arm(Fault(error_response=gone.error_response, path="/v1/responses/compact"))
    assert convo("compact", "mine", "--mode", "previous_response_id").exit == 1
    assert stored_conversation(home, "mine") == before


@pytest.mark.parametrize("owner", ["--session", "--chain"])
def test_without_a_compaction_endpoint_any_model_writes_a_summary(
    convo: Convo, server: LoopbackServer, owner: str
) -> None:
    """The request for the summary has store=false, so the endpoint does not store it."""
    chat_two_turns(convo, owner)
    disable_compaction_endpoint(server)
    got = convo("compact", "mine")
    assert got.exit == 0, got.err
    assert "compacted by summary instead" in got.err
    assert server.bodies[-1]["store"] is False
    assert "<transcript>" in server.bodies[-1]["input"][0]["content"][0]["text"]


def test_a_conversation_is_compacted_in_place_if_the_server_supports_it(
    convo: Convo, server: LoopbackServer, home: Path
) -> None:
    chat_two_turns(convo, "--conversation")
    handle = stored_sessions(home)[0].handle
    assert convo("compact", "mine").exit == 0
    assert server.bodies[-1]["input"] == [{"type": "compaction_trigger"}]
    assert stored_sessions(home)[0].handle == handle
    assert "compaction" in [item["type"] for item in stored_conversation(home, "mine")[0]]


@pytest.mark.parametrize("flags", [[], ["--yes"]])
def test_a_reply_without_a_compaction_item_does_not_compact_a_conversation_and_is_deleted(
    flags: list[str], convo: Convo, server: LoopbackServer, home: Path
) -> None:
    """The server treats the trigger as a message and responds; convo requests the deletion of that response."""
    chat_two_turns(convo, "--conversation")
    before, session = stored_conversation(home, "mine"), stored_sessions(home)[0]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
    response = {"id": "resp_1", "status": "completed", "output": [item], "conversation": {"id": session.handle}}
    event = {"type": "response.completed", "sequence_number": 0, "response": response}
    for _ in range(3):
        server.arm(raw_stream(f"data: {json.dumps(event)}\n\n".encode()))
        got = convo("compact", "mine", *flags)
        assert (got.exit, got.out) == (1, "")
        assert "the response has no compaction item" in got.err
        assert f"; 1 items of its response could not be deleted from {session.handle}\n" in got.err
    assert stored_conversation(home, "mine") == before
    assert stored_sessions(home)[0].handle == session.handle
    deleted = [request.path for request in server.requests if request.method == "DELETE"]
    assert deleted == [f"/v1/conversations/{session.handle}/items/msg_1"] * 3


@pytest.mark.parametrize("owner", ["--session", "--chain"])
def test_a_compaction_response_without_a_compaction_item_is_refused_or_replaced_by_a_summary(
    owner: str, convo: Convo, server: LoopbackServer, home: Path
) -> None:
    chat_two_turns(convo, owner)
    before = stored_conversation(home, "mine")
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sure!"}]}]
    odd = Fault(
        error_response=(200, {"object": "response.compaction", "output": output}, {}), path="/v1/responses/compact"
    )
    server.arm(odd)
    mode = "input" if owner == "--session" else "previous_response_id"
    got = convo("compact", "mine", "--mode", mode)
    assert (got.exit, got.err.splitlines()[0]) == (1, "convo: the response has no compaction item")
    assert stored_conversation(home, "mine") == before
    server.arm(odd)
    got = convo("compact", "mine")
    assert got.exit == 0, got.err
    assert "compacted by summary instead" in got.err


def test_a_conversation_that_its_server_cannot_compact_requires_confirmation(
    convo: Convo, server: LoopbackServer, home: Path
) -> None:
    chat_two_turns(convo, "--conversation")
    old = stored_sessions(home)[0].handle
    odd = {"message": "Unknown item type.", "type": "invalid_request_error", "param": "input", "code": "odd"}
    server.arm(error_response(400, odd))
    refused = convo("compact", "mine")
    assert (refused.exit, stored_sessions(home)[0].handle) == (2, old)
    assert "--yes" in refused.err
    server.arm(error_response(400, odd))
    got = convo("compact", "mine", "--yes")
    assert got.exit == 0, got.err
    assert stored_sessions(home)[0].handle != old
    assert str(old) in got.out
    assert convo("chat", "-q", "--from", "mine", "three").exit == 0
    assert server.bodies[-1]["conversation"] == stored_sessions(home)[0].handle


def test_an_endpoint_without_known_support_gets_no_context_management_field(
    convo: Convo, server: LoopbackServer, home: Path
) -> None:
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("compact_at = 100\n", encoding="utf-8")
    chat_two_turns(convo, "--conversation")
    got = convo("chat", "--from", "mine", "three")
    assert "convo compact HANDLE --yes continues in a new conversation" in got.err
    assert "context_management" not in server.bodies[-1]


def test_a_turn_that_another_process_adds_during_a_compaction_is_kept(
    convo: Convo, server: LoopbackServer, home: Path
) -> None:
    """The server pauses the summary until the other process has its response."""
    chat_two_turns(convo, "--session")
    disable_compaction_endpoint(server)
    server.arm(pause_after(0))
    with subprocess.Popen([sys.executable, "-m", "convo", "compact", "mine"], stderr=subprocess.PIPE) as process:
        assert server.paused.wait(30)
        assert convo("chat", "-q", "--from", "mine", "meanwhile").exit == 0
        server.release()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    messages = stored_messages(home, "mine")
    assert [line.split()[1] for line in messages if line.startswith("user")] == ["one", "two", "Summary", "meanwhile"]
    assert len(stored_messages(home, "mine-before")) == 6
