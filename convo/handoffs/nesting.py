"""What is summed up for the next agent, and what goes on as it is.

The history and the turn before become text. What the handing-off turn said to the person goes on
word for word, between summaries, so the order stays; its calls, outputs and thoughts only as text.
The conversation itself is not touched: its owner keeps every item.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from convo.errors import InputFault
from convo.handoffs.summary import MARKERS, Markers, cleaned, summarise, unfold
from convo.items import Item, kind

Mapper: TypeAlias = Callable[[list[Item]], list[Item]]
"""Makes the next agent's whole input of the flat transcript."""

ONLY_TEXT = {"function_call", "function_call_output", "reasoning"}
"""Kinds that would be half a pair, or half a thought, once what belongs to them is text."""

PROGRAM = {"program", "program_output"}
APPROVAL = "tool_approval_item"


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation at a handoff.

    history:  the run's input, as the handing-off agent's model saw it
    before:   what the run added before this turn
    new:      what this turn added, the handoff's call and output among it
    input:    what a filter put in place of `new` for the model alone; None: `new` itself
    """

    history: tuple[Item, ...]
    before: tuple[Item, ...] = ()
    new: tuple[Item, ...] = ()
    input: tuple[Item, ...] | None = None


def passed_on(transcript: object) -> tuple[Item, ...]:
    """The next agent's input, where nothing is summed up: everything, or what a filter left of it.

    raises:  InputFault  a filter returned something else
    """
    if not isinstance(transcript, Transcript):
        raise InputFault(f"an input filter returned {type(transcript).__name__}", hint="return a Transcript")
    new = transcript.new if transcript.input is None else transcript.input
    return (*transcript.history, *transcript.before, *new)


def nested(transcript: Transcript, mapper: Mapper | None = None, markers: Markers = MARKERS) -> tuple[Item, ...]:
    """The next agent's input, where the history becomes a summary.

    mapper:  one's own; it gets the flat transcript, and what it returns is the input
    raises:  InputFault  it returned something else than a list of items
    """
    flat = unfold(transcript.history, markers)
    before = [_plain(item) for item in transcript.before if kind(item) != APPROVAL]
    new = [_plain(item) for item in transcript.new if kind(item) != APPROVAL]
    if mapper is None:
        verbatim = [*map(_before_stays, before), *map(_new_stays, new)]
        return tuple(_ordered(flat, [*before, *new], verbatim, markers))
    made = mapper([*flat, *before, *new])
    if not isinstance(made, list) or not all(isinstance(item, dict) for item in made):
        raise InputFault("a history mapper did not return a list of items", hint="return a list of items")
    return tuple(made)


def _ordered(summed: list[Item], items: Sequence[Item], verbatim: Sequence[bool], markers: Markers) -> list[Item]:
    """Summaries of what becomes text, and between them what stays."""
    made: list[Item] = []
    for item, stays in zip(items, verbatim, strict=True):
        if not stays:
            summed.append(item)
            continue
        if summed or not made:
            made.append(summarise(summed, markers))
            summed = []
        made.append(item)
    return [*made, summarise(summed, markers)] if summed or not made else made


def _plain(item: Item) -> Item:
    """`item` as input: a status that says nothing is left out."""
    item = cleaned(item)
    if "status" in item and item["status"] is None:
        return {field: value for field, value in item.items() if field != "status"}
    return item


def _before_stays(item: Item) -> bool:
    return not (_is_program(item) or item.get("role") == "assistant" or item.get("type") in ONLY_TEXT)


def _new_stays(item: Item) -> bool:
    return not _is_program(item) and (bool(item.get("role")) or item.get("type") not in ONLY_TEXT)


def _is_program(item: Item) -> bool:
    """Whether an item belongs to a hosted program, whose transcript is one piece."""
    caller = item.get("caller")
    return item.get("type") in PROGRAM or (isinstance(caller, dict) and caller.get("type") == "program")
