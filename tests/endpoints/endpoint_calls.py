"""Requests to an endpoint under test, with their responses and errors."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from convo.endpoints.base import Endpoint, ItemPage
from convo.errors import ConvoError
from convo.history.items import Item, StreamEvent, item_text
from convo.stores.base import Store
from tests.loopback_server import LoopbackModels

MODEL = "gpt-6.1-terra"

FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class EndpointPair:
    """One endpoint under test.

    other_tenant:  the same endpoint for another tenant
    scripts:  the models of both
    store:  the store behind both, of any tenant
    """

    endpoint: Endpoint
    other_tenant: Endpoint
    scripts: LoopbackModels
    store: Store


async def events(endpoint: Endpoint, request_input: Any = None, **body: Any) -> list[StreamEvent]:
    """Return all events of the response to the input `request_input`."""
    fields = {} if request_input is None else {"input": request_input}
    async with aclosing(endpoint.create({"model": MODEL, **fields, **body})) as answer:
        return [event async for event in answer]


async def ask(endpoint: Endpoint, request_input: Any = None, **body: Any) -> dict[str, Any]:
    """Return the final response to the input `request_input`."""
    last = (await events(endpoint, request_input, **body))[-1]
    assert last["type"] in FINAL_EVENTS
    return dict(last["response"])


async def refusal(endpoint: Endpoint, request_input: Any = None, **body: Any) -> ConvoError:
    """Return the error of a request that is refused before its first event."""
    with pytest.raises(ConvoError) as caught:
        await events(endpoint, request_input, **body)
    return caught.value


def error_fields(error: ConvoError) -> tuple[str, int, str | None]:
    """Return the code, status and param of an error."""
    return error.code, error.status, getattr(error, "param", None)


def texts(items: ItemPage | list[Any] | tuple[Item, ...] | Any) -> list[str]:
    listed = items.items if isinstance(items, ItemPage) else items
    return [item_text(item) for item in listed]


def user_item(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text, **fields}


def output_for(call: Mapping[str, Any], output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": json.dumps(output)}


TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": True}
