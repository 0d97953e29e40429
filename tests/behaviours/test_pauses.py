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

pytestmark = pytest.mark.usefixtures("read_mode")

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]

APPROVED = ApprovalDecided("c1", approve=True)
BOTH = ["c1: pay done", "c2: look done"]


def desk(tool_log: ToolLog, **fields: Any) -> Agent:
    return Agent("desk", tools=(tool_log.tool("look"), tool_log.tool("pay", needs_approval=True)), **fields)


async def paused(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy | None = None, conduct: RunConfig | None = None
) -> AgentRunner:
    """Start a run that pauses: the first call needs approval, and the second has run."""
    harness.model = scripted_model(harness.folder, tool_calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    one = await open_runner(harness, desk(tool_log), conduct, strategy=strategy)
    await send_message(one, "hello")
    return one


async def gone_on(
    harness: ChatHarness, tool_log: ToolLog, *decisions: Any, conduct: RunConfig | None = None
) -> AgentRunner:
    """Apply decisions and resume the run with a new runner, as another process does."""
    one = await open_runner(harness, desk(tool_log), conduct)
    await one.apply_decisions(*decisions)
    await read_events(one.resume())
    return one


# -- without and with a decision --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_paused_run_is_resumed_without_a_decision_the_same_calls_are_pending_and_no_request_is_sent(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    first = await paused(harness, tool_log, strategy)
    one = await gone_on(harness, tool_log)
    assert [call.item for call in one.pending_calls] == [call.item for call in first.pending_calls]
    assert ([call.id for call in one.pending_calls], len(harness.bodies), tool_log.ran) == (["c1"], 1, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_call_is_approved_its_tool_runs_once_and_the_next_input_ends_with_its_output(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    first = await paused(harness, tool_log, strategy)
    one = await gone_on(harness, tool_log, APPROVED)
    assert (first.run.turn, one.run.turn, tool_log.ran) == (1, 2, ["look", "pay"])
    assert request_inputs(harness)[1][-2:] == BOTH


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("message", [None, "too dear"])
async def test_when_a_call_is_rejected_its_tool_does_not_run_and_its_output_is_the_reason_or_the_default_text(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, message: str | None
) -> None:
    await paused(harness, tool_log, strategy)
    await gone_on(harness, tool_log, ApprovalDecided("c1", approve=False, message=message))
    assert request_inputs(harness)[1][-2:] == [f"c1: {message or 'Tool execution was not approved.'}", "c2: look done"]
    assert tool_log.ran == ["look"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_max_turns_was_reached_before_the_pause_the_tool_runs_and_the_next_model_call_fails(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await paused(harness, tool_log, strategy, RunConfig(RunLimits(max_turns=1)))
    with pytest.raises(RunFailed, match=r"Max turns \(1\) exceeded"):
        await gone_on(harness, tool_log, APPROVED, conduct=RunConfig(RunLimits(max_turns=1)))
    assert (tool_log.ran, len(harness.bodies)) == (["look", "pay"], 1)
    assert item_lines(await stored_items(harness))[-2:] == BOTH


async def test_when_two_runners_decide_on_one_pause_the_second_gets_a_conflict_and_runs_nothing(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    first = await paused(harness, tool_log)
    second = await open_runner(harness, desk(tool_log))
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
    await paused(harness, tool_log, strategy)
    await gone_on(harness, tool_log, InputAdded((user_message("and hurry"),)), APPROVED)
    assert request_inputs(harness)[1][0 if strategy in SERVERS else 3 :] == [*BOTH, "user: and hurry"]
    await send_message(await open_runner(harness, desk(tool_log)), "thanks")
    assert item_lines(await stored_items(harness)).count("user: and hurry") == 1


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_call_is_always_approved_later_calls_of_the_tool_by_the_agent_run_without_approval(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    harness.model = scripted_model(
        harness.folder, tool_calls(("c1", "pay")), tool_calls(("c2", "pay")), {"text": "Paid."}
    )
    await send_message(await open_runner(harness, desk(tool_log), strategy=strategy), "hello")
    one = await gone_on(harness, tool_log, ApprovalDecided("c1", approve=True, always=True))
    assert (one.output, one.pending_calls, tool_log.ran) == ("Paid.", (), ["pay", "pay"])


# -- the owner ----------------------------------------------------------------------------------------------


async def test_when_a_run_on_a_conversation_resumes_in_another_process_only_the_outputs_are_sent(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    await paused(harness, tool_log, Strategy.CONVERSATION)
    await gone_on(harness, tool_log, APPROVED)
    assert request_inputs(harness)[1] == BOTH
    assert harness.bodies[1]["conversation"] == harness.bodies[0]["conversation"]


async def test_when_a_run_on_a_chain_resumes_in_another_process_it_continues_from_the_last_response(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    await paused(harness, tool_log, Strategy.CHAIN)
    session = await harness.store.session("mine")
    assert session
    await gone_on(harness, tool_log, APPROVED)
    assert (request_inputs(harness)[1], harness.bodies[1]["previous_response_id"]) == (BOTH, session.handle)


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION, Strategy.SESSION])
async def test_when_one_tool_ran_and_one_is_pending_both_outputs_are_sent_in_call_order_after_a_json_round_trip(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    """The exported state is imported into the same session if it has a handle, else into a new session."""
    one = await paused(harness, tool_log, strategy)
    row, session = one.run_row, await harness.store.session("mine")
    assert row
    assert session
    written = serialize_run_state(await build_run_state(harness.store, session, row, one.run, {}))
    found = import_run_state(parse_run_state(written.encode()), graph(desk(tool_log)))
    chat = await harness.open(None, "mine") if found.handle else await harness.open(Strategy.SESSION, name="elsewhere")
    items = () if found.handle else found.items
    other = await AgentRunner.import_run(chat, found.run, items, state_hash=found.source_hash)
    await other.apply_decisions(APPROVED)
    await read_events(other.resume())
    assert request_inputs(harness)[1][-2:] == BOTH
    assert len(request_inputs(harness)[1]) == (2 if strategy in SERVERS else 5)
    assert (other.output, tool_log.ran) == ("Paid.", ["look", "pay"])


# -- what is kept at a pause --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", CLIENTS)
async def test_when_a_run_pauses_the_store_has_input_and_calls_and_after_it_every_item_once(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await paused(harness, tool_log, strategy)
    begun = ["user: hello", "call pay", "call look"]
    assert item_lines(await stored_items(harness)) == begun
    await gone_on(harness, tool_log, APPROVED)
    assert item_lines(await stored_items(harness)) == [*begun, *BOTH, "assistant: Paid."]


@pytest.mark.parametrize("strategy", CLIENTS)
@pytest.mark.parametrize("reason", [None, "not this"])
async def test_when_an_output_guardrail_is_set_calls_are_stored_at_the_pause_and_the_answer_once_it_passed(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, reason: str | None
) -> None:
    seen: list[list[str]] = []

    async def looks(context: Context, said: Any) -> str | None:
        seen.append(item_lines(await stored_items(harness)))
        return reason

    guarded = desk(tool_log, output_guardrails=(Guardrail("looks", looks),))
    harness.model = scripted_model(harness.folder, tool_calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    await send_message(await open_runner(harness, guarded, strategy=strategy), "hello")
    one = await open_runner(harness, guarded)
    await one.apply_decisions(APPROVED)
    if reason:
        with pytest.raises(RunFailed, match="not this"):
            await read_events(one.resume())
    else:
        await read_events(one.resume())
    kept = await stored_items(harness)
    assert item_lines(kept[:5]) == ["user: hello", "call pay", "call look", *BOTH]
    assert len(list(filter(is_assistant_message, kept))) == (0 if reason else 1)


async def test_when_a_run_is_abandoned_after_its_tools_it_continues_with_a_model_call(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    one = await open_runner(harness, desk(tool_log))
    async with aclosing(one.start([user_message("hello")])) as events:
        async for event in events:
            if event["type"] == "convo.tool_output":
                break
    other = await open_runner(harness, desk(tool_log))
    events_then = await read_events(other.resume())
    assert own_event_types(events_then) == ["started", "finished"]
    assert (tool_log.ran, request_inputs(harness)[-1][-1], other.output) == (["look"], "call_1: look done", "Done.")
