"""How a line after a slash is read; what each command does is tried in a terminal."""

import pytest

from convo.errors import InvalidUsage
from convo.terminal.repl import is_slash_command, unescape_slash
from convo.terminal.slash_commands import SLASH_COMMAND_ALIASES, SLASH_COMMANDS, parse_slash_command


@pytest.mark.parametrize(
    ("line", "meant"),
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
def test_a_command_gets_its_words(line: str, meant: tuple[str, str]) -> None:
    assert parse_slash_command(line) == meant


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("/hlep", "/help, or //hlep for a message"),
        ("/Retri", "/retry, or //Retri for a message"),
        ("/xyzzy", "/help, or //xyzzy for a message"),
        ("/help\x1b", "/help, or //help\x1b for a message"),
        ("/", "/help, or // for a message"),
    ],
)
def test_what_is_no_command_is_an_error_with_a_suggestion(line: str, hint: str) -> None:
    with pytest.raises(InvalidUsage, match="nothing was sent") as refused:
        parse_slash_command(line)
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("line", "said"),
    [("hello", "hello"), ("a /b", "a /b"), ("//x", "/x"), ("  //x", "/x"), ("///x", "//x"), ("  two", "  two")],
)
def test_what_is_a_message_and_what_it_says(line: str, said: str) -> None:
    assert not is_slash_command(line)
    assert unescape_slash(line) == said


@pytest.mark.parametrize("line", ["/", "/x", "  /x", "\n/x", "/x //y"])
def test_what_begins_with_one_slash_is_never_a_message(line: str) -> None:
    assert is_slash_command(line)


def test_an_alias_stands_for_a_command_and_hides_none() -> None:
    assert set(SLASH_COMMAND_ALIASES.values()) <= set(SLASH_COMMANDS)
    assert not set(SLASH_COMMAND_ALIASES) & set(SLASH_COMMANDS)
