"""What a model is given: the whole history, whole pairs, nothing half said.

A call and its output travel together, and a history with half a pair is refused before any model
is asked. What was cut off in mid-answer is not a call: nobody could answer it, so it stays in the
history and is not shown to the model again, unless somebody did answer it.
"""

from collections.abc import Sequence

from convo.endpoints.embedded import refusals
from convo.items import Item, call_id, is_assistant, is_call, is_output, kind, plain


def check_pairs(items: Sequence[Item]) -> None:
    """raises: Refused  an output whose call does not stand before it, or a call without its output"""
    open_calls: dict[str, str] = {}
    answered: set[str] = set()
    for item in items:
        named = _call_id(item)
        if named is None:
            continue
        if is_call(item):
            open_calls[named] = kind(item)
        elif named not in open_calls:
            raise refusals.no_call(_words(item), named)
        else:
            answered.add(named)
    for item in items:
        named = _call_id(item)
        if is_call(item) and named is not None and named not in answered and not _cut_off(item):
            raise refusals.no_output(_words(item), named)


def for_the_model(items: Sequence[Item]) -> tuple[Item, ...]:
    """`items` without what was cut off: a partial answer becomes its words, half a call is left out."""
    answered = {_call_id(item) for item in items if is_output(item)}
    formed = (_whole(item, answered=_call_id(item) in answered) for item in items)
    return tuple(item for item in formed if item is not None)


def _whole(item: Item, *, answered: bool) -> Item | None:
    if is_call(item):
        return None if _cut_off(item) and not answered else item
    if is_assistant(item) or kind(item) == "reasoning":
        return plain(item)
    return item


def _cut_off(item: Item) -> bool:
    return item.get("status") not in (None, "completed")


def _call_id(item: Item) -> str | None:
    """What ties a call and its output; a local shell's output has its call's in `id`."""
    named = call_id(item)
    if named is None and kind(item) == "local_shell_call_output":
        return str(item["id"]) if isinstance(item.get("id"), str) else None
    return named if is_call(item) or is_output(item) else None


def _words(item: Item) -> str:
    return kind(item).replace("_", " ")
