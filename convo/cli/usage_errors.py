"""Invalid command lines: the message, and a similar command line that is valid.

The hint keeps every valid argument of the user. `suggest_command_line` changes the one argument that the first error is
about, parses the result, and repeats this until no error is left; where no change is likely, the hint is `--help`. Only
the parser runs: no command, and no callback.

Typer exports only the base of its errors and `BadParameter`. The attributes of the others are those of an unknown
option (`possibilities`), of an option without its value, or with one that it does not take (`option_name`), and of a
missing parameter (`param_type`).
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from shlex import quote, split
from typing import Any, NamedTuple

import typer
from typer.core import TyperArgument, TyperGroup

from convo.cli.output import CommandFailure
from convo.config.values import MAX_SECRET_CHARS, find_closest_word, is_secret, is_secret_name, redact_secrets
from convo.errors import ArgumentFix, InvalidUsage

MAX_HINT_CHARS = 200
"""Characters of an argument that a hint repeats; a longer one is shown as `...`."""

MAX_LINE_CHARS = 240
"""Characters of a command line in a hint; in a longer one the longest arguments are shown as `...`."""

MIN_SHORTENED_CHARS = 20
"""Characters of an argument that is shown as `...` if the command line is too long."""

MAX_SHOWN_VALUE_CHARS = 80
"""Characters of an invalid value that a message repeats."""

MAX_SHOWN_ARGUMENTS = 5
"""Unexpected arguments that a message repeats."""

MAX_FIXES = 10
"""Changes of one command line."""

ELLIPSIS = "..."

OPTION_WITH_VALUE = re.compile(r"--[a-z][a-z-]{0,30}=|-[A-Za-z](?=.)", re.DOTALL)
"""The part of --name=VALUE or -nVALUE that is no secret."""

PLAIN_KEY = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{20,}", re.ASCII)
"""A word that may be a key without the prefix of its issuer."""

HELP_OPTIONS = ("-h", "--help")

FINAL_OPTIONS = frozenset({"version", "man", "completion"})
"""Options of `convo` after which the rest of the command line is not used."""


class UnknownCommand(typer.BadParameter):
    """A group has no command of this name."""

    def __init__(self, ctx: Any, name: str) -> None:
        super().__init__(name, ctx=ctx)
        self.name = name


class MissingCommand(typer.BadParameter):
    """A group needs a command."""

    def __init__(self, ctx: Any) -> None:
        super().__init__("missing command", ctx=ctx)


class UnexpectedArguments(typer.BadParameter):
    """A command takes fewer arguments; `extra` are the last ones."""

    def __init__(self, ctx: Any, extra: Sequence[str]) -> None:
        super().__init__("unexpected arguments", ctx=ctx)
        self.extra = tuple(extra)


class MissingArgument(typer.BadParameter):
    """An argument is missing that some options need."""

    param_type = "argument"

    def __init__(self, ctx: Any, param: Any) -> None:
        super().__init__("missing argument", ctx=ctx, param=param)


class PromptText(str):
    """A message to a model; a hint quotes it with double quotes where it can."""

    __slots__ = ()


# -- commands --------------------------------------------------------------------------------------

COMMAND_BY_WORD: Mapping[str, str] = {
    "approve": "approvals approve",
    "ask": "chat",
    "auth": "config key show",
    "auth list": "config key show",
    "auth login": "config key set",
    "auth logout": "config key unset",
    "auth status": "config key show",
    "backup": "store backup",
    "branch": "chat --fork",
    "chats": "sessions",
    "check": "doctor",
    "continue": "chat -c",
    "conversations": "sessions",
    "cost": "inspect",
    "curl": "next --curl",
    "delete": "sessions rm",
    "effort": "config set request.reasoning_effort",
    "exec": "chat",
    "find": "sessions search",
    "fork": "chat --fork",
    "help": "--help",
    "history": "sessions",
    "init": "doctor",
    "key": "config key set",
    "keys": "config key show",
    "keys get": "config key show",
    "keys list": "config key show",
    "keys rm": "config key unset",
    "keys set": "config key set",
    "list": "sessions",
    "log": "sessions",
    "login": "config key set",
    "logout": "config key unset",
    "logs": "sessions",
    "logs list": "sessions",
    "ls": "sessions",
    "migrate": "store migrate",
    "new": "chat",
    "prompt": "chat",
    "providers": "models",
    "prune": "store prune",
    "pull": "models pull",
    "record": "tap",
    "recover": "store recover",
    "reject": "approvals reject",
    "rename": "sessions rename",
    "rm": "sessions rm",
    "run": "chat",
    "search": "sessions search",
    "server": "serve",
    "set": "config set",
    "settings": "config",
    "setup": "doctor",
    "show": "inspect",
    "stats": "store stats",
    "status": "inspect",
    "tokens": "inspect",
    "trust": "config trust",
    "update": "--help",
    "upgrade": "--help",
    "usage": "inspect",
    "version": "--version",
}
"""The command for words that a user may type as a command, as in git, gh, llm, codex and ollama."""

ARGUMENTS_BY_COMMAND: Mapping[str, tuple[str, ...]] = {
    "config key set": ("openai",),
    "config key unset": ("openai",),
    "config set request.reasoning_effort": ("high",),
}
"""Arguments of a command of `COMMAND_BY_WORD` that is typed without any."""

COMMANDS_THAT_DELETE = frozenset({"rm", "unset"})
"""Commands whose hint never names an object that the user did not name."""

MESSAGE_COMMANDS = ("ask", "exec", "prompt")
"""Words that other programs have before a message of any length."""

MIN_MESSAGE_WORDS = 3
"""Words from which a command line without a command is probably a message."""

SUBCOMMANDS_BY_WORD: Mapping[str, tuple[str, ...]] = {
    "accept": ("approve",),
    "add": ("set", "pull", "path"),
    "allow": ("approve",),
    "clean": ("prune",),
    "create": ("path", "set"),
    "delete": ("rm", "unset", "untrust", "prune"),
    "deny": ("reject",),
    "download": ("pull",),
    "edit": ("path",),
    "export": ("backup",),
    "find": ("search",),
    "gc": ("prune",),
    "get": ("show", "list"),
    "grep": ("search",),
    "history": ("log", "list"),
    "info": ("stats", "show", "list"),
    "install": ("pull",),
    "list": ("show", "stats"),
    "login": ("set",),
    "logout": ("unset",),
    "logs": ("log", "list"),
    "ls": ("list", "show", "stats"),
    "mv": ("rename",),
    "new": ("path", "set"),
    "prices": ("known",),
    "remove": ("rm", "unset", "untrust", "prune"),
    "reset": ("unset",),
    "rm": ("unset", "untrust", "prune"),
    "save": ("set", "backup"),
    "show": ("list", "stats"),
    "size": ("stats",),
    "status": ("list", "show", "stats"),
    "upgrade": ("migrate",),
    "vacuum": ("prune",),
    "view": ("show", "list"),
    "windows": ("known",),
}
"""The commands of a group for a word that a user may type; the first one that the group has is suggested."""


def _suggest_root_command(root: Any, args: Sequence[str]) -> list[str] | None:
    """Suggest a command for unknown arguments: one of a similar name, `inspect` for a handle or file, or `chat`."""
    commands = root.list_commands(None)
    name, rest = args[0], list(args[1:])
    words, options = _split_at_option(rest)
    is_short = 1 + len(words) < MIN_MESSAGE_WORDS
    suggested = _suggest_by_meaning(args, commands, is_short=is_short)
    if suggested is not None:
        return suggested
    closest = find_closest_word(name, commands, cutoff=_name_cutoff(name, is_short=is_short))
    if closest and " " not in name:
        return [closest, *rest]
    if name.startswith(("resp_", "conv_", "ses_", "@")) or os.path.isfile(name):
        return ["inspect", name, *rest] if "inspect" in commands and len(name) <= MAX_HINT_CHARS else None
    if "chat" not in commands:
        return None
    prompt = " ".join((name, *words))
    repeated_chars = len(prompt) + len(" ".join(map(quote, options)))
    if not prompt.strip() or PLAIN_KEY.search(prompt) or repeated_chars > MAX_HINT_CHARS:
        return ["chat", PromptText(ELLIPSIS)]
    return ["chat", PromptText(prompt), *options]


def _split_at_option(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments before the first option."""
    words = list(takewhile(lambda arg: not arg.startswith("-"), args))
    return words, list(args[len(words) :])


