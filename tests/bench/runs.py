"""The overhead of whole agent runs under each owner, compared with openai-agents in one process.

    python -m tests.bench.runs [TURNS ...]

Every turn calls one tool, which returns immediately, and the model responds immediately: the rest is the
overhead. convo commits each turn to a SQLite file that is synced to the disk before it continues (or to
memory, to separate the cost of the disk); the SDK stores what its own strategies store. `request` is the
time to serialize each request as JSON, which a run that resends its history cannot avoid; it is separate
and not part of `ms a turn`. `last` is the last tenth of the turns: in a run of linear cost it has the same
value. `x SDK` is the turn as a multiple of that of the SDK's run of as many turns under a conversation,
whose cost is linear, in the same round. The first line is the disk's share of a turn with SQLite: its two
commits, each with one bare row of a kilobyte. In memory a turn over its target, also one of the last tenth,
ends the script with 1. The second table is the summary of a history at a handoff.
"""

import asyncio
import json
import logging
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import agents
from agents.handoffs import default_handoff_history_mapper
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage

from convo.agent_runner.config import RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.agents.handoff_history import summarize_transcript
from convo.chat.conversation import Chat
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.history.items import Item, Json, StreamEvent, user_message
from convo.history.records import EMBEDDED_SCOPE, Scope, Strategy
from convo.runs.state import RunLimits
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.stores.factory import open_store
from convo.strategies.selection import select_owner
from convo.tools.tool import tool
from tests.runstate.sdk import ITEM

TURNS = (100, 400, 1600)
MAX_SLOWDOWN = 1.5 / 1.4
"""The maximum time of a turn in memory, on average and at the end of a run, under every owner, as a multiple
of that of the SDK's linear run: 1.5 ms on a machine on which the SDK needs 1.4."""

SDK_MAX_TURNS = 400
"""Above this number of turns the SDK's quadratic runs take minutes; they are omitted."""


@dataclass
class Costs:
    """The time of each request and the duration of its serialization as JSON, in seconds."""

    at: list[float] = field(default_factory=list)
    request_s: list[float] = field(default_factory=list)

    def record_request(self, body: object) -> None:
        started_at = time.perf_counter()
        json.dumps(body)
        self.request_s.append(time.perf_counter() - started_at)
        self.at.append(started_at)


@dataclass(frozen=True)
class Line:
    """Milliseconds: mean turn, mean of the last tenth, mean of a request's JSON, and the whole run."""

    turn: float
    last: float
    request: float
    whole: float

    @classmethod
    def of(cls, costs: Costs, ended_at: float) -> "Line":
        timestamps = [*costs.at, ended_at]
        own = [
            after - before - duration
            for before, after, duration in zip(timestamps, timestamps[1:], costs.request_s, strict=False)
        ]
        tail = own[-max(1, len(own) // 10) :]
        return cls(
            1e3 * sum(own) / len(own),
            1e3 * sum(tail) / len(tail),
            1e3 * sum(costs.request_s) / len(own),
            1e3 * (ended_at - timestamps[0]),
        )


def model_output(turn: int, turns: int) -> list[dict[str, Any]]:
    """Return the model's output of turn number `turn`, from 0: one call, and a message in the last turn."""
    if turn < turns:
        arguments = json.dumps({"city": "Turin", "day": turn})
        call = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "name": "weather"}
        return [{**call, "arguments": arguments, "status": "completed"}]
    part = {"type": "output_text", "text": "It will rain.", "annotations": [], "logprobs": []}
    return [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}]


# -- convo ----------------------------------------------------------------------------------------


