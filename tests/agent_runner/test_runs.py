"""Agent runs with real stores and convo's own endpoint: the requests, and the stored items."""

import pytest

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agent_runner.persistence import load_run_row
from convo.agents.agent import Agent, output
from convo.chat.turn import RequestOptions
from convo.errors import InputFault, RunFailed
from convo.history.records import Scope, Strategy
from convo.runs.state import ApprovalDecided, RunLimits
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
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.chat.tool_log import ToolLog
from tests.strategy_owners import SERVER_OWNED


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_calls_its_tools_and_answers(harness: ChatHarness, tool_log: ToolLog, strategy: Strategy) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), tool_calls("look"), {"text": "Done."})
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), strategy=strategy)

    events = await send_message(one, "hello")

    assert (one.output, tool_log.ran) == ("Done.", ["look", "look"])
    assert own_event_types(events) == [
        "started",
        "tool_started",
        "tool_output",
        "tool_started",
        "tool_output",
        "finished",
    ]
    new = [["user: hello"], ["call_1: look done"], ["call_1: look done"]]
    expected = ["user: hello", "call look", "call_1: look done", "call look", "call_1: look done"]
    assert request_inputs(harness) == (new if strategy in SERVER_OWNED else [expected[:1], expected[:3], expected])
    assert item_lines(await stored_items(harness)) == [*expected, "assistant: Done."]
    assert one.run_row
    row = await load_run_row(harness.store, "mine")
    assert (row.id, row.status) == (one.run_row.id, "done")


async def test_an_agent_determines_the_instructions_tools_and_settings_of_a_request(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    async def instructions_for(context: Context) -> str:
        return f"You are {context.agent}, for {context.values['who']}."

    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": '{"response": 3}'})
    agent = Agent(
        "desk",
        instructions_for,
        tools=(tool_log.tool("look"), {"type": "web_search"}),
        settings={"temperature": 0, "tool_choice": "required"},
        output=output(int),
    )
    one = await open_runner(harness, agent, RunConfig(values={"who": "Kim"}))
    await send_message(one, "hello")

    first, second = harness.bodies
    assert (first["instructions"], first["temperature"]) == ("You are desk, for Kim.", 0)
    assert [found.get("name", found["type"]) for found in first["tools"]] == ["look", "web_search"]
    assert first["text"]["format"]["name"] == "final_output"
    assert (first["tool_choice"], "tool_choice" in second) == ("required", False)
    assert one.output == 3


async def test_an_answer_that_does_not_match_its_schema_fails_the_run(harness: ChatHarness) -> None:
    harness.model = scripted_model(harness.folder, {"text": "three"})
    with pytest.raises(RunFailed, match="does not match its schema"):
        await send_message(await open_runner(harness, Agent("desk", output=output(int))), "hello")


async def test_an_agent_function_that_raises_fails_the_run_before_any_request(harness: ChatHarness) -> None:
    def broken(context: Context) -> str:
        raise KeyError("who")

    with pytest.raises(RunFailed, match="the instructions of agent 'desk' raised KeyError"):
        await send_message(await open_runner(harness, Agent("desk", broken)), "hello")
    assert harness.bodies == []


async def test_max_turns_ends_a_run(harness: ChatHarness, tool_log: ToolLog) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"))
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), RunConfig(RunLimits(max_turns=2)))
    with pytest.raises(RunFailed, match=r"Max turns \(2\) exceeded") as error:
        await send_message(one, "hello")
    assert (error.value.code, len(harness.bodies), tool_log.ran) == ("max_turns", 2, ["look", "look"])


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_a_request_names_the_newest_response_or_the_conversation(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), tool_calls("look"), {"text": "Done."})
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), strategy=strategy)
    await send_message(one, "hello")
    links = await harness.store.links(one.chat.session.id)
    references = [(body.get("previous_response_id"), body.get("conversation")) for body in harness.bodies]
    if strategy is Strategy.CHAIN:
        assert references == [(None, None), (links[0].id, None), (links[1].id, None)]
    else:
        assert references == [(None, one.chat.session.handle)] * 3


async def test_outputs_of_calls_with_a_reused_id_are_assigned_to_the_right_call(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    agent = Agent("desk", tools=(tool_log.tool("look", needs_approval=True),))
    harness.model = scripted_model(
        harness.folder, tool_calls("look"), tool_calls("look"), {"text": "Done."}, {"text": "Bye."}
    )
    one = await open_runner(harness, agent)
    await send_message(one, "hello")
    for _ in range(2):
        one = await open_runner(harness, agent)
        await one.apply_decisions(ApprovalDecided("call_1", approve=True))
        await read_events(one.resume())
    await send_message(one, "well?")
    pair = ["call look", "call_1: look done"]
    assert request_inputs(harness)[-1] == ["user: hello", *pair, *pair, "assistant: Done.", "user: well?"]


async def test_an_agent_with_another_model_does_not_get_encrypted_reasoning_of_the_first(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    reasoning_item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    transfer = tool_calls(("c2", "transfer_to_billing"))["output"]
    harness.model = scripted_model(
        harness.folder, {"output": [reasoning_item, *tool_calls("look")["output"]]}, {"output": transfer}
    )
    billing = Agent("billing", model=scripted_model(harness.folder, {"text": "Here."}, name="billing.json"))
    agent = Agent("desk", tools=(tool_log.tool("look"),), handoffs=(billing,))
    route = RunConfig(resolve_model=lambda model: ModelRoute(RequestOptions(str(model), str(model)), harness.endpoint))
    await send_message(await open_runner(harness, agent, route), "hello")

    second, third = request_inputs(harness)[1:]
    assert second == ["user: hello", "reasoning", "call look", "call_1: look done"]
    lines = ["call transfer_to_billing", 'c2: {"assistant": "billing"}']
    assert third == ["user: hello", "call look", "call_1: look done", *lines]
    assert item_lines(await stored_items(harness)) == [*second, *lines, "assistant: Here."]


class Official(RecordingEndpoint):
    """An endpoint with the scope of OpenAI's own API."""

    scope = Scope("https://api.openai.com/v1")


async def test_every_request_of_an_agent_run_has_the_same_prompt_cache_key(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    official = Official(harness.endpoint)
    agent = Agent("desk", model=model, tools=(tool_log.tool("look"),), follows_sdk=True)
    one = await open_runner(
        harness,
        agent,
        RunConfig(resolve_model=lambda model: ModelRoute(RequestOptions(str(model), str(model)), official)),
    )
    await send_message(one, "hello")

    first, second = (body["prompt_cache_key"] for body in official.bodies)
    assert first == second
    assert str(first).startswith("agents-sdk:session:")


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_tool_output_may_be_the_final_output_and_is_sent_with_the_next_input(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Bye."}, {"text": "Bye."})
    one = await open_runner(
        harness, Agent("desk", tools=(tool_log.tool("look"),), after_tools="first output"), strategy=strategy
    )
    events = await send_message(one, "hello")
    assert (own_event_types(events)[-1], one.output, len(harness.bodies)) == ("finished", "look done", 1)
    await send_message(one, "well?")
    new = ["call_1: look done", "user: well?"]
    assert request_inputs(harness)[1] == (new if strategy in SERVER_OWNED else ["user: hello", "call look", *new])


async def test_settings_that_are_not_json_are_refused_before_anything_is_stored(harness: ChatHarness) -> None:
    with pytest.raises(InputFault, match="the settings of agent 'desk' are not JSON"):
        await open_runner(harness, Agent("desk", settings={"temperature": float("nan")}))
    assert await harness.store.sessions() == []
