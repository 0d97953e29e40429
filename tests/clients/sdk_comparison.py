"""A comparison of the Agents SDK and convo: both run the same scenario at one gateway, which records model requests.

The agents are objects of the SDK, which convo imports with `from_object`.
"""

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from agents import Agent, RunConfig, Runner, RunState, Session, SQLiteSession, function_tool, handoff
from agents.models.openai_provider import OpenAIProvider
from openai import AsyncOpenAI

from convo.agent_runner.config import RunConfig as ConvoRunConfig
from convo.agent_runner.run_state import build_run_state
from convo.agent_runner.runner import AgentRunner
from convo.agents.handoffs import HandoffDefaults
from convo.agents.sdk import from_object
from convo.chat.conversation import Chat
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.endpoints.remote import RemoteEndpoint
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.models.http import OpenAIClientOptions
from convo.runs.state import ApprovalDecided, Phase
from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import parse_run_state
from convo.runstate.run_state import RunState as State
from convo.runstate.writer import serialize_run_state
from convo.runtime import SystemClock, random_id
from convo.secrets import Secret
from convo.stores.base import Store
from convo.stores.factory import open_store
from convo.strategies.selection import select_owner
from tests.clients.conftest import ALIAS
from tests.clients.upstream import Call, Upstream

REJECTION = "too dear"

ModelRequests: TypeAlias = list[list[list[str]]]


OWNERS = ["replay", "session", "conversation", "chain", "previous"]
STRATEGIES = {
    "replay": Strategy.REPLAY,
    "session": Strategy.SESSION,
    "conversation": Strategy.CONVERSATION,
    "chain": Strategy.CHAIN,
    "previous": Strategy.CHAIN,
}

VERDICTS = {"call_2": True, "call_4": False, "call_5": True, "call_6": True, "call_7": False}


