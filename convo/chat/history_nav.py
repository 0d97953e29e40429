"""Undo and redo in a conversation, and session records at an earlier turn.

Undo moves the head to the end of an earlier turn; links keep the later nodes, so redo is
possible until something else is sent.
"""

from dataclasses import replace
from typing import NamedTuple

from convo.chat.conversation import Chat, find_adjacent_links, find_turn_end
from convo.errors import InvalidUsage
from convo.history.items import Item, is_user_message
from convo.history.records import Link, Session
from convo.history.tree import Key, Path
from convo.stores.base import Store
from convo.strategies.branching import rewind_to_depth
from convo.strategies.strategy import ConversationState, compaction_depth, last_user_depth


class UndoEntry(NamedTuple):
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
        state, last_link = chat.load_state(), chat.record.last_link
        await chat.undo(turn_number)
        self._entries.append(UndoEntry(chat.session.id, state, last_link, chat.state.path.head))
        return state.path

    async def redo(self, chat: Chat) -> Path:
        """Restore the state of the newest undo entry; return the path before that.

        Raises InvalidUsage when there is none.
        """
        state = chat.load_state()
        entry = self._entries[-1] if self._entries else None
        if entry is None or (entry.session_id, entry.new_head) != (chat.session.id, state.path.head):
            self._entries.clear()
            raise InvalidUsage("nothing to redo: no undo since the last message", hint="/inspect shows every branch")
        await chat.set_head(entry.state, entry.last_link)
        self._entries.pop()
        return state.path


def get_last_user_items(chat: Chat) -> tuple[Item, ...]:
    """Return the last user messages, one or several in a row, after the last compaction.

    Raises InvalidUsage when there is none: an undo ends at a compaction, and its summary is no message of the user.
    """
    path = chat.load_state().path
    least_depth = compaction_depth(path)
    end = start = last_user_depth(path)
    # The messages that a compaction kept, and its summary, are user messages in a row: /edit sent them again.
    while start > least_depth and is_user_message(path.nodes[start - 1].item):
        start -= 1
    if start == end:
        since = "since the compaction" if least_depth else "yet"
        raise InvalidUsage(f"the conversation has no message {since}", hint="type a message")
    return path.items[start:end]


async def make_session_at_turn(store: Store, session: Session, turn_number: int) -> Session:
    """Return a session's record as of the end of a turn, for a fork from there; nothing is stored.

    Raises NotFound for an unknown turn, ItemDeleted, and the InvalidUsage and WrongOwner of `rewind_to_depth`.
    """
    path = await store.path(session.head)
    depth = find_turn_end(path.items, turn_number)
    if depth == len(path):
        return session
    last_link = await store.link(session.link_id) if session.link_id else None
    state = ConversationState(session.strategy, path, session.confirmed_head, session.handle)
    link_after, link_before = await find_adjacent_links(path.first(depth), last_link, store)
    new_state = rewind_to_depth(state, depth, link_after)
    confirmed_link = link_before if depth < path.depth(session.confirmed_head) else last_link
    return replace(
        session,
        head=new_state.path.head,
        confirmed_head=new_state.confirmed_head,
        handle=new_state.handle,
        link_id=confirmed_link.id if confirmed_link else None,
    )
