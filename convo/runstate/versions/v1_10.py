"""1.10: a run may have no limit of turns (first written by 0.16.0)."""

from collections.abc import Iterator

from convo.items import Json
from convo.runstate.paths import Place
from convo.runstate.version import Change, Loss, Version

UNLIMITED = 1_000_000
"""What stands for "no limit" under a label that needs a number."""


def _limitless(document: Json) -> Iterator[Place]:
    if document.get("max_turns", 0) is None:
        yield Place(("max_turns",), None)


def _limited(document: Json) -> Change:
    if not any(_limitless(document)):
        return document, ()
    loss = Loss("$.max_turns", "no limit", f"labels before 1.10 need a number: {UNLIMITED:,} stands for it")
    return {**document, "max_turns": UNLIMITED}, (loss,)


VERSION = Version("1.10", "0.16.0", "a run may have no limit of turns", values=_limitless, older=_limited)
