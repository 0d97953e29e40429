"""The public API of agent runs over one conversation.

    runner = await AgentRunner.open(chat, graph)          loads the open run of the session, if any
    async for event in runner.start([user("hi")]): ...    starts a run
    runner.pending_calls                                  calls that need approval, once it is paused
    await runner.apply_decisions(ApprovalDecided("call_1", approve=True))
    async for event in runner.resume(): ...               after decisions, a failure or a killed process

A decision is committed before it is performed. Other processes may decide on a paused run, too: the first decision
that is committed counts, and `load_decisions` loads those of the others. After a kill another process loads the run and
resumes it: no request and no tool call is repeated, and a call that started without an output
needs a decision. A failed request leaves the run open; a tripped guardrail or user code that raised ends it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from shlex import quote

from convo.agent_runner.config import (
    OWN_HISTORY_HINT,
    ModelRoute,
    RunConfig,
    make_nested_config,
    validate_run_config,
)
from convo.agent_runner.loop import RunLoop
from convo.agent_runner.persistence import (
    RunCheckpoint,
    RunRepository,
    drop_partial_response,
    find_last_agent,
    find_open_run_row,
    load_run,
    open_run_repository,
)
from convo.agent_runner.prepare import (
    AgentRequest,
    PreparedRequest,
    RunInput,
    build_agent_request,
    build_run_input,
    preview_agent_request,
)
from convo.agent_runner.user_code import call_user_code, capture, capture_async, make_failure_output
from convo.agents.graph import AgentTool, Graph
from convo.agents.handoff_history import to_sdk_form
from convo.agents.handoffs import build_handoff_tools
from convo.chat.conversation import Chat
from convo.chat.open import open_chat
from convo.chat.run_decisions import load_new_decisions, make_already_decided_error, make_run_continued_error
from convo.chat.session_record import ChatDeps
from convo.chat.turn import trim_to_last_input
from convo.errors import Conflict, ConvoError, RunFailed, StateFault
from convo.history.items import Item, Json, StreamEvent, user_message
from convo.history.records import AgentRun, ApprovalDecision, Strategy
from convo.history.tree import Path
from convo.runs.machine import build_function_call_output, build_model_call, step_run
from convo.runs.state import (
    TERMINAL_PHASES,
    ApprovalDecided,
    CallModel,
    CancelRequested,
    InputAdded,
    NestedRun,
    NestedRunPaused,
    Phase,
    Run,
    RunLimits,
    RunStarted,
    Stage,
    ToolCall,
    ToolOutputSupplied,
    ToolReturned,
    create_run,
)
from convo.runtime import shielded
from convo.strategies.instructions import is_developer_message
from convo.strategies.requests import build_open_call_outputs
from convo.strategies.selection import OwnerSelection
from convo.strategies.strategy import ConversationState
from convo.tools.tool import Context, InvalidArguments, output_text, read_arguments, tool_definitions

PHASES_WITHOUT_CALLS = (Phase.NEW, Phase.CHECKING_INPUT, Phase.CALLING_MODEL)
"""Phases without calls that need an output: new input may replace the open run."""


class AgentRunner:
    """Runs of agents on one chat, one after the other; do not use the chat otherwise while a run is read."""

    def __init__(
        self,
        chat: Chat,
        graph: Graph,
        config: RunConfig,
        repository: RunRepository,
        run: Run,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> None:
        self.chat = chat
        self._graph, self._config, self._repository = graph, config, repository
        self._chosen_agent = config.start_agent
        self._loop = RunLoop(chat, graph, config, repository, run, self._run_nested, usages)

    @classmethod
    async def open(
        cls,
        chat: Chat,
        graph: Graph,
        config: RunConfig | None = None,
        *,
        run_row: AgentRun | None = None,
        limits: RunLimits | None = None,
        usages: list[Mapping[str, Json]] | None = None,
        outer_timeline: dict[str, Json] | None = None,
    ) -> "AgentRunner":
        """Load `run_row`, or the session's newest run if it has not ended; nothing is performed.

        limits:  replace those that the run began with
        usages:  the list of the outer run, for a nested one; the usage of this run is appended to it
        outer_timeline:  as for `RunRepository`
        Raises WrongOwner and InvalidUsage for a configuration that the owner does not allow, NotFound and
        InvalidRunState for a stored run that does not match the graph.
        """
        config = config or RunConfig()
        validate_run_config(
            graph, config, chat.session.strategy, chat.options, chat.deps.endpoint, _make_own_history_hint(chat)
        )
        run_row = run_row or await find_open_run_row(chat)
        run = await load_run(chat.deps.store, run_row, graph) if run_row else create_run(graph, config.limits)
        run = replace(run, limits=limits) if limits else run
        repository = await open_run_repository(chat, run_row, config.agents_source, outer_timeline)
        return cls(chat, graph, config, repository, run, usages)

    @classmethod
    async def import_run(
        cls,
        chat: Chat,
        run: Run,
        items: Sequence[Item],
        config: RunConfig | None = None,
        *,
        state_hash: str | None = None,
        usages: list[Mapping[str, Json]] | None = None,
        outer_timeline: dict[str, Json] | None = None,
    ) -> "AgentRunner":
        """Import a run from elsewhere, and store it.

        items:       the history up to the last response, without outputs of its calls, in place of the history of
                     `chat`; () when the chat's owner already has the history
        state_hash:  the content hash of the RunState that the run comes from
        usages, outer_timeline:  as for `open`
        """
        config = config or RunConfig()
        validate_run_config(
            run.graph, config, chat.session.strategy, chat.options, chat.deps.endpoint, _make_own_history_hint(chat)
        )
        state = chat.load_state()
        if items:
            path = Path(state.path.root).append(items)
            state = replace(state, path=path, confirmed_head=path.head)
        input_head = trim_to_last_input(state.path).head
        checkpoint = RunCheckpoint(input_head, input_head)
        repository = RunRepository(chat, None, checkpoint, config.agents_source, outer_timeline)
        await repository.create(run, state, items, input_head=input_head, state_hash=state_hash)
        return cls(chat, run.graph, config, repository, run, usages)

    @property
    def run(self) -> Run:
        """The current run; before the first one starts, a run in its initial phase."""
        return self._loop.run

    @property
    def run_row(self) -> AgentRun | None:
        """The run's row in the store; None before the first run starts."""
        return self._repository.run_row

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """The calls that need a decision; empty unless the run is paused, so also after a kill until `resume`."""
        return self.run.pending if self.run.phase is Phase.PAUSED else ()

    @property
    def can_resume(self) -> bool:
        """Whether there is a run for `resume`."""
        return self.run_row is not None and self.run.phase not in TERMINAL_PHASES

    @property
    def output(self) -> Json:
        """The final output, once the run is done."""
        return self.run.output

    def choose_agent(self, name: str) -> None:
        """Begin the next run with an agent. Raises NotFound."""
        self._chosen_agent = self._graph.find_identity(name)

    async def find_next_agent(self) -> str:
        """Return the agent that begins the next run, by identity: the chosen one, else the one that answered last."""
        if self._chosen_agent:
            return self._chosen_agent
        if self.run_row and self.chat.state.path.contains(self._repository.checkpoint.input_head):
            return self.run.agent
        return await find_last_agent(self.chat, self._graph, self._config.agents_source)

    def list_changed_tools(self) -> list[str]:
        """Return the tools of MCP servers that differ from those of the open run's last request, with the change."""
        agent, link = self.run.current_agent, self.chat.record.last_link
        if agent.servers is None or link is None or not (self.can_resume and self.run.calls):
            return []
        requested = {tool.get("name"): tool for tool in link.parameters.get("tools") or ()}
        listed = {tool["name"]: tool for tool in tool_definitions(agent.server_tools)}
        other_names = {tool.name for tool in agent.functions if tool.origin is None}
        other_names |= {offer.name for offer in build_handoff_tools(self.run.graph, self.run.agent)}
        return [
            *(f"{name} has changed" for name, tool in listed.items() if requested.get(name, tool) != tool),
            *(f"{name} is new" for name in listed if name not in requested),
            *(f"{name} is missing" for name in requested if name and name not in {*listed, *other_names}),
        ]

    def _check_accepts_input(self) -> None:
        """Raise StateFault when an open run has calls without an output."""
        if self.can_resume and self.run.phase not in PHASES_WITHOUT_CALLS:
            raise StateFault(
                f"{self._repository.run_id} is {self.run.phase}, and its calls have no output yet",
                hint="approve or reject them (convo approvals) and resume the run, or cancel it",
            )

    def append_input(self, state: ConversationState, run_input: RunInput) -> ConversationState:
        """Append the input of a new run, with the chat's instructions where no agent has its own, as with --tool."""
        is_whole_history = run_input.model_items is None
        if is_whole_history and all(agent.instructions is None for agent in self._graph.agents.values()):
            return self.chat.append_input(state, run_input.new_items)
        return replace(state, path=state.path.append(run_input.new_items))

    async def preview_request(self, items: Sequence[Item] = ()) -> PreparedRequest:
        """Return the next request as it would be with `items` as new input; nothing is stored and no tool runs.

        Without `items` it is the request that resumes an open run. Functions of the agent are called as for a real
        request: for instructions, for enabled tools, for the input.

        Raises StateFault when an open run has calls without an output, and RunFailed, InputFault and WrongOwner
        when user code raised or its result may not be sent.
        """
        self._check_accepts_input()
        state, config, last_link = self.chat.load_state(), self._config, self.chat.record.last_link
        session = self.chat.record.session.id
        base_route = ModelRoute(self.chat.options, self.chat.deps.endpoint)
        if self.can_resume and not items:
            checkpoint = self._repository.checkpoint
            state = drop_partial_response(state, checkpoint)
            filtered_input = (
                checkpoint.filtered_input
                if checkpoint.filtered_input and checkpoint.filtered_input[0] == state.path.head
                else None
            )
            config = replace(config, input_filter=None) if filtered_input else config
            prepared = await preview_agent_request(
                self._graph,
                build_model_call(self.run),
                state,
                self._repository.view,
                last_link,
                base_route,
                config,
                session,
            )
            return (
                replace(prepared, options=replace(prepared.options, instructions=filtered_input[1]))
                if filtered_input
                else prepared
            )
        state, _ = await self._load_sdk_session(state)
        state = replace(state, path=state.path.append(build_open_call_outputs(state, items)))
        run_input = await build_run_input(state, items, config)
        new_state = self.append_input(state, run_input)
        graph = replace(self._graph, start=await self.find_next_agent())
        return await preview_agent_request(
            graph,
            CallModel(graph.start, 1),
            new_state,
            run_input.make_view(new_state.path),
            last_link,
            base_route,
            config,
            session,
        )

    # -- actions of the user --------------------------------------------------------------------

    async def start(self, items: Sequence[Item]) -> AsyncGenerator[StreamEvent, None]:
        """Start a run with new input.

        Raises StateFault when an open run has calls without an output: call `apply_decisions` and `resume`, or `stop`.
        Raises PrefixChanged, before anything is stored, when the prefix guard refuses the first request.
        Raises RunFailed when a guardrail, the limit of turns, user code or a response that was cut in its calls ended
        the run.
        Raises the errors of the endpoint and the store; the run then stays open, and `resume` sends the request again.
        """
        self._check_accepts_input()
        await self._check_prefix(items)
        if self.can_resume:
            await self.stop()
        state, graph = self.chat.load_state(), replace(self._graph, start=await self.find_next_agent())
        check_tail = bool(state.unconfirmed_nodes)
        state, earlier_items = await self._load_sdk_session(state)
        state = self.chat.answer_open_calls(state, items)
        run_input = await build_run_input(state, items, self._config)
        new_state = self.append_input(state, run_input)
        run, effects = step_run(create_run(graph, self._config.limits), RunStarted())
        new_items = (*earlier_items, *run_input.new_items)
        await self._repository.create(run, new_state, new_items, run_input.make_view(new_state.path))
        await self._save_to_sdk_session(run_input.new_items)
        self._chosen_agent = None
        self._loop.start(run, effects, check_tail=check_tail)
        async with aclosing(self._perform()) as events:
            async for event in events:
                yield event

    async def _perform(self) -> AsyncGenerator[StreamEvent, None]:
        """Perform the run, and give its new items to the session of the Agents SDK when it is done."""
        async with aclosing(self._loop.perform()) as events:
            async for event in events:
                yield event
        if self._config.sdk_session is not None and self.run.phase is Phase.DONE:
            path = self.chat.state.path
            await self._save_to_sdk_session(path.items[path.depth(self._repository.checkpoint.input_head) :])

    async def _load_sdk_session(self, state: ConversationState) -> tuple[ConversationState, Sequence[Item]]:
        """Return the state of a new conversation with the items of the session of the Agents SDK, and these items."""
        session = self._config.sdk_session
        if session is None or state.path:
            return state, ()
        limit = self._config.session_limit
        items: list[Item] = await call_user_code("the SDK session", "sdk_session", session.get_items, limit)
        return replace(state, path=state.path.append(items)), items

    async def _save_to_sdk_session(self, items: Sequence[Item]) -> None:
        """Give the session of the Agents SDK the items of the conversation that it lacks.

        After a kill these are more than `items`, the new ones. A session that changes its items receives only these.
        """
        session = self._config.sdk_session
        if session is None:
            return
        held: list[Item] = await call_user_code("the SDK session", "sdk_session", session.get_items)
        own = [to_sdk_form(item) for item in self.chat.state.path.items if not is_developer_message(item)]
        shared_count = next((n for n in range(min(len(held), len(own)), 0, -1) if held[-n:] == own[:n]), 0)
        missing = own[shared_count:] if shared_count or not held else [to_sdk_form(item) for item in items]
        if missing:
            await call_user_code("the SDK session", "sdk_session", session.add_items, missing)

    async def _check_prefix(self, items: Sequence[Item]) -> None:
        """Raise PrefixChanged if the guard refuses a run with `items`: a stored run would keep them, and its agents."""
        chat = self.chat
        guard, last_link = chat.options.prefix_guard, chat.record.last_link
        if guard is None or not guard.is_strict or last_link is None:
            return
        prepared, state = await self.preview_request(items), chat.state
        body = prepared.options.build_body(prepared.request_input, [node.item for node in state.prepended_nodes])
        now, path = chat.deps.clock.now(), prepared.input_path
        planned = prepared.options.plan_link(body, path, state.strategy, prepared.endpoint.scope, now)
        await (prepared.options.prefix_guard or guard).forecast_turn(chat.deps.store, last_link, planned, path)

    async def apply_decisions(
        self, *events: ApprovalDecided | ToolOutputSupplied | InputAdded
    ) -> Sequence[ApprovalDecision]:
        """Apply decisions, supplied outputs and input to a paused run, all or none, and commit them.

        Nothing runs before `resume`. Decisions of other processes on other calls are kept, and returned if they were
        not loaded before.
        Raises IllegalTransition and InputFault for an event that does not fit, AlreadyDecided for a call that another
        process decided (see `load_decisions`), Conflict if it continued the run; nothing is changed then.
        """
        others: list[ApprovalDecision] = []
        while True:
            try:
                await self._apply_decisions(events)
                return others
            except Conflict:
                found = await self._find_decisions()
                if found is None:
                    raise
            call_ids = {event.call_id for event in events if not isinstance(event, InputAdded)}
            if decision := next((one for one in found[1] if one.call_id in call_ids), None):
                raise make_already_decided_error(decision)
            others += await self._load_decisions(*found)

    async def load_decisions(self) -> Sequence[ApprovalDecision]:
        """Load the decisions that other processes have made on the paused run, and return them, oldest first.

        Nothing runs before `resume`. Returns () unless the run is paused.
        Raises Conflict if another process continued or deleted the run.
        """
        found = await self._find_decisions()
        return await self._load_decisions(*found) if found else ()

    async def _find_decisions(self) -> tuple[AgentRun, Sequence[ApprovalDecision]] | None:
        """Return the paused run's row as stored now, and the decisions in it that are new; None if it is unchanged.

        Raises Conflict if another process continued or deleted the run.
        """
        row = self.run_row
        if row is None or self.run.phase is not Phase.PAUSED:
            return None
        stored = await self.chat.deps.store.agent_run(row.id)
        if stored is None or (stored.revision != row.revision and stored.status != "paused"):
            raise make_run_continued_error(row.id)
        if stored.revision == row.revision:
            return None
        return stored, await load_new_decisions(self.chat.deps.store, row.document, stored)

    async def _load_decisions(self, row: AgentRun, decisions: Sequence[ApprovalDecision]) -> Sequence[ApprovalDecision]:
        run = await load_run(self.chat.deps.store, row, self._graph)
        self._repository.run_row = row
        # The limits of this command, not those that the run began with.
        self._loop.load(replace(run, limits=self.run.limits))
        return decisions

    async def _apply_decisions(self, events: Sequence[ApprovalDecided | ToolOutputSupplied | InputAdded]) -> None:
        run, unknown_ids = self.run, {call.id for call in self.run.calls_at(Stage.OUTCOME_UNKNOWN)}
        events = [await self._with_rejection_message(event) for event in events]
        for event in events:
            run, _ = step_run(run, event)
        outputs = (event for event in events if isinstance(event, ToolOutputSupplied) and event.call_id in unknown_ids)
        end_entries = [
            self._repository.make_call_entry(run, supplied.call_id, is_ended=True, output=supplied.output)
            for supplied in outputs
        ]
        decisions = [event for event in events if isinstance(event, ApprovalDecided)]
        await shielded(self._repository.save_decisions(self.run, run, decisions, *end_entries))
        self._loop.load(run)

    async def _with_rejection_message(
        self, event: ApprovalDecided | ToolOutputSupplied | InputAdded
    ) -> ApprovalDecided | ToolOutputSupplied | InputAdded:
        """Return a rejection without a message with the one that the application gives it."""
        format_rejection = self._config.format_rejection
        if not isinstance(event, ApprovalDecided) or event.approve or event.message or format_rejection is None:
            return event
        call = find_pending_call(self.run, event.call_id)
        if call is None or call.tool is None:
            return event
        context = Context(self.run.agent, call.tool.title, call.id, self._config.values, call=call.item)
        message = await call_user_code("the tool error formatter", "tool_error", format_rejection, call, context)
        return replace(event, message=message)

    async def preview_resume(self) -> Run:
        """Return the open run as `resume` would start it; nothing is performed or stored."""
        return await self._loop.preview_resume()

    async def to_storable_run(self) -> Run:
        """Return the run in a form that can be stored while no process runs it.

        The outcome of calls that started and have no output is unknown in it.
        """
        return await self._loop.to_storable_run()

    async def check_models(self) -> None:
        """Check that the models that receive the outputs of approved tools are available, before any tool runs.

        Raises Unreachable, KeyRefused, Unsupported and others when a model is not, RunFailed when user code raised, and
        PrefixChanged when the prefix guard refuses the next request.
        """
        base_route = ModelRoute(self.chat.options, self.chat.deps.endpoint)
        for next_run, items, config in _iter_next_model_calls(self.run, self.chat.state.path.items, self._config):
            context = Context(next_run.agent, "", "", config.values, input=tuple(items))
            agent_request = await build_agent_request(
                next_run.graph, build_model_call(next_run), base_route, config, context
            )
            options = agent_request.options
            instructions = {"instructions": options.instructions} if options.instructions is not None else {}
            body = {"model": options.wire_model, "input": items, "store": False, **instructions, **options.parameters}
            if config is self._config:
                await self._check_resumed_prefix(agent_request, body, items)
            try:
                await agent_request.endpoint.check_request(body)
            except ConvoError as error:
                # A state whose history no server accepts had its approved tool run first, and was refused then.
                error.args = (f"{error.message}; no tool was run",)
                raise

    async def _check_resumed_prefix(
        self, agent_request: AgentRequest, body: Mapping[str, Json], items: Sequence[Item]
    ) -> None:
        """Raise PrefixChanged if the guard refuses the request that follows the approved calls.

        items:  the history, and placeholders in place of the outputs
        """
        options, state, view = agent_request.options, self.chat.state, self._repository.view
        guard, last_link = options.prefix_guard, self.chat.record.last_link
        if guard is None or not guard.is_strict or last_link is None or self._config.input_filter is not None:
            return
        path = (view.extend_to(state.path).path if view else state.path).append(items[len(state.path) :])
        now, scope = self.chat.deps.clock.now(), agent_request.endpoint.scope
        planned = options.plan_link(body, path, state.strategy, scope, now)
        await guard.forecast_turn(self.chat.deps.store, last_link, planned, path)

    async def resume(self) -> AsyncGenerator[StreamEvent, None]:
        """Resume the open run: after decisions, a failed request, Ctrl-C or in another process.

        Without a decision a paused run pauses again and sends no request. Before an approved tool runs, the model
        that receives its output is checked.

        Raises StateFault when no run is open, and the errors of `check_models` and `start`.
        """
        if not self.can_resume:
            raise StateFault("no run is open", hint="send a message to start one")
        if self.run.phase is Phase.PAUSED:
            await self.check_models()
        await self._with_new_decisions(self._loop.resume)
        async with aclosing(self._perform()) as events:
            async for event in events:
                yield event

    async def stop(self) -> None:
        """Cancel the open run; calls without an output get a substitute, so that the conversation can continue."""
        if self.can_resume:
            self.chat.load_state()
            await self._with_new_decisions(self._cancel)
            await self.chat.write_replay_file()

    async def _cancel(self) -> None:
        self._loop.load(self.run)
        await self._loop.dispatch(CancelRequested())

    async def _with_new_decisions(self, leave_pause: Callable[[], Awaitable[None]]) -> None:
        """Leave the pause, after decisions of other processes that were committed before."""
        while True:
            try:
                await leave_pause()
                return
            except Conflict:
                found = await self._find_decisions()
                if found is None:
                    raise
            await self._load_decisions(*found)

    async def _run_nested(self, call: ToolCall, tool: AgentTool) -> ToolReturned | NestedRunPaused:
        """Perform a call that has a nested run; the nested conversation is stored in the call alone.

        Raises RunFailed when the nested run failed and the tool has no failure message for it.
        """
        config, deps, usages = make_nested_config(tool, self._config), self.chat.deps, self._loop.usages
        timeline = self._repository.timeline
        nested_input = await capture_async(read_nested_input, call, tool)
        if nested_input.exception is not None and tool.read_input is not None:
            return ToolReturned(call.id, make_failure_output(tool, nested_input.exception))
        if nested_input.exception is not None:
            raise nested_input.exception
        tool_input, items = nested_input.value
        config = replace(config, tool_input=tool_input)
        assert config.open_scratch_store
        store = config.open_scratch_store()
        try:
            nested_deps = ChatDeps(store, deps.endpoint, deps.clock, deps.new_id)
            chat = await open_chat(
                OwnerSelection(Strategy.SESSION), None, self.chat.options, nested_deps, name="inside"
            )
            if call.nested_run:
                nested_runner = await AgentRunner.import_run(
                    chat,
                    call.nested_run.run,
                    call.nested_run.items,
                    config,
                    usages=usages,
                    outer_timeline=timeline,
                )
                events = nested_runner.resume()
            else:
                nested_runner = await AgentRunner.open(chat, tool.graph, config, usages=usages, outer_timeline=timeline)
                events = nested_runner.start(items)
            outcome = await capture_async(drain_events, events)
            if outcome.exception is not None:
                return ToolReturned(call.id, make_failure_output(tool, outcome.exception))
            if nested_runner.can_resume:
                return NestedRunPaused(call.id, NestedRun(nested_runner.run, tuple(chat.state.path.items)))
            serialized = capture(tool.serialize or output_text, nested_runner.output)
            return ToolReturned(
                call.id,
                serialized.value if serialized.exception is None else make_failure_output(tool, serialized.exception),
            )
        finally:
            await store.aclose()


