"""Undo and redo in a conversation, and session records at an earlier turn.

Undo moves the head to the end of an earlier turn; links keep the later nodes, so redo is
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
    """Undo entry: the state of a session before its head moved.

    new_head:  the head after the move
    """

    session: str
    held: ConversationState
    last: Link | None
    went: Key


class UndoStack:
    """The undo entries of the chats of one prompt, newest last."""

    def __init__(self) -> None:
        self._left: list[UndoEntry] = []

    async def back(self, chat: Chat, number: int | None = None) -> Path:
        """Go back to the end of a turn, or to before the last one; return the path before that.

        turn_number:  as for `find_turn_end`
        Raises the errors of `Chat.undo`.
        """
        held, last = chat.reread(), chat.record.last
        await chat.take_back(number)
        self._left.append(UndoEntry(chat.session.id, held, last, chat.held.path.head))
        return held.path

    async def forward(self, chat: Chat) -> Path:
        """Restore the state of the newest undo entry; return the path before that.

        Raises InvalidUsage when there is none.
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
    """Return the last user messages, one or several in a row. Raises InvalidUsage when there is none."""
    items = chat.reread().path.items
    at = next((at for at in range(len(items), 0, -1) if is_user_message(items[at - 1])), 0)
    begins = at
    while begins and is_user_message(items[begins - 1]):
        begins -= 1
    if not at:
        raise InvalidUsage("nothing was said yet", hint="type a message")
    return items[begins:at]


async def make_session_at_turn(store: Store, session: Session, number: int) -> Session:
    """Return a session's record as of the end of a turn, for a fork from there; nothing is stored.

    Raises NotFound for an unknown turn, ItemDeleted, and the InvalidUsage and WrongOwner of `rewind_to_depth`.
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
