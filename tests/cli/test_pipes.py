"""Commands in a pipe: input from stdin, and output for programs."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.cli.agent_files import REFUND, agent_flags
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.command_runner import Convo
from tests.fork_server import ConvoProcess, run_convo

COLOR_ENVIRONMENT = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}

pytestmark = pytest.mark.needs("posix")


@contextmanager
def null_stdin() -> Iterator[int]:
    yield subprocess.DEVNULL


@contextmanager
def closed_stdin() -> Iterator[None]:
    """A closed stdin."""
    yield None


Stdin = Callable[[], AbstractContextManager[int | None]]


def run_with_stdin(stdin: Stdin, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command with this stdin, in an environment that requests colours."""
    with stdin() as fd:
        shell = 'exec "$@" <&-' if fd is None else 'exec "$@"'
        command = ["sh", "-c", shell, "sh", sys.executable, "-m", "convo", *argv]
        environ = {**os.environ, **COLOR_ENVIRONMENT}
        return subprocess.run(
            command, stdin=fd, env=environ, capture_output=True, encoding="utf-8", timeout=60, check=False
        )


@pytest.mark.parametrize("stdin", [null_stdin, closed_stdin])
def test_one_json_object_is_printed_with_any_stdin(stdin: Stdin) -> None:
    done = run_with_stdin(stdin, "chat", *ECHO, "--json", "hello there")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output_text"] == "hello there"
    assert done.stdout.count("\n") == 1
    assert "\x1b" not in done.stdout + done.stderr


def test_without_a_command_piped_input_is_sent_as_a_message_and_else_the_help_is_shown(convo: Convo) -> None:
    assert run_with_stdin(null_stdin).stdout == convo("--help").out
    assert convo("config", "set", "model", "scripted/echo").exit == 0
    got = convo(stdin="hello there")
    assert (got.exit, got.out) == (0, "hello there\n")


@pytest.mark.parametrize("flag", ["--json", "--jsonl"])
def test_with_json_or_jsonl_a_call_that_needs_approval_pauses_without_a_prompt(flag: str) -> None:
    done = run_with_stdin(null_stdin, "chat", *agent_flags(), *scripted_flags(REFUND), flag, "pay A1 back")
    assert done.returncode == 3
    last = json.loads(done.stdout.splitlines()[-1])
    assert last.get("status", last.get("type")) in ("paused", "convo.paused")
    assert "\x1b" not in done.stdout + done.stderr


# -- piped input -----------------------------------------------------------------------------------

WAIT_NOTE = "waiting for piped input to end; to run without it, add </dev/null\n"


@pytest.fixture
def session(convo: Convo) -> str:
    """Create a session; returns its name."""
    assert convo("chat", *ECHO, "-n", "before", "hello").exit == 0
    return "before"


