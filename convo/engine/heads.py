"""Where a conversation's head has been, and how it gets back there.

Going back moves the head to a place between two turns and leaves everything behind it where it is:
the links that were made there keep it, and whoever went back can go forward again, until something
else is said. A fork is the same, in a session of its own.
"""

from dataclasses import dataclass, replace

from convo.engine.chat import Chat
from convo.engine.record import handle_of
from convo.engine.turning import after_turn, around
from convo.errors import Usage
from convo.history import Key, Link, Path, Session, Strategy
from convo.items import Item, is_user
from convo.stores.contract import Store
from convo.strategies import Held, rewind


@dataclass(frozen=True, slots=True)
class Left:
    """A place that the head of a session left: what was held there, and where the head went."""

    session: str
    held: Held
    last: Link | None
    went: Key


class Heads:
    """The places that the heads of the chats at one prompt have left, newest last."""

    def __init__(self) -> None:
        self._left: list[Left] = []

    async def back(self, chat: Chat, number: int | None = None) -> Path:
        """Go back to the end of a turn, or before the last one; returns the path that was left.

        number:  as `after_turn` has it
        raises:  as `Chat.take_back`
        """
        held, last = chat.reread(), chat.record.last
        await chat.take_back(number)
        self._left.append(Left(chat.session.id, held, last, chat.held.path.head))
        return held.path

    async def forward(self, chat: Chat) -> Path:
        """Take up again what was left last; returns the path as it was before. raises: Usage  there is nothing"""
        held = chat.reread()
        left = self._left[-1] if self._left else None
        if left is None or (left.session, left.went) != (chat.session.id, held.path.head):
            self._left.clear()
            raise Usage("nothing was taken back since the last message", hint="/inspect shows every branch")
        await chat.stand(left.held, left.last)
        self._left.pop()
        return held.path


def last_said(chat: Chat) -> tuple[Item, ...]:
    """What a person said last, one message or several. raises: Usage  nothing was"""
    items = chat.reread().path.items
    at = next((at for at in range(len(items), 0, -1) if is_user(items[at - 1])), 0)
    begins = at
    while begins and is_user(items[begins - 1]):
        begins -= 1
    if not at:
        raise Usage("nothing was said yet", hint="type a message")
    return items[begins:at]


async def standing_at(store: Store, session: Session, number: int) -> Session:
    """A session's record as it was at the end of a turn, to be forked there; nothing is stored.

    raises:  NotFound  there is no such turn;  Usage, WrongOwner  as `rewind`; ItemDeleted
    """
    path = await store.path(session.head)
    at = after_turn(path.items, number)
    if at == len(path):
        return session
    last = await store.link(session.link) if session.link else None
    held = Held(session.strategy, path, session.mark, handle_of(session))
    began, before = await around(path.first(at), last, store)
    back = rewind(held, at, began)
    stands = before if at < path.place(session.mark) else last
    handle = session.handle if session.strategy is Strategy.REPLAY else back.handle
    return replace(session, head=back.path.head, mark=back.mark, handle=handle, link=stands.id if stands else None)
