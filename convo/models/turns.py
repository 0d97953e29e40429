"""A history in turns, for languages in which a call's output follows the call at once.

In the Responses API an output stands anywhere behind its call. Messages and chat completions know
two sides that take turns: everything that the assistant said and called, and then, before anything
else, the outputs of all its calls. `turns` moves each output there, and nothing else.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias

from convo.items import Item, is_assistant, is_call, is_output, kind
from convo.items.kinds import call_id

Turn: TypeAlias = tuple[bool, tuple[Item, ...]]
"""Whether it is the assistant's, and what was said in it."""


def turns(items: Iterable[Item]) -> list[Turn]:
    """`items` as runs of the assistant's and of everybody else's, each with whether it is the assistant's.

    What answers a run's calls opens the run behind it, in the order of the calls. An output without
    its call stays where it stood.
    """
    said = tuple(items)
    calls = {call_id(item) for item in said if is_call(item)}
    answers: dict[str | None, Item] = {call_id(item): item for item in said if is_output(item)}
    runs: list[Turn] = []
    for ours, group in groupby(said, key=is_the_assistants):
        run = tuple(item for item in group if not (is_output(item) and call_id(item) in calls))
        runs = _joined(runs, (ours, run))
        runs = _joined(runs, (False, _outputs(run, answers)))
    return runs


def is_the_assistants(item: Item) -> bool:
    return is_assistant(item) or is_call(item) or kind(item) == "reasoning"


def _outputs(run: Sequence[Item], answers: dict[str | None, Item]) -> tuple[Item, ...]:
    return tuple(answers[call_id(item)] for item in run if is_call(item) and call_id(item) in answers)


def _joined(runs: list[Turn], run: Turn) -> list[Turn]:
    """`runs` with `run` behind them, in one with the last where both are the same side's."""
    if not run[1]:
        return runs
    if runs and runs[-1][0] == run[0]:
        return [*runs[:-1], (run[0], runs[-1][1] + run[1])]
    return [*runs, run]
