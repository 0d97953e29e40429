"""Functions to run agents in tests: scripted models, runners, collected events, and items as short lines."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from convo.agent_runner.config import RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.history.items import Item, Json, StreamEvent, is_assistant_message, item_text, item_type, user_message
from convo.history.records import Strategy
from tests.chat.conftest import ChatHarness


def scripted_model(folder: Path, *replies: Mapping[str, Json], name: str = "script.json") -> str:
    """Write a script with `replies`, one for each request; returns the name of its model."""
    file = folder / name
    file.write_text(json.dumps({"replies": list(replies)}))
    return f"scripted/{file}"


def tool_calls(*specs: str | tuple[str, str] | tuple[str, str, Mapping[str, Json]]) -> dict[str, Json]:
    """A reply that calls tools: each is a name, ("call_1", "look_up"), or such a pair with arguments."""
    calls = []
    for number, spec in enumerate(specs, 1):
        call_id, name, *more = (f"call_{number}", spec) if isinstance(spec, str) else spec
        arguments = more[0] if more else {}
        calls.append({"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)})
    return {"output": calls}


async def open_runner(
    harness: ChatHarness,
    agent: Agent,
    config: RunConfig | None = None,
    *others: Agent,
    strategy: Strategy | None = None,
    name: str = "mine",
) -> AgentRunner:
    """Open a run in a new session, or in the existing session `name` as another process would."""
    existing = await harness.store.session(name)
    chat = await harness.open(None, name) if existing else await harness.open(strategy or Strategy.SESSION, name=name)
    return await AgentRunner.open(chat, graph(agent, *others), config)


READ_MODE = "collected"
"""How `read_events` reads a run; the fixture `read_mode` sets it."""


async def read_events(events: AsyncGenerator[StreamEvent, None]) -> list[StreamEvent]:
    """Read all events, one by one or collected, by READ_MODE."""
    return await (_streamed(events) if READ_MODE == "streamed" else _collected(events))


async def _collected(events: AsyncGenerator[StreamEvent, None]) -> list[StreamEvent]:
    return [event async for event in events]


async def _streamed(events: AsyncGenerator[StreamEvent, None]) -> list[StreamEvent]:
    """Other tasks run between two events, and the deltas of an answer must add up to its text."""
    received: list[StreamEvent] = []
    pieces: str | None = None
    async with aclosing(events):
        async for event in events:
            await asyncio.sleep(0)
            received.append(event)
            if event["type"] == "response.created":
                pieces = ""
            elif event["type"] == "response.output_text.delta" and pieces is not None:
                pieces += event["delta"]
            elif event["type"] == "response.completed" and pieces is not None:
                assert pieces == "".join(
                    item_text(item) for item in event["response"]["output"] if is_assistant_message(item)
                )
    return received


async def send_message(runner: AgentRunner, text: str) -> list[StreamEvent]:
    return await read_events(runner.start([user_message(text)]))


def own_event_types(events: Sequence[StreamEvent]) -> list[str]:
    """The types of convo's own events, without the prefix `convo.`."""
    return [str(event["type"]).removeprefix("convo.") for event in events if str(event["type"]).startswith("convo.")]


def item_lines(items: Sequence[Item]) -> list[str]:
    """Items as short lines: `user: hi`, `call look`, `call_1: look done`."""
    return [_item_line(item) for item in items]


def _item_line(item: Item) -> str:
    match item_type(item):
        case "function_call":
            return f"call {item['name']}"
        case "function_call_output":
            return f"{item['call_id']}: {item['output']}"
        case "message":
            return f"{item['role']}: {item_text(item)}"
        case other:
            return other


def request_inputs(harness: ChatHarness) -> list[list[str]]:
    """The input of each request, as short lines."""
    return [item_lines(body["input"]) for body in harness.bodies]


async def stored_items(harness: ChatHarness, name: str = "mine") -> Sequence[Item]:
    """The items of the stored conversation."""
    session = await harness.store.session(name)
    assert session
    return (await harness.store.path(session.head)).items
