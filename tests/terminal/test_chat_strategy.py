"""`/owner` in a real terminal: the chat continues with another strategy, and the old conversation is unchanged."""

from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, stored_conversation, stored_messages, stored_sessions
from tests.terminal.pty_session import at_terminal


@pytest.mark.parametrize("to", ["replay", "conversation", "chain"])
def test_a_chat_continues_with_another_strategy(
    home: Path, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        person.says("one")
        assert f"(--{to})" in person.says(f"/owner {to}")
        assert "\ntwo\n" in person.says("two")
        assert "\nthree\n" in person.says("three")
        assert person.leaves() == 0
    whole = ["user: one", "assistant: one", "user: two", "assistant: two", "user: three", "assistant: three"]
    assert (stored_messages(home, "mine-2"), stored_messages(home, "mine")) == (whole, whole[:2])
    assert {one.name: one.strategy for one in stored_sessions(home)} == {
        "mine": Strategy.SESSION,
        "mine-2": Strategy(to),
    }
    assert len(stored_conversation(home, "mine-2")[1]) == 2


def test_a_missing_or_unknown_strategy_changes_nothing(home: Path) -> None:
    with at_terminal("chat", *ECHO, "-n", "mine") as person:
        person.is_asked()
        assert "the conversation has no message yet" in person.says("/owner chain")
        person.says("one")
        assert "no owner 'nobody'" in person.says("/owner nobody")
        assert "already" in person.says("/owner session")
        assert "the local store (--session)" in person.says("/owner")
        assert person.leaves() == 0
    assert [one.name for one in stored_sessions(home)] == ["mine"]
