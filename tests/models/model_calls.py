"""Send a request to a model and read its events."""

from contextlib import aclosing
from typing import Any

from convo.history.items import Item, Json, StreamEvent, item_text
from convo.models.base import Model, ModelRequest


async def read_events(model: Model, request: ModelRequest) -> list[StreamEvent]:
    """Return every event of one response, in order."""
    events: list[StreamEvent] = []
    await collect_events(events, model, request)
    return events


async def collect_events(events: list[StreamEvent], model: Model, request: ModelRequest) -> None:
    """Append every event as it arrives, so that a test can check those before a failure."""
    async with aclosing(model.respond(request)) as stream:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - a comprehension would lose them


async def final_response(model: Model, request: ModelRequest) -> dict[str, Any]:
    """Return the response of the terminal event."""
    response: dict[str, Any] = (await read_events(model, request))[-1]["response"]
    return response


def deltas(events: list[StreamEvent], form: str = "output_text") -> list[str]:
    return [event["delta"] for event in events if event["type"] == f"response.{form}.delta"]


def output_text(response: Json) -> str:
    """Return the text of a response."""
    return "\n".join(item_text(item) for item in response["output"])


def make_request(*items: Item, model: str = "m", instructions: str | None = None, **parameters: Json) -> ModelRequest:
    return ModelRequest(model, items, instructions, parameters)
