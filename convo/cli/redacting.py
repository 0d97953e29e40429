"""What `--redact` and `--redact-pattern` mean, and how it is told what they replaced.

A pattern of a person's own may try forever to fit a string that almost fits, so it is bounded. What
was replaced is told, but not what it was.
"""

import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from convo.config import Settings
from convo.errors import Usage
from convo.inspection.document import Document
from convo.inspection.redacting import Redacted, redact, total
from convo.items import Json


def redacted(document: Document, asked: bool, patterns: Sequence[str], settings: Settings) -> Redacted | None:
    """`document` without secrets; None where nobody asked for that.

    asked:     `--redact`; a pattern alone asks for it, too
    patterns:  regular expressions of this command; those of the settings come before them
    raises:    Usage  one of them is no regular expression, or takes too long;  InputFault  it cannot be looked through
    """
    if not (asked or patterns):
        return None
    return redact(document, [Bounded(_compiled(one)) for one in (*settings.redact, *patterns)])


PATIENCE_S = 3.0
"""Seconds that a pattern of a person's own has for one string; a good one needs a second for a hundred megabytes."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A pattern that is given up where it tries every way to fit a string that almost fits, as `(a+)+$` does."""

    pattern: re.Pattern[str]

    @property
    def groupindex(self) -> Mapping[str, int]:
        return self.pattern.groupindex

    def sub(self, repl: Callable[[re.Match[str]], str], string: str, /) -> str:
        with _given_up(self.pattern.pattern):
            return self.pattern.sub(repl, string)


@contextmanager
def _given_up(pattern: str) -> Iterator[None]:
    """Let the block run for `PATIENCE_S`, where a signal can end it. raises: Usage"""

    def end(number: int, frame: FrameType | None) -> None:
        raise Usage(
            f"{pattern!r} was not done with one string in {PATIENCE_S:g} s",
            hint="a pattern without + or * inside of + or *",
        )

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as wrong:
        raise Usage(f"{pattern!r} is no regular expression: {wrong}", hint="quote it for the shell") from wrong
    if found.match(""):
        raise Usage(f"{pattern!r} fits nothing at all, so it would be found everywhere", hint="ask for one character")
    return found


def lines(found: Redacted) -> Iterator[str]:
    """What was replaced and where, for people."""
    for kind, count in total(found.replaced).items():
        places = ", ".join(one.where for one in found.replaced if one.kind == kind)
        yield f"redacted {count:,} {kind} ({places})"
    if not found.replaced:
        yield "nothing was found to redact"
    if found.unseen:
        yield f"not looked into, because it is sealed or no text: {', '.join(found.unseen)}"


def as_fields(found: Redacted | None) -> dict[str, Json]:
    """The same for programs; nothing where nobody asked."""
    if found is None:
        return {}
    counted = [{"kind": one.kind, "where": one.where, "count": one.times} for one in found.replaced]
    return {"redacted": counted, "not_looked_into": list(found.unseen)}
