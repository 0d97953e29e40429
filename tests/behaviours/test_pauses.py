"""Runs that pause for a person and go on, in another process as a rule."""

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
from tests.chat.agents import calls, history, inputs, own, read, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger

pytestmark = pytest.mark.usefixtures("both_ways")

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]

APPROVED = ApprovalDecided("c1", approve=True)
BOTH = ["c1: pay done", "c2: look done"]


def desk(ledger: Ledger, **fields: Any) -> Agent:
    return Agent("desk", tools=(ledger.tool("look"), ledger.tool("pay", needs_approval=True)), **fields)


async def paused(
    bench: Bench, ledger: Ledger, strategy: Strategy | None = None, conduct: RunConfig | None = None
) -> AgentRunner:
    """One call has run and one, before it, waits for a person."""
    bench.model = scripted(bench.folder, calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    one = await running(bench, desk(ledger), conduct, strategy=strategy)
    await say(one, "hello")
    return one


async def gone_on(bench: Bench, ledger: Ledger, *decisions: Any, conduct: RunConfig | None = None) -> AgentRunner:
    """As another process goes on."""
    one = await running(bench, desk(ledger), conduct)
    await one.apply_decisions(*decisions)
    await read(one.resume())
    return one


# -- without and with a decision --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_paused_run_is_gone_on_with_undecided_the_same_calls_wait_and_nobody_is_asked(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    first = await paused(bench, ledger, strategy)
    one = await gone_on(bench, ledger)
    assert [call.item for call in one.pending_calls] == [call.item for call in first.pending_calls]
    assert ([call.id for call in one.pending_calls], len(bench.bodies), ledger.ran) == (["c1"], 1, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_approved_the_tool_runs_once_and_the_next_input_ends_with_its_output(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    first = await paused(bench, ledger, strategy)
    one = await gone_on(bench, ledger, APPROVED)
    assert (first.run.turn, one.run.turn, ledger.ran) == (1, 2, ["look", "pay"])
    assert inputs(bench)[1][-2:] == BOTH


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("message", [None, "too dear"])
async def test_when_rejected_the_tool_does_not_run_and_its_output_is_the_reason_or_the_usual_words(
    bench: Bench, ledger: Ledger, strategy: Strategy, message: str | None
) -> None:
    await paused(bench, ledger, strategy)
    await gone_on(bench, ledger, ApprovalDecided("c1", approve=False, message=message))
    assert inputs(bench)[1][-2:] == [f"c1: {message or 'Tool execution was not approved.'}", "c2: look done"]
    assert ledger.ran == ["look"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_max_turns_was_reached_before_the_pause_the_tool_runs_and_the_next_model_call_fails(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await paused(bench, ledger, strategy, RunConfig(RunLimits(max_turns=1)))
    with pytest.raises(RunFailed, match=r"Max turns \(1\) exceeded"):
        await gone_on(bench, ledger, APPROVED, conduct=RunConfig(RunLimits(max_turns=1)))
    assert (ledger.ran, len(bench.bodies)) == (["look", "pay"], 1)
    assert words(await history(bench))[-2:] == BOTH


async def test_when_two_go_on_from_one_pause_the_second_is_told_and_runs_nothing(bench: Bench, ledger: Ledger) -> None:
    first = await paused(bench, ledger)
    second = await running(bench, desk(ledger))
    await first.apply_decisions(APPROVED)
    assert [call.id for call in second.pending_calls] == ["c1"]
    with pytest.raises(Conflict):
        await second.apply_decisions(ApprovalDecided("c1", approve=False))
    await read(first.resume())
    assert (first.output, ledger.ran) == ("Paid.", ["look", "pay"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_input_was_added_to_a_paused_run_it_follows_the_outputs_once(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await paused(bench, ledger, strategy)
    await gone_on(bench, ledger, InputAdded((user_message("and hurry"),)), APPROVED)
    assert inputs(bench)[1][0 if strategy in SERVERS else 3 :] == [*BOTH, "user: and hurry"]
    await say(await running(bench, desk(ledger)), "thanks")
    assert words(await history(bench)).count("user: and hurry") == 1


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_approved_for_good_later_calls_of_the_tool_by_the_agent_run_without_asking(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, calls(("c1", "pay")), calls(("c2", "pay")), {"text": "Paid."})
    await say(await running(bench, desk(ledger), strategy=strategy), "hello")
    one = await gone_on(bench, ledger, ApprovalDecided("c1", approve=True, always=True))
    assert (one.output, one.pending_calls, ledger.ran) == ("Paid.", (), ["pay", "pay"])


# -- the owner ----------------------------------------------------------------------------------------------


async def test_when_a_run_on_a_conversation_goes_on_in_another_process_only_the_outputs_go_there(
    bench: Bench, ledger: Ledger
) -> None:
    await paused(bench, ledger, Strategy.CONVERSATION)
    await gone_on(bench, ledger, APPROVED)
    assert inputs(bench)[1] == BOTH
    assert bench.bodies[1]["conversation"] == bench.bodies[0]["conversation"]


async def test_when_a_run_on_a_chain_goes_on_in_another_process_it_goes_on_from_the_last_response(
    bench: Bench, ledger: Ledger
) -> None:
    await paused(bench, ledger, Strategy.CHAIN)
    session = await bench.store.session("mine")
    assert session
    await gone_on(bench, ledger, APPROVED)
    assert (inputs(bench)[1], bench.bodies[1]["previous_response_id"]) == (BOTH, session.handle)


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION, Strategy.SESSION])
async def test_when_one_tool_ran_and_one_waits_both_outputs_are_sent_in_call_order_after_the_state_was_json(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    """The state is written, read and taken up in another session, as if it had come from elsewhere."""
    one = await paused(bench, ledger, strategy)
    row, session = one.run_row, await bench.store.session("mine")
    assert row
    assert session
    written = serialize_run_state(await build_run_state(bench.store, session, row, one.run, {}))
    found = import_run_state(parse_run_state(written.encode()), graph(desk(ledger)))
    chat = await bench.open(None, "mine") if found.handle else await bench.open(Strategy.SESSION, name="elsewhere")
    items = () if found.handle else found.items
    other = await AgentRunner.import_run(chat, found.run, items, state_hash=found.source_hash)
    await other.apply_decisions(APPROVED)
    await read(other.resume())
    assert inputs(bench)[1][-2:] == BOTH
    assert len(inputs(bench)[1]) == (2 if strategy in SERVERS else 5)
    assert (other.output, ledger.ran) == ("Paid.", ["look", "pay"])


# -- what is kept at a pause --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", CLIENTS)
async def test_when_a_run_pauses_the_store_has_input_and_calls_and_after_it_everything_once(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await paused(bench, ledger, strategy)
    begun = ["user: hello", "call pay", "call look"]
    assert words(await history(bench)) == begun
    await gone_on(bench, ledger, APPROVED)
    assert words(await history(bench)) == [*begun, *BOTH, "assistant: Paid."]


@pytest.mark.parametrize("strategy", CLIENTS)
@pytest.mark.parametrize("reason", [None, "not this"])
async def test_when_an_output_guardrail_is_there_calls_are_kept_at_the_pause_and_the_answer_once_it_passed(
    bench: Bench, ledger: Ledger, strategy: Strategy, reason: str | None
) -> None:
    seen: list[list[str]] = []

    async def looks(context: Context, said: Any) -> str | None:
        seen.append(words(await history(bench)))
        return reason

    guarded = desk(ledger, output_guardrails=(Guardrail("looks", looks),))
    bench.model = scripted(bench.folder, calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    await say(await running(bench, guarded, strategy=strategy), "hello")
    one = await running(bench, guarded)
    await one.apply_decisions(APPROVED)
    if reason:
        with pytest.raises(RunFailed, match="not this"):
            await read(one.resume())
    else:
        await read(one.resume())
    kept = await history(bench)
    assert words(kept[:5]) == ["user: hello", "call pay", "call look", *BOTH]
    assert len(list(filter(is_assistant_message, kept))) == (0 if reason else 1)


async def test_when_a_run_is_left_after_its_tools_it_goes_on_with_a_model_call(bench: Bench, ledger: Ledger) -> None:
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    one = await running(bench, desk(ledger))
    async with aclosing(one.start([user_message("hello")])) as events:
        async for event in events:
            if event["type"] == "convo.tool_output":
                break
    other = await running(bench, desk(ledger))
    events_then = await read(other.resume())
    assert own(events_then) == ["started", "finished"]
    assert (ledger.ran, inputs(bench)[-1][-1], other.output) == (["look"], "call_1: look done", "Done.")
