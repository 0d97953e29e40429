"""Output of commands: the answer on stdout, notices and errors on stderr, exit codes.

stdout may be a pipe: it carries the answer or the JSON and nothing else. Errors become text, JSON and an exit
code here and nowhere else. The text of an unknown exception is never printed, because it may quote a key:
only its type and the last line of our code it passed through. Control characters and passwords in URLs are escaped
or removed.
"""

import errno
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any, NamedTuple

import typer
from typer import Abort, TyperException

import convo
from convo.cli.progress import hide_progress
from convo.config.values import redact_passwords
from convo.errors import ConvoError
from convo.history.items import Json
from convo.terminal.terminal import detect_display, escape_control_chars, wrap_sentence


def print_line(text: str) -> None:
    """Print the answer, or a line of it, without escaping."""
    with hide_progress():
        sys.stdout.write(text + "\n")


def print_json(value: Json) -> None:
    """Print the answer for a program: one line of JSON."""
    print_line(json.dumps(value))


def print_event(event: Json) -> None:
    """Print one event for a program as a line of JSON, without buffering."""
    print_json(event)
    sys.stdout.flush()


def print_notice(text: str) -> None:
    """Print a message that is not the answer to stderr, wrapped to a terminal; passwords in URLs are removed."""
    display = detect_display(sys.stderr, os.environ)
    wrapped = wrap_sentence(escape_control_chars(redact_passwords(text)), display.width)
    with hide_progress():
        sys.stderr.write(display.link_addresses(wrapped) + "\n")


PACKAGE_DIR = Path(convo.__file__).parent


class CommandFailure(NamedTuple):
    """One error.

    code:     for programs, stable
    message:  one sentence for users, without a final full stop; empty if nothing is printed
    hint:     the next thing to try, or empty
    exit:     the exit code of the process
    """

    code: str
    message: str
    hint: str = ""
    exit: int = 1


INTERRUPTED = CommandFailure("interrupted", "", exit=130)
BROKEN_PIPE = CommandFailure("cut_off", "", exit=141)
"""The reader closed the pipe, as in `convo inspect @last | head`; shells report 128 + SIGPIPE for it."""

OUTPUT_LOST_CODES = frozenset({"cut_off", "output_failed"})
"""Codes of failures after which stdout cannot be written."""

WRITE_ERRNOS = frozenset({errno.ENOSPC, errno.EFBIG, errno.EIO})


def to_failure(error: BaseException) -> CommandFailure:
    """Convert any exception to a failure."""
    error = _unwrap_group(error)
    match error:
        case ConvoError():
            return CommandFailure(error.code, error.message, error.shell_hint or error.hint, error.exit)
        case TyperException():
            return _to_usage_failure(error)
        case KeyboardInterrupt() | Abort():
            return INTERRUPTED
        case BrokenPipeError():
            return BROKEN_PIPE
        case OSError() if error.errno in WRITE_ERRNOS:
            return CommandFailure("output_failed", f"cannot write: {error.strerror}", "free some space, then repeat")
        case _:
            return _to_internal_failure(error)


