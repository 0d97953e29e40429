"""The answers that this server is giving just now, for whoever looks on.

A store has an answer when it is whole, or piece by piece where it was asked for in the background.
All others are noticed here as their events pass, and forgotten at their end. Of a response that is
not to be stored nothing is told: nobody but its client was to have it.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from convo.items import Event, Json, text
from convo.items.partial import BEGINS, Partial


@dataclass
class Heard:
    """One answer, as far as it was given."""

    response: Mapping[str, Json]
    partial: Partial = field(default_factory=Partial)

    def goes_on_from(self, link_ids: frozenset[str], conversation_id: str | None) -> bool:
        """Whether it belongs to the chain with these links, or to this conversation."""
        conversation = (self.response.get("conversation") or {}).get("id")
        if conversation is not None:
            return bool(conversation == conversation_id)
        return self.response.get("previous_response_id") in link_ids

    def as_json(self) -> dict[str, Json]:
        return {
            "response_id": self.response["id"],
            "status": "in_progress",
            "model": self.response.get("model"),
            "text": said(self.partial),
        }


class Going:
    """The answers of every tenant."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, Heard]] = {}

    def of(self, tenant: str) -> list[Heard]:
        """The answers that are being given to a tenant's clients, oldest first."""
        return list(self._heard.get(tenant, {}).values())

    async def told(self, tenant: str, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """`events`, noticed as they pass."""
        heard: Heard | None = None
        try:
            async with aclosing(events):
                async for event in events:
                    if heard is not None:
                        heard.partial.take(event)
                    elif event["type"] in BEGINS and event["response"].get("store") is not False:
                        heard = Heard(event["response"])
                        self._heard.setdefault(tenant, {})[heard.response["id"]] = heard
                    yield event
        finally:
            if heard is not None:
                self._forget(tenant, heard)

    def _forget(self, tenant: str, heard: Heard) -> None:
        theirs = self._heard[tenant]
        del theirs[heard.response["id"]]
        if not theirs:
            del self._heard[tenant]


def said(partial: Partial) -> str:
    """All the words of an answer so far."""
    return "\n".join(filter(None, (text(item) for item in partial.output)))
