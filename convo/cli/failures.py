"""What went wrong, as text for a person or JSON for a program, and as an exit code.

This is the one place where errors become words. A `ConvoError` explains itself; what Typer says
of a command line is put in the same two lines; an interruption needs no words. Anything else is
a mistake of ours: it is named by its kind and its place and not by its text, because the text of
a foreign error may quote a key.
"""

import errno
import json
import os
import sys
import traceback
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from typer import Abort
from typer._click import ClickException
from typer._click.exceptions import NoSuchOption, UsageError

import convo
from convo.config.secret import without_passwords
from convo.errors import ConvoError, Refused, StreamBroken, TryLater

PACKAGE = Path(convo.__file__).parent


class Failure(NamedTuple):
    """One thing that went wrong.

    code:     for programs, stable
    message:  one sentence for people, without a final stop; empty when there is nothing to say
    hint:     the next thing to try, or empty
    exit:     the exit code of the process
    """

    code: str
    message: str
    hint: str = ""
    exit: int = 1


INTERRUPTED = Failure("interrupted", "", exit=130)
CUT_OFF = Failure("cut_off", "", exit=141)
"""The reader went away, as in `convo inspect @last | head`: shells show 128 + SIGPIPE for it."""

OUTPUT_LOST = frozenset({"cut_off", "output_failed"})
"""Codes of failures after which nothing more can be written to stdout."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, errno.EIO})

AT_THE_SHELL = {
    Refused.hint: "convo next HANDLE shows what would be sent",
    StreamBroken.hint: "repeat the command",
    TryLater.hint: "wait a moment, then repeat the command",
}
"""What takes the place of a step that only a chat's prompt has."""


def explain(error: BaseException) -> Failure:
    """The failure that `error` stands for, whichever it is."""
    error = innermost(error)
    match error:
        case ConvoError():
            return Failure(error.code, error.message, AT_THE_SHELL.get(error.hint, error.hint), error.exit)
        case UsageError():
            return misused(error)
        case ClickException():
            return Failure("failed", tidy(error.format_message()), exit=error.exit_code)
        case KeyboardInterrupt() | Abort():
            return INTERRUPTED
        case BrokenPipeError():
            return CUT_OFF
        case OSError() if error.errno in NO_ROOM:
            return Failure("output_failed", f"cannot write: {error.strerror}", "free some space, then repeat")
        case _:
            return mistake(error)


def innermost(error: BaseException) -> BaseException:
    """The one error that a task group wrapped, or `error` itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def misused(error: UsageError) -> Failure:
    """A command line that cannot be read, with the nearest thing that could have been meant."""
    command = error.ctx.command_path if error.ctx else "convo"
    if isinstance(error, NoSuchOption):
        near = get_close_matches(error.option_name, error.possibilities or (), n=1)
        hint = ahead(error) or (f"{command} {near[0]}" if near else f"{command} --help")
        return Failure("usage", f"no option {error.option_name!r}", hint, 2)
    hint = LISTING.get(getattr(error, "option_name", ""), f"{command} --help")
    return Failure("usage", tidy(error.format_message()), hint, error.exit_code)


LISTING = {"--explain": "convo lint --explain all"}
"""By an option that was given no value: the command that lists its values."""


def ahead(error: NoSuchOption) -> str | None:
    """The command with the option before it, where that is the place of this one: `convo --profile NAME chat`."""
    if error.ctx is None:
        return None
    first, *rest = error.ctx.command_path.split()
    own = (option for option in error.ctx.find_root().command.params if error.option_name in option.opts)
    option = next(own, None)
    if option is None or not rest:
        return None
    return " ".join((first, error.option_name, *filter(None, [option.metavar]), *rest))


def tidy(message: str) -> str:
    """A sentence of Typer's as we write ours: one line that begins small, does not end in a stop and names no type."""
    line = " ".join(message.replace(". Choose from:", "; choose from").split())
    return (line[:1].lower() + line[1:].rstrip(".")).replace("valid int range", "whole number")


def mistake(error: BaseException) -> Failure:
    """A mistake of ours, by its kind and place; the system's own words are safe to repeat."""
    words = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    message = f"internal error: {type(error).__name__}{words} in {place(error)}"
    return Failure("internal_error", message, "CONVO_DEBUG=1 in front of the command shows the traceback")


def place(error: BaseException) -> str:
    """The last of our own lines that `error` passed through, as `convo/file.py:line`."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [(path, line) for path, line in frames if path.is_relative_to(PACKAGE)]
    path, line = ours[-1] if ours else (Path("convo"), 0)
    return f"{path.relative_to(PACKAGE.parent).as_posix() if ours else path}:{line}"


def tell(failure: Failure, *, as_json: bool) -> int:
    """Say `failure` once, on stdout as JSON or on stderr in words; returns the exit code."""
    message, hint = without_passwords(failure.message), without_passwords(failure.hint)
    if as_json:
        fields = {"code": failure.code, "message": message or failure.code, "hint": hint}
        sys.stdout.write(json.dumps({"error": fields}) + "\n")
    elif message:
        sys.stderr.write(printable(f"convo: {message}\n"))
        if hint:
            sys.stderr.write(printable(f"  try: {hint}\n"))
    return failure.exit


def printable(text: str) -> str:
    """`text` with what would let an endpoint's message move the cursor spelled out."""
    from convo.ui.answer import safe  # most runs end without an error

    return safe(text)


def show_traceback(error: BaseException) -> None:
    """Print where `error` came from, for whoever set CONVO_DEBUG."""
    if os.environ.get("CONVO_DEBUG"):
        sys.stderr.writelines(printable(without_passwords(line)) for line in traced(error))


def traced(error: BaseException) -> Iterator[str]:
    """The lines that `error` and what caused it passed through; the text of what others raised is left out."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause:
        yield from traced(cause)
        yield "\nwhich led to:\n\n"
    frames = traceback.extract_tb(error.__traceback__)
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_list(frames)
    ours = isinstance(error, ConvoError) or (frames and Path(frames[-1].filename).is_relative_to(PACKAGE))
    yield "".join(traceback.format_exception_only(error)) if ours else f"{type(error).__qualname__}\n"
