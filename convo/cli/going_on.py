"""Goes on with a paused run: from a state that somebody wrote, or from the store.

A document is gone on with once. One process at a time may do it on one store; a document whose run
is there already is found by its content, or by the mark that convo's own have, and that run is gone
on with, or refused where it has ended. The agents are needed here, and have to be the ones of before.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from convo.cli.choosing import ALL
from convo.cli.conduct import Cast, cast_of
from convo.cli.desk import Asked, Desk, Out
from convo.cli.paused_files import run_in
from convo.cli.pauses import Pauses, values_in
from convo.cli.run_flags import RunFlags
from convo.cli.running import Show, told
from convo.cli.verdicts import Said, choices_of, events_of
from convo.cli.wiring import store_of
from convo.config import Flags, Sources, read, resolve
from convo.engine.chat import Chat
from convo.engine.lease import resuming
from convo.engine.running import Running, kept_run
from convo.errors import Busy, StateFault
from convo.history import Strategy
from convo.items import Item, call_id, hash_of, is_output, kind
from convo.run import Decided, Given, decide, inbox
from convo.run.state import ENDED, Run, Stage
from convo.runstate import State
from convo.runstate.taking import Taken, taken
from convo.runstate.values import described
from convo.stores.contract import AgentRun, Store

ENDS = ("done", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Resuming:
    """What is gone on with and how.

    state:   the document; None: `handle` names a run in the store
    handle:  as it was typed
    """

    handle: str
    state: State | None
    said: Said
    run: RunFlags
    model: str | None = None
    config: Path | None = None


async def resume(asked: Resuming, out: Out) -> int:
    """Go on until the run ends or waits for somebody; returns the exit code. raises: as its parts do"""
    cast = cast_of(asked.run, held=described(asked.state.document) if asked.state else None)
    sources = read(asked.config, Flags(model=cast.model if asked.model is None else asked.model))
    async with store_of(resolve(sources)) as store, AsyncExitStack() as open_things:
        cast = cast.asked_alike() if asked.model else cast
        opening = Opening(asked, sources, store, open_things, out)
        return await _perform(await opening.show(cast), asked, out)


class Opening:
    """Opens the run that is gone on with."""

    def __init__(self, asked: Resuming, sources: Sources, store: Store, open_things: AsyncExitStack, out: Out) -> None:
        self._asked, self._sources, self._store = asked, sources, store
        self._open_things, self._out = open_things, out

    async def show(self, cast: Cast) -> Show:
        """The run, with nothing performed. raises: NotFound, BadState, Busy, StateFault, ..."""
        state = self._asked.state
        if state is None:
            return await self._kept(await kept_run(self._store, self._asked.handle), cast)
        hold = await resuming(self._store, hash_of(state.document), self._asked.handle)
        self._open_things.push_async_callback(hold.release)
        row = await _known(self._store, state)
        if row is None:
            return await self._adopted(state, cast)
        _check_same(row, state, cast.words)
        show = await self._kept(row, cast)
        decided = {one.call_id for one in state.decisions} if run_in(state) else set()
        if show.running.pending:
            choices_of(self._asked.said, [one for one in _waiting(show.running.run) if one.call_id not in decided])
        await _take_over(show.running, state)
        return show

    async def _kept(self, row: AgentRun, cast: Cast) -> Show:
        session = await self._store.session(row.session)
        name = session.name if session else row.session
        if row.status in ENDS:
            raise StateFault(
                f"the run of {self._asked.handle} has ended here ({row.status})", hint=f"convo inspect {quote(name)}"
            )
        desk = self._desk(handle=row.session)
        chat = await _opened(desk)
        cast = cast if self._asked.model else cast.routed(desk.route)
        if self._asked.run.context is None:
            cast = cast.with_values(values_in(row, desk.paused, self._asked.state))
        running = await Running.open(chat, cast.graph, cast.conduct, kept=row)
        return Show(chat, running, cast, self._pauses(desk, cast), desk, self._out)

    async def _adopted(self, state: State, cast: Cast) -> Show:
        """A run from elsewhere, kept here from now on; what the flags say of it is looked at first."""
        values = dict(cast.conduct.values) if self._asked.run.context else None
        found = taken(state, cast.graph, values)
        if found.run.phase in ENDED:
            raise StateFault(f"the run of {self._asked.handle} has ended", hint="convo inspect shows what it came to")
        choices_of(self._asked.said, _waiting(found.run))
        desk = self._desk(*_owner(found))
        chat = await _opened(desk)
        cast = cast if self._asked.model else cast.routed(desk.route)
        cast = cast.with_values(found.values)
        run, items = found.run, found.items
        if self._asked.run.max_turns is not None:
            run = replace(run, limits=cast.conduct.limits)
        if found.handle:
            held = chat.held
            chat.record.held = replace(held, path=held.path.grow(items[found.acknowledged :]))
            items = ()
        running = await Running.adopt(chat, run, items, cast.conduct, state=found.source)
        pauses = self._pauses(desk, cast)
        assert running.kept
        pauses.base(running.kept.id, state)
        return Show(chat, running, cast, pauses, desk, self._out)

    def _desk(self, strategy: Strategy | None = None, handle: str | None = None) -> Desk:
        asked = Asked(
            strategies=(strategy,) if strategy else (),
            handle=handle,
            model=self._asked.model,
            config=self._asked.config,
            run=self._asked.run,
        )
        return Desk(self._sources, self._store, self._open_things, asked, self._out)

    def _pauses(self, desk: Desk, cast: Cast) -> Pauses:
        return Pauses(desk.paused, self._asked.run.state, dict(cast.conduct.values), self._out.note)


async def _opened(desk: Desk) -> Chat:
    try:
        return await desk.open()
    except Busy as busy:
        raise Busy(busy.name, busy.holder, hint="it goes on there; wait until it has ended") from busy


def _owner(found: Taken) -> tuple[Strategy, str | None]:
    return found.strategy, found.handle


async def _known(store: Store, state: State) -> AgentRun | None:
    """The run that a document is of, where this store has it."""
    own = run_in(state)
    row = await store.agent_run(own) if own else None
    if row:
        return row
    rows = await store.agent_runs(state=hash_of(state.document), limit=1)
    return rows[0] if rows else None


def _check_same(row: AgentRun, state: State, agents: str) -> None:
    """raises: StateFault  a document of convo's own is older than the run that it is of"""
    if row.status in ENDS or run_in(state) != row.id:
        return
    waits = {call["id"] for call in row.document.get("batch", ())}
    if not {one.id for one in state.pending} <= waits or state.document["current_turn"] != row.document.get("turn"):
        raise StateFault(
            f"this is how {row.id} stood at an earlier pause, and it went on since",
            hint=f"convo resume {row.id} --agent {quote(agents)}",
        )


