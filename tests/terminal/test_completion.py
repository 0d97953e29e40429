"""Completion of the text before the cursor."""

from pathlib import Path

import pytest

from convo.cli.prompt_completion import ReplCompleter
from convo.cli.slash_commands import get_argument_kind
from convo.config.loader import SettingFlags, read_settings_inputs, resolve_settings
from convo.history.records import Strategy
from convo.stores.factory import open_store
from convo.terminal.prompt import (
    CompletionTarget,
    Suggestion,
    filter_suggestions,
    find_completion_target,
    suggest_files,
)
from tests.cli.stored_chats import DATABASE, chat_of, write_chats


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("/", CompletionTarget("command", "/")),
        ("/mo", CompletionTarget("command", "/mo")),
        ("/model ", CompletionTarget("model", "")),
        ("/MODEL gpt", CompletionTarget("model", "gpt")),
        ("/load my", CompletionTarget("handle", "my")),
        ("/owner c", CompletionTarget("owner", "c")),
        ("/effort h", CompletionTarget("effort", "h")),
        ("/attach a/b", CompletionTarget("file", "a/b")),
        ("/undo x", CompletionTarget("", "x")),
        ("//usr", CompletionTarget("", "")),
        ("see @no", CompletionTarget("file", "no")),
        ('see @"my no', CompletionTarget("file", '"my no')),
        ('see @"my notes" and', CompletionTarget("", "")),
        ("me@home", CompletionTarget("", "")),
        ("!cat no", CompletionTarget("file", "no")),
        ("plain words", CompletionTarget("", "")),
    ],
)
def test_completion_depends_on_the_text_before_the_cursor(before: str, expected: CompletionTarget) -> None:
    assert find_completion_target(before, get_argument_kind) == expected


def test_files_are_offered_with_folders_marked_and_spaces_quoted(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("notes.md", "my notes.md", ".hidden", "docs/deep.md"):
        (tmp_path / name).write_text("x")
    assert [item.text for item in suggest_files("")] == ["docs/", '"my notes.md"', "notes.md"]
    assert [item.text for item in suggest_files("docs/d")] == ["docs/deep.md"]
    assert [item.text for item in suggest_files('"my')] == ['"my notes.md"']
    assert [item.text for item in suggest_files(".h")] == [".hidden"]
    assert suggest_files("nowhere/x") == []


def test_prefix_matches_come_before_other_matches() -> None:
    suggestions = [Suggestion("openai/gpt-5"), Suggestion("groq/gpt-oss")]
    assert filter_suggestions(suggestions, "open") == suggestions[:1]
    assert filter_suggestions(suggestions, "GPT") == suggestions


async def test_the_handles_strategies_and_models_known_here_are_offered(home: Path) -> None:
    await store_session(home)
    store = open_store(f"sqlite:{home / DATABASE}")
    try:
        completer = ReplCompleter(
            store, resolve_settings(read_settings_inputs(None, SettingFlags(model="scripted/echo")))
        )
        assert await completer.complete("/resume my") == (2, [Suggestion("my-talk", "session")])
        commands = {item.text for item in (await completer.complete("/"))[1]}
        assert {"/owner ", "/usage", "/exit"} <= commands  # a blank only where an argument is possible
        assert [item.text for item in (await completer.complete("/owner "))[1]] == [str(item) for item in Strategy]
        assert [item.text for item in (await completer.complete("/effort m"))[1]] == ["minimal", "medium", "max"]
        assert Suggestion("scripted/echo") in (await completer.complete("/model scr"))[1]
        assert (await completer.complete("/undo x"))[1] == ()
    finally:
        await store.aclose()


async def store_session(home: Path) -> None:
    import asyncio

    await asyncio.to_thread(write_chats, home, chat_of("my-talk", Strategy.SESSION, "one"))
