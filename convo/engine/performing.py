"""The loop of a run: performs what the machine asks for, until nothing is left to do.

What takes long goes on beside the loop, as tasks: tools, guardrails. The model is asked in the loop
itself, because nothing else runs then but the guardrails of the first turn. What comes of an effect
is told to the machine, and what the machine decides is durable before any of it is performed.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from convo.agents import Graph
from convo.engine import guarding, handing, telling
from convo.engine.chat import Chat
from convo.engine.conduct import Conduct, Route
from convo.engine.preparing import prepared
from convo.engine.record import Beside, whole
from convo.engine.run_keeping import Keeper
from convo.engine.standing import Standing
from convo.engine.theirs import told_by
from convo.engine.tooling import carried_out
from convo.engine.turn import Turn
from convo.errors import ConvoError, InputFault, NotFound, RunFailed, WrongOwner
from convo.items import Event, Item
from convo.run import (
    Ask,
    Broke,
    Call,
    CheckInput,
    CheckOutput,
    Effect,
    Fail,
    Finish,
    Halt,
    HandedOver,
    HandOver,
    Judge,
    Judged,
    Passed,
    Pause,
    Phase,
    Resume,
    Returned,
    Run,
    Start,
    Tripped,
    decide,
    recover,
)
from convo.run import Event as Told
from convo.stores.contract import AgentRun
from convo.strategies import Held
from convo.tools import Context, read_arguments

THEIRS = (RunFailed, InputFault, NotFound, WrongOwner)
"""What is wrong with the agents, and not with the endpoint or the store: it ends the run."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of an effect that was performed beside the loop; `cause` is the error behind it."""

    event: Told
    cause: ConvoError | None = None


