"""The input of each request by owner: the complete history, or only the items that the server lacks."""

from collections.abc import Sequence
from typing import Any

import pytest

from convo.agent_runner.config import ModelInput, RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.errors import RequestRefused, RunFailed, TryLater
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, InputAdded
from tests.chat.agent_runs import (
    item_lines,
    open_runner,
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
from tests.strategy_owners import CLIENT_OWNED, SERVER_OWNED

pytestmark = pytest.mark.usefixtures("read_mode")


OUTPUT = "call_1: look done"


async def run_two_calls(harness: ChatHarness, tool_log: ToolLog, strategy: Strategy) -> None:
    """Run an agent whose model calls a tool in two responses and then answers."""
    harness.model = scripted_model(
        harness.folder, tool_calls("look"), tool_calls(("call_2", "look")), {"text": "Done."}
    )
    await send_message(
        await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), strategy=strategy), "hello"
    )


def state_references(harness: ChatHarness) -> list[dict[str, Any]]:
    """The fields of each request that refer to state at the server."""
    return [
        {name: body[name] for name in ("conversation", "previous_response_id") if name in body}
        for body in harness.bodies
    ]


async def response_ids(harness: ChatHarness, name: str = "mine") -> list[str]:
    session = await harness.store.session(name)
    assert session
    return [link.id for link in await harness.store.links(session.id)]


async def start_paused_run(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, *replies: dict[str, Any]
) -> AgentRunner:
    """Start a run that pauses: one call has run, and one needs approval."""
    harness.model = scripted_model(
        harness.folder, tool_calls(("c1", "pay"), ("c2", "look")), *replies or ({"text": "Paid."},)
    )
    runner = await open_runner(harness, cashier_agent(tool_log), strategy=strategy)
    await send_message(runner, "hello")
    return runner


def cashier_agent(tool_log: ToolLog) -> Agent:
    return Agent("desk", tools=(tool_log.tool("look"), tool_log.tool("pay", needs_approval=True)))


# -- requests by owner -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_the_client_owns_the_history_every_request_sends_all_of_it_and_no_id(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await run_two_calls(harness, tool_log, strategy)
    lines = ["user: hello", "call look", OUTPUT, "call look", "call_2: look done"]
    assert request_inputs(harness) == [lines[:1], lines[:3], lines]
    assert state_references(harness) == [{}, {}, {}]


