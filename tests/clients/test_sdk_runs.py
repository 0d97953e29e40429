"""Runs that move between openai-agents and convo, at one gateway, for each owner of the history.

The agents are objects of the SDK, which convo imports. The scenarios contain handoffs, parallel tool calls, one
approved call and one rejected with a reason, and an agent as a tool in which two calls are pending, one of which
is rejected. However often a run moves, the model receives the same requests as in a run of the SDK alone.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from openai import AsyncOpenAI

from convo.agents.handoff_history import expand_summaries
from convo.errors import InputFault
from convo.history.canonical import digest
from convo.stores.factory import open_store
from tests.clients.sdk_comparison import (
    EXPORTED_SCENARIOS,
    OWNERS,
    SCENARIOS,
    SUMMARY,
    ModelRequests,
    SdkComparison,
    _run_sdk_alone,
    model_requests,
    owner_arguments,
    sdk_alone,
    start_scenario,
)
from tests.clients.upstream import Upstream


@pytest.fixture(
    params=[one if one in ("session", "chain") else pytest.param(one, marks=pytest.mark.full) for one in OWNERS]
)
async def comparison(
    request: pytest.FixtureRequest, client: AsyncOpenAI, base_url: str, upstream: Upstream, tmp_path: Path
) -> AsyncIterator[SdkComparison]:
    store = open_store("memory")
    session = SQLiteSession("s") if request.param == "session" else None
    yield SdkComparison(
        client,
        store,
        base_url,
        upstream,
        tmp_path,
        request.param,
        await owner_arguments(client, request.param),
        session,
    )
    if session:
        session.close()
    await store.aclose()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_sdk_resumes_its_own_run_that_convo_decided(comparison: SdkComparison, name: str) -> None:
    expected = await sdk_alone(comparison, name)
    start_scenario(comparison, SCENARIOS[name])
    result = await comparison.start_with_sdk()
    while result.interruptions:
        result = await comparison.resume_decided_with_sdk(result.to_state().to_string())
    assert (result.final_output, model_requests(comparison)) == expected


@pytest.mark.parametrize("name", SCENARIOS)
async def test_convo_resumes_a_run_that_the_sdk_paused(comparison: SdkComparison, name: str) -> None:
    expected = await sdk_alone(comparison, name)
    start_scenario(comparison, SCENARIOS[name])
    result = await comparison.start_with_sdk()
    runner, _ = await comparison.import_with_convo(result.to_state().to_string())
    while runner.pending_calls:
        runner = await comparison.resume_with_convo(runner)
    assert (runner.output, model_requests(comparison)) == expected


@pytest.mark.parametrize("name", EXPORTED_SCENARIOS)
async def test_the_sdk_resumes_a_run_that_convo_paused(comparison: SdkComparison, name: str) -> None:
    expected = await sdk_alone(comparison, name)
    start_scenario(comparison, SCENARIOS[name])
    runner = await comparison.start_with_convo()
    result = await comparison.resume_with_sdk(await comparison.export_run_state(runner))
    while result.interruptions:
        result = await comparison.resume_with_sdk(result.to_state().to_string())
    assert (result.final_output, model_requests(comparison)) == expected


async def test_a_run_with_two_agents_of_one_name_is_not_exported_for_the_sdk(comparison: SdkComparison) -> None:
    start_scenario(comparison, SCENARIOS["agents of one name"])
    runner = await comparison.start_with_convo()
    assert [call.id for call in runner.pending_calls] == ["call_2", "call_4"]
    with pytest.raises(InputFault, match="several agents are named 'desk', and only the Agents SDK can number them"):
        await comparison.export_run_state(runner)


async def test_a_run_moves_from_the_sdk_to_convo_and_back(comparison: SdkComparison) -> None:
    expected = await sdk_alone(comparison, "two pauses")
    start_scenario(comparison, SCENARIOS["two pauses"])
    result = await comparison.start_with_sdk()
    runner, base = await comparison.import_with_convo(result.to_state().to_string())
    assert [call.id for call in runner.pending_calls] == ["call_5"]
    result = await comparison.resume_with_sdk(await comparison.export_run_state(runner, base))
    assert (result.final_output, model_requests(comparison)) == expected


async def test_a_run_moves_from_convo_to_the_sdk_and_back(comparison: SdkComparison) -> None:
    expected = await sdk_alone(comparison, "two pauses")
    start_scenario(comparison, SCENARIOS["two pauses"])
    result = await comparison.resume_with_sdk(await comparison.export_run_state(await comparison.start_with_convo()))
    runner, _ = await comparison.import_with_convo(result.to_state().to_string())
    assert (runner.output, model_requests(comparison)) == expected


@pytest.mark.parametrize("first_runner", ["the SDK", "convo"])
@pytest.mark.parametrize("comparison", ["replay", "session"], indirect=True)
async def test_the_sdk_continues_from_a_handoff_summary_of_convo(comparison: SdkComparison, first_runner: str) -> None:
    expected = await _run_sdk_alone(comparison, SUMMARY)
    start_scenario(comparison, SUMMARY)
    if first_runner == "convo":
        runner, base = await comparison.resume_with_convo(await comparison.start_with_convo()), None
    else:
        runner, base = await comparison.import_with_convo((await comparison.start_with_sdk()).to_state().to_string())
    result = await comparison.resume_with_sdk(await comparison.export_run_state(runner, base))
    end, requests = expected
    assert (result.final_output, normalize_requests(model_requests(comparison))) == (end, normalize_requests(requests))
    assert "For context" in requests[2][0][1]


def normalize_requests(requests: ModelRequests) -> list[list[Any]]:
    """Replace the content of assistant messages by digests of its items: the text of a summary contains ids and keys
    in any order."""
    return [[_normalize_message(json.loads(line)) for part in request for line in part] for request in requests]


def _normalize_message(message: dict[str, Any]) -> Any:
    content = message["content"]
    if message["role"] != "assistant" or not content:
        return message
    return {
        **message,
        "content": [digest(item) for item in expand_summaries([{"role": "assistant", "content": content}])],
    }


@pytest.mark.parametrize("comparison", ["conversation"], indirect=True)
async def test_a_conversation_has_every_item_once_after_any_number_of_moves(
    comparison: SdkComparison, client: AsyncOpenAI
) -> None:
    start_scenario(comparison, SCENARIOS["two pauses"])
    result = await comparison.start_with_sdk()
    runner, base = await comparison.import_with_convo(result.to_state().to_string())
    await comparison.resume_with_sdk(await comparison.export_run_state(runner, base))
    types = [
        item.type
        async for item in client.conversations.items.list(comparison.arguments["conversation_id"], order="asc")
    ]
    calls = ["function_call"] * 3 + ["function_call_output"] * 3
    assert types == [
        *("message", "function_call", "function_call_output"),
        *calls,
        *("function_call", "function_call_output", "message"),
    ]