def _name_cutoff(name: str, *, is_short: bool) -> float:
    """Return how similar a command must be: `tpa` is `tap`, but `login` is not `lint`."""
    if not is_short:
        return 0.8
    return 0.6 if len(name) <= MIN_MESSAGE_WORDS else 0.7


def _suggest_by_meaning(args: Sequence[str], commands: Sequence[str], *, is_short: bool) -> list[str] | None:
    """Suggest the command for a word of other programs, with the other arguments.

    is_short:  the command line is probably no message; else only two words, or a word for `convo chat`, have a meaning
    """
    for count in (2, 1):
        meant = COMMAND_BY_WORD.get(" ".join(args[:count])) if len(args) >= count else None
        if meant is None or not (is_short or count > 1 or args[0] in MESSAGE_COMMANDS):
            continue
        command, rest = meant.split(), list(args[count:])
        if command[0].startswith("-"):
            return [rest[0], "--help"] if rest and rest[0] in commands and args[0] == "help" else command
        if command[0] not in commands or sum(map(len, rest)) > MAX_HINT_CHARS:
            return None
        if command == ["chat"]:
            words, options = _split_at_option(rest)
            return ["chat", *([PromptText(" ".join(words))] if words else []), *options]
        takes_key = meant.startswith("config key")
        rest = [word for word in rest if not (is_secret(word) or (takes_key and PLAIN_KEY.search(word)))]
        return [*command, *(rest or ARGUMENTS_BY_COMMAND.get(meant, ()))]
    return None


