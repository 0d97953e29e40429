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
from tests.loopback_server import LoopbackModels

MODEL = "gpt-5-mini"

FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class EndpointPair:
    """One endpoint under test.

    other_tenant:  the same endpoint for another tenant
    scripts:  the models of both
    """

    endpoint: Endpoint
    other_tenant: Endpoint
    scripts: LoopbackModels


async def events(endpoint: Endpoint, said: Any = None, **body: Any) -> list[StreamEvent]:
    """Return all events of the response to the input `said`."""
    given = {} if said is None else {"input": said}
    async with aclosing(endpoint.create({"model": MODEL, **given, **body})) as answer:
        return [event async for event in answer]


async def ask(endpoint: Endpoint, said: Any = None, **body: Any) -> dict[str, Any]:
    """Return the final response to the input `said`."""
    last = (await events(endpoint, said, **body))[-1]
    assert last["type"] in FINAL_EVENTS
    return dict(last["response"])


async def refusal(endpoint: Endpoint, said: Any = None, **body: Any) -> ConvoError:
    """Return the error of a request that is refused before its first event."""
    with pytest.raises(ConvoError) as caught:
        await events(endpoint, said, **body)
    return caught.value


def error_fields(wrong: ConvoError) -> tuple[str, int, str | None]:
    """Return the code, status and param of an error."""
    return wrong.code, wrong.status, getattr(wrong, "param", None)


def texts(items: ItemPage | list[Any] | tuple[Item, ...] | Any) -> list[str]:
    listed = items.items if isinstance(items, ItemPage) else items
    return [item_text(item) for item in listed]


def user_item(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": words, **more}


def output_for(call: Mapping[str, Any], said: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": json.dumps(said)}


TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": True}
