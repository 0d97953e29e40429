"""What `convo lint` and `convo repair` print for people.

A finding is a line: where it is, how bad, which rule, what. A file's line comes first where it is
known, in the form that editors follow.
"""

from collections.abc import Sequence

from convo.history import OWNERS
from convo.inspection.linting import Change, Mended, Report, Severity
from convo.ui.answer import safe
from convo.ui.labelled import counted
from convo.ui.medium import Medium, padded, width

STYLES = {Severity.ERROR: "bad", Severity.WARNING: "id"}


def found(report: Report, medium: Medium) -> str:
    """The screen of one report, without the last line break."""
    lines = [f"{medium.paint(safe(report.handle), 'bold')}: {_sum(report)}"]
    places = [_place(report, at) for at in range(len(report.findings))]
    wide = max(map(width, places), default=0)
    for one, place in zip(report.findings, places, strict=True):
        severity = medium.paint(f"{one.severity:<7}", STYLES[one.severity])
        lines.append(f"  {padded(place, wide)}  {severity}  {safe(f'{one.code}: {one.fault.message}')}")
    lines += [f"  {safe(f'{code}: {why}')}" for code, why in report.open]
    if report.findings:
        lines.append(f"  try: convo lint --explain {report.findings[0].code}")
    return medium.drawn("\n".join(lines))


def mended(name: str, made: Mended | None, places: Sequence[str], medium: Medium, *, kept: bool = True) -> str:
    """The screen of one repair, without the last line break; None: nothing had to be mended."""
    if made is None:
        return "nothing to mend, so nothing was made"
    owner = OWNERS[made.view.strategy].words
    head = f"{medium.paint(safe(name), 'bold')}: {counted(len(made.view.items))}, held by {owner}"
    lines = [head if kept else f"{head} (not made)"]
    wide = max((width(_at(one, places)) for one in made.changes), default=0)
    for one in made.changes:
        why = f"{one.why} [{one.code}]" if one.code else one.why
        lines.append(f"  {padded(_at(one, places), wide)}  {one.what:<12}  {safe(why)}")
    return medium.drawn("\n".join(lines))


def _sum(report: Report) -> str:
    counts = [counted(report.errors, "error"), counted(report.warnings, "warning")]
    told = ", ".join(words for words, number in zip(counts, (report.errors, report.warnings), strict=True) if number)
    return f"{told or 'nothing found'} in {counted(len(report.view.items))}"


def _place(report: Report, at: int) -> str:
    one = report.findings[at]
    line = report.line(one)
    path = one.fault.link if one.fault.at is None and one.fault.link else report.path(one)
    return safe(f"{report.handle}:{line} {path}" if line else path)


def _at(one: Change, places: Sequence[str]) -> str:
    return "" if one.at is None else safe(places[one.at])
