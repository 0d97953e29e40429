"""The run loop: performs the effects that the state machine returns, until none is left.

Tools and guardrails run as tasks; the model is called in the loop itself. Each result is an event
for the state machine, and its effects are committed before any of them is performed.

`convo.agent_runner.events` has the events that a run yields between those of the model.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from convo.agent_runner import prepare, user_code
from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agent_runner.events import (
    FinishedEvent,
    HandoffEvent,
    StartedEvent,
    get_call_title,
    make_failed_event,
    make_guardrail_event,
    make_paused_event,
    make_tool_output_event,
    make_tool_started_event,
    make_warning_event,
)
from convo.agent_runner.persistence import RunCheckpoint, RunRepository, drop_partial_response
from convo.agent_runner.prepare import prepare_agent_request
from convo.agent_runner.tasks import USER_CODE_ERRORS, RunTasks, TaskResult
from convo.agent_runner.user_code import call_user_predicate, run_tool_call
from convo.agents.agent import HookEvent
from convo.agents.graph import AgentTool, Graph
from convo.chat.conversation import Chat
from convo.chat.session_record import RunUpdate
from convo.chat.turn import ChatTurn
from convo.errors import ConvoError, RunFailed
from convo.history.items import Item, Json, StreamEvent
from convo.history.records import AgentCall, AgentRun
from convo.inspect.run_timeline import TimelineEntry, append_timeline_entry
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
    RunResumed,
    RunTool,
    ToolCall,
    ToolReturned,
)
from convo.runtime import shielded
from convo.strategies.strategy import ConversationState
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
        config: RunConfig,
        repository: RunRepository,
        run: Run,
        run_nested: NestedRunner,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> None:
        """Prepare the loop.

        run_nested:  performs the call of a tool that has a nested run
        usages:      the list of the outer run, for a nested one
        """
        self.run, self._run_nested = run, run_nested
        self._is_nested = usages is not None
        self.usages = [] if usages is None else usages
        self._chat, self._graph, self._config, self._repository = chat, graph, config, repository
        self._pending_effects: deque[RunEffect] = deque()
        self._pending_events: deque[StreamEvent] = deque()
        self._tasks = RunTasks(self._on_guardrail_passed)
        self._check_tail = False
        self._started_agent: str | None = None
        self._started_call_ids: frozenset[str] = frozenset()
        # Also outputs that the store could not take: their tools must not run again. The key has the turn because
        # models reuse ids.
        self._outputs: dict[tuple[str, int, str], Json] = {}
        self._cause: ConvoError | None = None

    def load(self, run: Run, effects: Sequence[RunEffect] = (), *, check_tail: bool = False) -> None:
        """Load `run`, and drop the effects and tasks of an earlier one.

        check_tail:  the owner may already have a part of the next request
        """
        self.run, self._check_tail, self._cause = run, check_tail, None
        self._started_agent = run.agent if run.turn > 1 else None
        self._pending_effects, self._pending_events, self._tasks = (
            deque(effects),
            deque(),
            RunTasks(self._on_guardrail_passed),
        )

    def start(self, run: Run, effects: Sequence[RunEffect], *, check_tail: bool) -> None:
        """Start a new run, with no usage of earlier model calls."""
        if not self._is_nested:
            self.usages = []
        self.load(run, effects, check_tail=check_tail)

    async def dispatch(self, event: RunEvent, cause: ConvoError | None = None) -> None:
        """Pass `event` to the state machine and commit its effects. Raises IllegalTransition, StoreFault."""
        await shielded(self._dispatch(TaskResult(event, cause)))

    async def resume(self) -> None:
        """Resume the run: at a pause, or where it was interrupted."""
        started_calls = await self._repository.load_calls(self.run)
        self._started_call_ids = frozenset(started_calls)
        state = self._chat.load_state()
        await self._load_usages()
        if self.run.phase is Phase.PAUSED:
            self.load(self.run)
            await self.dispatch(RunResumed())
            return
        run, effects = recover_run(self.run, self._collect_outputs(started_calls))
        is_calling_model = self.run.phase is run.phase is Phase.CALLING_MODEL
        if is_calling_model:
            self._chat.record.state = drop_partial_response(state, self._repository.checkpoint)
        if run != self.run:
            await shielded(self._repository.commit(self.run, run, RunResumed(), effects))
        self.load(run, effects, check_tail=is_calling_model)

    async def _load_usages(self) -> None:
        """Load the usage of the run's earlier model calls, possibly of another process."""
        if self.usages or not self.run.turn:
            return
        links = await self._chat.deps.store.links(self._chat.session.id)
        completed_usages = [link.usage for link in links if link.status == "completed"]
        call_count = self.run.turn - (self.run.phase is Phase.CALLING_MODEL and not self.run.has_response)
        self.usages += [usage or {} for usage in completed_usages[max(0, len(completed_usages) - call_count) :]]

    async def preview_resume(self) -> Run:
        """Return the run as `resume` would start it; nothing is stored."""
        return recover_run(self.run, self._collect_outputs(await self._repository.load_calls(self.run)))[0]

    async def to_storable_run(self) -> Run:
        """Return the run in a form that can be stored while no process runs it; nothing is stored."""
        return pause_interrupted_run(self.run, self._collect_outputs(await self._repository.load_calls(self.run)))

    def _collect_outputs(self, started_calls: Mapping[str, AgentCall]) -> dict[str, Json]:
        """Return the known outputs of started calls, including those that the store could not commit."""
        current_turn = self._repository.run_id, self.run.turn
        local_outputs = {
            call_id: output for (*run_turn, call_id), output in self._outputs.items() if tuple(run_turn) == current_turn
        }
        return {**local_outputs, **{call_id: call.output for call_id, call in started_calls.items() if call.has_ended}}

    def _remember_output(self, event: RunEvent) -> None:
        if isinstance(event, ToolReturned):
            self._outputs[self._repository.run_id, self.run.turn, event.call_id] = event.output

    async def perform(self) -> AsyncGenerator[StreamEvent, None]:
        """Perform effects until none is left; an early exit leaves a run that can be resumed.

        Raises RunFailed when the run failed, and the errors of the endpoint and the store.
        """
        try:
            yield StartedEvent(type="convo.started", run=self._repository.run_id, agent=self.run.agent)
            while self._pending_events or self._pending_effects or self._tasks:
                while self._pending_events:
                    yield self._pending_events.popleft()
                if self._pending_effects:
                    async with aclosing(self._perform_effect(self._pending_effects.popleft())) as events:
                        async for event in events:
                            yield event
                elif self._tasks:
                    for result in await self._tasks.wait_any():
                        if self.run.phase not in TERMINAL_PHASES:
                            await shielded(self._dispatch(result))
        finally:
            await shielded(self._shutdown())
        if failure := self.run.failure:
            hint = self._cause.hint if isinstance(self._cause, RunFailed) else None
            raise RunFailed(failure.message, code=failure.code, hint=hint) from self._cause

    async def _perform_effect(self, effect: RunEffect) -> AsyncGenerator[StreamEvent, None]:
        self._config.test_hook(f"before {type(effect).__name__}")
        if isinstance(effect, CallModel):
            async with aclosing(self._call_model(effect)) as events:
                async for event in events:
                    yield event
        elif type(effect) in EFFECT_HANDLERS:
            await EFFECT_HANDLERS[type(effect)](self, effect)

    async def _dispatch(self, result: TaskResult) -> None:
        """Pass an event to the state machine, and commit its effects before any of them is performed."""
        previous_run, event = self.run, result.event
        self._remember_output(event)
        run, effects = step_run(previous_run, event)
        await self._repository.commit(previous_run, run, event, effects)
        self._config.test_hook(f"after {type(event).__name__}")
        self.run = run
        self._cause = result.cause or self._cause
        if any(isinstance(effect, CancelTasks) for effect in effects):
            self._pending_effects.clear()
        self._pending_effects += effects
        if isinstance(event, ToolReturned):
            completed_call = replace(_find_call(previous_run, event.call_id), output={"output": event.output})
            self._pending_events.append(make_tool_output_event(completed_call, previous_run.agent))
        if isinstance(event, GuardrailTripped):
            self._pending_events.append(make_guardrail_event(previous_run, event))

    # -- the model call -----------------------------------------------------------------------------

    async def _call_model(self, effect: CallModel) -> AsyncGenerator[StreamEvent, None]:
        """Call the model once; the parallel guardrails must pass before its response counts."""
        chat = self._chat
        try:
            base_route = ModelRoute(chat.options, chat.deps.endpoint)
            context = self._make_context(effect.agent)
            if self._started_agent != effect.agent:
                await self._call_hooks("agent_start", context)
                self._started_agent = effect.agent
            agent_request, input_override = await prepare_agent_request(
                effect, self.run, self._repository, base_route, self._config, context
            )
            if self._graph[effect.agent].hooks:
                options = agent_request.options
                request = input_override.request_input if input_override else options.build_input(chat.state)
                await self._call_hooks("llm_start", context, options.instructions, request.items)
        except USER_CODE_ERRORS as error:
            await self.dispatch(EffectFailed(error.code, error.message), error)
            return
        # Filled before the transaction of the response; the run moves only if that was committed (`finally` below).
        committed_step: list[tuple[Run, Sequence[RunEffect], AgentRun, RunCheckpoint]] = []

        async def build_update(state: ConversationState, output: tuple[Item, ...], cut_reason: str | None) -> Any:
            if not await self._tasks.guardrails_passed():
                return None
            self._config.test_hook("before ModelResponded")
            event: RunEvent = agent_request.make_response_event(output)
            # Calls of an answer that "length" or "content_filter" cut off were run, and the next request was refused.
            if cut_reason:
                event = EffectFailed(cut_reason, f"The response was cut ({cut_reason}), so no tool of it was run")
            run, effects = step_run(self.run, event)
            path = input_override.path.append(output) if input_override else None
            run_update, checkpoint = self._repository.build_response_update(run, effects, state, output, path)
            assert run_update.agent_run
            committed_step[:] = [(run, effects, run_update.agent_run, checkpoint)]
            return run_update

        deps = chat.deps._replace(endpoint=agent_request.endpoint)
        turn = chat.turn = ChatTurn(
            chat.record,
            agent_request.options,
            deps,
            check_tail=self._check_tail,
            notify=chat.notify,
            input_override=input_override,
            on_response=build_update,
        )
        try:
            async with aclosing(self._tasks.stream_guarded(turn)) as events:
                async for event in events:
                    yield event
        finally:
            if turn.link and turn.link.status == "completed":
                self.usages.append(turn.link.usage or {})
            if committed_step and chat.record.agent_run is committed_step[0][2]:
                self.run, effects, self._repository.run_row, self._repository.checkpoint = committed_step[0]
                self._pending_effects += effects
                self._check_tail = False
        self._config.test_hook("after ModelResponded")
        if committed_step and turn.response:
            await self._call_hooks("llm_end", self._make_context(effect.agent), turn.response)
        if self._tasks.rejection:
            await shielded(self._dispatch(self._tasks.rejection))

    def _on_guardrail_passed(self, event: GuardrailPassed) -> None:
        """Record that a parallel guardrail passed; this has no effects."""
        self.run, _ = step_run(self.run, event)

    # -- one effect each --------------------------------------------------------------------------

    async def _start_tool(self, effect: RunTool) -> None:
        self._pending_events.append(make_tool_started_event(effect.call, self.run.agent))
        self._tasks.start(self._run_tool(effect.call))

    async def _start_input_guardrail(self, effect: CheckInputGuardrail) -> None:
        self._tasks.start(self._run_guardrail(effect), is_guardrail=self.run.phase is Phase.CALLING_MODEL)

    async def _start_output_guardrail(self, effect: CheckOutputGuardrail) -> None:
        self._tasks.start(self._run_guardrail(effect))

    async def _start_approval_check(self, effect: EvaluateApproval) -> None:
        self._tasks.start(self._evaluate_approval(effect.call))

    async def _pause(self, effect: PauseRun) -> None:
        await self._chat.write_replay_file()
        self._pending_events.append(make_paused_event(self.run, self._repository.run_id))

    async def _call_hooks(self, event: HookEvent, context: Context, *details: object) -> None:
        """Call the hooks of the context's agent. Raises RunFailed."""
        if hooks := self._graph[context.agent].hooks:
            description = f"the hook {event} of agent {context.agent!r}"
            await user_code.call_user_code(description, "hook", hooks, event, context, *details)

    async def _finish(self, effect: FinishRun) -> None:
        await self._chat.write_replay_file()
        run_id = self._repository.run_id
        event = FinishedEvent(type="convo.finished", run=run_id, agent=effect.agent, output=effect.output)
        self._pending_events.append(event)
        await self._call_hooks("agent_end", self._make_context(effect.agent), effect.output)

    async def _fail(self, effect: FailRun) -> None:
        await self._chat.write_replay_file()
        self._pending_events.append(make_failed_event(effect.failure, self._repository.run_id))

    async def _cancel_tasks(self, effect: CancelTasks) -> None:
        await self._tasks.cancel_all()

    # -- concurrent tasks -------------------------------------------------------------------------

    async def _run_tool(self, call: ToolCall) -> RunEvent:
        self._config.test_hook(f"before {call.id}")
        if isinstance(call.tool, AgentTool):
            context = self._make_call_context(call)
            await self._call_hooks("tool_start", context)
            result = await self._run_nested(call, call.tool)
            if isinstance(result, ToolReturned):
                await self._call_hooks("tool_end", context, result.output)
            return result
        output = await run_tool_call(call, self._make_call_context(call))
        self._config.test_hook(f"after {call.id}")
        return ToolReturned(call.id, output)

    async def _run_guardrail(self, effect: CheckInputGuardrail | CheckOutputGuardrail) -> RunEvent:
        """Run a guardrail, and add its end to the time line: the next commit of the run stores it."""
        clock, agent = self._chat.deps.clock, self._graph[effect.agent]
        is_output = isinstance(effect, CheckOutputGuardrail)
        guardrail = (agent.output_guardrails if is_output else agent.input_guardrails)[effect.guardrail_index]
        started_at, begin = clock.now(), clock.monotonic()

        def add_entry(outcome: Literal["passed", "tripped", "failed"], reason: str | None = None) -> None:
            entry = TimelineEntry(
                kind="guardrail",
                started_at=started_at,
                duration_s=clock.monotonic() - begin,
                agent=effect.agent,
                name=guardrail.name,
                side="output" if is_output else "input",
                outcome=outcome,
                reason=reason,
            )
            append_timeline_entry(self._repository.timeline, entry)

        try:
            event = await self._check_guardrail(effect)
        except USER_CODE_ERRORS as error:
            add_entry("failed", error.message)
            raise
        if isinstance(event, GuardrailTripped):
            add_entry("tripped", event.reason)
        else:
            add_entry("passed")
        return event

    async def _check_guardrail(
        self, effect: CheckInputGuardrail | CheckOutputGuardrail
    ) -> GuardrailPassed | GuardrailTripped:
        agent, context = self._graph[effect.agent], self._make_context(effect.agent)
        if isinstance(effect, CheckOutputGuardrail):
            return await user_code.run_guardrail(
                agent.output_guardrails[effect.guardrail_index], effect.guardrail_index, context, effect.output
            )
        view, state = self._repository.view, self._chat.state
        if view:
            state = replace(state, path=view.path, confirmed_head=view.path.root)
        input_items = list(self._chat.options.build_input(state).items)
        return await user_code.run_guardrail(
            agent.input_guardrails[effect.guardrail_index], effect.guardrail_index, context, input_items
        )

    async def _evaluate_approval(self, call: ToolCall) -> RunEvent:
        tool = call.tool
        assert tool
        assert callable(tool.needs_approval)
        arguments = read_arguments(tool, call.arguments)
        description = f"the approval rule of tool {tool.title!r}"
        needs_approval = await call_user_predicate(
            description, "tool_failed", tool.needs_approval, self._make_call_context(call), arguments
        )
        return ApprovalEvaluated(call.id, needs_approval)

    async def _perform_handoff(self, effect: PrepareHandoff) -> None:
        """Make the next agent's input. The function of a handoff is called once, and not again after a kill."""
        repository, handoff_defaults = self._repository, self._config.handoff_defaults
        state = self._chat.state
        try:
            plan = prepare.plan_handoff_input(
                self._graph, effect, handoff_defaults, is_server_history=state.is_server_side
            )
            handoff = prepare.resolve_handoff(self._graph, effect)
            if plan.warning:
                self._pending_events.append(make_warning_event(plan.warning))
            if handoff.taken and effect.call.id in self._started_call_ids:
                message = f"the function of the handoff to {effect.target} may have run before; it is not called again"
                self._pending_events.append(make_warning_event(message))
            elif handoff.taken:
                # Stored before the function is called: after a kill it counts as perhaps called, and is not called
                # again.
                await repository.save(self.run, repository.make_call_entry(self.run, effect.call.id))
                await prepare.call_on_handoff(handoff, effect, self._make_call_context(effect.call))
            context = self._make_call_context(effect.call)
            await self._call_hooks("handoff", context, effect.target)
            view = await prepare.build_handoff_view(plan, handoff_defaults, repository.checkpoint, state.path, context)
        except USER_CODE_ERRORS as error:
            await self.dispatch(EffectFailed(error.code, error.message), error)
            return
        repository.checkpoint = replace(repository.checkpoint, view=view)
        event = HandoffEvent(type="convo.handoff", call_id=effect.call.id, source=effect.source, target=effect.target)
        self._pending_events.append(event)
        now = self._chat.deps.clock.now()
        entry = TimelineEntry("handoff", now, agent=effect.source, target=effect.target, call_id=effect.call.id)
        append_timeline_entry(repository.timeline, entry)
        await self.dispatch(HandoffCompleted())

    def _make_context(self, agent: str) -> Context:
        """Return the context for functions of `agent`."""
        repository, path = self._repository, self._chat.state.path
        view, input_head = repository.view, repository.checkpoint.input_head
        if view:
            input_items: Sequence[Item] = view.path.items[: view.initial_count]
        else:
            input_items = path.items[: path.depth(input_head)] if path.contains(input_head) else path.items
        usages, config = tuple(self.usages), self._config
        return Context(agent, "", "", config.values, usages, tuple(input_items), tool_input=config.tool_input)

    def _make_call_context(self, call: ToolCall) -> Context:
        return replace(self._make_context(self.run.agent), tool=get_call_title(call), call_id=call.id, call=call.item)

    # -- shutdown ----------------------------------------------------------------------------------

    async def _shutdown(self) -> None:
        """Commit the outputs received, cancel the other tasks, and write the replay file."""
        events = [result.event for result in await self._tasks.cancel_all()]
        for event in events:
            self._remember_output(event)
        end_entries = [
            self._repository.make_call_entry(self.run, returned.call_id, is_ended=True, output=returned.output)
            for returned in events
            if isinstance(returned, ToolReturned)
        ]
        if end_entries and self.run.phase is Phase.RUNNING_TOOLS:
            await self._chat.record.commit_run(RunUpdate(calls=tuple(end_entries)))
        await self._chat.write_replay_file()


EFFECT_HANDLERS: Mapping[type, Callable[[RunLoop, Any], Awaitable[None]]] = {
    RunTool: RunLoop._start_tool,
    CheckInputGuardrail: RunLoop._start_input_guardrail,
    CheckOutputGuardrail: RunLoop._start_output_guardrail,
    EvaluateApproval: RunLoop._start_approval_check,
    PrepareHandoff: RunLoop._perform_handoff,
    PauseRun: RunLoop._pause,
    FinishRun: RunLoop._finish,
    FailRun: RunLoop._fail,
    CancelTasks: RunLoop._cancel_tasks,
}
"""The method for each effect, except `CallModel`, which yields events, and `AppendToHistory`, which is committed
with its cause.
"""


def _find_call(run: Run, call_id: str) -> ToolCall:
    call = run.find_call(call_id)
    assert call
    return call
