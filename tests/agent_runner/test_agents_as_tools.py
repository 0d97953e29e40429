"""Agents as tools: a run inside a call, asked through the same turns, waiting with the outer one."""

from dataclasses import replace

import pytest

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agents.agent import Agent
from convo.agents.graph import agent_tool
from convo.chat.turn import RequestOptions
from convo.errors import InvalidUsage, RunFailed
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import list_pending_approvals
from convo.stores.factory import open_store
from tests.chat.agents import calls, history, inputs, own, read, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger

ASK = calls(("c1", "ask_clerk", {"input": "How much?"}))


def conduct(bench: Bench) -> RunConfig:
    return RunConfig(
        open_scratch_store=lambda: open_store("memory"),
        resolve_model=lambda model: ModelRoute(RequestOptions(model, model), bench.endpoint),
    )


def boss(clerk: Agent) -> Agent:
    return Agent("boss", tools=(agent_tool(clerk, "ask_clerk", "Ask the clerk."),))


def clerk(bench: Bench, ledger: Ledger, *replies: dict[str, object]) -> Agent:
    model = scripted(bench.folder, *replies, name="clerk.json")
    return Agent("clerk", "Look it up.", model=model, tools=(ledger.tool("look", needs_approval=True),))


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_agent_answers_inside_a_call_on_a_history_of_its_own(bench: Bench, strategy: Strategy) -> None:
    bench.model = scripted(bench.folder, ASK, {"text": "It is 4."})
    helper = Agent("clerk", "Look it up.", model=scripted(bench.folder, {"text": "Four."}, name="clerk.json"))
    one = await running(bench, boss(helper), conduct(bench), strategy=strategy)
    await say(one, "hello")
    assert words(bench.bodies[1]["input"]) == ["user: How much?"]
    assert (bench.bodies[1]["store"], bench.bodies[1]["instructions"]) == (False, "Look it up.")
    assert words(await history(bench)) == ["user: hello", "call ask_clerk", "c1: Four.", "assistant: It is 4."]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_inside_a_call_waits_with_the_outer_one_and_goes_on_in_another_process(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, ASK, {"text": "It is 4."})
    agent = boss(clerk(bench, ledger, calls(("i1", "look")), {"text": "Four."}))
    one = await running(bench, agent, conduct(bench), strategy=strategy)
    events = await say(one, "hello")
    assert own(events) == ["started", "tool_started", "paused"]
    assert [(call["call_id"], call["agent"]) for call in events[-1]["pending"]] == [("i1", "clerk")]
    assert one.run_row
    assert [call.call_id for call in list_pending_approvals(one.run_row.document)] == ["i1"]
    assert len(await bench.store.sessions()) == 1

    other = await running(bench, agent, conduct(bench))
    assert own(await read(other.resume())) == ["started", "paused"]
    await other.apply_decisions(ApprovalDecided("i1", approve=True))
    third = await running(bench, agent, conduct(bench))
    await read(third.resume())
    assert (third.output, ledger.ran) == ("It is 4.", ["look"])
    assert inputs(bench)[2] == ["user: How much?", "call look", "i1: look done"]
    assert words(await history(bench))[-2:] == ["c1: Four.", "assistant: It is 4."]


async def test_a_model_is_told_when_the_run_inside_fails_and_without_words_the_run_does(bench: Bench) -> None:
    bench.model = scripted(bench.folder, ASK, {"text": "Well."})
    endless = Agent("clerk", model=scripted(bench.folder, calls("nothing"), name="clerk.json"))
    await say(await running(bench, boss(endless), conduct(bench)), "hello")
    assert inputs(bench)[-1][-1] == "c1: An error occurred while running the tool. Please try again."

    strict = replace(agent_tool(endless, "ask_clerk"), failure=None)
    with pytest.raises(RunFailed, match="Tool nothing not found in agent clerk"):
        await say(await running(bench, Agent("boss", tools=(strict,)), conduct(bench), name="b"), "hello")


async def test_a_run_inside_a_call_needs_a_place(bench: Bench, ledger: Ledger) -> None:
    with pytest.raises(InvalidUsage, match="the nested run of tool 'ask_clerk' has no store"):
        await running(bench, boss(Agent("clerk")))
