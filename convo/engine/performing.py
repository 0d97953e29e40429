"""The loop of a run: performs what the machine asks for, until nothing is left to do.

What takes long goes on beside the loop, as tasks: tools, guardrails. The model is asked in the loop
itself, because nothing else runs then but the guardrails of the first turn. What comes of an effect
is told to the machine, and what the machine decides is durable before any of it is performed.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from convo.agents import AgentTool, Graph
from convo.engine import guarding, handing, telling
from convo.engine.at_once import THEIRS, AtOnce, Heard
from convo.engine.chat import Chat
from convo.engine.conduct import Conduct, Route
from convo.engine.preparing import prepared
from convo.engine.record import Beside, whole
from convo.engine.run_keeping import Keeper
from convo.engine.standing import Standing, unanswered
from convo.engine.theirs import told_whether
from convo.engine.tooling import carried_out
from convo.engine.turn import Turn
from convo.errors import ConvoError, RunFailed
from convo.items import Event, Item, Json
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
    PausedInside,
    Phase,
    Resume,
    Returned,
    Run,
    Start,
    Tripped,
    at_rest,
    decide,
    recover,
)
from convo.run import Event as Told
from convo.run.state import ENDED
from convo.stores.contract import AgentCall, AgentRun
from convo.strategies import Held
from convo.tools import Context, read_arguments

Inside = Callable[[Call, AgentTool], Awaitable[Returned | PausedInside]]


class Performing:
    """Performs one run after the other on one chat.

    run:     as it stands
    usages:  the usage of each model call of the run, those of runs inside its calls among them
    """

    def __init__(
        self,
        chat: Chat,
        graph: Graph,
        conduct: Conduct,
        keeper: Keeper,
        run: Run,
        inside: Inside,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> None:
        """Prepare for runs.

        inside:  performs the call of a tool behind which a run of its own stands
        usages:  that of the run in whose call this one is
        """
        self.run, self._inside = run, inside
        self._within = usages is not None
        self.usages = [] if usages is None else usages
        self._chat, self._graph, self._conduct, self._keeper = chat, graph, conduct, keeper
        self._todo: deque[Effect] = deque()
        self._events: deque[Event] = deque()
        self._beside = AtOnce(self._passed)
        self._doubt = False
        self._told: frozenset[str] = frozenset()
        self._results: dict[tuple[str, int, str], Json] = {}
        self._cause: ConvoError | None = None

    def take(self, run: Run, effects: Sequence[Effect] = (), *, doubt: bool = False) -> None:
        """Begin or go on with `run`; nothing of an earlier one is left to do.

        doubt:  the owner may have taken part of the coming request already
        """
        self.run, self._doubt, self._cause = run, doubt, None
        self._todo, self._events, self._beside = deque(effects), deque(), AtOnce(self._passed)

    def begin(self, run: Run, effects: Sequence[Effect], *, doubt: bool) -> None:
        """Begin a new run, of which no model call is counted yet."""
        if not self._within:
            self.usages = []
        self.take(run, effects, doubt=doubt)

    async def hear(self, event: Told, cause: ConvoError | None = None) -> None:
        """Let the machine decide over `event`, and make durable what follows. raises: IllegalMove, StoreFault"""
        await whole(self._hear(Heard(event, cause)))

    async def go_on(self) -> None:
        """Go on with the run where it stands: at a pause, or where nobody performs anything any more."""
        ledger = await self._keeper.ledger(self.run)
        self._told = frozenset(ledger)
        held = self._chat.reread()
        await self._recount()
        if self.run.phase is Phase.PAUSED:
            self.take(self.run)
            await self.hear(Resume())
            return
        run, effects = recover(self.run, self._known(ledger))
        asking = self.run.phase is run.phase is Phase.ASKING
        if asking:
            self._chat.record.held = unanswered(held, self._keeper.standing)
        if run != self.run:
            await whole(self._keeper.commit(self.run, run, Resume(), effects))
        self.take(run, effects, doubt=asking)

    async def _recount(self) -> None:
        """Read the usage of the run's earlier model calls, which another process may have made."""
        if self.usages or not self.run.turn:
            return
        links = await self._chat.edges.store.links(self._chat.session.id)
        done = [link.usage for link in links if link.status == "completed"]
        calls = self.run.turn - (self.run.phase is Phase.ASKING and not self.run.answered)
        self.usages += [usage or {} for usage in done[max(0, len(done) - calls) :]]

    async def taken_up(self) -> Run:
        """How the run stands when nobody performs anything any more; nothing is kept."""
        return recover(self.run, self._known(await self._keeper.ledger(self.run)))[0]

    async def at_rest(self) -> Run:
        """The run in a form that can be stored while no process runs it; nothing is stored."""
        return at_rest(self.run, self._known(await self._keeper.ledger(self.run)))

    def _known(self, ledger: Mapping[str, AgentCall]) -> dict[str, Json]:
        """Results of calls that had started; one that the store could not take is still known here."""
        now = self._keeper.run_id, self.run.turn
        here = {call_id: output for (*when, call_id), output in self._results.items() if tuple(when) == now}
        return {**here, **{call_id: call.output for call_id, call in ledger.items() if call.ended}}

    def _remember(self, event: Told) -> None:
        if isinstance(event, Returned):
            self._results[self._keeper.run_id, self.run.turn, event.call_id] = event.output

    async def perform(self) -> AsyncGenerator[Event, None]:
        """Perform effects until nothing is left to do; whatever leaves here early leaves a run that goes on.

        raises:  RunFailed  the run did;  what endpoint and store answered
        """
        try:
            yield telling.told("started", run=self._keeper.run_id, agent=self.run.agent)
            while self._events or self._todo or self._beside:
                while self._events:
                    yield self._events.popleft()
                if self._todo:
                    async with aclosing(self._next(self._todo.popleft())) as events:
                        async for event in events:
                            yield event
                elif self._beside:
                    for heard in await self._beside.came():
                        if self.run.phase not in ENDED:
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
        self._remember(event)
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
            context = self._context(effect.agent)
            how, seen = await prepared(effect, self.run, self._keeper, base, self._conduct, context)
        except THEIRS as wrong:
            await self.hear(Broke(wrong.code, wrong.message), wrong)
            return
        answer: list[tuple[Run, Sequence[Effect], AgentRun, Standing]] = []

        async def closing(held: Held, output: tuple[Item, ...]) -> Any:
            if not await self._beside.spoken():
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
            async with aclosing(self._beside.beside(turn)) as events:
                async for event in events:
                    yield event
        finally:
            if turn.link and turn.link.status == "completed":
                self.usages.append(turn.link.usage or {})
            if answer and chat.record.agent_run is answer[0][2]:
                self.run, effects, self._keeper.kept, self._keeper.standing = answer[0]
                self._todo += effects
                self._doubt = False
        self._conduct.at("after Answered")
        if self._beside.against:
            await whole(self._hear(self._beside.against))

    def _passed(self, event: Passed) -> None:
        """A guardrail beside the model let its input pass; nothing follows from that alone."""
        self.run, _ = decide(self.run, event)

    # -- one effect each --------------------------------------------------------------------------

    async def _start(self, effect: Start) -> None:
        self._events.append(telling.started(effect.call, self.run.agent))
        self._beside.begin(self._call(effect.call))

    async def _check_input(self, effect: CheckInput) -> None:
        self._beside.begin(self._check(effect), guard=self.run.phase is Phase.ASKING)

    async def _check_output(self, effect: CheckOutput) -> None:
        self._beside.begin(self._check(effect))

    async def _judge(self, effect: Judge) -> None:
        self._beside.begin(self._judged(effect.call))

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
        await self._beside.drop()

    # -- what goes on beside the loop -------------------------------------------------------------

    async def _call(self, call: Call) -> Told:
        self._conduct.at(f"before {call.id}")
        if isinstance(call.tool, AgentTool):
            return await self._inside(call, call.tool)
        output = await carried_out(call, self._of_call(call))
        self._conduct.at(f"after {call.id}")
        return Returned(call.id, output)

    async def _check(self, effect: CheckInput | CheckOutput) -> Told:
        agent, context = self._graph[effect.agent], self._context(effect.agent)
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
        needed = await told_whether(what, "tool_failed", tool.needs_approval, self._of_call(call), arguments)
        return Judged(call.id, needed)

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
                await keeper.keep(self.run, keeper.call(self.run, effect.call.id))
                await handing.tell(way, effect, self._of_call(effect.call))
            view = await handing.view(todo, habits, keeper.standing, held.path)
        except THEIRS as wrong:
            await self.hear(Broke(wrong.code, wrong.message), wrong)
            return
        keeper.standing = replace(keeper.standing, view=view)
        over = {"call_id": effect.call.id, "source": effect.source, "target": effect.target}
        self._events.append(telling.told("handoff", **over))
        await self.hear(HandedOver())

    def _context(self, agent: str) -> Context:
        """What functions of `agent` may know of the run."""
        keeper, path = self._keeper, self._chat.held.path
        view, begun = keeper.view, keeper.standing.begun
        if view:
            given = view.path.items[: view.history]
        else:
            given = path.items[: path.place(begun)] if path.passes(begun) else path.items
        return Context(agent, "", "", self._conduct.values, tuple(self.usages), tuple(given))

    def _of_call(self, call: Call) -> Context:
        return replace(self._context(self.run.agent), tool=telling.title(call), call_id=call.id, call=call.item)

    # -- ending ------------------------------------------------------------------------------------

    async def _let_go(self) -> None:
        """Keep the results that have come and stop the rest; the replay file follows."""
        came = [heard.event for heard in await self._beside.drop()]
        for event in came:
            self._remember(event)
        ends = [
            self._keeper.call(self.run, one.call_id, ended=True, output=one.output)
            for one in came
            if isinstance(one, Returned)
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


def _call_of(run: Run, call_id: str) -> Call:
    call = run.call(call_id)
    assert call
    return call


def _tripped(run: Run, event: Tripped) -> Event:
    side = "output" if run.phase is Phase.CHECKING else "input"
    guards = run.current.output_guardrails if side == "output" else run.current.input_guardrails
    return telling.told("guardrail", side=side, name=guards[event.place].name, reason=event.reason)
