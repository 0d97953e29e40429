"""The `convo` command line: command table, option groups, help, errors and exit codes.

Only the module of the requested command is imported. Every exception becomes two lines on stderr, or
JSON on stdout, and an exit code; a closed pipe is silent. Help is text without rich, up to 80 columns wide, on a
terminal up to 100; there it has bold headings and names in the color of the theme.
A command takes groups of options as frozen dataclasses; `_expand_option_groups` shows them to Typer.
"""

import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import Field, field, fields, is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from convo import __version__
from convo.cli.output import (
    EXIT_CODES_HELP,
    OUTPUT_LOST_CODES,
    print_debug_traceback,
    print_failure,
    print_notice,
    to_failure,
)
from convo.cli.progress import forbid_progress
from convo.errors import InvalidUsage
from convo.runtime import redirect_notices
from convo.terminal.terminal import DisplayOptions, detect_display, unwrap_paragraphs
from convo.terminal.theme import detect_color_system

CommandGroup = Literal["Talk", "Look", "Change", "Agents", "Serve and record", "Set up"]
"""The headings of the commands in the help, in their order."""


class CommandEntry(NamedTuple):
    """A row of the command table.

    group:    its heading in the help
    summary:  the command's line in the help
    module:   has an `App` named `app`; None: convo.cli.commands.NAME
    """

    group: CommandGroup
    summary: str
    module: str | None = None


CommandTable = Mapping[str, CommandEntry]

COMMANDS: CommandTable = MappingProxyType(
    {
        "chat": CommandEntry("Talk", "Chat with a model. Choose where the conversation state lives."),
        "sessions": CommandEntry("Talk", "List, search, rename and remove conversations."),
        "templates": CommandEntry("Talk", "List and show the templates for convo chat -t."),
        "inspect": CommandEntry("Look", "Inspect a conversation: its owner, requests, items, tokens and cost."),
        "next": CommandEntry("Look", "Show the exact next request, and the context that the server prepends."),
        "diff": CommandEntry("Look", "Find where two histories or two requests diverge."),
        "why": CommandEntry("Look", "Explain why the prompt cache missed: the cause, its cost and a fix."),
        "cost": CommandEntry("Look", "Show what each item, tool and file of a conversation cost, over all requests."),
        "race": CommandEntry("Look", "Run the same turns with all four strategies; compare tokens, cost and time."),
        "lint": CommandEntry("Look", "Find state that an API would reject, before it is sent."),
        "convert": CommandEntry("Change", "Convert a conversation to another strategy."),
        "compact": CommandEntry("Change", "Compact a conversation to fit a smaller context."),
        "export": CommandEntry("Change", "Export a conversation to a file."),
        "import": CommandEntry("Change", "Import conversations from files.", "convo.cli.commands.import_"),
        "repair": CommandEntry("Change", "Write a repaired copy of an invalid history."),
        "resume": CommandEntry("Agents", "Approve or reject the pending calls of a paused run, and resume it."),
        "approvals": CommandEntry("Agents", "List pending approvals, and approve or reject them."),
        "serve": CommandEntry("Serve and record", "Serve the Responses API over HTTP, in front of any model."),
        "tap": CommandEntry(
            "Serve and record", "Record what another program sends to a model, with a relay on this machine."
        ),
        "models": CommandEntry("Set up", "List providers and models, and download the built-in model."),
        "config": CommandEntry("Set up", "Show settings with their sources, and change them."),
        "store": CommandEntry("Set up", "Check, back up, recover, migrate, measure and prune the database."),
        "doctor": CommandEntry("Set up", "Diagnose problems and suggest fixes."),
        "schema": CommandEntry("Set up", "Print the JSON Schema of a command's JSON output."),
    }
)

HelpRecord = tuple[str, str]
"""An option and its help."""

MAX_HELP_WIDTH = 100
"""Columns of the help in a wide terminal."""

USAGE_HEADING = "Usage:"

OPTION_NAME = re.compile(r"(?<!\S)--?[^\s,]+")

EXAMPLE_LINE = re.compile(r"(  \S.*?)?(  +)(\S.*)")
"""A command, blanks and its description; or blanks, and a command or a description alone."""

MIN_DESCRIPTION_COLUMN = 8
"""Column of a description on a line of its own, at least."""

MIN_TEXT_COLUMNS = 20
"""Columns from which on the description of an example is wrapped in its own column."""


class RootOptions(NamedTuple):
    """Options before the command's name; `config` is a settings file of the user."""

    config: Path | None = None


def get_root_options(ctx: typer.Context) -> RootOptions:
    """Return the options before the name of the command that `ctx` belongs to."""
    return ctx.find_object(RootOptions) or RootOptions()


