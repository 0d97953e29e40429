"""Output of commands: the answer on stdout, notices and errors on stderr, exit codes.

stdout may be a pipe: it carries the answer or the JSON and nothing else. Errors become text, JSON and an exit
code here and nowhere else. The text of an unknown exception is never printed, because it may quote a key:
only its type and the last line of our code it passed through. Control characters are escaped, and
secrets that a user typed in the wrong place are replaced by stars.
"""

import errno
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple

from typer import Abort, TyperException

import convo
from convo.cli.progress import hide_progress
from convo.errors import ConvoError
from convo.report import OMITTED, to_json
from convo.secrets import MAX_SECRET_CHARS, redact_secrets
from convo.terminal.terminal import detect_display, escape_control_chars, wrap_sentence


def print_line(text: str) -> None:
    """Print the answer, or a line of it, without escaping."""
    with hide_progress():
        sys.stdout.write(text + "\n")


class ErrorReport(NamedTuple):
    """An error.

    code:     stable code, for programs
    message:  error message
    hint:     the suggested next step, or empty
    """

    code: str
    message: str
    hint: str


class FailureReport(NamedTuple):
    """Printed on stdout in place of the result; the exit code depends on the error.

    handle:  the handle or file that could not be read, of several of convo lint or import
    name:    the conversation that could not be read, of several in a file of convo import
    """

    handle: Annotated[str | None, OMITTED]
    name: Annotated[str | None, OMITTED]
    error: ErrorReport


def print_json(report: object) -> None:
    """Print the answer for a program, a report or JSON, as one line of JSON."""
    print_line(json.dumps(to_json(report)))


def print_event(event: object) -> None:
    """Print one event for a program, a report or JSON, as a line of JSON without buffering."""
    print_json(event)
    sys.stdout.flush()


def print_notice(text: str) -> None:
    """Print a message that is not the answer to stderr, wrapped to a terminal; secrets are replaced by stars."""
    display = detect_display(sys.stderr, os.environ)
    wrapped = wrap_sentence(escape_control_chars(redact_secrets(text)), display.width)
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
    error = unwrap_group(error)
    match error:
        case ConvoError():
            return CommandFailure(error.code, error.message, error.hint, error.exit)
        case TyperException():
            return CommandFailure("failed", error.format_message(), exit=error.exit_code)
        case KeyboardInterrupt() | Abort():
            return INTERRUPTED
        case BrokenPipeError():
            return BROKEN_PIPE
        case OSError() if error.errno in WRITE_ERRNOS:
            return CommandFailure("output_failed", f"cannot write: {error.strerror}", "free some space, then repeat")
        case _:
            return _to_internal_failure(error)


def unwrap_group(error: BaseException) -> BaseException:
    """Return the one error in the group of a task group, or `error` itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


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


MAX_FAILURE_CHARS = 4000
"""The most characters of an error message or hint that are printed."""


def print_failure(failure: CommandFailure, *, as_json: bool, handle: str = "", name: str = "") -> int:
    """Print `failure` once, on stdout as JSON or on stderr as text, and return the exit code.

    handle, name:  the one of several inputs that failed; only JSON has it
    """
    message, hint = _redact_failure_text(failure.message), _redact_failure_text(failure.hint)
    if as_json:
        error = ErrorReport(failure.code, message or failure.code, hint)
        print_json(FailureReport(_redact_failure_text(handle), _redact_failure_text(name), error))
    elif message:
        from convo.terminal.statuses import format_failure

        sys.stderr.write(format_failure(message, hint, detect_display(sys.stderr, os.environ)) + "\n")
    return failure.exit


def _redact_failure_text(text: str) -> str:
    """Replace the secrets of a message or hint, and the middle of a long one: an argument may have megabytes."""
    if len(text) <= MAX_FAILURE_CHARS:
        return redact_secrets(text)
    kept = MAX_FAILURE_CHARS // 2
    # More than is printed, so that a secret at the cut is recognized.
    searched = kept + MAX_SECRET_CHARS
    return f"{redact_secrets(text[:searched])[:kept]} … {redact_secrets(text[-searched:])[-kept:]}"


def print_debug_traceback(error: BaseException) -> None:
    """Print the traceback of `error` if CONVO_DEBUG is set."""
    if os.environ.get("CONVO_DEBUG"):
        sys.stderr.writelines(escape_control_chars(redact_secrets(line)) for line in _format_traceback(error))


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
