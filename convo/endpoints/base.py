"""The endpoint contract: the Responses and Conversations API as methods.

An endpoint stores chains and conversations: a remote server, or convo itself over a store and
models. Both keep the same promises, down to the errors, and pass the same tests, so callers
never ask which one they have. Errors are converted to the API's error object here.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, Protocol

from convo.errors import ConvoError, EndpointFault, KeyRefused, NotFound, StoreFault, StreamBroken, TryLater
from convo.history.items import Item, Json, Response, StreamEvent
from convo.history.records import Scope

SortOrder = Literal["asc", "desc"]

INPUT_TOKENS_FIELDS = frozenset(
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


LIMIT_FIELD = "limit"
"""The field of a last event, beside its response, that names a limit of ours which ended the answer."""


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Part of a list, as the API pages it."""

    items: Sequence[Item]
    has_more: bool


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it goes over a network, without any secret.

    body:     the JSON that is posted
    headers:  what it needs beside its content type; `{key}` stands where the key goes
    """

    url: str
    body: Mapping[str, Json]
    headers: Mapping[str, str]


class ResponsesConnection(Protocol):
    """One connection of one client: a chain of its own that needs no store.

    What is asked with `store=false` can be gone on from by the next request of the same connection,
    and by nobody else: only its last response is held, and a continuation that fails lets go of it.
    Requests follow one another; the one before has been read to its end, or closed.
    """

    def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
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

    def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        """Ask for one response.

        body:  the request as it travels. `stream: false` says that nobody is shown the events as they
               come: what goes wrong at the end is then raised, too
        """
        ...

    def wire(self, body: Mapping[str, Json]) -> HttpRequest | None:
        """What `create` would send; None where nothing leaves this process. Nothing is sent."""
        ...

    def connect(self) -> "ResponsesConnection":
        """A connection over which turns follow one another; see `ResponsesConnection`."""
        ...

    async def retrieve(self, response_id: str) -> Response: ...

    def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[StreamEvent, None]:
        """The events of a background response, from the beginning or behind sequence number `after`.

        It ends with the terminal event, which may still have to come, as the events of `create` do;
        for one that was cancelled with `response.incomplete`, whose response says so. Nothing is told
        to whoever was told the end already. Closing the generator stops nothing.

        raises:  NotFound;  RequestRefused  it was not asked for in the background, or its events are no longer kept
        """
        ...

    async def cancel(self, response_id: str) -> Response:
        """Stop a background response, wherever it runs; one that has ended stays as it is.

        raises:  NotFound;  RequestRefused  it was not asked for in the background
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
        order: SortOrder = "desc",
    ) -> ItemPage:
        """The whole context of a response without its own output, as `ItemPage`s of 1 to 100.

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

    async def add_items(self, conversation_id: str, items: Sequence[Item]) -> ItemPage:
        """Append at most 20 items; returns them with the ids they were given."""
        ...

    async def conversation_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage: ...

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

        raises:  Unsupported, ModelMissing, Unreadable, Unreachable, KeyRefused, RequestRefused
        """
        ...

    async def warm(self, model: str) -> None:
        """Do now what the first request for `model` would have to wait for; nothing is sent.

        raises:  what that first request would raise
        """
        ...

    async def aclose(self) -> None: ...


class EndpointService(Protocol):
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


SENTENCE_ENDINGS = (".", "!", "?")
CODES_SENT_AS_NULL = frozenset({"missing_api_key"})
"""Codes of ours for errors that the real API sends without one."""
STORE_FAULT_MESSAGE = "The server cannot use its store now. Please retry in a few seconds"


def error_object(fault: ConvoError) -> dict[str, Json]:
    """What stands under "error" in an answer with `fault.status`."""
    return {
        "message": _error_message(fault),
        "type": _error_type(fault),
        "param": getattr(fault, "param", None),
        "code": _error_code(fault),
    }


def error_event(fault: ConvoError, sequence_number: int) -> dict[str, Json]:
    """The event that ends a stream which had no response to fail.

    Clients read it in two ways: the specification nests the error, the openai package reads the
    fields beside `type`. One object carries both.
    """
    error = error_object(fault)
    flat = {name: error[name] for name in ("code", "message", "param")}
    return {"type": "error", "sequence_number": sequence_number, **flat, "error": error}


def _error_message(fault: ConvoError) -> str:
    """What a client is told; where the store is, and what is wrong with it, is for whoever runs the server."""
    message = STORE_FAULT_MESSAGE if isinstance(fault, StoreFault) else fault.message
    if isinstance(fault, NotFound):
        message = f"{fault.kind.capitalize()} with id '{fault.handle}' not found"
    return message if message.endswith(SENTENCE_ENDINGS) else f"{message}."


def _error_type(fault: ConvoError) -> str:
    if isinstance(fault, TryLater) and fault.status == 429:
        return "requests" if fault.code == "rate_limit_exceeded" else "rate_limit_error"
    return "invalid_request_error" if fault.status < 500 else "server_error"


def _error_code(fault: ConvoError) -> str | None:
    if isinstance(fault, NotFound) or fault.code in CODES_SENT_AS_NULL:
        return None
    named = isinstance(fault, EndpointFault) and fault.code == type(fault).code
    return None if named and not isinstance(fault, KeyRefused) else fault.code


PAGE_ITEMS = 100
"""Items a page: the most that the API gives."""

MAX_LIST_ITEMS = 100_000
MAX_LIST_BYTES = 256 * 2**20
"""Of one list: more than the longest conversation, and less than a machine's memory."""


async def iter_pages(page_after: Callable[[str | None], Awaitable[ItemPage]]) -> AsyncGenerator[ItemPage, None]:
    """The pages of a list; `page_after` asks for the page behind the item with this id.

    raises:  StreamBroken  the list does not end, or cannot be paged
    """
    seen: set[str] = set()
    size, last = 0, None
    while True:
        page = await page_after(last)
        size += len(json.dumps(list(page.items)))
        ids = [item.get("id") for item in page.items]
        if not seen.isdisjoint(ids) or len(seen) + len(ids) > MAX_LIST_ITEMS or size > MAX_LIST_BYTES:
            raise StreamBroken("the server lists items without an end", hint="check the provider's base_url")
        seen.update(str(one) for one in ids)
        yield page
        if not (page.has_more and ids):
            return
        if not isinstance(ids[-1], str):
            raise StreamBroken("the server lists items without ids", hint="check the provider's base_url")
        last = ids[-1]


async def list_all_items(page_after: Callable[[str | None], Awaitable[ItemPage]]) -> list[Item]:
    """All items of a list. raises: as `iter_pages`"""
    async with aclosing(iter_pages(page_after)) as listed:
        return [item async for page in listed for item in page.items]
