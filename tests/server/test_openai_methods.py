"""The openai package as a client, both of its kinds, for every method that it has."""

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
def talking(stored_gateway: RunningGateway) -> RunningGateway:
    stored_gateway.script("slow", {"text": "word " * 200}, delay_s=0.05)
    return stored_gateway


@pytest.mark.parametrize("call", ALL_CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_each_method_of_the_openai_package_is_answered(talking: RunningGateway, kind: Any, call: Call) -> None:
    strict = (
        call is not client_calls.compact
    )  # its window holds users' messages, which the package's own type does not know
    client = kind(base_url=talking.url, api_key="any", max_retries=0, _strict_response_validation=strict)
    try:
        await call(client)
    finally:
        closed = client.close()
        if inspect.isawaitable(closed):
            await closed


def methods(resource: Any, name: str) -> Iterator[str]:
    """The public methods of a resource and of those below it."""
    for member in dir(type(resource)):
        if member.startswith(("_", "with_")):
            continue
        found = getattr(resource, member)
        if isinstance(found, SyncAPIResource):
            yield from methods(found, f"{name}.{member}")
        elif callable(found):
            yield f"{name}.{member}"


def test_no_method_of_the_openai_package_is_left_out() -> None:
    """A method that a new version brings fails here, until it is tried or has a reason."""
    client = openai.OpenAI(api_key="any", base_url="http://127.0.0.1:1")
    there = {
        name
        for resource in ("responses", "conversations", "models")
        for name in methods(getattr(client, resource), resource)
    }
    assert there == {*CALLS, *NOT_CALLED}
