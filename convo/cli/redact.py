"""`--redact` and `--redact-pattern`: remove secrets from a document, and report what was removed.

A user's pattern gets 3 s for each string, because a bad one never ends; where there is no SIGALRM, or outside the
main thread, it is not limited. The report has kind, place and count and never the text.
"""

import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from convo.config.settings import Settings
from convo.errors import InvalidUsage
from convo.inspect.redaction import RedactionResult, count_replacements, redact_document
from convo.inspect.serialize import ConversationDocument


def redact_if_requested(
    document: ConversationDocument, is_requested: bool, patterns: Sequence[str], settings: Settings
) -> RedactionResult | None:
    """Return `document` without secrets; None if that was not requested.

    is_requested:  `--redact`; a pattern alone requests it, too
    patterns:      regular expressions of this command; those of the settings come before them

    Raises InvalidUsage for an invalid or too slow regular expression, and InputFault for a document that cannot be
    searched.
    """
    if not (is_requested or patterns):
        return None
    return redact_document(
        document, [TimeLimitedPattern(_compile_pattern(pattern)) for pattern in (*settings.redact, *patterns)]
    )


PATTERN_TIMEOUT_S = 3.0
"""Seconds of a user's pattern for one string; a good one needs a second for a hundred megabytes."""


@dataclass(frozen=True, slots=True)
class TimeLimitedPattern:
    """A pattern that is stopped if it backtracks too long on a string that almost matches, as `(a+)+$` does."""

    pattern: re.Pattern[str]

    @property
    def groupindex(self) -> Mapping[str, int]:
        return self.pattern.groupindex

    def sub(self, repl: Callable[[re.Match[str]], str], string: str, /) -> str:
        with _limit_time(self.pattern.pattern):
            return self.pattern.sub(repl, string)


@contextmanager
def _limit_time(pattern: str) -> Iterator[None]:
    """Stop the block after `PATTERN_TIMEOUT_S`, where a signal can do so. Raises InvalidUsage."""

    def raise_timeout(number: int, frame: FrameType | None) -> None:
        raise InvalidUsage(
            f"{pattern!r} took longer than {PATTERN_TIMEOUT_S:g} s on one string",
            hint="use a pattern without nested + or *",
        )

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, PATTERN_TIMEOUT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # re warns of "[[" in a pattern, which is valid.
            warnings.simplefilter("ignore", FutureWarning)
            compiled = re.compile(pattern)
    # OverflowError for a{99999999999}.
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidUsage(
            f"{pattern!r} is not a regular expression: {error}",
            hint="correct it; a backslash before a character makes it literal",
        ) from error
    if compiled.match(""):
        raise InvalidUsage(
            f"{pattern!r} matches the empty string, so it would match everywhere",
            hint="use a pattern that needs at least one character",
        )
    return compiled


def format_redactions(result: RedactionResult) -> Iterator[str]:
    """Yield lines with the kind, the number and the places of the replacements."""
    for kind, count in count_replacements(result.replacements).items():
        locations = ", ".join(replacement.location for replacement in result.replacements if replacement.kind == kind)
        yield f"redacted {count:,} {kind} ({locations})"
    if not result.replacements:
        yield "nothing to redact was found"
    if result.unchecked_locations:
        yield f"not searched, because encrypted or not text: {', '.join(result.unchecked_locations)}"
