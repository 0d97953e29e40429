"""What was sealed behind convo's own endpoint, shown to a server that owns conversations."""

from typing import Any

from convo.config.secret import Secret
from convo.endpoints.remote import Account, Remote
from convo.items import Item, user
from convo.models.sealed import maker, signed
from tests.loopback import KEY, Loopback

THOUGHT: Item = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}


async def asked(loopback: Loopback, *history: Item) -> list[Any]:
    """The input that arrives when this history is sent."""
    endpoint = Remote(Account(base_url=loopback.url, key=Secret(KEY)))
    [event async for event in endpoint.create({"model": "gpt-5", "input": list(history), "store": False})]
    await endpoint.aclose()
    return list(loopback.bodies[-1]["input"])


async def test_reasoning_of_another_provider_stays_behind(loopback: Loopback) -> None:
    others = signed(THOUGHT, maker("deepseek", "v4", "https://api.deepseek.com"))

    assert await asked(loopback, user("hi"), others, user("again")) == [user("hi"), user("again")]


async def test_reasoning_of_the_same_model_is_opened_and_its_own_is_left_alone(loopback: Loopback) -> None:
    ours = signed(THOUGHT, maker("openai", "gpt-5", loopback.url, None, None))

    assert await asked(loopback, ours, THOUGHT, user("hi")) == [THOUGHT, THOUGHT, user("hi")]