class Performing:
    """Performs one run after the other on one chat.

    run:  as it stands
    """

    def __init__(self, chat: Chat, graph: Graph, conduct: Conduct, keeper: Keeper, run: Run) -> None:
        self.run = run
        self._chat, self._graph, self._conduct, self._keeper = chat, graph, conduct, keeper
        self._todo: deque[Effect] = deque()
        self._events: deque[Event] = deque()
        self._tasks: set[asyncio.Task[Heard]] = set()
        self._guards: set[asyncio.Task[Heard]] = set()
        self._against: Heard | None = None
        self._doubt = False
        self._told: frozenset[str] = frozenset()
        self._cause: ConvoError | None = None

    def take(self, run: Run, effects: Sequence[Effect] = (), *, doubt: bool = False) -> None:
        """Begin or go on with `run`; nothing of an earlier one is left to do.

        doubt:  the owner may have taken part of the coming request already
        """
        self.run, self._doubt, self._cause, self._against = run, doubt, None, None
        self._todo, self._events = deque(effects), deque()

    async def hear(self, event: Told, cause: ConvoError | None = None) -> None:
        """Let the machine decide over `event`, and make durable what follows. raises: IllegalMove, StoreFault"""
        await whole(self._hear(Heard(event, cause)))

    async def go_on(self) -> None:
        """Go on with the run where it stands: at a pause, or where nobody performs anything any more."""
        ledger = await self._keeper.ledger()
        self._told = frozenset(call.call_id for call in ledger)
        held = self._chat.reread()
        if self.run.phase is Phase.PAUSED:
            self.take(self.run)
            await self.hear(Resume())
            return
        run, effects = recover(self.run, {call.call_id: call.output for call in ledger if call.ended})
        asking = self.run.phase is run.phase is Phase.ASKING
        if asking:
            self._chat.record.held = self._unanswered(held)
        if run != self.run:
            await whole(self._keeper.commit(self.run, run, Resume(), effects))
        self.take(run, effects, doubt=asking)

    def _unanswered(self, held: Held) -> Held:
        """The conversation without what a stopped answer left of itself."""
        turn = self._keeper.standing.turn
        own = held.path.passes(turn) and held.path.upto(turn).passes(held.mark)
        return replace(held, path=held.path.upto(turn)) if own else held

    async def perform(self) -> AsyncGenerator[Event, None]:
        """Perform effects until nothing is left to do; whatever leaves here early leaves a run that goes on.

        raises:  RunFailed  the run did;  what endpoint and store answered
        """
        try:
            yield telling.told("started", run=self._keeper.run_id, agent=self.run.agent)
            while self._events or self._todo or self._tasks:
                while self._events:
                    yield self._events.popleft()
                if self._todo:
                    async with aclosing(self._next(self._todo.popleft())) as events:
                        async for event in events:
                            yield event
                elif self._tasks:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                    for heard in self._came():
                        await whole(self._hear(heard))
        finally:
            await whole(self._let_go())
        if self.run.failure:
            raise RunFailed(self.run.failure.message, code=self.run.failure.code) from self._cause

    async def _next(self, effect: Effect) -> AsyncGenerator[Event, None]:
        self._conduct.at(f"before {type(effect).__name__}")
        if isinstance(effect, Ask):
            async with aclosing(self._ask(effect)) as events:
                async for event in events:
                    yield event
        elif type(effect) in DOES:
            await DOES[type(effect)](self, effect)

    async def _hear(self, heard: Heard) -> None:
        """Let the machine decide over an event, and make durable what follows before any of it is done."""
        before, event = self.run, heard.event
        run, effects = decide(before, event)
        await self._keeper.commit(before, run, event, effects)
        self._conduct.at(f"after {type(event).__name__}")
        self.run = run
        self._cause = heard.cause or self._cause
        if any(isinstance(effect, Halt) for effect in effects):
            self._todo.clear()
        self._todo += effects
        if isinstance(event, Returned):
            done = replace(_call_of(before, event.call_id), output={"output": event.output})
            self._events.append(telling.output(done, before.agent))
        if isinstance(event, Tripped):
            self._events.append(_tripped(before, event))

    # -- asking the model ---------------------------------------------------------------------------

    async def _ask(self, effect: Ask) -> AsyncGenerator[Event, None]:
        """One model call; the guardrails that stand beside it are heard before its answer counts."""
        chat = self._chat
        try:
            base = Route(chat.asking, chat.edges.endpoint)
            how, seen = await prepared(effect, self.run, self._keeper, base, self._conduct)
        except THEIRS as wrong:
            await self.hear(Broke(wrong.code, wrong.message), wrong)
            return
        answer: list[tuple[Run, Sequence[Effect], AgentRun, Standing]] = []

        async def closing(held: Held, output: tuple[Item, ...]) -> Any:
            while self._guards:
                await asyncio.wait(self._guards, return_when=asyncio.FIRST_COMPLETED)
                self._listen()
            if self._against:
                return None
            self._conduct.at("before Answered")
            run, effects = decide(self.run, how.answered(output))
            path = seen.path.grow(output) if seen else None
            beside, standing = self._keeper.closed(run, effects, held, output, path)
            assert beside.agent_run
            answer[:] = [(run, effects, beside.agent_run, standing)]
            return beside

        edges = replace(chat.edges, endpoint=how.endpoint)
        turn = chat.turn = Turn(
            chat.record, how.asking, edges, doubt=self._doubt, noted=chat.noted, seen=seen, closing=closing
        )
        try:
            async with aclosing(self._heard_beside(turn)) as events:
                async for event in events:
                    yield event
        finally:
            if answer and chat.record.agent_run is answer[0][2]:
                self.run, effects, self._keeper.kept, self._keeper.standing = answer[0]
                self._todo += effects
                self._doubt = False
        self._conduct.at("after Answered")
        if self._against:
            await whole(self._hear(self._against))

    async def _heard_beside(self, turn: Turn) -> AsyncGenerator[Event, None]:
        """The events of a turn, as long as no guardrail beside it says no."""
        async with aclosing(turn.events()) as events:
            coming: asyncio.Task[Event | None] | None = None
            try:
                while self._guards:
                    coming = coming or asyncio.ensure_future(_coming(events))
                    waiting: set[asyncio.Task[Any]] = {coming, *self._guards}
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    self._listen()
                    turn.unwanted = turn.unwanted or self._against is not None
                    if turn.unwanted:
                        return
                    if coming.done():
                        event, coming = coming.result(), None
                        if event is None:
                            return
                        yield event
                if coming is not None:
                    event = await asyncio.shield(coming)
                    coming = None
                    if event is not None:
                        yield event
            finally:
                if coming is not None:
                    coming.cancel()
                    await asyncio.wait([coming])
            if self._against is None:
                async for event in events:
                    yield event

    def _listen(self) -> None:
        """Take what guardrails beside the model have said; the first that says no is remembered."""
        for task in [task for task in self._guards if task.done()]:
            self._guards.discard(task)
            self._tasks.discard(task)
            heard = task.result()
            if isinstance(heard.event, Passed):
                self.run, _ = decide(self.run, heard.event)
            else:
                self._against = self._against or heard

    # -- one effect each --------------------------------------------------------------------------

    async def _start(self, effect: Start) -> None:
        self._events.append(telling.started(effect.call, self.run.agent))
        self._beside(self._call(effect.call))

    async def _check_input(self, effect: CheckInput) -> None:
        self._beside(self._check(effect), guard=True)

    async def _check_output(self, effect: CheckOutput) -> None:
        self._beside(self._check(effect))

    async def _judge(self, effect: Judge) -> None:
        self._beside(self._judged(effect.call))

    async def _pause(self, effect: Pause) -> None:
        await self._chat.write()
        self._events.append(telling.paused(self.run, self._keeper.run_id))

    async def _finish(self, effect: Finish) -> None:
        await self._chat.write()
        self._events.append(telling.told("finished", run=self._keeper.run_id, agent=effect.agent, output=effect.output))

    async def _fail(self, effect: Fail) -> None:
        await self._chat.write()
        self._events.append(telling.failed(effect.failure, self._keeper.run_id))

    async def _halt(self, effect: Halt) -> None:
        await whole(self._stop_tasks())

    # -- what goes on beside the loop -----------------------------------------------------------------

    def _beside(self, work: Coroutine[Any, Any, Told], *, guard: bool = False) -> None:
        """Perform `work`; what a person's code got wrong ends the run."""

        async def heard() -> Heard:
            try:
                return Heard(await work)
            except THEIRS as wrong:
                return Heard(Broke(wrong.code, wrong.message), wrong)

        task = asyncio.ensure_future(heard())
        self._tasks.add(task)
        if guard and self.run.phase is Phase.ASKING:
            self._guards.add(task)

    def _came(self) -> list[Heard]:
        done = [task for task in self._tasks if task.done()]
        self._tasks.difference_update(done)
        return [task.result() for task in done]

    async def _call(self, call: Call) -> Told:
        self._conduct.at(f"before {call.id}")
        output = await carried_out(call, self._context(call))
        self._conduct.at(f"after {call.id}")
        return Returned(call.id, output)

    async def _check(self, effect: CheckInput | CheckOutput) -> Told:
        agent, context = self._graph[effect.agent], Context(effect.agent, "", "", self._conduct.values)
        if isinstance(effect, CheckOutput):
            return await guarding.asked(agent.output_guardrails[effect.place], effect.place, context, effect.output)
        view, held = self._keeper.view, self._chat.held
        if view:
            held = replace(held, path=view.path, mark=view.path.root)
        said = list(self._chat.asking.sent(held).items)
        return await guarding.asked(agent.input_guardrails[effect.place], effect.place, context, said)

    async def _judged(self, call: Call) -> Told:
        tool = call.tool
        assert tool
        assert callable(tool.needs_approval)
        arguments = read_arguments(tool, call.arguments)
        what = f"what says whether tool {tool.title!r} needs approval"
        return Judged(
            call.id, bool(await told_by(what, "tool_failed", tool.needs_approval, self._context(call), arguments))
        )

    async def _hand_over(self, effect: HandOver) -> None:
        """Make the next agent's input. A function of the handoff is told once, and not again after a kill."""
        keeper, habits = self._keeper, self._conduct.habits
        held = self._chat.held
        try:
            todo = handing.planned(self._graph, effect, habits, remembers=held.remembers)
            way = handing.way_of(self._graph, effect)
            if todo.warning:
                self._events.append(telling.told("warning", message=todo.warning))
            if way.taken and effect.call.id in self._told:
                words = f"the handoff to {effect.target} may or may not have been told of; it is not told again"
                self._events.append(telling.told("warning", message=words))
            elif way.taken:
                await keeper.keep(self.run, keeper.call(effect.call.id))
                await handing.tell(way, effect, self._context(effect.call))
            view = await handing.view(todo, habits, keeper.standing, held.path)
        except THEIRS as wrong:
            await self.hear(Broke(wrong.code, wrong.message), wrong)
            return
        keeper.standing = replace(keeper.standing, view=view)
        over = {"call_id": effect.call.id, "source": effect.source, "target": effect.target}
        self._events.append(telling.told("handoff", **over))
        await self.hear(HandedOver())

    def _context(self, call: Call) -> Context:
        return Context(self.run.agent, telling.title(call), call.id, self._conduct.values)

    # -- ending ------------------------------------------------------------------------------------

    async def _stop_tasks(self) -> None:
        await self._drop()

    async def _drop(self) -> list[Heard]:
        """Stop what still runs; returns what had come by then."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        came = [task.result() for task in self._tasks if not task.cancelled()]
        self._tasks, self._guards = set(), set()
        return came

    async def _let_go(self) -> None:
        """Keep the results that have come and stop the rest; the replay file follows."""
        came = [heard.event for heard in await self._drop()]
        ends = [
            self._keeper.call(one.call_id, ended=True, output=one.output) for one in came if isinstance(one, Returned)
        ]
        if ends and self.run.phase is Phase.WORKING:
            await self._chat.record.note(Beside(calls=tuple(ends)))
        await self._chat.write()


DOES: Mapping[type, Callable[[Performing, Any], Awaitable[None]]] = {
    Start: Performing._start,
    CheckInput: Performing._check_input,
    CheckOutput: Performing._check_output,
    Judge: Performing._judge,
    HandOver: Performing._hand_over,
    Pause: Performing._pause,
    Finish: Performing._finish,
    Fail: Performing._fail,
    Halt: Performing._halt,
}
"""How an effect is performed; `Ask` is not here, whose events travel, nor `Append`, stored with its cause."""


async def _coming(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


def _call_of(run: Run, call_id: str) -> Call:
    call = run.call(call_id)
    assert call
    return call


def _tripped(run: Run, event: Tripped) -> Event:
    side = "output" if run.phase is Phase.CHECKING else "input"
    guards = run.current.output_guardrails if side == "output" else run.current.input_guardrails
    return telling.told("guardrail", side=side, name=guards[event.place].name, reason=event.reason)
