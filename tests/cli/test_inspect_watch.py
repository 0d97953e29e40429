"""`convo inspect --watch` and the pager, in a pipe and in a terminal."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convo.cli.inspect import ScreenPainter
from convo.history.items import user_message
from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO
from tests.cli.stored_chats import ChatWriter, chat_of, write_chats
from tests.command_runner import Convo
from tests.fork_server import ConvoProcess
from tests.inspect.conversation_builder import build_chain
from tests.terminal.pty_process import end_process, spawn
from tests.terminal.screen import open_screen
from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]


@contextmanager
def run_watch(*argv: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `convo inspect ARGV --watch` in a pipe until the block ends."""
    pipe = subprocess.PIPE
    with ConvoProcess(["inspect", *argv, "--watch"], stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def run_in_terminal(*argv: str, rows: int, **environ: str) -> Iterator[Any]:
    """Run a command line in a terminal of 80 columns until the block ends."""
    env = {**os.environ, "TERM": "xterm", **environ}
    env.pop("COLUMNS", None)
    child = spawn(*argv, env=env, dimensions=(rows, 80), encoding="utf-8", timeout=60)
    try:
        yield child
    finally:
        end_process(child)


# -- watching -------------------------------------------------------------------------------------


def test_in_a_pipe_each_response_of_another_process_is_printed_once(convo: Convo) -> None:
    convo("chat", "one", "--name", "mine", *ECHO)
    with run_watch("mine") as process:
        assert process.stdout
        heads, first = process.stdout.readline(), process.stdout.readline()
        convo("chat", "-c", "two", *ECHO)
        second = process.stdout.readline()
    assert heads.startswith("response")
    assert first.startswith("@ resp_")
    assert first.endswith("one → one\n")
    assert second.endswith("two → two\n")
    assert "\x1b" not in heads + first + second


def test_until_idle_ends_once_no_response_is_in_progress(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.CHAIN, "one", "two"))
    got = convo("inspect", "mine", "--watch", "--until-idle")
    assert (got.exit, got.err) == (0, "")
    assert [line[:8] for line in got.out.splitlines()] == ["response", "● resp_1", "@ resp_2"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("mine", "other", "--watch"), "--watch accepts one handle"),
        (("mine", "--until-idle"), "--until-idle requires --watch"),
        (
            ("mine", "--watch", "--items"),
            "--watch and --items cannot be used together: --watch shows the tree of the local copy",
        ),
        (
            ("mine", "--watch", "--remote"),
            "--watch and --remote cannot be used together: --watch shows the tree of the local copy",
        ),
    ],
)
def test_conflicting_options_are_refused(argv: tuple[str, ...], message: str, convo: Convo) -> None:
    got = convo("inspect", *argv)
    assert (got.exit, got.out) == (2, "")
    assert got.err.splitlines()[0] == f"convo: {message}"


def test_watching_an_unknown_handle_exits_5(convo: Convo) -> None:
    assert convo("inspect", "nope", "--watch").exit == 5


@pytest.mark.needs("terminal")
def test_in_a_terminal_the_screen_is_redrawn_and_ctrl_c_ends_the_watch(convo: Convo) -> None:
    import pexpect

    convo("chat", "one", "--name", "mine", *ECHO)
    with run_in_terminal("inspect", "mine", "--watch", rows=30) as child:
        child.expect_exact("one → one")
        child.expect_exact("no response in progress; press q or Ctrl-C to stop")
        convo("chat", "-c", "two", *ECHO)
        child.expect_exact("two → two")
        output = child.before
        child.expect_exact("no response in progress; press q or Ctrl-C to stop")
        child.sendcontrol("c")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 130
        assert child.before.endswith("\r\x1b[?7h\x1b[J")
    assert "\x1b[H" in output
    assert "\x1b[2J" not in output


@pytest.mark.needs("terminal")
def test_q_ends_the_watch_and_restores_the_terminal(convo: Convo) -> None:
    import termios

    convo("chat", "one", "--name", "mine", *ECHO)
    with open_screen("inspect", "mine", "--watch") as screen:
        fd, echo_flags = os.dup(screen.child.child_fd), termios.ECHO | termios.ICANON
        screen.wait_until(lambda: "press q or Ctrl-C to stop" in screen.text())
        assert not termios.tcgetattr(fd)[3] & echo_flags
        screen.type_keys("not this key")
        screen.type_keys("q")
        assert screen.wait_for_exit() == 0
        assert screen.text().endswith("one → one")
        assert termios.tcgetattr(fd)[3] & echo_flags == echo_flags
        os.close(fd)


def test_the_last_line_says_whether_a_response_is_in_progress(capsys: pytest.CaptureFixture[str]) -> None:
    chain = build_chain(1)
    path = chain.paths["resp_1"]
    pending_view = chain.view("resp_1", path=path.append([user_message("and now?")]), confirmed_head=path.head)
    for view in (pending_view, chain.view("resp_1")):
        ScreenPainter().show(view)
    first, second = re.findall(r"[a-z ;]+; press q or Ctrl-C to stop", capsys.readouterr().out)
    assert (first, second) == (
        "watching; press q or Ctrl-C to stop",
        "no response in progress; press q or Ctrl-C to stop",
    )


# -- the pager ------------------------------------------------------------------------------------


async def write_long_chat(writer: ChatWriter) -> None:
    await writer.chat(Strategy.CHAIN, "long", *(f"question {number}" for number in range(12)))


@pytest.mark.needs("terminal")
def test_output_taller_than_the_terminal_is_shown_in_the_pager(home: Path, tmp_path: Path) -> None:
    import pexpect

    write_chats(home, write_long_chat)
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged by $1 with $LESS; sed -n '$='\n", encoding="utf-8")
    pager.chmod(0o755)
    outputs = []
    for flags in ((), ("--no-pager",)):
        with run_in_terminal("inspect", "long", *flags, rows=10, PAGER=f"{pager} 'a b'") as child:
            child.expect(pexpect.EOF)
            outputs.append(child.before)
    paged, unpaged = outputs
    assert paged.splitlines()[0] == "paged by a b with FRX"
    assert int(paged.splitlines()[1]) >= 20
    assert "question 11" in unpaged
    assert "paged by" not in unpaged


def test_piped_output_is_not_shown_in_the_pager(convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_chats(home, write_long_chat)
    monkeypatch.setenv("PAGER", "false")
    monkeypatch.setenv("LINES", "5")
    assert "question 11 → question 11" in convo("inspect", "long").out
