"""Runs that pause for an approval and resume, usually in another runner."""

from contextlib import aclosing
from typing import Any

import pytest

from convo.agent_runner.config import RunConfig
from convo.agent_runner.run_state import build_run_state
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent, Guardrail
from convo.agents.graph import graph
from convo.errors import Conflict, RunFailed
from convo.history.items import is_assistant_message, user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, InputAdded, RunLimits
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import parse_run_state
from convo.runstate.writer import serialize_run_state
from convo.tools.tool import Context
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
from tests.strategy_owners import CLIENT_OWNED, SERVER_OWNED

pytestmark = pytest.mark.usefixtures("read_mode")


APPROVED = ApprovalDecided("c1", approve=True)
OUTPUTS = ["c1: pay done", "c2: look done"]


def desk_agent(tool_log: ToolLog, **fields: Any) -> Agent:
    return Agent("desk", tools=(tool_log.tool("look"), tool_log.tool("pay", needs_approval=True)), **fields)


async def start_paused_run(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy | None = None, config: RunConfig | None = None
) -> AgentRunner:
    """Start a run that pauses: the first call needs approval, and the second has run."""
    harness.model = scripted_model(harness.folder, tool_calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    runner = await open_runner(harness, desk_agent(tool_log), config, strategy=strategy)
    await send_message(runner, "hello")
    return runner


async def decide_and_resume(
    harness: ChatHarness, tool_log: ToolLog, *decisions: Any, config: RunConfig | None = None
) -> AgentRunner:
    """Apply decisions and resume the run with a new runner, as another process does."""
    runner = await open_runner(harness, desk_agent(tool_log), config)
    await runner.apply_decisions(*decisions)
    await read_events(runner.resume())
    return runner


# -- resume with and without a decision ------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_paused_run_is_resumed_without_a_decision_the_same_calls_are_pending_and_no_request_is_sent(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    first = await start_paused_run(harness, tool_log, strategy)
    second = await decide_and_resume(harness, tool_log)
    assert [call.item for call in second.pending_calls] == [call.item for call in first.pending_calls]
    assert ([call.id for call in second.pending_calls], len(harness.bodies), tool_log.ran) == (["c1"], 1, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_call_is_approved_its_tool_runs_once_and_the_next_input_ends_with_its_output(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    first = await start_paused_run(harness, tool_log, strategy)
    second = await decide_and_resume(harness, tool_log, APPROVED)
    assert (first.run.turn, second.run.turn, tool_log.ran) == (1, 2, ["look", "pay"])
    assert request_inputs(harness)[1][-2:] == OUTPUTS


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("message", [None, "too dear"])
async def test_when_a_call_is_rejected_its_tool_does_not_run_and_its_output_is_the_reason_or_the_default_text(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, message: str | None
) -> None:
    await start_paused_run(harness, tool_log, strategy)
    await decide_and_resume(harness, tool_log, ApprovalDecided("c1", approve=False, message=message))
    assert request_inputs(harness)[1][-2:] == [f"c1: {message or 'Tool execution was not approved.'}", "c2: look done"]
    assert tool_log.ran == ["look"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_max_turns_was_reached_before_the_pause_the_tool_runs_and_the_next_model_call_fails(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await start_paused_run(harness, tool_log, strategy, RunConfig(RunLimits(max_turns=1)))
    with pytest.raises(RunFailed, match=r"Max turns \(1\) exceeded"):
        await decide_and_resume(harness, tool_log, APPROVED, config=RunConfig(RunLimits(max_turns=1)))
    assert (tool_log.ran, len(harness.bodies)) == (["look", "pay"], 1)
    assert item_lines(await stored_items(harness))[-2:] == OUTPUTS


async def test_when_two_runners_decide_on_one_pause_the_second_gets_a_conflict_and_runs_nothing(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    first = await start_paused_run(harness, tool_log)
    second = await open_runner(harness, desk_agent(tool_log))
    await first.apply_decisions(APPROVED)
    assert [call.id for call in second.pending_calls] == ["c1"]
    with pytest.raises(Conflict):
        await second.apply_decisions(ApprovalDecided("c1", approve=False))
    await read_events(first.resume())
    assert (first.output, tool_log.ran) == ("Paid.", ["look", "pay"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_input_is_added_to_a_paused_run_it_follows_the_outputs_once(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await start_paused_run(harness, tool_log, strategy)
    await decide_and_resume(harness, tool_log, InputAdded((user_message("and hurry"),)), APPROVED)
    assert request_inputs(harness)[1][0 if strategy in SERVER_OWNED else 3 :] == [*OUTPUTS, "user: and hurry"]
    await send_message(await open_runner(harness, desk_agent(tool_log)), "thanks")
    assert item_lines(await stored_items(harness)).count("user: and hurry") == 1


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_call_is_always_approved_later_calls_of_the_tool_by_the_agent_run_without_approval(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    harness.model = scripted_model(
        harness.folder, tool_calls(("c1", "pay")), tool_calls(("c2", "pay")), {"text": "Paid."}
    )
    await send_message(await open_runner(harness, desk_agent(tool_log), strategy=strategy), "hello")
    runner = await decide_and_resume(harness, tool_log, ApprovalDecided("c1", approve=True, always=True))
    assert (runner.output, runner.pending_calls, tool_log.ran) == ("Paid.", (), ["pay", "pay"])


# -- resume by owner -------------------------------------------------------------------------------


async def test_when_a_run_on_a_conversation_resumes_in_another_process_only_the_outputs_are_sent(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    await start_paused_run(harness, tool_log, Strategy.CONVERSATION)
    await decide_and_resume(harness, tool_log, APPROVED)
    assert request_inputs(harness)[1] == OUTPUTS
    assert harness.bodies[1]["conversation"] == harness.bodies[0]["conversation"]


async def test_when_a_run_on_a_chain_resumes_in_another_process_it_continues_from_the_last_response(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    await start_paused_run(harness, tool_log, Strategy.CHAIN)
    session = await harness.store.session("mine")
    assert session
    await decide_and_resume(harness, tool_log, APPROVED)
    assert (request_inputs(harness)[1], harness.bodies[1]["previous_response_id"]) == (OUTPUTS, session.handle)


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION, Strategy.SESSION])
async def test_when_one_tool_ran_and_one_is_pending_both_outputs_are_sent_in_call_order_after_a_json_round_trip(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    """The exported state is imported into the same session if it has a handle, else into a new session."""
    runner = await start_paused_run(harness, tool_log, strategy)
    row, session = runner.run_row, await harness.store.session("mine")
    assert row
    assert session
    document = serialize_run_state(await build_run_state(harness.store, session, row, runner.run, {}))
    imported = import_run_state(parse_run_state(document.encode()), graph(desk_agent(tool_log)))
    chat = (
        await harness.open(None, "mine") if imported.handle else await harness.open(Strategy.SESSION, name="elsewhere")
    )
    items = () if imported.handle else imported.items
    resumed = await AgentRunner.import_run(chat, imported.run, items, state_hash=imported.source_hash)
    await resumed.apply_decisions(APPROVED)
    await read_events(resumed.resume())
    assert request_inputs(harness)[1][-2:] == OUTPUTS
    assert len(request_inputs(harness)[1]) == (2 if strategy in SERVER_OWNED else 5)
    assert (resumed.output, tool_log.ran) == ("Paid.", ["look", "pay"])


# -- stored items at a pause -----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_a_run_pauses_the_store_has_input_and_calls_and_after_it_every_item_once(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await start_paused_run(harness, tool_log, strategy)
    lines = ["user: hello", "call pay", "call look"]
    assert item_lines(await stored_items(harness)) == lines
    await decide_and_resume(harness, tool_log, APPROVED)
    assert item_lines(await stored_items(harness)) == [*lines, *OUTPUTS, "assistant: Paid."]


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
@pytest.mark.parametrize("reason", [None, "not this"])
async def test_when_an_output_guardrail_is_set_calls_are_stored_at_the_pause_and_the_answer_once_it_passed(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, reason: str | None
) -> None:
    stored_lines: list[list[str]] = []

    async def guardrail(context: Context, output: Any) -> str | None:
        stored_lines.append(item_lines(await stored_items(harness)))
        return reason

    guarded = desk_agent(tool_log, output_guardrails=(Guardrail("looks", guardrail),))
    harness.model = scripted_model(harness.folder, tool_calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    await send_message(await open_runner(harness, guarded, strategy=strategy), "hello")
    runner = await open_runner(harness, guarded)
    await runner.apply_decisions(APPROVED)
    if reason:
        with pytest.raises(RunFailed, match="not this"):
            await read_events(runner.resume())
    else:
        await read_events(runner.resume())
    items = await stored_items(harness)
    assert item_lines(items[:5]) == ["user: hello", "call pay", "call look", *OUTPUTS]
    assert len(list(filter(is_assistant_message, items))) == (0 if reason else 1)


async def test_when_a_run_is_abandoned_after_its_tools_it_continues_with_a_model_call(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    runner = await open_runner(harness, desk_agent(tool_log))
    async with aclosing(runner.start([user_message("hello")])) as events:
        async for event in events:
            if event["type"] == "convo.tool_output":
                break
    resumed = await open_runner(harness, desk_agent(tool_log))
    resumed_events = await read_events(resumed.resume())
    assert own_event_types(resumed_events) == ["started", "finished"]
    assert (tool_log.ran, request_inputs(harness)[-1][-1], resumed.output) == (["look"], "call_1: look done", "Done.")
