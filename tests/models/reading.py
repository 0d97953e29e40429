"""Ask a model in a test, and read what came."""

from contextlib import aclosing
from typing import Any

from convo.items import Event, Item, Json, text
from convo.models.contract import Ask, Model


async def all_of(model: Model, ask: Ask) -> list[Event]:
    """Every event of one answer, in order."""
    events: list[Event] = []
    await into(events, model, ask)
    return events


async def into(events: list[Event], model: Model, ask: Ask) -> None:
    """Add every event as it comes, so that those before a failure can be looked at."""
    async with aclosing(model.respond(ask)) as arriving:
        async for event in arriving:
            events.append(event)  # noqa: PERF401 - a comprehension would lose them


async def ended(model: Model, ask: Ask) -> dict[str, Any]:
    """The terminal event's response."""
    response: dict[str, Any] = (await all_of(model, ask))[-1]["response"]
    return response


def deltas(events: list[Event], form: str = "output_text") -> list[str]:
    return [event["delta"] for event in events if event["type"] == f"response.{form}.delta"]


def said(response: Json) -> str:
    """All the words of an answer."""
    return "\n".join(text(item) for item in response["output"])


def asking(*items: Item, model: str = "m", instructions: str | None = None, **parameters: Json) -> Ask:
    return Ask(model, items, instructions, parameters)
