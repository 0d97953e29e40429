"""Lengths of time as people write them: a whole number and a unit, as in "30d"."""

import re

from convo.config.checks import Unfit, kind, text

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
"""Seconds of a second, minute, hour, day and week."""

WRITTEN = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>[smhdw])", re.ASCII)

MOST_S = 100 * 366 * 86_400
"""A hundred years."""

NEVER = "never"


def duration(value: object) -> float:
    """Seconds from "30d". raises: Unfit"""
    found = WRITTEN.fullmatch(text(value))
    if found is None:
        raise Unfit("must be a whole number with s, m, h, d or w behind it, as in 30d")
    seconds = int(found["number"]) * UNITS[found["unit"]]
    if not 0 < seconds <= MOST_S:
        raise Unfit("must be more than nothing, and at most a hundred years")
    return float(seconds)


def durations(value: object) -> dict[str, float | None]:
    """A table of durations by name; None for one that is "never". raises: Unfit"""
    if not isinstance(value, dict):
        raise Unfit(f"must be a table, not {kind(value)}")
    return {name: _one(name, written) for name, written in value.items()}


def _one(name: str, written: object) -> float | None:
    if written == NEVER:
        return None
    try:
        return duration(written)
    except Unfit as unfit:
        raise Unfit(f"has a value for {name!r} that {unfit}, or {NEVER}") from None
