"""How every command looks.

Plain text that a terminal, a pipe and a screen reader all take: a usage line, one sentence, the
options in groups that have a name, examples as they are typed. An option joins a group by
`rich_help_panel="Who keeps the state"`; those without one stand last, under "Options". Rich is
never asked: it would cost more time than the rest of the help.
"""

import inspect
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer._click import Context, HelpFormatter, Parameter
from typer._click.exceptions import UsageError
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from convo.cli.options import spread

Record = tuple[str, str]
"""An option and what it does."""

NARROW = 52
"""Columns below which an option and what it does stand one below the other."""

ABOUT = " " * 6
"""What stands before the words about an example in a narrow terminal."""

EXAMPLE = re.compile(r"( {1,6}\S.*?)? {2,}(\S.*)")
"""A command and what is said about it, or only the latter in a line of its own."""


class Call(NamedTuple):
    """What was said before the command's name: `config` is a settings file of the user's own."""

    config: Path | None = None


def call_of(ctx: typer.Context) -> Call:
    """What was said before the name of the command that `ctx` belongs to."""
    return ctx.find_object(Call) or Call()


class Command(TyperCommand):
    """One command, in our shape."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments. An error always carries the context, so that its hint names this command."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as wrong:
            wrong.ctx = wrong.ctx or ctx
            raise

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return [bare(piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        write_sections(formatter, sections(ctx, self.get_params(ctx)))

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        write_as_is(formatter, self.epilog)


class Group(TyperGroup):
    """Several commands under one name, in our shape."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        write_sections(formatter, sections(ctx, self.get_params(ctx)))

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        write_as_is(formatter, self.epilog)


class App(typer.Typer):
    """What a command's module puts its functions on; see the package's story."""

    def __init__(self, *, cls: type[TyperGroup] = Group, **settings: Any) -> None:
        super().__init__(
            cls=cls,
            add_completion=False,
            context_settings={"help_option_names": ["-h", "--help"]},
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            **settings,
        )

    def command(  # type: ignore[override]  # the other settings are Typer's own, by name
        self, name: str | None = None, *, cls: type[TyperCommand] = Command, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        register = super().command(name, cls=cls, **settings)
        return lambda command: register(spread(command))


def bare(piece: str) -> str:
    """`HANDLE` where Typer writes `{HANDLE}` for an argument that must be there."""
    return piece[1:-1] if piece.startswith("{") and piece.endswith("}") else piece


def sections(ctx: Context, params: Iterable[Parameter]) -> dict[str, list[Record]]:
    """The lines of the help by heading: arguments, then the named groups, then the other options."""
    found: dict[str, list[Record]] = {"Arguments": []}
    plain: list[Record] = []
    for param in params:
        record = param.get_help_record(ctx)
        if record is None:
            continue
        panel = getattr(param, "rich_help_panel", None)
        if isinstance(param, TyperArgument):
            found["Arguments"].append(record)
        elif isinstance(param, TyperOption) and isinstance(panel, str):
            found.setdefault(panel, []).append(record)
        else:
            plain.append(record)
    return {**found, "Options": plain}


def narrow() -> int | None:
    """The width of the help in a narrow terminal; None where Typer's own choice fits."""
    columns = shutil.get_terminal_size().columns
    return columns - 1 if 0 < columns < NARROW else None


def write_sections(formatter: HelpFormatter, found: dict[str, list[Record]]) -> None:
    for heading, records in found.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records, col_max=2 if formatter.width < NARROW - 2 else 30)


def write_as_is(formatter: HelpFormatter, text: str | None) -> None:
    """Examples are not wrapped: they are there to be copied. In a narrow terminal what is said about them is."""
    if not text:
        return
    formatter.write_paragraph()
    lines = inspect.cleandoc(text).splitlines()
    if formatter.width < NARROW - 2:
        lines = [part for line in lines for part in narrowed(line, formatter.width)]
    formatter.write("\n".join(lines) + "\n")


def narrowed(line: str, columns: int) -> Iterator[str]:
    """A line of examples in a narrow terminal: a command as it is, and below it what is said about it."""
    from convo.ui.medium import wrapped

    example = EXAMPLE.fullmatch(line)
    if not example:
        yield from wrapped(line, columns)
    elif example[1] or len(line) - len(example[2]) > len(ABOUT):
        yield from filter(None, [example[1]])
        yield from wrapped(ABOUT + example[2], columns)
    else:
        yield line
