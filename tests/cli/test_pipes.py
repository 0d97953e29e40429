"""`convo chat` in a pipe: it waits for nobody, draws nothing, and prints one object or lines of them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.cli.agenting import REFUND, agents
from tests.cli.chatting import ECHO, scripted
from tests.running import Convo

COLOURFUL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}

pytestmark = pytest.mark.needs("posix")


@contextmanager
def left_open() -> Iterator[int]:
    """A pipe to which nobody writes and which nobody closes."""
    read, write = os.pipe()
    yield read
    os.close(read)
    os.close(write)


@contextmanager
def nothing() -> Iterator[int]:
    yield subprocess.DEVNULL


@contextmanager
def closed() -> Iterator[None]:
    """No stdin at all."""
    yield None


Stdin = Callable[[], AbstractContextManager[int | None]]


def asked(stdin: Stdin, *argv: str) -> subprocess.CompletedProcess[str]:
    """The command with this at its stdin, in an environment that asks for colours."""
    with stdin() as end:
        shell = 'exec "$@" <&-' if end is None else 'exec "$@"'
        command = ["sh", "-c", shell, "sh", sys.executable, "-m", "convo", *argv]
        environ = {**os.environ, **COLOURFUL}
        return subprocess.run(
            command, stdin=end, env=environ, capture_output=True, encoding="utf-8", timeout=60, check=False
        )


@pytest.mark.parametrize("stdin", [left_open, nothing, closed])
def test_an_object_comes_whatever_stands_at_stdin(stdin: Stdin) -> None:
    done = asked(stdin, "chat", *ECHO, "--json", "hello there")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output_text"] == "hello there"
    assert done.stdout.count("\n") == 1
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("flag", ["--json", "--jsonl"])
def test_nobody_is_asked_to_approve_a_call(flag: str) -> None:
    done = asked(left_open, "chat", *agents(), *scripted(REFUND), flag, "pay A1 back")
    assert done.returncode == 3
    last = json.loads(done.stdout.splitlines()[-1])
    assert last.get("status", last.get("type")) in ("paused", "convo.paused")
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("argv", [[], ["-"]])
def test_nothing_at_all_is_an_error_and_no_prompt(argv: list[str], convo: Convo) -> None:
    got = convo("chat", *ECHO, "--json", *argv)
    assert (got.exit, got.err) == (2, "")
    assert got.json()["error"]["code"] == "usage"


def test_events_are_a_line_each_and_end_with_the_response(convo: Convo) -> None:
    lines = [json.loads(line) for line in convo("chat", *ECHO, "--jsonl", "hello there").out.splitlines()]
    assert lines[0]["type"] == "response.created"
    assert lines[-1]["type"] == "response.completed"
    assert "".join(one["delta"] for one in lines if one["type"] == "response.output_text.delta") == "hello there"
