"""Runs that move between openai-agents and convo, at one gateway, for each owner of the history.

The agents are objects of the SDK, which convo imports. The stories contain handoffs, parallel tool calls, one
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
    EXPORTED_STORIES,
    OWNERS,
    STORIES,
    SUMMARY,
    ModelRequests,
    SdkComparison,
    _run_sdk_alone,
    model_requests,
    owner_arguments,
    sdk_alone,
    start_story,
)
from tests.clients.upstream import Upstream


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=base_url, api_key="any") as opened:
        yield opened


@pytest.fixture(params=OWNERS)
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
    await store.aclose()


@pytest.mark.parametrize("name", STORIES)
async def test_the_sdk_resumes_its_own_run_that_convo_decided(comparison: SdkComparison, name: str) -> None:
    wanted_end = await sdk_alone(comparison, name)
    start_story(comparison, STORIES[name])
    result = await comparison.start_with_sdk()
    while result.interruptions:
        result = await comparison.resume_decided_with_sdk(result.to_state().to_string())
    assert (result.final_output, model_requests(comparison)) == wanted_end


@pytest.mark.parametrize("name", STORIES)
async def test_convo_resumes_a_run_that_the_sdk_paused(comparison: SdkComparison, name: str) -> None:
    wanted_end = await sdk_alone(comparison, name)
    start_story(comparison, STORIES[name])
    result = await comparison.start_with_sdk()
    running, _ = await comparison.import_with_convo(result.to_state().to_string())
    while running.pending_calls:
        running = await comparison.resume_with_convo(running)
    assert (running.output, model_requests(comparison)) == wanted_end


@pytest.mark.parametrize("name", EXPORTED_STORIES)
async def test_the_sdk_resumes_a_run_that_convo_paused(comparison: SdkComparison, name: str) -> None:
    wanted_end = await sdk_alone(comparison, name)
    start_story(comparison, STORIES[name])
    running = await comparison.start_with_convo()
    result = await comparison.resume_with_sdk(await comparison.export_run_state(running))
    while result.interruptions:
        result = await comparison.resume_with_sdk(result.to_state().to_string())
    assert (result.final_output, model_requests(comparison)) == wanted_end


async def test_a_run_with_two_agents_of_one_name_is_not_exported_for_the_sdk(comparison: SdkComparison) -> None:
    start_story(comparison, STORIES["agents of one name"])
    running = await comparison.start_with_convo()
    assert [call.id for call in running.pending_calls] == ["call_2", "call_4"]
    with pytest.raises(InputFault, match="several agents are named 'desk', and only the Agents SDK can number them"):
        await comparison.export_run_state(running)


async def test_a_run_moves_from_the_sdk_to_convo_and_back(comparison: SdkComparison) -> None:
    wanted_end = await sdk_alone(comparison, "two pauses")
    start_story(comparison, STORIES["two pauses"])
    result = await comparison.start_with_sdk()
    running, base = await comparison.import_with_convo(result.to_state().to_string())
    assert [call.id for call in running.pending_calls] == ["call_5"]
    result = await comparison.resume_with_sdk(await comparison.export_run_state(running, base))
    assert (result.final_output, model_requests(comparison)) == wanted_end


async def test_a_run_moves_from_convo_to_the_sdk_and_back(comparison: SdkComparison) -> None:
    wanted_end = await sdk_alone(comparison, "two pauses")
    start_story(comparison, STORIES["two pauses"])
    result = await comparison.resume_with_sdk(await comparison.export_run_state(await comparison.start_with_convo()))
    running, _ = await comparison.import_with_convo(result.to_state().to_string())
    assert (running.output, model_requests(comparison)) == wanted_end


@pytest.mark.parametrize("begins", ["the SDK", "convo"])
@pytest.mark.parametrize("comparison", ["replay", "session"], indirect=True)
async def test_the_sdk_continues_from_a_handoff_summary_of_convo(comparison: SdkComparison, begins: str) -> None:
    wanted_end = await _run_sdk_alone(comparison, SUMMARY)
    start_story(comparison, SUMMARY)
    if begins == "convo":
        running, base = await comparison.resume_with_convo(await comparison.start_with_convo()), None
    else:
        running, base = await comparison.import_with_convo((await comparison.start_with_sdk()).to_state().to_string())
    result = await comparison.resume_with_sdk(await comparison.export_run_state(running, base))
    end, asked = wanted_end
    assert (result.final_output, meant(model_requests(comparison))) == (end, meant(asked))
    assert "For context" in asked[2][0][1]


def meant(asked: ModelRequests) -> list[list[Any]]:
    """Replace the content of assistant messages by digests of its items: the text of a summary contains ids and keys
    in any order."""
    return [[_meant(json.loads(line)) for part in request for line in part] for request in asked]


def _meant(message: dict[str, Any]) -> Any:
    said = message["content"]
    if message["role"] != "assistant" or not said:
        return message
    return {**message, "content": [digest(item) for item in expand_summaries([{"role": "assistant", "content": said}])]}


@pytest.mark.parametrize("comparison", ["conversation"], indirect=True)
async def test_a_conversation_has_every_item_once_after_any_number_of_moves(
    comparison: SdkComparison, client: AsyncOpenAI
) -> None:
    start_story(comparison, STORIES["two pauses"])
    result = await comparison.start_with_sdk()
    running, base = await comparison.import_with_convo(result.to_state().to_string())
    await comparison.resume_with_sdk(await comparison.export_run_state(running, base))
    kept = [
        item.type
        async for item in client.conversations.items.list(comparison.arguments["conversation_id"], order="asc")
    ]
    calls = ["function_call"] * 3 + ["function_call_output"] * 3
    assert kept == [
        *("message", "function_call", "function_call_output"),
        *calls,
        *("function_call", "function_call_output", "message"),
    ]
