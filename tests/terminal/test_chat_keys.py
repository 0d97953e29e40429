"""Keys, pastes and the prompt history, in a real terminal."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.chat_commands import ECHO, receipts, scripted_flags, stored_messages
from tests.terminal.pty_session import at_terminal, slow_model_flags, unwrapped

pytestmark = pytest.mark.needs("terminal")


# -- keys ------------------------------------------------------------------------------------------


def test_ctrl_c_stops_the_answer_and_not_the_chat(home: Path) -> None:
    with at_terminal("chat", *slow_model_flags({"text": "fine"}), "-n", "mine") as person:
        person.is_asked()
        person.types("count\r")
        person.sees("two")
        person.presses("c")
        shown = person.is_asked()
        assert receipts(shown)[0]["status"] == "cancelled"
        assert "the output so far is saved; /retry sends the message again, /undo undoes the turn" in unwrapped(shown)
        assert "2 unconfirmed" in person.says("/status")
        assert "\nfine\n" in person.says("go on")
        assert person.leaves() == 0
    before, partial, *after = stored_messages(home, "mine")
    assert before == "user: count"
    assert partial.startswith("assistant: one two")
    assert partial.endswith("…")
    assert after == ["user: go on", "assistant: fine"]


def test_ctrl_c_at_an_empty_prompt_shows_a_hint_and_the_second_one_ends_the_chat() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.presses("c")
        assert "press Ctrl-C again or Ctrl-D to exit\n" in person.is_asked()
        person.presses("c")
        assert person.ends() == 130


def test_two_quick_ctrl_c_end_the_chat_too() -> None:
    """The second Ctrl-C arrives before the next prompt is drawn."""
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.presses("c")
        person.sees("to exit")
        person.presses("c")
        assert person.ends() == 130


def test_a_sigint_from_another_process_is_a_ctrl_c() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.child.kill(signal.SIGINT)
        assert "press Ctrl-C again or Ctrl-D to exit\n" in person.is_asked()
        person.child.kill(signal.SIGINT)
        assert person.ends() == 130


def test_a_message_resets_the_count_of_ctrl_c() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        for _ in range(2):
            person.presses("c")
            assert "Ctrl-C again" in person.is_asked()
            person.says("hello")
        assert person.leaves() == 0


def test_ctrl_c_discards_the_typed_line(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.types("never mind")
        person.sees("mind")
        person.presses("c")
        assert "Ctrl-C again" not in person.is_asked()
        assert "\nhello\n" in person.says("hello")
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


def test_sigterm_at_the_prompt_restores_the_terminal() -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.child.kill(signal.SIGTERM)
        assert person.ends() == 143
        assert "\x1b[?2004l" in person.child.before


def test_closing_the_terminal_keeps_the_partial_answer(home: Path) -> None:
    with at_terminal("chat", *slow_model_flags(), "-n", "mine") as person:
        person.is_asked()
        person.types("count\r")
        person.sees("two")
        person.child.close()
    assert stored_messages(home, "mine")[1].startswith("assistant: one two")


# -- pastes and invalid text -----------------------------------------------------------------------

PASTED = "line one\n/undo\r\n  line three"
MEANT = "line one\n/undo\n  line three"


def test_a_paste_with_line_breaks_is_one_message(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--plain", "-n", "mine") as person:
        person.is_asked()
        person.pastes(PASTED)
        person.sees("three")
        assert MEANT in person.says("")
        assert person.leaves() == 0
    assert stored_messages(home, "mine") == [f"user: {MEANT}", f"assistant: {MEANT}"]


def test_a_paste_during_an_answer_waits_for_enter(home: Path) -> None:
    model = scripted_flags({"text": "one two three four five six"}, {"text": "fine"}, chunk=4, delay_s=0.2)
    with at_terminal("chat", *model, "-n", "mine") as person:
        person.is_asked()
        person.types("count\r")
        person.sees("two")
        person.pastes("line one\nline two")
        person.sees("six")
        person.sees("line two")
        assert "\nfine\n" in person.says("")
        assert person.leaves() == 0
    assert stored_messages(home, "mine")[2:] == ["user: line one\nline two", "assistant: fine"]


def test_invalid_utf_8_is_replaced(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        os.write(person.child.child_fd, b"caf\xe9 noir\r")
        assert "caf\ufffd noir" in person.is_asked()
        assert person.leaves() == 0
    assert stored_messages(home, "mine")[0] == "user: caf\ufffd noir"


# -- history ---------------------------------------------------------------------------------------


def test_the_prompt_history_is_private(home: Path) -> None:
    with at_terminal("chat", *ECHO) as person:
        person.is_asked()
        person.says("remember me")
        person.leaves()
    place = home / "state" / "prompts"
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    with at_terminal("chat", *ECHO, "-n", "next") as person:
        person.is_asked()
        person.types("\x1b[A")
        person.sees("remember me")
        person.says("")
        person.leaves()
    assert stored_messages(home, "next")[0] == "user: remember me"


def test_a_history_that_cannot_be_written_affects_nothing_else(home: Path) -> None:
    (home / "state" / "prompts").mkdir(parents=True)
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("one")
        assert "\ntwo\n" in person.says("two")
        assert person.leaves() == 0
    assert len(stored_messages(home, "mine")) == 4
