"""Runs that wait for a person, and go on: here, in another process, or from a state of elsewhere."""

from typing import Any

import pytest

from convo.agent_runner.persistence import load_run_row
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.errors import Conflict, ConvoError, InvalidUsage, StateFault
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, InputAdded
from convo.tools.tool import Context, tool
from tests.chat.agents import calls, history, inputs, own, read, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger

SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_paused_run_goes_on_in_another_process_and_sends_both_outputs(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(ledger.tool("look"), ledger.tool("pay", needs_approval=True)))
    bench.model = scripted(bench.folder, calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    one = await running(bench, agent, strategy=strategy)
    events = await say(one, "hello")

    assert own(events) == ["started", "tool_started", "tool_output", "paused"]
    waits = {"call_id": "c1", "tool": "pay", "agent": "desk", "arguments": "{}", "unknown": False}
    assert events[-1]["pending"] == [waits]
    assert one.run_row
    assert (one.run_row.status, ledger.ran) == ("paused", ["look"])

    other = await running(bench, agent)
    assert [call.id for call in other.pending_calls] == ["c1"]
    await other.apply_decisions(ApprovalDecided("c1", approve=True))
    assert ledger.ran == ["look"]

    third = await running(bench, agent)
    assert own(await read(third.resume())) == ["started", "tool_started", "tool_output", "finished"]
    assert (third.output, ledger.ran, len(bench.bodies)) == ("Paid.", ["look", "pay"], 2)
    assert inputs(bench)[1][-2:] == ["c1: pay done", "c2: look done"]
    assert len(inputs(bench)[1]) == (2 if strategy in SERVERS else 5)


async def test_without_a_decision_the_same_calls_wait_and_nothing_is_asked(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"))
    one = await running(bench, agent)
    first = (await say(one, "hello"))[-1]
    again = await read((await running(bench, agent)).resume())
    assert again[-1] == first
    assert (len(bench.bodies), ledger.ran) == (1, [])


async def test_nothing_new_is_said_while_calls_wait(bench: Bench, ledger: Ledger) -> None:
    bench.model = scripted(bench.folder, calls("pay"), {"text": "As you like."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("pay", needs_approval=True),)))
    await say(one, "hello")
    with pytest.raises(StateFault, match="its calls have no output yet"):
        await say(one, "well?")
    await one.stop()
    await say(one, "well?")
    assert inputs(bench)[-1][1:] == ["call pay", "call_1: The run ended before this tool was called.", "user: well?"]
    assert ledger.ran == []


async def test_a_rejection_is_told_to_the_model_and_input_that_was_added_follows_it(
    bench: Bench, ledger: Ledger
) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), {"text": "Well."})
    one = await running(bench, agent)
    await say(one, "hello")
    await one.apply_decisions(
        InputAdded((user_message("leave it"),)), ApprovalDecided("call_1", approve=False, message="too dear")
    )
    await read(one.resume())
    assert inputs(bench)[-1][-2:] == ["call_1: too dear", "user: leave it"]
    assert ledger.ran == []


async def test_decisions_are_taken_all_or_none(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"))
    one = await running(bench, agent)
    await say(one, "hello")
    with pytest.raises(ConvoError, match="there is no call c9"):
        await one.apply_decisions(ApprovalDecided("call_1", approve=True), ApprovalDecided("c9", approve=True))
    assert len((await running(bench, agent)).pending_calls) == 1


async def test_an_approval_for_good_holds_for_later_calls_also_in_another_process(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), calls("pay"), {"text": "Paid."})
    await say(await running(bench, agent), "hello")
    one = await running(bench, agent)
    await one.apply_decisions(ApprovalDecided("call_1", approve=True, always=True))
    events = await read((await running(bench, agent)).resume())
    assert (own(events)[-1], ledger.ran) == ("finished", ["pay", "pay"])


async def test_a_function_says_whether_a_call_needs_approval(bench: Bench) -> None:
    paid: list[int] = []

    async def dear(context: Context, arguments: Any) -> bool:
        return bool(arguments["cents"] > 100)

    @tool(needs_approval=dear)
    def pay(cents: int) -> str:
        paid.append(cents)
        return "paid"

    bench.model = scripted(bench.folder, calls(("c1", "pay", {"cents": 5}), ("c2", "pay", {"cents": 500})))
    one = await running(bench, Agent("desk", tools=(pay,)))
    await say(one, "hello")
    assert ([call.id for call in one.pending_calls], paid) == (["c2"], [5])


async def test_a_run_is_found_by_its_id_and_by_its_session_and_only_there(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"))
    one = await running(bench, agent)
    await say(one, "hello")
    assert one.run_row
    assert (
        (await load_run_row(bench.store, "mine")).id
        == (await load_run_row(bench.store, one.run_row.id)).id
        == one.run_row.id
    )
    other = await bench.open(Strategy.SESSION, name="other")
    with pytest.raises(InvalidUsage, match="belongs to another session"):
        await AgentRunner.open(other, graph(agent), run_row=one.run_row)


async def test_a_second_process_that_goes_on_with_the_same_run_is_refused_and_runs_nothing(
    bench: Bench, ledger: Ledger
) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), {"text": "Paid."})
    await say(await running(bench, agent), "hello")
    first, second = await running(bench, agent), await running(bench, agent)
    await first.apply_decisions(ApprovalDecided("call_1", approve=True))
    with pytest.raises(Conflict):
        await second.apply_decisions(ApprovalDecided("call_1", approve=True))
    third = await running(bench, agent)
    await read(first.resume())
    with pytest.raises(Conflict):
        await read(third.resume())
    assert (ledger.ran, len(bench.bodies)) == (["pay"], 2)


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_that_was_written_down_elsewhere_is_taken_up_with_its_history(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), {"text": "Paid."})
    one = await running(bench, agent, strategy=strategy)
    await say(one, "hello")
    items = await history(bench)

    file = str(bench.folder / "other.json") if strategy is Strategy.REPLAY else None
    chat = await bench.open(strategy, one.chat.session.handle if strategy in SERVERS else file, name="other")
    other = await AgentRunner.import_run(chat, one.run, () if strategy in SERVERS else items, state_hash="sha")
    assert other.run_row
    assert (other.run_row.status, other.run_row.source_state_hash, other.run_row.revision) == ("paused", "sha", 1)
    again = await AgentRunner.open(chat, graph(agent))
    await again.apply_decisions(ApprovalDecided("call_1", approve=True))
    await read(again.resume())
    assert (again.output, ledger.ran) == ("Paid.", ["pay"])
    assert inputs(bench)[-1] == (["call_1: pay done"] if strategy in SERVERS else [*words(items), "call_1: pay done"])


async def test_a_hosted_tools_request_for_approval_is_answered_in_its_own_kind(bench: Bench) -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "files", "name": "rm", "arguments": "{}"}
    bench.model = scripted(bench.folder, {"output": [request]})
    one = await running(bench, Agent("desk"))
    events = await say(one, "hello")
    assert [call["tool"] for call in events[-1]["pending"]] == ["files.rm"]

    bench.model = scripted(bench.folder, {"text": "As you like."}, name="then.json")
    other = await running(bench, Agent("desk"))
    await other.apply_decisions(ApprovalDecided("mcpr_1", approve=False, message="no"))
    await read(other.resume())
    verdict = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"}
    assert bench.bodies[-1]["input"][-1] == verdict
    assert other.output == "As you like."
