"""Encrypted reasoning that convo tagged with its issuer, in requests to a remote endpoint."""

from typing import Any

from convo.endpoints.remote import RemoteEndpoint
from convo.history.items import Item, user_message
from convo.models.base import make_issuer_tag, tag_encrypted_content
from convo.models.http import OpenAIClientOptions
from convo.secrets import Secret
from tests.loopback_server import KEY, LoopbackServer

REASONING: Item = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}


async def sent_input(loopback: LoopbackServer, *history: Item) -> list[Any]:
    """Send `history` and return the input that the server receives."""
    endpoint = RemoteEndpoint(OpenAIClientOptions(base_url=loopback.url, key=Secret(KEY)))
    [event async for event in endpoint.create({"model": "gpt-5", "input": list(history), "store": False})]
    await endpoint.aclose()
    return list(loopback.bodies[-1]["input"])


async def test_reasoning_of_another_provider_is_omitted(loopback: LoopbackServer) -> None:
    foreign = tag_encrypted_content(REASONING, make_issuer_tag("deepseek", "v4", "https://api.deepseek.com"))

    assert await sent_input(loopback, user_message("hi"), foreign, user_message("again")) == [
        user_message("hi"),
        user_message("again"),
    ]


async def test_reasoning_of_the_same_model_is_restored_and_the_servers_own_is_unchanged(
    loopback: LoopbackServer,
) -> None:
    tagged = tag_encrypted_content(REASONING, make_issuer_tag("openai", "gpt-5", loopback.url, None, None))

    assert await sent_input(loopback, tagged, REASONING, user_message("hi")) == [
        REASONING,
        REASONING,
        user_message("hi"),
    ]