class InstantEndpoint:
    """An endpoint whose model responds immediately and only counts its requests."""

    scope: Scope = EMBEDDED_SCOPE

    def __init__(self, turns: int) -> None:
        self.turns, self.request_count, self.costs = turns, 0, Costs()

    async def create_conversation(self, *fields: object) -> Mapping[str, Json]:
        return {"id": "conv_1"}

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self.costs.record_request(body)
        output = model_output(self.request_count, self.turns)
        completed = {"id": f"resp_{self.request_count}", "status": "completed", "output": output}
        state = {name: body.get(name) for name in ("previous_response_id", "conversation")}
        if state["conversation"]:
            state["conversation"] = {"id": state["conversation"]}
        response = {**completed, **state, "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}
        self.request_count += 1
        yield {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
        for index, item in enumerate(output):
            yield {"type": "response.output_item.added", "output_index": index, "item": item}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": response}


@tool
def weather(city: str, day: int) -> str:
    """The weather."""
    return f"{city} on day {day}: rain, 12 degrees, wind from the north-east."


async def convo(strategy: Strategy, turns: int, store: Store, folder: Path) -> Line:
    endpoint: Any = InstantEndpoint(turns)
    edges = ChatDeps(store, endpoint, SystemClock(), random_id)
    handle = str(folder / f"{strategy}-{turns}.json") if strategy is Strategy.REPLAY else None
    selection = select_owner([strategy], handle)
    chat: Chat = await open_chat(
        selection, await find_selected_session(store, selection), RequestOptions("bench/m", "m"), edges
    )
    agent = Agent("forecaster", "Tell the weather.", tools=(weather,))
    running = await AgentRunner.open(chat, graph(agent), RunConfig(limits=RunLimits(max_turns=None)))
    async for _ in running.start([user_message("What will the weather be?")]):
        pass
    ended_at = time.perf_counter()
    assert running.output == "It will rain.", running.run.failure
    assert endpoint.request_count == turns + 1
    return Line.of(endpoint.costs, ended_at)


# -- the SDK --------------------------------------------------------------------------------------


class Script(Model):
    """The same model as a `Model` of the SDK."""

    def __init__(self, turns: int) -> None:
        self.turns, self.request_count, self.costs = turns, 0, Costs()

    async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **more: Any) -> ModelResponse:  # noqa: A002
        self.costs.record_request(input)
        output = [ITEM.validate_python(item) for item in model_output(self.request_count, self.turns)]
        self.request_count += 1
        return ModelResponse(output=output, usage=Usage(), response_id=f"resp_{self.request_count}")

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise NotImplementedError


SDK: Mapping[Strategy, Callable[[Path], dict[str, Any]]] = {
    Strategy.REPLAY: lambda folder: {},
    Strategy.SESSION: lambda folder: {"session": agents.SQLiteSession("s", folder / "sdk.db")},
    Strategy.CONVERSATION: lambda folder: {"conversation_id": "conv_1"},
    Strategy.CHAIN: lambda folder: {"auto_previous_response_id": True},
}
"""The arguments of the SDK's runner for each owner."""


async def sdk(strategy: Strategy, turns: int, folder: Path) -> Line:
    def look(city: str, day: int) -> str:
        return f"{city} on day {day}: rain, 12 degrees, wind from the north-east."

    model = Script(turns)
    agent = agents.Agent("forecaster", "Tell the weather.", model=model)
    agent.tools = [agents.function_tool(look, name_override="weather")]
    got = await agents.Runner.run(agent, "What will the weather be?", max_turns=turns + 2, **SDK[strategy](folder))
    ended_at = time.perf_counter()
    assert got.final_output == "It will rain."
    return Line.of(model.costs, ended_at)


# -- the tables -----------------------------------------------------------------------------------


@contextmanager
def open_bench_store(name: str) -> Iterator[tuple[Store, Path]]:
    with TemporaryDirectory() as folder:
        yield open_store("memory" if name == "memory" else f"sqlite:{folder}/convo.db"), Path(folder)


async def in_new(name: str, measure: Callable[[Store, Path], Awaitable[Line]]) -> Line:
    with open_bench_store(name) as (store, folder):
        try:
            return await measure(store, folder)
        finally:
            await store.aclose()


async def runs(turns: int) -> bool:
    """Print a block; return whether convo met its target."""
    flat = await in_new("memory", lambda opened_store, folder: sdk(Strategy.CONVERSATION, turns, folder))
    print(format_row(turns, "SDK", Strategy.CONVERSATION, flat, flat), flush=True)
    all_passed = True
    for strategy in Strategy:
        for store in ("sqlite", "memory"):
            line = await in_new(store, lambda opened_store, folder: convo(strategy, turns, opened_store, folder))  # noqa: B023
            print(format_row(turns, f"convo, {store}", strategy, line, flat), flush=True)
            all_passed = all_passed and (store == "sqlite" or max(line.turn, line.last) <= MAX_SLOWDOWN * flat.turn)
        if strategy is Strategy.CHAIN or (strategy is not Strategy.CONVERSATION and turns <= SDK_MAX_TURNS):
            line = await in_new("memory", lambda opened_store, folder: sdk(strategy, turns, folder))  # noqa: B023
            print(format_row(turns, "SDK", strategy, line, flat), flush=True)
    return all_passed


def bare_commits() -> None:
    """Print the time of two durable commits of one row each."""
    with TemporaryDirectory() as folder, closing(sqlite3.connect(f"{folder}/bare.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE rows (body TEXT)")
        started_at = time.perf_counter()
        for _ in range(2 * SDK_MAX_TURNS):
            db.execute("INSERT INTO rows VALUES (?)", ("x" * 1024,))
        print(
            f"two bare durable commits: {1e3 * (time.perf_counter() - started_at) / SDK_MAX_TURNS:.2f} ms", flush=True
        )


HEAD = f"{'turns':>6} {'':<14} {'owner':<13} {'ms a turn':>9} {'x SDK':>6} {'last':>7} {'request':>8} {'whole ms':>9}"


def format_row(turns: int, who: str, strategy: Strategy, line: Line, flat: Line) -> str:
    ratio = line.turn / flat.turn
    figures = f"{line.turn:>9.2f} {ratio:>6.2f} {line.last:>7.2f} {line.request:>8.3f} {line.whole:>9,.0f}"
    return f"{turns:>6} {who:<14} {strategy:<13} {figures}"


def summaries() -> bool:
    """Print the time to summarize a history; return whether convo is not slower."""
    all_passed = True
    for items in (1000, 10000):
        history = [item for number in range(items // 2) for item in make_exchange(number)]
        convo_time = best(lambda: summarize_transcript(history))  # noqa: B023
        sdk_time = best(lambda: default_handoff_history_mapper(cast(Any, list(history))))  # noqa: B023
        ratio = sdk_time / convo_time
        print(f"{items:>7} items: convo {convo_time * 1e3:8.1f} ms, SDK {sdk_time * 1e3:8.1f} ms, {ratio:.1f}x")
        all_passed = all_passed and convo_time <= sdk_time
    return all_passed


def make_exchange(number: int) -> list[Item]:
    call = {"type": "function_call", "call_id": f"call_{number}", "name": "weather", "arguments": '{"day": 1}'}
    return [call, {"type": "function_call_output", "call_id": f"call_{number}", "output": "rain " * 20}]


def best(function: Callable[[], object], rounds: int = 3) -> float:
    def once() -> float:
        started_at = time.perf_counter()
        function()
        return time.perf_counter() - started_at

    return min(once() for _ in range(rounds))


def main() -> int:
    logging.disable(logging.CRITICAL)
    agents.set_tracing_disabled(True)
    bare_commits()
    print(HEAD)
    all_passed = [asyncio.run(runs(turns)) for turns in map(int, sys.argv[1:] or TURNS)]
    return 0 if all(all_passed) & summaries() else 1


if __name__ == "__main__":
    sys.exit(main())
