"""Screens and confirmation prompts in a real terminal of 80 columns, with enough rows for each."""

import os
import re
from pathlib import Path

import pytest

from convo.history.records import Strategy
from convo.terminal.terminal import text_width
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.terminal.pty_process import spawn
from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]

pytestmark = pytest.mark.needs("terminal")

COLOR_CODE = re.compile(r"\x1b\[\d*m")


async def write_chat(writer: ChatWriter) -> None:
    chat = await writer.chat(Strategy.CHAIN, "monads", "What is a monad, in words that a child would know?", "Why?")
    await writer.retry(chat)


def run_in_terminal(*argv: str, env: dict[str, str] | None = None) -> str:
    """The output of a command line in a terminal."""
    import pexpect

    environ = {**os.environ, "TERM": "xterm", **(env or {})}
    environ.pop("COLUMNS", None)
    child = spawn(*argv, dimensions=(40, 80), encoding="utf-8", env=environ, timeout=60)
    child.expect(pexpect.EOF)
    child.close()
    return str(child.before).replace("\r\n", "\n")


def test_a_tree_with_forks_fits_into_eighty_columns(home: Path) -> None:
    write_chats(home, write_chat)
    output = run_in_terminal("inspect", "monads")
    lines = COLOR_CODE.sub("", output).splitlines()
    assert max(map(text_width, lines)) <= 80
    rows = [line[:14] for line in lines if "resp_" in line[:12]]
    assert rows[:3] == ["● resp_1    fu", "├─● resp_2  de", "@ resp_3    de"]
    assert rows[3:] == ["● resp_1    ch", "├─● resp_2  ch", "@ resp_3    ch"]
    assert COLOR_CODE.search(output)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_color_can_be_disabled(env: dict[str, str], home: Path) -> None:
    write_chats(home, write_chat)
    assert "\x1b" not in run_in_terminal("inspect", "monads", env=env)


def test_sessions_fit_into_eighty_columns(home: Path) -> None:
    write_chats(home, write_chat)
    lines = COLOR_CODE.sub("", run_in_terminal("sessions")).splitlines()
    assert max(map(text_width, lines)) <= 80
    assert lines[1].startswith("monads   chain")


@pytest.mark.parametrize(
    ("answer", "is_kept", "exit_code"), [("y", False, 0), ("yes", False, 0), ("n", True, 1), ("", True, 1)]
)
def test_removing_asks_for_confirmation_in_a_terminal(answer: str, is_kept: bool, exit_code: int, home: Path) -> None:
    import pexpect

    write_chats(home, write_chat)
    child = spawn("sessions", "rm", "monads", encoding="utf-8", env=dict(os.environ), timeout=60)
    child.expect_exact("remove monads? [y/N] ")
    child.sendline(answer)
    child.expect(pexpect.EOF)
    child.close()
    message = "nothing was removed" if is_kept else "removed monads: 3 responses and 5 items"
    assert (child.exitstatus, message in str(child.before)) == (exit_code, True)
    assert ("monads" in run_in_terminal("sessions", env={"NO_COLOR": "1"}).split("\n", 1)[1]) == is_kept
