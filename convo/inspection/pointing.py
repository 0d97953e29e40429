"""Where two JSON values first differ.

Both are read in one order, keys sorted, as they stand in their canonical text: so the place that is
found is the one at which the two texts part, and has a path that a person can follow.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import AnyStr

from convo.items import Json

Order = Callable[[Iterable[str]], Sequence[str]]


class Nothing:
    """Stands where one of the values has nothing."""


NOTHING = Nothing()


def text(value: Json) -> str:
    """The canonical text of a value: keys sorted, no space, characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def first_path(one: Json, other: Json, order: Order = sorted) -> tuple[str | int, ...] | None:
    """The keys and indices that lead to the first difference; None when there is none.

    order:  in which the keys of the outermost objects stand; deeper ones are sorted
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return _within(order({*one, *other}), one.get, other.get)
    if isinstance(one, list) and isinstance(other, list):
        longer = range(max(len(one), len(other)))
        return _within(longer, _indexed(one), _indexed(other))
    return None if _same(one, other) else ()


def begin_alike(one: AnyStr, other: AnyStr) -> int:
    """How many characters, or bytes, two texts begin with alike."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def written(path: Iterable[str | int]) -> str:
    """A path for people and for `jq`: input[3].content[0].text"""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return said.removeprefix(".")


def at(value: Json, path: Iterable[str | int]) -> Json | Nothing:
    """What stands at the end of `path`; `NOTHING` where it leads nowhere."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return NOTHING
    return value


def _within(
    steps: Iterable[str | int], one: Callable[..., Json], other: Callable[..., Json]
) -> tuple[str | int, ...] | None:
    for step in steps:
        ours, theirs = one(step, NOTHING), other(step, NOTHING)
        if ours is theirs:
            continue
        below = first_path(ours, theirs)
        if below is not None:
            return (step, *below)
    return None


def _indexed(values: Sequence[Json]) -> Callable[[int, Nothing], Json]:
    return lambda at, none: values[at] if at < len(values) else none


def _same(one: Json, other: Json) -> bool:
    """Whether two values that are not both objects or both lists have the same text: 1 is not 1.0, nor true."""
    return type(one) is type(other) and one == other
