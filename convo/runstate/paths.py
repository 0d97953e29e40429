"""Places in a document: how they are named, found and replaced.

A place is named by its JSON path, `$.context.approvals["send mail"]`, and a kind of place by a
pattern, `model_responses[].request_id`, where `[]` is every element and `*` every key. A document
is never changed: `replaced` gives one that shares everything with the old one except the way to
the new value.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from convo.items import Json

Step: TypeAlias = str | int
"""One step down: a key of an object or an index of a list."""

Steps: TypeAlias = tuple[Step, ...]

PLAIN = re.compile(r"[A-Za-z_$][\w$-]*\Z", re.ASCII)
KEY_LENGTH = 60
SHOWN = 12
"""A path longer than this many steps is cut in its middle when it is shown."""


class Place(NamedTuple):
    """One value of a document and the way to it."""

    steps: Steps
    value: Json


def path(steps: Sequence[Step]) -> str:
    """The JSON path of a place, short enough for a sentence."""
    if len(steps) > SHOWN:
        return "$" + "".join(map(_shown, steps[: SHOWN // 2])) + "…" + "".join(map(_shown, steps[-SHOWN // 2 :]))
    return "$" + "".join(map(_shown, steps))


def _shown(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    short = step if len(step) <= KEY_LENGTH else step[:KEY_LENGTH] + "…"
    return f".{short}" if PLAIN.match(short) else "[" + _quoted(short) + "]"


def _quoted(key: str) -> str:
    return '"' + "".join(char if char.isprintable() and char != '"' else f"\\u{ord(char):04x}" for char in key) + '"'


def pattern(words: str) -> tuple[str, ...]:
    """`"a.b[].c"` as the steps that `found` follows."""
    return tuple(re.findall(r"\[\]|[^.\[\]]+", words))


def found(value: Json, steps: Sequence[str], way: Steps = ()) -> Iterator[Place]:
    """Every place below `value` that the pattern `steps` fits."""
    if not steps:
        yield Place(way, value)
        return
    step, rest = steps[0], steps[1:]
    for key, below in _below(value, step):
        yield from found(below, rest, (*way, key))


def _below(value: Json, step: str) -> Iterable[tuple[Step, Json]]:
    if step == "[]":
        return enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict):
        return ()
    if step == "*":
        return value.items()
    return ((step, value[step]),) if step in value else ()


def at(value: Json, steps: Sequence[Step]) -> Json:
    """What stands at a place; None where there is none."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def replaced(value: Json, steps: Sequence[Step], new: Json) -> Json:
    """`value` with `new` at a place; objects on the way are made where they are missing."""
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        return [replaced(below, rest, new) if index == step else below for index, below in enumerate(value)]
    inside = value if isinstance(value, dict) else {}
    return {**inside, step: replaced(inside.get(step), rest, new)}


def without(value: Json, steps: Sequence[Step]) -> Json:
    """`value` without the member at a place; the elements of a list keep their numbers."""
    *way, last = steps
    holder = at(value, way)
    if not isinstance(holder, dict) or last not in holder:
        return value
    return replaced(value, way, {key: below for key, below in holder.items() if key != last})
