"""Paused runs: decisions, and resuming in the same process, in another one, or from an imported state."""

import json
from typing import Any

import pytest

from convo.agent_runner.config import RunConfig
from convo.agent_runner.persistence import load_run_row
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.errors import Conflict, ConvoError, InvalidUsage, RunFailed, StateFault
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.inspect.run_timeline import build_run_timeline
from convo.runs.state import ApprovalDecided, InputAdded, RunLimits
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
from tests.chat.tool_log import ToolLog
from tests.strategy_owners import SERVER_OWNED


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_paused_run_is_resumed_in_another_process_and_sends_both_outputs(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(tool_log.tool("look"), tool_log.tool("pay", needs_approval=True)))
    harness.model = scripted_model(harness.folder, tool_calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    one = await open_runner(harness, agent, strategy=strategy)
    events = await send_message(one, "hello")

    assert own_event_types(events) == ["started", "tool_started", "tool_output", "paused"]
    pending_call = {"call_id": "c1", "tool": "pay", "agent": "desk", "arguments": "{}", "unknown": False}
    assert events[-1]["pending"] == [pending_call]
    assert one.run_row
    assert (one.run_row.status, tool_log.ran) == ("paused", ["look"])

    other = await open_runner(harness, agent)
    assert [call.id for call in other.pending_calls] == ["c1"]
    await other.apply_decisions(ApprovalDecided("c1", approve=True))
    assert tool_log.ran == ["look"]

    third = await open_runner(harness, agent)
    assert own_event_types(await read_events(third.resume())) == ["started", "tool_started", "tool_output", "finished"]
    assert (third.output, tool_log.ran, len(harness.bodies)) == ("Paid.", ["look", "pay"], 2)
    assert request_inputs(harness)[1][-2:] == ["c1: pay done", "c2: look done"]
    assert len(request_inputs(harness)[1]) == (2 if strategy in SERVER_OWNED else 5)


async def test_without_a_decision_the_same_calls_stay_pending_and_no_model_is_called(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"))
    one = await open_runner(harness, agent)
    first = (await send_message(one, "hello"))[-1]
    again = await read_events((await open_runner(harness, agent)).resume())
    assert again[-1] == first
    assert (len(harness.bodies), tool_log.ran) == (1, [])


async def test_new_input_is_refused_while_calls_are_pending(harness: ChatHarness, tool_log: ToolLog) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("pay"), {"text": "As you like."})
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),)))
    await send_message(one, "hello")
    with pytest.raises(StateFault, match="its calls have no output yet"):
        await send_message(one, "well?")
    await one.stop()
    await send_message(one, "well?")
    assert request_inputs(harness)[-1][1:] == [
        "call pay",
        "call_1: The run ended before this tool was called.",
        "user: well?",
    ]
    assert tool_log.ran == []


async def test_the_model_gets_a_rejection_and_then_the_added_input(harness: ChatHarness, tool_log: ToolLog) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"), {"text": "Well."})
    one = await open_runner(harness, agent)
    await send_message(one, "hello")
    await one.apply_decisions(
        InputAdded((user_message("leave it"),)), ApprovalDecided("call_1", approve=False, message="too dear")
    )
    await read_events(one.resume())
    assert request_inputs(harness)[-1][-2:] == ["call_1: too dear", "user: leave it"]
    assert tool_log.ran == []


@pytest.mark.parametrize("store", ["memory"], indirect=True)
async def test_a_call_needs_a_decision_only_once_the_other_tools_have_run(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    pending_ids: list[list[str]] = []

    @tool
    def look() -> str:
        pending_ids.append([call.id for call in one.pending_calls])
        return "seen"

    harness.model = scripted_model(harness.folder, tool_calls(("c1", "pay"), ("c2", "look")))
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("pay", needs_approval=True), look)))
    await send_message(one, "hello")
    assert (pending_ids, [call.id for call in one.pending_calls]) == ([[]], ["c1"])


