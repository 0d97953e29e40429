"""Parsing of slash commands, and /copy; `test_chat` and `test_screens` run the other commands."""

import base64
import re
from pathlib import Path

import pytest

from convo.cli.slash_commands import (
    SLASH_COMMAND_ALIASES,
    SLASH_COMMANDS,
    parse_slash_command,
)
from convo.errors import InvalidUsage
from convo.terminal.clipboard import MAX_OSC52_BYTES
from tests.cli.chat_commands import ECHO, scripted_flags, stored_messages, stored_sessions
from tests.command_runner import CommandResult
from tests.terminal.plain_repl import run_repl


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/help", ("help", "")),
        ("/HELP", ("help", "")),
        ("/quit", ("exit", "")),
        ("/?", ("help", "")),
        ("/rewind 2", ("rewind", "2")),
        ("/next  how are you? ", ("next", "how are you?")),
        ("/next\thow", ("next", "how")),
        ("/next a\nb", ("next", "a\nb")),
        ("/ help", ("help", "")),
    ],
)
def test_a_command_gets_its_arguments(line: str, expected: tuple[str, str]) -> None:
    assert parse_slash_command(line) == expected


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("/hlep", "/help, or //hlep to send it as a message"),
        ("/Retri", "/retry, or //Retri to send it as a message"),
        ("/xyzzy", "/help, or //xyzzy to send it as a message"),
        ("/keys", "/help, or //keys to send it as a message"),
        ("/help\x1b", "/help, or //help\x1b to send it as a message"),
        ("/", "/help, or // to send it as a message"),
    ],
)
def test_an_unknown_command_is_an_error_with_a_suggestion(line: str, hint: str) -> None:
    with pytest.raises(InvalidUsage, match="nothing was sent") as caught:
        parse_slash_command(line)
    assert caught.value.hint == hint


@pytest.mark.needs("posix")
def test_a_message_that_begins_with_a_slash_is_typed_with_two(home: Path) -> None:
    messages = {"hello": "hello", "a /b": "a /b", "//x": "/x", "  //x": "/x", "///x": "//x", "  two": "  two"}
    run_repl(*ECHO, "-n", "mine", lines=list(messages))
    assert stored_messages(home, "mine")[::2] == [f"user: {message}" for message in messages.values()]


@pytest.mark.needs("posix")
def test_a_line_that_begins_with_one_slash_is_never_a_message(home: Path) -> None:
    got = run_repl(*ECHO, lines=["/", "/x", "  /x", "/x //y"])
    assert got.err.count("nothing was sent") == 4
    assert stored_sessions(home) == []


def test_an_alias_names_a_command_and_hides_none() -> None:
    assert set(SLASH_COMMAND_ALIASES.values()) <= set(SLASH_COMMANDS)
    assert not set(SLASH_COMMAND_ALIASES) & set(SLASH_COMMANDS)


# -- /copy -----------------------------------------------------------------------------------------

COPY_SEQUENCE = re.compile(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")


def copied_texts(got: CommandResult) -> list[str]:
    """The texts of the copy sequences that were sent to the terminal."""
    return [base64.b64decode(text).decode() for text in COPY_SEQUENCE.findall(got.err)]


@pytest.fixture
def no_clipboard_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "WAYLAND_DISPLAY", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.needs("posix")
@pytest.mark.usefixtures("no_clipboard_program")
def test_copy_code_copies_the_last_code_block_without_its_fence() -> None:
    answer = "So:\n```python\nprint(1)\n```\nor\n~~~\n```\nx\n~~~\n"
    model = scripted_flags({"text": answer.partition("or")[0]}, {"text": answer}, {"text": "no code"})
    got = run_repl(*model, lines=["one", "/copy code", "two", "/copy code", "three", "/copy code"], terminal=True)
    assert copied_texts(got) == ["print(1)\n", "```\nx\n"]
    assert "the last answer has no code block\n  try: /copy copies all of it" in re.sub(r"\x1b\[\d*m", "", got.err)


@pytest.mark.needs("posix")
@pytest.mark.usefixtures("no_clipboard_program")
def test_a_terminal_is_told_to_copy_no_more_than_it_accepts() -> None:
    longest = "x" * MAX_OSC52_BYTES
    model = scripted_flags({"text": "hé"}, {"text": longest}, {"text": f"{longest}x"}, chunk=len(longest))
    got = run_repl(*model, lines=["one", "/copy", "two", "/copy", "three", "/copy"], terminal=True)
    assert "\x1b]52;c;aMOp\x07" in got.err
    assert copied_texts(got) == ["hé", longest]


def test_a_new_conversation_and_a_fork_say_what_they_have() -> None:
    got = run_repl(
        *ECHO, "-n", "mine", lines=["one", "/fork", "/cost", "/usage", "/inspect", "/new", "/inspect", "/tools"]
    )
    assert got.err.count("no requests in mine-2 yet; its 2 items were requested in another session\n") == 2
    assert "  session      mine-2 (ses_" in got.err
    assert "  empty; a conversation is stored with its first message\n" in got.err
    assert "no session" not in got.err
    assert "convo chat --tool FILE.py:FUNCTION" in got.err