async def _take_over(running: Running, state: State) -> None:
    """Decide as the document does on what still waits here: somebody decided on it elsewhere.

    A call that has started since is another question: nobody who decided before could know of it.
    """
    if run_in(state) is None:
        return
    shown = {one.id: str(one.call.arguments) for one in state.pending}
    run, events = running.run, list[Decided]()
    for said in state.decisions:
        waits = (call for call in run.pending if call.id == said.call_id and call.stage is Stage.WAITING)
        call = next(waits, None)
        if call is None:  # one for good may speak for several
            continue
        edited = shown.get(call.id) if said.approve and shown.get(call.id) != call.arguments else None
        message = None if said.approve else said.message
        events.append(Decided(call.id, said.approve, message, said.always and edited is None, edited))
        run, _ = decide(run, events[-1])
    if events:
        await running.decide(*events)


# -- going on ---------------------------------------------------------------------------------------


async def _perform(show: Show, asked: Resuming, out: Out) -> int:
    """Decide, go on, and let the person decide where there is one, as often as the run pauses."""
    running, before = show.running, len(show.chat.held.path)
    if asked.said.abort:
        return await _aborted(show, out, before)
    if not running.pending and asked.said.anything and await _comes_to_wait(running, asked.said, out):
        await show.all_of(running.go_on())
    if running.pending:
        waits = _waiting(running.run)
        events = events_of(asked.said, waits)
        await running.decide(*events)
        _tell(events, waits, out)
    if not (out.as_json or out.as_jsonl) and sys.stdin.isatty() and sys.stderr.isatty():
        return await _with_a_person(show, out, before)
    return await told(show, out, before, running.go_on)


async def _comes_to_wait(running: Running, said: Said, out: Out) -> bool:
    """Whether a run that was left in the middle waits for somebody once it is taken up, without asking the model.

    Where that is not known yet, nothing that was said counts. Where it does not, what was said of its calls
    was done before: a command may be given again after a kill.

    raises:  NotFound, Usage  what was said names no call that waits then, and none that has its output
    """
    run = await running.taken_up()
    if run.at(Stage.JUDGING):
        out.note("which calls wait is found out first; the run goes on")
        return False
    waits = _waiting(run)
    if waits:
        choices_of(said, waits)
        return True
    done = {ALL, *_answered(running.chat.held.path.items)}
    if not all(word in done or word.partition("=")[0] in done for word in said.words):
        choices_of(said, waits)
    out.note("nothing waits any more; the run goes on")
    return False


def _answered(items: Sequence[Item]) -> Iterator[str]:
    """The ids of the calls that have their output, and the names of their tools."""
    done = {call_id(item) for item in items if is_output(item)}
    for item in items:
        if kind(item) == "function_call" and call_id(item) in done:
            name = str(item.get("name"))
            yield from (str(call_id(item)), name, f"{item.get('namespace')}.{name}")


async def _with_a_person(show: Show, out: Out, before: int) -> int:
    from convo.ui.deciding import settle
    from convo.ui.medium import drawn_on
    from convo.ui.prompt import typed

    running = show.running
    while True:
        going = not running.pending or await settle(running, typed, out.note, drawn_on(sys.stderr))
        if not going or not running.unfinished:
            return await show.left()
        await show.all_of(running.go_on())
        if not running.pending:
            return 0


async def _aborted(show: Show, out: Out, before: int) -> int:
    await show.running.stop()
    await show.left()
    out.note("the run is ended; its conversation goes on without it")
    if out.as_json:
        show.say_outcome(before)
    return 0


def _tell(events: Sequence[Decided | Given], waits: Sequence[inbox.Waiting], out: Out) -> None:
    tools = {call.call_id: call.tool for call in waits}
    for event in events:
        tool = tools[event.call_id]
        if isinstance(event, Given):
            out.note(f"{tool} gave what you said ({event.call_id})")
            continue
        word = "approved" if event.approve else "rejected"
        edits = ", with other arguments" if event.arguments is not None else ""
        out.note(f"{word} {tool} ({event.call_id}){edits}" + (" for good" if event.always else ""))


def _waiting(run: Run) -> list[inbox.Waiting]:
    return [inbox.asked(call, agent) for agent, call in run.waiting]
