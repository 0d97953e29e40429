"""A session at a glance, for lists of them."""

from dataclasses import dataclass

from convo.history import Session
from convo.items import Item, first_words, is_user
from convo.stores.contract import Store

ANSWERED = ("completed", "incomplete")


@dataclass(frozen=True, slots=True)
class Outline:
    """What a list says of a session.

    items:    how many lead to its head
    waiting:  those of them that its owner has not confirmed
    turns:    how many answers it got
    words:    the first words that a user said in it
    """

    session: Session
    items: int
    waiting: tuple[Item, ...]
    turns: int
    words: str


async def outline(store: Store, session: Session) -> Outline:
    """What there is to say of `session`. raises: ItemDeleted, StoreFault"""
    path = await store.path(session.head)
    made = await store.links(session.id)
    first = next((node.item for node in path.nodes if is_user(node.item)), path.nodes[0].item if path.nodes else None)
    return Outline(
        session=session,
        items=len(path),
        waiting=tuple(node.item for node in path.after(session.mark)),
        turns=sum(link.status in ANSWERED for link in made),
        words=first_words(first) if first else "",
    )
