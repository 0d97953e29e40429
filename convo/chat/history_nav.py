"""Undo and redo in a conversation, and session records at an earlier turn.

Undo moves the head to the end of an earlier turn; links keep what came after it, so redo is
possible until something else is sent.
"""

from dataclasses import dataclass, replace

from convo.chat.conversation import Chat, find_adjacent_links, find_turn_end
from convo.chat.session_record import get_endpoint_handle
from convo.errors import InvalidUsage
from convo.history.items import Item, is_user_message
from convo.history.records import Link, Session, Strategy
from convo.history.tree import Key, Path
from convo.stores.base import Store
from convo.strategies.branching import rewind_to_depth
from convo.strategies.state import ConversationState


@dataclass(frozen=True, slots=True)
class UndoEntry:
    """A place that the head of a session left: what was held there, and where the head went."""

    session: str
    held: ConversationState
    last: Link | None
    went: Key


class UndoStack:
    """The places that the heads of the chats at one prompt have left, newest last."""

    def __init__(self) -> None:
        self._left: list[UndoEntry] = []

    async def back(self, chat: Chat, number: int | None = None) -> Path:
        """Go back to the end of a turn, or before the last one; returns the path that was left.

        number:  as `find_turn_end` has it
        raises:  as `Chat.take_back`
        """
        held, last = chat.reread(), chat.record.last
        await chat.take_back(number)
        self._left.append(UndoEntry(chat.session.id, held, last, chat.held.path.head))
        return held.path

    async def forward(self, chat: Chat) -> Path:
        """Take up again what was left last; returns the path as it was before.

        raises:  InvalidUsage  there is nothing
        """
        held = chat.reread()
        left = self._left[-1] if self._left else None
        if left is None or (left.session, left.went) != (chat.session.id, held.path.head):
            self._left.clear()
            raise InvalidUsage("nothing was taken back since the last message", hint="/inspect shows every branch")
        await chat.stand(left.held, left.last)
        self._left.pop()
        return held.path


def get_last_user_items(chat: Chat) -> tuple[Item, ...]:
    """What a person said last, one message or several. raises: InvalidUsage  nothing was"""
    items = chat.reread().path.items
    at = next((at for at in range(len(items), 0, -1) if is_user_message(items[at - 1])), 0)
    begins = at
    while begins and is_user_message(items[begins - 1]):
        begins -= 1
    if not at:
        raise InvalidUsage("nothing was said yet", hint="type a message")
    return items[begins:at]


async def make_session_at_turn(store: Store, session: Session, number: int) -> Session:
    """A session's record as it was at the end of a turn, to be forked there; nothing is stored.

    raises:  NotFound  there is no such turn;  InvalidUsage, WrongOwner  as `rewind_to_depth`; ItemDeleted
    """
    path = await store.path(session.head)
    at = find_turn_end(path.items, number)
    if at == len(path):
        return session
    last = await store.link(session.link) if session.link else None
    held = ConversationState(session.strategy, path, session.mark, get_endpoint_handle(session))
    began, before = await find_adjacent_links(path.first(at), last, store)
    back = rewind_to_depth(held, at, began)
    stands = before if at < path.place(session.mark) else last
    handle = session.handle if session.strategy is Strategy.REPLAY else back.handle
    return replace(session, head=back.path.head, mark=back.mark, handle=handle, link=stands.id if stands else None)