def _suggest_subcommand(group: Any, args: Sequence[str]) -> list[str] | None:
    """Suggest a command of a group, with the arguments of the unknown one."""
    name, rest = args[0], list(args[1:])
    names = group.list_commands(None)
    meant = [word for word in SUBCOMMANDS_BY_WORD.get(name, ()) if word in names]
    command = meant[0] if meant else find_closest_word(name, names) if len(name) > 1 else None  # "r" is similar to "rm"
    if not command and {"set", "list", "trust"} <= set(names) and (setting := _find_setting(name)):
        return ["set" if rest and not rest[0].startswith("-") else "list", setting, *rest]
    return [command, *rest] if command else None


def _find_setting(name: str) -> str:
    """Return the setting of this name, or the most similar one; "" without one."""
    from convo.config.editor import parse_setting_key
    from convo.config.schema import find_similar_setting, get_schema
    from convo.config.values import format_setting_key

    try:
        key = parse_setting_key(name)
    except InvalidUsage:
        return ""
    try:
        get_schema(key, "")
    except InvalidUsage:
        similar = find_similar_setting(key)
        return format_setting_key(similar) if similar else ""
    return name


# -- the arguments of a command --------------------------------------------------------------------


class ArgumentToken(NamedTuple):
    """An option with its values, or an argument, of a command line.

    position:  index of the option or argument
    name:      of the option as typed, without its value; "" for an argument
    param:     the option; None for an argument or an unknown option
    values:    the indexes of the values; that of the option itself for --name=VALUE and -nVALUE
    """

    position: int
    name: str = ""
    param: Any = None
    values: tuple[int, ...] = ()


def _get_option_names(param: Any) -> list[str]:
    return [*param.opts, *param.secondary_opts]


def _iter_tokens(command: Any, args: Sequence[str]) -> Iterator[ArgumentToken]:
    """Split the arguments of a command as its parser does; those of a group end before the name of its command."""
    options = {
        name: param
        for param in command.params
        if param.param_type_name == "option"
        for name in _get_option_names(param)
    }
    is_interspersed = command.context_settings.get("allow_interspersed_args", command.allow_interspersed_args)
    index = 0
    while index < len(args):
        arg = args[index]
        if arg == "--":
            yield from map(ArgumentToken, range(index + 1, len(args)))
            return
        if not arg.startswith("-") or arg == "-":
            if not is_interspersed:
                yield from map(ArgumentToken, range(index, len(args)))
                return
            yield ArgumentToken(index)
            index += 1
            continue
        name, has_value, _ = arg.partition("=")
        param = options.get(name)
        if param is None and not arg.startswith("--"):
            name, param, has_value = _find_short_option(arg, options)
        count = 0 if param is None or param.is_flag else param.nargs
        first = index if has_value else index + 1
        values = tuple(value for value in range(first, first + count) if value < len(args))
        yield ArgumentToken(index, name, param, values)
        index = max((index, *values)) + 1


def _find_short_option(arg: str, options: Mapping[str, Any]) -> tuple[str, Any, str]:
    """Return the last short option of `arg` with its name, and the value behind it; the first unknown one without."""
    for place, char in enumerate(arg[1:], 2):
        param = options.get(f"-{char}")
        if param is None:
            return f"-{char}", None, ""
        if not param.is_flag:
            return f"-{char}", param, arg[place:]
    return f"-{arg[-1]}", options[f"-{arg[-1]}"], ""


def _list_positional_indexes(command: Any, args: Sequence[str]) -> list[int]:
    return [token.position for token in _iter_tokens(command, args) if not token.name]


def _find_option(name: str, command: Any) -> Any:
    """Return the option of the command with this name, or None."""
    return next((param for param in command.params if name and name in _get_option_names(param)), None)


