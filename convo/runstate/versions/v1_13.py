"""1.13: items that a nested history repeats are marked, and programs can call tools (first written by 0.19.0)."""

from collections.abc import Iterator

from convo.history.items import Json
from convo.runstate.document import PathMatch, iter_path_matches, parse_path_pattern
from convo.runstate.format import RUN_ITEM_PATTERNS, Version

RAW_ITEM_PATTERNS = tuple(
    parse_path_pattern(pattern)
    for pattern in (*(f"{item_pattern}.raw_item" for item_pattern in RUN_ITEM_PATTERNS), "original_input[]")
)


def _find_program_items(document: Json) -> Iterator[PathMatch]:
    """Find items of programs that called tools; older readers would treat their calls as the model's own."""
    for steps in RAW_ITEM_PATTERNS:
        for match in iter_path_matches(document, steps):
            if _is_program_item(match.value):
                yield match


def _is_program_item(raw: Json) -> bool:
    if not isinstance(raw, dict):
        return False
    caller = raw.get("caller")
    is_called_by_program = isinstance(caller, dict) and caller.get("type") == "program"
    return is_called_by_program or raw.get("type") in ("program", "program_output")


VERSION = Version(
    "1.13",
    "0.19.0",
    "items that a nested history repeats have digests; programs can call tools",
    keys=("nested_history_owned_session_item_refs", "generated_session_item_indexes"),
    find_values=_find_program_items,
)
