"""Undo and redo in a conversation, and session records at an earlier turn.

Undo moves the head to the end of an earlier turn; links keep the later nodes, so redo is
possible until something else is sent.
"""

from dataclasses import dataclass, replace

from convo.chat.conversation import Chat, find_adjacent_links, find_turn_end
from convo.errors import InvalidUsage
from convo.history.items import Item, is_user_message
from convo.history.records import Link, Session
from convo.history.tree import Key, Path
from convo.stores.base import Store
from convo.strategies.branching import rewind_to_depth
from convo.strategies.state import ConversationState


@dataclass(frozen=True, slots=True)
class UndoEntry:
    """Undo entry: the state of a session before its head moved.

    new_head:  the head after the move
    """

    session_id: str
    state: ConversationState
    last_link: Link | None
    new_head: Key


class UndoStack:
    """The undo entries of the chats of one prompt, newest last."""

    def __init__(self) -> None:
        self._entries: list[UndoEntry] = []

    async def undo(self, chat: Chat, turn_number: int | None = None) -> Path:
        """Go back to the end of a turn, or to before the last one; return the path before that.

        turn_number:  as for `find_turn_end`
        Raises the errors of `Chat.undo`.
        """
        held, last = chat.load_state(), chat.record.last_link
        await chat.undo(turn_number)
        self._entries.append(UndoEntry(chat.session.id, held, last, chat.state.path.head))
        return held.path

    async def redo(self, chat: Chat) -> Path:
        """Restore the state of the newest undo entry; return the path before that.

        Raises InvalidUsage when there is none.
        """
        held = chat.load_state()
        left = self._entries[-1] if self._entries else None
        if left is None or (left.session_id, left.new_head) != (chat.session.id, held.path.head):
            self._entries.clear()
            raise InvalidUsage("nothing to redo: no undo since the last message", hint="/inspect shows every branch")
        await chat.set_head(left.state, left.last_link)
        self._entries.pop()
        return held.path


def get_last_user_items(chat: Chat) -> tuple[Item, ...]:
    """Return the last user messages, one or several in a row. Raises InvalidUsage when there is none."""
    items = chat.load_state().path.items
    at = next((at for at in range(len(items), 0, -1) if is_user_message(items[at - 1])), 0)
    begins = at
    while begins and is_user_message(items[begins - 1]):
        begins -= 1
    if not at:
        raise InvalidUsage("the conversation has no message yet", hint="type a message")
    return items[begins:at]


async def make_session_at_turn(store: Store, session: Session, turn_number: int) -> Session:
    """Return a session's record as of the end of a turn, for a fork from there; nothing is stored.

    Raises NotFound for an unknown turn, ItemDeleted, and the InvalidUsage and WrongOwner of `rewind_to_depth`.
    """
    path = await store.path(session.head)
    at = find_turn_end(path.items, turn_number)
    if at == len(path):
        return session
    last = await store.link(session.link_id) if session.link_id else None
    held = ConversationState(session.strategy, path, session.confirmed_head, session.handle)
    began, before = await find_adjacent_links(path.first(at), last, store)
    back = rewind_to_depth(held, at, began)
    stands = before if at < path.depth(session.confirmed_head) else last
    return replace(
        session,
        head=back.path.head,
        confirmed_head=back.confirmed_head,
        handle=back.handle,
        link_id=stands.id if stands else None,
    )
