"""The run loop: performs the effects that the state machine returns, until none is left.

Tools and guardrails run as tasks; the model is called in the loop itself. Each result is an event
for the state machine, and its effects are committed before any of them is performed.

Events that a run yields between those of the model:

convo.started       run, agent                                   a run started or resumed
convo.tool_started  call_id, tool, arguments, agent              its start is committed
convo.tool_output   call_id, tool, output, agent                 its output is committed
convo.handoff       call_id, source, target                      agent identities
convo.guardrail     side, name, reason                           it tripped; `convo.failed` follows
convo.warning       message
convo.paused        run, pending                                 the pending calls, see `describe_pending_call`
convo.finished      run, agent, output                           the final output
convo.failed        run, code, message                           the error is raised after it
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from convo.agent_runner import prepare, user_code
from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agent_runner.persistence import RunCheckpoint, RunRepository, drop_partial_response
from convo.agent_runner.prepare import prepare_agent_request
from convo.agent_runner.tasks import USER_CODE_ERRORS, RunTasks, TaskResult
from convo.agent_runner.user_code import call_user_predicate, run_tool_call
from convo.agents.graph import AgentTool, Graph
from convo.chat.conversation import Chat
from convo.chat.session_record import RunUpdate, shielded
from convo.chat.turn import ChatTurn
from convo.errors import ConvoError, RunFailed
from convo.history.items import Item, Json, StreamEvent
from convo.runs.machine import step_run
from convo.runs.serialize import pause_interrupted_run, recover_run
from convo.runs.state import (
    TERMINAL_PHASES,
    ApprovalEvaluated,
    CallModel,
    CancelTasks,
    CheckInputGuardrail,
    CheckOutputGuardrail,
    EffectFailed,
    EvaluateApproval,
    FailRun,
    FinishRun,
    GuardrailPassed,
    GuardrailTripped,
    HandoffCompleted,
    NestedRunPaused,
    PauseRun,
    Phase,
    PrepareHandoff,
    Run,
    RunEffect,
    RunEvent,
    RunFailure,
    RunResumed,
    RunTool,
    Stage,
    ToolCall,
    ToolReturned,
)
from convo.stores.base import AgentCall, AgentRun
from convo.strategies.state import ConversationState
from convo.tools.tool import Context, read_arguments

NestedRunner = Callable[[ToolCall, AgentTool], Awaitable[ToolReturned | NestedRunPaused]]


class RunLoop:
    """Performs the runs of one chat, one after the other.

    run:     the current state
    usages:  the usage of each model call of the run, nested runs included
    """

    def __init__(
        self,
        chat: Chat,
        graph: Graph,
        conduct: RunConfig,
        keeper: RunRepository,
        run: Run,
        inside: NestedRunner,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> None:
        """Prepare the loop.

        run_nested:  performs the call of a tool that has a nested run
        usages:      the list of the outer run, for a nested one
        """
        self.run, self._inside = run, inside
        self._within = usages is not None
        self.usages = [] if usages is None else usages
        self._chat, self._graph, self._conduct, self._keeper = chat, graph, conduct, keeper
        self._todo: deque[RunEffect] = deque()
        self._events: deque[StreamEvent] = deque()
        self._beside = RunTasks(self._passed)
        self._doubt = False
        self._told: frozenset[str] = frozenset()
        self._results: dict[tuple[str, int, str], Json] = {}
        self._cause: ConvoError | None = None

    def take(self, run: Run, effects: Sequence[RunEffect] = (), *, doubt: bool = False) -> None:
        """Load `run`, and drop the effects and tasks of an earlier one.

        check_tail:  the owner may already have a part of the next request
        """
        self.run, self._doubt, self._cause = run, doubt, None
        self._todo, self._events, self._beside = deque(effects), deque(), RunTasks(self._passed)

    def begin(self, run: Run, effects: Sequence[RunEffect], *, doubt: bool) -> None:
        """Start a new run, with no usage of earlier model calls."""
        if not self._within:
            self.usages = []
        self.take(run, effects, doubt=doubt)

    async def hear(self, event: RunEvent, cause: ConvoError | None = None) -> None:
        """Pass `event` to the state machine and commit its effects. Raises IllegalTransition, StoreFault."""
        await shielded(self._hear(TaskResult(event, cause)))

    async def go_on(self) -> None:
        """Resume the run: at a pause, or where it was interrupted."""
        ledger = await self._keeper.ledger(self.run)
        self._told = frozenset(ledger)
        held = self._chat.reread()
        await self._recount()
        if self.run.phase is Phase.PAUSED:
            self.take(self.run)
            await self.hear(RunResumed())
            return
        run, effects = recover_run(self.run, self._known(ledger))
        asking = self.run.phase is run.phase is Phase.ASKING
        if asking:
            self._chat.record.held = drop_partial_response(held, self._keeper.standing)
        if run != self.run:
            await shielded(self._keeper.commit(self.run, run, RunResumed(), effects))
        self.take(run, effects, doubt=asking)

    async def _recount(self) -> None:
        """Load the usage of the run's earlier model calls, possibly of another process."""
        if self.usages or not self.run.turn:
            return
        links = await self._chat.edges.store.links(self._chat.session.id)
        done = [link.usage for link in links if link.status == "completed"]
        calls = self.run.turn - (self.run.phase is Phase.ASKING and not self.run.answered)
        self.usages += [usage or {} for usage in done[max(0, len(done) - calls) :]]

    async def taken_up(self) -> Run:
        """Return the run as `resume` would start it; nothing is stored."""
        return recover_run(self.run, self._known(await self._keeper.ledger(self.run)))[0]

    async def at_rest(self) -> Run:
        """Return the run in a form that can be stored while no process runs it; nothing is stored."""
        return pause_interrupted_run(self.run, self._known(await self._keeper.ledger(self.run)))

    def _known(self, ledger: Mapping[str, AgentCall]) -> dict[str, Json]:
        """Return the known outputs of started calls, including those that the store could not commit."""
        now = self._keeper.run_id, self.run.turn
        here = {call_id: output for (*when, call_id), output in self._results.items() if tuple(when) == now}
        return {**here, **{call_id: call.output for call_id, call in ledger.items() if call.ended}}

    def _remember(self, event: RunEvent) -> None:
        if isinstance(event, ToolReturned):
            self._results[self._keeper.run_id, self.run.turn, event.call_id] = event.output

    async def perform(self) -> AsyncGenerator[StreamEvent, None]:
        """Perform effects until none is left; an early exit leaves a run that can be resumed.

        Raises RunFailed when the run failed, and the errors of the endpoint and the store.
        """
        try:
            yield make_run_event("started", run=self._keeper.run_id, agent=self.run.agent)
            while self._events or self._todo or self._beside:
                while self._events:
                    yield self._events.popleft()
                if self._todo:
                    async with aclosing(self._next(self._todo.popleft())) as events:
                        async for event in events:
                            yield event
                elif self._beside:
                    for heard in await self._beside.came():
                        if self.run.phase not in TERMINAL_PHASES:
                            await shielded(self._hear(heard))
        finally:
            await shielded(self._let_go())
        if self.run.failure:
            raise RunFailed(self.run.failure.message, code=self.run.failure.code) from self._cause

    async def _next(self, effect: RunEffect) -> AsyncGenerator[StreamEvent, None]:
        self._conduct.at(f"before {type(effect).__name__}")
        if isinstance(effect, CallModel):
            async with aclosing(self._ask(effect)) as events:
                async for event in events:
                    yield event
        elif type(effect) in EFFECT_HANDLERS:
            await EFFECT_HANDLERS[type(effect)](self, effect)

    async def _hear(self, heard: TaskResult) -> None:
        """Pass an event to the state machine, and commit its effects before any of them is performed."""
        before, event = self.run, heard.event
        self._remember(event)
        run, effects = step_run(before, event)
        await self._keeper.commit(before, run, event, effects)
        self._conduct.at(f"after {type(event).__name__}")
        self.run = run
        self._cause = heard.cause or self._cause
        if any(isinstance(effect, CancelTasks) for effect in effects):
            self._todo.clear()
        self._todo += effects
        if isinstance(event, ToolReturned):
            done = replace(_find_call(before, event.call_id), output={"output": event.output})
            self._events.append(make_tool_output_event(done, before.agent))
        if isinstance(event, GuardrailTripped):
            self._events.append(_make_guardrail_event(before, event))

    # -- the model call -----------------------------------------------------------------------------

    async def _ask(self, effect: CallModel) -> AsyncGenerator[StreamEvent, None]:
        """Call the model once; the guardrails that run beside it must pass before its response counts."""
        chat = self._chat
        try:
            base = ModelRoute(chat.asking, chat.edges.endpoint)
            context = self._context(effect.agent)
            how, seen = await prepare_agent_request(effect, self.run, self._keeper, base, self._conduct, context)
        except USER_CODE_ERRORS as wrong:
            await self.hear(EffectFailed(wrong.code, wrong.message), wrong)
            return
        answer: list[tuple[Run, Sequence[RunEffect], AgentRun, RunCheckpoint]] = []

        async def closing(held: ConversationState, output: tuple[Item, ...]) -> Any:
            if not await self._beside.spoken():
                return None
            self._conduct.at("before ModelResponded")
            run, effects = step_run(self.run, how.answered(output))
            path = seen.path.grow(output) if seen else None
            beside, standing = self._keeper.closed(run, effects, held, output, path)
            assert beside.agent_run
            answer[:] = [(run, effects, beside.agent_run, standing)]
            return beside

        edges = replace(chat.edges, endpoint=how.endpoint)
        turn = chat.turn = ChatTurn(
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
        self._conduct.at("after ModelResponded")
        if self._beside.against:
            await shielded(self._hear(self._beside.against))

    def _passed(self, event: GuardrailPassed) -> None:
        """Record that a guardrail beside the model passed; this has no effects."""
        self.run, _ = step_run(self.run, event)

    # -- one effect each --------------------------------------------------------------------------

    async def _start(self, effect: RunTool) -> None:
        self._events.append(make_tool_started_event(effect.call, self.run.agent))
        self._beside.begin(self._call(effect.call))

    async def _check_input(self, effect: CheckInputGuardrail) -> None:
        self._beside.begin(self._check(effect), guard=self.run.phase is Phase.ASKING)

    async def _check_output(self, effect: CheckOutputGuardrail) -> None:
        self._beside.begin(self._check(effect))

    async def _judge(self, effect: EvaluateApproval) -> None:
        self._beside.begin(self._judged(effect.call))

    async def _pause(self, effect: PauseRun) -> None:
        await self._chat.write()
        self._events.append(make_paused_event(self.run, self._keeper.run_id))

    async def _finish(self, effect: FinishRun) -> None:
        await self._chat.write()
        self._events.append(
            make_run_event("finished", run=self._keeper.run_id, agent=effect.agent, output=effect.output)
        )

    async def _fail(self, effect: FailRun) -> None:
        await self._chat.write()
        self._events.append(make_failed_event(effect.failure, self._keeper.run_id))

    async def _halt(self, effect: CancelTasks) -> None:
        await self._beside.drop()

    # -- concurrent tasks -------------------------------------------------------------------------

    async def _call(self, call: ToolCall) -> RunEvent:
        self._conduct.at(f"before {call.id}")
        if isinstance(call.tool, AgentTool):
            return await self._inside(call, call.tool)
        output = await run_tool_call(call, self._of_call(call))
        self._conduct.at(f"after {call.id}")
        return ToolReturned(call.id, output)

    async def _check(self, effect: CheckInputGuardrail | CheckOutputGuardrail) -> RunEvent:
        agent, context = self._graph[effect.agent], self._context(effect.agent)
        if isinstance(effect, CheckOutputGuardrail):
            return await user_code.run_guardrail(
                agent.output_guardrails[effect.place], effect.place, context, effect.output
            )
        view, held = self._keeper.view, self._chat.held
        if view:
            held = replace(held, path=view.path, mark=view.path.root)
        said = list(self._chat.asking.sent(held).items)
        return await user_code.run_guardrail(agent.input_guardrails[effect.place], effect.place, context, said)

    async def _judged(self, call: ToolCall) -> RunEvent:
        tool = call.tool
        assert tool
        assert callable(tool.needs_approval)
        arguments = read_arguments(tool, call.arguments)
        what = f"what says whether tool {tool.title!r} needs approval"
        needed = await call_user_predicate(what, "tool_failed", tool.needs_approval, self._of_call(call), arguments)
        return ApprovalEvaluated(call.id, needed)

    async def _hand_over(self, effect: PrepareHandoff) -> None:
        """Make the next agent's input. The function of a handoff is called once, and not again after a kill."""
        keeper, habits = self._keeper, self._conduct.habits
        held = self._chat.held
        try:
            todo = prepare.plan_handoff_input(self._graph, effect, habits, remembers=held.remembers)
            way = prepare.resolve_handoff(self._graph, effect)
            if todo.warning:
                self._events.append(make_run_event("warning", message=todo.warning))
            if way.taken and effect.call.id in self._told:
                words = f"the handoff to {effect.target} may or may not have been told of; it is not told again"
                self._events.append(make_run_event("warning", message=words))
            elif way.taken:
                await keeper.keep(self.run, keeper.call(self.run, effect.call.id))
                await prepare.call_on_handoff(way, effect, self._of_call(effect.call))
            view = await prepare.build_handoff_view(todo, habits, keeper.standing, held.path)
        except USER_CODE_ERRORS as wrong:
            await self.hear(EffectFailed(wrong.code, wrong.message), wrong)
            return
        keeper.standing = replace(keeper.standing, view=view)
        over = {"call_id": effect.call.id, "source": effect.source, "target": effect.target}
        self._events.append(make_run_event("handoff", **over))
        await self.hear(HandoffCompleted())

    def _context(self, agent: str) -> Context:
        """Return the context for functions of `agent`."""
        keeper, path = self._keeper, self._chat.held.path
        view, begun = keeper.view, keeper.standing.begun
        if view:
            given = view.path.items[: view.history]
        else:
            given = path.items[: path.place(begun)] if path.passes(begun) else path.items
        return Context(agent, "", "", self._conduct.values, tuple(self.usages), tuple(given))

    def _of_call(self, call: ToolCall) -> Context:
        return replace(self._context(self.run.agent), tool=get_call_title(call), call_id=call.id, call=call.item)

    # -- shutdown ----------------------------------------------------------------------------------

    async def _let_go(self) -> None:
        """Commit the outputs received, cancel the other tasks, and write the replay file."""
        came = [heard.event for heard in await self._beside.drop()]
        for event in came:
            self._remember(event)
        ends = [
            self._keeper.call(self.run, one.call_id, ended=True, output=one.output)
            for one in came
            if isinstance(one, ToolReturned)
        ]
        if ends and self.run.phase is Phase.WORKING:
            await self._chat.record.note(RunUpdate(calls=tuple(ends)))
        await self._chat.write()


EFFECT_HANDLERS: Mapping[type, Callable[[RunLoop, Any], Awaitable[None]]] = {
    RunTool: RunLoop._start,
    CheckInputGuardrail: RunLoop._check_input,
    CheckOutputGuardrail: RunLoop._check_output,
    EvaluateApproval: RunLoop._judge,
    PrepareHandoff: RunLoop._hand_over,
    PauseRun: RunLoop._pause,
    FinishRun: RunLoop._finish,
    FailRun: RunLoop._fail,
    CancelTasks: RunLoop._halt,
}
"""The method for each effect, except `CallModel`, which yields events, and `AppendToHistory`, which is committed
with its cause.
"""


def _find_call(run: Run, call_id: str) -> ToolCall:
    call = run.call(call_id)
    assert call
    return call


def _make_guardrail_event(run: Run, event: GuardrailTripped) -> StreamEvent:
    side = "output" if run.phase is Phase.CHECKING else "input"
    guards = run.current.output_guardrails if side == "output" else run.current.input_guardrails
    return make_run_event("guardrail", side=side, name=guards[event.place].name, reason=event.reason)


def make_run_event(what: str, **fields: Json) -> StreamEvent:
    """Return an event of a run."""
    return {"type": f"convo.{what}", **fields}


def get_call_title(call: ToolCall) -> str:
    """Return the display name of a call's tool."""
    return call.tool.title if call.tool else ".".join(call.lookup[1:])


def make_tool_started_event(call: ToolCall, agent: str) -> StreamEvent:
    """Return the event for the start of a tool."""
    return make_run_event("tool_started", **_make_call_fields(call, agent), arguments=call.arguments)


def make_tool_output_event(call: ToolCall, agent: str) -> StreamEvent:
    """Return the event for the output of a tool."""
    return make_run_event("tool_output", **_make_call_fields(call, agent), output=(call.output or {}).get("output"))


def describe_pending_call(call: ToolCall, agent: str) -> dict[str, Json]:
    """Describe a call that needs a decision; `unknown` means that it had started and its outcome is unknown."""
    return {**_make_call_fields(call, agent), "arguments": call.arguments, "unknown": call.stage is Stage.UNKNOWN}


def make_paused_event(run: Run, run_id: str) -> StreamEvent:
    """Return the event for a pause, with all pending calls."""
    return make_run_event(
        "paused", run=run_id, pending=[describe_pending_call(call, agent) for agent, call in run.waiting]
    )


def make_failed_event(failure: RunFailure, run_id: str) -> StreamEvent:
    """Return the event for a failed run."""
    return make_run_event("failed", run=run_id, code=failure.code, message=failure.message)


def _make_call_fields(call: ToolCall, agent: str) -> dict[str, Json]:
    return {"call_id": call.id, "tool": get_call_title(call), "agent": agent}
