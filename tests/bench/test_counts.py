"""A call counts once, in every thread, and a resumption each time; a rise of a count fails the guard."""

import asyncio
import json
import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench import counts
from tests.bench.call_counts import CallCounter
from tests.bench.counts import RECORD, rises

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

Counted = Callable[..., dict[str, tuple[int, int]]]


@pytest.fixture
def count_calls(tmp_path: Path) -> Counted:
    """Count calls and resumptions of the functions of SAMPLE while one is called, given by its name."""
    file = tmp_path / "sample.py"
    file.write_text(SAMPLE, encoding="utf-8")

    def count(name: str, call: Callable[[Any], object] = lambda function: function()) -> Any:
        counter = CallCounter()
        counter.install()
        try:
            functions = runpy.run_path(str(file))
            functions["once"]()
            counter.active = True
            call(functions[name])
            counter.active = False
        finally:
            counter.uninstall()
        found = counter.take()["functions"]
        return {function: (calls, resumed) for path, function, calls, resumed in found if path == str(file)}

    return count


def test_a_function_called_twice_counts_twice(count_calls: Counted) -> None:
    assert count_calls("twice") == {"twice": (1, 0), "once": (2, 0)}


def test_a_coroutine_that_waits_thrice_is_one_call_and_three_resumptions(count_calls: Counted) -> None:
    assert count_calls("waiting", lambda function: asyncio.run(function())) == {"waiting": (1, 3)}


def test_a_generator_counts_once_and_not_at_all_when_it_is_closed_before_it_starts(count_calls: Counted) -> None:
    assert count_calls("numbers", lambda function: list(function())) == {"numbers": (1, 3)}
    assert count_calls("closed_at_once") == {"closed_at_once": (1, 0)}


def test_a_call_in_another_thread_counts(count_calls: Counted) -> None:
    def in_a_thread(function: Callable[[], object]) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    assert count_calls("once", in_a_thread) == {"once": (1, 0)}


def test_the_body_of_a_class_does_not_count(count_calls: Counted) -> None:
    assert count_calls("with_class") == {"with_class": (1, 0)}


RECORDED: dict[str, counts.Row] = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", RECORDED)
def test_each_recorded_count_fails_when_it_rises_by_6_percent_but_not_by_4(row: str) -> None:
    for column, count in RECORDED[row].items():
        for factor, fails in ((1.06, count > 0), (1.04, False), (0.5, False)):
            counted = {row: RECORDED[row] | {column: count * factor}}
            assert [line.split(": ")[:2] for line in rises(RECORDED, counted)] == ([[row, column]] if fails else [])


def test_a_row_that_is_not_recorded_fails() -> None:
    assert rises({}, {"new": {"own calls": 1}}) == ["new: own calls: 1, recorded 0"]


@pytest.mark.full
def test_the_guard_ends_with_1_when_a_command_makes_6_percent_more_calls_than_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "RECORD", tmp_path / "counts.json")
    counts.RECORD.write_text("{}")
    command = ["counts", "--only", "inspect", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--record"])
    assert counts.main() == 0
    recorded = json.loads(counts.RECORD.read_text())
    monkeypatch.setattr(sys, "argv", command)
    assert counts.main() == 0
    capsys.readouterr()
    recorded["inspect"]["own calls"] /= 1.06
    counts.RECORD.write_text(json.dumps(recorded))
    assert counts.main() == 1
    assert "inspect: own calls:" in capsys.readouterr().out
