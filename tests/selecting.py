"""Of every combination some in a default run, the rest when the long variants are asked for.

    @pytest.mark.parametrize(("story", "verdict"), rotated(STORIES, VERDICTS))

runs each story with one verdict, the next story with the next one, so that every value of every column
is tried; with `-m full` the others run.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

LONG = pytest.mark.full


def rotated(*columns: Iterable[Any], each: int = 1) -> list[Any]:
    """The parameters of a test of all combinations; by default the others meet `each` values of the last column."""
    numbered = [list(enumerate(column)) for column in columns]
    of_the_last = len(numbered[-1])
    return [
        pytest.param(
            *(value for _, value in chosen), marks=() if turn(chosen, of_the_last) < each else pytest.mark.full
        )
        for chosen in product(*numbered)
    ]


def turn(chosen: Sequence[tuple[int, Any]], of_the_last: int) -> int:
    """How far the last value is from the one whose turn it is."""
    *before, last = (at for at, _ in chosen)
    return (last - sum(before)) % of_the_last