async def test_when_a_conversation_is_the_owner_each_request_sends_only_new_items(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    await run_two_calls(harness, tool_log, Strategy.CONVERSATION)
    session = await harness.store.session("mine")
    assert session
    assert request_inputs(harness) == [["user: hello"], [OUTPUT], ["call_2: look done"]]
    assert state_references(harness) == [{"conversation": session.handle}] * 3


async def test_when_a_chain_continues_each_request_names_the_latest_response_and_sends_only_new_items(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    harness.model = scripted_model(
        harness.folder, {"text": "Yes?"}, tool_calls("look"), tool_calls(("call_2", "look")), {"text": "Done."}
    )
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    await send_message(await open_runner(harness, agent, strategy=Strategy.CHAIN), "hi")
    await send_message(await open_runner(harness, agent), "hello")
    assert request_inputs(harness)[1:] == [["user: hello"], [OUTPUT], ["call_2: look done"]]
    assert state_references(harness)[1:] == [
        {"previous_response_id": response_id} for response_id in (await response_ids(harness))[:3]
    ]


async def test_when_a_chain_starts_its_first_request_names_no_response(harness: ChatHarness, tool_log: ToolLog) -> None:
    await run_two_calls(harness, tool_log, Strategy.CHAIN)
    first, second, _ = await response_ids(harness)
    assert state_references(harness) == [{}, {"previous_response_id": first}, {"previous_response_id": second}]
    assert request_inputs(harness)[1] == [OUTPUT]


async def test_when_a_conversation_is_the_owner_no_previous_response_id_is_sent(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    await run_two_calls(harness, tool_log, Strategy.CONVERSATION)
    assert len(await response_ids(harness)) == 3
    assert not any("previous_response_id" in body for body in harness.bodies)


# -- repeated items --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_the_server_has_an_item_no_later_request_sends_it(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await run_two_calls(harness, tool_log, strategy)
    await send_message(await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),))), "more")
    assert [line for request in request_inputs(harness) for line in request] == [
        "user: hello",
        OUTPUT,
        "call_2: look done",
        "user: more",
    ]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_items_share_a_placeholder_id_they_are_still_different_items(
    harness: ChatHarness, strategy: Strategy
) -> None:
    def placeholder_reply(text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {
            "output": [{"type": "message", "id": "__fake_id__", "role": "assistant", "content": content}],
        }

    harness.model = scripted_model(
        harness.folder, placeholder_reply("one"), placeholder_reply("two"), placeholder_reply("three")
    )
    for message in "abc":
        await send_message(await open_runner(harness, Agent("desk"), strategy=strategy), message)
    lines = ["user: a", "assistant: one", "user: b", "assistant: two", "user: c"]
    assert request_inputs(harness)[-1] == (lines[-1:] if strategy in SERVER_OWNED else lines)
    assert item_lines(await stored_items(harness)) == [*lines, "assistant: three"]


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_an_output_was_sent_it_is_not_sent_again_unless_its_request_failed(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    runner = await start_paused_run(harness, tool_log, strategy, tool_calls(("c3", "look")), {"text": "Paid."})
    await runner.apply_decisions(ApprovalDecided("c1", approve=True))
    harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await read_events(runner.resume())
    await read_events((await open_runner(harness, cashier_agent(tool_log))).resume())
    outputs = ["c1: pay done", "c2: look done"]
    assert request_inputs(harness) == [["user: hello"], outputs, outputs, ["c3: look done"]]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_outputs_of_two_calls_are_equal_each_of_them_is_sent(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await run_two_calls(harness, tool_log, strategy)
    outputs = [item for item in harness.bodies[-1]["input"] if item.get("type") == "function_call_output"]
    assert [item["call_id"] for item in outputs] == (["call_2"] if strategy in SERVER_OWNED else ["call_1", "call_2"])
    assert {item["output"] for item in outputs} == {"look done"}


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_a_run_is_resumed_confirmed_items_are_not_sent_again_and_unconfirmed_items_are(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await start_paused_run(harness, tool_log, strategy)
    runner = await open_runner(harness, cashier_agent(tool_log))
    await runner.apply_decisions(ApprovalDecided("c1", approve=False, message="no"))
    await read_events((await open_runner(harness, cashier_agent(tool_log))).resume())
    assert request_inputs(harness) == [["user: hello"], ["c1: no", "c2: look done"]]
    assert tool_log.ran == ["look"]


# -- calls without an output -----------------------------------------------------------------------


async def test_when_a_call_has_no_output_it_gets_one_before_the_next_request(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    runner = await start_paused_run(harness, tool_log, Strategy.SESSION)
    await runner.stop()
    await send_message(await open_runner(harness, cashier_agent(tool_log)), "well?")
    added_output = "The run ended before this tool was called."
    assert request_inputs(harness)[-1][1:] == [
        "call pay",
        "call look",
        f"c1: {added_output}",
        "c2: look done",
        "user: well?",
    ]


async def test_when_the_caller_passes_a_call_without_an_output_it_is_sent_unchanged(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    orphan = {"type": "function_call", "call_id": "c9", "name": "look", "arguments": "{}"}
    runner = await open_runner(harness, cashier_agent(tool_log))
    with pytest.raises(RequestRefused, match="No tool output found for function call c9"):
        await read_events(runner.start([user_message("hello"), orphan, user_message("well?")]))
    assert request_inputs(harness) == [["user: hello", "call look", "user: well?"]]


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_reasoning_is_sent_again_it_has_no_id_and_is_sent_once(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    harness.model = scripted_model(
        harness.folder, {"output": [reasoning, *tool_calls("look")["output"]]}, {"text": "Done."}
    )
    await send_message(
        await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), strategy=strategy), "hello"
    )
    sent_reasoning = [item for item in harness.bodies[1]["input"] if item.get("type") == "reasoning"]
    assert sent_reasoning == [{"type": "reasoning", "summary": [], "encrypted_content": "sealed"}]
    assert [item.get("id") for item in await stored_items(harness)][1] == "rs_1"


# -- input filters under a server owner ------------------------------------------------------------


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_a_filter_runs_with_a_server_side_owner_it_gets_only_new_items(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    inputs: list[list[str]] = []

    def record_input(data: ModelInput) -> ModelInput:
        inputs.append(item_lines(data.items))
        return data

    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    await send_message(
        await open_runner(harness, agent, RunConfig(input_filter=record_input), strategy=strategy), "hello"
    )
    assert inputs == [["user: hello"], [OUTPUT]]


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_a_filter_drops_an_output_with_a_server_side_owner_the_run_fails_and_the_output_is_kept(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    def drop_outputs(data: ModelInput) -> ModelInput:
        return ModelInput([item for item in data.items if "call_id" not in item] or [user_message("instead")])

    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    with pytest.raises(RunFailed, match="removes the output of call call_1, which the endpoint needs"):
        await send_message(
            await open_runner(harness, agent, RunConfig(input_filter=drop_outputs), strategy=strategy), "hello"
        )
    await send_message(await open_runner(harness, agent), "well?")
    assert request_inputs(harness) == [["user: hello"], [OUTPUT, "user: well?"]]


# -- input added at a pause ------------------------------------------------------------------------


async def approve_with_input(runner: AgentRunner, *texts: str) -> None:
    await runner.apply_decisions(
        *(InputAdded((user_message(text),)) for text in texts), ApprovalDecided("c1", approve=True)
    )


def input_after_history(harness: ChatHarness, strategy: Strategy) -> Sequence[str]:
    """The input of the last request from the tool outputs on."""
    return request_inputs(harness)[-1][0 if strategy in SERVER_OWNED else 3 :]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_the_same_text_is_added_twice_both_messages_are_sent_once(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    runner = await start_paused_run(harness, tool_log, strategy)
    await approve_with_input(runner, "now", "now")
    await read_events((await open_runner(harness, cashier_agent(tool_log))).resume())
    assert input_after_history(harness, strategy) == ["c1: pay done", "c2: look done", "user: now", "user: now"]
    assert item_lines(await stored_items(harness)).count("user: now") == 2


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_a_filter_rewrites_added_input_the_history_has_the_rewritten_input(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    def rewrite_user_messages(data: ModelInput) -> ModelInput:
        return ModelInput([user_message("NOW") if item.get("role") == "user" else item for item in data.items])

    runner = await start_paused_run(
        harness, tool_log, strategy, {"text": "-"}, tool_calls(("c3", "look")), {"text": "Paid."}
    )
    await approve_with_input(runner, "now")
    await read_events(
        (await open_runner(harness, cashier_agent(tool_log), RunConfig(input_filter=rewrite_user_messages))).resume()
    )
    assert request_inputs(harness)[1:] == [["c1: pay done", "c2: look done", "user: NOW"], ["c3: look done"]]
    lines = item_lines(await stored_items(harness))
    assert ("user: NOW" in lines, "user: now" in lines) == (True, False)


@pytest.mark.parametrize("strategy", SERVER_OWNED)
@pytest.mark.parametrize("failure", [RequestRefused("no", status=400), TryLater("down", status=503)])
async def test_when_a_request_with_added_input_fails_the_input_is_sent_until_a_response_confirms_it(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, failure: Exception
) -> None:
    runner = await start_paused_run(harness, tool_log, strategy)
    await approve_with_input(runner, "now")
    harness.endpoint.faults = [EndpointFault(failure)] * 4
    with pytest.raises(type(failure)):
        await read_events(runner.resume())
    harness.endpoint.faults = []
    await read_events((await open_runner(harness, cashier_agent(tool_log))).resume())
    assert {tuple(runner) for runner in request_inputs(harness)[1:]} == {("c1: pay done", "c2: look done", "user: now")}
    assert item_lines(await stored_items(harness)).count("user: now") == 1


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_tool_search_items_have_no_id_they_are_not_sent_again_and_later_ones_with_ids_are_kept(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    search_output: dict[str, Any] = {"type": "tool_search_output", "tools": []}
    search: list[dict[str, Any]] = [{"type": "tool_search_call", "arguments": {"query": "x"}}, search_output]
    harness.model = scripted_model(
        harness.folder,
        {"output": [*search, *tool_calls("look")["output"]]},
        {
            "output": [
                {**search[0], "id": "ts_2"},
                {**search_output, "id": "to_2"},
                *tool_calls(("call_2", "look"))["output"],
            ]
        },
        {"text": "Done."},
    )
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    await send_message(await open_runner(harness, agent, strategy=strategy), "hello")
    await send_message(await open_runner(harness, agent), "more")
    assert [line for request in request_inputs(harness) for line in request] == [
        "user: hello",
        OUTPUT,
        "call_2: look done",
        "user: more",
    ]
    stored = [item for item in await stored_items(harness) if str(item.get("type")).startswith("tool_search")]
    assert len(stored) == 4
