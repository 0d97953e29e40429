"""A long paste is shown as one placeholder, and sent and remembered as it is."""

from pathlib import Path

import pytest

from convo.terminal.line_editor import CollapsedPastes
from tests.cli.chat_commands import ECHO, stored_messages
from tests.terminal.screen import TerminalScreen, open_screen

LINES = "\n".join(f"line {number}" for number in range(1, 31))


def paste(screen: TerminalScreen, text: str) -> None:
    screen.type_keys(f"\x1b[200~{text}\x1b[201~")


def test_a_paste_of_up_to_twenty_lines_is_shown() -> None:
    pastes = CollapsedPastes()
    assert pastes.collapse("a\n" * 20) == "a\n" * 20
    assert pastes.collapse("\n".join("a" * 20)) == "\n".join("a" * 20)
    assert pastes.collapse("a\n" * 21) == "[pasted 21 lines]"
    assert pastes.expand("[pasted 21 lines]") == "a\n" * 21


def test_a_paste_of_one_long_line_is_collapsed() -> None:
    pastes = CollapsedPastes()
    assert pastes.collapse("a" * 10_000) == "a" * 10_000
    assert pastes.collapse("a" * 10_001) == "[pasted 10,001 characters]"
    assert pastes.collapse("b" * 10_001) == "[pasted 10,001 characters, 2]"
    assert pastes.expand("[pasted 10,001 characters, 2]") == "b" * 10_001


def test_each_placeholder_is_replaced_by_its_own_paste() -> None:
    pastes = CollapsedPastes()
    first, second = "[pasted 21 lines]\n" * 21, "b\n" * 21
    assert [pastes.collapse(first), pastes.collapse(second), pastes.collapse("c\n" * 2_000)] == [
        "[pasted 21 lines]",
        "[pasted 21 lines, 2]",
        "[pasted 2,000 lines]",
    ]
    message = "see [pasted 21 lines, 2] and [pasted 21 lines], not [pasted 30 lines]"
    assert pastes.expand(message) == f"see {second} and {first}, not [pasted 30 lines]"
    pastes.clear()
    assert pastes.expand(message) == message


def test_a_placeholder_is_found_before_the_cursor_only() -> None:
    pastes = CollapsedPastes()
    placeholder = pastes.collapse("a\n" * 21)
    assert pastes.find_before(f"see {placeholder}") == placeholder
    assert pastes.find_before(f"see {placeholder} ") == pastes.find_before("see [pasted 22 lines]") == ""


@pytest.mark.needs("terminal")
def test_a_long_paste_is_sent_and_remembered_whole(home: Path) -> None:
    with open_screen("chat", *ECHO, "-n", "mine", columns=60) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("what is ")
        paste(screen, LINES)
        screen.wait_for_text("> what is [pasted 30 lines]")
        assert "line 1" not in screen.text()
        screen.type_keys("?\r")
        screen.wait_for_prompt("line 30?")
        screen.clear()
        screen.type_keys("\x1b[A")
        screen.wait_for_text("line 29 line 30? session mine")
        screen.type_keys("\x03")
        screen.wait_for_prompt()
    assert stored_messages(home, "mine")[0] == f"user: what is {LINES}?"


@pytest.mark.needs("terminal")
def test_backspace_deletes_a_collapsed_paste_as_a_whole(home: Path) -> None:
    with open_screen("chat", *ECHO, "-n", "mine", columns=60) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("see ")
        paste(screen, LINES)
        screen.wait_for_text("> see [pasted 30 lines]")
        screen.type_keys("\x7f")
        screen.wait_until(lambda: "pasted" not in screen.text())
        screen.type_keys("it\r")
        screen.wait_for_prompt(" output · ")
    assert stored_messages(home, "mine")[0] == "user: see it"


@pytest.mark.needs("terminal")
def test_the_editor_gets_the_whole_paste(home: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf ' and more' >> \"$1\"\n")
    editor.chmod(0o755)
    with open_screen("chat", *ECHO, "-n", "mine", columns=60, env={"EDITOR": str(editor)}) as screen:
        screen.wait_for_prompt("/help")
        paste(screen, LINES)
        screen.wait_for_text("> [pasted 30 lines]")
        screen.type_keys("\x18\x05")
        screen.wait_for_text("line 30 and more")
        screen.type_keys("\r")
        screen.wait_for_prompt(" output · ")
    assert stored_messages(home, "mine")[0] == f"user: {LINES} and more"
