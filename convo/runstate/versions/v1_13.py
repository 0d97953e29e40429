"""1.13: items that a nested history repeats are known, and programs may call tools (first written by 0.19.0)."""

from collections.abc import Iterator

from convo.items import Json
from convo.runstate.paths import Place, found, pattern
from convo.runstate.version import ITEM_LISTS, Version

RAW = tuple(pattern(words) for words in (*(f"{holder}.raw_item" for holder in ITEM_LISTS), "original_input[]"))


def _programs(document: Json) -> Iterator[Place]:
    """Items of a program that called tools; older readers would take their calls for the model's own."""
    for steps in RAW:
        for place in found(document, steps):
            if _of_a_program(place.value):
                yield place


def _of_a_program(raw: Json) -> bool:
    if not isinstance(raw, dict):
        return False
    caller = raw.get("caller")
    called = isinstance(caller, dict) and caller.get("type") == "program"
    return called or raw.get("type") in ("program", "program_output")


VERSION = Version(
    "1.13",
    "0.19.0",
    "items that a nested history repeats are known by digest; programs may call tools",
    keys=("nested_history_owned_session_item_refs", "generated_session_item_indexes"),
    values=_programs,
)
