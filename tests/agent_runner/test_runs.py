"""Runs of agents over real stores and convo's own endpoint: how a model is asked, and what is kept."""

import pytest

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agent_runner.persistence import load_run_row
from convo.agents.agent import Agent, output
from convo.chat.turn import RequestOptions
from convo.errors import InputFault, RunFailed
from convo.history.records import Scope, Strategy
from convo.runs.state import ApprovalDecided, RunLimits
from convo.tools.tool import Context
from tests.chat.agents import calls, history, inputs, own, read, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger
from tests.chat.recorded import Recorded

SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_calls_its_tools_and_answers(bench: Bench, ledger: Ledger, strategy: Strategy) -> None:
    bench.model = scripted(bench.folder, calls("look"), calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy)

    events = await say(one, "hello")

    assert (one.output, ledger.ran) == ("Done.", ["look", "look"])
    assert own(events) == ["started", "tool_started", "tool_output", "tool_started", "tool_output", "finished"]
    new = [["user: hello"], ["call_1: look done"], ["call_1: look done"]]
    whole = ["user: hello", "call look", "call_1: look done", "call look", "call_1: look done"]
    assert inputs(bench) == (new if strategy in SERVERS else [whole[:1], whole[:3], whole])
    assert words(await history(bench)) == [*whole, "assistant: Done."]
    assert one.run_row
    kept = await load_run_row(bench.store, "mine")
    assert (kept.id, kept.status) == (one.run_row.id, "done")


async def test_an_agent_says_how_it_is_asked(bench: Bench, ledger: Ledger) -> None:
    async def told(context: Context) -> str:
        return f"You are {context.agent}, for {context.values['who']}."

    bench.model = scripted(bench.folder, calls("look"), {"text": '{"response": 3}'})
    agent = Agent(
        "desk",
        told,
        tools=(ledger.tool("look"), {"type": "web_search"}),
        settings={"temperature": 0, "tool_choice": "required"},
        output=output(int),
    )
    one = await running(bench, agent, RunConfig(values={"who": "Kim"}))
    await say(one, "hello")

    first, second = bench.bodies
    assert (first["instructions"], first["temperature"]) == ("You are desk, for Kim.", 0)
    assert [found.get("name", found["type"]) for found in first["tools"]] == ["look", "web_search"]
    assert first["text"]["format"]["name"] == "final_output"
    assert (first["tool_choice"], "tool_choice" in second) == ("required", False)
    assert one.output == 3


async def test_an_answer_that_does_not_fit_its_schema_fails_the_run(bench: Bench) -> None:
    bench.model = scripted(bench.folder, {"text": "three"})
    with pytest.raises(RunFailed, match="does not match its schema"):
        await say(await running(bench, Agent("desk", output=output(int))), "hello")


async def test_a_function_of_the_agent_that_raises_fails_the_run_and_nothing_is_asked(bench: Bench) -> None:
    def broken(context: Context) -> str:
        raise KeyError("who")

    with pytest.raises(RunFailed, match="the instructions of agent 'desk' raised KeyError"):
        await say(await running(bench, Agent("desk", broken)), "hello")
    assert bench.bodies == []


async def test_max_turns_end_a_run(bench: Bench, ledger: Ledger) -> None:
    bench.model = scripted(bench.folder, calls("look"))
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), RunConfig(RunLimits(max_turns=2)))
    with pytest.raises(RunFailed, match=r"Max turns \(2\) exceeded") as failed:
        await say(one, "hello")
    assert (failed.value.code, len(bench.bodies), ledger.ran) == ("max_turns", 2, ["look", "look"])


@pytest.mark.parametrize("strategy", SERVERS)
async def test_a_server_owner_is_named_by_the_newest_response_or_by_its_conversation(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, calls("look"), calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy)
    await say(one, "hello")
    links = await bench.store.links(one.chat.session.id)
    named = [(body.get("previous_response_id"), body.get("conversation")) for body in bench.bodies]
    if strategy is Strategy.CHAIN:
        assert named == [(None, None), (links[0].id, None), (links[1].id, None)]
    else:
        assert named == [(None, one.chat.session.handle)] * 3


async def test_a_model_that_uses_an_id_again_gets_each_output_where_it_belongs(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("look", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("look"), calls("look"), {"text": "Done."}, {"text": "Bye."})
    one = await running(bench, agent)
    await say(one, "hello")
    for _ in range(2):
        one = await running(bench, agent)
        await one.apply_decisions(ApprovalDecided("call_1", approve=True))
        await read(one.resume())
    await say(one, "well?")
    pair = ["call look", "call_1: look done"]
    assert inputs(bench)[-1] == ["user: hello", *pair, *pair, "assistant: Done.", "user: well?"]


async def test_an_agent_of_another_model_is_not_sent_reasoning_that_it_could_not_open(
    bench: Bench, ledger: Ledger
) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    transfer = calls(("c2", "transfer_to_billing"))["output"]
    bench.model = scripted(bench.folder, {"output": [thought, *calls("look")["output"]]}, {"output": transfer})
    billing = Agent("billing", model=scripted(bench.folder, {"text": "Here."}, name="billing.json"))
    agent = Agent("desk", tools=(ledger.tool("look"),), handoffs=(billing,))
    route = RunConfig(resolve_model=lambda model: ModelRoute(RequestOptions(model, model), bench.endpoint))
    await say(await running(bench, agent, route), "hello")

    second, third = inputs(bench)[1:]
    assert second == ["user: hello", "reasoning", "call look", "call_1: look done"]
    over = ["call transfer_to_billing", 'c2: {"assistant": "billing"}']
    assert third == ["user: hello", "call look", "call_1: look done", *over]
    assert words(await history(bench)) == [*second, *over, "assistant: Here."]


class Official(Recorded):
    """Takes itself for OpenAI's own server."""

    scope = Scope("https://api.openai.com/v1")


async def test_every_request_of_a_run_of_the_sdks_agents_carries_the_same_cache_key(
    bench: Bench, ledger: Ledger
) -> None:
    model = scripted(bench.folder, calls("look"), {"text": "Done."})
    official = Official(bench.endpoint)
    agent = Agent("desk", model=model, tools=(ledger.tool("look"),), cache_key=True)
    one = await running(
        bench, agent, RunConfig(resolve_model=lambda model: ModelRoute(RequestOptions(model, model), official))
    )
    await say(one, "hello")

    first, second = (body["prompt_cache_key"] for body in official.bodies)
    assert first == second
    assert str(first).startswith("agents-sdk:session:")


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_tools_output_may_be_the_answer_and_its_owner_is_told_of_it_with_the_next_input(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, calls("look"), {"text": "Bye."}, {"text": "Bye."})
    one = await running(
        bench, Agent("desk", tools=(ledger.tool("look"),), after_tools="first output"), strategy=strategy
    )
    events = await say(one, "hello")
    assert (own(events)[-1], one.output, len(bench.bodies)) == ("finished", "look done", 1)
    await say(one, "well?")
    new = ["call_1: look done", "user: well?"]
    assert inputs(bench)[1] == (new if strategy in SERVERS else ["user: hello", "call look", *new])


async def test_settings_that_no_request_could_hold_are_refused_before_anything_is_kept(bench: Bench) -> None:
    with pytest.raises(InputFault, match="the settings of agent 'desk' are not JSON"):
        await running(bench, Agent("desk", settings={"temperature": float("nan")}))
    assert await bench.store.sessions() == []
