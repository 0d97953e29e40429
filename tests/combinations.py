"""Parametrize a test with a part of all combinations by default, and with all of them under `-m full`.

    @pytest.mark.parametrize(("story", "verdict"), rotated_combinations(STORIES, VERDICTS))

runs each story with one verdict and the next story with the next verdict, so that every value of every column
is included. With `-m full` the other combinations run.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

LONG = pytest.mark.full


def rotated_combinations(*columns: Iterable[Any], each: int = 1) -> list[Any]:
    """Return parameters for all combinations. By default each combination of the first columns gets `each` values of
    the last column; the others are marked `full`."""
    numbered = [list(enumerate(column)) for column in columns]
    last_count = len(numbered[-1])
    return [
        pytest.param(
            *(value for _, value in combination),
            marks=() if _distance_from_turn(combination, last_count) < each else pytest.mark.full,
        )
        for combination in product(*numbered)
    ]


def _distance_from_turn(combination: Sequence[tuple[int, Any]], last_count: int) -> int:
    """The distance of the last column's value from the value that a default run uses for the other columns."""
    *before, last = (position for position, _ in combination)
    return (last - sum(before)) % last_count
