"""`/owner` in a real terminal: the chat continues with another strategy, and the old conversation is unchanged."""

from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, stored_conversation, stored_messages, stored_sessions
from tests.terminal.pty_session import at_terminal


@pytest.mark.parametrize("strategy_name", ["replay", "conversation", "chain"])
def test_a_chat_continues_with_another_strategy(
    home: Path, strategy_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        terminal.send_line("one")
        assert f"(--{strategy_name})" in terminal.send_line(f"/owner {strategy_name}")
        assert "\n● two\n" in terminal.send_line("two")
        assert "\n● three\n" in terminal.send_line("three")
        assert terminal.end_session() == 0
    messages = ["user: one", "assistant: one", "user: two", "assistant: two", "user: three", "assistant: three"]
    assert (stored_messages(home, "mine-2"), stored_messages(home, "mine")) == (messages, messages[:2])
    assert {session.name: session.strategy for session in stored_sessions(home)} == {
        "mine": Strategy.SESSION,
        "mine-2": Strategy(strategy_name),
    }
    assert len(stored_conversation(home, "mine-2")[1]) == 2


def test_a_missing_or_unknown_strategy_changes_nothing(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as terminal:
        terminal.wait_for_prompt()
        assert "the conversation has no message yet" in terminal.send_line("/owner chain")
        terminal.send_line("one")
        assert "no owner 'nobody'" in terminal.send_line("/owner nobody")
        assert "already" in terminal.send_line("/owner session")
        assert "the local store (--session)" in terminal.send_line("/owner")
        assert terminal.end_session() == 0
    assert [session.name for session in stored_sessions(home)] == ["mine"]
