"""Keeps runs of agents: what each step of one makes durable, together with the conversation.

A run's row, the ledger of its calls, the items that it adds and the head of its session move in one
change, so a kill leaves a run that fits its conversation. Where nothing but a result has come, only
the ledger is written; where the next calls start for it, the row moves on and its document, which
holds every call, stays: whoever reads it catches up by the ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from convo.agents import Graph
from convo.engine.chat import Chat
from convo.engine.finding import find
from convo.engine.open_runs import AGAIN, OPEN, entry
from convo.engine.record import Beside
from convo.engine.standing import Standing, View, read, written
from convo.errors import NotFound, Usage
from convo.history import Key, Path
from convo.items import Item, Json, is_call
from convo.run import (
    Append,
    Ask,
    CheckInput,
    CheckOutput,
    Effect,
    Judge,
    PausedInside,
    Phase,
    Returned,
    Run,
    Start,
    Tripped,
)
from convo.run import Event as Told
from convo.run.closing import closing
from convo.run.keeping import kept as as_document
from convo.run.keeping import taken
from convo.run.recovering import caught_up
from convo.run.state import ENDED, Stage
from convo.stores.contract import KEPT, AgentCall, AgentRun, Store
from convo.strategies import Held

Status = Literal["running", "paused", "done", "failed", "stopped"]

STATUS: Mapping[Phase, Status] = {
    Phase.PAUSED: "paused",
    Phase.DONE: "done",
    Phase.FAILED: "failed",
    Phase.STOPPED: "stopped",
}
"""How a row calls a phase; every other one is "running"."""

ORIGIN = "origin"
"""The member of a row's document that says how the application got its agents; only the application reads it."""

REPEATED = (CheckInput, CheckOutput, Judge)
"""Effects that do nothing twice, so nothing has to be durable before them."""


class Keeper:
    """Stores the runs of one chat, one after the other.

    kept:      the row of the run as it was stored last
    standing:  where the run stands in the conversation
    """

    def __init__(
        self, chat: Chat, kept: AgentRun | None, standing: Standing, origin: Mapping[str, Json] | None = None
    ) -> None:
        """Keep runs of `chat`; `origin` says how the application got its agents, None: as `kept` has it."""
        self.chat, self.kept, self.standing = chat, kept, standing
        self._origin = kept.document.get(ORIGIN) if kept and origin is None else origin
        self._started: dict[str, float] = {}

    @property
    def run_id(self) -> str:
        assert self.kept
        return self.kept.id

    @property
    def view(self) -> View | None:
        """What the model sees in place of the conversation as it is now."""
        view = self.standing.view
        return view.behind(self.chat.held.path) if view else None

    async def begin(
        self,
        run: Run,
        held: Held,
        said: Sequence[Item],
        view: View | None = None,
        *,
        asked: Key | None = None,
        state: str | None = None,
    ) -> None:
        """Store a new run together with the input that it begins with.

        said:   what `held` has just got
        asked:  where the input ended, when the run had begun elsewhere; None: where `held` does
        """
        self.kept, self._started = None, {}
        head = asked or held.path.head
        standing = Standing(head, head, view)
        row = self._row(run, standing, state)
        await self.chat.keep(held, said, Beside(row))
        self.kept, self.standing = row, standing

    async def commit(self, before: Run, run: Run, event: Told, effects: Sequence[Effect]) -> None:
        """Store what follows from `event`: nothing, a result, or the run with what it adds to the conversation."""
        ended = self._ended(before, event)
        repeated = all(isinstance(effect, REPEATED) for effect in effects)
        if repeated and run.phase not in ENDED and not isinstance(event, PausedInside):
            if ended:
                await self.chat.record.note(Beside(calls=ended))
            return
        held = self._left(before, run, event)
        held = replace(held, path=held.path.grow(appended(effects)))
        if run.phase in ENDED:
            held = replace(held, path=held.path.grow(closing(run, self._since(held.path))))
        standing = self._stands(held.path, effects, self.standing)
        row = self._moved() if self._only_starts(event, run, effects) else self._row(run, standing)
        await self.chat.record.move(held, beside=Beside(row, (*ended, *self._starts(run, effects))))
        self.kept, self.standing = row, standing

    async def keep(
        self, run: Run, *calls: AgentCall, standing: Standing | None = None, held: Held | None = None
    ) -> None:
        """Store the run as it is, with the ends of calls; with `held` the conversation moves there."""
        standing = standing or self.standing
        beside = Beside(self._row(run, standing), calls)
        await (self.chat.record.move(held, beside=beside) if held else self.chat.record.note(beside))
        self.kept, self.standing = beside.agent_run, standing

    def closed(
        self, run: Run, effects: Sequence[Effect], held: Held, output: tuple[Item, ...], seen: Path | None
    ) -> tuple[Beside, Standing]:
        """What is stored together with an answer, and where the run stands then.

        held:  the conversation with the answer
        seen:  the path that the answer's link stands on, where it is not the conversation's
        """
        ended = run.phase in ENDED
        then = appended(effects) + (closing(run, output) if ended else ())
        start = held.path.first(len(held.path) - len(output)).head
        view = self._view_after(held.path, output, seen)
        standing = Standing(self.standing.begun, start, view)
        standing = self._stands(held.path.grow(then), effects, standing)
        return Beside(self._row(run, standing), self._starts(run, effects), then), standing

    def call(self, run: Run, call_id: str, *, ended: bool = False, output: Json = None) -> AgentCall:
        """A call's entry in the ledger, from now on."""
        at = self._started.setdefault(_entry(run, call_id), self.chat.edges.clock.now())
        return AgentCall(self.run_id, _entry(run, call_id), at, ended, output)

    async def ledger(self, run: Run) -> dict[str, AgentCall]:
        """The calls of the run's last answer that started, in this process or another, by their ids."""
        calls = await self.chat.edges.store.calls(self.run_id)
        self._started = {call.call_id: call.started_at for call in calls}
        return _of_batch(run, calls)

    # -- pieces -----------------------------------------------------------------------------------

    def _row(self, run: Run, standing: Standing, state: str | None = None) -> AgentRun:
        edges, before = self.chat.edges, self.kept
        now, status = edges.clock.now(), STATUS.get(run.phase, "running")
        again = [call.id for call in run.at(Stage.READY) if _entry(run, call.id) in self._started]
        document = {**as_document(run), "standing": written(standing), AGAIN: again}
        if self._origin is not None:
            document[ORIGIN] = dict(self._origin)
        if before is None:
            before = AgentRun(edges.new_id("run"), self.chat.session.id, 0, status, document, now, now, state)
        return replace(before, revision=before.revision + 1, status=status, document=document, changed_at=now)

    def _moved(self) -> AgentRun:
        """The row as it is kept, one revision on."""
        assert self.kept
        now = self.chat.edges.clock.now()
        return replace(self.kept, revision=self.kept.revision + 1, document=KEPT, changed_at=now)

    def _only_starts(self, event: Told, run: Run, effects: Sequence[Effect]) -> bool:
        """Whether the ledger tells all that follows: calls start that never did before."""
        new = (isinstance(one, Start) and _entry(run, one.call.id) not in self._started for one in effects)
        return isinstance(event, Returned) and all(new)

    def _starts(self, run: Run, effects: Sequence[Effect]) -> tuple[AgentCall, ...]:
        return tuple(self.call(run, effect.call.id) for effect in effects if isinstance(effect, Start))

    def _ended(self, run: Run, event: Told) -> tuple[AgentCall, ...]:
        return (self.call(run, event.call_id, ended=True, output=event.output),) if isinstance(event, Returned) else ()

    def _left(self, before: Run, run: Run, event: Told) -> Held:
        """The conversation without what a guardrail does not let stand."""
        held = self.chat.held
        if not isinstance(event, Tripped):
            return held
        if before.phase is not Phase.CHECKING:
            return replace(held, path=held.path.upto(held.mark)) if held.remembers else held
        calls = any(is_call(item) for item in self._since(held.path))
        return (
            held
            if calls or held.remembers
            else replace(held, path=held.path.upto(self.standing.turn), mark=self.standing.turn)
        )

    def _since(self, path: Path) -> tuple[Item, ...]:
        """What was said since the model was last asked."""
        turn = self.standing.turn
        return tuple(node.item for node in path.after(turn)) if path.passes(turn) else ()

    def _stands(self, path: Path, effects: Sequence[Effect], standing: Standing) -> Standing:
        """Where the run stands, once the conversation is at `path`: what is asked now is answered behind it."""
        asks = any(isinstance(effect, Ask) for effect in effects)
        return replace(standing, turn=path.head, filtered=None) if asks else standing

    def _view_after(self, path: Path, output: tuple[Item, ...], seen: Path | None) -> View | None:
        """The view with an answer behind it; it has an anchor where the answer's link stands on it."""
        view = self.view
        if view is None:
            return None
        grown = view.path.grow(output)
        anchored = seen is not None and seen.head == grown.head
        return replace(view, path=grown, upto=path.head, anchor=(grown.head, path.head) if anchored else view.anchor)


