"""What an endpoint is, to everything above it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from convo.history import Scope
from convo.items import Event, Item, Json, Response

Order = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, as the API pages it."""

    items: Sequence[Item]
    has_more: bool


class Endpoint(Protocol):
    """Speaks Responses and Conversations.

    An endpoint promises: `create` is always a stream of wire events with contiguous sequence
    numbers that ends with `response.completed`, `.incomplete` or `.failed` carrying the whole
    response; what it acknowledges is durable before that event; foreign errors come as
    `convo.errors`; it retries nothing by itself. Closing the generator stops the answer.
    A caller promises: to read to the end, or to close.

    What goes wrong is the same on every side. An id of a response, conversation or item that the
    endpoint does not know raises `NotFound` from whatever method it is handed to; only an unknown
    `previous_response_id` of a request is `Refused`, with `previous_response_not_found`. What a
    request may not say is `Refused` with the API's `code` and `param`. A conversation that
    somebody else is writing is `TryLater` with `conversation_locked`. What was refused left
    nothing behind; what was `Unreachable`, or `TryLater` with 5xx, may have.
    """

    @property
    def scope(self) -> Scope: ...

    def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        """Ask for one response. `body` is the request exactly as it travels, without `stream`."""
        ...

    async def retrieve(self, response_id: str) -> Response: ...

    async def delete(self, response_id: str) -> None: ...

    async def input_items(
        self, response_id: str, *, after: str | None = None, limit: int = 20, order: Order = "desc"
    ) -> Page:
        """The whole context of a response without its own output, as `Page`s of 1 to 100."""
        ...

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        """A new conversation with at most 20 items in it; returns its resource."""
        ...

    async def conversation(self, conversation_id: str) -> Mapping[str, Json]: ...

    async def update_conversation(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]: ...

    async def delete_conversation(self, conversation_id: str) -> None: ...

    async def add_items(self, conversation_id: str, items: Sequence[Item]) -> Page:
        """Append at most 20 items; returns them with the ids they were given."""
        ...

    async def conversation_items(
        self, conversation_id: str, *, after: str | None = None, limit: int = 20, order: Order = "desc"
    ) -> Page: ...

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item: ...

    async def delete_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        """Take one item out; returns the conversation."""
        ...

    async def count(self, body: Mapping[str, Json]) -> int | None:
        """Exact input tokens of a request, or None where the endpoint cannot tell."""
        ...

    async def warm(self, model: str) -> None:
        """Do now what the first request for `model` would have to wait for; nothing is sent.

        raises:  what that first request would raise
        """
        ...

    async def aclose(self) -> None: ...
