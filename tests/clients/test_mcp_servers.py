"""MCP servers of the registries in a chat, over stdio and streamable HTTP: each call is approved, then run."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.command_runner import Convo

pytestmark = [pytest.mark.needs("mcp", "mcp servers"), pytest.mark.full(every_commit=True)]

EVERYTHING = "mcp-server-everything"


@contextmanager
def run_http_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {**os.environ, "PORT": str(port)}
    command = [EVERYTHING, "streamableHttp"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, encoding="utf-8") as server:
        try:
            assert server.stderr
            assert any("listening" in line for line in server.stderr)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest) -> Iterator[str]:
    """The server `everything` for --mcp; the other two servers have only stdio."""
    if request.param == "stdio":
        yield f"{EVERYTHING} stdio"
        return
    with run_http_server() as url:
        yield url


def test_the_tools_of_three_servers_run_after_their_approval(everything: str, convo: Convo, home: Path) -> None:
    folder = Path("files").absolute()
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
    servers = (f"files=mcp-server-filesystem {folder}", "git=mcp-server-git", f"everything={everything}")
    flags = [word for server in servers for word in ("--mcp", server)]
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
