"""A session at a glance, for lists of them."""

from dataclasses import dataclass

from convo.errors import ItemDeleted
from convo.history import Session
from convo.items import Item, first_words, is_user
from convo.stores.contract import Store

ANSWERED = ("completed", "incomplete")


@dataclass(frozen=True, slots=True)
class Outline:
    """What a list says of a session.

    items:    how many lead to its head; None when one of them was deleted
    waiting:  those of them that its owner has not confirmed
    turns:    how many answers it got
    words:    the first words that a user said in it
    """

    session: Session
    items: int | None
    waiting: tuple[Item, ...]
    turns: int
    words: str


async def outline(store: Store, session: Session) -> Outline:
    """What there is to say of `session`. raises: StoreFault"""
    turns = sum(link.status in ANSWERED for link in await store.links(session.id))
    try:
        path = await store.path(session.head)
    except ItemDeleted as gone:
        return Outline(session, None, (), turns, gone.message)
    first = next((node.item for node in path.nodes if is_user(node.item)), path.nodes[0].item if path.nodes else None)
    waiting = tuple(node.item for node in path.after(session.mark))
    return Outline(session, len(path), waiting, turns, first_words(first) if first else "")
