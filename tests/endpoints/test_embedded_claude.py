"""A chain of the embedded endpoint with a Claude model: stored thinking blocks and tool calls are sent to it again."""

from typing import Any

from convo.models.anthropic import AnthropicModel
from convo.models.base import Model
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.secrets import Secret
from convo.stores.base import Store
from tests.models.chat_server import run_chat_server
from tests.models.messages_events import message_events, text, thinking, tool

CLAUDE = "anthropic/claude-opus-5"


class OneModel:
    """Opens the same model for every name."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(self, name: str) -> tuple[Model, str]:
        return self._model, name.partition("/")[2]

    async def aclose(self) -> None:
        await self._model.aclose()


async def final_response(endpoint: EmbeddedEndpoint, **body: Any) -> Any:
    """Send one request and return its final response."""
    return [event async for event in endpoint.create({"model": CLAUDE, **body})][-1]["response"]


async def test_a_chain_with_a_call_continues_with_its_thinking_blocks(store: Store) -> None:
    output = {"type": "function_call_output", "call_id": "toolu_1", "output": "4"}
    with run_chat_server() as server:
        models = OneModel(AnthropicModel("anthropic", server.url, random_id, key=Secret("sk-ant-1")))
        endpoint = EmbeddedEndpoint(store, models, SystemClock(), random_id)
        blocks = thinking(0, "Hm.", signature="S+/="), tool(1, "toolu_1", "add", "{}")
        server.stream(*message_events(*blocks, reason="tool_use"), end=b"")
        server.stream(*message_events(text(0, "Four.")), end=b"")

        first = await final_response(endpoint, input="2+2?")
        second = await final_response(endpoint, previous_response_id=first["id"], input=[output])
        await models.aclose()

    assert second["status"] == "completed"
    assert [message["content"] for message in server.requests[1].json["messages"]] == [
        [{"type": "text", "text": "2+2?"}],
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "S+/="},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
        ],
        [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "4"}]}],
    ]
