"""What an endpoint is, to everything above it.

It is whoever may hold a chain or a conversation: a server behind the openai package, or convo
itself over a store and models. Both promise the same, down to the errors, and one set of tests
holds them to it; so nothing above asks which one it has.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from convo.history import Scope
from convo.items import Event, Item, Json, Response

Order = Literal["asc", "desc"]

COUNTED = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "conversation", "tools", "tool_choice", "text"),
        *("reasoning", "parallel_tool_calls", "truncation", "personality"),
    }
)
"""The fields of a request that its tokens depend on; a request to be counted has no others."""

INCLUDABLE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
"""What a reader may ask to see as well. Items are shown with everything that is kept, so each is honoured."""


LIMIT = "limit"
"""The field of a last event, beside its response, that names a limit of ours which ended the answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, as the API pages it."""

    items: Sequence[Item]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Wire:
    """A request as it goes over a network, without any secret.

    body:     the JSON that is posted
    headers:  what it needs beside its content type; `{key}` stands where the key goes
    """

    url: str
    body: Mapping[str, Json]
    headers: Mapping[str, str]


class Connection(Protocol):
    """One connection of one client: a chain of its own that needs no store.

    What is asked with `store=false` can be gone on from by the next request of the same connection,
    and by nobody else: only its last response is held, and a continuation that fails lets go of it.
    Requests follow one another; the one before has been read to its end, or closed.
    """

    def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        """As `Endpoint.create`; `generate: false` in `body` prepares state and asks no model."""
        ...


class Endpoint(Protocol):
    """Speaks Responses and Conversations.

    An endpoint promises: `create` is always a stream of wire events with contiguous sequence
    numbers that ends with `response.completed`, `.incomplete` or `.failed` carrying the whole
    response; what it acknowledges is durable before that event; foreign errors come as
    `convo.errors`; it retries nothing by itself. Closing the generator stops the answer, unless
    it was asked for with `background`.
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
        """Ask for one response.

        body:  the request as it travels. `stream: false` says that nobody is shown the events as they
               come: what goes wrong at the end is then raised, too
        """
        ...

    def wire(self, body: Mapping[str, Json]) -> Wire | None:
        """What `create` would send; None where nothing leaves this process. Nothing is sent."""
        ...

    def connect(self) -> "Connection":
        """A connection over which turns follow one another; see `Connection`."""
        ...

    async def retrieve(self, response_id: str) -> Response: ...

    def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[Event, None]:
        """The events of a background response, from the beginning or behind sequence number `after`.

        It ends with the terminal event, which may still have to come, as the events of `create` do;
        for one that was cancelled with `response.incomplete`, whose response says so. Nothing is told
        to whoever was told the end already. Closing the generator stops nothing.

        raises:  NotFound;  Refused  it was not asked for in the background, or its events are no longer kept
        """
        ...

    async def cancel(self, response_id: str) -> Response:
        """Stop a background response, wherever it runs; one that has ended stays as it is.

        raises:  NotFound;  Refused  it was not asked for in the background
        """
        ...

    async def compact(self, body: Mapping[str, Json]) -> Mapping[str, Json]:
        """A smaller window for a history: a `response.compaction` resource whose `output` is the next input.

        body:  the request as it travels: model, input, instructions, previous_response_id, ...
        """
        ...

    async def delete(self, response_id: str) -> None: ...

    async def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        """The whole context of a response without its own output, as `Page`s of 1 to 100.

        after, before:  ids between which, in the order asked for, the page lies
        """
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
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page: ...

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item: ...

    async def delete_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        """Take one item out; returns the conversation."""
        ...

    async def count(self, body: Mapping[str, Json]) -> int | None:
        """Exact input tokens of a request, or None where the endpoint cannot tell."""
        ...

    async def check_request(self, body: Mapping[str, Json]) -> None:
        """Refuse now what `create` would refuse, as far as that is known without an answer; nothing is billed.

        It is known whether the model takes such a request, and whether the server answers and takes the key. It is
        not known whether the server has the model, room for the input, or any quota left.

        raises:  Unsupported, ModelMissing, Unreadable, Unreachable, KeyRefused, Refused
        """
        ...

    async def warm(self, model: str) -> None:
        """Do now what the first request for `model` would have to wait for; nothing is sent.

        raises:  what that first request would raise
        """
        ...

    async def aclose(self) -> None: ...


class Service(Protocol):
    """The endpoints of all tenants of one store, as long as a server runs."""

    def of(self, tenant: str) -> Endpoint:
        """The endpoint that holds this tenant's state; always the same one."""
        ...

    async def models(self) -> Sequence[Mapping[str, Json]]:
        """What can be asked for by name now, as resources of `GET /models`."""
        ...

    async def check(self) -> None:
        """raises: ConvoError  a request would not be answered: the store cannot be reached"""
        ...

    async def aclose(self, grace_s: float = 0.0) -> None:
        """Begin nothing, let what runs finish for `grace_s` seconds, mark what did not, and let go."""
        ...
