"""Runs that change hands between openai-agents and convo, over one gateway, for each owner of the history.

The agents are the SDK's own, which convo takes by their shape. A story hands over, calls tools beside
each other, has one approved and one rejected with a reason. However often it changes hands, the model
is told the same as if the SDK had told it alone.
"""

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, RunState, Session, SQLiteSession, function_tool
from agents.models.openai_provider import OpenAIProvider
from openai import AsyncOpenAI

from convo.agents import from_object
from convo.clock import SystemClock
from convo.config import Secret
from convo.endpoints.remote import Remote
from convo.engine.chat import Chat
from convo.engine.edges import Edges
from convo.engine.opening import open_chat, recorded
from convo.engine.run_state import state_of
from convo.engine.running import Running
from convo.engine.turn import Asking
from convo.history import Strategy
from convo.ids import random_id
from convo.items import user
from convo.models.account import Account
from convo.run import Decided, Phase
from convo.runstate import State, read, text
from convo.runstate.taking import taken
from convo.stores.contract import Store
from convo.stores.open import open_store
from convo.strategies import wanted
from tests.clients.conftest import ALIAS
from tests.clients.upstream import Call, Upstream

NO = "too dear"

OWNERS = ["replay", "session", "conversation", "chain", "previous"]
STRATEGIES = {
    "replay": Strategy.REPLAY,
    "session": Strategy.SESSION,
    "conversation": Strategy.CONVERSATION,
    "chain": Strategy.CHAIN,
    "previous": Strategy.CHAIN,
}

STORY: list[list[Call]] = [
    [("call_1", "transfer_to_desk", {})],
    [("call_2", "refund", {"order": "a"}), ("call_3", "look", {"order": "b"}), ("call_4", "refund", {"order": "c"})],
    [("call_5", "refund", {"order": "d"})],
]
"""Two pauses: at calls 2 and 4, and at call 5."""

VERDICTS = {"call_2": True, "call_4": False, "call_5": True}


@function_tool(needs_approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid back {order}"


@function_tool
def look(order: str) -> str:
    """Look an order up."""
    return f"found {order}"


DESK: Agent[Any] = Agent(name="desk", instructions="Mind the desk.", model=ALIAS, tools=[refund, look])
TRIAGE: Agent[Any] = Agent(name="triage", instructions="Send them on.", model=ALIAS, handoffs=[DESK])


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=base_url, api_key="any") as opened:
        yield opened


@dataclass
class Hands:
    """The SDK and convo, both at the gateway, with one story for their model.

    owner:   who holds the history, in the words of `OWNERS`
    given:   how the SDK is told so
    """

    client: AsyncOpenAI
    store: Store
    base_url: str
    upstream: Upstream
    folder: Path
    owner: str
    given: dict[str, Any]
    session: Session | None = None
    chat: Chat | None = None

    # -- the SDK ------------------------------------------------------------------------------------

    @property
    def settings(self) -> RunConfig:
        return RunConfig(model_provider=OpenAIProvider(openai_client=self.client), tracing_disabled=True)

    async def sdk_begins(self) -> Any:
        return await Runner.run(TRIAGE, "hi", run_config=self.settings, session=self.session, **self.given)

    async def sdk_goes_on(self, words: str) -> Any:
        """The SDK's result of going on from a state, everything in it decided."""
        state: Any = await RunState.from_string(TRIAGE, words)
        for item in state.get_interruptions():
            if VERDICTS[item.call_id]:
                state.approve(item)
            else:
                state.reject(item, rejection_message=NO)
        return await Runner.run(TRIAGE, state, run_config=self.settings, session=self.session)

    # -- convo --------------------------------------------------------------------------------------

    async def convo_begins(self) -> Running:
        given = self.given.get("conversation_id") or self.given.get("previous_response_id")
        handle = str(self.folder / "talk.json") if self.owner == "replay" else given
        running = await Running.open(await self._opened(STRATEGIES[self.owner], handle), from_object(TRIAGE))
        return await self._at_its_pause(running, running.say([user("hi")]))

    async def convo_takes(self, words: str) -> tuple[Running, State]:
        """Convo's run of a state that the SDK wrote, everything in it decided."""
        state = read(words.encode())
        found = taken(state, from_object(TRIAGE))
        chat = await self._opened(found.strategy, found.handle)
        items = found.items
        if found.handle:
            chat.record.held = replace(chat.held, path=chat.held.path.grow(items[found.acknowledged :]))
            items = ()
        running = await Running.adopt(chat, found.run, items, state=found.source)
        return await self.convo_goes_on(running), state

    async def convo_goes_on(self, running: Running) -> Running:
        for call in running.pending:
            await running.decide(Decided(call.id, VERDICTS[call.id], None if VERDICTS[call.id] else NO))
        return await self._at_its_pause(running, running.go_on())

    async def written(self, running: Running, base: State | None = None) -> str:
        assert self.chat is not None
        assert running.kept is not None
        return text(await state_of(self.store, self.chat.session, running.kept, running.run, {}, base))

    async def _opened(self, strategy: Strategy, handle: str | None) -> Chat:
        want = wanted([strategy], handle)
        edges = Edges(self.store, self._endpoint, SystemClock(), random_id)
        asking = Asking(f"gateway/{ALIAS}", ALIAS)
        self.chat = await open_chat(want, await recorded(self.store, want), asking, edges)
        return self.chat

    @property
    def _endpoint(self) -> Remote:
        return Remote(Account("gateway", self.base_url, Secret("any")))

    async def _at_its_pause(self, running: Running, events: Any) -> Running:
        async for _ in events:
            pass
        assert running.run.phase in (Phase.PAUSED, Phase.DONE)
        return running


