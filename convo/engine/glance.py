"""A session at a glance, for lists of them.

A list of many sessions reads none of their histories: the store counts, and gives the first item
for its words.
"""

from typing import NamedTuple

from convo.errors import ItemDeleted
from convo.history import Session
from convo.items import Item, Json, first_words
from convo.stores.contract import Store

OTHERS = "convo inspect resp_ names the newest responses, which other clients asked for"


class Glance(NamedTuple):
    """What a list says of a session.

    items:    how many lead to its head
    waiting:  how many of them its owner has not confirmed
    turns:    how many answers it got
    words:    the first words that were said in it
    """

    session: Session
    items: int
    waiting: int
    turns: int
    words: str


async def glance(store: Store, session: Session) -> Glance:
    """What a list says of `session`; its history is not read."""
    seen = await store.outline(session.id)
    return Glance(session, seen.items, seen.waiting, seen.turns, "" if seen.first is None else first_words(seen.first))


async def others_answered(store: Store) -> str:
    """Where to look in a store without sessions whose endpoint other clients asked; "" where nobody did."""
    return OTHERS if await store.find("resp_", limit=1) else ""


async def unacknowledged(store: Store, session: Session) -> tuple[Item, ...]:
    """What was said in `session` and not confirmed; nothing when its history lost an item."""
    try:
        path = await store.path(session.head)
    except ItemDeleted:
        return ()
    return tuple(node.item for node in path.after(session.mark))


def as_record(one: Glance) -> dict[str, Json]:
    """A session's record for a program."""
    session = one.session
    return {
        "id": session.id,
        "name": session.name,
        "strategy": str(session.strategy),
        "handle": session.handle,
        "endpoint": str(session.scope),
        "model": session.model,
        "head": session.head,
        "mark": session.mark,
        "items": one.items,
        "unacknowledged": one.waiting,
        "turns": one.turns,
        "response_id": session.link,
        "instructions": session.instructions,
        "created_at": session.created_at,
        "used_at": session.used_at,
        "first_words": one.words,
    }
