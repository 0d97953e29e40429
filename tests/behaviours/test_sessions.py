"""A history that the client owns: the input that it produces for a model, and the stored items."""

import json
from typing import Any

import pytest

from convo.agent_runner.config import RunConfig
from convo.agents.agent import Agent
from convo.errors import RequestRefused, StoreUnavailable
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided
from convo.tools.tool import tool
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
from tests.stores.failing_store import FailingStore
from tests.strategy_owners import CLIENT_OWNED

pytestmark = pytest.mark.usefixtures("read_mode")


def function_call(call_id: str) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def function_call_output(call_id: str, text: str = "done") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


REASONING = {"type": "reasoning", "summary": [], "encrypted_content": "sealed"}


async def input_after_history(harness: ChatHarness, *items: Item, limit: int | None = None) -> list[str]:
    """Send "more" after a history in a file; return the input of the request. The file still has every item."""
    (harness.folder / "talk.json").write_text(json.dumps(items))
    runner = await open_runner(harness, Agent("desk"), RunConfig(session_limit=limit), strategy=Strategy.REPLAY)
    try:
        await send_message(runner, "more")
    except RequestRefused:
        assert item_lines(await stored_items(harness)) == item_lines([*items, user_message("more")])
    else:
        saved_items = json.loads((harness.folder / "talk.json").read_text())
        assert item_lines(saved_items)[: len(items)] == item_lines(items)
    return request_inputs(harness)[0]


# -- model input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_a_session_has_items_the_input_is_the_history_and_the_new_items(
    harness: ChatHarness, strategy: Strategy
) -> None:
    runner = await open_runner(harness, Agent("desk"), strategy=strategy)
    await send_message(runner, "one")
    await send_message(runner, "two")
    assert request_inputs(harness) == [["user: one"], ["user: one", "assistant: one", "user: two"]]
    assert item_lines(await stored_items(harness)) == ["user: one", "assistant: one", "user: two", "assistant: two"]


@pytest.mark.parametrize("limit", [None, 2])
async def test_when_a_limit_separates_an_output_from_its_call_it_is_omitted_and_without_a_limit_it_is_sent(
    harness: ChatHarness, limit: int | None
) -> None:
    """Without a limit the endpoint decides whether to accept an output without a call."""
    items = (
        (function_call_output("c1"), assistant_message("done"))
        if limit is None
        else (function_call("c1"), function_call_output("c1"), assistant_message("done"))
    )
    lines = await input_after_history(harness, *items, limit=limit)
    assert lines == ([] if limit else ["c1: done"]) + ["assistant: done", "user: more"]


async def test_when_a_call_in_the_history_has_no_output_it_and_the_reasoning_before_it_are_omitted(
    harness: ChatHarness,
) -> None:
    lines = await input_after_history(
        harness, user_message("hi"), REASONING, function_call("c1"), user_message("well"), limit=9
    )
    assert lines == ["user: hi", "user: well", "user: more"]


async def test_when_two_outputs_have_one_call_id_the_later_one_is_sent(harness: ChatHarness) -> None:
    items = (
        user_message("hi"),
        function_call("c1"),
        function_call_output("c1", "first"),
        function_call_output("c1", "second"),
        assistant_message("done"),
    )
    lines = await input_after_history(harness, *items)
    assert lines == ["user: hi", "call look", "c1: second", "assistant: done", "user: more"]


async def test_when_messages_are_equal_they_are_never_merged(harness: ChatHarness) -> None:
    duplicate = {**assistant_message("yes"), "id": "msg_1"}
    assert await input_after_history(harness, user_message("hi"), duplicate, user_message("hi"), duplicate) == [
        *("user: hi", "assistant: yes") * 2,
        "user: more",
    ]


# -- stored items ----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_a_run_ends_the_store_has_input_call_output_and_answer_in_this_order(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    await send_message(
        await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), strategy=strategy), "hello"
    )
    assert item_lines(await stored_items(harness)) == [
        "user: hello",
        "call look",
        "call_1: look done",
        "assistant: Done.",
    ]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_the_first_model_call_fails_the_input_is_already_stored(
    harness: ChatHarness, strategy: Strategy
) -> None:
    runner = await open_runner(harness, Agent("desk"), strategy=strategy)
    harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await send_message(runner, "hello")
    assert item_lines(await stored_items(harness)) == ["user: hello"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_an_output_cannot_be_stored_the_call_is_not_run_again_without_a_decision(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    store: Any = FailingStore(harness.store, StoreUnavailable("the disk is gone"), failing=False)
    harness = ChatHarness(store, harness.endpoint, harness.folder)

    def pay() -> str:
        tool_log.ran.append("pay")
        store.failing = True
        return "paid"

    agent = Agent("desk", tools=(tool(needs_approval=True)(pay),))
    harness.model = scripted_model(harness.folder, tool_calls("pay"), {"text": "Done."})
    runner = await open_runner(harness, agent, strategy=strategy)
    await send_message(runner, "hello")
    await runner.apply_decisions(ApprovalDecided("call_1", approve=True))
    with pytest.raises(StoreUnavailable):
        await read_events(runner.resume())
    store.failing = False
    resumed = await open_runner(harness, agent)
    await read_events(resumed.resume())
    assert [(call.id, call.stage.name) for call in resumed.pending_calls] == [("call_1", "OUTCOME_UNKNOWN")]
    assert tool_log.ran == ["pay"]
