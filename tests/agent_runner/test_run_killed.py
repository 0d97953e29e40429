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

FULL_HISTORY = [
    *("user: hello", "call look", "call pay", "call find", "c1: look done", "c2: pay done", "c3: find done"),
    *("call transfer_to_billing", 'c4: {"assistant": "billing"}', "call bill", "call ask", "c5: bill done"),
    *("c6: ask done", "assistant: Done."),
]

TOOLS = {"look", "pay", "find", "bill", "stamp", "told"}

RUN_BY = {"told": "told", "stamp": "ask"}
"""Tools that may not have run: the handoff function runs at most once, and `ask` may be interrupted."""

SMALL_STEP = 19
MIN_MOMENTS = 80
"""Minimum number of moments of a run."""


def resume_killed_runs(folder: Path, strategy: Strategy, first: int, step: int) -> Iterator[Mapping[str, Any]]:
    """Kill a run at every `step`th moment from `first` on; yields the result of each resumed run."""
    result = run_convo([str(folder), strategy, str(first), str(step)], module="tests.chat.killed_runs", cwd=ROOT)
    if result.returncode or result.stderr:
        pytest.fail(result.stderr)
    yield from map(json.loads, result.stdout.splitlines())


def check_moments(folder: Path, strategy: Strategy, first: int, step: int) -> int:
    """Check every result; returns the number of results."""
    results = list(resume_killed_runs(folder, strategy, first, step))
    for result in results:
        check_result(result, strategy)
    return len(results)


def check_result(result: Mapping[str, Any], strategy: Strategy) -> None:
    assert result.get("found") == FULL_HISTORY, result
    log = result["log"]
    run_counts = Counter(name for what, *name in log if what == "ran" for name in name)
    unknown = {name for what, *names in log if what == "unknown" for name in names}
    assert max(run_counts.values()) == 1, log
    assert {RUN_BY.get(name) for name in TOOLS - run_counts.keys() - unknown} <= {"told", *unknown}, log
    if strategy in (Strategy.CHAIN, Strategy.CONVERSATION):
        assert not resent_items(log), log


def resent_items(log: list[list[Any]]) -> list[str]:
    """Items that were sent again after a response had confirmed them."""
    acknowledged: set[str] = set()
    sent: list[str] = []
    found: list[str] = []
    for what, *rest in log:
        if what == "asked":
            sent = rest[0]
            found += [item for item in sent if item in acknowledged]
        elif what == "answered":
            acknowledged.update(sent)
    return found


@pytest.mark.parametrize(
    "strategy",
    [pytest.param(one, marks=pytest.mark.full if one in (Strategy.REPLAY, Strategy.CHAIN) else ()) for one in Strategy],
)
def test_a_run_that_was_killed_between_two_effects_is_resumed_and_repeats_nothing(
    strategy: Strategy, tmp_path: Path
) -> None:
    first = list(Strategy).index(strategy)
    assert check_moments(tmp_path, strategy, first, SMALL_STEP) >= MIN_MOMENTS // SMALL_STEP


@pytest.mark.full
@pytest.mark.parametrize("strategy", Strategy)
def test_a_run_that_was_killed_at_any_moment_is_resumed_and_repeats_nothing(strategy: Strategy, tmp_path: Path) -> None:
    count = check_moments(tmp_path, strategy, 0, 1)
    print(f"{strategy}: {count} moments")
    assert count >= MIN_MOMENTS
