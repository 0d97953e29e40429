"""A plugin of pytest: the seconds of every test that passes, a line each, in the file that DURATIONS names."""

import json
import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ["DURATIONS"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.duration]) + "\n")
