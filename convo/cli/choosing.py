"""Of several flags that name one call, the one that names it most exactly.

An id wins over the name of a tool, and a name over `all`. Two flags that name it alike and want
different things are a mistake, and nothing is decided. A name and `all` mean undecided calls only: to
change a decision takes the call's id, and the output says what changed.
"""

from collections.abc import Iterable
from typing import TypeVar

from convo.errors import Usage

Wish = TypeVar("Wish")

ALL = "all"


def rank(word: str, call_id: str) -> int:
    """How exactly a word that fits names a call."""
    return 2 if word == call_id else 0 if word == ALL else 1


def chosen(said: Iterable[tuple[str, int, Wish]]) -> dict[str, Wish]:
    """What is wanted of each call, from (its id, the rank, what is wanted). raises: Usage"""
    found: dict[str, tuple[int, Wish]] = {}
    for call_id, exactly, wish in said:
        other = found.get(call_id)
        if other and other[0] == exactly and other[1] != wish:
            raise Usage(f"{call_id} is asked to be two things at once", hint="name it in one flag alone")
        if other is None or other[0] < exactly:
            found[call_id] = (exactly, wish)
    return {call_id: wish for call_id, (_, wish) in found.items()}


def outcome_text(
    tool: str, call_id: str, *, approve: bool, was: bool | None, edited: bool = False, always: bool = False
) -> str:
    """Say what a decision on one call does; `was` is the earlier decision on it, None if there was none."""
    word = verdict_word(approve)
    changed = f", was {verdict_word(was)}" if was is not None and was != approve else ""
    edits = ", with other arguments" if edited else ""
    sticky = ", always" if always else ""
    return f"{word} {tool} ({call_id}){edits}{sticky}{changed}"


def kept_text(tool: str, call_id: str, was: bool) -> str:
    """Say that a name or `all` left an earlier decision on one call as it was."""
    flag = "--reject" if was else "--approve"
    return f"{tool} ({call_id}) stays {verdict_word(was)}; {flag} {call_id} changes that"


def verdict_word(approve: bool) -> str:
    """The word for a decision."""
    return "approved" if approve else "rejected"
