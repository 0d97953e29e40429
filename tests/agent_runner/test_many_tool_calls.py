"""Many tool calls in one response: their cost, and their state in another process after an interruption."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from convo.agent_runner.config import RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.history.items import user_message
from convo.runs.state import ApprovalDecided, RunLimits, Stage, ToolOutputSupplied
from convo.stores.base import UNCHANGED_DOCUMENT, Transaction
from convo.tools.tool import tool
from tests.call_count import CallCount
from tests.chat.agent_runs import (
    open_runner,
    own_event_types,
    read_events,
    request_inputs,
    scripted_model,
    send_message,
    tool_calls,
)
from tests.chat.conftest import ChatHarness
from tests.chat.tool_log import ToolLog

FEW, MANY = 12, 48


async def open_paused_run(harness: ChatHarness, tool_log: ToolLog, count: int) -> AgentRunner:
    """A run with `count` pending calls."""
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    many = [(f"c{n}", "pay") for n in range(count)]
    harness.model = scripted_model(harness.folder, tool_calls(*many), {"text": "Paid."}, name=f"{count}.json")
    one = await open_runner(harness, agent, name=f"of {count}")
    await send_message(one, "hello")
    return one


async def approve_all(one: AgentRunner) -> None:
    await one.apply_decisions(*(ApprovalDecided(call.id, approve=True) for call in one.pending_calls))
    await read_events(one.resume())
    assert one.output == "Paid."


async def test_four_times_the_approvals_take_about_four_times_as_long(harness: ChatHarness, tool_log: ToolLog) -> None:
    durations = []
    for count in (FEW, MANY):
        one = await open_paused_run(harness, tool_log, count)
        with CallCount() as steps:
            await approve_all(one)
        durations.append(steps.total)
    assert durations[1] < 5 * durations[0]


async def test_the_complete_run_is_written_equally_often_for_many_and_for_few_calls(
    harness: ChatHarness, tool_log: ToolLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, complete_writes = harness.store.commit, list[bool]()

    async def counting_commit(change: Transaction) -> None:
        await commit(change)
        if change.agent_run:
            complete_writes.append(change.agent_run.document is not UNCHANGED_DOCUMENT)

    monkeypatch.setattr(harness.store, "commit", counting_commit)
    complete_counts = []
    for count in (FEW, MANY):
        one = await open_paused_run(harness, tool_log, count)
        complete_writes.clear()
        await approve_all(one)
        assert len(complete_writes) > count - RunLimits().max_parallel_calls
        complete_counts.append(sum(complete_writes))
    assert complete_counts[0] == complete_counts[1]


# -- interrupted runs ---------------------------------------------------------------------------------


async def stop_run(one: AgentRunner, started: asyncio.Event, *messages: str) -> None:
    """Start or resume `one` until the slow tool has started, then cancel it, as if its process had ended."""
    task = asyncio.ensure_future(send_message(one, *messages) if messages else read_events(one.resume()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    started.clear()


class Desk:
    """An agent with a tool that returns at once and a tool that never returns."""

    def __init__(self, harness: ChatHarness, *names: str) -> None:
        self.started, self.runs = asyncio.Event(), list[str]()
        self.harness = harness
        many = [(f"c{n}", name) for n, name in enumerate(names)]
        harness.model = scripted_model(harness.folder, tool_calls(*many), {"text": "Done."})

    async def open(self, parallel: int) -> AgentRunner:
        """Open the run as another process would."""

        @tool
        def quick() -> str:
            self.runs.append("quick")
            return "quick done"

        @tool
        async def slow() -> str:
            self.runs.append("slow")
            self.started.set()
            await asyncio.Event().wait()
            return "never"

        return await open_runner(
            self.harness, Agent("desk", tools=(quick, slow)), RunConfig(RunLimits(max_parallel_calls=parallel))
        )


def call_stages(one: AgentRunner) -> Sequence[Any]:
    return [call.stage for call in one.run.calls]


async def test_another_process_reads_the_calls_that_ended_or_started_since_the_last_complete_write(
    harness: ChatHarness,
) -> None:
    desk = Desk(harness, "quick", "quick", "slow", "quick")
    await stop_run(await desk.open(1), desk.started, "hello")

    other = await desk.open(1)
    assert call_stages(other) == [Stage.DONE, Stage.DONE, Stage.RUNNING, Stage.READY]
    assert own_event_types(await read_events(other.resume())) == ["started", "tool_started", "tool_output", "paused"]
    assert [(call.id, call.stage) for call in other.pending_calls] == [("c2", Stage.OUTCOME_UNKNOWN)]
    await other.apply_decisions(ToolOutputSupplied("c2", "given"))
    await read_events(other.resume())
    assert request_inputs(harness)[-1][-4:] == ["c0: quick done", "c1: quick done", "c2: given", "c3: quick done"]
    assert desk.runs == ["quick", "quick", "slow", "quick"]


async def test_another_process_reads_the_output_of_a_call_although_a_parallel_call_still_ran(
    harness: ChatHarness,
) -> None:
    desk = Desk(harness, "quick", "slow")
    first = await desk.open(2)
    async with aclosing(first.start([user_message("hello")])) as events:
        async for event in events:
            if event["type"] == "convo.tool_output":
                break

    assert call_stages(await desk.open(2)) == [Stage.DONE, Stage.RUNNING]


async def test_a_run_that_another_process_stops_keeps_its_finished_outputs(harness: ChatHarness) -> None:
    desk = Desk(harness, "quick", "slow", "quick")
    await stop_run(await desk.open(1), desk.started, "hello")
    other = await desk.open(1)
    await other.stop()

    await send_message(await desk.open(1), "again")
    unknown, not_run = "The tool was started, and its outcome is unknown.", "The run ended before this tool was called."
    assert request_inputs(harness)[-1][-4:] == ["c0: quick done", f"c1: {unknown}", f"c2: {not_run}", "user: again"]


async def test_a_call_that_may_run_again_but_has_not_yet_is_not_asked_about_twice(harness: ChatHarness) -> None:
    desk = Desk(harness, "slow", "slow", "slow")
    await stop_run(await desk.open(2), desk.started, "hello")
    await stop_run(await desk.open(2), desk.started)
    other = await desk.open(2)
    await read_events(other.resume())
    assert [call.id for call in other.pending_calls] == ["c0", "c1", "c2"]
    await other.apply_decisions(*(ApprovalDecided(call.id, approve=True) for call in other.pending_calls))
    await stop_run(other, desk.started)

    third = await desk.open(2)
    assert call_stages(third) == [Stage.RUNNING, Stage.RUNNING, Stage.READY]
    await stop_run(third, desk.started)
    assert call_stages(await desk.open(2)) == [Stage.OUTCOME_UNKNOWN, Stage.OUTCOME_UNKNOWN, Stage.RUNNING]