def answer(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    text: str = json.loads(done.stdout)["output_text"]
    return text


@pytest.mark.parametrize("source", ["pipe", "file", "socket"])
def test_input_from_a_pipe_a_file_or_a_socket_follows_the_prompt(source: str) -> None:
    Path("log.txt").write_text("a3f1 fix the parser\n")
    argv = ["chat", *ECHO, "--json", "review this"]
    writer, reader = socket.socketpair()
    with writer, reader, Path("log.txt").open() as file:
        writer.sendall(b"a3f1 fix the parser\n")
        writer.shutdown(socket.SHUT_WR)
        if source == "pipe":
            done = run_convo(argv, stdin=file.read())
        else:
            stdin = file.fileno() if source == "file" else reader.fileno()
            with ConvoProcess(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                out, err = process.communicate(timeout=60)
            done = subprocess.CompletedProcess(argv, process.returncode, out, err)
    assert answer(done) == "review this\n\na3f1 fix the parser\n"
    assert WAIT_NOTE not in done.stderr


def test_a_socket_without_data_is_not_read() -> None:
    """Programs can pass a socket to child processes unintentionally."""
    writer, reader = socket.socketpair()
    argv = ["chat", *ECHO, "--json", "hello"]
    with (
        writer,
        reader,
        ConvoProcess(argv, stdin=reader.fileno(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        out, err = process.communicate(timeout=60)
    assert json.loads(out)["output_text"] == "hello", err


def test_a_file_is_read_from_its_current_position() -> None:
    """The shell has already read the first line."""
    Path("lines.txt").write_text("one\ntwo\nthree\n")
    script = 'read first; exec "$@" "$first"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "convo", "chat", *ECHO, "--json"]
    with Path("lines.txt").open() as file:
        done = subprocess.run(command, stdin=file, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert answer(done) == "one\n\ntwo\nthree\n"


def test_stdin_that_another_option_reads_is_not_part_of_the_message(convo: Convo) -> None:
    argv = ["chat", *ECHO, "--json", "-a", "/dev/stdin", "review this"]
    assert answer(run_convo(argv, stdin="a\n")) == "review this\nstdin:\na\n"
    got = convo(*argv, "-", stdin="a\n")
    assert (got.exit, got.json()["error"]["message"]) == (2, "- and /dev/stdin both read stdin")


@pytest.mark.parametrize(
    "argv",
    [["chat", *ECHO, "hi"], ["chat", *ECHO], ["chat", *ECHO, "-"], ["next", "@last", "hi"], ["race", *ECHO, "hi"]],
)
def test_input_above_the_size_limit_is_refused(argv: list[str], session: str, convo: Convo) -> None:
    got = convo(*argv, stdin="x" * (10 * 1024 * 1024) + "y")
    assert (got.exit, got.out) == (2, "")
    assert got.err.splitlines()[0] == "convo: piped input is larger than 10 MB"


def test_endless_input_is_refused() -> None:
    command = ["sh", "-c", 'yes | "$@"', "sh", sys.executable, "-m", "convo", "chat", *ECHO, "hi"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 2


@pytest.mark.parametrize("case", ["next", "race"])
def test_a_pipe_without_data_is_reported_and_waited_for(case: str, session: str) -> None:
    """The commands start together, so that their waits of two seconds overlap."""
    pipe = subprocess.PIPE
    commands = {
        "next": [["chat", *ECHO, "-q", "--json", "review:"], ["next", session, "--json", "review:"]],
        "race": [["race", *ECHO, "--json", "review:", "shorter"], ["chat", *ECHO, "--json", "review:", "-"]],
    }
    processes = [ConvoProcess(argv, stdin=pipe, stdout=pipe, stderr=pipe) for argv in commands[case]]
    try:
        for process in processes:
            assert process.stderr
            assert process.stderr.readline() == WAIT_NOTE
        for process, argv in zip(processes, commands[case], strict=True):
            out, err = process.communicate("the diff", timeout=60)
            assert process.returncode == 0, err
            assert WAIT_NOTE not in err
            assert "review:\\n\\nthe diff" in out, argv
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_input_follows_the_message_of_a_previewed_request(session: str, convo: Convo) -> None:
    def message(*argv: str, stdin: str) -> str:
        body = convo("next", session, "--json", *argv, stdin=stdin).json()["body"]
        text: str = body["input"][-1]["content"][0]["text"]
        return text

    assert message("review this", stdin="a\n") == "review this\n\na\n"
    assert message("-", "is it right?", stdin="a\n") == "is it right?\n\na\n"
    assert message(stdin="a\n") == "a\n"
    assert message("alone", stdin="") == "alone"


def test_input_follows_the_first_turn_of_a_race_or_is_the_only_turn(convo: Convo) -> None:
    def turns(*argv: str, stdin: str) -> list[str]:
        messages: list[str] = convo("race", *ECHO, "--json", *argv, stdin=stdin).json()["turns"]
        return messages

    Path("script.txt").write_text("first\nsecond\n")
    assert turns("review this", "shorter", stdin="a\n") == ["review this\n\na\n", "shorter"]
    assert turns("review this", "-", stdin="a\n") == ["review this", "a\n"]
    assert turns(stdin="a\n") == ["a\n"]
    assert turns("-f", "script.txt", stdin="a\n") == ["first\n\na\n", "second"]
    assert turns("-f", "script.txt", stdin="") == ["first", "second"]
    assert len(turns(stdin="")) == 4
    assert convo("race", *ECHO, "-", stdin="").exit == 2