def _find_token(param: Any, command: Any, args: Sequence[str]) -> ArgumentToken | None:
    """Return the option where it is given last: the parser uses that value."""
    return next((token for token in reversed([*_iter_tokens(command, args)]) if token.param is param), None)


# -- the first error -------------------------------------------------------------------------------


class UsageProblem(NamedTuple):
    """The first error of a command line; the arguments of its command begin at `start`."""

    error: typer.TyperException
    command: Any
    argv: Sequence[str]
    start: int

    @property
    def args(self) -> list[str]:
        return list(self.argv[self.start :])

    def replace_args(self, args: Sequence[str]) -> list[str]:
        """Return the command line with other arguments of the command."""
        return [*self.argv[: self.start], *args]


def find_usage_problem(root: Any, argv: Sequence[str]) -> UsageProblem | None:
    """Parse a command line without help options, and return its first error; None if it is valid."""
    command, name, parent, start = root, "convo", None, 0
    while True:
        args = list(argv[start:])
        try:
            ctx = command.make_context(name, list(args), parent=parent)
        except typer.Exit:
            return None
        except typer.TyperException as error:
            return UsageProblem(error, command, argv, start)
        if not isinstance(command, TyperGroup):
            return None
        if any(token.param is not None and token.param.name in FINAL_OPTIONS for token in _iter_tokens(command, args)):
            return None
        index = next(iter(_list_positional_indexes(command, args)), None)
        if index is None:
            is_complete = command.invoke_without_command
            return None if is_complete else UsageProblem(MissingCommand(ctx), command, argv, start)
        name, parent, start = args[index], ctx, start + index + 1
        subcommand = command.get_command(ctx, name)
        if subcommand is None:
            return UsageProblem(UnknownCommand(ctx, name), command, argv, start - 1)
        command = subcommand


def to_usage_failure(error: typer.TyperException, root: Any, argv: Sequence[str]) -> CommandFailure:
    """Convert an error of the parser; the hint is the most similar valid command line, or the help of the command."""
    options_end = argv.index("--") if "--" in argv else len(argv)
    argv = [arg for index, arg in enumerate(argv) if index >= options_end or arg not in HELP_OPTIONS]
    problem = find_usage_problem(root, argv)
    ctx = getattr(error, "ctx", None)
    help_hint = f"{ctx.command_path if ctx else 'convo'} --help"
    message, hint = error.format_message(), ""
    if problem is not None:
        message, hint = _describe(problem), suggest_command_line(root, problem)
    return CommandFailure("usage", message, hint or help_hint, InvalidUsage.exit)


def suggest_command_line(root: Any, problem: UsageProblem) -> str:
    """Return the command line that is valid after the fewest changes; "" if none is known."""
    current: UsageProblem | None = problem
    argv = problem.argv
    for _ in range(MAX_FIXES):
        if current is None:
            line = format_command_line(argv)
            is_help = argv[-1:] and argv[-1] in HELP_OPTIONS
            # a hidden part can make it invalid, as of several short options in one argument
            return line if is_help or find_usage_problem(root, split(line)[1:]) is None else ""
        fixed_argv = _fix_first_error(root, current)
        if fixed_argv is None:
            return ""
        argv = fixed_argv
        current = None if argv[-1] in HELP_OPTIONS else find_usage_problem(root, argv)
    return ""


# -- the fix of one error --------------------------------------------------------------------------

NEGATIVE_NUMBER = re.compile(r"-\d*\.?\d+")

OPTIONS_BY_MISTAKEN_OPTION: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("approvals", "--session"): ("--run",),
    ("chat", "--file"): ("--attach",),
    ("chat", "--image"): ("--attach",),
    ("chat", "--instructions"): ("--system",),
    ("chat", "--offline"): ("-m", "local"),
    ("chat", "--resume"): ("-c",),
    ("chat", "-f"): ("--attach",),
    ("chat", "-i"): ("--attach",),
    ("chat", "-o"): ("--param",),
    ("serve", "-p"): ("--port",),
}
"""The option with the same function, by the command and the unknown option, as in llm and codex."""

COMMAND_BY_MISTAKEN_OPTION: Mapping[tuple[str, str], str] = {("inspect", "--curl"): "next"}
"""The command that has the option, by the command and the unknown option."""

VALUE_BY_OPTION: Mapping[str, str] = {
    "--as": "fixed",
    "--explain": "all",
    "--keep-last": "1",
    "--max-output-tokens": "1000",
    "--max-turns": "10",
    "--model": "local",
    "--port": "8788",
    "--reasoning-effort": "high",
    "--session-limit": "20",
    "--temperature": "0.7",
    "--top-p": "0.9",
    "--verbosity": "low",
}
"""A valid value of options whose name for it, such as N, says too little."""

