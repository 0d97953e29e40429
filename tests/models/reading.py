"""Ask a model in a test, and read what came."""

from contextlib import aclosing
from typing import Any

from convo.history.items import Item, Json, StreamEvent, item_text
from convo.models.base import Model, ModelRequest


async def all_of(model: Model, ask: ModelRequest) -> list[StreamEvent]:
    """Every event of one answer, in order."""
    events: list[StreamEvent] = []
    await into(events, model, ask)
    return events


async def into(events: list[StreamEvent], model: Model, ask: ModelRequest) -> None:
    """Add every event as it comes, so that those before a failure can be looked at."""
    async with aclosing(model.respond(ask)) as arriving:
        async for event in arriving:
            events.append(event)  # noqa: PERF401 - a comprehension would lose them


async def ended(model: Model, ask: ModelRequest) -> dict[str, Any]:
    """The terminal event's response."""
    response: dict[str, Any] = (await all_of(model, ask))[-1]["response"]
    return response


def deltas(events: list[StreamEvent], form: str = "output_text") -> list[str]:
    return [event["delta"] for event in events if event["type"] == f"response.{form}.delta"]


def said(response: Json) -> str:
    """All the words of an answer."""
    return "\n".join(item_text(item) for item in response["output"])


def asking(*items: Item, model: str = "m", instructions: str | None = None, **parameters: Json) -> ModelRequest:
    return ModelRequest(model, items, instructions, parameters)
