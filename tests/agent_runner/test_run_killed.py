"""kill -9 between the effects of a run with tools: another process goes on, and nothing happens twice."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import Strategy
from tests.command_runner import ROOT
from tests.fork_server import run_convo

WHOLE = [
    *("user: hello", "call look", "call pay", "call find", "c1: look done", "c2: pay done", "c3: find done"),
    *("call transfer_to_billing", 'c4: {"assistant": "billing"}', "call bill", "call ask", "c5: bill done"),
    *("c6: ask done", "assistant: Done."),
]

TOOLS = {"look", "pay", "find", "bill", "stamp", "told"}

BEHIND = {"told": "told", "stamp": "ask"}
"""What may not have run where that is so: a handoff is told once at most, and a call may be left in the middle."""

SMALL_STEP = 19
FEWEST = 80
"""Moments of the run."""


def lives(folder: Path, strategy: Strategy, first: int, step: int) -> Iterator[Mapping[str, Any]]:
    """What each run came to that was killed at one of these moments."""
    done = run_convo([str(folder), strategy, str(first), str(step)], module="tests.chat.killed_runs", cwd=ROOT)
    if done.returncode or done.stderr:
        pytest.fail(done.stderr)
    yield from map(json.loads, done.stdout.splitlines())


def moments(folder: Path, strategy: Strategy, first: int, step: int) -> int:
    """How many moments there were; what must hold does after each."""
    found = list(lives(folder, strategy, first, step))
    for life in found:
        check(life, strategy)
    return len(found)


def check(life: Mapping[str, Any], strategy: Strategy) -> None:
    assert life.get("found") == WHOLE, life
    log = life["log"]
    done = Counter(name for what, *name in log if what == "ran" for name in name)
    unknown = {name for what, *names in log if what == "unknown" for name in names}
    assert max(done.values()) == 1, log
    assert {BEHIND.get(name) for name in TOOLS - done.keys() - unknown} <= {"told", *unknown}, log
    if strategy in (Strategy.CHAIN, Strategy.CONVERSATION):
        assert not resent(log), log


def resent(log: list[list[Any]]) -> list[str]:
    """What was in a request after the owner had answered one that it was in."""
    acknowledged: set[str] = set()
    asked: list[str] = []
    found: list[str] = []
    for what, *rest in log:
        if what == "asked":
            asked = rest[0]
            found += [words for words in asked if words in acknowledged]
        elif what == "answered":
            acknowledged.update(asked)
    return found


@pytest.mark.parametrize("strategy", Strategy)
def test_a_run_that_was_killed_between_two_effects_is_resumed_and_repeats_nothing(
    strategy: Strategy, tmp_path: Path
) -> None:
    first = list(Strategy).index(strategy)
    assert moments(tmp_path, strategy, first, SMALL_STEP) >= FEWEST // SMALL_STEP


@pytest.mark.full
@pytest.mark.parametrize("strategy", Strategy)
def test_a_run_that_was_killed_at_any_moment_is_resumed_and_repeats_nothing(strategy: Strategy, tmp_path: Path) -> None:
    count = moments(tmp_path, strategy, 0, 1)
    print(f"{strategy}: {count} moments")
    assert count >= FEWEST
