"""Runs agents over one conversation: performs what the run machine asks for, in one loop.

The machine (`convo.run`) decides and this file does: it asks the model by the owner's strategy,
starts tools beside each other, hears guardrails, hands over, pauses. One order holds everywhere:
what was decided is durable before anything of it is done. An answer, the run that follows from it
and the starts of its calls are one change; a result is in the ledger as it comes. So after a kill
at any instruction another process opens the same run and goes on: nothing is sent twice and nothing
done twice, and a call that had started and left no result comes back as a decision.

    running = await Running.open(chat, graph)         goes on with the session's run where one is open
    async for event in running.say([user("hi")]): ... begins a run with new input
    running.pending                                   the calls that wait for a person, once it is paused
    await running.decide(Decided("call_1", approve=True))
    async for event in running.go_on(): ...           goes on, after decisions, a failure or a kill

Streaming and collected use are the same generator: who wants the answer whole reads to the end and
takes `output`. It yields the model's events as they travel and convo's own between them; `telling`
lists those. A failed request leaves the run open where it was; what a guardrail or an agent's own
code says no to ends it.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from shlex import quote

from convo.agents import AgentTool, Graph
from convo.engine.adopting import question
from convo.engine.agent_asking import asked
from convo.engine.chat import Chat
from convo.engine.conduct import OWN_IT, Conduct, ModelInput, Route, check, inside
from convo.engine.edges import Edges
from convo.engine.opening import open_chat
from convo.engine.performing import Performing
from convo.engine.preparing import Foreseen, begun_with, foreseen
from convo.engine.record import whole
from convo.engine.run_keeping import Keeper, kept_run, newest_of, opened, read_run
from convo.engine.standing import Standing, unanswered
from convo.engine.theirs import came_of, outcome
from convo.engine.tooling import worded
from convo.errors import ConvoError, RunFailed, StateFault
from convo.history import Path, Strategy
from convo.items import Event, Item, Json, user
from convo.run import (
    Ask,
    Begin,
    Call,
    Decided,
    Given,
    Inner,
    Limits,
    PausedInside,
    Phase,
    Returned,
    Run,
    Said,
    Stop,
    begin,
    decide,
)
from convo.run.answers import output_item
from convo.run.moves import asking
from convo.run.state import ENDED, Stage
from convo.stores.contract import AgentRun
from convo.strategies import Wanted
from convo.tools import Context, Wrong, output_text, read_arguments

__all__ = ["Conduct", "ModelInput", "Route", "Running", "kept_run"]

BETWEEN = (Phase.NEW, Phase.GUARDING, Phase.ASKING)
"""Where a run stands that has no call without an output: something else may be said instead of going on."""


class Running:
    """Runs of agents on one chat, one after the other; the chat is not used otherwise while one is read."""

    def __init__(
        self,
        chat: Chat,
        graph: Graph,
        conduct: Conduct,
        keeper: Keeper,
        run: Run,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> None:
        self.chat = chat
        self._graph, self._conduct, self._keeper = graph, conduct, keeper
        self._performing = Performing(chat, graph, conduct, keeper, run, self._inside, usages)

    @classmethod
    async def open(
        cls,
        chat: Chat,
        graph: Graph,
        conduct: Conduct | None = None,
        *,
        kept: AgentRun | None = None,
        limits: Limits | None = None,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> "Running":
        """Take up `kept`, or the session's own newest run where it has not ended; nothing is performed.

        limits:  in place of those that the run began with
        usages:  that of the run in whose call this one is; it grows with this one's
        raises:  WrongOwner, Usage  an agent, a filter or a limit that the owner does not allow
                 NotFound, BadState  the kept run does not fit the graph
        """
        conduct = conduct or Conduct()
        check(graph, conduct, chat.session.strategy, chat.asking, chat.edges.endpoint, _own_it(chat))
        kept = kept or await newest_of(chat)
        run = await read_run(chat.edges.store, kept, graph) if kept else begin(graph, conduct.limits)
        run = replace(run, limits=limits) if limits else run
        return cls(chat, graph, conduct, await opened(chat, kept, conduct.origin), run, usages)

    @classmethod
    async def adopt(
        cls,
        chat: Chat,
        run: Run,
        items: Sequence[Item],
        conduct: Conduct | None = None,
        *,
        state: str | None = None,
        usages: list[Mapping[str, Json]] | None = None,
    ) -> "Running":
        """Take up a run that was written down elsewhere, and keep it.

        items:   what was said, the last answer included and without outputs of its calls, in place of what
                 `chat` holds; () where the chat's owner has the history already
        state:   the content hash of the RunState that it comes from
        usages:  as in `open`
        """
        conduct = conduct or Conduct()
        check(run.graph, conduct, chat.session.strategy, chat.asking, chat.edges.endpoint, _own_it(chat))
        held = chat.reread()
        if items:
            path = Path(held.path.root).grow(items)
            held = replace(held, path=path, mark=path.head)
        asked = question(held.path).head
        keeper = Keeper(chat, None, Standing(asked, asked), conduct.origin)
        await keeper.begin(run, held, items, asked=asked, state=state)
        return cls(chat, run.graph, conduct, keeper, run, usages)

    @property
    def run(self) -> Run:
        """The run as it stands; before the first one is begun, one that has not begun."""
        return self._performing.run

    @property
    def kept(self) -> AgentRun | None:
        """The run's row in the store; None before the first one is begun."""
        return self._keeper.kept

    @property
    def pending(self) -> tuple[Call, ...]:
        """The calls that wait for a person; none while the run is not paused, as after a kill: `go_on` tells then."""
        return self.run.pending if self.run.phase is Phase.PAUSED else ()

    @property
    def unfinished(self) -> bool:
        """Whether `go_on` has something to go on with."""
        return self.kept is not None and self.run.phase not in ENDED

    @property
    def output(self) -> Json:
        """The final value, once the run is done."""
        return self.run.output

    def _check_between(self) -> None:
        """raises: StateFault  a run is open whose calls have no output yet"""
        if self.unfinished and self.run.phase not in BETWEEN:
            raise StateFault(
                f"{self._keeper.run_id} is {self.run.phase}, and its calls have no output yet",
                hint="decide on them and go on (convo approvals), or stop the run",
            )

    async def foreseen(self, items: Sequence[Item] = ()) -> Foreseen:
        """How the next request would be made, were `items` said now; nothing is kept, and no tool is run.

        Without `items` it is the one with which an open run goes on. Functions of the agent are asked, as
        they would be then: for instructions, for what is on, for the input.

        raises:  StateFault  a run is open whose calls have no output yet
                 RunFailed, InputFault, WrongOwner  what a person wrote raised, or may not be sent
        """
        self._check_between()
        held, conduct, last = self.chat.reread(), self._conduct, self.chat.record.last
        session = self.chat.record.session.id
        base = Route(self.chat.asking, self.chat.edges.endpoint)
        if self.unfinished and not items:
            standing = self._keeper.standing
            held = unanswered(held, standing)
            done = standing.filtered if standing.filtered and standing.filtered[0] == held.path.head else None
            conduct = replace(conduct, input_filter=None) if done else conduct
            found = await foreseen(self._graph, asking(self.run), held, self._keeper.view, last, base, conduct, session)
            return replace(found, asking=replace(found.asking, instructions=done[1])) if done else found
        new = await begun_with(held, items, conduct)
        grown = replace(held, path=held.path.grow(new.said))
        return await foreseen(
            self._graph, Ask(self._graph.start, 1), grown, new.view(grown.path), last, base, conduct, session
        )

    # -- what a person may do -------------------------------------------------------------------

    async def say(self, items: Sequence[Item]) -> AsyncGenerator[Event, None]:
        """Begin a run with new input.

        raises:  StateFault  a run is open whose calls have no output yet: `decide` and `go_on`, or `stop`
                 RunFailed   a guardrail, too many turns, or an agent's own code ended the run
                 what endpoint and store answered; the run stays open, and `go_on` asks again
        """
        self._check_between()
        if self.unfinished:
            await self.stop()
        held = self.chat.reread()
        doubt = bool(held.unacknowledged)
        new = await begun_with(held, items, self._conduct)
        grown = replace(held, path=held.path.grow(new.said))
        run, effects = decide(begin(self._graph, self._conduct.limits), Begin())
        await self._keeper.begin(run, grown, new.said, new.view(grown.path))
        self._performing.begin(run, effects, doubt=doubt)
        async with aclosing(self._performing.perform()) as events:
            async for event in events:
                yield event

    async def decide(self, *events: Decided | Given | Said) -> None:
        """Take decisions, outcomes and input at a pause, all or none, and keep them; nothing runs before `go_on`.

        raises:  IllegalMove, InputFault  one of them does not fit; nothing was changed
        """
        run, own = self.run, {call.id for call in self.run.at(Stage.UNKNOWN)}
        for event in events:
            run, _ = decide(run, event)
        given = (event for event in events if isinstance(event, Given) and event.call_id in own)
        ends = [self._keeper.call(run, one.call_id, ended=True, output=one.output) for one in given]
        await whole(self._keeper.keep(run, *ends))
        self._performing.take(run)

    async def taken_up(self) -> Run:
        """How the open run stands when `go_on` begins; nothing is performed or kept."""
        return await self._performing.taken_up()

    async def at_rest(self) -> Run:
        """The run in a form that can be stored while no process runs it; calls without a result are unknown."""
        return await self._performing.at_rest()

    async def check_models(self) -> None:
        """Find out whether the models that get the outputs of approved tools can be asked; no tool has run yet.

        raises:  Unreachable, KeyRefused, Unsupported, ...  a model cannot;  RunFailed  an agent's own code raised
        """
        base = Route(self.chat.asking, self.chat.edges.endpoint)
        for asking_run, items, conduct in _to_be_asked(self.run, self.chat.held.path.items, self._conduct):
            context = Context(asking_run.agent, "", "", conduct.values, input=tuple(items))
            how = await asked(asking_run.graph, asking(asking_run), base, conduct, context)
            said = how.asking
            words = {"instructions": said.instructions} if said.instructions is not None else {}
            body = {"model": said.wire_model, "input": items, "store": False, **words, **said.parameters}
            try:
                await how.endpoint.check_request(body)
            except ConvoError as wrong:
                wrong.args = (f"{wrong.message}; no tool has run",)
                raise

    async def go_on(self) -> AsyncGenerator[Event, None]:
        """Go on with the open run: after decisions, a failed request, Ctrl-C or in another process.

        Without a decision a paused run pauses again, and nothing is asked. Before an approved tool runs the model
        is checked that gets its output.

        raises:  StateFault  no run is open;  as `check_models`;  otherwise as `say`
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
        """End the open run for good; calls without an output get words for it, so that the conversation goes on."""
        if self.unfinished:
            self.chat.reread()
            self._performing.take(self.run)
            await self._performing.hear(Stop())
            await self.chat.write()

    async def _inside(self, call: Call, tool: AgentTool) -> Returned | PausedInside:
        """Perform a call behind which a run of its own stands; what is said in it is kept in the call alone.

        raises:  RunFailed  that run did, and the tool has no words for it
        """
        conduct, edges, usages = inside(tool, self._conduct), self.chat.edges, self._performing.usages
        assert conduct.scratch
        store = conduct.scratch()
        try:
            here = Edges(store, edges.endpoint, edges.clock, edges.new_id)
            chat = await open_chat(Wanted(Strategy.SESSION), None, self.chat.asking, here, name="inside")
            if call.inner:
                one = await Running.adopt(chat, call.inner.run, call.inner.items, conduct, usages=usages)
                events = one.go_on()
            else:
                one = await Running.open(chat, tool.inside, conduct, usages=usages)
                events = one.say([user(asked_of(call, tool))])
            came = await outcome(to_the_end, events)
            if came.raised is not None:
                return Returned(call.id, worded(tool, came.raised))
            if one.unfinished:
                return PausedInside(call.id, Inner(one.run, chat.held.path.items))
            said = came_of(tool.serialize or output_text, one.output)
            return Returned(call.id, said.value if said.raised is None else worded(tool, said.raised))
        finally:
            await store.aclose()


def _to_be_asked(run: Run, items: Sequence[Item], conduct: Conduct) -> Iterator[tuple[Run, list[Item], Conduct]]:
    """The runs whose model is asked once approved calls have run, those inside calls first.

    Each with what its model would see, words in place of the outputs, and its conduct. One that has no model call
    left, or whose answer is a tool's output, is left out.
    """
    for call in run.batch:
        if isinstance(call.tool, AgentTool) and call.inner and call.stage is Stage.INSIDE:
            yield from _to_be_asked(call.inner.run, call.inner.items, inside(call.tool, conduct))
        elif isinstance(call.tool, AgentTool) and call.stage is Stage.READY:
            yield begin(call.tool.inside), [user("...")], inside(call.tool, conduct)
    left = run.limits.max_turns is None or run.turn < run.limits.max_turns
    if _has_ready(run) and left and run.current.after_tools == "ask again":
        outputs = [call.output or output_item(call, "...") for call in run.batch if call.tool or call.output]
        over = next((call.to for call in run.batch if call.to is not None), None)
        yield (replace(run, agent=over) if over else run), [*items, *outputs], conduct


def _has_ready(run: Run) -> bool:
    """Whether a call of the run, or of one inside it, runs next."""
    return bool(run.at(Stage.READY)) or any(_has_ready(call.inner.run) for call in run.batch if call.inner)


def _own_it(chat: Chat) -> str:
    """How a person comes to own the history of `chat`."""
    return f"convo convert {quote(chat.session.name or chat.session.id)} --to session" if chat.held.path else OWN_IT


async def to_the_end(events: AsyncGenerator[Event, None]) -> None:
    """Read on until nothing more comes."""
    async with aclosing(events):
        async for _ in events:
            pass


def asked_of(call: Call, tool: AgentTool) -> str:
    """What the agent behind a tool is asked. raises: RunFailed  the arguments do not say it"""
    arguments = read_arguments(tool, call.arguments)
    if isinstance(arguments, Wrong):
        raise RunFailed(arguments.words, code="model_behavior")
    return str(arguments["input"])
