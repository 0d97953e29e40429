"""A conversation changes models: all calls and outputs are sent, and reasoning only to the model that issued it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from convo.history.items import Item, user_message
from convo.models.anthropic import AnthropicModel
from convo.models.chat_completions import ChatModel
from convo.models.http import OpenAIClientOptions
from convo.models.responses import ResponsesModel
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.models.chat_server import ChatServer, delta, finish
from tests.models.chat_server import tool as chat_tool
from tests.models.messages_events import message_events, thinking, tool
from tests.models.model_calls import final_response, make_request

KEY = Secret("sk-abcdefghijklmnop")


class Three:
    """A model of each API at one server."""

    def __init__(self, server: ChatServer) -> None:
        self.server, self.new_id = server, counting_ids()
        self.deepseek = ChatModel("deepseek", server.url, self.new_id, key=KEY)
        self.claude = AnthropicModel("anthropic", server.url, self.new_id, key=KEY)
        self.gpt = ResponsesModel(OpenAIClientOptions(base_url=server.url, key=KEY), self.new_id)

    async def ask_deepseek(self, *history: Item) -> list[Item]:
        reasoning_item = delta(reasoning_content="D thinks.")
        self.server.stream(reasoning_item, chat_tool(0, call_id="d1", name="f", arguments="{}"), finish("tool_calls"))
        return list((await final_response(self.deepseek, make_request(*history, model="v4")))["output"])

    async def ask_claude(self, *history: Item) -> list[Item]:
        blocks = thinking(0, "C thinks.", signature="Sig"), tool(1, "toolu_1", "f", "{}")
        self.server.stream(*message_events(*blocks, reason="tool_use"), end=b"")
        return list((await final_response(self.claude, make_request(*history, model="claude-opus-5")))["output"])

    async def ask_gpt(self, *history: Item) -> list[Item]:
        reasoning_item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "G thinks."}
        call = {"type": "function_call", "id": "fc_1", "call_id": "g1", "name": "f", "arguments": "{}"}
        self.server.stream({"type": "response.completed", "response": {"output": [reasoning_item, call]}})
        return list((await final_response(self.gpt, make_request(*history, model="gpt-5")))["output"])

    @property
    def sent(self) -> Any:
        """Return the last request body."""
        return self.server.requests[-1].json


@pytest.fixture
async def three(server: ChatServer) -> AsyncIterator[Three]:
    async with AsyncExitStack() as closing:
        models = Three(server)
        for model in (models.deepseek, models.claude, models.gpt):
            closing.push_async_callback(model.aclose)
        yield models


def output(call_id: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": f"out of {call_id}"}


async def history_of(three: Three) -> list[Item]:
    """Return a turn of each model, with a call and its output."""
    history: list[Item] = [user_message("one")]
    history += [*await three.ask_deepseek(*history), output("d1"), user_message("two")]
    history += [*await three.ask_claude(*history), output("toolu_1"), user_message("three")]
    history += [*await three.ask_gpt(*history), output("g1"), user_message("four")]
    return history


async def test_deepseek_gets_all_calls_and_its_own_reasoning(three: Three) -> None:
    history = await history_of(three)

    await three.ask_deepseek(*history)

    assistant_messages = [message for message in three.sent["messages"] if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in assistant_messages] == ["D thinks.", "", ""]
    assert [message["tool_calls"][0]["id"] for message in assistant_messages] == ["d1", "toolu_1", "g1"]
    outputs = [message["content"] for message in three.sent["messages"] if message["role"] == "tool"]
    assert outputs == ["out of d1", "out of toolu_1", "out of g1"]


async def test_claude_gets_all_calls_and_its_own_thinking_blocks(three: Three) -> None:
    history = await history_of(three)

    await three.ask_claude(*history)

    kinds = [[block["type"] for block in message["content"]] for message in three.sent["messages"]]
    assert kinds == [
        ["text"],
        ["tool_use"],
        ["tool_result", "text"],
        ["thinking", "tool_use"],
        ["tool_result", "text"],
        ["tool_use"],
        ["tool_result", "text"],
    ]


async def test_a_responses_server_gets_all_calls_and_its_own_reasoning(three: Three) -> None:
    history = await history_of(three)

    await three.ask_gpt(*history)

    kinds = [item.get("type", "message") for item in three.sent["input"]]
    pair = ["function_call", "function_call_output"]
    assert kinds == ["message", *pair, "message", *pair, "message", "reasoning", *pair, "message"]
    assert [item["encrypted_content"] for item in three.sent["input"] if item["type"] == "reasoning"] == ["G thinks."]
    assert not any("id" in item for item in three.sent["input"])