def _unwrap_group(error: BaseException) -> BaseException:
    """Return the one error in the group of a task group, or `error` itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _to_usage_failure(error: TyperException) -> CommandFailure:
    """Convert an error of the command line; the hint is the nearest valid option, or the form of the command.

    Typer exports only the base of its errors; these attributes are those of a usage error (`ctx`), of an error about an
    option (`option_name`), of an unknown option (`possibilities`), of a parameter's value (`param`) and of a missing
    parameter (`param_type`).
    """
    ctx: typer.Context | None = getattr(error, "ctx", None)
    option: str = getattr(error, "option_name", None) or ""
    command = ctx.command_path if ctx else "convo"
    if hasattr(error, "possibilities"):
        return _to_unknown_option_failure(error, option, ctx)
    message = _format_typer_message(error.format_message())
    if error.exit_code != 2:
        return CommandFailure("failed", message, exit=error.exit_code)
    param = getattr(error, "param", None) or (_find_option(option, ctx) if ctx else None)
    extra = re.fullmatch(r"got unexpected extra argument\(s\) \((.*)\)", message)
    value, is_invalid, reason = message.rpartition(" is not ")  # the value may contain these words too
    if ctx is None or message == MISSING_COMMAND:
        hint = f"{command} --help"
    elif extra:
        message = f"unexpected argument{'s' if ' ' in extra[1] else ''}: {extra[1]}"
        hint = format_command_usage(ctx, extra[1])
    elif param is None or hasattr(error, "param_type"):  # a missing argument, or a missing option
        hint = format_command_usage(ctx)
    elif not option and is_invalid and param.param_type_name == "option":
        value = value.partition(": ")[2]
        accepted = _describe_values(param.type, is_number=reason.startswith("in the range"))
        message = f"{param.opts[-1]} {accepted}, not {value}"
        hint = format_command_usage(ctx, option=param, value=value.strip("'"))
    else:
        hint = format_command_usage(ctx, option=param)
    return CommandFailure("usage", message, hint, 2)


MISSING_COMMAND = "missing command"


def _to_unknown_option_failure(error: TyperException, option: str, ctx: typer.Context | None) -> CommandFailure:
    """Convert an unknown option; the parser takes a negative number for one, unless it follows `--`."""
    command = ctx.command_path if ctx else "convo"
    args: Sequence[str] = getattr(error, "args_of_command", ())
    index = next((index for index, arg in enumerate(args) if NEGATIVE_NUMBER.fullmatch(arg)), None)
    if index is not None and args[index].startswith(option):
        valid_command = " ".join((command, *map(quote, (*args[:index], "--", *args[index:]))))
        return CommandFailure("usage", f"{args[index]} is parsed as an option", valid_command, 2)
    if option == "-=":
        return CommandFailure("usage", "there is no '=' after a short option", f"{command} --help", 2)
    names = {name.lstrip("-"): name for name in getattr(error, "possibilities", None) or ()}
    closest = get_close_matches(option.lstrip("-"), names, n=1)
    matches = _find_longer_options(option, ctx) or [names[name] for name in closest]
    hint = _suggest_option_position(option, ctx) or _find_unknown_option_hint(option, ctx)
    hint = hint or (f"{command} {matches[0]}" if matches else f"{command} --help")
    return CommandFailure("usage", f"no option {option!r}", hint, 2)


NEGATIVE_NUMBER = re.compile(r"-\d*\.?\d+")

HINT_BY_UNKNOWN_OPTION = {
    "--curl": "convo next HANDLE --curl",
    "--offline": "convo chat -m local",
    "--resume": "convo chat -c",
}
"""Hints for an unknown option: the command that has it, or an option with the same function."""

OPTION_BY_MISTAKEN_OPTION = {("approvals", "--session"): "--run"}
"""The option with the same function, by the command and the unknown option."""


def _find_unknown_option_hint(name: str, ctx: typer.Context | None) -> str | None:
    """Return the hint for an option that a user may expect, with the arguments of the command."""
    if ctx is not None:
        command = ctx.command_path.split()
        meant = OPTION_BY_MISTAKEN_OPTION.get((command[1] if len(command) > 1 else "", name))
        option = _find_option(meant, ctx) if meant else None
        if option is not None:
            return format_command_usage(ctx, option=option)
    return HINT_BY_UNKNOWN_OPTION.get(name)


def _find_longer_options(name: str, ctx: typer.Context | None) -> list[str]:
    """Return the options of the command that contain `name` as a word: `--reasoning-effort` for `--effort`."""
    options = [option for parameter in ctx.command.params for option in parameter.opts] if ctx else []
    return [option for option in options if option.startswith("--") and name.strip("-") in option.strip("-").split("-")]


def _find_option(name: str, ctx: typer.Context) -> Any:
    """Return the option of the command with this name, or None."""
    return next((param for param in ctx.command.params if name and name in param.opts), None)


MAX_SHOWN_VALUE_CHARS = 80
"""Characters of an argument that a hint repeats; a longer one is replaced by its name."""


def format_command_usage(ctx: typer.Context, extra: str = "", *, option: Any = None, value: str = "") -> str:
    """Format the command with its arguments and required options, or with `option` and a valid value of it.

    extra:  an unexpected argument; a path is one of a database, where the command has the option --store
    value:  the invalid value of the option; the hint has the most similar choice
    """
    words = [ctx.command_path]
    for param in ctx.command.params:
        if param.param_type_name == "argument" and (param.required or option is None):
            words.append(_format_argument(param, ctx))
        elif param.param_type_name == "option" and param.required and param is not option:
            words += _format_option(param, "")
    if option is not None:
        words += _format_option(option, value)
    elif "/" in extra and _find_option("--store", ctx):
        words += ["--store", quote(f"sqlite:{extra}")]
    return " ".join(words)


def _format_argument(argument: Any, ctx: typer.Context) -> str:
    """Return the value of an argument if it was given and is short, else its name."""
    value = ctx.params.get(argument.name)
    if isinstance(value, str) and value and len(value) <= MAX_SHOWN_VALUE_CHARS:
        return quote(value)
    return str(argument.make_metavar(ctx)).removeprefix("{").removesuffix("}")


VALUE_BY_OPTION = {
    "--explain": "all",
    "--keep-last": "1",
    "--max-output-tokens": "1000",
    "--max-turns": "10",
    "--older-than": "30d",
    "--port": "8788",
    "--session-limit": "20",
    "--temperature": "0.7",
    "--top-p": "0.9",
}
"""A valid value of options whose name for it, such as N, says too little."""


def _format_option(option: Any, value: str) -> list[str]:
    """Return the option and a valid value of it: an example, the most similar choice, its default, or its name."""
    name = option.opts[-1]
    if option.is_flag:
        return [name]
    choices = list(getattr(option.type, "choices", None) or ())
    if choices:
        return [name, str(next(iter(get_close_matches(value, choices, n=1)), choices[0]))]
    default = str(option.default) if isinstance(option.default, int | float) else None
    return [name, VALUE_BY_OPTION.get(name) or default or option.metavar or str(option.name).upper()]


def _describe_values(value_type: Any, *, is_number: bool) -> str:
    """Describe the valid values of an option, after its name.

    is_number:  the value is a number, but out of the range
    """
    choices = getattr(value_type, "choices", None)
    if choices:
        return f"accepts {', '.join(map(str, choices))}"
    if not is_number:
        return "must be a number" if value_type.name.startswith("float") else "must be a whole number"
    minimum, maximum = getattr(value_type, "min", None), getattr(value_type, "max", None)
    return f"must be at least {minimum}" if maximum is None else f"must be between {minimum} and {maximum}"


def _suggest_option_position(name: str, ctx: typer.Context | None) -> str | None:
    """Return the command with a root option where it is valid: `convo --profile NAME chat`."""
    if ctx is None:
        return None
    first, *rest = ctx.command_path.split()
    option = next((option for option in ctx.find_root().command.params if name in option.opts), None)
    if option is None or not rest:
        return None
    return " ".join((first, name, *filter(None, [option.metavar]), *rest))


def _format_typer_message(message: str) -> str:
    """Format a message of Typer in our style: one line, first letter small, no full stop."""
    line = " ".join(message.replace(". Choose from:", "; choose from").split())
    line = re.sub(r"^Option '(\S+)' requires an argument", r"\1 needs a value", line)
    line = re.sub(r"^Option '(\S+)' requires (\d+) arguments", r"\1 needs \2 values", line)
    line = re.sub(r"^Option '(\S+)' does not take a value", r"\1 takes no value", line)
    return line[:1].lower() + line[1:].rstrip(".")


def _to_internal_failure(error: BaseException) -> CommandFailure:
    """Convert a bug to its type and its line; the operating system's message is safe to print."""
    detail = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    message = f"internal error: {type(error).__name__}{detail} in {_find_own_line(error)}"
    return CommandFailure("internal_error", message, "set CONVO_DEBUG=1 to see the traceback")