def _iter_next_model_calls(
    run: Run, items: Sequence[Item], config: RunConfig
) -> Iterator[tuple[Run, list[Item], RunConfig]]:
    """Yield the runs whose model is called after the approved calls, nested ones first.

    Each with the model's input, placeholders in place of the outputs, and its configuration. A run without model
    calls left, or whose final output is a tool's output, is omitted.
    """
    for call in run.calls:
        if isinstance(call.tool, AgentTool) and call.nested_run and call.stage is Stage.NESTED_RUN_PAUSED:
            yield from _iter_next_model_calls(
                call.nested_run.run, call.nested_run.items, make_nested_config(call.tool, config)
            )
        elif isinstance(call.tool, AgentTool) and call.stage is Stage.READY:
            yield create_run(call.tool.graph), [user_message("...")], make_nested_config(call.tool, config)
    has_turns_left = run.limits.max_turns is None or run.turn < run.limits.max_turns
    if _has_ready_calls(run) and has_turns_left and run.current_agent.after_tools == "ask again":
        outputs = [
            call.output or build_function_call_output(call, "...") for call in run.calls if call.tool or call.output
        ]
        target_agent = next((call.target for call in run.calls if call.target is not None), None)
        yield (replace(run, agent=target_agent) if target_agent else run), [*items, *outputs], config


