"""Chats with Claude: its thinking blocks return unchanged with every owner of the state; its cache can be diagnosed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import databases
from tests.command_runner import Convo, Launch
from tests.models.chat_server import ChatServer, run_chat_server
from tests.models.messages_events import message_events, redacted, text, thinking, tool

OWNERS = ("--replay", "--session", "--conversation", "--chain")
SIGNATURE = "EqQB+/" + "Az09" * 2000 + "=="
REDACTED = "Emwr/+" + "zZ8=" * 500
ODD_THOUGHT = 'Look \u2028"up\\" \U0001f600 \x7f\n\té'

FIRST_CALL: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": ODD_THOUGHT, "signature": SIGNATURE},
    {"type": "redacted_thinking", "data": REDACTED},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"order": "A1"}},
]
FIRST_ANSWER: list[dict[str, Any]] = [
    {"type": "redacted_thinking", "data": "second+/="},
    {"type": "thinking", "thinking": "", "signature": "omitted+/="},
    {"type": "text", "text": "It cost 5."},
]
SECOND_ANSWER: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Again.", "signature": "third+/="},
    {"type": "text", "text": "Yes."},
]


@pytest.fixture
def upstream(home: Path) -> Iterator[ChatServer]:
    """A server of the Messages API, as the provider `claude` of the settings, and the file of a tool."""
    Path("desk.py").write_text('def look_up(order: str) -> str:\n    return f"{order} cost 5"\n', "utf-8")
    with run_chat_server() as server:
        path = home / "config" / "config.toml"
        path.parent.mkdir(parents=True)
        url = server.url.removesuffix("/v1")
        path.write_text(f'[providers.claude]\napi = "anthropic"\nbase_url = "{url}"\n', "utf-8")
        yield server


def answer(upstream: ChatServer, blocks: list[dict[str, Any]], reason: str = "end_turn") -> None:
    """Answer with these blocks, each in several pieces."""
    events: list[list[bytes]] = []
    for index, block in enumerate(blocks):
        match block["type"]:
            case "thinking":
                thought = block["thinking"]
                events.append(thinking(index, thought[:7], thought[7:], signature=block["signature"]))
            case "redacted_thinking":
                events.append(redacted(index, block["data"]))
            case "text":
                events.append(text(index, block["text"][:2], block["text"][2:]))
            case "tool_use":
                events.append(tool(index, block["id"], block["name"], '{"order"', ': "A1"}'))
    upstream.stream(*message_events(*events, reason=reason), end=b"")


def assistant_turns(upstream: ChatServer) -> list[list[dict[str, Any]]]:
    """Return the content of the assistant's messages in the last request."""
    return [message["content"] for message in upstream.requests[-1].json["messages"] if message["role"] == "assistant"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("owner", OWNERS)
def test_thinking_blocks_return_unchanged_after_a_call_a_restart_and_a_fork(
    owner: str, kind: str, upstream: ChatServer, convo: Convo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'convo.db'}" if kind == "sqlite" else databases.new_database()
    monkeypatch.setenv("CONVO_STORE", store)
    flags = ("--tool", "desk.py:look_up", "-m", "claude/claude-opus-5-5", "--reasoning-effort", "high")

    answer(upstream, FIRST_CALL, "tool_use")
    answer(upstream, FIRST_ANSWER)
    first = convo("chat", *flags, owner, "-n", "mine", "What did A1 cost?")
    assert (first.exit, first.out.splitlines()[-1]) == (0, "It cost 5."), first.err
    assert assistant_turns(upstream) == [FIRST_CALL]

    answer(upstream, SECOND_ANSWER)
    second = convo("chat", *flags, "-c", "Sure?")
    assert second.exit == 0, second.err
    assert assistant_turns(upstream) == [FIRST_CALL, FIRST_ANSWER]

    if owner == "--conversation":  # its endpoint stores it as one list, so a copy is forked
        assert convo("convert", "mine", "--to", "session", "--as", "copy").exit == 0
    source = "copy" if owner == "--conversation" else "mine"
    answer(upstream, SECOND_ANSWER)
    forked = convo("chat", *flags, "--fork", source, "Still?")
    assert forked.exit == 0, forked.err
    assert assistant_turns(upstream) == [FIRST_CALL, FIRST_ANSWER, SECOND_ANSWER]

    answer(upstream, SECOND_ANSWER)
    branch = convo("chat", *flags, "--fork", f"{source}@1", "Another?")
    assert branch.exit == 0, branch.err
    assert assistant_turns(upstream) == [FIRST_CALL, FIRST_ANSWER]


def test_another_process_sends_the_same_bytes(upstream: ChatServer, launch: Launch) -> None:
    flags = ("--tool", "desk.py:look_up", "-m", "claude/claude-opus-5-5")
    answer(upstream, FIRST_CALL, "tool_use")
    answer(upstream, FIRST_ANSWER)
    assert launch("chat", *flags, "--chain", "What did A1 cost?").exit == 0
    answer(upstream, SECOND_ANSWER)
    assert launch("chat", *flags, "-c", "Sure?").exit == 0
    assert assistant_turns(upstream) == [FIRST_CALL, FIRST_ANSWER]
    before, after = (request.body.partition(b'"messages":')[2] for request in upstream.requests[1:])
    end_of_call = before.index(b'{"role":"user","content":[{"type":"tool_result"')
    assert after[:end_of_call] == before[:end_of_call]


@pytest.mark.parametrize("owner", OWNERS)
def test_the_cache_of_a_chat_is_compared_with_an_earlier_response(
    owner: str, upstream: ChatServer, convo: Convo
) -> None:
    flags = ("-m", "claude/claude-opus-5-5")
    answer(upstream, SECOND_ANSWER)
    first = convo("chat", *flags, owner, "-n", "mine", "--json", "--param", compared("null"), "Hi.").json()

    answer(upstream, SECOND_ANSWER)
    option = compared(json.dumps(first["response_id"]))
    second = convo("chat", *flags, "-c", "--json", "--param", option, "Again.").json()

    assert upstream.requests[0].json["diagnostics"] == {"previous_message_id": None}
    assert upstream.requests[1].json["diagnostics"] == {"previous_message_id": "msg_01"}
    shown = convo("inspect", second["response_id"]).out
    assert "cache hit" in shown
    assert "provider id" in shown
    assert "not sent to the model" not in shown


def compared(response_id: str) -> str:
    return f'prompt_cache_options={{"comparison_response_id": {response_id}}}'