@function_tool(needs_approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid back {order}"


@function_tool
def look(order: str) -> str:
    """Look an order up."""
    return f"found {order}"


CLERK: Agent[Any] = Agent(name="clerk", instructions="Stamp it.", model=ALIAS, tools=[refund])
DESK: Agent[Any] = Agent(
    name="desk",
    instructions="Mind the desk.",
    model=ALIAS,
    tools=[refund, look, CLERK.as_tool("ask_clerk", "Ask the clerk.")],
)
TRIAGE: Agent[Any] = Agent(name="triage", instructions="Send them on.", model=ALIAS, handoffs=[DESK])

TWIN: Agent[Any] = Agent(name="desk", instructions="Nothing here.", model=ALIAS)
FORK: Agent[Any] = Agent(
    name="fork", instructions="Left or right.", model=ALIAS, handoffs=[handoff(TWIN, tool_name_override="left"), DESK]
)


FRONT: Agent[Any] = Agent(name="front", instructions="Refund first.", model=ALIAS, tools=[refund], handoffs=[DESK])


@dataclass(frozen=True)
class Scenario:
    """The first agent, and the tool calls of each model response; `nests`: a handoff summarizes the history."""

    first: Agent[Any]
    calls: list[list[Call]]
    nests: bool = False


FIRST_CALLS: list[Call] = [("call_2", "refund", {"order": "a"}), ("call_3", "look", {"order": "b"})]
HANDOFF_AND_CALLS: list[list[Call]] = [
    [("call_1", "transfer_to_desk", {})],
    [*FIRST_CALLS, ("call_4", "refund", {"order": "c"})],
]

SCENARIOS = {
    "two pauses": Scenario(TRIAGE, [*HANDOFF_AND_CALLS, [("call_5", "refund", {"order": "d"})]]),
    "an agent as a tool": Scenario(
        TRIAGE,
        [
            HANDOFF_AND_CALLS[0],
            [*FIRST_CALLS, ("call_4", "ask_clerk", {"input": "now"})],
            [("call_6", "refund", {"order": "e"}), ("call_7", "refund", {"order": "f"})],
        ],
    ),
    "agents of one name": Scenario(FORK, HANDOFF_AND_CALLS),
}
"""The first pauses at calls 2 and 4, then at call 5; the second at call 2 and, within call 4, at calls 6 and 7; the
third at calls 2 and 4."""

SUMMARY = Scenario(
    FRONT,
    [
        [("call_2", "refund", {"order": "a"})],
        [("call_1", "transfer_to_desk", {})],
        [("call_5", "refund", {"order": "d"})],
    ],
    nests=True,
)
"""Pauses before the handoff, and again after the handoff replaced the earlier history by a summary."""

EXPORTED_SCENARIOS = [name for name, scenario in SCENARIOS.items() if scenario.first is TRIAGE]
"""The scenarios that convo can export for the SDK: only the SDK can number agents with the same name."""


@dataclass
class SdkComparison:
    """The SDK and convo at the same gateway, with the same scenario for the model.

    owner:      the owner of the history, one of `OWNERS`
    arguments:  the arguments that select this owner in the SDK
    """

    client: AsyncOpenAI
    store: Store
    base_url: str
    upstream: Upstream
    folder: Path
    owner: str
    arguments: dict[str, Any]
    session: Session | None = None
    scenario: Scenario = SCENARIOS["two pauses"]
    chat: Chat | None = None

    # -- the SDK ------------------------------------------------------------------------------------

    @property
    def settings(self) -> RunConfig:
        provider = OpenAIProvider(openai_client=self.client)
        return RunConfig(model_provider=provider, tracing_disabled=True, nest_handoff_history=self.scenario.nests)

    async def start_with_sdk(self) -> Any:
        return await Runner.run(
            self.scenario.first, "hi", run_config=self.settings, session=self.session, **self.arguments
        )

    async def resume_with_sdk(self, text: str) -> Any:
        """Decide all pending calls of a state with the SDK, then resume; returns the result of the SDK."""
        state: Any = await RunState.from_string(self.scenario.first, text)
        for item in state.get_interruptions():
            if VERDICTS[item.call_id]:
                state.approve(item)
            else:
                state.reject(item, rejection_message=REJECTION)
        return await self._resume_with_sdk(state)

    async def resume_decided_with_sdk(self, text: str) -> Any:
        """Decide all pending calls of a state with convo, then resume with the SDK; returns the result of the SDK."""
        return await self._resume_with_sdk(await RunState.from_string(self.scenario.first, decide_with_convo(text)))

    async def _resume_with_sdk(self, state: Any) -> Any:
        return await Runner.run(self.scenario.first, state, run_config=self.settings, session=self.session)

    # -- convo --------------------------------------------------------------------------------------

    @property
    def convo_config(self) -> ConvoRunConfig:
        return ConvoRunConfig(
            open_scratch_store=lambda: open_store("memory"), handoff_defaults=HandoffDefaults(nest=self.scenario.nests)
        )

    async def start_with_convo(self) -> AgentRunner:
        state_id = self.arguments.get("conversation_id") or self.arguments.get("previous_response_id")
        handle = str(self.folder / "talk.json") if self.owner == "replay" else state_id
        runner = await AgentRunner.open(
            await self._open_chat(STRATEGIES[self.owner], handle), from_object(self.scenario.first), self.convo_config
        )
        return await self._read_until_pause(runner, runner.start([user_message("hi")]))

    async def import_with_convo(self, text: str) -> tuple[AgentRunner, State]:
        """Import a state of the SDK into convo, decide all pending calls and resume."""
        state = parse_run_state(text.encode())
        imported = import_run_state(state, from_object(self.scenario.first))
        chat = await self._open_chat(imported.strategy, imported.handle)
        items = imported.items
        if imported.handle:
            chat.record.state = replace(chat.state, path=chat.state.path.append(items[imported.confirmed_count :]))
            items = ()
        runner = await AgentRunner.import_run(
            chat, imported.run, items, self.convo_config, state_hash=imported.source_hash
        )
        return await self.resume_with_convo(runner), state

    async def resume_with_convo(self, runner: AgentRunner) -> AgentRunner:
        for call in runner.pending_calls:
            await runner.apply_decisions(
                ApprovalDecided(call.id, VERDICTS[call.id], None if VERDICTS[call.id] else REJECTION)
            )
        return await self._read_until_pause(runner, runner.resume())

    async def export_run_state(self, runner: AgentRunner, base: State | None = None) -> str:
        assert self.chat is not None
        assert runner.run_row is not None
        return serialize_run_state(
            await build_run_state(self.store, self.chat.session, runner.run_row, runner.run, {}, base)
        )

    async def _open_chat(self, strategy: Strategy, handle: str | None) -> Chat:
        selection = select_owner([strategy], handle)
        deps = ChatDeps(self.store, self._endpoint, SystemClock(), random_id)
        options = RequestOptions(f"gateway/{ALIAS}", ALIAS)
        self.chat = await open_chat(selection, await find_selected_session(self.store, selection), options, deps)
        return self.chat

    @property
    def _endpoint(self) -> RemoteEndpoint:
        return RemoteEndpoint(OpenAIClientOptions("gateway", self.base_url, Secret("any")))

    async def _read_until_pause(self, runner: AgentRunner, events: Any) -> AgentRunner:
        async for _ in events:
            pass
        assert runner.run.phase in (Phase.PAUSED, Phase.DONE)
        return runner


async def owner_arguments(client: AsyncOpenAI, owner: str) -> dict[str, Any]:
    match owner:
        case "conversation":
            return {"conversation_id": (await client.conversations.create()).id}
        case "chain":
            return {"auto_previous_response_id": True}
        case "previous":
            return {"previous_response_id": (await client.responses.create(model=ALIAS, input="before")).id}
    return {}


def decide_with_convo(text: str) -> str:
    """Decide all pending calls of a state with convo; returns the new state."""
    state = parse_run_state(text.encode())
    for call in state.pending:
        state = apply_verdict(
            state, (call,), ApprovalVerdict(VERDICTS[call.id], None if VERDICTS[call.id] else REJECTION)
        )
    return serialize_run_state(state)


def start_scenario(comparison: SdkComparison, scenario: Scenario) -> None:
    """Start a scenario from its first response, without recorded requests."""
    comparison.scenario = scenario
    comparison.upstream.reset()
    comparison.upstream.calls += scenario.calls


def model_requests(comparison: SdkComparison) -> ModelRequests:
    """The messages of each request, adjacent tool outputs sorted: the SDK sends them in order of completion."""
    requests = comparison.upstream.requests
    return [[_sort_outputs(*group) for group in groupby(request["messages"], _is_output)] for request in requests]


def _is_output(message: dict[str, Any]) -> bool:
    return str(message["role"]) == "tool"


def _sort_outputs(outputs: bool, messages: Iterable[dict[str, Any]]) -> list[str]:
    lines = [json.dumps(message, sort_keys=True) for message in messages]
    return sorted(lines) if outputs else lines


SDK_RESULTS: dict[tuple[str, str], tuple[str, ModelRequests]] = {}
"""Results of `sdk_alone` by owner and scenario."""


async def sdk_alone(comparison: SdkComparison, name: str) -> tuple[str, ModelRequests]:
    """Run a scenario with the SDK alone; returns the final output and the model requests."""
    if (comparison.owner, name) not in SDK_RESULTS:
        SDK_RESULTS[comparison.owner, name] = await _run_sdk_alone(comparison, SCENARIOS[name])
    return SDK_RESULTS[comparison.owner, name]


async def _run_sdk_alone(comparison: SdkComparison, scenario: Scenario) -> tuple[str, ModelRequests]:
    arguments = await owner_arguments(comparison.client, comparison.owner)
    with closing(SQLiteSession("t")) as session:
        fresh = replace(comparison, arguments=arguments, session=comparison.session and session)
        start_scenario(fresh, scenario)
        result = await fresh.start_with_sdk()
        while result.interruptions:
            result = await fresh.resume_with_sdk(result.to_state().to_string())
        return result.final_output, model_requests(fresh)
