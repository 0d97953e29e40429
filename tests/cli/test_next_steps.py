"""The commands that errors and notices suggest: each one in the transcripts is a valid command line."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from convo.cli.app import make_root_group
from convo.cli.slash_commands import parse_slash_command
from tests.cli.transcripts import FOLDER
from tests.command_runner import Convo

HINT = re.compile(r'(?:^! (?:\\e\[2m)?  try:(?:\\e\[0m)? |"hint": ")(.*?)(?:"\}\}?)?$', re.MULTILINE)

WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'",;<])+"""

COMMAND = re.compile(rf"(?:^|, or )(convo(?: {WORD})+|/\w[\w-]*(?: {WORD})*)")
"""A command at the start of a hint, or after "or"; its words are quoted or have no comma."""

PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|\.\.\.|#\d")

PARSED_ONLY = ("serve", "tap", "models pull", "config key set", "store migrate")
"""Commands that need a network, a key or another store."""


def list_commands() -> list[str]:
    hints = [hint for path in FOLDER.glob("*.txt") for hint in HINT.findall(path.read_text("utf-8"))]
    return sorted({command for hint in hints for command in COMMAND.findall(hint.replace('\\"', '"'))})


def parse(words: Sequence[str]) -> Any:
    """Parse a command line and return the context of its command. Raises the error of an invalid one."""
    rest = list(words)
    context: Any = make_root_group().make_context("convo", list(words))
    while isinstance(context.command, TyperGroup):
        _, rest, _ = context.command.make_parser(context).parse_args(args=rest)
        if not rest:
            break
        name, command, rest = context.command.resolve_command(context, rest)
        assert command
        context = command.make_context(name, list(rest), parent=context)
    return context


@pytest.mark.parametrize("command", list_commands())
def test_a_suggested_command_is_valid(command: str, convo: Convo, home: Path) -> None:
    if command.startswith("/"):
        parse_slash_command(command)
        return
    words = ["sessions" if word == "COMMAND" else word for word in shlex.split(command)[1:]]
    if "--help" not in words:
        context = parse(words)
        needs_terminal = context.command_path == "convo chat" and not context.params["prompt"]
        if needs_terminal or PLACEHOLDER.search(command) or context.command_path.endswith(PARSED_ONLY):
            return
    assert convo("config", "set", "model", "scripted/echo").exit == 0
    got = convo(*words)
    assert got.exit != 2, got.err
