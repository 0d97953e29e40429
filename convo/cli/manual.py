"""The man page, made from the commands themselves, so that it says what they do and nothing older.

`convo --man` prints it for `man -l -`; `python -m convo.cli.manual` writes it where it lies in the
repository, from where a wheel brings it to `share/man/man1`.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

from typer._click import Command, Context
from typer.core import TyperGroup

from convo import __version__
from convo.cli.app import EXAMPLES, shell
from convo.cli.commands import COMMANDS
from convo.cli.exits import EXITS
from convo.cli.shape import sections
from convo.config.layers import VARIABLES
from convo.config.origin import dotted

PLACE = "completions/convo.1"

ABOUT = """
convo talks to models through the Responses API, or to any other model as if it spoke it, and lets you choose who
owns the state of a conversation: a file of yours, the local store, the endpoint's Conversations API or its Responses
API. It shows for each of them what every request sent, what the model saw and what it cost.
"""


PLACES = {
    "CONVO_HOME": "the folder under which everything is kept",
    "CONVO_CONFIG": "a settings file in place of the user's own",
    "NO_COLOR": "no colour, whatever the terminal can show",
    "EDITOR": "what opens where something is to be edited",
}
"""Variables that are no settings."""

FILES = {
    "~/.config/convo/config.toml": "the user's settings; convo config path says where it is on this machine",
    ".convo.toml": "a project's settings, in the working folder or above it up to the root of the repository",
    "~/.config/convo/trust": "the project files that the user trusts, by path and content",
    "~/.local/share/convo/convo.db": "the conversations, where no other store is set",
}


def page() -> str:
    """The whole page, as roff."""
    group = shell()
    ctx = group.make_context("convo", [], resilient_parsing=True)
    return "\n".join(_lines(group, ctx)) + "\n"


def _lines(group: TyperGroup, ctx: Context) -> Iterator[str]:
    yield f'.TH CONVO 1 "" "convo {__version__}" "User Commands"'
    yield from (".SH NAME", rf"convo \- {_plain(group.help or '')}")
    yield from (".SH SYNOPSIS", r".B convo", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]...")
    yield from (".SH DESCRIPTION", _plain(" ".join(ABOUT.split())))
    yield from (".SH OPTIONS", *_parameters(group, ctx))
    yield ".SH COMMANDS"
    for name in COMMANDS:
        command = group.get_command(ctx, name)
        assert command
        yield from _command(command, Context(command, info_name=name, parent=ctx))
    yield from (".SH ENVIRONMENT", *_terms(_variables()))
    yield from (".SH FILES", *_terms(FILES))
    yield from (".SH EXIT STATUS", *_terms({str(code): meaning for code, meaning in EXITS.items()}))
    yield from (".SH EXAMPLES", *_as_is(EXAMPLES))


def _command(command: Command, ctx: Context) -> Iterator[str]:
    """A command, and behind it those that stand under its name."""
    usage = " ".join(command.collect_usage_pieces(ctx))
    yield from (f".SS {_plain(ctx.command_path)} {_plain(usage)}", _plain(" ".join((command.help or "").split())))
    yield from _parameters(command, ctx)
    yield from _as_is(command.epilog or "")
    if isinstance(command, TyperGroup):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below
            yield from _command(below, Context(below, info_name=name, parent=ctx))


def _parameters(command: Command, ctx: Context) -> Iterator[str]:
    found = {heading: dict(records) for heading, records in sections(ctx, command.get_params(ctx)).items() if records}
    for heading, records in found.items():
        if len(found) > 1:
            yield from (".PP", _plain(f"{heading}:"))
        yield from _terms(records)


def _terms(found: dict[str, str]) -> Iterator[str]:
    for term, words in found.items():
        yield from (".TP", rf"\fB{_plain(term)}\fR", _plain(words))


def _variables() -> dict[str, str]:
    return {name: f"the setting {dotted(key)}" for name, key in VARIABLES.items()} | PLACES


def _as_is(text: str) -> Iterator[str]:
    """Lines that are not filled: they are there to be copied."""
    if text.strip():
        yield from (".PP", ".nf", *map(_plain, inspect.cleandoc(text).splitlines()), ".fi")


def _plain(text: str) -> str:
    r"""Text as roff takes it for itself: `\` and `-` mean themselves, and no line is a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    Path(PLACE).write_text(page(), encoding="utf-8", newline="\n")
