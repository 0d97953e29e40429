"""A conversation that this process has open for writing.

Input is committed at the head before anything is sent; `ChatTurn` does the rest. A replay file is
read before a turn and written after it, and edits made in between become part of the history.
A turn number in a handle is resolved to a position here: histories are cut between turns only.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from convo.chat.files import ReplayFile
from convo.chat.session_record import (
    NO_UPDATE,
    ChatDeps,
    RecordSnapshot,
    RunUpdate,
    SessionRecord,
    find_free_session_name,
    load_session_record,
    make_session_name,
)
from convo.chat.turn import ChatTurn, RequestOptions
from convo.compaction.window import turn_starts
from convo.errors import Conflict, ConvoError, NotCanonical, NotFound, Unreadable
from convo.history.items import Item, StreamEvent
from convo.history.records import Link, Session, Strategy
from convo.history.tree import Path
from convo.stores.base import Store
from convo.strategies.branching import rewind_to_depth, undo_last_answer, undo_last_turn
from convo.strategies.requests import is_unsent_request
from convo.strategies.state import ConversationState

if TYPE_CHECKING:
    from convo.inspect.view import ConversationView


NAME_ATTEMPTS = 5
"""Names tried for a new session; another process may take each of them first."""

HEAD_ATTEMPTS = 5
"""Attempts to replace a history; each fails when another process moves the head first."""


class Chat:
    """A session's conversation, opened for writing by one process.

    record:   the session's record; agent runs commit through it too
    options:  the request options of the next turn; may be replaced between turns
    turn:     the last turn, with its link and response
    notify:   called with a message for the user while a turn runs
    """

    def __init__(self, record: SessionRecord, asking: RequestOptions, edges: ChatDeps) -> None:
        self.asking, self.edges = asking, edges
        self.turn: ChatTurn | None = None
        self.noted: Callable[[str], None] = ignore_notice
        self.record = record
        replayed = record.session.strategy is Strategy.REPLAY and record.session.handle
        self._file = ReplayFile(replayed) if replayed else None
        self._read = record.held.path

    @property
    def session(self) -> Session:
        return self.record.session

    @property
    def held(self) -> ConversationState:
        return self.record.held

    async def catch_up(self) -> None:
        """Load the record again: another process may have changed it before this one got the lease."""
        now = await self.edges.store.session(self.session.id)
        if now and now != self.session:
            self.record = await load_session_record(now, self.edges)

    async def say(self, items: Sequence[Item], *, keep: bool = True) -> AsyncGenerator[StreamEvent, None]:
        """Append `items` to the conversation, send a request and yield the events of the response.

        keep_on_failure:  keep the items when no request could be sent; otherwise the record is restored
        Raises the errors of the endpoint and the store; the input stays unconfirmed.
        """
        held = self.reread()
        before = None if keep else self.record.before()
        doubt = bool(held.unacknowledged)
        grown = replace(held, path=held.path.grow(items))
        await self.keep(grown, items)
        async with aclosing(self._ask(doubt, before)) as events:
            async for event in events:
                yield event

    async def keep(self, held: ConversationState, said: Sequence[Item], beside: RunUpdate = NO_UPDATE) -> None:
        """Commit `state`, to which `new_items` were just added; a new session is named after the first of them."""
        if self.session.name or not said:
            await self._move(held, beside)
        else:
            await self._begin(held, make_session_name(said[0]), beside)

    async def again(self) -> AsyncGenerator[StreamEvent, None]:
        """Send the last input again, without the output after it. Raises InvalidUsage and the errors of `send`."""
        held = self.reread()
        doubt = bool(held.unacknowledged)
        back, last = undo_last_answer(held, self.record.last), self.record.last
        if back.mark != held.mark:
            _, last = await find_adjacent_links(back.path.upto(back.mark), last, self.edges.store)
        await self._go_back(back, last)
        async with aclosing(self._ask(doubt)) as events:
            async for event in events:
                yield event

    async def take_back(self, number: int | None = None) -> None:
        """Go back to the end of a turn, or to before the last one.

        turn_number:  as for `find_turn_end`
        Raises NotFound for an unknown turn, and the errors of `undo_last_turn` and `rewind_to_depth`:
        InvalidUsage and WrongOwner.
        """
        held, last = self.reread(), self.record.last
        at = find_last_turn_start(held, last) if number is None else find_turn_end(held.path.items, number)
        began, before = await find_adjacent_links(held.path.first(at), last, self.edges.store)
        await self.stand(rewind_to_depth(held, at, began), last if at >= held.path.place(held.mark) else before)

    async def stand(self, held: ConversationState, last: Link | None) -> None:
        """Move the head to `state`, whose last confirmed link is `last_link`."""
        await self._go_back(held, last)
        self._read = self.held.path
        await self.write()

    async def adopt(self) -> None:
        """Store the record of a conversation that has none yet. Raises StoreFault."""
        if not self.record.saved:
            held = self.reread()
            await self.keep(held, held.path.items)
            if self._file and not self._file.exists():
                await self.write()  # otherwise the next fork takes this file name

    async def exchange(
        self, decide: Callable[[ConversationState], ConversationState], made: Callable[[ConversationState], Link]
    ) -> None:
        """Replace the history by another in one commit.

        make_state:  returns the new state for the current one; called again after a conflict
        make_link:   returns, for the new state, the link of the call that produced it
        Raises Conflict when the head moves at every attempt, StoreFault, and the errors of `make_state`.
        """
        for left in reversed(range(HEAD_ATTEMPTS)):
            await self.catch_up()
            held = decide(self.reread())
            await self._count_as_written()
            link = made(held)
            try:
                await self.record.move(held, link, last=link)
                break
            except Conflict:
                if not left:
                    raise
        self._read = self.held.path
        await self.write()

    async def _count_as_written(self) -> None:
        """Record that the file equals the history: a kill before the next write is then no edit of the file."""
        if not self._file or self.session.written == self.held.path.head:
            return
        if Path(self.held.path.root).grow(self._file.said()).head == self.held.path.head:
            await self._move(self.held)
            self.record.session = replace(self.session, written=self.held.path.head)

    def reread(self) -> ConversationState:
        """Return the current state, with the edits made to the replay file.

        Raises Unreadable when the file cannot be read and StoreReadOnly when it could not be written.
        """
        if self._file:
            self._file.check()
            if self._file.changed():
                self._take_up(self._file)
        self._read = self.record.held.path
        return self.record.held

    def _take_up(self, file: ReplayFile) -> None:
        """Apply the content of the file to the record.

        A file that equals the history counts as written, although a kill may have prevented the record from noting
        it. A file that equals its last written version is not edited: newer items are in the record alone.
        """
        record = self.record
        try:
            path = Path(record.held.path.root).grow(file.said())
        except NotCanonical as wrong:
            raise Unreadable(f"{file.place}: {wrong.message}") from wrong
        if path.head == record.held.path.head:
            record.session = replace(record.session, written=path.head if path else None)
        elif path.head != (record.session.written or path.root):
            record.held = replace(record.held, path=path, mark=path.head)

    async def _ask(self, doubt: bool, before: RecordSnapshot | None = None) -> AsyncGenerator[StreamEvent, None]:
        turn = self.turn = ChatTurn(self.record, self.asking, self.edges, doubt=doubt, noted=self.noted)
        withdrawn = False
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        except ConvoError as failure:
            if before and turn.tries < 2 and is_unsent_request(failure):
                await self._withdraw(before, turn.link)
                withdrawn = True
            raise
        finally:
            if not withdrawn:
                await self.write()

    async def _withdraw(self, before: RecordSnapshot, attempt: Link | None) -> None:
        """Restore the record to before an input for which no request could be sent."""
        made = self.held.handle if self.session.strategy is Strategy.CONVERSATION and not before.held.handle else None
        await self.record.withdraw(before, attempt)
        self.turn = None
        if made:
            with suppress(ConvoError):
                await self.edges.endpoint.delete_conversation(made)

    async def _begin(self, held: ConversationState, wish: str, beside: RunUpdate = NO_UPDATE) -> None:
        """Store a new session under a free name; another process may take the name in between."""
        for left in reversed(range(NAME_ATTEMPTS)):
            self.record.session = replace(self.session, name=await find_free_session_name(self.edges.store, wish))
            try:
                await self._move(held, beside)
                break
            except Conflict:
                if not left:
                    raise

    async def _go_back(self, held: ConversationState, last: Link | None) -> None:
        """Commit `state`, from which the next turn continues; `last_link` is its last confirmed link."""
        before, self.record.last = self.record.last, last
        try:
            await self._move(held)
        except ConvoError:
            self.record.last = before
            raise

    async def _move(self, held: ConversationState, beside: RunUpdate = NO_UPDATE) -> None:
        self.record.session = replace(
            self.session,
            model=self.asking.model,
            instructions=self.asking.instructions,
            scope=self.edges.endpoint.scope,
        )
        await self.record.move(held, beside=beside)

    async def write(self) -> None:
        """Write the replay file, and record the head that was written."""
        if not self._file or self.session.written == self.held.path.head or not await self.record.is_ours():
            return
        if self._file.changed():
            await self._move(merge_file_edits(self.held, self._read, self._file.said()))
            self.noted(f"{self._file.place} was changed while the answer came; both are kept")
        self._file.write(self.held.path.items)
        await self.record.update(replace(self.session, written=self.held.path.head))


def ignore_notice(words: str) -> None:
    """Ignore a notice."""


def merge_file_edits(held: ConversationState, read: Path, items: Sequence[Item]) -> ConversationState:
    """Return the state after `items` replaced `path_read` in the replay file during a turn."""
    said = held.path.items[held.path.shared(read) :]
    path = Path(held.path.root).grow(items).grow(said)
    confirmed = len(path) - min(len(held.unacknowledged), len(said))
    return replace(held, path=path, mark=path.first(confirmed).head)


def find_turn_end(items: Sequence[Item], number: int) -> int:
    """Return the number of items before the end of a turn.

    turn_number:  from 1; 0 is the beginning, -1 the end of the last turn but one
    Raises NotFound when there are fewer turns.
    """
    ends = [*turn_starts(items), len(items)] if items else [0]
    many = len(ends) - 1
    at = number if number >= 0 else many + number
    if not 0 <= at <= many:
        raise NotFound("turn", str(number), hint=f"choose a turn from 0, the beginning, to {many}, the last")
    return ends[at]


async def find_adjacent_links(cut: Path, last: Link | None, store: Store) -> tuple[Link | None, Link | None]:
    """Return the link after the end of `path` and the one before it, on the branch that ends with `last_link`."""
    keys = {cut.root, *cut.keys}
    began: Link | None = None
    seen: set[str] = set()
    while last is not None and last.head not in keys and last.id not in seen:
        seen.add(last.id)
        began, last = last, await store.link(last.parent) if last.parent else None
    return began, last


def find_last_turn_start(held: ConversationState, last: Link | None) -> int:
    """Return the depth at which the last turn begins; unconfirmed items are undone before it."""
    at = len(undo_last_turn(held, last).path)
    return max((place for place in turn_starts(held.path.items) if place <= at), default=0)


def get_items_up_to_turn(known: "ConversationView", number: int | None) -> tuple[Item, ...]:
    """Return the items up to the end of a turn; all of them for None. Raises NotFound."""
    items = known.path.items
    return items if number is None else items[: find_turn_end(items, number)]