def find_pending_call(run: Run, call_id: str) -> ToolCall | None:
    """Return the call that needs a decision, of the run or of a nested run."""
    nested = [call.nested_run.run for call in run.calls if call.nested_run]
    own = next((call for call in run.pending if call.id == call_id), None)
    return own or next(filter(None, (find_pending_call(inner, call_id) for inner in nested)), None)


def _has_ready_calls(run: Run) -> bool:
    """Return whether a call of the run, or of a nested run, runs next."""
    return bool(run.calls_at(Stage.READY)) or any(
        _has_ready_calls(call.nested_run.run) for call in run.calls if call.nested_run
    )


def _make_own_history_hint(chat: Chat) -> str:
    """Return how to make the client own the history of `chat`."""
    return (
        f"convo convert {quote(chat.session.name or chat.session.id)} --to session"
        if chat.state.path
        else OWN_HISTORY_HINT
    )


async def drain_events(events: AsyncGenerator[StreamEvent, None]) -> None:
    """Read all events and ignore them."""
    async with aclosing(events):
        async for _ in events:
            pass


async def read_nested_input(call: ToolCall, tool: AgentTool) -> tuple[Json, list[Item]]:
    """Return the parameters of an agent used as a tool, and the input of its run.

    Raises RunFailed for invalid arguments, and the errors of `read_input`.
    """
    if tool.read_input is not None:
        values, given = await tool.read_input(call.arguments)
        return values, [user_message(given)] if isinstance(given, str) else list(given)
    arguments = read_arguments(tool, call.arguments)
    if isinstance(arguments, InvalidArguments):
        raise RunFailed(arguments.message, code="model_behavior")
    return None, [user_message(str(arguments["input"]))]