VALUES_BY_ARGUMENT: Mapping[str, tuple[str, ...]] = {
    "A": ("@last@1", "@last"),
    "HANDLE": ("@last",),
    "HANDLE...": ("@last",),
    "PROVIDER": ("openai",),
}
"""Valid values of an argument of commands that delete nothing."""

COMMAND_BY_MISSING_ARGUMENT: Mapping[str, str] = {
    "CALL...": "approvals",
    "CALL[=WHY]...": "approvals",
    "KEY": "config",
    "STATE": "approvals",
}
"""The command that lists the values of a missing argument."""


def _fix_first_error(root: Any, problem: UsageProblem) -> list[str] | None:
    """Change the argument that the first error is about, and return the command line; None without a likely change."""
    error, command = problem.error, problem.command
    param = getattr(error, "param", None)
    option = _find_option(_get_option_name(error), command)
    match error:
        case UnknownCommand():
            return _replace_command(root, problem)
        case UnexpectedArguments():
            return _remove_extra_arguments(problem, error.extra)
        case _ if hasattr(error, "possibilities"):
            return _replace_option(root, problem)
        case _ if hasattr(error, "param_type"):
            return _add_parameter(problem, param)
        case _ if param is not None:
            return _replace_value(problem, param)
        case _ if option is not None and option.is_flag:
            token = _find_token(option, command, problem.args)
            return token and _replace_arg(problem, token.position, token.name)
        case _ if option is not None:
            given = _find_token(option, command, problem.args)
            missing = _list_example_values(option)[len(given.values) if given else 0 :]
            return [*problem.argv, *missing]
    return None


def _replace_arg(problem: UsageProblem, index: int, *words: str) -> list[str]:
    args = problem.args
    return problem.replace_args([*args[:index], *words, *args[index + 1 :]])


def _replace_command(root: Any, problem: UsageProblem) -> list[str] | None:
    args = problem.args
    if problem.command is root:
        suggested = _suggest_root_command(root, args)
        return suggested and problem.replace_args(suggested)
    suggested = _suggest_subcommand(problem.command, args)
    if suggested is not None:
        return problem.replace_args(suggested)
    group_start = next(index for index in _list_positional_indexes(root, problem.argv))
    return [*problem.argv[:group_start], *args] if args[0] in root.list_commands(None) else None


def _remove_extra_arguments(problem: UsageProblem, extra: Sequence[str]) -> list[str] | None:
    """Remove the last arguments; a path is that of a database, where the command has the option --store."""
    args = problem.args
    positions = _list_positional_indexes(problem.command, args)[-len(extra) :]
    kept = [arg for index, arg in enumerate(args) if index not in positions]
    if len(extra) == 1 and "/" in extra[0] and _find_option("--store", problem.command):
        is_location = extra[0].startswith(("sqlite:", "postgresql://", "postgres://"))
        if is_location or "://" not in extra[0]:
            kept += ["--store", extra[0] if is_location else f"sqlite:{extra[0]}"]
    return problem.replace_args(kept)


def _replace_option(root: Any, problem: UsageProblem) -> list[str] | None:
    """Replace an unknown option, or move it to the command that has it."""
    command, args, token = problem.command, problem.args, _find_unknown_option(problem)
    if token is None:
        return None
    name, typed = token.name, args[token.position]
    typed_name, separator, value = typed.partition("=")
    if NEGATIVE_NUMBER.fullmatch(typed):
        return problem.replace_args([*args[: token.position], "--", *args[token.position :]])
    first_command = next((problem.argv[index] for index in _list_positional_indexes(root, problem.argv)), "")
    meant = OPTIONS_BY_MISTAKEN_OPTION.get((first_command, name))
    if meant and _find_option(meant[0], command):
        attached = value if name.startswith("--") else typed.removeprefix(name)
        return _replace_arg(problem, token.position, *meant, *([attached] if separator or attached else []))
    other_command = COMMAND_BY_MISTAKEN_OPTION.get((first_command, name))
    if other_command:
        return [*problem.argv[: problem.start - 1], other_command, *args]
    root_option = _find_option(name, root)
    if root_option is not None and command is not root:
        return _move_root_option(problem, token, root_option)
    similar = _find_similar_option(typed_name, command)
    if similar:
        return _replace_arg(problem, token.position, similar + separator + value)
    if isinstance(command, TyperGroup):
        return _move_option_to_subcommand(root, problem, token)
    return None


def _get_option_name(error: typer.TyperException) -> str:
    """Return the option that the error is about; "" if it is about none."""
    return str(getattr(error, "option_name", None) or "")


