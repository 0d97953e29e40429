"""What linting said of one history, for people and for programs.

Beside the findings it says what no rule could judge: a history that is only partly known is not
sound because nothing was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from convo.inspection.linting.finding import Finding, Severity
from convo.inspection.linting.rules import lint, unjudged
from convo.inspection.linting.view import View
from convo.items import Json, kind


@dataclass(frozen=True)
class Report:
    """The findings of one history.

    handle:  what was asked about
    file:    its path, where it is one
    places:  the JSON path of each item
    keys:    the key of each item's place in the tree; none for a file
    lines:   the line in which each item of a file begins, as far as known
    open:    rules that could not judge everything, by code, and why
    """

    handle: str
    view: View
    findings: tuple[Finding, ...]
    open: tuple[tuple[str, str], ...] = ()
    file: str | None = None
    places: Sequence[str] = ()
    keys: Sequence[str] = ()
    lines: Sequence[int] = ()

    @property
    def errors(self) -> int:
        return sum(one.severity is Severity.ERROR for one in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors

    def path(self, finding: Finding) -> str:
        """Where a finding is, as JSON path; "$" for the whole conversation."""
        place = "$" if finding.fault.at is None else self.places[finding.fault.at]
        return f"{place}{finding.fault.field}"

    def line(self, finding: Finding) -> int | None:
        at = finding.fault.at
        return self.lines[at] if at is not None and at < len(self.lines) else None

    def as_json(self) -> dict[str, Json]:
        """The object of `convo lint --json`."""
        return {
            "handle": self.handle,
            "strategy": str(self.view.strategy),
            "endpoint": str(self.view.scope) if self.view.scope else None,
            "items": len(self.view.items),
            "errors": self.errors,
            "warnings": self.warnings,
            "findings": [self._finding(one) for one in self.findings],
            "unjudged": [{"code": code, "message": why} for code, why in self.open],
        }

    def _finding(self, one: Finding) -> dict[str, Json]:
        at = one.fault.at
        item = None if at is None else self.view.items[at]
        return {
            "code": one.code,
            "severity": str(one.severity),
            "message": one.fault.message,
            "path": self.path(one),
            "index": at,
            "line": self.line(one),
            "key": self.keys[at] if at is not None and at < len(self.keys) else None,
            "type": kind(item) if item else None,
            "id": item.get("id") if item else None,
            "response_id": one.fault.link,
            "related": [self.places[other] for other in one.fault.also],
        }


def report(
    handle: str,
    view: View,
    *,
    file: str | None = None,
    places: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    lines: Sequence[int] = (),
) -> Report:
    """Ask every rule about `view`; see `Report` for the rest."""
    placed = [f"$[{at}]" for at in range(len(view.items))] if places is None else places
    return Report(handle, view, lint(view), unjudged(view), file, placed, keys, lines)
