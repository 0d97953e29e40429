"""A model of the Messages API at the loopback server, and values that its tests share."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from convo.history.items import user_message
from convo.models.anthropic import AnthropicModel
from convo.models.base import make_issuer_tag
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.models.chat_server import ChatServer
from tests.models.model_calls import make_request

KEY = "sk-ant-abcdefghijklmnop"
OPUS = "claude-opus-5"
HI = make_request(user_message("hi"), model=OPUS)
ISSUER_TAG = make_issuer_tag("anthropic", OPUS, "https://api.anthropic.com")


@pytest.fixture
async def model(server: ChatServer) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel("anthropic", server.url, counting_ids(), key=Secret(KEY))
    yield model
    await model.aclose()


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
