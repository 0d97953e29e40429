"""Output that is taller than the terminal is shown by the pager of $PAGER, else by less."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from convo.terminal.pager import print_paged
from tests.cli.chat_commands import ECHO
from tests.terminal.pty_session import at_terminal

Page = Callable[..., str]

LONG = "a\n" * 30


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """Print a text at a terminal; returns the command line of the pager that was started, "" without one."""
    pager_log = tmp_path / "begun"
    for name in ("less", "most", "cat", "a b/pager"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "${{0##*/}}" "$@" >"{pager_log}"; exec /bin/cat >/dev/null\n')
        program.chmod(0o755)
    screen, terminal = os.openpty()
    with open(terminal, "w", closefd=False) as out, open(terminal, closefd=False) as keys:

        def print_text(text: str = LONG, columns: int = 80, rows: int = 24, **environ: str) -> str:
            monkeypatch.setenv("COLUMNS", str(columns))
            monkeypatch.setenv("LINES", str(rows))
            pager_log.unlink(missing_ok=True)
            with monkeypatch.context() as streams:
                streams.setattr(sys, "stdout", out)
                streams.setattr(sys, "stdin", keys)
                print_paged(text, {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "xterm", **environ})
            return pager_log.read_text().strip() if pager_log.exists() else ""

        yield print_text
    os.close(screen)
    os.close(terminal)


@pytest.mark.parametrize(
    ("pager", "printed"),
    [
        pytest.param("true", b"", id="a pager"),
        pytest.param("no-such-pager", LONG.replace("\n", "\r\n").encode(), id="no pager"),
    ],
)
def test_text_that_the_pager_shows_is_not_printed_too(
    pager: str, printed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, terminal = os.openpty()
    with open(terminal, "w", closefd=False) as out, monkeypatch.context() as streams:
        streams.setattr(sys, "stdout", out)
        streams.setattr(sys, "stdin", out)
        streams.setenv("LINES", "24")
        print_paged(LONG, {"PATH": os.environ["PATH"], "TERM": "xterm", "PAGER": pager})
        out.write("end")
    shown = b""
    while not shown.endswith(b"end"):  # a terminal may return its output in parts
        shown += os.read(screen, 1000)
    assert shown == printed + b"end"
    os.close(screen)
    os.close(terminal)


@pytest.mark.parametrize(
    ("pager", "command"),
    [
        (None, "less"),
        ("most -w", "most -w"),
        ("'{folder}/a b/pager' -x", "pager -x"),
        ("cat", ""),
        ("", ""),
        ("less 'open", "less"),
        ("no-such-pager", ""),
    ],
)
def test_pager_variable_names_the_command_and_its_arguments(
    pager: str | None, command: str, page: Page, tmp_path: Path
) -> None:
    environ = {} if pager is None else {"PAGER": pager.format(folder=tmp_path)}
    assert page(**environ) == command


def test_lines_are_counted_as_wrapped_and_a_row_is_reserved_for_the_prompt(page: Page) -> None:
    assert not page("a\nb\n", 80, 3)
    assert page("a\nb\nc\n", 80, 3)
    assert page("x" * 161, 80, 3)
    assert not page("\x1b[33m" + "x" * 80 + "\x1b[0m", 80, 2)
    assert page("宽" * 41, 80, 2)


def test_a_dumb_terminal_has_no_pager(page: Page) -> None:
    assert not page(TERM="dumb")


def test_piped_output_is_written_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    print_paged("a\n" * 500, {"PAGER": "false"})
    assert capsys.readouterr().out == "a\n" * 500


@pytest.mark.parametrize(("command", "part"), [("/help", "  /export [FILE] "), ("/next", '"instructions": "line ')])
def test_a_slash_command_pages_what_is_longer_than_the_screen(command: str, part: str, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\n/bin/cat >"{tmp_path}/paged"; echo paged; read key </dev/tty; echo "end of $key"\n')
    pager.chmod(0o755)
    with at_terminal("chat", *ECHO, "-s", "line " * 500, env={"PAGER": str(pager)}) as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys(f"{command}\r")
        terminal.wait_for_text("paged")
        terminal.type_keys("a key\r")
        terminal.wait_for_text("end of a key")
        terminal.wait_for_prompt()
        assert terminal.send_line("hello").count("hello")
        assert terminal.end_session() == 0
    assert part in (tmp_path / "paged").read_text()
