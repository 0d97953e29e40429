"""kill -9 between the effects of a run with tools: another process resumes the run, and no effect is repeated."""

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
"""Tools that may not have run: the handoff function runs at most once, and `ask` may be interrupted."""

SMALL_STEP = 19
FEWEST = 80
"""Minimum number of moments of a run."""


def lives(folder: Path, strategy: Strategy, first: int, step: int) -> Iterator[Mapping[str, Any]]:
    """Kill a run at every `step`th moment from `first` on; yields the result of each resumed run."""
    done = run_convo([str(folder), strategy, str(first), str(step)], module="tests.chat.killed_runs", cwd=ROOT)
    if done.returncode or done.stderr:
        pytest.fail(done.stderr)
    yield from map(json.loads, done.stdout.splitlines())


def moments(folder: Path, strategy: Strategy, first: int, step: int) -> int:
    """Check every result; returns the number of results."""
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
    """Items that were sent again after a response had confirmed them."""
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
