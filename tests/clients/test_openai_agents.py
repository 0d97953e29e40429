"""openai-agents as a client, with each kind of state that a server or a session can own.

The upstream model answers with the number of messages that it received, so each answer shows whether
the history was sent; `texts` returns the content of these messages.
"""

from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    RunConfig,
    Runner,
    ShellCommandRequest,
    ShellTool,
    SQLiteSession,
    Tool,
    function_tool,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.models.openai_provider import OpenAIProvider
from openai import AsyncOpenAI

from tests.clients.conftest import ALIAS, CHAT_ALIAS, CLAUDE_ALIAS
from tests.clients.upstream import Upstream


@function_tool
def capital(country: str) -> str:
    """The capital of a country."""
    return f"the capital of {country}"


@pytest.fixture(params=["http", "websocket"])
async def run_config(request: pytest.FixtureRequest, client: AsyncOpenAI) -> AsyncIterator[RunConfig]:
    """The configuration of a run that uses the gateway over HTTP or WebSocket."""
    provider = OpenAIProvider(openai_client=client, use_responses_websocket=request.param == "websocket")
    yield RunConfig(model_provider=provider, tracing_disabled=True)
    await provider.aclose()


@pytest.fixture
def agent() -> Agent[None]:
    return Agent(name="plain", instructions="Be brief.", model=ALIAS)


@pytest.fixture
def tool_agent() -> Agent[None]:
    return Agent(name="tooled", model=ALIAS, tools=[capital])


def texts(upstream: Upstream) -> list[str]:
    return [str(message["content"]) for message in upstream.messages]


async def test_a_previous_response_id_restores_the_history(
    run_config: RunConfig, agent: Agent[None], upstream: Upstream
) -> None:
    first = await Runner.run(agent, "one", run_config=run_config)
    second = await Runner.run(agent, "two", previous_response_id=first.last_response_id, run_config=run_config)
    assert second.final_output.startswith("4 messages, the last one: two")
    assert texts(upstream)[::3] == ["Be brief.", "two"]


async def test_auto_previous_response_id_sends_only_the_tool_output_and_the_model_receives_the_history(
    run_config: RunConfig, tool_agent: Agent[None], upstream: Upstream, client: AsyncOpenAI
) -> None:
    got = await Runner.run(tool_agent, "Norway?", auto_previous_response_id=True, run_config=run_config)
    assert got.final_output.startswith("3 messages, the last one: the capital of x")
    assert [message["role"] for message in upstream.messages] == ["user", "assistant", "tool"]
    assert got.last_response_id is not None
    last = await client.responses.retrieve(got.last_response_id)
    assert last.previous_response_id == got.raw_responses[0].response_id


async def test_a_conversation_id_keeps_turns_and_tool_calls(
    run_config: RunConfig, tool_agent: Agent[None], client: AsyncOpenAI
) -> None:
    conversation = await client.conversations.create()
    await Runner.run(tool_agent, "Norway?", conversation_id=conversation.id, run_config=run_config)
    got = await Runner.run(tool_agent, "Chad?", conversation_id=conversation.id, run_config=run_config)
    assert got.final_output.startswith("7 messages")
    types = [item.type async for item in client.conversations.items.list(conversation.id, order="asc", limit=3)]
    assert types == ["message", "function_call", "function_call_output", "message"] * 2


async def test_a_streamed_run_ends_with_the_final_answer(run_config: RunConfig, agent: Agent[None]) -> None:
    streamed = Runner.run_streamed(agent, "one", run_config=run_config)
    types = [event.data.type async for event in streamed.stream_events() if event.type == "raw_response_event"]
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    assert streamed.final_output.startswith("2 messages, the last one: one")


async def test_a_conversations_session_stores_its_items_at_the_gateway(
    run_config: RunConfig, tool_agent: Agent[None], client: AsyncOpenAI
) -> None:
    session = OpenAIConversationsSession(openai_client=client)
    await Runner.run(tool_agent, "Norway?", session=session, run_config=run_config)
    got = await Runner.run(tool_agent, "Chad?", session=session, run_config=run_config)
    assert got.final_output.startswith("7 messages")
    assert len(await session.get_items()) == 8
    popped: Any = await session.pop_item()
    assert popped["role"] == "assistant"
    assert len(await session.get_items()) == 7
    await session.clear_session()
    assert await session.get_items() == []


@pytest.mark.parametrize("mode", ["previous_response_id", "input"])
async def test_a_compaction_session_continues_from_the_compacted_history(
    run_config: RunConfig, agent: Agent[None], client: AsyncOpenAI, upstream: Upstream, mode: Any
) -> None:
    with closing(SQLiteSession("s")) as stored:
        session = OpenAIResponsesCompactionSession("s", stored, client=client, model=ALIAS, compaction_mode=mode)
        for text in ("one", "two", "three"):
            await Runner.run(agent, text, session=session, run_config=run_config)
        await session.run_compaction({"force": True})
        items: list[Any] = await session.get_items()
        assert [item["type"] for item in items if item.get("type") == "compaction"] == ["compaction"]
        assert len(items) < 6
        await Runner.run(agent, "four", session=session, run_config=run_config)
    assert texts(upstream)[-1] == "four"
    assert any("messages, the last one" in text for text in texts(upstream)[:-1])


async def test_a_run_with_store_false_stores_nothing(run_config: RunConfig, client: AsyncOpenAI) -> None:
    agent = Agent(name="plain", model=ALIAS, model_settings=ModelSettings(store=False))
    got = await Runner.run(agent, "one", run_config=run_config)
    assert got.last_response_id is not None
    with pytest.raises(Exception, match="not found"):
        await client.responses.retrieve(got.last_response_id)


class Editor:
    """Records the operations of patches."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, str, str | None]] = []

    def apply(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        self.operations.append((operation.type, operation.path, operation.diff))
        return ApplyPatchResult(output="done")

    create_file = update_file = delete_file = apply


@pytest.mark.parametrize("model", [pytest.param(CHAT_ALIAS, marks=pytest.mark.full), CLAUDE_ALIAS])
async def test_the_shell_and_the_patches_of_the_sdk_run_on_a_model_that_knows_only_functions(
    client: AsyncOpenAI, upstream: Upstream, model: str
) -> None:
    def run_commands(request: ShellCommandRequest) -> str:
        return f"ran {' and '.join(request.data.action.commands)}"

    editor = Editor()
    tools: list[Tool] = [ShellTool(executor=run_commands), ApplyPatchTool(editor=editor)]
    upstream.calls = [
        [("call_1", "shell", {"commands": ["ls", "pwd"]})],
        [("call_2", "apply_patch", {"type": "create_file", "path": "a.txt", "diff": "+x"})],
    ]

    provider = OpenAIProvider(openai_client=client)
    await Runner.run(
        Agent(name="coder", model=model, tools=tools),
        "Go.",
        run_config=RunConfig(model_provider=provider, tracing_disabled=True),
    )

    assert "ran ls and pwd" in str(upstream.requests[1]["messages"][-1])
    assert editor.operations == [("create_file", "a.txt", "+x")]
    assert "completed\\ndone" in str(upstream.requests[2]["messages"][-1])
