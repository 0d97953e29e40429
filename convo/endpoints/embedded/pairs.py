"""What a model is given: the whole history, whole pairs, nothing half said.

A call and its output travel together, and a history with half a pair is refused before any model
is asked. What was cut off in mid-answer is not a call: nobody could answer it, so it stays in the
history and is not shown to the model again, unless somebody did answer it.
"""

from collections.abc import Collection, Sequence

from convo.endpoints.embedded import refusals
from convo.items import Item, call_id, is_assistant, is_call, is_output, kind, plain
from convo.items.kinds import ANSWERED_BY

PAIRED = frozenset({*ANSWERED_BY, *ANSWERED_BY.values()})


def check_pairs(items: Sequence[Item]) -> None:
    """Make sure that each call has one output. An id may be used again once its call has an output.

    raises:  Refused  an output whose call does not stand before it, a second output of one call, or a call without one
    """
    calls: dict[str, Item] = {}
    answered: set[str] = set()
    for item in items:
        named = _call_id(item) if item.get("type") in PAIRED else None
        if named is None:
            continue
        if is_call(item):
            before = calls.get(named)
            if before is not None and named not in answered and not _cut_off(before):
                raise refusals.no_output(_words(before), named)
            calls[named] = item
            answered.discard(named)
        elif named not in calls:
            raise refusals.no_call(_words(item), named)
        elif named in answered:
            raise refusals.second_output(_words(item), named)
        else:
            answered.add(named)
    for named, call in calls.items():
        if named not in answered and not _cut_off(call):
            raise refusals.no_output(_words(call), named)


def for_the_model(items: Sequence[Item]) -> tuple[Item, ...]:
    """`items` without what was cut off: a partial answer becomes its words, half a call is left out."""
    if not any(map(_cut_off, items)):
        return tuple(items)
    answered = {_call_id(item) for item in items if item.get("type") in PAIRED and is_output(item)}
    formed = (_whole(item, answered) if _cut_off(item) else item for item in items)
    return tuple(item for item in formed if item is not None)


def _whole(item: Item, answered: Collection[str | None]) -> Item | None:
    """What is left of an item that was cut off; what was answered is whole all the same."""
    if is_call(item):
        return item if _call_id(item) in answered else None
    return plain(item) if is_assistant(item) or kind(item) == "reasoning" else item


def _cut_off(item: Item) -> bool:
    return item.get("status") not in (None, "completed")


def _call_id(item: Item) -> str | None:
    """What ties a call and its output; a local shell's output has its call's in `id`."""
    named = call_id(item)
    if named is None and kind(item) == "local_shell_call_output" and isinstance(item.get("id"), str):
        return str(item["id"])
    return named


def _words(item: Item) -> str:
    return kind(item).replace("_", " ")
