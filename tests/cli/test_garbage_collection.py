"""Commands that run for hours collect garbage as often as Python does by default, or nearly.

Each test starts a new interpreter, which writes the threshold to a file when it ends.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from convo.__main__ import GC_THRESHOLD
from convo.runtime import LONG_RUN_GC_THRESHOLD
from tests.cli.chat_commands import scripted_flags
from tests.cli.serve_process import run_serve
from tests.terminal.pty_session import at_terminal

REPORT = """
import atexit, gc, os
if str(os.getppid()) == os.environ["REPORTING_PARENT"]:  # not the programs that the command starts
    atexit.register(lambda: open(os.environ["THRESHOLD_FILE"], "w").write(str(gc.get_threshold()[0])))
"""


class ThresholdReport:
    """`environ` makes a process that this one starts report its threshold."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "threshold"
        (folder / "sitecustomize.py").write_text(REPORT, encoding="utf-8")
        self.environ = {
            "PYTHONPATH": f"{folder}{os.pathsep}{os.getcwd()}",
            "THRESHOLD_FILE": str(self._file),
            "REPORTING_PARENT": str(os.getpid()),
        }

    def read(self) -> int:
        return int(self._file.read_text(encoding="utf-8"))


@pytest.fixture
def report(tmp_path: Path) -> ThresholdReport:
    return ThresholdReport(tmp_path)


def run_in_new_interpreter(*argv: str, report: ThresholdReport) -> None:
    environ = {**os.environ, **report.environ}
    subprocess.run([sys.executable, "-m", "convo", *argv], env=environ, capture_output=True, check=True)


def test_a_short_command_collects_less_often(report: ThresholdReport) -> None:
    run_in_new_interpreter("models", report=report)
    assert report.read() == GC_THRESHOLD


def test_a_server_collects_often(report: ThresholdReport, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in report.environ.items():
        monkeypatch.setenv(name, value)
    with run_serve("--store", "memory", python=("-X", "utf8")) as server:
        assert server.stop(signal.SIGTERM) == 0
    assert report.read() == LONG_RUN_GC_THRESHOLD


def test_a_relay_collects_often(report: ThresholdReport) -> None:
    run_in_new_interpreter("tap", "--", sys.executable, "-c", "", report=report)
    assert report.read() == LONG_RUN_GC_THRESHOLD


@pytest.mark.needs("terminal")
def test_a_chat_collects_often_once_its_prompt_is_shown(report: ThresholdReport) -> None:
    model = scripted_flags({"text": "hello"}, delay_s=0.25)  # longer than the chat waits before it warms up
    with at_terminal("chat", *model, env=report.environ) as terminal:
        terminal.wait_for_prompt()
        assert "hello" in terminal.send_line("hi")
        assert terminal.end_session() == 0
    assert report.read() == LONG_RUN_GC_THRESHOLD
