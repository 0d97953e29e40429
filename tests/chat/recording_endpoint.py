"""An endpoint that records its requests and can fail.

It wraps a real endpoint and has the same interface. A fault happens once: an error before anything is done, a response
that is cut off, or a complete response that is lost on its way to the client.
"""

import copy
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from convo.endpoints.base import Endpoint
from convo.history.items import Item, Json, StreamEvent
from convo.history.records import Scope

REMOTE_SCOPE = Scope("https://elsewhere.test/v1")


class Killed(BaseException):
    """The process was killed: no later code of it runs."""


@dataclass(frozen=True)
class EndpointFault:
    """`error` is raised after `after` events; None: after the whole response, without any event."""

    error: BaseException
    after: int | None = 0


class RecordingEndpoint:
    """Delegates to `endpoint`.

    bodies:                 the requests for responses, oldest first
    created_conversations:  the ids of new conversations, oldest first
    other_calls:            the names of the other methods that were used, in order
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.bodies: list[dict[str, Json]] = []
        self.created_conversations: list[str] = []
        self.other_calls: list[str] = []
        self.faults: list[EndpointFault] = []

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        created = await self.endpoint.create_conversation(items, metadata)
        self.created_conversations.append(created["id"])
        return created

    def __getattr__(self, name: str) -> Any:
        self.other_calls.append(name)
        return getattr(self.endpoint, name)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self.bodies.append(copy.deepcopy(dict(body)))
        fault = self.faults.pop(0) if self.faults else None
        if fault and fault.after == 0:
            raise fault.error
        async with aclosing(self.endpoint.create(body)) as events:
            number = 0
            async for event in events:
                if fault is None or fault.after is not None:
                    yield event
                number += 1
                if fault and number == fault.after:
                    raise fault.error
        if fault:
            raise fault.error


class RemoteEndpoint(RecordingEndpoint):
    """The same endpoint with another base URL."""

    scope = REMOTE_SCOPE
