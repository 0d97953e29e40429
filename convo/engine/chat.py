"""One conversation while it is open: what a person may do with it.

Input is stored at the head before anything is sent; a turn does the rest. For a replayed
conversation the file is read before a turn and written after it, and what people changed in
between is what was said.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from convo.engine.edges import Edges
from convo.engine.naming import free_name, name_for
from convo.engine.record import NOTHING, Before, Beside, Record, reopened
from convo.engine.replay_file import ReplayFile
from convo.engine.turn import Asking, Turn
from convo.engine.turning import after_turn, around, before_the_last
from convo.errors import Conflict, ConvoError, NotCanonical, Unreadable
from convo.history import Link, Path, Session, Strategy
from convo.items import Event, Item
from convo.strategies import Held, never_asked, retry, rewind

NAMES = 5
"""Names that are tried for a new session, each of which another process may take first."""

HEADS = 5
"""How often a history is exchanged for another, each time that another process moves the head first."""


class Chat:
    """A session's conversation, opened for writing by one process.

    record:  the session's record, which runs of agents move as well
    asking:  how the next turn asks; may be exchanged between turns
    turn:    the last turn, with its link and response
    noted:   told in words what a person should know while a turn is under way
    """

    def __init__(self, record: Record, asking: Asking, edges: Edges) -> None:
        self.asking, self.edges = asking, edges
        self.turn: Turn | None = None
        self.noted: Callable[[str], None] = unheard
        self.record = record
        replayed = record.session.strategy is Strategy.REPLAY and record.session.handle
        self._file = ReplayFile(replayed) if replayed else None
        self._read = record.held.path

    @property
    def session(self) -> Session:
        return self.record.session

    @property
    def held(self) -> Held:
        return self.record.held

    async def catch_up(self) -> None:
        """Read the record again: until this process might write, another one may have gone on with it."""
        now = await self.edges.store.session(self.session.id)
        if now and now != self.session:
            self.record = await reopened(now, self.edges)

    async def say(self, items: Sequence[Item], *, keep: bool = True) -> AsyncGenerator[Event, None]:
        """Add `items` to the conversation and ask; yields the events of the answer.

        keep:    keep them also when nobody could be asked; else everything is as before then
        raises:  what the endpoint or the store answered; the input stays, unacknowledged
        """
        held = self.reread()
        before = None if keep else self.record.before()
        doubt = bool(held.unacknowledged)
        grown = replace(held, path=held.path.grow(items))
        await self.keep(grown, items)
        async with aclosing(self._ask(doubt, before)) as events:
            async for event in events:
                yield event

    async def keep(self, held: Held, said: Sequence[Item], beside: Beside = NOTHING) -> None:
        """Store `held`, in which `said` has just been said; a new session gets its name from it."""
        if self.session.name or not said:
            await self._move(held, beside)
        else:
            await self._begin(held, name_for(said[0]), beside)

    async def again(self) -> AsyncGenerator[Event, None]:
        """Ask the last input alone again, without what came after it. raises: as `say`; Usage"""
        held = self.reread()
        doubt = bool(held.unacknowledged)
        back, last = retry(held, self.record.last), self.record.last
        if back.mark != held.mark:
            _, last = await around(back.path.upto(back.mark), last, self.edges.store)
        await self._go_back(back, last)
        async with aclosing(self._ask(doubt)) as events:
            async for event in events:
                yield event

    async def take_back(self, number: int | None = None) -> None:
        """Go back to the end of a turn, or before the last one.

        number:  as `after_turn` has it
        raises:  NotFound  there is no such turn;  Usage, WrongOwner  as `undo` and `rewind`
        """
        held, last = self.reread(), self.record.last
        at = before_the_last(held, last) if number is None else after_turn(held.path.items, number)
        began, before = await around(held.path.first(at), last, self.edges.store)
        await self.stand(rewind(held, at, began), last if at >= held.path.place(held.mark) else before)

    async def stand(self, held: Held, last: Link | None) -> None:
        """Let the head stand at `held`, whose last confirmed link is `last`."""
        await self._go_back(held, last)
        self._read = self.held.path
        await self.write()

    async def adopt(self) -> None:
        """Store the record of a conversation that has none yet, as its owner holds it. raises: StoreFault"""
        if not self.record.saved:
            held = self.reread()
            await self.keep(held, held.path.items)
            if self._file and not self._file.exists():
                await self.write()  # or the next fork would take its place

    async def exchange(self, decide: Callable[[Held], Held], made: Callable[[Held], Link]) -> None:
        """Let another history stand in place of the one that is held, in one change.

        decide:  says what stands there instead, told what is held at that moment; it may be asked again
        made:    the link of the call that it comes from, told what stands there afterwards
        raises:  Conflict  the head would not hold still;  what `decide` raises;  StoreFault
        """
        for left in reversed(range(HEADS)):
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
        """Let the record know that the file says what is held: then a kill before it is written again is no edit."""
        if not self._file or self.session.written == self.held.path.head:
            return
        if Path(self.held.path.root).grow(self._file.said()).head == self.held.path.head:
            await self._move(self.held)
            self.record.session = replace(self.session, written=self.held.path.head)

    def reread(self) -> Held:
        """The conversation as it stands, with what people changed in the replay file.

        raises:  Unreadable, StoreReadOnly  the file cannot be read, or could not be written
        """
        if self._file:
            self._file.check()
            if self._file.changed():
                self._take_up(self._file)
        self._read = self.record.held.path
        return self.record.held

    def _take_up(self, file: ReplayFile) -> None:
        """Go on from what the file says.

        One that says what is held counts as written, though a kill kept the record from knowing. One
        that says what was last written is not edited: what was said since stands in the record alone.
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

    async def _ask(self, doubt: bool, before: Before | None = None) -> AsyncGenerator[Event, None]:
        turn = self.turn = Turn(self.record, self.asking, self.edges, doubt=doubt, noted=self.noted)
        withdrawn = False
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        except ConvoError as failure:
            if before and turn.tries < 2 and never_asked(failure):
                await self._withdraw(before, turn.link)
                withdrawn = True
            raise
        finally:
            if not withdrawn:
                await self.write()

    async def _withdraw(self, before: Before, attempt: Link | None) -> None:
        """Let everything be as it was before something was said for which nobody could be asked."""
        made = self.held.handle if self.session.strategy is Strategy.CONVERSATION and not before.held.handle else None
        await self.record.withdraw(before, attempt)
        self.turn = None
        if made:
            with suppress(ConvoError):
                await self.edges.endpoint.delete_conversation(made)

    async def _begin(self, held: Held, wish: str, beside: Beside = NOTHING) -> None:
        """Store a new session under a free name; another process may take one while it is looked for."""
        for left in reversed(range(NAMES)):
            self.record.session = replace(self.session, name=await free_name(self.edges.store, wish))
            try:
                await self._move(held, beside)
                break
            except Conflict:
                if not left:
                    raise

    async def _go_back(self, held: Held, last: Link | None) -> None:
        """Store `held`, from which the next turn goes on; `last` is its last confirmed link."""
        before, self.record.last = self.record.last, last
        try:
            await self._move(held)
        except ConvoError:
            self.record.last = before
            raise

    async def _move(self, held: Held, beside: Beside = NOTHING) -> None:
        self.record.session = replace(
            self.session,
            model=self.asking.model,
            instructions=self.asking.instructions,
            scope=self.edges.endpoint.scope,
        )
        await self.record.move(held, beside=beside)

    async def write(self) -> None:
        """Write the replay file, and remember that it was written."""
        if not self._file or self.session.written == self.held.path.head or not await self.record.is_ours():
            return
        if self._file.changed():
            await self._move(merged(self.held, self._read, self._file.said()))
            self.noted(f"{self._file.place} was changed while the answer came; both are kept")
        self._file.write(self.held.path.items)
        await self.record.update(replace(self.session, written=self.held.path.head))


def unheard(words: str) -> None:
    """Nobody asked to be told."""


def merged(held: Held, read: Path, items: Sequence[Item]) -> Held:
    """What is held once `items` stand in the replay file where `read` stood when the turn began."""
    said = held.path.items[held.path.shared(read) :]
    path = Path(held.path.root).grow(items).grow(said)
    confirmed = len(path) - min(len(held.unacknowledged), len(said))
    return replace(held, path=path, mark=path.first(confirmed).head)
