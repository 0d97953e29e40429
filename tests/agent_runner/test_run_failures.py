"""Failed requests, stopped runs and outputs that cannot be stored: retries, and resuming the run."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from convo.agents.agent import Agent
from convo.chat.session_record import ChatDeps
from convo.errors import RequestRefused, StoreFull, TryLater
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, ToolOutputSupplied
from convo.tools.tool import tool
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
from tests.chat.recording_endpoint import EndpointFault
from tests.chat.tool_log import ToolLog
from tests.stores.failing_store import FailingStore

BUSY = TryLater("busy", status=429)


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_request_that_is_safe_to_retry_is_repeated_unchanged(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), strategy=strategy)
    harness.endpoint.faults = [EndpointFault(BUSY), EndpointFault(BUSY)]
    assert own_event_types(await send_message(one, "hello"))[-1] == "finished"
    assert harness.bodies[0] == harness.bodies[1] == harness.bodies[2]
    assert (len(harness.bodies), tool_log.ran) == (4, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_after_a_failed_request_the_run_stays_open_and_can_be_resumed(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    one = await open_runner(harness, agent, strategy=strategy)

    async def read_on() -> None:
        async for event in one.start([user_message("hello")]):
            if event["type"] == "convo.tool_output":
                harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))]

    with pytest.raises(RequestRefused):
        await read_on()
    assert (one.can_resume, len(harness.bodies)) == (True, 2)

    other = await open_runner(harness, agent)
    assert own_event_types(await read_events(other.resume())) == ["started", "finished"]
    assert harness.bodies[1] == harness.bodies[2]
    assert (other.output, other.run.turn, tool_log.ran) == ("Done.", 2, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_interrupted_answer_is_requested_again_without_its_partial_text(
    harness: ChatHarness, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, {"text": "A long answer that comes in several pieces."})
    one = await open_runner(harness, Agent("desk"), strategy=strategy)
    async with aclosing(one.start([user_message("hello")])) as events:
        async for event in events:
            if event["type"].endswith(".delta"):
                break
    assert one.can_resume

    again = await open_runner(harness, Agent("desk"))
    await read_events(again.resume())
    assert harness.bodies[0] == harness.bodies[1]
    assert item_lines(await stored_items(harness)) == [
        "user: hello",
        "assistant: A long answer that comes in several pieces.",
    ]


async def test_another_message_may_be_sent_after_a_failed_request(harness: ChatHarness) -> None:
    one = await open_runner(harness, Agent("desk"))
    harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await send_message(one, "hello")
    first = one.run_row
    await send_message(one, "well?")
    assert request_inputs(harness)[-1] == ["user: hello", "user: well?"]
    assert first
    row = await harness.store.agent_run(first.id)
    assert row
    assert row.status == "stopped"


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_that_is_stopped_during_its_tools_keeps_the_outputs_and_asks_about_the_other_calls(
    harness: ChatHarness, strategy: Strategy
) -> None:
    started, ended = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @tool
    async def endless() -> str:
        runs.append("endless")
        started.set()
        await ended.wait()
        return "at last"

    @tool
    async def quick() -> str:
        runs.append("quick")
        return "quick done"

    agent = Agent("desk", tools=(quick, endless))
    harness.model = scripted_model(harness.folder, tool_calls(("c1", "quick"), ("c2", "endless")), {"text": "Done."})
    one = await open_runner(harness, agent, strategy=strategy)
    task = asyncio.ensure_future(send_message(one, "hello"))
    await started.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    other = await open_runner(harness, agent)
    events = await read_events(other.resume())
    assert own_event_types(events) == ["started", "paused"]
    assert [(call["call_id"], call["unknown"]) for call in events[-1]["pending"]] == [("c2", True)]
    await other.apply_decisions(ToolOutputSupplied("c2", "given"))
    await read_events((await open_runner(harness, agent)).resume())
    assert request_inputs(harness)[-1][-2:] == ["c1: quick done", "c2: given"]
    assert runs == ["quick", "endless"]


async def test_a_call_of_unknown_outcome_may_be_run_again(harness: ChatHarness) -> None:
    runs: list[int] = []
    started = asyncio.Event()

    @tool
    async def once() -> str:
        runs.append(1)
        started.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    agent = Agent("desk", tools=(once,))
    harness.model = scripted_model(harness.folder, tool_calls("once"), {"text": "Done."})
    one = await open_runner(harness, agent)
    task = asyncio.ensure_future(send_message(one, "hello"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await read_events(one.resume())
    assert [call.id for call in one.pending_calls] == ["call_1"]
    await one.apply_decisions(ApprovalDecided("call_1", approve=True))
    await read_events(one.resume())
    assert (len(runs), one.output) == (2, "Done.")


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_an_output_cannot_be_stored_another_process_asks_about_it_and_does_not_run_the_tool_again(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    full: Any = FailingStore(
        harness.store, StoreFull("no room is left"), failing=True, which=lambda change: tool_log.ran
    )
    harness.deps = ChatDeps(full, harness.endpoint, harness.clock, harness.deps.new_id)
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    one = await open_runner(harness, agent, strategy=strategy)
    with pytest.raises(StoreFull):
        await send_message(one, "hello")

    full.failing = False
    assert own_event_types(await read_events((await open_runner(harness, agent)).resume())) == ["started", "paused"]
    again = await open_runner(harness, agent)
    assert [call.id for call in again.pending_calls] == ["call_1"]
    assert tool_log.ran == ["look"]


async def test_when_an_output_could_not_be_stored_the_same_process_still_has_it(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    full: Any = FailingStore(
        harness.store, StoreFull("no room is left"), failing=True, which=lambda change: tool_log.ran
    )
    harness.deps = ChatDeps(full, harness.endpoint, harness.clock, harness.deps.new_id)
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)))
    with pytest.raises(StoreFull):
        await send_message(one, "hello")
    full.failing = False
    await read_events(one.resume())
    assert (one.output, tool_log.ran) == ("Done.", ["look"])
    assert request_inputs(harness)[-1][-1] == "call_1: look done"
