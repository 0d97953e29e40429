"""A call counts once, in every thread, if it is a call of a function below the folder."""

import asyncio
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.call_counts import CallCounter
from tests.bench.traces import TRACES, Trace, running_upstream, workspace
from tests.command_runner import ROOT

SAMPLE = """
import asyncio

def twice():
    return once() + once()

def once():
    return 1

async def waiting():
    for _ in range(3):
        await asyncio.sleep(0)

def numbers():
    yield 1
    yield 2
    yield 3

def closed_at_once():
    numbers().close()

def with_class():
    class Inner:
        value = 1
    return Inner
"""


@pytest.fixture
def count_calls(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Count calls of one function of SAMPLE, given by its name and a way to call it."""
    file = tmp_path / "convo" / "parts" / "sample.py"
    file.parent.mkdir(parents=True)
    file.write_text(SAMPLE, encoding="utf-8")

    def count(name: str, call: Callable[[Any], object] = lambda function: function(), folder: str = "convo") -> Any:
        counter = CallCounter(tmp_path / folder)
        counter.install()
        try:
            functions = runpy.run_path(str(file))
            functions["once"]()
            counter.active = True
            call(functions[name])
            counter.active = False
        finally:
            counter.uninstall()
        return counter.counts()

    return count


Counted = Callable[..., dict[str, Any]]


def test_a_function_called_twice_counts_twice_and_the_stack_names_its_caller(count_calls: Counted) -> None:
    counts = count_calls("twice")
    assert counts["modules"] == {"parts.sample": 3}
    assert counts["stack"] == ["parts.sample:twice", "parts.sample:once"]


def test_a_coroutine_resumed_thrice_counts_once(count_calls: Counted) -> None:
    assert count_calls("waiting", lambda function: asyncio.run(function()))["modules"] == {"parts.sample": 1}


def test_a_generator_counts_once_and_not_at_all_when_it_is_closed_before_it_starts(count_calls: Counted) -> None:
    assert count_calls("numbers", lambda function: list(function()))["modules"] == {"parts.sample": 1}
    assert count_calls("closed_at_once")["modules"] == {"parts.sample": 1}


def test_a_call_in_another_thread_counts(count_calls: Counted) -> None:
    def in_a_thread(function: Callable[[], object]) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    assert count_calls("once", in_a_thread)["modules"] == {"parts.sample": 1}


def test_the_body_of_a_class_does_not_count(count_calls: Counted) -> None:
    assert count_calls("with_class")["modules"] == {"parts.sample": 1}


def test_code_outside_the_folder_does_not_count(count_calls: Counted) -> None:
    assert count_calls("once", folder="con") == {"modules": {}, "stack": []}


def test_a_command_is_counted_in_its_own_process(tmp_path: Path) -> None:
    result = tmp_path / "counts.json"
    job = {"folder": str(ROOT / "convo"), "argv": ["--version"], "result": str(result), "port": 0, "requests": []}
    command = [sys.executable, "-P", str(ROOT / "tests" / "bench" / "call_counts.py"), json.dumps(job)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.startswith("convo ")
    counts = json.loads(result.read_text(encoding="utf-8"))
    assert counts["stack"][0] == "__main__:main"
    assert sum(counts["modules"].values()) < 10


@pytest.mark.full
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_every_trace_is_counted(trace: Trace) -> None:
    with running_upstream() as port, workspace(ROOT, port) as environment:
        calls, modules, depth = environment.count(trace, 1).figures
    assert calls > modules > depth > 1