def check_file_names(ctx: Any, args: Sequence[str]) -> None:
    """Raise BadParameter for an empty file name: as a path it would be the current folder."""
    if ctx.resilient_parsing or not any(arg == "" or arg.endswith("=") for arg in args):
        return
    for param in ctx.command.params:
        if (param.metavar or "").strip("[].") != "FILE":
            continue
        value = ctx.params.get(param.name)
        values = value if isinstance(value, list | tuple) else [value]
        if "" in values or (Path() in values and "." not in args):
            raise typer.BadParameter("must not be empty", ctx=ctx, param=param)


def check_short_options(ctx: Any, args: Sequence[str]) -> None:
    """Raise InvalidUsage for -m=MODEL: the parser would take "=MODEL" as the value."""
    metavars = {name: param.metavar for param in ctx.command.params if param.metavar for name in param.opts}
    for arg in args[: args.index("--")] if "--" in args else args:
        if arg[2:3] == "=" and arg[:2] in metavars and not ctx.resilient_parsing:
            raise InvalidUsage(f"short options take no '=': {arg[:2]} {metavars[arg[:2]]}", hint=f"{arg[:2]} {arg[3:]}")


class PlainHelpCommand(TyperCommand):
    """A command with plain-text help.

    Typer has no public names for the contexts and formatters of its hooks: they are `Any` here.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        raw_args = tuple(args)  # the parser empties the list
        check_short_options(ctx, raw_args)
        ctx.allow_extra_args = True  # they are refused below, by an error that lists them
        try:
            remaining: list[str] = super().parse_args(ctx, args)
        except typer.TyperException as error:
            vars(error)["ctx"] = vars(error).get("ctx") or ctx  # not set if the value of an option is missing
            raise
        if remaining and not ctx.resilient_parsing:
            from convo.cli.usage_errors import unexpected_arguments_error

            raise unexpected_arguments_error(ctx, remaining)
        check_file_names(ctx, raw_args)
        return remaining

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [strip_braces(piece) for piece in super().collect_usage_pieces(ctx)]

    def get_help(self, ctx: Any) -> str:
        return style_usage(ctx, super().get_help(ctx))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        write_help_text(formatter, self.help)

    def collect_sections(self, ctx: Any) -> dict[str, list[HelpRecord]]:
        """Return the arguments and the options by heading."""
        return collect_help_sections(ctx, self.get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_help_sections(ctx, formatter, self.collect_sections(ctx))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_help_examples(ctx, formatter, self.epilog)


class PlainHelpGroup(TyperGroup):
    """A group of commands with plain-text help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-") and not ctx.resilient_parsing:
            from convo.cli.usage_errors import unknown_command_error

            raise unknown_command_error(ctx, name)
        if ctx.parent is not None and not ctx.resilient_parsing:
            self._refuse_options_before_command(ctx, name)
        return super().resolve_command(ctx, args)

    def _refuse_options_before_command(self, ctx: Any, command: str) -> None:
        """Raise InvalidUsage for an option of the group: the command would not get it."""
        for param in self.params:
            if ctx.get_parameter_source(param.name).name == "COMMANDLINE":
                option = max(param.opts, key=len)
                raise InvalidUsage(
                    f"{option} has no effect before {command}: its options come after it",
                    hint=f"{ctx.command_path} {command} --help",
                )

    def get_help(self, ctx: Any) -> str:
        return style_usage(ctx, super().get_help(ctx))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        write_help_text(formatter, self.help)

    def collect_sections(self, ctx: Any) -> dict[str, list[HelpRecord]]:
        """Return the options by heading."""
        return collect_help_sections(ctx, self.get_params(ctx))

    def collect_command_sections(self, ctx: Any) -> dict[str, list[HelpRecord]]:
        """Return the commands by heading, each with the first sentence of its help, which is never cut."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        records = [
            (name, command.get_short_help_str(limit=sys.maxsize))
            for name, command in commands
            if command and not command.hidden
        ]
        return {"Commands": records}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_help_sections(ctx, formatter, self.collect_command_sections(ctx) | self.collect_sections(ctx))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_help_examples(ctx, formatter, self.epilog)


class App(typer.Typer):
    """The Typer application of a command module: plain-text help, and commands with option groups."""

    def __init__(self, *, cls: type[TyperGroup] = PlainHelpGroup, **settings: Any) -> None:
        super().__init__(
            cls=cls,
            # `convo --completion` prints scripts of its own.
            add_completion=False,
            context_settings={"help_option_names": ["-h", "--help"]},
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            **settings,
        )

    def command(  # type: ignore[override]  # the other settings are Typer's own, by name
        self, name: str | None = None, *, cls: type[TyperCommand] = PlainHelpCommand, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        register = super().command(name, cls=cls, **settings)
        return lambda command: register(_expand_option_groups(command))

    def callback(self, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # type: ignore[override]
        register = super().callback(**settings)
        return lambda command: register(_expand_option_groups(command))


def strip_braces(text: str) -> str:
    """Return `HANDLE` for `{HANDLE}`, Typer's form of a required argument."""
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def collect_help_sections(ctx: Any, params: Iterable[Any]) -> dict[str, list[HelpRecord]]:
    """Return the help by heading: arguments, then the named groups, then the other options."""
    sections: dict[str, list[HelpRecord]] = {"Arguments": []}
    ungrouped: list[HelpRecord] = []
    for param in params:
        record = param.get_help_record(ctx)
        if record is None:
            continue
        panel = getattr(param, "rich_help_panel", None)
        if isinstance(param, TyperArgument):
            sections["Arguments"].append(record)
        elif isinstance(param, TyperOption) and isinstance(panel, str):
            sections.setdefault(panel, []).append(record)
        else:
            ungrouped.append(record)
    return {**sections, "Options": ungrouped}


