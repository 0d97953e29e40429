"""Recovery of interrupted runs in another process: started calls, handoff functions, filtered input, forced tools."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from convo.agent_runner.config import ModelInput, RunConfig
from convo.agent_runner.run_state import build_run_state
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent, Handoff
from convo.agents.graph import graph
from convo.errors import RequestRefused
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, RunLimits, ToolOutputSupplied
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import parse_run_state
from convo.runstate.writer import serialize_run_state
from convo.strategies.strategy import STRATEGIES
from convo.tools.tool import Context, tool
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


async def cancel_at(coroutine: Coroutine[Any, Any, Any], event: asyncio.Event) -> None:
    """Run `coroutine` until `event` is set, then cancel it."""
    task, event_task = asyncio.ensure_future(coroutine), asyncio.ensure_future(event.wait())
    await asyncio.wait([task, event_task], return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    event_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("needs_approval", [False, True])
async def test_the_start_of_a_call_is_stored_before_it_runs(harness: ChatHarness, needs_approval: bool) -> None:
    seen: list[list[tuple[str, bool]]] = []

    @tool(needs_approval=needs_approval)
    async def look() -> str:
        (row,) = await harness.store.agent_runs()
        seen.append(
            [(call.call_id.rpartition("/")[2], call.has_ended) for call in await harness.store.agent_calls(row.id)]
        )
        return "done"

    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    one = await open_runner(harness, Agent("desk", tools=(look,)))
    await send_message(one, "hello")
    if needs_approval:
        assert seen == []
        await one.apply_decisions(ApprovalDecided("call_1", approve=True))
        await read_events(one.resume())
    assert seen == [[("call_1", False)]]


async def test_a_reused_call_id_does_not_get_the_output_of_the_earlier_call(
    harness: ChatHarness,
) -> None:
    """Calls run one at a time: the first call of the second response is interrupted before its second call starts."""
    started, runs = asyncio.Event(), []

    @tool
    async def look() -> str:
        runs.append("look")
        return f"look {len(runs)}"

    @tool
    async def endless() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent, run_config = Agent("desk", tools=(look, endless)), RunConfig(limits=RunLimits(max_parallel_calls=1))
    again = tool_calls(("call_9", "endless"), ("call_1", "look"))
    harness.model = scripted_model(harness.folder, tool_calls("look"), again, {"text": "Done."})
    await cancel_at(send_message(await open_runner(harness, agent, run_config), "hello"), started)
    assert runs == ["look"]

    other = await open_runner(harness, agent, run_config)
    await read_events(other.resume())
    assert [call.id for call in other.pending_calls] == ["call_9"]
    await other.apply_decisions(ToolOutputSupplied("call_9", "given"))
    await read_events(other.resume())
    assert (runs, request_inputs(harness)[-1][-2:]) == (["look", "look"], ["call_9: given", "call_1: look 2"])


async def test_the_function_of_an_interrupted_handoff_is_not_called_again_and_that_is_reported(
    harness: ChatHarness,
) -> None:
    started, calls = asyncio.Event(), []

    async def taken(context: Context, value: str) -> None:
        calls.append(value)
        started.set()
        if len(calls) == 1:
            await asyncio.Event().wait()

    agent = Agent("triage", handoffs=(Handoff(Agent("billing"), taken=taken),))
    harness.model = scripted_model(harness.folder, tool_calls("transfer_to_billing"), {"text": "Here."})
    await cancel_at(send_message(await open_runner(harness, agent), "hello"), started)

    other = await open_runner(harness, agent)
    events = await read_events(other.resume())
    assert own_event_types(events) == ["started", "warning", "handoff", "finished"]
    assert "the function of the handoff to billing may have run before; it is not called again" in str(events)
    assert (calls, other.output) == (["{}"], "Here.")


@pytest.mark.parametrize("strategy", Strategy)
async def test_the_filtered_input_of_a_failed_request_is_sent_again_unchanged(
    harness: ChatHarness, strategy: Strategy
) -> None:
    def more(data: ModelInput) -> ModelInput:
        return ModelInput([*data.items, user_message("more")], f"{data.instructions} more")

    agent, filtered = Agent("desk", "Help."), RunConfig(input_filter=more)
    one = await open_runner(harness, agent, filtered, strategy=strategy)
    harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await send_message(one, "hello")
    await read_events((await open_runner(harness, agent, filtered)).resume())
    assert harness.bodies[0] == harness.bodies[1]
    assert (request_inputs(harness)[1], harness.bodies[1]["instructions"]) == (
        ["user: hello", "user: more"],
        "Help. more",
    )
    expected = ["user: hello", "user: more"] if STRATEGIES[strategy].is_server_side else ["user: hello"]
    assert item_lines(await stored_items(harness)) == [*expected, "assistant: more"]


@pytest.mark.parametrize("through", ["the store", "a state"])
async def test_a_tool_that_was_forced_before_a_pause_is_not_forced_after_it(
    harness: ChatHarness, tool_log: ToolLog, through: str
) -> None:
    pay = tool_log.tool("pay", needs_approval=True)
    agent = Agent("desk", tools=(pay,), settings={"tool_choice": "required"})
    harness.model = scripted_model(harness.folder, tool_calls("pay"), {"text": "Paid."})
    one = await open_runner(harness, agent)
    await send_message(one, "hello")
    if through == "the store":
        one = await open_runner(harness, agent)
    else:
        assert one.run_row
        serialized = serialize_run_state(
            await build_run_state(harness.store, one.chat.session, one.run_row, one.run, {})
        )
        found = import_run_state(parse_run_state(serialized.encode()), graph(agent))
        chat = await harness.open(Strategy.SESSION, name="elsewhere")
        one = await AgentRunner.import_run(chat, found.run, found.items, state_hash=found.source_hash)
    await one.apply_decisions(ApprovalDecided("call_1", approve=True))
    await read_events(one.resume())
    assert [body.get("tool_choice") for body in harness.bodies] == ["required", None]
    assert (one.output, tool_log.ran) == ("Paid.", ["pay"])
