"""Lint reports: JSON, SARIF 2.1.0, and the line of each item in a file.

A report also lists rules that could not be checked because too little is known: no finding does not mean valid.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Annotated, NamedTuple
from urllib.parse import quote as quote_url

from convo.history.items import Json, item_type
from convo.history.records import Strategy
from convo.lint.model import LintFinding, LintView, Severity
from convo.lint.repair import can_repair
from convo.lint.rules import LINT_RULES, lint_history, list_unchecked_rules
from convo.report import Count, Wire


class FindingReport(NamedTuple):
    """A finding.

    code:  stable code of the rule
    path:  JSON path; $ for the whole conversation
    """

    code: str
    severity: Severity
    message: str
    path: str
    item_index: Annotated[int | None, Wire("index")]
    line: int | None
    key: str | None
    type: str | None
    id: str | None
    response_id: str | None
    related: Sequence[str]


class UncheckedRule(NamedTuple):
    """A rule that could not be checked."""

    code: str
    message: str


class LintSummary(NamedTuple):
    """The findings of one history, as JSON.

    strategy:   the owner of the state
    unchecked:  rules that could not be checked
    """

    handle: str
    strategy: Strategy
    endpoint: str | None
    items: Count
    errors: Count
    warnings: Count
    findings: Sequence[FindingReport]
    unchecked: Annotated[Sequence[UncheckedRule], Wire("unjudged")]


@dataclass(frozen=True)
class LintReport:
    """The findings of one history.

    handle:           the handle or path that the user gave
    file:             the path, if it is a file
    item_paths:       the JSON path of each item
    node_keys:        the key of each item's node in the tree; empty for a file
    item_lines:       the first line of each item in a file, as far as known
    unchecked_rules:  code of each rule that could not check everything, and why
    is_run_state:     it is a paused run, which has to be resumed and cannot be repaired
    """

    handle: str
    view: LintView
    findings: tuple[LintFinding, ...]
    unchecked_rules: tuple[tuple[str, str], ...] = ()
    file: str | None = None
    item_paths: Sequence[str] = ()
    node_keys: Sequence[str] = ()
    item_lines: Sequence[int] = ()
    is_run_state: bool = False

    @property
    def error_count(self) -> int:
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def warning_count(self) -> int:
        return len(self.findings) - self.error_count

    @property
    def repair_command(self) -> str | None:
        """The command that writes a repaired copy; None if nothing was found, or if no fix applies."""
        to_file = self.file is not None or self.view.has_unread_items
        if not self.findings or self.is_run_state or not can_repair(self.view, to_file=to_file):
            return None
        return f"convo repair {quote(self.handle)} --as {'./repaired.json' if to_file else 'repaired'}"

    def finding_path(self, finding: LintFinding) -> str:
        """Return the JSON path of a finding; "$" for the whole conversation."""
        path = "$" if finding.issue.item_index is None else self.item_paths[finding.issue.item_index]
        return f"{path}{finding.issue.field}"

    def finding_line(self, finding: LintFinding) -> int | None:
        index = finding.issue.item_index
        return self.item_lines[index] if index is not None and index < len(self.item_lines) else None

    def summarize(self) -> LintSummary:
        """Return what `convo lint --json` prints."""
        return LintSummary(
            self.handle,
            self.view.strategy,
            str(self.view.scope) if self.view.scope else None,
            len(self.view.items),
            self.error_count,
            self.warning_count,
            [self._build_finding_report(finding) for finding in self.findings],
            [UncheckedRule(code, reason) for code, reason in self.unchecked_rules],
        )

    def _build_finding_report(self, finding: LintFinding) -> FindingReport:
        index = finding.issue.item_index
        item = None if index is None else self.view.items[index]
        return FindingReport(
            finding.code,
            finding.severity,
            finding.issue.message,
            self.finding_path(finding),
            index,
            self.finding_line(finding),
            self.node_keys[index] if index is not None and index < len(self.node_keys) else None,
            item_type(item) if item else None,
            item.get("id") if item else None,
            finding.issue.link_id,
            [self.item_paths[other] for other in finding.issue.related_indexes],
        )


def build_lint_report(
    handle: str,
    view: LintView,
    *,
    file: str | None = None,
    item_paths: Sequence[str] | None = None,
    node_keys: Sequence[str] = (),
    item_lines: Sequence[int] = (),
) -> LintReport:
    """Run every rule on `view`; see `LintReport` for the other parameters."""
    paths = [f"$[{index}]" for index in range(len(view.items))] if item_paths is None else item_paths
    return LintReport(handle, view, lint_history(view), list_unchecked_rules(view), file, paths, node_keys, item_lines)


SARIF_SCHEMA_URL = "https://json.schemastore.org/sarif-2.1.0.json"

SARIF_RULE_INDEX = {rule.code: index for index, rule in enumerate(LINT_RULES)}


def build_sarif(
    reports: Sequence[LintReport], pages: Mapping[str, str], version: str, *, errors: Sequence[str] = ()
) -> dict[str, Json]:
    """Build one SARIF run over all `reports`.

    pages:   each rule's page in Markdown, by code
    errors:  the errors of handles that could not be read
    """
    driver = {"name": "convo", "version": version, "rules": _sarif_rules(pages)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not errors,
                "toolExecutionNotifications": [
                    *({"level": "error", "message": {"text": error}} for error in errors),
                    *_sarif_notifications(reports),
                ],
            }
        ],
        "results": [_sarif_result(finding, report) for report in reports for finding in report.findings],
    }
    return {"$schema": SARIF_SCHEMA_URL, "version": "2.1.0", "runs": [run]}


def _sarif_rules(pages: Mapping[str, str]) -> list[dict[str, Json]]:
    return [
        {
            "id": rule.code,
            "shortDescription": {"text": rule.summary},
            "help": {"text": pages[rule.code], "markdown": pages[rule.code]},
            "defaultConfiguration": {"level": str(rule.severity)},
        }
        for rule in LINT_RULES
    ]


def _sarif_notifications(reports: Sequence[LintReport]) -> list[dict[str, Json]]:
    return [
        {
            "level": "note",
            "message": {"text": f"{report.handle}: {reason}"},
            "associatedRule": {"id": code, "index": SARIF_RULE_INDEX[code]},
        }
        for report in reports
        for code, reason in report.unchecked_rules
    ]


def _sarif_result(finding: LintFinding, report: LintReport) -> dict[str, Json]:
    location = {"fullyQualifiedName": f"{report.handle}{report.finding_path(finding).removeprefix('$')}"}
    return {
        "ruleId": finding.code,
        "ruleIndex": SARIF_RULE_INDEX[finding.code],
        "level": str(finding.severity),
        "message": {"text": finding.issue.message},
        "locations": [{**_physical_location(finding, report), "logicalLocations": [location]}],
    }


def _physical_location(finding: LintFinding, report: LintReport) -> dict[str, Json]:
    """Return the line in a file; {} for a history in a store."""
    if report.file is None:
        return {}
    line = report.finding_line(finding)
    region = {"region": {"startLine": line}} if line else {}
    uri = f"file://{quote_url(report.file)}" if report.file.startswith("/") else quote_url(report.file)
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **region}}


JSON_WHITESPACE = " \t\r\n"
JSON_DECODER = json.JSONDecoder()


def find_item_lines(text: str, field: str = "") -> tuple[int, ...]:
    """Return the line of each item of a list, counted from 1; only items that can be located.

    text:   JSON that was parsed before, or JSON Lines
    field:  the member that contains the list, if `text` is one object
    """
    lines, offset, line = [], 0, 1
    for start in _item_starts(text, field):
        line += text.count("\n", offset, start)
        lines.append(line)
        offset = start
    return tuple(lines)


def _item_starts(text: str, field: str) -> Iterator[int]:
    offset = _skip_whitespace(text, 0)
    if field:
        offset = _member_start(text, offset, field)
    is_list = text[offset : offset + 1] == "["
    offset = _skip_whitespace(text, offset + 1 if is_list else offset)
    while offset < len(text) and text[offset] != "]":
        yield offset
        offset = _skip_whitespace(text, _value_end(text, offset))
        if text[offset : offset + 1] == ",":
            offset = _skip_whitespace(text, offset + 1)


def _member_start(text: str, offset: int, field: str) -> int:
    """Return the index where the value of an object's member begins."""
    offset = _skip_whitespace(text, offset + 1)
    while offset < len(text) and text[offset] == '"':
        name, offset = _decode_value(text, offset)
        offset = _skip_whitespace(text, _skip_whitespace(text, offset) + 1)
        if name == field:
            return offset
        offset = _skip_whitespace(text, _value_end(text, offset))
        offset = _skip_whitespace(text, offset + 1)
    return len(text)


def _value_end(text: str, offset: int) -> int:
    return _decode_value(text, offset)[1]


def _decode_value(text: str, offset: int) -> tuple[Json, int]:
    return JSON_DECODER.raw_decode(text, offset)


def _skip_whitespace(text: str, offset: int) -> int:
    while offset < len(text) and text[offset] in JSON_WHITESPACE:
        offset += 1
    return offset
