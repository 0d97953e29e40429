"""Input filters: errors in a filter, and changes that affect one request but not the history of a client."""

import pytest

from convo.agent_runner.config import ModelInput, RunConfig
from convo.agents.agent import Agent
from convo.errors import RunFailed
from convo.history.items import assistant_message, user_message
from convo.history.records import Strategy
from tests.chat.agent_runs import (
    item_lines,
    open_runner,
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


HISTORY = ["user: hello", "call look", "call_1: look done"]


def desk_agent(harness: ChatHarness, tool_log: ToolLog) -> Agent:
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    return Agent("desk", "Answer.", tools=(tool_log.tool("look"),))


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_filter_returns_an_invalid_value_the_run_fails_before_any_request(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    config = RunConfig(input_filter=lambda data: data.items)
    with pytest.raises(RunFailed, match="did not return a ModelInput"):
        await send_message(
            await open_runner(harness, desk_agent(harness, tool_log), config, strategy=strategy), "hello"
        )
    assert harness.bodies == []


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_filter_raises_the_run_fails_with_that_exception_before_any_request(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    def raise_error(data: ModelInput) -> ModelInput:
        raise ValueError("no")

    runner = await open_runner(
        harness, desk_agent(harness, tool_log), RunConfig(input_filter=raise_error), strategy=strategy
    )
    with pytest.raises(RunFailed, match="the input filter raised ValueError: no") as error:
        await send_message(runner, "hello")
    assert isinstance(error.value.__cause__, RunFailed)
    assert isinstance(error.value.__cause__.__cause__, ValueError)
    assert harness.bodies == []


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_filter_returns_two_outputs_of_one_call_only_the_later_is_sent(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    later_output = {"type": "function_call_output", "call_id": "call_1", "output": "later"}

    def append_output(data: ModelInput) -> ModelInput:
        return ModelInput([*data.items, later_output] if harness.bodies else data.items)

    await send_message(
        await open_runner(
            harness, desk_agent(harness, tool_log), RunConfig(input_filter=append_output), strategy=strategy
        ),
        "hello",
    )
    assert request_inputs(harness)[1] == (
        ["call_1: later"] if strategy in SERVER_OWNED else [*HISTORY[:2], "call_1: later"]
    )


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_a_filter_rewrites_the_input_the_store_keeps_the_original(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    config = RunConfig(
        input_filter=lambda data: ModelInput([user_message("HELLO")] if len(data.items) == 1 else data.items)
    )
    await send_message(await open_runner(harness, desk_agent(harness, tool_log), config, strategy=strategy), "hello")
    assert request_inputs(harness)[0] == ["user: HELLO"]
    assert item_lines(await stored_items(harness)) == [*HISTORY, "assistant: Done."]


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_a_filter_changes_its_list_in_place_only_this_request_is_affected(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    def change_in_place(data: ModelInput) -> ModelInput:
        if not harness.bodies:
            data.items[0] = user_message("changed")
            data.items.append(assistant_message("this once"))
        return data

    await send_message(
        await open_runner(
            harness, desk_agent(harness, tool_log), RunConfig(input_filter=change_in_place), strategy=strategy
        ),
        "hello",
    )
    assert request_inputs(harness)[0] == ["user: changed", "assistant: this once"]
    assert item_lines(await stored_items(harness))[0] == "user: hello"
    assert request_inputs(harness)[1:] == [HISTORY]
