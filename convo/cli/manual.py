"""The man page, generated from the commands.

`convo --man` prints it. The wheel installs completions/convo.1 in share/man/man1.
"""

import inspect
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from typer import Context
from typer.core import TyperGroup

from convo import __version__
from convo.cli.output import EXIT_CODES
from convo.config.schema import VARIABLE_SETTINGS
from convo.config.values import format_setting_key
from convo.terminal.terminal import unwrap_paragraphs

DESCRIPTION = """
convo talks to models through the Responses API, or to any other model through an adapter, and lets you choose where
conversation state lives: in a file of your own, in the local store, in the endpoint's Conversations API or in its
Responses API. For each strategy it shows what every request sent, what the model received and what it cost.
"""


OTHER_VARIABLES = {
    "CONVO_HOME": "one folder for all files of convo",
    "CONVO_CONFIG": "the settings file to use instead of the user's own",
    "NO_COLOR": "disables colors",
    "EDITOR": "the command that opens a text to edit",
}
"""Variables without a setting."""

FILE_DESCRIPTIONS = {
    "~/.config/convo/config.toml": "the user's settings; convo config path prints the location on this machine",
    "~/.config/convo/templates/": "the templates for convo chat -t",
    ".convo.toml": "a project's settings, in the working directory or a parent up to the root of the repository",
    "~/.config/convo/trust": "the trusted project files, by path and content",
    "~/.local/share/convo/convo.db": "the conversations, if no other store is configured",
}


def render_man_page(group: Any) -> str:
    """Render the whole page of the command line's root, as roff."""
    ctx = group.make_context("convo", [], resilient_parsing=True)
    return "\n".join(_page_lines(group, ctx)) + "\n"


def _page_lines(group: Any, ctx: Any) -> Iterator[str]:
    yield f'.TH CONVO 1 "" "convo {__version__}" "User Commands"'
    yield from (".SH NAME", rf"convo \- {_escape_roff(group.help or '')}")
    yield from (".SH SYNOPSIS", r".B convo", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]...")
    yield from (".SH DESCRIPTION", _escape_roff(" ".join(DESCRIPTION.split())))
    yield from (".SH OPTIONS", *_option_lines(group, ctx))
    for heading, commands in group.collect_command_sections(ctx).items():
        yield f".SH COMMANDS: {heading.upper()}"
        for name, _ in commands:
            command = group.get_command(ctx, name)
            yield from _command_lines(command, Context(command, info_name=name, parent=ctx))
    yield from (".SH ENVIRONMENT", *_term_lines(_describe_variables()))
    yield from (".SH FILES", *_term_lines(FILE_DESCRIPTIONS))
    yield from (".SH EXIT STATUS", *_term_lines({str(code): meaning for code, meaning in EXIT_CODES.items()}))
    yield from (".SH EXAMPLES", *_example_lines(group.epilog or ""))


def _command_lines(command: Any, ctx: Any) -> Iterator[str]:
    """Yield a command, then its subcommands."""
    usage = " ".join(command.collect_usage_pieces(ctx))
    yield from (
        f".SS {_escape_roff(ctx.command_path)} {_escape_roff(usage)}",
        _escape_roff(" ".join((command.help or "").split())),
    )
    yield from _option_lines(command, ctx)
    yield from _example_lines(command.epilog or "")
    if isinstance(command, TyperGroup):
        for name in command.list_commands(ctx):
            subcommand = command.get_command(ctx, name)
            assert subcommand
            yield from _command_lines(subcommand, Context(subcommand, info_name=name, parent=ctx))


def _option_lines(command: Any, ctx: Any) -> Iterator[str]:
    sections = {heading: dict(records) for heading, records in command.collect_sections(ctx).items() if records}
    for heading, records in sections.items():
        if len(sections) > 1:
            yield from (".PP", _escape_roff(f"{heading}:"))
        yield from _term_lines(records)


def _term_lines(terms: dict[str, str]) -> Iterator[str]:
    for term, description in terms.items():
        yield from (".TP", rf"\fB{_escape_roff(term)}\fR", _escape_roff(description))


def _describe_variables() -> dict[str, str]:
    return {
        name: f"overrides the setting {format_setting_key(key)}" for name, key in VARIABLE_SETTINGS.items()
    } | OTHER_VARIABLES


def _example_lines(text: str) -> Iterator[str]:
    """Yield examples, which are not filled because they are copied, and paragraphs."""
    all_lines = unwrap_paragraphs(inspect.cleandoc(text)).splitlines()
    for is_example, lines in groupby(all_lines, lambda line: line.startswith(" ")):
        escaped = [_escape_roff(line) for line in lines if line]
        if is_example:
            yield from (".nf", *escaped, ".fi")
        else:
            yield from (line for paragraph in escaped for line in (".PP", paragraph))


def _escape_roff(text: str) -> str:
    r"""Escape text for roff: `\` and `-` are literal, and no line is a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
