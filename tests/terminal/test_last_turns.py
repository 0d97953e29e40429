"""The last turns that a continued conversation shows."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from convo.cli.repl import MAX_PREVIEW_LINES
from convo.compaction.window import summary_message
from convo.history.items import Item, assistant_message, user_message
from convo.terminal.terminal import text_width
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.terminal.plain_repl import run_repl
from tests.terminal.screen import open_screen

pytestmark = pytest.mark.needs("posix")


def shown_turns(items: Sequence[Item], *, terminal: bool = False) -> list[str]:
    """The lines between the first line of a chat, below which a terminal has an empty one, and its first prompt."""
    Path("talk.json").write_text(json.dumps(items))
    err = run_repl(*ECHO, "--from", "./talk.json", terminal=terminal).err
    after_first_line = err.partition(" commands.")[2].partition("\n")[2].removeprefix("\n")
    return after_first_line.partition("continue: ")[0].removesuffix("> \n").splitlines()


def test_the_last_turns_are_shown_with_their_roles() -> None:
    items = [
        user_message("one"),
        assistant_message("1"),
        user_message("two"),
        assistant_message("2\n\nor so"),
        user_message("three"),
        assistant_message("3"),
    ]
    assert shown_turns(items) == ["… 2 earlier messages", "> two", "  2", "  or so", "> three", "  3"]


def test_in_colour_the_last_turns_look_as_they_did_before(home: Path) -> None:
    with open_screen("chat", *scripted_flags({"text": "# A\n\n- *b*\n\n```\nc\n```"}), "-n", "mine") as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("hi\r")
        screen.wait_for_prompt("1 input")
        fresh = screen.text().partition("> hi")[2].partition("1 input")[0]
    with open_screen("chat", "--from", "mine") as screen:
        screen.wait_for_prompt("session mine")
        assert screen.text().partition("> hi")[2].partition("\n>\n")[0] == fresh.removesuffix("\n")
        assert "● A\n\n  • b" in fresh


def test_long_messages_are_truncated_to_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    long = assistant_message("\n".join(["word " * 50] * (MAX_PREVIEW_LINES + 3)))
    lines = shown_turns([user_message("日本語" * 40), long], terminal=True)
    assert max(map(text_width, lines)) <= 40
    assert lines[-1] == "  … 3 more lines"
    assert len(lines) == MAX_PREVIEW_LINES + 2


def test_attachments_are_not_shown_and_no_turns_show_nothing() -> None:
    message = user_message("read it", {"type": "input_text", "text": "notes.md:\n# Notes"})
    assert shown_turns([message]) == ["> read it"]
    assert shown_turns([]) == []


def test_control_characters_are_escaped() -> None:
    assert shown_turns([user_message("a\x1b[2Jb")]) == ["> a\\x1b[2Jb"]


SUMMARY = summary_message("They counted.\nTo three.")
COMPACTION: Item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}


@pytest.mark.parametrize(
    ("items", "lines"),
    [
        (
            [user_message("one"), user_message("two"), SUMMARY],
            ["… 2 earlier messages", "  summary: They counted.", "  To three."],
        ),
        (
            [user_message("one"), SUMMARY, user_message("two"), assistant_message("2")],
            ["… 1 earlier message", "  summary: They counted.", "  To three.", "> two", "  2"],
        ),
        (
            [user_message("one"), COMPACTION, user_message("two"), assistant_message("2")],
            ["… 1 earlier message", "  [compaction]", "> two", "  2"],
        ),
        (  # a conversation keeps the items before a compaction
            [user_message("one"), assistant_message("1"), user_message("two"), assistant_message("2"), COMPACTION],
            ["> one", "  1", "> two", "  2", "  [compaction]"],
        ),
        (
            [SUMMARY, *(message for text in "123" for message in (user_message(text), assistant_message(text)))],
            ["… 2 earlier messages", "> 2", "  2", "> 3", "  3"],
        ),
    ],
)
def test_a_summary_is_named_and_not_shown_as_a_message_of_the_user(items: Sequence[Item], lines: Sequence[str]) -> None:
    assert shown_turns(items) == list(lines)
