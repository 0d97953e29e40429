"""Guardrails in a run: before the model call, in parallel to it, and on the final output."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from convo.agents.agent import Agent, Guardrail
from convo.agents.graph import agent_tool
from convo.endpoints.base import Endpoint
from convo.errors import RunFailed, WrongOwner
from convo.history.items import Json, StreamEvent, user_message
from convo.history.records import Strategy
from convo.inspect.run_timeline import (
    MAX_ENTRY_TEXT_CHARS,
    MAX_TIMELINE_ENTRIES,
    OMITTED_COUNT_KEY,
    TIMELINE_KEY,
    TimelineEntry,
    append_timeline_entry,
    read_timeline_members,
)
from convo.runs.state import ApprovalDecided
from convo.stores.base import Store
from convo.tools.tool import Context
from tests.agent_runner.test_agents_as_tools import make_run_config
from tests.chat.agent_runs import (
    item_lines,
    open_runner,
    own_event_types,
    read_events,
    request_inputs,
    scripted_model,
    send_message,
    stored_items,
    tool_calls,
)
from tests.chat.conftest import ChatHarness
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.chat.tool_log import ToolLog
from tests.embedded_endpoint import make_embedded_endpoint
from tests.strategy_owners import SERVER_OWNED


def refuses(context: Context, value: Any) -> str:
    return "not here"


def passes(context: Context, value: Any) -> None:
    return None


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_blocking_input_guardrail_prevents_the_model_call(harness: ChatHarness, strategy: Strategy) -> None:
    agent = Agent("desk", input_guardrails=(Guardrail("mild", passes, False), Guardrail("strict", refuses, False)))
    one = await open_runner(harness, agent, strategy=strategy)
    with pytest.raises(RunFailed, match="Guardrail strict tripped: not here") as error:
        await send_message(one, "hello")
    assert (error.value.code, harness.bodies) == ("input_guardrail", [])
    assert item_lines(await stored_items(harness)) == ([] if strategy in SERVER_OWNED else ["user: hello"])


class Finishing(RecordingEndpoint):
    """An endpoint that sets `finished` when a response is complete, before the reader receives its last event."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.asked, self.finished = asyncio.Event(), asyncio.Event()

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self.asked.set()
        async with aclosing(super().create(body)) as events:
            async for event in events:
                if event["type"] == "response.completed":
                    self.finished.set()
                yield event


@pytest.mark.usefixtures("read_mode")
@pytest.mark.parametrize("strategy", Strategy)
async def test_when_an_input_guardrail_trips_the_user_input_is_stored_without_an_assistant_message(
    store: Store, tmp_path: Path, tool_log: ToolLog, strategy: Strategy
) -> None:
    """The guardrail trips after the response is complete. A conversation of the endpoint then contains the response."""

    bench = ChatHarness(store, Finishing(make_embedded_endpoint(store)), tmp_path)

    async def late(context: Context, value: Any) -> str:
        assert isinstance(bench.endpoint, Finishing)
        await bench.endpoint.finished.wait()
        return "too late"

    bench.model = scripted_model(bench.folder, tool_calls("look"), {"text": "Fine."})
    agent = Agent("desk", tools=(tool_log.tool("look"),), input_guardrails=(Guardrail("strict", late),))
    one = await open_runner(bench, agent, strategy=strategy)
    with pytest.raises(RunFailed, match="too late"):
        await send_message(one, "hello")
    assert tool_log.ran == []
    lines = item_lines(await stored_items(bench))
    if strategy is Strategy.CONVERSATION:
        assert lines == ["user: hello", "call look", "call_1: The run ended before this tool was called."]
    else:
        assert lines == ([] if strategy is Strategy.CHAIN else ["user: hello"])


async def test_a_parallel_guardrail_stops_an_answer_that_has_started(harness: ChatHarness) -> None:
    stopped = asyncio.Event()

    async def after_first_event(context: Context, value: Any) -> str:
        await stopped.wait()
        return "stop"

    harness.model = scripted_model(harness.folder, {"text": "A long answer that comes in many pieces, " * 40})
    one = await open_runner(harness, Agent("desk", input_guardrails=(Guardrail("strict", after_first_event),)))
    seen = []

    async def read_on() -> None:
        async for event in one.start([user_message("hello")]):
            seen.append(event)
            if event["type"].endswith(".delta"):
                stopped.set()

    with pytest.raises(RunFailed):
        await read_on()
    assert own_event_types(seen) == ["started", "guardrail", "failed"]
    assert "response.completed" not in [event["type"] for event in seen]
    assert item_lines(await stored_items(harness)) == ["user: hello"]


