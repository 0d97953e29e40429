"""Find the command that was asked for, import it alone, run it, end well.

The group knows its commands from a table and imports one when it is called. Around it stands
the only place that catches everything: whatever comes out of a command becomes a `Failure`, two
lines on stderr (or JSON on stdout) and an exit code. A reader that went away, as in
`convo inspect @last | head`, is no failure and gets silence.
"""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Annotated, cast

import typer
from typer._click import Command, Context, HelpFormatter
from typer._click.shell_completion import CompletionItem
from typer.main import get_command

from convo import __version__
from convo.cli.commands import COMMANDS, Table
from convo.cli.exits import IN_LINES
from convo.cli.failures import OUTPUT_LOST, explain, show_traceback, tell
from convo.cli.shape import App, Call, Group, narrow, write_sections
from convo.errors import Usage
from convo.notices import notices_to

EXAMPLES = f"""
Examples:
  convo chat                           talk; the conversation is kept on this machine
  convo chat "why is the sky blue?"    one question, one answer
  convo chat -c                        go on where you left off
  convo inspect @last                  who holds it, and what each request sent

convo config says what is set and where: providers, aliases, the store.
CONVO_HOME moves everything that convo keeps under one folder.
{IN_LINES}
"""


class Shell(Group):
    """The group behind `convo`; its commands are rows of `table` until one is called."""

    table: Table = COMMANDS

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        row = self.table.get(cmd_name)
        return get_command(import_module(row.module).app) if row else None

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            raise Usage(f"no command {short(name)!r}", hint=meant(args, self.table))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        write_sections(formatter, {"Commands": [(name, row.summary) for name, row in self.table.items()]})

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        rows = self.table.items()
        return [CompletionItem(name, help=row.summary) for name, row in rows if name.startswith(incomplete)]


SENTENCE = 3
"""Words from which a command line without a command reads like a message."""

LONGEST = 200
"""Characters of a command line that a hint repeats."""


def meant(args: Sequence[str], table: Table) -> str:
    """The command that `args` could mean: one of a similar name, `inspect` of a handle or file, or `chat`."""
    name, rest = args[0], args[1:]
    plain = [word for word in args if not word.startswith("-")]
    near = get_close_matches(name, table, n=1, cutoff=0.6 if len(plain) < SENTENCE else 0.8) if " " not in name else []
    if near:
        return f"convo {near[0]}"
    if name.startswith(("resp_", "conv_", "ses_", "@")) or os.path.isfile(name):
        return f"convo inspect {quote(name)}" if len(name) <= LONGEST else "convo --help"
    if "chat" not in table:
        return "convo --help"
    at = next((at for at, word in enumerate(rest) if word.startswith("-")), len(rest))
    prompt, options = " ".join((name, *rest[:at])), [quote(word) for word in rest[at:]]
    if not prompt.strip() or len(prompt) + len(" ".join(options)) > LONGEST:
        return 'convo chat "..."'
    return " ".join(("convo chat", in_double_quotes(prompt), *options))


def in_double_quotes(words: str) -> str:
    """`words` quoted for a shell, with double quotes where nothing in them has a meaning inside those."""
    return quote(words) if set(words) & set('"\\$`!') else f'"{words}"'


def short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}…"


def begin(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Read this file instead of the user's own settings.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Go by these settings: [profiles.NAME] in a file.")
    ] = None,
    completion: Annotated[
        str | None,
        typer.Option("--completion", metavar="SHELL", help="Print a script for bash, zsh, fish or powershell."),
    ] = None,
    man: Annotated[bool, typer.Option("--man", help="Print the man page, for man -l -.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Choose who owns the state of a conversation, and see what the next request will contain."""
    ctx.obj = Call(config)
    ctx.with_resource(notices_to(_print_notice))
    if profile is not None:
        from convo.config.files import under_profile

        ctx.with_resource(under_profile(profile))
    if completion is not None:
        from convo.cli.completions import script

        typer.echo(script(completion), nl=False)
    elif man:
        from convo.cli.manual import page

        typer.echo(page(), nl=False)
    elif version:
        typer.echo(f"convo {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
    else:
        return
    raise typer.Exit


def _print_notice(line: str) -> None:
    from convo.cli.saying import note  # few runs have a notice

    note(line)


def shell(table: Table = COMMANDS) -> Shell:
    """The command line over `table`, ready to be run or asked for completions."""
    app = App(cls=Shell)
    app.callback(invoke_without_command=True, epilog=EXAMPLES)(begin)
    group = cast(Shell, get_command(app))
    group.table = table
    return group


def run(argv: Sequence[str], table: Table = COMMANDS) -> int:
    """Run one command line to its end; never raises, returns the exit code."""
    open_what_was_closed()
    spell_out_what_cannot_be_encoded()
    try:
        code = perform(argv, table)
        sys.stdout.flush()
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  the edge of the process: nothing above would catch it
        return end(error, as_json=wants_json(argv))
    return code


def perform(argv: Sequence[str], table: Table) -> int:
    """Run one command line; whatever goes wrong is raised."""
    group = shell(table)
    try:
        with group.make_context("convo", list(argv), terminal_width=narrow()) as ctx:
            group.invoke(ctx)
    except typer.Exit as leave:
        return leave.exit_code
    return 0


def end(error: BaseException, *, as_json: bool) -> int:
    """Tell what went wrong, where somebody still listens; returns the exit code."""
    show_traceback(error)
    failure = explain(error)
    if failure.code in OUTPUT_LOST:
        let_go_of_output()
    return tell(failure, as_json=as_json and failure.code not in OUTPUT_LOST)


def wants_json(argv: Sequence[str]) -> bool:
    """Whether errors are read by a program: `--json` or `--jsonl` stands before any `--`."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    return "--json" in options or "--jsonl" in options


def open_what_was_closed() -> None:
    """Put nothing where a stream should be: else a file of ours gets its number, and what was meant for it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  as long as the process


def spell_out_what_cannot_be_encoded() -> None:
    r"""Let a terminal that has no such character show `\u2713` instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def let_go_of_output() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
