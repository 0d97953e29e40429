"""A pytest plugin: record the lines of convo that each test runs, and its duration, as lines of JSON.

It needs Python 3.12: `sys.monitoring` reports each line once per test. Every process of the run writes a file
in the folder RECORD_LINES; the lines that run on import or during collection have the test "".
"""

import json
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

PACKAGE = str(Path(__file__).parents[2] / "convo") + os.sep
RESULTS = Path(os.environ["RECORD_LINES"]) / f"lines-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.jsonl"

monitoring: Any = getattr(sys, "monitoring", None)
lines: dict[str, set[int]] = {}
"""The lines that ran since the last record, by file."""
seconds: dict[str, float] = {}
"""The duration of each test that passed."""


def pytest_configure() -> None:
    events = monitoring.events
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "record")
    monitoring.register_callback(monitoring.COVERAGE_ID, events.PY_START, _enter)
    monitoring.register_callback(monitoring.COVERAGE_ID, events.LINE, _run_line)
    monitoring.set_events(monitoring.COVERAGE_ID, events.PY_START)


def pytest_unconfigure() -> None:
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.NO_EVENTS)
    monitoring.free_tool_id(monitoring.COVERAGE_ID)


def pytest_collection_finish() -> None:
    _write("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        seconds[report.nodeid] = report.duration


def pytest_runtest_logfinish(nodeid: str) -> None:
    if nodeid in seconds:
        _write(nodeid)


def _enter(code: CodeType, _offset: int) -> object:
    if code.co_filename.startswith(PACKAGE):
        monitoring.set_local_events(monitoring.COVERAGE_ID, code, monitoring.events.LINE)
    return monitoring.DISABLE


def _run_line(code: CodeType, line: int) -> object:
    lines.setdefault(code.co_filename, set()).add(line)
    return monitoring.DISABLE


def _write(test: str) -> None:
    """Append a record with the lines of each file as the bits of a number, and report all lines again from now on."""
    files = {"convo/" + file.removeprefix(PACKAGE): hex(sum(1 << line for line in ran)) for file, ran in lines.items()}
    with RESULTS.open("a", encoding="utf-8") as results:
        results.write(json.dumps({"test": test, "seconds": seconds.get(test, 0.0), "lines": files}) + "\n")
    lines.clear()
    monitoring.restart_events()
