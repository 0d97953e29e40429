"""A pytest plugin: record the lines of convo that each test runs, and its duration, as lines of JSON.

It needs Python 3.12: `sys.monitoring` reports each line once per test. Every worker writes a file in the folder
RECORD_LINES, and the commands that its tests start write another one; the lines that run on import or during
collection have the test "". Processes that are killed, or that are new interpreters, record nothing.
"""

import atexit
import json
import os
import sys
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

PACKAGE = str(Path(__file__).parents[2] / "convo") + os.sep
FOLDER = Path(os.environ["RECORD_LINES"])
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

monitoring: Any = getattr(sys, "monitoring", None)
lines: dict[str, set[int]] = {}
"""The lines that ran since the last record, by file."""
seconds: dict[str, float] = {}
"""The duration of each test that passed."""


def start() -> None:
    events = monitoring.events
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "record")
    monitoring.register_callback(monitoring.COVERAGE_ID, events.PY_START, _enter)
    monitoring.register_callback(monitoring.COVERAGE_ID, events.LINE, _run_line)
    monitoring.set_events(monitoring.COVERAGE_ID, events.PY_START)


def stop() -> None:
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.NO_EVENTS)
    monitoring.free_tool_id(monitoring.COVERAGE_ID)


def record_process() -> None:
    """Record the lines of this process, a command that the test RECORD_TEST started, when it ends."""
    start()

    def write() -> None:
        stop()
        _write(f"lines-{WORKER}-commands.jsonl", {"test": os.environ["RECORD_TEST"]})

    atexit.register(write)


# -- pytest ----------------------------------------------------------------------------------------


def pytest_configure() -> None:
    start()


def pytest_unconfigure() -> None:
    stop()


def pytest_collection_finish() -> None:
    _write_test("")


def pytest_runtest_logstart(nodeid: str) -> None:
    os.environ["RECORD_TEST"] = nodeid


def pytest_runtest_logreport(report: "pytest.TestReport") -> None:
    if report.when == "call" and report.passed:
        seconds[report.nodeid] = report.duration


def pytest_runtest_logfinish(nodeid: str) -> None:
    if nodeid in seconds:
        _write_test(nodeid)


# -- lines -----------------------------------------------------------------------------------------


def _enter(code: CodeType, _offset: int) -> object:
    if code.co_filename.startswith(PACKAGE):
        monitoring.set_local_events(monitoring.COVERAGE_ID, code, monitoring.events.LINE)
    return monitoring.DISABLE


def _run_line(code: CodeType, line: int) -> object:
    lines.setdefault(code.co_filename, set()).add(line)
    return monitoring.DISABLE


def _write_test(test: str) -> None:
    """Append the record of a test, and report all lines again from now on."""
    _write(f"lines-{WORKER}.jsonl", {"test": test, "seconds": seconds.get(test, 0.0)})
    lines.clear()
    monitoring.restart_events()


def _write(name: str, record: dict[str, Any]) -> None:
    """Append a record with the lines of each file as the bits of a number, in one write: several processes append."""
    files = {"convo/" + file.removeprefix(PACKAGE): hex(sum(1 << line for line in ran)) for file, ran in lines.items()}
    number = os.open(FOLDER / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(number, json.dumps(record | {"lines": files}).encode() + b"\n")
    os.close(number)
