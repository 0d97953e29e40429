"""MCP servers of the registries in a chat, over stdio and streamable HTTP: each call is approved, then run."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.command_runner import Convo

pytestmark = [pytest.mark.needs("mcp", "mcp servers"), pytest.mark.full(every_commit=True)]


@contextmanager
def run_http_server(*command: str) -> Iterator[str]:
    """Run a server on a free port, which it takes from $PORT or as `--port`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [port if word == "PORT" else word for word in command]
    with subprocess.Popen(
        words,
        env={**os.environ, "PORT": port},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,
    ) as server:
        try:
            assert server.stdout
            assert any("listening" in line.lower() for line in server.stdout)
            threading.Thread(target=server.stdout.read, daemon=True).start()  # the bridge prints each message
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            os.killpg(server.pid, signal.SIGTERM)  # node may be a child of a script, and keeps stdout open


@pytest.fixture(params=["stdio", "http"])
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The servers for --mcp, by name; over HTTP two of them through a bridge, as they have only stdio."""
    commands = {"files": f"mcp-server-filesystem {tmp_path}", "git": "mcp-server-git"}
    everything = "mcp-server-everything"
    if request.param == "stdio":
        yield {**commands, "everything": f"{everything} stdio"}
        return
    options = ("--outputTransport", "streamableHttp", "--stateful", "--port", "PORT")
    with ExitStack() as running:
        urls = {
            name: running.enter_context(run_http_server("supergateway", "--stdio", command, *options))
            for name, command in commands.items()
        }
        yield {**urls, "everything": running.enter_context(run_http_server(everything, "streamableHttp"))}


def test_the_tools_of_three_servers_run_after_their_approval(
    addresses: dict[str, str], convo: Convo, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    git = ["git", "-c", "user.name=Kim", "-c", "user.email=kim@x.org", "-C", str(folder)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "first one"], check=True)
    calls = [
        ("files__write_file", {"path": f"{folder}/note.txt", "content": "hello"}),
        ("files__read_text_file", {"path": f"{folder}/note.txt"}),
        ("git__git_log", {"repo_path": str(folder)}),
        ("everything__echo", {"message": "hi"}),
        ("everything__get-tiny-image", {}),
    ]
    replies = [
        {"call": {"name": f"mcp__{name}", "call_id": f"c{number}", "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    flags = [word for name, address in addresses.items() for word in ("--mcp", f"{name}={address}")]
    got = convo("chat", *flags, *scripted_flags(*replies, {"text": "Done."}), "-n", "mine", "go")
    for number in range(len(calls)):
        assert got.exit == 3, got.err
        assert (folder / "note.txt").exists() == (number > 0)
        got = convo("resume", "mine", "--approve", f"c{number}")
    assert (got.exit, got.out) == (0, "Done.\n"), got.err
    items, _ = stored_conversation(home, "mine")
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert (outputs[1], outputs[3]) == ("hello", "Echo: hi")
    assert "first one" in outputs[2]
    assert "input_image" in [part["type"] for part in outputs[4]]
