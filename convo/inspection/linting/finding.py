"""What a rule has against a history, and what a mend did about it.

A rule only says what is wrong and where. Its code, how bad that is and what would mend it come from
the table of rules, so that no two say the same differently.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error will be refused, or answered with a part of the history missing; a warning may be."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    message:  one sentence without a final stop
    at:       the item, as how many stand before it; None where it is no item's
    field:    where in the item, as JSON path: ".arguments"
    link:     the response that it is about
    also:     other items that it is about
    mild:     a warning, although its rule's faults are errors
    """

    message: str
    at: int | None = None
    field: str = ""
    link: str | None = None
    also: tuple[int, ...] = ()
    mild: bool = False


def of_items(faults: Iterable[Fault]) -> list[tuple[int, Fault]]:
    """The faults that items have, with the items' places."""
    return [(fault.at, fault) for fault in faults if fault.at is not None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, and the code of the rule that found it."""

    code: str
    severity: Severity
    fault: Fault


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a repair did.

    code:  the rule that it satisfies
    what:  "dropped", "replaced" or "added" for items; "anchor", "owner" or "instructions" for the record
    at:    the item of the source that it is about, as how many stand before it; None for the record
    why:   one sentence without a final stop
    """

    code: str
    what: str
    why: str
    at: int | None = None
