"""Keys, pastes and the prompt history, in a real terminal."""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread

import pytest

from convo.terminal.line_editor import LineEditor
from convo.terminal.message_queue import TypedMessage
from convo.terminal.prompt import PromptOptions, Suggestion
from tests.cli.chat_commands import ECHO, receipts, scripted_flags, stored_messages
from tests.terminal.pty_session import at_terminal, slow_model_flags, unwrap_lines

pytestmark = pytest.mark.needs("terminal")


# -- keys ------------------------------------------------------------------------------------------


def test_ctrl_c_stops_the_answer_and_not_the_chat(home: Path) -> None:
    with at_terminal("chat", *slow_model_flags({"text": "fine"}), "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("count\r")
        terminal.wait_for_text("two")
        terminal.press_ctrl("c")
        output = terminal.wait_for_prompt()
        assert receipts(output)[0]["status"] == "cancelled"
        assert "the output so far is saved; /retry sends the message again, /undo undoes the turn" in unwrap_lines(
            output
        )
        assert "2 unconfirmed" in terminal.send_line("/status")
        assert "\n● fine\n" in terminal.send_line("go on")
        assert terminal.end_session() == 0
    before, partial, *after = stored_messages(home, "mine")
    assert before == "user: count"
    assert partial.startswith("assistant: one two")
    assert partial.endswith("…")
    assert after == ["user: go on", "assistant: fine"]


def test_ctrl_c_at_an_empty_prompt_shows_a_hint_and_the_second_one_ends_the_chat() -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        terminal.press_ctrl("c")
        assert "press Ctrl-C again or Ctrl-D to exit\n" in terminal.wait_for_prompt()
        terminal.press_ctrl("c")
        assert terminal.wait_for_exit() == 130


def test_two_quick_ctrl_c_end_the_chat_too() -> None:
    """The second Ctrl-C arrives before the next prompt is drawn."""
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        terminal.press_ctrl("c")
        terminal.wait_for_text("to exit")
        terminal.press_ctrl("c")
        assert terminal.wait_for_exit() == 130


def test_a_sigint_from_another_process_is_a_ctrl_c() -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        terminal.child.kill(signal.SIGINT)
        assert "press Ctrl-C again or Ctrl-D to exit\n" in terminal.wait_for_prompt()
        terminal.child.kill(signal.SIGINT)
        assert terminal.wait_for_exit() == 130


def test_a_message_resets_the_count_of_ctrl_c() -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        for _ in range(2):
            terminal.press_ctrl("c")
            assert "Ctrl-C again" in terminal.wait_for_prompt()
            terminal.send_line("hello")
        assert terminal.end_session() == 0


def test_ctrl_c_discards_the_typed_line(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("never mind")
        terminal.wait_for_text("mind")
        terminal.press_ctrl("c")
        assert "Ctrl-C again" not in terminal.wait_for_prompt()
        assert "\n● hello\n" in terminal.send_line("hello")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


def test_sigterm_at_the_prompt_restores_the_terminal() -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        terminal.child.kill(signal.SIGTERM)
        assert terminal.wait_for_exit() == 143
        assert "\x1b[?2004l" in terminal.child.before


@pytest.mark.parametrize("pause_s", [0.0003, 0.001, 0.002])
def test_a_chat_that_many_signals_end_restores_the_terminal(pause_s: float) -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        import termios

        import pexpect

        has_ended = Event()

        def send_signals() -> None:
            while not has_ended.wait(pause_s):
                os.kill(terminal.child.pid, signal.SIGINT)

        sender = Thread(target=send_signals)
        sender.start()
        try:
            terminal.child.expect(pexpect.EOF)
            mode = termios.tcgetattr(terminal.child.child_fd)[3]
        finally:
            has_ended.set()
            sender.join()
        output = terminal.child.before
        assert output.rfind("\x1b[?2004l") > output.rfind("\x1b[?2004h")
        assert mode & termios.ECHO
        assert mode & termios.ICANON


def test_closing_the_terminal_keeps_the_partial_answer(home: Path) -> None:
    with at_terminal("chat", *slow_model_flags(), "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("count\r")
        terminal.wait_for_text("two")
        terminal.child.ptyproc.fileobj.close()  # `terminal.child.close` kills a chat that needs half a second to end
        terminal.child.wait()
    assert stored_messages(home, "mine")[1].startswith("assistant: one two")


# -- pastes and invalid text -----------------------------------------------------------------------

PASTED_KEYS = "line one\n/undo\r\n  line three"
PASTED_TEXT = "line one\n/undo\n  line three"


def test_a_paste_with_line_breaks_is_one_message(home: Path) -> None:
    with at_terminal("chat", *ECHO, "--plain", "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.paste(PASTED_KEYS)
        terminal.wait_for_text("three")
        assert PASTED_TEXT in terminal.send_line("")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == [f"user: {PASTED_TEXT}", f"assistant: {PASTED_TEXT}"]


def test_a_paste_during_an_answer_waits_for_enter(home: Path) -> None:
    model = scripted_flags({"text": "one two three four five six"}, {"text": "fine"}, chunk=4, delay_s=0.2)
    with at_terminal("chat", *model, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("count\r")
        terminal.wait_for_text("two")
        terminal.paste("line one\nline two")
        terminal.wait_for_text("six")
        terminal.wait_for_text("line two")
        assert "\n● fine\n" in terminal.send_line("")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine")[2:] == ["user: line one\nline two", "assistant: fine"]


@pytest.fixture
def terminal_ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """Both ends of a terminal that is stdin and stderr of this process: that of the user, and that of the process."""
    own_end, child_end = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with open(os.dup(child_end), encoding="utf-8") as stdin, open(os.dup(child_end), "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", stderr)
        yield own_end, child_end
    os.close(own_end)
    os.close(child_end)


async def test_enter_between_two_prompts_sends_the_text_of_the_next_one(
    terminal_ends: tuple[int, int], tmp_path: Path
) -> None:
    """A terminal with echo turns Enter into Ctrl-J, which inserts a line break."""
    own_end, child_end = terminal_ends
    mode = termios.tcgetattr(child_end)
    editor = LineEditor(PromptOptions(tmp_path / "history", suggest_nothing))
    reading = asyncio.create_task(editor.read_line())
    while termios.tcgetattr(child_end) == mode:  # noqa: ASYNC110  no event tells of it
        await asyncio.sleep(0)
    os.write(own_end, b"hi\r")
    assert await reading == "hi"
    os.write(own_end, b"\r")
    assert await editor.read_line(default=TypedMessage("a draft")) == "a draft"
    editor.close()
    assert termios.tcgetattr(child_end) == mode


async def suggest_nothing(before: str) -> tuple[int, Sequence[Suggestion]]:
    return 0, ()


def test_invalid_utf_8_is_replaced(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        os.write(terminal.child.child_fd, b"caf\xe9 noir\r")
        assert "caf\ufffd noir" in terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine")[0] == "user: caf\ufffd noir"


# -- history ---------------------------------------------------------------------------------------


def test_the_prompt_history_is_private(home: Path) -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("remember me")
        terminal.end_session()
    path = home / "state" / "prompts"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with at_terminal("chat", *ECHO, "-n", "next") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("\x1b[A")
        terminal.wait_for_text("remember me")
        terminal.send_line("")
        terminal.end_session()
    assert stored_messages(home, "next")[0] == "user: remember me"


def test_a_history_that_cannot_be_written_affects_nothing_else(home: Path) -> None:
    (home / "state" / "prompts").mkdir(parents=True)
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("one")
        assert "\n● two\n" in terminal.send_line("two")
        assert terminal.end_session() == 0
    assert len(stored_messages(home, "mine")) == 4
