"""Failures in a chat, and other processes with the same session, in a real terminal."""

from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, receipts, stored_messages
from tests.cli.stored_chats import chat_of, write_chats
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer, error_response
from tests.terminal.pty_session import at_terminal, unwrap_lines

pytestmark = pytest.mark.needs("terminal")


# -- failures --------------------------------------------------------------------------------------


def test_an_error_neither_ends_the_chat_nor_loses_the_message(loopback: LoopbackServer, home: Path) -> None:
    loopback.replies({"text": "Fine now."})
    refusal = {"message": "Not like this.", "type": "invalid_request_error", "param": None, "code": "odd"}
    loopback.arm(error_response(400, refusal))
    with at_terminal("chat", "-n", "mine", env=loopback.environ) as terminal:
        terminal.wait_for_prompt()
        output = terminal.send_line("hello")
        assert receipts(output)[0]["status"] == "failed"
        assert "convo: Not like this\n  try: " in output
        output = terminal.send_line("/retry")
        assert "\n● Fine now.\n" in output
        assert len(receipts(output)) == 1
        assert terminal.end_session() == 0
    assert loopback.bodies[0] == loopback.bodies[1]
    assert stored_messages(home, "mine") == ["user: hello", "assistant: Fine now."]


def test_an_unreachable_server_fails_only_the_answer(home: Path) -> None:
    unreachable_env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "test-key"}
    with at_terminal("chat", "-n", "mine", env=unreachable_env) as terminal:
        terminal.wait_for_prompt()
        output = terminal.send_line("hello")
        assert "convo: cannot reach openai at http://127.0.0.1:9/v1" in output
        assert "  try: " in output
        assert "1 unconfirmed" in terminal.send_line("/status")
        terminal.send_line("/model scripted/echo")
        assert "\n● hello\n" in terminal.send_line("/retry")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


def test_ctrl_c_ends_the_wait_for_a_server_that_is_busy(loopback: LoopbackServer, home: Path) -> None:
    loopback.replies({"text": "Here I am."})
    loopback.arm(error_response(503, {"message": "Overloaded."}, {"retry-after": "60"}))
    with at_terminal("chat", "-n", "mine", env=loopback.environ) as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("hello\r")
        terminal.wait_for_text("retry 1 of 3 in 60 s")
        terminal.press_ctrl("c")
        output = terminal.wait_for_prompt()
        assert receipts(output)[0]["status"] == "cancelled"
        assert "\n\n\n" not in output
        assert "\n● Here I am.\n" in terminal.send_line("/retry")
        assert terminal.end_session() == 0
    assert stored_messages(home, "mine") == ["user: hello", "assistant: Here I am."]


# -- other processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("yes", [True, False])
def test_a_session_that_another_process_has_open_is_offered_as_a_fork(yes: bool, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    with at_terminal("chat", "--from", "mine") as first:
        first.wait_for_prompt()
        with at_terminal("chat", "--from", "mine") as second:
            question = second.wait_for_text("[y/N] ")
            assert f"'mine' is open in another process (process {first.child.pid} on " in question
            second.type_keys("y\r" if yes else "\r")
            if yes:
                second.wait_for_prompt()
                assert "session mine-2" in unwrap_lines(second.send_line("mine too"))
                assert second.end_session() == 0
            else:
                assert second.wait_for_exit() == 1
                assert "try: convo chat --fork mine" in second.output
        first.send_line("go on")
        assert first.end_session() == 0
    assert stored_messages(home, "mine") == ["user: one", "assistant: one", "user: go on", "assistant: go on"]
    if yes:
        assert stored_messages(home, "mine-2")[2:] == ["user: mine too", "assistant: mine too"]


def test_ctrl_c_at_the_fork_question_changes_nothing(home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    with at_terminal("chat", "--from", "mine") as first:
        first.wait_for_prompt()
        with at_terminal("chat", "--from", "mine") as second:
            second.wait_for_text("[y/N] ")
            second.press_ctrl("c")
            assert second.wait_for_exit() == 130


def test_without_a_terminal_a_fork_is_suggested_and_not_asked(home: Path, convo: Convo) -> None:
    write_chats(home, chat_of("mine", Strategy.CONVERSATION, "one"))
    with at_terminal("chat", "--from", "mine") as first:
        first.wait_for_prompt()
        got = convo("chat", "--from", "mine", "two")
        assert (got.exit, got.out) == (1, "")
        assert got.err.endswith("  try: close that chat first\n")


def test_json_without_a_message_is_refused_at_a_terminal() -> None:
    with at_terminal("chat", *ECHO, "--json") as terminal:
        assert terminal.wait_for_exit() == 2
        assert '"code": "usage"' in terminal.output