def style_help(ctx: Any, text: str, style: str) -> str:
    """Apply a style of the theme to a part of the help, if the terminal shows colors."""
    if not ctx.color:
        return text
    return DisplayOptions(has_color=True, color_system=detect_color_system(os.environ)).apply_style(text, style)


def style_usage(ctx: Any, text: str) -> str:
    """Style the heading of the usage line of a help text."""
    return style_help(ctx, USAGE_HEADING, "bold") + text.removeprefix(USAGE_HEADING)


def style_help_term(ctx: Any, term: str) -> str:
    """Style a command, an argument or the names of an option."""
    if not term.startswith("-"):
        return style_help(ctx, term, "id")
    return OPTION_NAME.sub(lambda match: style_help(ctx, match[0], "id"), term)


def write_help_text(formatter: Any, text: str | None) -> None:
    """Write the introduction of a command."""
    if text:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(text))


def write_help_sections(ctx: Any, formatter: Any, help_sections: Mapping[str, Sequence[HelpRecord]]) -> None:
    """Write each section that is not empty below its heading."""
    for heading, records in help_sections.items():
        if records:
            with formatter.section(style_help(ctx, heading, "bold")):
                formatter.write_dl([(style_help_term(ctx, term), text) for term, text in records])


def write_help_examples(ctx: Any, formatter: Any, text: str | None) -> None:
    """Write the examples, to be copied, and the paragraphs after them."""
    if not text:
        return
    formatter.write_paragraph()
    for line in unwrap_paragraphs(inspect.cleandoc(text)).splitlines():
        formatter.write(format_example_line(ctx, line, formatter.width) + "\n")


def format_example_line(ctx: Any, line: str, columns: int) -> str:
    """Style a heading or a command, wrap a paragraph; on a terminal, wrap a description in its column."""
    from textwrap import fill  # Typer, too, loads it only for help

    is_terminal = ctx.max_content_width is not None
    example = EXAMPLE_LINE.fullmatch(line)
    if not example and line.endswith(":"):
        return style_help(ctx, line, "bold")
    if not example:
        return fill(line, columns, break_on_hyphens=False)
    command, blanks, text = example[1] or "", example[2], example[3]
    start = len(command + blanks)
    if not command and start < MIN_DESCRIPTION_COLUMN:
        return blanks + style_help(ctx, text, "id")
    if is_terminal and columns - start >= MIN_TEXT_COLUMNS:
        text = fill(text, columns, initial_indent=" " * start, subsequent_indent=" " * start)[start:]
    return command[:2] + style_help(ctx, command[2:], "id") + blanks + text


ROOT_EXAMPLES = """
Examples:
  convo chat                             chat interactively; saved on this machine
  git diff | convo chat "review this"    ask one question about piped input
  convo inspect @last                    show the last conversation: owner, requests, tokens
  convo export @last -o talk.html        write it to a page, which any browser opens
  convo resume @last --approve all       approve the pending calls of a paused run, and resume it
  convo serve                            serve the models of all your providers at one address
  convo doctor                           check the settings, keys and the database

convo config lists the settings with their sources: providers, aliases, the store.
CONVO_HOME sets one folder for all files of convo.
"""

EXIT_CODES_HEADING = "Exit codes"


