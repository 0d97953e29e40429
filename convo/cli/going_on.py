"""Goes on with a paused run: from a state that somebody wrote, or from the store.

A document is gone on with once. One process at a time may do it on one store; a document whose run
is there already is found by its content, or by the mark that convo's own have, and that run is gone
on with, or refused where it has ended. The agents are needed here, and have to be the ones of before.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

from convo.cli.choosing import ALL, outcome_text, verdict_word
from convo.cli.conduct import Cast, cast_of
from convo.cli.desk import Asked, Desk, Out
from convo.cli.paused_files import run_in
from convo.cli.pauses import Pauses, values_in
from convo.cli.remembered_agents import agents_of_run
from convo.cli.run_flags import RunFlags
from convo.cli.running import Show, told
from convo.cli.verdicts import Said, choices_of, events_of, kept_decisions
from convo.cli.wiring import store_of
from convo.config import Flags, Sources, read, resolve
from convo.engine.chat import Chat
from convo.engine.lease import resuming
from convo.engine.running import Running, kept_run
from convo.errors import Busy, StateFault, Usage
from convo.history import Strategy
from convo.items import Item, call_id, hash_of, is_output, kind
from convo.run import Decided, Given, decide, inbox
from convo.run.keeping import PHASE_WORDS
from convo.run.state import ENDED, Phase, Run, Stage
from convo.runstate import State
from convo.runstate.batch import inner as inner_states
from convo.runstate.batch import named_by
from convo.runstate.nested import actions, interruptions
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
    if asked.run.agent is None:
        asked = await _as_before(asked, out)
    cast = cast_of(asked.run, held=described(asked.state.document) if asked.state else None)
    sources = read(asked.config, Flags(model=cast.model if asked.model is None else asked.model))
    async with store_of(resolve(sources)) as store, AsyncExitStack() as open_things:
        cast = cast.asked_alike() if asked.model else cast
        opening = Opening(asked, sources, store, open_things, out)
        return await _perform(await opening.show(cast), asked, out)


async def _as_before(asked: Resuming, out: Out) -> Resuming:
    """`asked` with the agents, and -m, that the run had in this store.

    raises:  NotFound, AmbiguousHandle  there is no such run
             Usage                      its agents are not remembered, or were named elsewhere
             Unreadable                 their file is not there any more
    """
    sources = read(asked.config, Flags())
    async with store_of(resolve(sources)) as store:
        row = await (_known(store, asked.state) if asked.state else kept_run(store, asked.handle))
        found = agents_of_run(row, sources.places.data) if row else None
    if found is None:
        raise Usage(
            "resuming a run needs its agents: none were named",
            hint=f"convo resume {asked.handle} --agent FILE.py:NAME;"
            " or --decide-only -o decided.json, to resume with the SDK",
        )
    out.note(f"agents as before: {found.file}")
    model = found.model if asked.model is None else asked.model
    return replace(asked, model=model, run=replace(asked.run, agent=found.file))


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
        if show.running.run.phase is Phase.PAUSED:
            run, events = _merge_decisions(show.running.run, state, self._asked)
            choices_of(self._asked.said, _decidable(run))
            await show.running.decide(*events)
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
        cast = desk.remembering(chat, cast)
        limits = None if self._asked.run.max_turns is None else cast.conduct.limits
        running = await Running.open(chat, cast.graph, cast.conduct, kept=row, limits=limits)
        return Show(chat, running, cast, self._pauses(desk, cast), desk, self._out)

    async def _adopted(self, state: State, cast: Cast) -> Show:
        """A run from elsewhere, kept here from now on; what the flags say of it is looked at first."""
        values = dict(cast.conduct.values) if self._asked.run.context else None
        found = taken(state, cast.graph, values)
        if found.run.phase in ENDED:
            raise StateFault(f"the run of {self._asked.handle} has ended", hint="convo inspect shows what it came to")
        choices_of(self._asked.said, _decidable(found.run))
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
        cast = desk.remembering(chat, cast)
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
        return Pauses(desk.paused, self._asked.run.state, cast.conduct.values, self._out.note, resumed=True)


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
    now = dict(_runs_in(row.document))
    for way, turn, waits in _states_in(state.document):
        if way not in now or now[way][0] != turn or not waits <= now[way][1]:
            raise StateFault(
                f"{row.id} has continued since this state was written",
                hint=f"convo resume {row.id} --agent {quote(agents)}",
            )


CallPath: TypeAlias = tuple[str, ...]
"""The calls that contain a run, outermost first."""


def _runs_in(document: Mapping[str, Any], way: CallPath = ()) -> Iterator[tuple[CallPath, tuple[int, set[str]]]]:
    """Yield for a stored run and those inside its calls: call path, count of finished model calls, ids of the calls."""
    calls = document.get("batch") or ()
    turn = document.get("turn", 0) - (document.get("phase") == PHASE_WORDS[Phase.ASKING])
    yield way, (turn, {call["id"] for call in calls})
    for call in calls:
        if call.get("inner"):
            yield from _runs_in(call["inner"]["run"], (*way, call["id"]))


def _states_in(document: Mapping[str, Any], way: CallPath = ()) -> Iterator[tuple[CallPath, int, set[str]]]:
    """Yield for a state and the states inside its calls: the call path, the turn, the ids of its own pending calls."""
    within = {call: place.value for call, place in inner_states(document).items()}
    below = {id_ for child in within.values() for id_ in _ids(child)}
    planned = {call.id for _, call in actions(document)}
    yield way, document["current_turn"], {id_ for id_ in _ids(document) if id_ not in below or id_ in planned}
    for call_id_, child in within.items():
        yield from _states_in(child, (*way, call_id_))


def _ids(document: Mapping[str, Any]) -> set[str]:
    """The ids of the calls that a state waits for."""
    return {name for place in interruptions(document) if (name := named_by(place.value["raw_item"])) is not None}


def _merge_decisions(run: Run, state: State, asked: Resuming) -> tuple[Run, list[Decided]]:
    """The run with the decisions of a document of convo's own on what still waits, and those decisions.

    raises:  StateFault  the document and the store decided differently on a call, and no flag names that call
    """
    events = list[Decided]()
    if run_in(state) is None:
        return run, events
    shown = {one.id: str(one.call.arguments) for one in state.pending}
    calls = {call.id: call for _, call in run.decidable}
    words = {one.call_id: one for one in state.decisions}
    sticky = {one.call_id for one in state.decisions if one.always}
    for call_id_, approve in state.verdicts.items():
        call = calls.get(call_id_)
        if call is None or call.stage is Stage.UNKNOWN:  # a call that started since is another question
            continue
        if call.verdict is not None:
            if call.verdict != approve and not _is_named(call_id_, asked.said):
                here, there = verdict_word(call.verdict), verdict_word(approve)
                raise StateFault(
                    f"{call_id_} is {there} in {asked.handle} and {here} in the store",
                    hint=f"--approve {quote(call_id_)} or --reject {quote(call_id_)} to choose the decision",
                )
            continue
        edited = shown.get(call_id_) if approve and shown.get(call_id_) != call.arguments else None
        message = None if approve else words[call_id_].message
        events.append(Decided(call_id_, approve, message, call_id_ in sticky and edited is None, edited))
    for event in events:
        run, _ = decide(run, event)
    return run, events


def _is_named(call: str, said: Said) -> bool:
    """Whether a flag names a call by its id."""
    return call in (*said.approve, *said.edit, *said.reject) or any(one.startswith(f"{call}=") for one in said.reject)


# -- going on ---------------------------------------------------------------------------------------


async def _perform(show: Show, asked: Resuming, out: Out) -> int:
    """Decide, go on, and let the person decide where there is one, as often as the run pauses."""
    running, before = show.running, len(show.chat.held.path)
    if asked.said.abort:
        return await _aborted(show, out, before)
    paused = running.run.phase is Phase.PAUSED
    if not paused and asked.said.anything and await _comes_to_wait(running, asked.said, out):
        await show.all_of(running.go_on())
    if running.run.phase is Phase.PAUSED and (paused or running.pending):
        waits = _decidable(running.run)
        events = events_of(asked.said, waits)
        await running.decide(*events)
        _tell(events, waits, out)
        for words in kept_decisions(asked.said, waits):
            out.note(words)
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
    calls = {call.call_id: call for call in waits}
    for event in events:
        call = calls[event.call_id]
        if isinstance(event, Given):
            out.note(f"{call.tool} has the output that you gave ({event.call_id})")
            continue
        edited = event.arguments is not None
        approve, was = event.approve, call.verdict
        out.note(outcome_text(call.tool, event.call_id, approve=approve, was=was, edited=edited, always=event.always))


def _waiting(run: Run) -> list[inbox.Waiting]:
    return [inbox.asked(call, agent) for agent, call in run.waiting]


def _decidable(run: Run) -> list[inbox.Waiting]:
    """The calls that wait, and those that are decided and not performed yet."""
    return [inbox.asked(call, agent) for agent, call in run.decidable]