@pytest.fixture(params=OWNERS)
async def hands(
    request: pytest.FixtureRequest, client: AsyncOpenAI, base_url: str, upstream: Upstream, tmp_path: Path
) -> AsyncIterator[Hands]:
    store = open_store("memory")
    session = SQLiteSession("s") if request.param == "session" else None
    yield Hands(client, store, base_url, upstream, tmp_path, request.param, await given(client, request.param), session)
    await store.aclose()


async def given(client: AsyncOpenAI, owner: str) -> dict[str, Any]:
    match owner:
        case "conversation":
            return {"conversation_id": (await client.conversations.create()).id}
        case "chain":
            return {"auto_previous_response_id": True}
        case "previous":
            return {"previous_response_id": (await client.responses.create(model=ALIAS, input="before")).id}
    return {}


def told(upstream: Upstream, calls: list[list[Call]]) -> None:
    """Begin the story anew."""
    upstream.forget()
    upstream.calls += calls


def heard(upstream: Upstream) -> list[list[list[str]]]:
    """What the model was told in each request; neighbouring outputs in any order, the SDK's come as they end."""
    return [[_neighbours(*one) for one in groupby(request["messages"], _is_output)] for request in upstream.asked]


def _is_output(message: dict[str, Any]) -> bool:
    return str(message["role"]) == "tool"


def _neighbours(outputs: bool, messages: Iterable[dict[str, Any]]) -> list[str]:
    lines = [json.dumps(message, sort_keys=True) for message in messages]
    return sorted(lines) if outputs else lines


async def alone(hands: Hands, calls: list[list[Call]]) -> tuple[str, list[list[list[str]]]]:
    """How the SDK ends the story by itself, and what its model was told on the way."""
    begun = replace(hands, given=await given(hands.client, hands.owner), session=hands.session and SQLiteSession("t"))
    told(hands.upstream, calls)
    result = await begun.sdk_begins()
    while result.interruptions:
        result = await begun.sdk_goes_on(result.to_state().to_string())
    return result.final_output, heard(hands.upstream)


@pytest.mark.parametrize("pauses", [1, 2])
async def test_convo_finishes_what_the_sdk_paused(hands: Hands, pauses: int) -> None:
    story = STORY[: pauses + 1]
    wanted_end = await alone(hands, story)
    told(hands.upstream, story)
    result = await hands.sdk_begins()
    running, _ = await hands.convo_takes(result.to_state().to_string())
    if pauses == 2:
        running = await hands.convo_goes_on(running)
    assert (running.output, heard(hands.upstream)) == wanted_end


@pytest.mark.parametrize("pauses", [1, 2])
async def test_the_sdk_finishes_what_convo_paused(hands: Hands, pauses: int) -> None:
    story = STORY[: pauses + 1]
    wanted_end = await alone(hands, story)
    told(hands.upstream, story)
    running = await hands.convo_begins()
    result = await hands.sdk_goes_on(await hands.written(running))
    if pauses == 2:
        result = await hands.sdk_goes_on(result.to_state().to_string())
    assert (result.final_output, heard(hands.upstream)) == wanted_end


async def test_a_run_goes_from_the_sdk_to_convo_and_back(hands: Hands) -> None:
    wanted_end = await alone(hands, STORY)
    told(hands.upstream, STORY)
    result = await hands.sdk_begins()
    running, base = await hands.convo_takes(result.to_state().to_string())
    assert [call.id for call in running.pending] == ["call_5"]
    result = await hands.sdk_goes_on(await hands.written(running, base))
    assert (result.final_output, heard(hands.upstream)) == wanted_end


async def test_a_run_goes_from_convo_to_the_sdk_and_back(hands: Hands) -> None:
    wanted_end = await alone(hands, STORY)
    told(hands.upstream, STORY)
    result = await hands.sdk_goes_on(await hands.written(await hands.convo_begins()))
    running, _ = await hands.convo_takes(result.to_state().to_string())
    assert (running.output, heard(hands.upstream)) == wanted_end


@pytest.mark.parametrize("hands", ["conversation"], indirect=True)
async def test_a_conversation_holds_everything_once_however_often_it_changed_hands(
    hands: Hands, client: AsyncOpenAI
) -> None:
    told(hands.upstream, STORY)
    result = await hands.sdk_begins()
    running, base = await hands.convo_takes(result.to_state().to_string())
    await hands.sdk_goes_on(await hands.written(running, base))
    kept = [item.type async for item in client.conversations.items.list(hands.given["conversation_id"], order="asc")]
    calls = ["function_call"] * 3 + ["function_call_output"] * 3
    assert kept == [
        *("message", "function_call", "function_call_output"),
        *calls,
        *("function_call", "function_call_output", "message"),
    ]
