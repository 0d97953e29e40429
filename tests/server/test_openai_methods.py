"""Every method of the openai package, with its synchronous and its asynchronous client."""

import inspect
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai._resource import SyncAPIResource

from tests.server import client_calls
from tests.server.client_calls import ALL_CALLS, CALLS, NOT_CALLED, Call
from tests.server.gateway import RunningGateway

KINDS = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}


@pytest.fixture
def scripted_gateway(stored_gateway: RunningGateway) -> RunningGateway:
    stored_gateway.script("slow", {"text": "word " * 200}, delay_s=0.05)
    return stored_gateway


@pytest.mark.parametrize("call", ALL_CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_each_method_of_the_openai_package_is_answered(
    scripted_gateway: RunningGateway, kind: Any, call: Call
) -> None:
    strict = (
        call is not client_calls.compact
    )  # its output contains user messages, which the type of the package does not allow
    client = kind(base_url=scripted_gateway.url, api_key="any", max_retries=0, _strict_response_validation=strict)
    try:
        await call(client)
    finally:
        closed = client.close()
        if inspect.isawaitable(closed):
            await closed


def methods(resource: Any, name: str) -> Iterator[str]:
    """Yield the public methods of a resource and of the resources in it."""
    for member in dir(type(resource)):
        if member.startswith(("_", "with_")):
            continue
        value = getattr(resource, member)
        if isinstance(value, SyncAPIResource):
            yield from methods(value, f"{name}.{member}")
        elif callable(value):
            yield f"{name}.{member}"


def test_no_method_of_the_openai_package_is_left_out() -> None:
    """A method of a new version fails here until it has a call or a reason."""
    client = openai.OpenAI(api_key="any", base_url="http://127.0.0.1:1")
    names = {
        name
        for resource in ("responses", "conversations", "models")
        for name in methods(getattr(client, resource), resource)
    }
    assert names == {*CALLS, *NOT_CALLED}
