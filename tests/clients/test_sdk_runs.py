"""Runs that change hands between openai-agents and convo, over one gateway, for each owner of the history.

The agents are the SDK's own, which convo takes by their shape. The stories hand over, call tools beside
each other, have one approved and one rejected with a reason, and ask an agent as a tool in which two
calls wait, one of them to be rejected. However often a run changes hands, the model is told the same as
if the SDK had told it alone.
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
from tests.clients.hands import OWNERS, STORIES, SUMMARY, WRITTEN, Hands, Heard, alone, given, heard, told, told_alone
from tests.clients.upstream import Upstream


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=base_url, api_key="any") as opened:
        yield opened


@pytest.fixture(params=OWNERS)
async def hands(
    request: pytest.FixtureRequest, client: AsyncOpenAI, base_url: str, upstream: Upstream, tmp_path: Path
) -> AsyncIterator[Hands]:
    store = open_store("memory")
    session = SQLiteSession("s") if request.param == "session" else None
    yield Hands(client, store, base_url, upstream, tmp_path, request.param, await given(client, request.param), session)
    await store.aclose()


@pytest.mark.parametrize("name", STORIES)
async def test_the_sdk_finishes_what_it_paused_and_convo_decided(hands: Hands, name: str) -> None:
    wanted_end = await alone(hands, name)
    told(hands, STORIES[name])
    result = await hands.sdk_begins()
    while result.interruptions:
        result = await hands.sdk_obeys(result.to_state().to_string())
    assert (result.final_output, heard(hands)) == wanted_end


@pytest.mark.parametrize("name", STORIES)
async def test_convo_finishes_what_the_sdk_paused(hands: Hands, name: str) -> None:
    wanted_end = await alone(hands, name)
    told(hands, STORIES[name])
    result = await hands.sdk_begins()
    running, _ = await hands.convo_takes(result.to_state().to_string())
    while running.pending_calls:
        running = await hands.convo_goes_on(running)
    assert (running.output, heard(hands)) == wanted_end


@pytest.mark.parametrize("name", WRITTEN)
async def test_the_sdk_finishes_what_convo_paused(hands: Hands, name: str) -> None:
    wanted_end = await alone(hands, name)
    told(hands, STORIES[name])
    running = await hands.convo_begins()
    result = await hands.sdk_goes_on(await hands.written(running))
    while result.interruptions:
        result = await hands.sdk_goes_on(result.to_state().to_string())
    assert (result.final_output, heard(hands)) == wanted_end


async def test_agents_of_one_name_are_never_written_for_the_sdk(hands: Hands) -> None:
    told(hands, STORIES["agents of one name"])
    running = await hands.convo_begins()
    assert [call.id for call in running.pending_calls] == ["call_2", "call_4"]
    with pytest.raises(InputFault, match="several agents are named 'desk', and only the Agents SDK can number them"):
        await hands.written(running)


async def test_a_run_goes_from_the_sdk_to_convo_and_back(hands: Hands) -> None:
    wanted_end = await alone(hands, "two pauses")
    told(hands, STORIES["two pauses"])
    result = await hands.sdk_begins()
    running, base = await hands.convo_takes(result.to_state().to_string())
    assert [call.id for call in running.pending_calls] == ["call_5"]
    result = await hands.sdk_goes_on(await hands.written(running, base))
    assert (result.final_output, heard(hands)) == wanted_end


async def test_a_run_goes_from_convo_to_the_sdk_and_back(hands: Hands) -> None:
    wanted_end = await alone(hands, "two pauses")
    told(hands, STORIES["two pauses"])
    result = await hands.sdk_goes_on(await hands.written(await hands.convo_begins()))
    running, _ = await hands.convo_takes(result.to_state().to_string())
    assert (running.output, heard(hands)) == wanted_end


@pytest.mark.parametrize("begins", ["the SDK", "convo"])
@pytest.mark.parametrize("hands", ["replay", "session"], indirect=True)
async def test_the_sdk_goes_on_from_a_summary_that_convo_made_at_a_handoff(hands: Hands, begins: str) -> None:
    wanted_end = await told_alone(hands, SUMMARY)
    told(hands, SUMMARY)
    if begins == "convo":
        running, base = await hands.convo_goes_on(await hands.convo_begins()), None
    else:
        running, base = await hands.convo_takes((await hands.sdk_begins()).to_state().to_string())
    result = await hands.sdk_goes_on(await hands.written(running, base))
    end, asked = wanted_end
    assert (result.final_output, meant(heard(hands))) == (end, meant(asked))
    assert "For context" in asked[2][0][1]


def meant(asked: Heard) -> list[list[Any]]:
    """The same, with a summary's records by what they mean: ids and the order of keys stand in its text."""
    return [[_meant(json.loads(line)) for part in request for line in part] for request in asked]


def _meant(message: dict[str, Any]) -> Any:
    said = message["content"]
    if message["role"] != "assistant" or not said:
        return message
    return {**message, "content": [digest(item) for item in expand_summaries([{"role": "assistant", "content": said}])]}


@pytest.mark.parametrize("hands", ["conversation"], indirect=True)
async def test_a_conversation_holds_everything_once_however_often_it_changed_hands(
    hands: Hands, client: AsyncOpenAI
) -> None:
    told(hands, STORIES["two pauses"])
    result = await hands.sdk_begins()
    running, base = await hands.convo_takes(result.to_state().to_string())
    await hands.sdk_goes_on(await hands.written(running, base))
    kept = [item.type async for item in client.conversations.items.list(hands.given["conversation_id"], order="asc")]
    calls = ["function_call"] * 3 + ["function_call_output"] * 3
    assert kept == [
        *("message", "function_call", "function_call_output"),
        *calls,
        *("function_call", "function_call_output", "message"),
    ]
