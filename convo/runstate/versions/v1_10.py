"""1.10: a run may have no limit of turns (first written by 0.16.0)."""

from collections.abc import Iterator

from convo.history.items import Json
from convo.runstate.document import PathMatch
from convo.runstate.format import RelabelLoss, RelabelResult, Version

UNLIMITED_SUBSTITUTE = 1_000_000
"""Turns; replaces "no limit" in labels that require a number."""


def _find_unlimited(document: Json) -> Iterator[PathMatch]:
    if document.get("max_turns", 0) is None:
        yield PathMatch(("max_turns",), None)


def _to_older(document: Json) -> RelabelResult:
    if not any(_find_unlimited(document)):
        return document, ()
    loss = RelabelLoss(
        "$.max_turns", "no limit", f"labels before 1.10 need a number, so it becomes {UNLIMITED_SUBSTITUTE:,}"
    )
    return {**document, "max_turns": UNLIMITED_SUBSTITUTE}, (loss,)


VERSION = Version("1.10", "0.16.0", "a run can have no limit of turns", find_values=_find_unlimited, to_older=_to_older)