def _find_unknown_option(problem: UsageProblem) -> ArgumentToken | None:
    name, tokens = _get_option_name(problem.error), _iter_tokens(problem.command, problem.args)
    return next((token for token in tokens if token.name == name and token.param is None), None)


def _move_root_option(problem: UsageProblem, token: ArgumentToken, option: Any) -> list[str]:
    """Move an option of `convo`, with its value, before the name of the command."""
    args = problem.args
    end = token.position + 1
    takes_next = not option.is_flag and "=" not in args[token.position]
    values = args[end : end + takes_next]
    rest = [*args[: token.position], *args[end + len(values) :]]
    if takes_next and not values:
        values = _list_example_values(option)
    return [args[token.position], *values, *problem.replace_args(rest)]


def _move_option_to_subcommand(root: Any, problem: UsageProblem, token: ArgumentToken) -> list[str] | None:
    """Move an option of a group behind the name of the command that has it: the one named, else `chat` or `list`."""
    group, args = problem.command, problem.args
    names = group.list_commands(None)
    group_args, rest = args[: token.position], args[token.position :]
    name = next((arg for arg in rest if arg in names), None)
    if name is not None:
        rest.remove(name)
    else:
        name = next((name for name in ("chat", "list") if name in names), None)
    subcommand = group.get_command(None, name) if name else None
    if subcommand is None or (not isinstance(subcommand, TyperGroup) and not _find_option(token.name, subcommand)):
        return None
    return problem.replace_args([*group_args, str(name), *rest])


def _find_similar_option(name: str, command: Any) -> str:
    """Return the option of the command that is most similar: `--reasoning-effort` for `--effort`; "" without one.

    Typer compares the names with their dashes, and finds `--schema` for `--nosuch`.
    """
    names = [name for param in command.params if param.param_type_name == "option" for name in _get_option_names(param)]
    word = name.lstrip("-")
    if f"-{name}" in names:
        return f"-{name}"
    if len(word) < 2 or not name.startswith("-"):
        return ""
    long_names = [option[2:] for option in names if option.startswith("--")]
    longer = next((option for option in long_names if word in option.split("-")), None)
    similar = longer or _find_similar_word(word, long_names)
    return f"--{similar}" if similar else ""


def _is_abbreviation(word: str, full: str) -> bool:
    """Return whether `word` has the first character and other characters of `full`, in order: md, markdown."""
    chars = iter(full)
    return len(word) > 1 and word[:1] == full[:1] and all(char in chars for char in word)


def _add_parameter(problem: UsageProblem, param: Any) -> list[str] | None:
    """Add a missing argument or option, with an example of its value."""
    args = problem.args
    if isinstance(param, TyperArgument):
        metavar = _get_metavar(param, problem.error)
        listing = COMMAND_BY_MISSING_ARGUMENT.get(metavar)
        if listing:
            return listing.split()
        is_deletion = problem.argv[problem.start - 1] in COMMANDS_THAT_DELETE
        examples = () if is_deletion else VALUES_BY_ARGUMENT.get(metavar, ())
        return problem.replace_args([*args, *(examples or [_get_placeholder(metavar)])])
    choices = _get_choices(param)
    given = next((index for index in _list_positional_indexes(problem.command, args) if args[index] in choices), None)
    if given is not None:
        return _replace_arg(problem, given, param.opts[-1], args[given])
    return problem.replace_args([*args, param.opts[-1], *_list_example_values(param)])


def _get_placeholder(metavar: str) -> str:
    """Return the name of a value without its optional parts: CALL for `CALL[=WHY]...`."""
    return re.sub(r"\[[^]]*\]|\.\.\.", "", metavar)


def _get_metavar(argument: Any, error: typer.TyperException) -> str:
    """Return the name of an argument in the help, without the braces or brackets around it."""
    metavar = str(argument.make_metavar(getattr(error, "ctx", None)))
    return re.sub(r"^\[(\w+)\]", r"\1", metavar).removeprefix("{").removesuffix("}")


def _replace_value(problem: UsageProblem, param: Any) -> list[str] | None:
    """Replace an invalid value by the most similar choice, or by an example."""
    index = _find_value_index(problem, param)
    if index is None:
        return None
    arg, value = problem.args[index], _get_value(problem, param)
    values = _list_example_values(param, value)
    if isinstance(param, TyperArgument):
        return _replace_arg(problem, index, *values) if _get_choices(param) or value == "" else None
    if _find_option(value, problem.command) and arg == value:
        return _replace_arg(problem, index, *values, value)
    return _replace_arg(problem, index, arg[: len(arg) - len(value)] + values[0], *values[1:])


