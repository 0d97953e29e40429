"""Runs whose requests fail, that are stopped, or whose results cannot be stored: nothing is done twice."""

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
from tests.chat.agents import calls, history, inputs, own, read, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger
from tests.chat.recorded import Fault
from tests.stores.refusing import Refusing

BUSY = TryLater("busy", status=429)


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_request_that_is_safe_to_repeat_goes_out_again_as_it_was(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy)
    bench.endpoint.faults = [Fault(BUSY), Fault(BUSY)]
    assert own(await say(one, "hello"))[-1] == "finished"
    assert bench.bodies[0] == bench.bodies[1] == bench.bodies[2]
    assert (len(bench.bodies), ledger.ran) == (4, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_failed_request_leaves_the_run_open_and_is_asked_again(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(ledger.tool("look"),))
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    one = await running(bench, agent, strategy=strategy)

    async def read_on() -> None:
        async for event in one.start([user_message("hello")]):
            if event["type"] == "convo.tool_output":
                bench.endpoint.faults = [Fault(RequestRefused("no", status=400))]

    with pytest.raises(RequestRefused):
        await read_on()
    assert (one.can_resume, len(bench.bodies)) == (True, 2)

    other = await running(bench, agent)
    assert own(await read(other.resume())) == ["started", "finished"]
    assert bench.bodies[1] == bench.bodies[2]
    assert (other.output, other.run.turn, ledger.ran) == ("Done.", 2, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_answer_that_was_stopped_is_asked_for_again_without_what_came_of_it(
    bench: Bench, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, {"text": "A long answer that comes in several pieces."})
    one = await running(bench, Agent("desk"), strategy=strategy)
    async with aclosing(one.start([user_message("hello")])) as events:
        async for event in events:
            if event["type"].endswith(".delta"):
                break
    assert one.can_resume

    again = await running(bench, Agent("desk"))
    await read(again.resume())
    assert bench.bodies[0] == bench.bodies[1]
    assert words(await history(bench)) == [
        "user: hello",
        "assistant: A long answer that comes in several pieces.",
    ]


async def test_something_else_may_be_said_after_a_failed_request(bench: Bench) -> None:
    one = await running(bench, Agent("desk"))
    bench.endpoint.faults = [Fault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await say(one, "hello")
    first = one.run_row
    await say(one, "well?")
    assert inputs(bench)[-1] == ["user: hello", "user: well?"]
    assert first
    stopped = await bench.store.agent_run(first.id)
    assert stopped
    assert stopped.status == "stopped"


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_that_is_stopped_among_its_tools_keeps_what_came_and_asks_about_the_rest(
    bench: Bench, strategy: Strategy
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @tool
    async def endless() -> str:
        runs.append("endless")
        began.set()
        await ended.wait()
        return "at last"

    @tool
    async def quick() -> str:
        runs.append("quick")
        return "quick done"

    agent = Agent("desk", tools=(quick, endless))
    bench.model = scripted(bench.folder, calls(("c1", "quick"), ("c2", "endless")), {"text": "Done."})
    one = await running(bench, agent, strategy=strategy)
    going = asyncio.ensure_future(say(one, "hello"))
    await began.wait()
    await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going

    other = await running(bench, agent)
    events = await read(other.resume())
    assert own(events) == ["started", "paused"]
    assert [(call["call_id"], call["unknown"]) for call in events[-1]["pending"]] == [("c2", True)]
    await other.apply_decisions(ToolOutputSupplied("c2", "given"))
    await read((await running(bench, agent)).resume())
    assert inputs(bench)[-1][-2:] == ["c1: quick done", "c2: given"]
    assert runs == ["quick", "endless"]


async def test_a_call_of_unknown_outcome_may_be_run_again(bench: Bench) -> None:
    runs: list[int] = []
    began = asyncio.Event()

    @tool
    async def once() -> str:
        runs.append(1)
        began.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    agent = Agent("desk", tools=(once,))
    bench.model = scripted(bench.folder, calls("once"), {"text": "Done."})
    one = await running(bench, agent)
    going = asyncio.ensure_future(say(one, "hello"))
    await began.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await read(one.resume())
    assert [call.id for call in one.pending_calls] == ["call_1"]
    await one.apply_decisions(ApprovalDecided("call_1", approve=True))
    await read(one.resume())
    assert (len(runs), one.output) == (2, "Done.")


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_result_cannot_be_stored_another_process_asks_about_it_and_does_not_run_the_tool_again(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    full: Any = Refusing(bench.store, StoreFull("no room is left"), down=True, which=lambda change: ledger.ran)
    bench.edges = ChatDeps(full, bench.endpoint, bench.clock, bench.edges.new_id)
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    one = await running(bench, agent, strategy=strategy)
    with pytest.raises(StoreFull):
        await say(one, "hello")

    full.down = False
    assert own(await read((await running(bench, agent)).resume())) == ["started", "paused"]
    again = await running(bench, agent)
    assert [call.id for call in again.pending_calls] == ["call_1"]
    assert ledger.ran == ["look"]


async def test_when_a_result_could_not_be_stored_the_same_process_still_knows_it(bench: Bench, ledger: Ledger) -> None:
    full: Any = Refusing(bench.store, StoreFull("no room is left"), down=True, which=lambda change: ledger.ran)
    bench.edges = ChatDeps(full, bench.endpoint, bench.clock, bench.edges.new_id)
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)))
    with pytest.raises(StoreFull):
        await say(one, "hello")
    full.down = False
    await read(one.resume())
    assert (one.output, ledger.ran) == ("Done.", ["look"])
    assert inputs(bench)[-1][-1] == "call_1: look done"