@pytest.mark.parametrize("store", ["memory"], indirect=True)
async def test_the_replay_file_has_the_history_after_a_pause_a_stop_and_a_failure(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    def file_lines() -> list[str]:
        return item_lines(json.loads((harness.folder / "talk.json").read_text()))

    harness.model = scripted_model(harness.folder, tool_calls(("c1", "look"), ("c2", "pay")))
    agent = Agent("desk", tools=(tool_log.tool("look"), tool_log.tool("pay", needs_approval=True)))
    one = await open_runner(harness, agent, strategy=Strategy.REPLAY)
    await send_message(one, "hello")
    paused = ["user: hello", "call look", "call pay"]
    assert file_lines() == paused
    await one.stop()
    outputs = ["c1: look done", "c2: The run ended before this tool was called."]
    assert file_lines() == [*paused, *outputs]

    harness.model = scripted_model(harness.folder, tool_calls(("c3", "look")), name="once.json")
    limited = RunConfig(limits=RunLimits(max_turns=1))
    with pytest.raises(RunFailed):
        await send_message(await open_runner(harness, agent, limited), "again")
    assert file_lines() == [*paused, *outputs, "user: again", "call look", "c3: look done"]


async def test_decisions_are_applied_all_or_none(harness: ChatHarness, tool_log: ToolLog) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"))
    one = await open_runner(harness, agent)
    await send_message(one, "hello")
    with pytest.raises(ConvoError, match="there is no call c9"):
        await one.apply_decisions(ApprovalDecided("call_1", approve=True), ApprovalDecided("c9", approve=True))
    assert len((await open_runner(harness, agent)).pending_calls) == 1


async def test_a_sticky_approval_applies_to_later_calls_also_in_another_process(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"), tool_calls("pay"), {"text": "Paid."})
    await send_message(await open_runner(harness, agent), "hello")
    one = await open_runner(harness, agent)
    await one.apply_decisions(ApprovalDecided("call_1", approve=True, always=True))
    events = await read_events((await open_runner(harness, agent)).resume())
    assert (own_event_types(events)[-1], tool_log.ran) == ("finished", ["pay", "pay"])


async def test_a_function_decides_whether_a_call_needs_approval(harness: ChatHarness) -> None:
    payments: list[int] = []

    async def is_expensive(context: Context, arguments: Any) -> bool:
        return bool(arguments["cents"] > 100)

    @tool(needs_approval=is_expensive)
    def pay(cents: int) -> str:
        payments.append(cents)
        return "paid"

    harness.model = scripted_model(
        harness.folder, tool_calls(("c1", "pay", {"cents": 5}), ("c2", "pay", {"cents": 500}))
    )
    one = await open_runner(harness, Agent("desk", tools=(pay,)))
    await send_message(one, "hello")
    assert ([call.id for call in one.pending_calls], payments) == (["c2"], [5])


async def test_a_run_is_found_only_by_its_id_and_by_its_session(harness: ChatHarness, tool_log: ToolLog) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"))
    one = await open_runner(harness, agent)
    await send_message(one, "hello")
    assert one.run_row
    assert (
        (await load_run_row(harness.store, "mine")).id
        == (await load_run_row(harness.store, one.run_row.id)).id
        == one.run_row.id
    )
    other = await harness.open(Strategy.SESSION, name="other")
    with pytest.raises(InvalidUsage, match="belongs to another session"):
        await AgentRunner.open(other, graph(agent), run_row=one.run_row)


async def test_a_second_process_that_resumes_the_same_run_is_refused_and_runs_nothing(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"), {"text": "Paid."})
    await send_message(await open_runner(harness, agent), "hello")
    first, second = await open_runner(harness, agent), await open_runner(harness, agent)
    await first.apply_decisions(ApprovalDecided("call_1", approve=True))
    with pytest.raises(Conflict):
        await second.apply_decisions(ApprovalDecided("call_1", approve=True))
    third = await open_runner(harness, agent)
    await read_events(first.resume())
    with pytest.raises(Conflict):
        await read_events(third.resume())
    assert (tool_log.ran, len(harness.bodies)) == (["pay"], 2)


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_imported_run_is_resumed_with_its_history(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"), {"text": "Paid."})
    one = await open_runner(harness, agent, strategy=strategy)
    await send_message(one, "hello")
    items = await stored_items(harness)

    file = str(harness.folder / "other.json") if strategy is Strategy.REPLAY else None
    chat = await harness.open(strategy, one.chat.session.handle if strategy in SERVER_OWNED else file, name="other")
    other = await AgentRunner.import_run(chat, one.run, () if strategy in SERVER_OWNED else items, state_hash="sha")
    assert other.run_row
    assert (other.run_row.status, other.run_row.source_state_hash, other.run_row.revision) == ("paused", "sha", 1)
    again = await AgentRunner.open(chat, graph(agent))
    await again.apply_decisions(ApprovalDecided("call_1", approve=True))
    await read_events(again.resume())
    assert (again.output, tool_log.ran) == ("Paid.", ["pay"])
    assert request_inputs(harness)[-1] == (
        ["call_1: pay done"] if strategy in SERVER_OWNED else [*item_lines(items), "call_1: pay done"]
    )


async def test_an_approval_request_of_a_hosted_tool_is_answered_with_its_own_item_type(harness: ChatHarness) -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "files", "name": "rm", "arguments": "{}"}
    harness.model = scripted_model(harness.folder, {"output": [request]})
    one = await open_runner(harness, Agent("desk"))
    events = await send_message(one, "hello")
    assert [call["tool"] for call in events[-1]["pending"]] == ["files.rm"]

    harness.model = scripted_model(harness.folder, {"text": "As you like."}, name="then.json")
    other = await open_runner(harness, Agent("desk"))
    await other.apply_decisions(ApprovalDecided("mcpr_1", approve=False, message="no"))
    await read_events(other.resume())
    verdict = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"}
    assert harness.bodies[-1]["input"][-1] == verdict
    assert other.output == "As you like."


async def test_calls_of_two_responses_with_one_id_are_decided_run_and_shown_apart(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    """As of a server that stores the history, whose ids stay."""
    replies = [tool_calls(("c1", name)) for name in ("pay", "look", "pay")]
    harness.model = scripted_model(harness.folder, *replies, {"text": "Paid."})
    agent = Agent("desk", tools=tuple(tool_log.tool(name, needs_approval=True) for name in ("pay", "look")))
    await send_message(await open_runner(harness, agent), "hello")
    for approve in (True, False, True):
        await (await open_runner(harness, agent)).apply_decisions(ApprovalDecided("c1", approve, "no"))
        one = await open_runner(harness, agent)
        await read_events(one.resume())
    assert (one.output, tool_log.ran) == ("Paid.", ["pay", "pay"])
    assert item_lines(await stored_items(harness))[1:-1] == [
        *("call pay", "c1: pay done", "call look", "c1: no", "call pay", "c1: pay done")
    ]
    row = one.run_row
    assert row
    timeline = build_run_timeline(row, await harness.store.agent_calls(row.id), await stored_items(harness))
    assert [(entry.name, entry.call_id) for entry in timeline.entries] == [("pay", "c1"), ("pay", "c1")]