def _find_own_line(error: BaseException) -> str:
    """Return the last line of our code in the traceback, as `convo/file.py:line`."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own_frames = [(path, line) for path, line in frames if path.is_relative_to(PACKAGE_DIR)]
    path, line = own_frames[-1] if own_frames else (Path("convo"), 0)
    return f"{path.relative_to(PACKAGE_DIR.parent).as_posix() if own_frames else path}:{line}"


def print_failure(failure: CommandFailure, *, as_json: bool) -> int:
    """Print `failure` once, on stdout as JSON or on stderr as text, and return the exit code."""
    message, hint = redact_passwords(failure.message), redact_passwords(failure.hint)
    if as_json:
        fields = {"code": failure.code, "message": message or failure.code, "hint": hint}
        print_json({"error": fields})
    elif message:
        from convo.terminal.statuses import format_failure

        sys.stderr.write(format_failure(message, hint, detect_display(sys.stderr, os.environ)) + "\n")
    return failure.exit


def print_debug_traceback(error: BaseException) -> None:
    """Print the traceback of `error` if CONVO_DEBUG is set."""
    if os.environ.get("CONVO_DEBUG"):
        sys.stderr.writelines(escape_control_chars(redact_passwords(line)) for line in _format_traceback(error))


def _format_traceback(error: BaseException) -> Iterator[str]:
    """Yield the traceback of `error` and its causes; the text of exceptions of other packages is omitted."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause:
        yield from _format_traceback(cause)
        yield "\nwhich led to:\n\n"
    frames = traceback.extract_tb(error.__traceback__)
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_list(frames)
    is_own = isinstance(error, ConvoError) or (frames and Path(frames[-1].filename).is_relative_to(PACKAGE_DIR))
    yield "".join(traceback.format_exception_only(error)) if is_own else f"{type(error).__qualname__}\n"


EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        0: "done",
        1: "failed or incomplete",
        2: "usage or settings",
        3: "paused for approval",
        4: "lint findings",
        5: "not found",
        130: "interrupted",
    }
)

PAUSED_EXIT_CODE = 3

EXIT_CODES_HELP = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