def _find_value_index(problem: UsageProblem, param: Any) -> int | None:
    """Return the index of the argument that has the invalid value."""
    command, args = problem.command, problem.args
    if not isinstance(param, TyperArgument):
        token = _find_token(param, command, args)
        return token.values[-1] if token and token.values else None
    choices = _get_choices(param)
    is_valid = (lambda arg: arg in choices) if choices else bool
    return next((index for index in _list_positional_indexes(command, args) if not is_valid(args[index])), None)


def _get_value(problem: UsageProblem, param: Any) -> str:
    """Return the invalid value of a parameter, "" if it is not found."""
    index = _find_value_index(problem, param)
    if index is None:
        return ""
    arg, token = problem.args[index], _find_token(param, problem.command, problem.args)
    if token is None or token.position != index:
        return arg
    return arg.partition("=")[2] if arg.startswith("--") else arg.partition(token.name[1:])[2]


def _get_choices(param: Any) -> list[str]:
    return [str(choice) for choice in getattr(param.type, "choices", None) or ()]


def _list_example_values(param: Any, value: str = "") -> list[str]:
    """Return a valid value: the choice that is most similar to `value`, an example, the default, or its metavar."""
    choices = _get_choices(param)
    if choices:
        return [_find_similar_word(value.lower(), choices) or choices[0]]
    example = VALUE_BY_OPTION.get(param.opts[-1])
    default = str(param.default) if isinstance(param.default, int | float) and param.default is not True else None
    name = example or default or _get_placeholder(param.metavar or str(param.name).upper())
    return name.split()[: max(param.nargs, 1)]


def _find_similar_word(word: str, candidates: Sequence[str]) -> str | None:
    """Return the candidate that is most similar to `word`, or the first one that it abbreviates."""
    closest = find_closest_word(word, candidates)
    return closest or next((candidate for candidate in candidates if _is_abbreviation(word, candidate)), None)


# -- text ------------------------------------------------------------------------------------------


def _describe(problem: UsageProblem) -> str:
    """Describe the first error in one line."""
    error, command = problem.error, problem.command
    param = getattr(error, "param", None)
    name = _get_option_name(error)
    option = _find_option(name, command)
    match error:
        case MissingCommand():
            return "missing command"
        case UnknownCommand():
            place = f" of {error.ctx.command_path}" if error.ctx and error.ctx.parent else ""
            return f"no command {_show_value(error.name)!r}{place}"
        case UnexpectedArguments():
            path = error.ctx.command_path if error.ctx else ""
            may_be_key = path.endswith(" config key set")  # which asks for the key
            shown = [ELLIPSIS if may_be_key else _show_value(arg) for arg in error.extra[:MAX_SHOWN_ARGUMENTS]]
            shown += [ELLIPSIS] if len(error.extra) > MAX_SHOWN_ARGUMENTS else []
            return f"unexpected argument{'s' if len(error.extra) > 1 else ''}: {' '.join(shown)}"
        case _ if hasattr(error, "possibilities"):
            return _describe_unknown_option(problem)
        case _ if hasattr(error, "param_type"):
            return _describe_missing_parameter(param, error)
        case _ if param is not None:
            return _describe_invalid_value(problem, param)
        case _ if option is not None and option.is_flag:
            return f"{name} takes no value"
        case _ if option is not None:
            return f"{name} needs {'a value' if option.nargs == 1 else f'{option.nargs} values'}"
    line = " ".join(error.format_message().split())
    return line[:1].lower() + line[1:].rstrip(".")


def _describe_unknown_option(problem: UsageProblem) -> str:
    """Describe an unknown option; the parser takes a negative number for one, unless it follows `--`."""
    name, token = _get_option_name(problem.error), _find_unknown_option(problem)
    typed = problem.args[token.position] if token else ""
    if NEGATIVE_NUMBER.fullmatch(typed):
        return f"{typed} is parsed as an option"
    return "there is no '=' after a short option" if name == "-=" else f"no option {_show_value(name)!r}"


def _describe_missing_parameter(param: Any, error: typer.TyperException) -> str:
    if isinstance(param, TyperArgument):
        return f"missing argument {_get_metavar(param, error)!r}"
    choices = _get_choices(param)
    return f"missing option {param.opts[-1]!r}" + (f"; choose from {', '.join(choices)}" if choices else "")