class RootGroup(PlainHelpGroup):
    """The group of `convo`; a command's module is imported when the command is requested."""

    entries: CommandTable = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.entries.get(cmd_name)
        return get_command(import_module(entry.module or f"convo.cli.commands.{cmd_name}").app) if entry else None

    def collect_command_sections(self, ctx: Any) -> dict[str, list[HelpRecord]]:
        """Return the commands of each group."""
        return {
            group: [(name, entry.summary) for name, entry in self.entries.items() if entry.group == group]
            for group in get_args(CommandGroup)
        }

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section(style_help(ctx, EXIT_CODES_HEADING, "bold")):
            formatter.write_text(EXIT_CODES_HELP)


def handle_root_options(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings file to use instead of your own.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Use the settings in [profiles.NAME].")
    ] = None,
    completion: Annotated[
        str | None,
        typer.Option(
            "--completion", metavar="SHELL", help="Print the completion script for bash, zsh, fish or powershell."
        ),
    ] = None,
    man: Annotated[bool, typer.Option("--man", help="Print the man page; read it with man -l -.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Choose where conversation state lives, and see exactly what the next request will send."""
    ctx.obj = RootOptions(config)
    ctx.with_resource(redirect_notices(print_notice))
    if profile is not None:
        from convo.config.loader import use_profile

        ctx.with_resource(use_profile(profile))
    if completion is not None:
        from convo.cli.completion_scripts import get_completion_script

        typer.echo(get_completion_script(completion), nl=False)
    elif man:
        from convo.cli.manual import render_man_page

        typer.echo(render_man_page(make_root_group()), nl=False)
    elif version:
        typer.echo(f"convo {__version__}")
    elif ctx.invoked_subcommand is None:
        from convo.cli.input import has_piped_input

        if has_piped_input():
            chat = cast(RootGroup, ctx.command).get_command(ctx, "chat")
            chat.invoke(ctx.with_resource(chat.make_context("chat", [], parent=ctx)))
        typer.echo(ctx.get_help())
    else:
        return
    raise typer.Exit


def make_root_group(commands: CommandTable = COMMANDS) -> RootGroup:
    """Build the group of `convo`, ready to run or to complete a command line."""
    app = App(cls=RootGroup)
    app.callback(invoke_without_command=True, epilog=ROOT_EXAMPLES)(handle_root_options)
    group = cast(RootGroup, get_command(app))
    group.entries = commands
    return group


def run_command_line(argv: Sequence[str], commands: CommandTable = COMMANDS) -> int:
    """Run one command line and return its exit code; never raises."""
    open_closed_streams()
    escape_unencodable_output()
    try:
        code = invoke_command_line(argv, commands)
        sys.stdout.flush()
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  nothing above would catch it
        return report_failure(error, argv)
    return code


def invoke_command_line(argv: Sequence[str], commands: CommandTable) -> int:
    """Run one command line and return its exit code. Raises every error of the command."""
    group = make_root_group(commands)
    display = detect_display(sys.stdout, os.environ)
    try:
        with (
            forbid_progress() if is_json_requested(argv) else nullcontext(),
            group.make_context(
                "convo",
                list(argv),
                max_content_width=None if display.width is None else MAX_HELP_WIDTH,
                color=display.has_color or None,
            ) as ctx,
        ):
            group.invoke(ctx)
    except typer.Exit as exit_request:
        return exit_request.exit_code
    return 0


def report_failure(error: BaseException, argv: Sequence[str]) -> int:
    """Print the error of a command line, on stderr if stdout is lost, and return the exit code."""
    print_debug_traceback(error)
    if isinstance(error, typer.TyperException) and error.exit_code == InvalidUsage.exit:
        from convo.cli.usage_errors import to_invalid_usage

        error = to_invalid_usage(error)
    failure, as_json = to_failure(error), is_json_requested(argv)
    if failure.code in OUTPUT_LOST_CODES:
        discard_output()
    try:
        print_failure(failure, as_json=as_json and failure.code not in OUTPUT_LOST_CODES)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    return failure.exit


def is_json_requested(argv: Sequence[str]) -> bool:
    """Return whether a program reads the errors: `--json` or `--jsonl` comes before any `--`."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    return "--json" in options or "--jsonl" in options


def open_closed_streams() -> None:
    """Open the null device for each closed standard stream: else a file of ours gets its descriptor and its data."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  open until the process ends


def escape_unencodable_output() -> None:
    r"""Print a character that the terminal cannot encode as `\u2713`, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Redirect stdout to the null device, so that the interpreter's last flush does not fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


OptionalText: TypeAlias = str | None
OptionalTexts: TypeAlias = list[str] | None

OPTION_METADATA_KEY = "option"
"""Key of a group's field metadata: the option's names and its arguments for `typer.Option`."""

STDOUT_ARGUMENT = "-"
"""The value of an output file's option that means stdout."""

LOOKUP_PANEL = "Lookup"

HandleArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="Session, resp_..., conv_..., @last, @recorded or file.")
]
TURN_HANDLE_HELP = "Session, resp_..., conv_..., @last, @recorded or file; add @N for the response of its turn N"
TurnHandleArgument = Annotated[str, typer.Argument(metavar="HANDLE", help=f"{TURN_HANDLE_HELP}.")]
RemoteOption = Annotated[
    bool,
    typer.Option("--remote", help="Read from the endpoint, not from the local copy.", rich_help_panel=LOOKUP_PANEL),
]
ProviderOption = Annotated[
    OptionalText,
    typer.Option(
        "--provider",
        metavar="NAME",
        help="Provider whose endpoint to ask for handles without a local copy.",
        rich_help_panel=LOOKUP_PANEL,
    ),
]
StoreOption = Annotated[
    OptionalText,
    typer.Option(
        "--store", metavar="STORE", help="Store to use instead of the configured one: sqlite:PATH or postgresql://..."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonObjectOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def flag_option(
    names: str,
    help: str,  # noqa: A002  Typer's own word
    *,
    default: bool | None = False,
    panel: str | None = None,
) -> Any:
    """Define an option without a value: a field of a group, or the default of a command's parameter.

    names:  "-c --continue"; "--nest/--no-nest" for a pair that switches it on and off
    panel:  its heading, if it is not that of its group
    """
    return field(default=default, metadata={OPTION_METADATA_KEY: (names.split(), panel, {"help": help})})


def value_option(
    names: str,
    metavar: str,
    help: str,  # noqa: A002  Typer's own word
    *,
    default: object = None,
    min: int | None = None,  # noqa: A002  Typer's own word
    max: int | None = None,  # noqa: A002  Typer's own word
    panel: str | None = None,
) -> Any:
    """Define an option with a value. The arguments are those of `flag_option`."""
    settings = {"metavar": metavar, "help": help, "min": min, "max": max}
    return field(default=default, metadata={OPTION_METADATA_KEY: (names.split(), panel, settings)})


def parse_output_path(argument: OptionalText) -> Path | None:
    """Return the output file that an option names; None for stdout, which - names too. `./-` is a file."""
    return None if argument in (None, STDOUT_ARGUMENT) else Path(argument)


def _expand_option_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return `command` with a signature for Typer: `typer.Option` for each option, those of a group in its place.

    A group is `Annotated[GroupClass, "Heading of its options"]`. A third argument, `{name: help}`, selects the fields
    that the command has, with a help of its own or None.
    """
    signature = inspect.signature(command)
    groups = {
        name: get_args(parameter.annotation)
        for name, parameter in signature.parameters.items()
        if _is_option_group(parameter)
    }

    @wraps(command)
    def wrapper(*arguments: Any, **values: Any) -> Any:
        built_groups = {name: _build_option_group(values, *group) for name, group in groups.items()}
        return command(*arguments, **built_groups, **values)

    parameters = [
        option
        for name, parameter in signature.parameters.items()
        for option in _iter_option_parameters(parameter, *groups.get(name, ()))
    ]
    vars(wrapper)["__signature__"] = signature.replace(parameters=parameters)
    return wrapper


def _is_option_group(parameter: inspect.Parameter) -> bool:
    return any(map(is_dataclass, get_args(parameter.annotation)[:1]))


def _build_option_group(
    values: dict[str, Any], group_class: Any, _: str, own_help: Mapping[str, str | None] | None = None
) -> Any:
    """Build the group, and remove its options from `values`."""
    return group_class(
        **{one.name: values.pop(one.name) for one in fields(group_class) if own_help is None or one.name in own_help}
    )


def _iter_option_parameters(
    parameter: inspect.Parameter,
    group_class: Any = None,
    panel: str | None = None,
    own_help: Mapping[str, str | None] | None = None,
) -> Iterator[inspect.Parameter]:
    if group_class is None and not isinstance(parameter.default, Field):
        yield parameter
        return
    for option_field in (parameter.default,) if group_class is None else fields(group_class):
        name = option_field.name or parameter.name  # a field outside of a group has no name and type
        if own_help is not None and name not in own_help:
            continue
        names, own_panel, settings = option_field.metadata[OPTION_METADATA_KEY]
        if own_help and own_help[name]:
            settings = {**settings, "help": own_help[name]}
        option = typer.Option(option_field.default, *names, rich_help_panel=own_panel or panel, **settings)
        yield parameter.replace(name=name, default=option, annotation=option_field.type or parameter.annotation)
