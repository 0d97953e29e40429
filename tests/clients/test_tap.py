"""Codex, Claude Code and opencode behind `convo tap`: an unchanged installation, a scripted vendor, one turn each."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from uvicorn import Config

from convo.server.server import GatewayServer
from tests.asgi_server import listen_on_free_port, start_loop_thread
from tests.bench.upstream import TEXT, response_events, serve
from tests.command_runner import Convo

KEY = "sk-client-0123456789"
CLAUDE_TEXT = "Twelve."


@dataclass
class Vendor:
    """A scripted vendor: Responses over HTTP and WebSocket, and Anthropic Messages.

    paths:  the kind and the path of each request, oldest first
    """

    url: str
    paths: list[tuple[str, str]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append((scope["type"], scope["path"]))
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                turn_id = f"resp_{len(self.paths)}{len(message['text'])}"
                for number, event in enumerate(response_events()):
                    text = json.dumps({**event, "sequence_number": number}).replace("resp_1", turn_id)
                    await send({"type": "websocket.send", "text": text})
        elif scope["path"] == "/v1/messages":
            await send_answer(send, b"text/event-stream", b"".join(map(encode_event, claude_events())))
        elif scope["path"] == "/v1/responses":
            await serve(scope, receive, send)
        else:
            await send_answer(send, b"application/json", b"{}")


async def send_answer(send: Any, content_type: bytes, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type)]})
    await send({"type": "http.response.body", "body": body})


def encode_event(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def claude_events() -> list[dict[str, Any]]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": []}
    usage = {"input_tokens": 10, "output_tokens": 1}
    delta = {"type": "text_delta", "text": CLAUDE_TEXT}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    listener, url = listen_on_free_port()
    vendor, loop = Vendor(url), asyncio.new_event_loop()
    server = GatewayServer(
        Config(vendor, lifespan="off", ws="websockets-sansio", log_config=None, log_level="critical")
    )
    thread = start_loop_thread(loop, server.serve([listener]))
    for name, value in {
        "OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY, "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": KEY, "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    yield vendor
    loop.call_soon_threadsafe(server.request_end)
    thread.join()
    listener.close()


def tap(*command: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which(command[0])
    assert program
    return subprocess.run(
        [sys.executable, "-m", "convo", "tap", "--", program, *command[1:]],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=110, check=False,
    )  # fmt: skip


def recorded_text(convo: Convo, home: Path) -> str:
    """All recorded sessions as JSON; the key is nowhere in the store."""
    assert not any(KEY.encode() in file.read_bytes() for file in home.rglob("*") if file.is_file())
    names = [session["name"] for session in convo("sessions", "--json").json()]
    return "".join(convo("inspect", name, "--json").out for name in names)


@pytest.mark.needs("codex")
def test_codex_over_its_websocket(vendor: Vendor, convo: Convo, home: Path) -> None:
    flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    result = tap("codex", "exec", *flags, "Say a number.")
    assert result.returncode == 0, result.stderr
    assert TEXT in result.stdout
    assert ("websocket", "/v1/responses") in vendor.paths
    recorded = recorded_text(convo, home)
    assert "Say a number." in recorded
    assert TEXT in recorded


@pytest.mark.full
@pytest.mark.needs("claude")
def test_claude_code(vendor: Vendor, convo: Convo, home: Path) -> None:
    result = tap("claude", "-p", "Say a number.", "--model", "claude-sonnet-5")
    assert result.returncode == 0, result.stderr
    assert CLAUDE_TEXT in result.stdout
    assert ("http", "/v1/messages") in vendor.paths
    assert CLAUDE_TEXT in recorded_text(convo, home)


@pytest.mark.full
@pytest.mark.needs("opencode")
@pytest.mark.parametrize(("model", "text"), [("openai/gpt-5-mini", TEXT), ("anthropic/claude-sonnet-5", CLAUDE_TEXT)])
def test_opencode(vendor: Vendor, convo: Convo, home: Path, model: str, text: str) -> None:
    result = tap("opencode", "run", "-m", model, "Say a number.")
    assert result.returncode == 0, result.stderr
    assert text in result.stdout
    assert text in recorded_text(convo, home)
