"""Hypothesis strategies for histories: messages, reasoning, parallel calls and instructions."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from hypothesis import strategies as some

from convo.compaction.window import is_instruction
from convo.history.items import Item, get_call_id, is_client_call, is_client_output, item_type

TEXTS = some.text(some.characters(codec="utf-8"), min_size=1, max_size=40)


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def call(number: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"call_{number}", "name": "look", "arguments": "{}"}


def output(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "seen"}


@some.composite
def histories(draw: some.DrawFn) -> list[Item]:
    """Histories of zero to six turns. Every call has its output, and every reasoning item is followed by a call."""
    numbers = count()
    items: list[Item] = []
    for _ in range(draw(some.integers(0, 6))):
        items += [message("developer", draw(TEXTS))] if draw(some.booleans()) else []
        items += [message("user", draw(TEXTS)) for _ in range(draw(some.integers(0, 2)))]
        for _ in range(draw(some.integers(0, 3))):
            items += _step(
                [next(numbers) for _ in range(draw(some.integers(0, 3)))], has_reasoning=draw(some.booleans())
            )
        items += [message("assistant", draw(TEXTS))]
    return items


def _step(numbers: list[int], *, has_reasoning: bool) -> list[Item]:
    """Return an optional reasoning item, parallel calls, and their outputs in reverse order."""
    reasoning_item: list[Item] = [{"type": "reasoning", "summary": []}] if has_reasoning and numbers else []
    return [*reasoning_item, *map(call, numbers), *map(output, reversed(numbers))]


def has_complete_pairs(items: Sequence[Item]) -> bool:
    """Return whether calls and outputs match and the last item is not reasoning."""
    call_ids = {get_call_id(item) for item in items if is_client_call(item)}
    output_ids = {get_call_id(item) for item in items if is_client_output(item)}
    return call_ids == output_ids and not (items and item_type(items[-1]) == "reasoning")


def instructions(items: Sequence[Item]) -> list[Item]:
    return [item for item in items if is_instruction(item)]
