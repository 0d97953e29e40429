"""What an examination found, on a screen: a line or two for each check, and what to do about it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from convo.ui.labelled import counted, labelled
from convo.ui.medium import Medium


class Level(StrEnum):
    """How bad it is: a fault keeps something from working, a warning may surprise somebody later."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


STYLES = {Level.WARNING: "bold", Level.FAULT: "bad"}
"""How the name of a check looks that is not ok."""


class Finding(NamedTuple):
    """What one check came to: one sentence, and one next step where there is any."""

    level: Level
    found: str
    next: str = ""


class Report(NamedTuple):
    """A check by its name, and what it came to."""

    name: str
    finding: Finding


def ok(found: str, next_step: str = "") -> Finding:
    return Finding(Level.OK, found, next_step)


def warning(found: str, next_step: str) -> Finding:
    return Finding(Level.WARNING, found, next_step)


def fault(found: str, next_step: str) -> Finding:
    return Finding(Level.FAULT, found, next_step)


def screen(reports: Sequence[Report], medium: Medium) -> str:
    """All of them, in their order; what is not ok says so in front."""
    rows = []
    for name, (level, found, next_step) in reports:
        rows.append((name, found if level is Level.OK else f"{level}: {found}"))
        rows += [("", f"try: {next_step}")] if next_step else []
    styles = {name: STYLES[finding.level] for name, finding in reports if finding.level in STYLES}
    return medium.drawn("\n".join(labelled(rows, medium, styles)))


def summary(reports: Sequence[Report]) -> str:
    """How many are how bad, in one line."""
    many = {level: sum(report.finding.level is level for report in reports) for level in Level}
    said = [counted(many[level], level) for level in (Level.FAULT, Level.WARNING) if many[level]]
    return " and ".join(said) or "nothing is wrong"
