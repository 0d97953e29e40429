"""The public API of agent runs over one conversation.

    runner = await AgentRunner.open(chat, graph)          loads the open run of the session, if any
    async for event in runner.start([user("hi")]): ...    starts a run
    runner.pending_calls                                  calls that need approval, once it is paused
    await runner.apply_decisions(ApprovalDecided("call_1", approve=True))
    async for event in runner.resume(): ...               after decisions, a failure or a killed process

A decision is committed before it is performed. After a kill another process loads the run and
resumes it: no request and no tool call is repeated, and a call that started without an output
needs a decision. A failed request leaves the run open; a tripped guardrail or user code that raised ends it.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
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
    find_open_run_row,
    load_run,
    open_run_repository,
)
from convo.agent_runner.prepare import PreparedRequest, build_agent_request, build_run_input, preview_agent_request
from convo.agent_runner.user_code import capture, capture_async, make_failure_output
from convo.agents.graph import AgentTool, Graph
from convo.chat.conversation import Chat
from convo.chat.open import open_chat
from convo.chat.session_record import ChatDeps, shielded
from convo.chat.turn import trim_to_last_input
from convo.errors import ConvoError, RunFailed, StateFault
from convo.history.items import Item, Json, StreamEvent, user_message
from convo.history.records import Strategy
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
from convo.stores.base import AgentRun
from convo.strategies.state import OwnerSelection
from convo.tools.tool import Context, Wrong, output_text, read_arguments

PHASES_WITHOUT_CALLS = (Phase.NEW, Phase.GUARDING, Phase.ASKING)
"""Phases without calls that need an output: new input may replace the open run."""


class AgentRunner:
    """Runs of agents on one chat, one after the other; do not use the chat otherwise while a run is read."""

    def __init__(
        self,
        chat: Chat,
        graph: Graph,
        conduct: RunConfig,
        keeper: RunRepository,
        run: Run,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> None:
        self.chat = chat
        self._graph, self._conduct, self._keeper = graph, conduct, keeper
        self._performing = RunLoop(chat, graph, conduct, keeper, run, self._inside, usages)

    @classmethod
    async def open(
        cls,
        chat: Chat,
        graph: Graph,
        conduct: RunConfig | None = None,
        *,
        kept: AgentRun | None = None,
        limits: RunLimits | None = None,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> "AgentRunner":
        """Load `run_row`, or the session's newest run if it has not ended; nothing is performed.

        limits:  replace those that the run began with
        usages:  the list of the outer run, for a nested one; the usage of this run is appended to it
        Raises WrongOwner and InvalidUsage for a configuration that the owner does not allow, NotFound and
        InvalidRunState for a stored run that does not match the graph.
        """
        conduct = conduct or RunConfig()
        validate_run_config(
            graph, conduct, chat.session.strategy, chat.asking, chat.edges.endpoint, _make_own_history_hint(chat)
        )
        kept = kept or await find_open_run_row(chat)
        run = await load_run(chat.edges.store, kept, graph) if kept else create_run(graph, conduct.limits)
        run = replace(run, limits=limits) if limits else run
        return cls(chat, graph, conduct, await open_run_repository(chat, kept, conduct.origin), run, usages)

    @classmethod
    async def adopt(
        cls,
        chat: Chat,
        run: Run,
        items: Sequence[Item],
        conduct: RunConfig | None = None,
        *,
        state: str | None = None,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> "AgentRunner":
        """Import a run from elsewhere, and store it.

        items:       the history up to the last response, without outputs of its calls, in place of the history of
                     `chat`; () when the chat's owner already has the history
        state_hash:  the content hash of the RunState that the run comes from
        usages:      as for `open`
        """
        conduct = conduct or RunConfig()
        validate_run_config(
            run.graph, conduct, chat.session.strategy, chat.asking, chat.edges.endpoint, _make_own_history_hint(chat)
        )
        held = chat.reread()
        if items:
            path = Path(held.path.root).grow(items)
            held = replace(held, path=path, mark=path.head)
        asked = trim_to_last_input(held.path).head
        keeper = RunRepository(chat, None, RunCheckpoint(asked, asked), conduct.origin)
        await keeper.begin(run, held, items, asked=asked, state=state)
        return cls(chat, run.graph, conduct, keeper, run, usages)

    @property
    def run(self) -> Run:
        """The current run; before the first one starts, a run in its initial phase."""
        return self._performing.run

    @property
    def kept(self) -> AgentRun | None:
        """The run's row in the store; None before the first run starts."""
        return self._keeper.kept

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that need a decision; empty unless the run is paused, so also after a kill until `resume`."""
        return self.run.pending if self.run.phase is Phase.PAUSED else ()

    @property
    def unfinished(self) -> bool:
        """Whether there is a run for `resume`."""
        return self.kept is not None and self.run.phase not in TERMINAL_PHASES

    @property
    def output(self) -> Json:
        """The final output, once the run is done."""
        return self.run.output

    def _check_between(self) -> None:
        """Raise StateFault when an open run has calls without an output."""
        if self.unfinished and self.run.phase not in PHASES_WITHOUT_CALLS:
            raise StateFault(
                f"{self._keeper.run_id} is {self.run.phase}, and its calls have no output yet",
                hint="decide on them and go on (convo approvals), or stop the run",
            )

    async def foreseen(self, items: Sequence[Item] = ()) -> PreparedRequest:
        """Return the next request as it would be with `items` as new input; nothing is stored and no tool runs.

        Without `items` it is the request that resumes an open run. Functions of the agent are called as for a real
        request: for instructions, for enabled tools, for the input.

        Raises StateFault when an open run has calls without an output, and RunFailed, InputFault and WrongOwner
        when user code raised or its result may not be sent.
        """
        self._check_between()
        held, conduct, last = self.chat.reread(), self._conduct, self.chat.record.last
        session = self.chat.record.session.id
        base = ModelRoute(self.chat.asking, self.chat.edges.endpoint)
        if self.unfinished and not items:
            standing = self._keeper.standing
            held = drop_partial_response(held, standing)
            done = standing.filtered if standing.filtered and standing.filtered[0] == held.path.head else None
            conduct = replace(conduct, input_filter=None) if done else conduct
            found = await preview_agent_request(
                self._graph, build_model_call(self.run), held, self._keeper.view, last, base, conduct, session
            )
            return replace(found, asking=replace(found.asking, instructions=done[1])) if done else found
        new = await build_run_input(held, items, conduct)
        grown = replace(held, path=held.path.grow(new.said))
        return await preview_agent_request(
            self._graph, CallModel(self._graph.start, 1), grown, new.view(grown.path), last, base, conduct, session
        )

    # -- actions of the user --------------------------------------------------------------------

    async def say(self, items: Sequence[Item]) -> AsyncGenerator[StreamEvent, None]:
        """Start a run with new input.

        Raises StateFault when an open run has calls without an output: call `apply_decisions` and `resume`, or `stop`.
        Raises RunFailed when a guardrail, the limit of turns or user code ended the run.
        Raises the errors of the endpoint and the store; the run then stays open, and `resume` sends the request again.
        """
        self._check_between()
        if self.unfinished:
            await self.stop()
        held = self.chat.reread()
        doubt = bool(held.unacknowledged)
        new = await build_run_input(held, items, self._conduct)
        grown = replace(held, path=held.path.grow(new.said))
        run, effects = step_run(create_run(self._graph, self._conduct.limits), RunStarted())
        await self._keeper.begin(run, grown, new.said, new.view(grown.path))
        self._performing.begin(run, effects, doubt=doubt)
        async with aclosing(self._performing.perform()) as events:
            async for event in events:
                yield event

    async def decide(self, *events: ApprovalDecided | ToolOutputSupplied | InputAdded) -> None:
        """Apply decisions, supplied outputs and input to a paused run, all or none, and commit them.

        Nothing runs before `resume`.
        Raises IllegalTransition and InputFault for an event that does not fit; nothing is changed then.
        """
        run, own = self.run, {call.id for call in self.run.at(Stage.UNKNOWN)}
        for event in events:
            run, _ = step_run(run, event)
        given = (event for event in events if isinstance(event, ToolOutputSupplied) and event.call_id in own)
        ends = [self._keeper.call(run, one.call_id, ended=True, output=one.output) for one in given]
        await shielded(self._keeper.keep(run, *ends))
        self._performing.take(run)

    async def taken_up(self) -> Run:
        """Return the open run as `resume` would start it; nothing is performed or stored."""
        return await self._performing.taken_up()

    async def at_rest(self) -> Run:
        """Return the run in a form that can be stored while no process runs it.

        The outcome of calls that started and have no output is unknown in it.
        """
        return await self._performing.at_rest()

    async def check_models(self) -> None:
        """Check that the models that receive the outputs of approved tools are available, before any tool runs.

        Raises Unreachable, KeyRefused, Unsupported and others when a model is not, RunFailed when user code raised.
        """
        base = ModelRoute(self.chat.asking, self.chat.edges.endpoint)
        for asking_run, items, conduct in _iter_next_model_calls(self.run, self.chat.held.path.items, self._conduct):
            context = Context(asking_run.agent, "", "", conduct.values, input=tuple(items))
            how = await build_agent_request(asking_run.graph, build_model_call(asking_run), base, conduct, context)
            said = how.asking
            words = {"instructions": said.instructions} if said.instructions is not None else {}
            body = {"model": said.wire_model, "input": items, "store": False, **words, **said.parameters}
            try:
                await how.endpoint.check_request(body)
            except ConvoError as wrong:
                wrong.args = (f"{wrong.message}; no tool has run",)
                raise

    async def go_on(self) -> AsyncGenerator[StreamEvent, None]:
        """Resume the open run: after decisions, a failed request, Ctrl-C or in another process.

        Without a decision a paused run pauses again and sends no request. Before an approved tool runs, the model
        that receives its output is checked.

        Raises StateFault when no run is open, and the errors of `check_models` and `start`.
        """
        if not self.unfinished:
            raise StateFault("no run is open here", hint="say something to begin one")
        if self.run.phase is Phase.PAUSED:
            await self.check_models()
        await self._performing.go_on()
        async with aclosing(self._performing.perform()) as events:
            async for event in events:
                yield event

    async def stop(self) -> None:
        """Cancel the open run; calls without an output get a substitute, so that the conversation can continue."""
        if self.unfinished:
            self.chat.reread()
            self._performing.take(self.run)
            await self._performing.hear(CancelRequested())
            await self.chat.write()

    async def _inside(self, call: ToolCall, tool: AgentTool) -> ToolReturned | NestedRunPaused:
        """Perform a call that has a nested run; the nested conversation is stored in the call alone.

        Raises RunFailed when the nested run failed and the tool has no failure message for it.
        """
        conduct, edges, usages = make_nested_config(tool, self._conduct), self.chat.edges, self._performing.usages
        assert conduct.scratch
        store = conduct.scratch()
        try:
            here = ChatDeps(store, edges.endpoint, edges.clock, edges.new_id)
            chat = await open_chat(OwnerSelection(Strategy.SESSION), None, self.chat.asking, here, name="inside")
            if call.inner:
                one = await AgentRunner.adopt(chat, call.inner.run, call.inner.items, conduct, usages=usages)
                events = one.go_on()
            else:
                one = await AgentRunner.open(chat, tool.inside, conduct, usages=usages)
                events = one.say([user_message(parse_nested_input(call, tool))])
            came = await capture_async(drain_events, events)
            if came.raised is not None:
                return ToolReturned(call.id, make_failure_output(tool, came.raised))
            if one.unfinished:
                return NestedRunPaused(call.id, NestedRun(one.run, chat.held.path.items))
            said = capture(tool.serialize or output_text, one.output)
            return ToolReturned(call.id, said.value if said.raised is None else make_failure_output(tool, said.raised))
        finally:
            await store.aclose()


def _iter_next_model_calls(
    run: Run, items: Sequence[Item], conduct: RunConfig
) -> Iterator[tuple[Run, list[Item], RunConfig]]:
    """Yield the runs whose model is called after the approved calls, nested ones first.

    Each with the model's input, placeholders in place of the outputs, and its configuration. A run without model
    calls left, or whose final output is a tool's output, is left out.
    """
    for call in run.batch:
        if isinstance(call.tool, AgentTool) and call.inner and call.stage is Stage.INSIDE:
            yield from _iter_next_model_calls(call.inner.run, call.inner.items, make_nested_config(call.tool, conduct))
        elif isinstance(call.tool, AgentTool) and call.stage is Stage.READY:
            yield create_run(call.tool.inside), [user_message("...")], make_nested_config(call.tool, conduct)
    left = run.limits.max_turns is None or run.turn < run.limits.max_turns
    if _has_ready_calls(run) and left and run.current.after_tools == "ask again":
        outputs = [
            call.output or build_function_call_output(call, "...") for call in run.batch if call.tool or call.output
        ]
        over = next((call.to for call in run.batch if call.to is not None), None)
        yield (replace(run, agent=over) if over else run), [*items, *outputs], conduct


def _has_ready_calls(run: Run) -> bool:
    """Return whether a call of the run, or of a nested run, runs next."""
    return bool(run.at(Stage.READY)) or any(_has_ready_calls(call.inner.run) for call in run.batch if call.inner)


def _make_own_history_hint(chat: Chat) -> str:
    """Return how to make the client own the history of `chat`."""
    return (
        f"convo convert {quote(chat.session.name or chat.session.id)} --to session"
        if chat.held.path
        else OWN_HISTORY_HINT
    )


async def drain_events(events: AsyncGenerator[StreamEvent, None]) -> None:
    """Read all events and ignore them."""
    async with aclosing(events):
        async for _ in events:
            pass


def parse_nested_input(call: ToolCall, tool: AgentTool) -> str:
    """Return the input of the agent behind a tool. Raises RunFailed for invalid arguments."""
    arguments = read_arguments(tool, call.arguments)
    if isinstance(arguments, Wrong):
        raise RunFailed(arguments.words, code="model_behavior")
    return str(arguments["input"])
