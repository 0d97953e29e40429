"""Agents as tools: nested runs, their history, and their pauses together with the outer run."""

from dataclasses import replace

import pytest

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agents.agent import Agent
from convo.agents.graph import agent_tool
from convo.chat.turn import RequestOptions
from convo.errors import ConvoError, InvalidUsage, RunFailed
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import list_pending_approvals
from convo.stores.factory import open_store
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
from tests.chat.tool_log import ToolLog

CALL_CLERK = tool_calls(("c1", "ask_clerk", {"input": "How much?"}))


def make_run_config(harness: ChatHarness) -> RunConfig:
    return RunConfig(
        open_scratch_store=lambda: open_store("memory"),
        resolve_model=lambda model: ModelRoute(RequestOptions(str(model), str(model)), harness.endpoint),
    )


def make_boss(clerk: Agent) -> Agent:
    return Agent("boss", tools=(agent_tool(clerk, "ask_clerk", "Ask the clerk."),))


def clerk(harness: ChatHarness, tool_log: ToolLog, *replies: dict[str, object]) -> Agent:
    model = scripted_model(harness.folder, *replies, name="clerk.json")
    return Agent("clerk", "Look it up.", model=model, tools=(tool_log.tool("look", needs_approval=True),))


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_agent_as_a_tool_answers_in_a_nested_run_with_its_own_history(
    harness: ChatHarness, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, CALL_CLERK, {"text": "It is 4."})
    helper = Agent("clerk", "Look it up.", model=scripted_model(harness.folder, {"text": "Four."}, name="clerk.json"))
    one = await open_runner(harness, make_boss(helper), make_run_config(harness), strategy=strategy)
    await send_message(one, "hello")
    assert item_lines(harness.bodies[1]["input"]) == ["user: How much?"]
    assert (harness.bodies[1]["store"], harness.bodies[1]["instructions"]) == (False, "Look it up.")
    assert item_lines(await stored_items(harness)) == [
        "user: hello",
        "call ask_clerk",
        "c1: Four.",
        "assistant: It is 4.",
    ]


async def test_the_store_of_a_nested_run_is_closed_after_it(harness: ChatHarness) -> None:
    harness.model = scripted_model(harness.folder, CALL_CLERK, {"text": "It is 4."})
    helper = Agent("clerk", model=scripted_model(harness.folder, {"text": "Four."}, name="clerk.json"))
    stores = [open_store("memory")]
    config = replace(make_run_config(harness), open_scratch_store=lambda: stores[0])
    await send_message(await open_runner(harness, make_boss(helper), config), "hello")
    with pytest.raises(ConvoError):
        await stores[0].sessions()


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_nested_run_pauses_with_the_outer_run_and_is_resumed_in_another_process(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, CALL_CLERK, {"text": "It is 4."})
    agent = make_boss(clerk(harness, tool_log, tool_calls(("i1", "look")), {"text": "Four."}))
    one = await open_runner(harness, agent, make_run_config(harness), strategy=strategy)
    events = await send_message(one, "hello")
    assert own_event_types(events) == ["started", "tool_started", "paused"]
    assert [(call["call_id"], call["agent"]) for call in events[-1]["pending"]] == [("i1", "clerk")]
    assert one.run_row
    assert [call.call_id for call in list_pending_approvals(one.run_row.document)] == ["i1"]
    assert len(await harness.store.sessions()) == 1

    other = await open_runner(harness, agent, make_run_config(harness))
    assert own_event_types(await read_events(other.resume())) == ["started", "paused"]
    await other.apply_decisions(ApprovalDecided("i1", approve=True))
    third = await open_runner(harness, agent, make_run_config(harness))
    await read_events(third.resume())
    assert (third.output, tool_log.ran) == ("It is 4.", ["look"])
    assert request_inputs(harness)[2] == ["user: How much?", "call look", "i1: look done"]
    assert item_lines(await stored_items(harness))[-2:] == ["c1: Four.", "assistant: It is 4."]


async def test_a_failed_nested_run_is_reported_to_the_model_or_without_a_message_fails_the_outer_run(
    harness: ChatHarness,
) -> None:
    harness.model = scripted_model(harness.folder, CALL_CLERK, {"text": "Well."})
    endless = Agent("clerk", model=scripted_model(harness.folder, tool_calls("nothing"), name="clerk.json"))
    await send_message(await open_runner(harness, make_boss(endless), make_run_config(harness)), "hello")
    assert request_inputs(harness)[-1][-1] == "c1: An error occurred while running the tool. Please try again."

    strict = replace(agent_tool(endless, "ask_clerk"), failure=None)
    with pytest.raises(RunFailed, match="Tool nothing not found in agent clerk"):
        await send_message(
            await open_runner(harness, Agent("boss", tools=(strict,)), make_run_config(harness), name="b"), "hello"
        )


@pytest.mark.parametrize("store", ["memory"], indirect=True)
@pytest.mark.parametrize("clerk_model", ["absent.json", "clerk.json"])
async def test_before_an_approved_agent_runs_its_model_is_checked(harness: ChatHarness, clerk_model: str) -> None:
    harness.model = scripted_model(harness.folder, CALL_CLERK, {"text": "It is 4."})
    scripted_model(harness.folder, {"text": "Four."}, name="clerk.json")
    helper = Agent("clerk", model=f"scripted/{harness.folder / clerk_model}")
    agent = Agent("boss", tools=(agent_tool(helper, "ask_clerk", needs_approval=True),))
    one = await open_runner(harness, agent, make_run_config(harness))
    await send_message(one, "hello")
    await one.apply_decisions(ApprovalDecided("c1", approve=True))
    if clerk_model == "absent.json":
        with pytest.raises(ConvoError, match=r"absent\.json.*; no tool was run$"):
            await read_events(one.resume())
        assert len(harness.bodies) == 1
    else:
        await read_events(one.resume())
        assert (one.output, len(harness.bodies)) == ("It is 4.", 3)


async def test_a_nested_run_without_a_store_is_refused(harness: ChatHarness, tool_log: ToolLog) -> None:
    with pytest.raises(InvalidUsage, match="the nested run of tool 'ask_clerk' has no store"):
        await open_runner(harness, make_boss(Agent("clerk")))
