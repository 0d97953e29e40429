"""Of several flags that name one call, the one that names it most exactly.

An id wins over the name of a tool, and a name over `all`. Two flags that name it alike and want
different things are a mistake, and nothing is decided.
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
