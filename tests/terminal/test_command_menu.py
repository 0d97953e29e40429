"""The menu of commands that opens while the name of a command is typed."""

import re
from pathlib import Path

import pytest

from tests.cli.chat_commands import ECHO
from tests.terminal.screen import TerminalScreen, open_screen

pytestmark = pytest.mark.needs("terminal")


def menu(screen: TerminalScreen) -> list[str]:
    """The names in the menu below the prompt."""
    below = screen.text().splitlines()[screen.screen.cursor.y + 1 :]
    return [line.split()[0] for line in below if line.lstrip().startswith("/")]


def type_until(screen: TerminalScreen, keys: str, names: list[str]) -> None:
    """Type `keys` and wait until the menu has these names."""
    screen.type_keys(keys)
    screen.wait_until(lambda: menu(screen) == names)


def test_a_menu_follows_the_typed_name() -> None:
    with open_screen("chat", *ECHO) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("/")
        screen.wait_until(lambda: menu(screen)[:3] == ["/help", "/status", "/next"])
        screen.wait_until(lambda: re.search(r"^7 of \d\d, Down for more$", screen.text(), re.M) is not None)
        screen.type_keys("\x1b[B\x1b[B")
        screen.wait_until(lambda: re.search(r"^2 of \d\d$", screen.text(), re.M) is not None)
        screen.type_keys("\x1b[A\x1b[A")
        screen.wait_until(lambda: "Down for more" in screen.text())
        type_until(screen, "e", ["/effort", "/edit", "/export", "/exit"])
        assert " of " not in screen.text().splitlines()[-1]
        type_until(screen, "x", ["/export", "/exit"])
        type_until(screen, "\x7f", ["/effort", "/edit", "/export", "/exit"])
        type_until(screen, "\x1b", [])
        assert "> /e\n" in screen.text()
        type_until(screen, "x", ["/export", "/exit"])
        screen.type_keys("\x1b[B\x1b[B")
        screen.wait_for_text("> /exit")
        screen.type_keys("\r")
        screen.wait_until(lambda: menu(screen) == [])
        screen.type_keys("\r")
        assert screen.wait_for_exit() == 0


def test_a_menu_follows_the_name_of_a_file_after_an_at_sign() -> None:
    for name in ("notes.txt", "nothing.txt", "other.txt"):
        Path(name).write_text("the notes")
    with open_screen("chat", *ECHO) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("read @no")
        screen.wait_until(lambda: "notes.txt" in screen.text() and "nothing.txt" in screen.text())
        assert "other.txt" not in screen.text()
        screen.type_keys("x")
        screen.wait_until(lambda: "nothing.txt" not in screen.text())
        screen.type_keys("\x7f")
        screen.wait_for_text("nothing.txt")
        screen.type_keys("\x1b[B\r")
        screen.wait_for_text("> read @notes.txt")
        screen.wait_until(lambda: "nothing.txt" not in screen.text())
        screen.type_keys("\r")
        screen.wait_for_prompt("+ notes.txt (text, 20 bytes)")


@pytest.mark.parametrize("columns", [40, 80])
def test_a_cut_description_ends_with_the_ellipsis_of_other_cut_texts(columns: int) -> None:
    with open_screen("chat", *ECHO, columns=columns) as screen:
        screen.wait_for_prompt("/help")
        type_until(screen, "/ex", ["/export", "/exit"])
        [line] = [line for line in screen.text().splitlines() if line.lstrip().startswith("/export")]
        assert (line.endswith("…"), "..." in line) == (True, False)
        assert len(line) >= columns - 6
        screen.type_keys("\x03")
        screen.wait_for_prompt()


@pytest.mark.parametrize("text", ["//usage", "usage/", "/usage then"])
def test_a_message_opens_no_menu(text: str) -> None:
    with open_screen("chat", *ECHO) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys(text)
        screen.wait_for_text(text)
        screen.wait_until(lambda: menu(screen) == [])
        screen.type_keys("\x03")
        screen.wait_for_prompt()


def test_enter_runs_the_typed_command_although_the_menu_is_open() -> None:
    with open_screen("chat", *ECHO) as screen:
        screen.wait_for_prompt("/help")
        type_until(screen, "/us", ["/usage"])
        type_until(screen, "\x7f", ["/usage", "/undo"])
        screen.type_keys("\r")
        screen.wait_for_prompt("unknown command '/u'")
        assert menu(screen) == []