class StuckEndpoint(RecordingEndpoint):
    """An endpoint that never continues after the third part of a text."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.waiting, self.closed = asyncio.Event(), asyncio.Event()

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        part_count = 0
        async with aclosing(super().create(body)) as events:
            async for event in events:
                yield event
                part_count += event["type"].endswith(".delta")
                if part_count == 3:
                    self.waiting.set()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        self.closed.set()


@pytest.mark.parametrize("store", ["memory"], indirect=True)
async def test_a_parallel_guardrail_stops_an_answer_that_does_not_continue(store: Store, tmp_path: Path) -> None:
    endpoint = StuckEndpoint(make_embedded_endpoint(store))
    bench = ChatHarness(store, endpoint, tmp_path)

    async def after_third_part(context: Context, value: Any) -> str:
        await endpoint.waiting.wait()
        return "stop"

    bench.model = scripted_model(bench.folder, {"text": "A long answer that comes in many pieces, " * 40})
    one = await open_runner(bench, Agent("desk", input_guardrails=(Guardrail("strict", after_third_part),)))
    with pytest.raises(RunFailed, match="Guardrail strict tripped: stop"):
        await send_message(one, "hello")
    assert endpoint.closed.is_set()
    assert item_lines(await stored_items(bench)) == ["user: hello"]


async def test_no_tool_runs_before_every_input_guardrail_has_finished(
    store: Store, tmp_path: Path, tool_log: ToolLog
) -> None:
    bench = ChatHarness(store, Finishing(make_embedded_endpoint(store)), tmp_path)
    order: list[str] = []

    async def slow(context: Context, value: Any) -> None:
        assert isinstance(bench.endpoint, Finishing)
        await bench.endpoint.finished.wait()
        order.append(f"guardrail, {len(tool_log.ran)} ran")

    bench.model = scripted_model(bench.folder, tool_calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(tool_log.tool("look"),), input_guardrails=(Guardrail("slow", slow),))
    events = await send_message(await open_runner(bench, agent), "hello")
    assert (order, tool_log.ran, own_event_types(events)[-1]) == (["guardrail, 0 ran"], ["look"], "finished")


async def test_a_guardrail_gets_a_copy_of_the_model_input(harness: ChatHarness) -> None:
    seen: list[str] = []

    def inspect_input(context: Context, value: Any) -> None:
        seen.extend(item_lines(value))
        value.clear()

    agent = Agent("desk", input_guardrails=(Guardrail("looks", inspect_input, parallel=False),))
    one = await open_runner(harness, agent)
    await send_message(one, "one")
    await send_message(one, "two")
    assert seen == ["user: one", "user: one", "assistant: one", "user: two"]
    assert request_inputs(harness)[1] == seen[1:]


async def test_a_guardrail_that_raises_fails_the_run(harness: ChatHarness) -> None:
    def broken(context: Context, value: Any) -> str:
        raise OSError("gone")

    one = await open_runner(harness, Agent("desk", input_guardrails=(Guardrail("strict", broken, False),)))
    with pytest.raises(RunFailed, match="guardrail 'strict' raised OSError: gone"):
        await send_message(one, "hello")


async def test_an_output_guardrail_withholds_the_final_output(harness: ChatHarness) -> None:
    def no_secrets(context: Context, value: Any) -> str | None:
        return "a secret" if "secret" in value else None

    harness.model = scripted_model(harness.folder, {"text": "The secret is 4."}, {"text": "I cannot say."})
    agent = Agent("desk", output_guardrails=(Guardrail("no secrets", no_secrets),))
    one = await open_runner(harness, agent)
    with pytest.raises(RunFailed, match="Guardrail no secrets tripped: a secret"):
        await send_message(one, "hello")
    assert item_lines(await stored_items(harness)) == ["user: hello"]


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_an_agent_with_output_guardrails_runs_under_a_server_owner_it_is_refused(
    harness: ChatHarness, strategy: Strategy
) -> None:
    with pytest.raises(WrongOwner, match="an output guardrail"):
        await open_runner(harness, Agent("desk", output_guardrails=(Guardrail("strict", refuses),)), strategy=strategy)


# -- the time line --------------------------------------------------------------------------------


def stored_timeline(document: Mapping[str, Json]) -> list[tuple[Json, ...]]:
    """The entries of a stored run, without their times."""
    names = ("kind", "side", "agent", "name", "outcome", "reason", "target")
    entries = sorted(document.get(TIMELINE_KEY, []), key=lambda entry: entry["started_at"])
    return [tuple(filter(None, map(entry.get, names))) for entry in entries]


async def test_ended_guardrails_and_handoffs_are_stored_with_the_run(harness: ChatHarness) -> None:
    def takes_two_seconds(context: Context, value: Any) -> None:
        harness.clock.advance(2)

    billing = Agent("billing", output_guardrails=(Guardrail("strict", refuses),))
    checks = (Guardrail("slow", takes_two_seconds, parallel=False), Guardrail("quick", passes))
    agent = Agent("desk", handoffs=(billing,), input_guardrails=checks)
    harness.model = scripted_model(harness.folder, tool_calls("transfer_to_billing"), {"text": "Paid."})
    one = await open_runner(harness, agent)
    with pytest.raises(RunFailed, match="strict tripped"):
        await send_message(one, "hello")
    (row,) = await harness.store.agent_runs()
    assert stored_timeline(row.document) == [
        ("guardrail", "input", "desk", "slow", "passed"),
        ("guardrail", "input", "desk", "quick", "passed"),
        ("handoff", "desk", "billing"),
        ("guardrail", "output", "billing", "strict", "tripped", "not here"),
    ]
    slow, quick, *_ = row.document[TIMELINE_KEY]
    assert (slow["duration_s"], quick["duration_s"], quick["started_at"] - slow["started_at"]) == (2, 0, 2)


async def test_a_guardrail_that_raises_is_stored_as_failed_and_a_new_run_begins_a_new_time_line(
    harness: ChatHarness,
) -> None:
    def raises(context: Context, value: Any) -> None:
        if "fail" in str(value[-1]):
            raise ValueError("broken")

    harness.model = scripted_model(harness.folder, {"text": "Fine."})
    one = await open_runner(harness, Agent("desk", input_guardrails=(Guardrail("weak", raises, parallel=False),)))
    with pytest.raises(RunFailed):
        await send_message(one, "fail")
    await send_message(one, "hello")
    second, first = await harness.store.agent_runs()
    ((*entry, reason),) = stored_timeline(first.document)
    assert (entry, "broken" in str(reason)) == (["guardrail", "input", "desk", "weak", "failed"], True)
    assert stored_timeline(second.document) == [("guardrail", "input", "desk", "weak", "passed")]


async def test_the_guardrails_before_a_pause_are_kept_and_those_of_a_nested_run_belong_to_the_outer_one(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    inner_model = scripted_model(harness.folder, {"text": "Done."}, name="inner.json")
    inner = Agent("clerk", model=inner_model, input_guardrails=(Guardrail("inner", passes),))
    tools = (agent_tool(inner, "ask_clerk", "Ask."), tool_log.tool("pay", needs_approval=True))
    outer = Agent("desk", tools=tools, input_guardrails=(Guardrail("outer", passes),))
    call = {"name": "ask_clerk", "call_id": "a1", "arguments": {"input": "Hello."}}
    harness.model = scripted_model(harness.folder, tool_calls("pay"), {"call": call}, {"text": "Paid."})
    config = make_run_config(harness)
    await send_message(await open_runner(harness, outer, config), "hello")
    one = await open_runner(harness, outer, config)
    await one.apply_decisions(ApprovalDecided("call_1", approve=True))
    await read_events(one.resume())
    (row,) = await harness.store.agent_runs()
    assert [entry[3] for entry in stored_timeline(row.document)] == ["outer", "inner"]


def test_a_time_line_is_bounded_and_a_damaged_one_is_read() -> None:
    document: dict[str, Json] = {}
    for number in range(MAX_TIMELINE_ENTRIES + 3):
        append_timeline_entry(document, TimelineEntry("guardrail", number, 0.5, "desk", "x" * 1000))
    assert (len(document[TIMELINE_KEY]), document[OMITTED_COUNT_KEY]) == (MAX_TIMELINE_ENTRIES, 3)
    assert document[TIMELINE_KEY][-1]["name"] == "x" * MAX_ENTRY_TEXT_CHARS
    good = {"kind": "handoff", "started_at": 1, "agent": "desk", "target": "billing"}
    bad = [None, {}, {**good, "kind": "x"}, {**good, "started_at": "1"}, {**good, "new": "x"}, {**good, "agent": 1}]
    assert read_timeline_members({TIMELINE_KEY: [*bad, good], OMITTED_COUNT_KEY: -1}) == {TIMELINE_KEY: [good]}
    assert read_timeline_members({TIMELINE_KEY: 1}) == read_timeline_members({}) == {}