def _describe_invalid_value(problem: UsageProblem, param: Any) -> str:
    """Describe the valid values of a parameter, and repeat the invalid one."""
    value = _get_value(problem, param)
    name = _get_metavar(param, problem.error) if isinstance(param, TyperArgument) else param.opts[-1]
    if value == "":
        return f"{name} must not be empty"
    is_number = _is_number(value)
    accepted = _describe_values(param.type, is_number=is_number)
    return f"{name} {accepted}, not {value if is_number else repr(_show_value(value, MAX_SHOWN_VALUE_CHARS))}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _describe_values(value_type: Any, *, is_number: bool) -> str:
    """Describe the valid values of a type, after the name of an option.

    is_number:  the value is a number, but out of the range
    """
    choices = getattr(value_type, "choices", None)
    if choices:
        return f"accepts {', '.join(map(str, choices))}"
    minimum, maximum = getattr(value_type, "min", None), getattr(value_type, "max", None)
    if not is_number or (minimum is None and maximum is None):
        return "must be a number" if value_type.name.startswith("float") else "must be a whole number"
    return f"must be at least {minimum}" if maximum is None else f"must be between {minimum} and {maximum}"


def _show_value(text: str, limit: int = MAX_HINT_CHARS) -> str:
    """Return the first characters of an argument, for a message; `...` for a secret."""
    shown = _redact_argument(text[: limit + MAX_SECRET_CHARS])
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


def format_command_line(argv: Sequence[str]) -> str:
    """Quote a command line for a shell, to be repeated; "" if it is too long.

    The argument after the name of a secret, as in `config set providers.NAME.api_key`, is shown as `...`.

    An argument with a secret or a control character is shown as `...`, and so are the longest ones of a long line.
    """
    if 2 * len(argv) > MAX_LINE_CHARS:
        return ""
    words = [
        PromptText(ELLIPSIS) if previous and is_secret_name(previous) else _hide_argument(arg)
        for previous, arg in zip(("", *argv), argv, strict=False)
    ]
    shown = list(map(_quote_argument, words))
    while len(" ".join(shown)) > MAX_LINE_CHARS:
        longest = max(range(len(words)), key=lambda index: len(words[index]))
        if len(words[longest]) < MIN_SHORTENED_CHARS:
            return ""
        words[longest] = PromptText(ELLIPSIS)
        shown = list(map(_quote_argument, words))
    return " ".join(("convo", *shown))


def _hide_argument(arg: str) -> str:
    """Replace the secrets of an argument, or all of it; the name of an option stays."""
    shown = _redact_argument(arg) if len(arg) <= MAX_HINT_CHARS and arg.isprintable() else ELLIPSIS
    if shown != ELLIPSIS:
        return shown
    named = OPTION_WITH_VALUE.match(arg)
    return PromptText(f"{named[0]}{ELLIPSIS}" if named else ELLIPSIS)


def _redact_argument(arg: str) -> str:
    """Replace the secrets of a URL by stars, and every other argument that has one by `...`."""
    redacted = redact_secrets(arg)
    if redacted == arg:
        return ELLIPSIS if is_secret(arg) else arg
    return redacted if "://" in arg and not is_secret(redacted) else ELLIPSIS


def _quote_argument(arg: str) -> str:
    """Quote an argument for a shell; a message has double quotes if it has no character that is special in them."""
    if isinstance(arg, PromptText) and not arg.startswith("-") and not set(arg) & set('"\\$`!'):
        return f'"{arg}"'
    return quote(arg)


def fix_command_line(argv: Sequence[str], fix: ArgumentFix) -> str:
    """Return the command line of the user with one argument changed or some added; "" if that is not possible."""
    if not fix.argument:
        end = argv.index("--") if "--" in argv else len(argv)
        return format_command_line([*argv[:end], *fix.replacement, *argv[end:]])
    matches = [index for index, arg in enumerate(argv) if _find_argument(arg, fix.argument) is not None]
    if not matches:
        return ""
    values = [index for index in matches if index and argv[index - 1].startswith("-")]
    index = values[-1] if values else matches[0]
    start, end = _find_argument(argv[index], fix.argument) or (0, 0)
    arg, replacement = argv[index], fix.replacement
    if start or end < len(arg):
        replacement = (arg[:start] + " ".join(replacement) + arg[end:],)
    has_own_value = arg == fix.argument and arg.startswith("--") and len(replacement) > 1
    return format_command_line([*argv[:index], *replacement, *argv[index + (2 if has_own_value else 1) :]])


def _find_argument(arg: str, text: str) -> tuple[int, int] | None:
    """Return the part of an argument to replace: all of it, the value of --name=VALUE, or the handle before @N."""
    name, has_value, _ = arg.partition("=")
    for start in (0, len(name) + 1) if name.startswith("--") and has_value else (0,):
        if re.fullmatch(re.escape(text) + r"(@-?\d+)?", arg[start:]):
            return start, start + len(text)
    return (0, len(arg)) if has_value and name == text else None
