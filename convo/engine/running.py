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
takes `output`. It yields the model's events as they travel and convo's own between them:

    convo.started       run, agent                                     a run began, or goes on
    convo.tool_started  call_id, tool, arguments, agent                its start is durable
    convo.tool_output   call_id, tool, output, agent                   its result is durable
    convo.handoff       call_id, source, target                        identities of agents
    convo.guardrail     side, name, reason                             it tripped; `convo.failed` follows
    convo.warning       message                                        what a person should know
    convo.paused        run, pending: [{call_id, tool, arguments, agent, unknown}]
    convo.finished      run, agent, output                             the end, with the final value
    convo.failed        run, code, message                             the end; the error is raised after it
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convo.agents import Graph
from convo.endpoints.contract import Endpoint
from convo.engine.chat import Chat
from convo.engine.turn import Asking
from convo.handoffs import Habits
from convo.items import Event, Item, Json
from convo.run import Call, Decided, Given, Limits, Run, Said
from convo.stores.contract import AgentRun, Store


@dataclass(frozen=True, slots=True)
class Route:
    """Who answers for a model: how it is asked, and its endpoint."""

    asking: Asking
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What an input filter gets, and has to return: exactly what its model call sends."""

    items: list[Item]
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class Conduct:
    """How a run behaves, where its agents do not say.

    limits:         model calls a run, calls at once
    habits:         how it hands over: nesting, mapper, markers, filter
    input_filter:   `call_model_input_filter`: ModelInput -> ModelInput, sync or async, before every model call
    session_limit:  how many of the newest kept items precede new input; session and replay only
    session_input:  (kept items, new items) -> the model's input, sync or async; session and replay only
    values:         the application's own, for tools, guardrails and instructions
    route:          who answers for an agent's own model; None: every agent is asked as the chat is
    at:             called with a name between every two effects: where a test ends the process
    """

    limits: Limits = Limits()
    habits: Habits = Habits()
    input_filter: Callable[[ModelInput], Any] | None = None
    session_limit: int | None = None
    session_input: Callable[[list[Item], list[Item]], Any] | None = None
    values: Mapping[str, Json] = field(default_factory=dict)
    route: Callable[[str], Route] | None = None
    at: Callable[[str], None] = lambda place: None


class Running:
    """Runs of agents on one chat, one after the other.

    run:      the run as it stands; before the first one is begun, one that has not begun
    kept:     its row in the store; None before the first one is begun
    """

    run: Run
    kept: AgentRun | None

    @classmethod
    async def open(
        cls, chat: Chat, graph: Graph, conduct: Conduct = Conduct(), *, kept: AgentRun | None = None
    ) -> "Running":
        """Take up `kept`, or the session's own newest run where it has not ended; nothing is performed.

        raises:  WrongOwner  an agent, a filter or a limit that the owner does not allow
                 NotFound, BadState  the kept run does not fit the graph
        """
        raise NotImplementedError

    @classmethod
    async def adopt(
        cls, chat: Chat, run: Run, items: Sequence[Item], conduct: Conduct = Conduct(), *, state: str | None = None
    ) -> "Running":
        """Take up a run that was written down elsewhere, and keep it.

        items:   what was said, the last answer included and without outputs of its calls, in place of what
                 `chat` holds; () where the chat's owner has the history already
        state:   the content hash of the RunState that it comes from
        """
        raise NotImplementedError

    @property
    def pending(self) -> tuple[Call, ...]:
        """The calls that wait for a person."""
        return self.run.pending

    @property
    def unfinished(self) -> bool:
        """Whether `go_on` has something to go on with."""
        raise NotImplementedError

    @property
    def output(self) -> Json:
        """The final value, once the run is done."""
        return self.run.output

    def say(self, items: Sequence[Item]) -> AsyncGenerator[Event, None]:
        """Begin a run with new input.

        raises:  StateFault  a run is open whose calls have no output yet: `decide` and `go_on`, or `stop`
                 RunFailed, and what endpoint and store answered
        """
        raise NotImplementedError

    async def decide(self, *events: Decided | Given | Said) -> None:
        """Take decisions, outcomes and input at a pause, all or none, and keep them; nothing runs before `go_on`.

        raises:  IllegalMove, InputFault  one of them does not fit; nothing was changed
        """
        raise NotImplementedError

    def go_on(self) -> AsyncGenerator[Event, None]:
        """Go on with the open run: after decisions, a failed request, Ctrl-C or in another process.

        Without a decision a paused run pauses again, and nothing is asked. raises: as `say`
        """
        raise NotImplementedError

    async def stop(self) -> None:
        """End the open run for good; calls without an output get words for it, so that the conversation goes on."""
        raise NotImplementedError


async def kept_run(store: Store, handle: str) -> AgentRun:
    """The run that a handle names: its id, or its session's name or id (then its newest). raises: NotFound"""
    raise NotImplementedError
