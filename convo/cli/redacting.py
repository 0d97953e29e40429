"""What `--redact` and `--redact-pattern` mean, and how it is told what they replaced."""

import re
from collections.abc import Iterator, Sequence

from convo.config import Settings
from convo.errors import Usage
from convo.inspection.document import Document
from convo.inspection.redacting import Redacted, redact, total
from convo.items import Json


def redacted(document: Document, asked: bool, patterns: Sequence[str], settings: Settings) -> Redacted | None:
    """`document` without secrets; None where nobody asked for that.

    asked:     `--redact`; a pattern alone asks for it, too
    patterns:  regular expressions of this command; those of the settings come before them
    raises:    Usage  one of them is no regular expression;  InputFault  it cannot be looked through
    """
    if not (asked or patterns):
        return None
    return redact(document, [*map(re.compile, settings.redact), *map(_compiled, patterns)])


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        found = re.compile(pattern)
    except re.error as wrong:
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
