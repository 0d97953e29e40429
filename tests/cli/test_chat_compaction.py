"""A chat compacts a history near the limit before the next request, and reports the compaction."""

from pathlib import Path

import pytest

from tests.cli.chat_commands import LONG, scripted_flags, stored_conversation, stored_messages, stored_sessions
from tests.command_runner import Convo
from tests.terminal.pty_session import at_terminal, unwrap_lines


@pytest.fixture
def settings(home: Path) -> Path:
    """The user's settings file, which sets the compaction limit to 180 tokens."""
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("compact_at = 180\n", encoding="utf-8")
    return path


def two_turns(convo: Convo, owner: str) -> tuple[str, str]:
    model = scripted_flags({"text": "Short."}, {"text": LONG})
    for text in ("one", "two"):
        flags = [owner, "-n", "mine"] if text == "one" else ["--from", "mine"]
        got = convo("chat", *flags, *model, f"{text} {LONG}")
        assert got.exit == 0
    return model


@pytest.mark.parametrize("owner", ["--session", "--chain"])
def test_a_due_compaction_is_announced_and_runs_before_the_request(
    convo: Convo, home: Path, settings: Path, owner: str
) -> None:
    two_turns(convo, owner)
    got = convo("chat", "--from", "mine", "three")
    assert got.exit == 0
    assert "the history has" in got.err
    assert "compacting it first" in got.err
    assert "compacted 4 items" in got.err
    assert (
        got.err.index("compacting it first")
        < got.err.index("compacted 4 items")
        < got.err.index("; dropped 2 messages")
    )
    assert "summary: about " in got.err
    assert stored_messages(home, "mine")[-2].endswith("three")


def test_below_the_limit_nothing_is_compacted(convo: Convo, home: Path) -> None:
    two_turns(convo, "--session")
    got = convo("chat", "--from", "mine", "three")
    assert "compact" not in got.err
    assert len(stored_messages(home, "mine")) == 6


def test_a_limit_of_zero_disables_compaction(convo: Convo, home: Path, settings: Path) -> None:
    settings.write_text("compact_at = 0\n", encoding="utf-8")
    two_turns(convo, "--session")
    assert "compact" not in convo("chat", "--from", "mine", "three").err


def test_a_compacted_history_is_not_compacted_again_at_once(convo: Convo, home: Path, settings: Path) -> None:
    two_turns(convo, "--session")
    assert convo("compact", "mine").exit == 0
    assert "compacting" not in convo("chat", "--from", "mine", "three").err


def test_a_conversation_is_compacted_by_its_endpoint(convo: Convo, home: Path, settings: Path) -> None:
    two_turns(convo, "--conversation")
    handle = stored_sessions(home)[0].handle
    got = convo("chat", "--from", "mine", "three")
    assert "its endpoint will compact it" in got.err
    items, _ = stored_conversation(home, "mine")
    assert stored_sessions(home)[0].handle == handle
    assert "compaction" in [item["type"] for item in items]


def test_a_message_is_sent_even_if_the_compaction_fails(convo: Convo, home: Path, settings: Path) -> None:
    two_turns(convo, "--session")
    model = scripted_flags({"text": LONG * 10})
    got = convo("chat", "--from", "mine", *model, "three")
    assert got.exit == 0
    assert "not compacted: the compacted history would not be smaller" in got.err
    assert len(stored_messages(home, "mine")) == 6


def test_a_percentage_as_the_limit_is_reported_when_it_is_set_and_once_by_a_chat(convo: Convo, settings: Path) -> None:
    warning = "compact_at = 60 is 60 tokens and not 60 %"
    for value, is_reported in (("60", True), ("0.6", False), ("180", False), ("1", False), ("0", False)):
        assert (warning in convo("config", "set", "compact_at", value).err) is is_reported
    got = convo("config", "set", "profiles.work.compact_at", "60")
    assert "for 60 %: convo config set profiles.work.compact_at 0.6" in got.err
    settings.write_text("compact_at = 60\n", encoding="utf-8")
    assert warning in convo("doctor").out
    two_turns(convo, "--session")
    err = convo("chat", "--from", "mine", "three").err
    assert (err.count(warning), "for 60 %: convo config set compact_at 0.6" in err) == (1, True)
    settings.write_text("compact_at = 0.6\n", encoding="utf-8")
    assert warning not in convo("doctor").out


@pytest.mark.parametrize("value", ["-1", '"often"', "1.5", "true"])
def test_an_invalid_compaction_limit_is_refused(convo: Convo, settings: Path, value: str) -> None:
    settings.write_text(f"compact_at = {value}\n", encoding="utf-8")
    got = convo("chat", "-m", "scripted/echo", "hello")
    assert got.exit == 2
    assert "'compact_at' must be" in got.err


@pytest.mark.needs("terminal")
def test_the_compact_command_works_at_the_prompt(home: Path) -> None:
    model = scripted_flags({"text": "Short."}, {"text": LONG})
    with at_terminal("chat", "-n", "mine", *model) as terminal:
        terminal.wait_for_prompt()
        for text in ("one", "two", "three"):
            terminal.send_line(text)
        assert "--keep-last takes a number" in terminal.send_line("/compact --keep-last some")
        assert "nothing to compact" in terminal.send_line("/compact --keep-last 3")
        output = terminal.send_line("/compact the names --keep-last 1")
        assert "compacted 4 items" in output
        assert "mine-before" in output
        assert "1 is the compacted history" in unwrap_lines(output)
        terminal.send_line("four")
    assert [line.split()[1] for line in stored_messages(home, "mine") if line.startswith("user")][-2:] == [
        "three",
        "four",
    ]


@pytest.mark.needs("terminal")
def test_a_session_that_is_open_in_a_chat_is_not_compacted_by_another_process(convo: Convo) -> None:
    with at_terminal("chat", "-n", "mine", *scripted_flags({"text": "Short."}, {"text": LONG})) as terminal:
        terminal.wait_for_prompt()
        for text in ("one", "two"):
            terminal.send_line(text)
        got = convo("compact", "mine")
        assert got.exit == 1
        assert "/compact in that chat" in got.err
        terminal.end_session()
    assert convo("compact", "mine").exit == 0
