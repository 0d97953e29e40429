"""Findings in the form that code hosts show beside the lines of a file: SARIF 2.1.0.

A finding names its line where the history is a file that has lines. What could not be judged is
told as a note of the run, not as a result.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from convo.inspection.linting.finding import Finding
from convo.inspection.linting.report import Report
from convo.inspection.linting.rules import RULES
from convo.items import Json

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

INDEX = {rule.code: at for at, rule in enumerate(RULES)}


def sarif(reports: Sequence[Report], pages: Mapping[str, str], version: str) -> dict[str, Json]:
    """One run over all `reports`. `pages`: each rule's page, in Markdown, by code"""
    driver = {"name": "convo", "version": version, "rules": _rules(pages)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _open(reports)}],
        "results": [_result(one, report) for report in reports for one in report.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rules(pages: Mapping[str, str]) -> list[dict[str, Json]]:
    return [
        {
            "id": rule.code,
            "shortDescription": {"text": rule.summary},
            "help": {"text": pages[rule.code], "markdown": pages[rule.code]},
            "defaultConfiguration": {"level": str(rule.severity)},
        }
        for rule in RULES
    ]


def _open(reports: Sequence[Report]) -> list[dict[str, Json]]:
    """What could not be judged."""
    return [
        {"level": "note", "message": {"text": f"{report.handle}: {why}"}, "associatedRule": _rule(code)}
        for report in reports
        for code, why in report.open
    ]


def _result(one: Finding, report: Report) -> dict[str, Json]:
    place = {"fullyQualifiedName": f"{report.handle}{report.path(one).removeprefix('$')}"}
    return {
        "ruleId": one.code,
        "ruleIndex": INDEX[one.code],
        "level": str(one.severity),
        "message": {"text": one.fault.message},
        "locations": [{**_in_file(one, report), "logicalLocations": [place]}],
    }


def _in_file(one: Finding, report: Report) -> dict[str, Json]:
    """The line of a file; a history in a store has none."""
    if report.file is None:
        return {}
    line = report.line(one)
    region = {"region": {"startLine": line}} if line else {}
    uri = f"file://{quote(report.file)}" if report.file.startswith("/") else quote(report.file)
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **region}}


def _rule(code: str) -> dict[str, Json]:
    return {"id": code, "index": INDEX[code]}