def _entry(run: Run, call_id: str) -> str:
    return entry(run.turn, call_id)


def _of_batch(run: Run, calls: Sequence[AgentCall]) -> dict[str, AgentCall]:
    """The entries of the calls of the run's last answer, by their ids."""
    entries = {_entry(run, call.id): call.id for call in run.batch}
    return {entries[call.call_id]: call for call in calls if call.call_id in entries}


async def read_run(store: Store, row: AgentRun, graph: Graph) -> Run:
    """The run that a row is of, among the agents of `graph`. raises: as `convo.run.keeping.taken`"""
    run = taken(row.document, graph)
    if run.phase is not Phase.WORKING:
        return run
    known = _of_batch(run, await store.calls(row.id))
    again = row.document.get(AGAIN, ())
    started = {call_id for call_id in known if call_id not in again}
    return caught_up(run, started, {call_id: call.output for call_id, call in known.items() if call.ended})


def appended(effects: Sequence[Effect]) -> tuple[Item, ...]:
    return tuple(item for effect in effects if isinstance(effect, Append) for item in effect.items)


async def newest_of(chat: Chat) -> AgentRun | None:
    """The session's newest run, where it has not ended."""
    rows = await chat.edges.store.agent_runs(session=chat.session.id, limit=1)
    return rows[0] if rows and rows[0].status in OPEN else None


async def opened(chat: Chat, kept: AgentRun | None, origin: Mapping[str, Json] | None = None) -> Keeper:
    """What keeps a chat's runs, from `kept` on. raises: Usage  that one is another session's"""
    if kept and kept.session != chat.session.id:
        raise Usage(f"{kept.id} belongs to another session", hint="convo approvals")
    said = kept.document.get("standing") if kept else None
    return Keeper(chat, kept, await read(said, chat.held.path, chat.edges.store), origin)


async def kept_run(store: Store, handle: str) -> AgentRun:
    """The run that a handle names: its id or the beginning of it, or its session (then its newest).

    raises:  NotFound, AmbiguousHandle
    """
    named = await store.agent_run(handle)
    if named:
        return named
    found = await find(store, handle)
    begun = await store.agent_run(found.id) if found.kind == "run" else None
    rows = [begun] if begun else await store.agent_runs(session=found.id, limit=1)
    if not rows:
        raise NotFound("run", handle, hint="convo approvals")
    return rows[0]
