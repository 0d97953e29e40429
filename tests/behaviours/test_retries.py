"""Automatic retries of requests in runs with tools."""

import asyncio
from typing import Any

import pytest

from convo.agents.agent import Agent
from convo.errors import RequestRefused, TryLater, Unreachable
from convo.history.records import Session, Strategy
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
from tests.chat.recording_endpoint import EndpointFault
from tests.chat.tool_log import ToolLog
from tests.strategy_owners import CLIENT_OWNED, SERVER_OWNED

pytestmark = pytest.mark.usefixtures("read_mode")


LOCKED_ERROR = TryLater("locked", code="conversation_locked", status=400)
UNAVAILABLE_ERROR = TryLater("down", status=503)
CONNECTION_ERROR = Unreachable("the connection broke")
OUTPUT = "call_1: look done"


async def get_session(harness: ChatHarness) -> Session:
    session = await harness.store.session("mine")
    assert session
    return session


async def run_with_faults(harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, *faults: EndpointFault) -> None:
    """Run an agent with one tool call; each of `faults` affects one request, in order."""
    harness.model = scripted_model(
        harness.folder, tool_calls("look"), {"text": "It is all done, and here is what came of it."}
    )
    harness.endpoint.faults = list(faults)
    await send_message(
        await open_runner(harness, Agent("desk", tools=(tool_log.tool("look"),)), strategy=strategy), "hello"
    )


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_an_ordinary_error_occurs_it_is_raised_after_one_attempt(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    with pytest.raises(RequestRefused):
        await run_with_faults(harness, tool_log, strategy, EndpointFault(RequestRefused("no", status=400)))
    assert (len(harness.bodies), harness.clock.sleeps_s) == (1, [])


async def test_when_a_conversation_is_locked_the_request_is_retried_three_times_with_growing_delays(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    await run_with_faults(harness, tool_log, Strategy.CONVERSATION, *[EndpointFault(LOCKED_ERROR)] * 3)
    assert harness.bodies[0] == harness.bodies[1] == harness.bodies[2] == harness.bodies[3]
    assert [int(seconds) for seconds in harness.clock.sleeps_s] == [1, 2, 4]
    assert request_inputs(harness)[4:] == [[OUTPUT]]


async def test_when_a_conversation_stays_locked_the_last_error_is_raised(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    with pytest.raises(TryLater, match="locked"):
        await run_with_faults(harness, tool_log, Strategy.CONVERSATION, *[EndpointFault(LOCKED_ERROR)] * 5)
    assert len(harness.bodies) == 4


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
@pytest.mark.parametrize("failure", [UNAVAILABLE_ERROR, CONNECTION_ERROR])
async def test_when_the_client_owns_the_history_a_failed_request_is_sent_again_with_identical_input(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, failure: Any
) -> None:
    await run_with_faults(harness, tool_log, strategy, EndpointFault(failure), EndpointFault(failure))
    assert harness.bodies[0] == harness.bodies[1] == harness.bodies[2]
    assert request_inputs(harness)[3] == ["user: hello", "call look", OUTPUT]


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_an_answer_is_lost_a_conversation_is_read_before_a_retry_and_a_chain_forks(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await run_with_faults(
        harness,
        tool_log,
        strategy,
        EndpointFault(CONNECTION_ERROR, after=None),
        EndpointFault(CONNECTION_ERROR, after=None),
    )
    if strategy is Strategy.CONVERSATION:
        assert request_inputs(harness) == [["user: hello"], [OUTPUT]]
    else:
        assert request_inputs(harness) == [*[["user: hello"]] * 3, [OUTPUT]]
        first, *_ = await harness.store.links((await get_session(harness)).id)
        assert [body.get("previous_response_id") for body in harness.bodies] == [None, None, None, first.id]
    answer_line = "assistant: It is all done, and here is what came of it."
    assert item_lines(await stored_items(harness)) == ["user: hello", "call look", OUTPUT, answer_line]
    assert tool_log.ran == ["look"]


@pytest.mark.parametrize("strategy", SERVER_OWNED)
@pytest.mark.parametrize("failure", [LOCKED_ERROR, TryLater("slow down", status=429)])
async def test_when_a_retry_is_safe_the_same_request_is_sent_and_the_next_turn_sends_only_new_items(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy, failure: Any
) -> None:
    await run_with_faults(harness, tool_log, strategy, EndpointFault(failure))
    assert harness.bodies[0] == harness.bodies[1]
    assert request_inputs(harness) == [["user: hello"], ["user: hello"], [OUTPUT]]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_delta_was_received_nothing_is_retried(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    """The connection breaks after four events of the first response."""
    with pytest.raises(Unreachable):
        await run_with_faults(harness, tool_log, strategy, EndpointFault(CONNECTION_ERROR, after=4))
    assert (len(harness.bodies), tool_log.ran) == (1, [])


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_only_the_start_of_a_response_was_received_the_same_request_is_sent_again(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await run_with_faults(harness, tool_log, strategy, EndpointFault(TryLater("slow down", status=429), after=2))
    assert (harness.bodies[0] == harness.bodies[1], len(harness.bodies), tool_log.ran) == (True, 3, ["look"])


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_a_request_is_retried_its_stored_input_is_kept_once(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await run_with_faults(
        harness, tool_log, strategy, EndpointFault(UNAVAILABLE_ERROR), EndpointFault(UNAVAILABLE_ERROR)
    )
    answer_line = "assistant: It is all done, and here is what came of it."
    assert item_lines(await stored_items(harness)) == ["user: hello", "call look", OUTPUT, answer_line]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_request_is_cancelled_it_is_never_retried(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    with pytest.raises(asyncio.CancelledError):
        await run_with_faults(harness, tool_log, strategy, EndpointFault(asyncio.CancelledError()))
    assert (len(harness.bodies), harness.clock.sleeps_s) == (1, [])


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_attempts_fail_each_response_counts_in_the_usage_and_no_attempt_does(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    await run_with_faults(
        harness, tool_log, strategy, EndpointFault(UNAVAILABLE_ERROR), EndpointFault(UNAVAILABLE_ERROR)
    )
    session = await harness.store.session("mine")
    assert session
    links = await harness.store.links(session.id)
    assert (len(harness.bodies), [link.status for link in links]) == (4, ["completed", "completed"])
    assert all(link.usage and link.usage["total_tokens"] for link in links)
