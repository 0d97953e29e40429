"""The endpoint contract: the Responses and Conversations API as methods.

An endpoint stores chains and conversations: a remote server, or convo itself over a store and models. Both behave the
same, including errors, and pass the same tests, so callers need not know which one they use. Errors are converted to
the API's error object here.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal, NamedTuple, Protocol, TypeAlias

from convo.errors import ConvoError, EndpointFault, KeyRefused, NotFound, StoreFault, StreamBroken, TryLater
from convo.history.items import Item, Json, Response, StreamEvent
from convo.history.records import Scope
from convo.models.request_fields import COUNT_FIELDS
from convo.runtime import report_progress

SortOrder = Literal["asc", "desc"]

INPUT_TOKENS_FIELDS = COUNT_FIELDS | {"personality"}
"""The fields of a request to count tokens; convo itself cannot count those of a personality."""

NOT_STORED_ERROR: Mapping[str, Json] = {"code": "server_error", "message": "The server could not store this response."}
"""The error of a response that the model completed and the store refused."""

LIMIT_FIELD = "limit"
"""A field of a terminal event, beside `response`, with the name of a limit of convo that ended the response."""


class ItemPage(NamedTuple):
    """One page of a list."""

    items: Sequence[Item]
    has_more: bool


class FilePage(NamedTuple):
    """One page of file resources."""

    files: Sequence[Mapping[str, Json]]
    has_more: bool


class FileStorage(Protocol):
    """The uploaded files of one tenant, as resources of the Files API. Each method raises RequestRefused."""

    async def create(
        self, name: str, content: bytes, media_type: str, purpose: str, expires_after_s: int | None = None
    ) -> Mapping[str, Json]:
        """Store a file; `media_type` may be empty."""
        ...

    async def list_files(
        self, *, purpose: str | None = None, after: str | None = None, limit: int = 10_000, order: SortOrder = "desc"
    ) -> FilePage: ...

    async def retrieve(self, file_id: str) -> Mapping[str, Json]: ...

    async def read(self, file_id: str) -> tuple[str, bytes]:
        """Return the name and the content of a file."""
        ...

    async def delete(self, file_id: str) -> None: ...


class HttpRequest(NamedTuple):
    """A request as it is sent, without secrets.

    body:     the JSON body of the POST
    headers:  the headers besides the content type; `{key}` is a placeholder for the key
    """

    url: str
    body: Mapping[str, Json]
    headers: Mapping[str, str]


IsSteered: TypeAlias = Callable[[], bool]
"""Returns whether further user input waits for the end of the response."""

STEERED_REASON = "steered"
"""The reason of a response that ended early because further user input waits for its end."""


class ResponsesConnection(Protocol):
    """One connection of one client, with a chain of its own that needs no store.

    A response with `store=false` can be continued by the next request of the same connection only. Only the last such
    response is kept, and a failed continuation discards it. Requests are sequential: the previous stream is read to its
    end, or closed, before the next request.
    """

    def create(
        self, body: Mapping[str, Json], *, is_steered: IsSteered | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Like `Endpoint.create`; with `generate: false` in `body`, prepare the state without a model call.

        is_steered:  asked between output items: once it is true, the response may end there as incomplete, with the
                     reason "steered"
        """
        ...


class Endpoint(Protocol):
    """The Responses and Conversations API.

    `create` always streams wire events with contiguous sequence numbers; the last one is `response.completed`,
    `.incomplete` or `.failed` and contains the whole response. State that this event acknowledges is durable before it
    is sent. Errors of providers and packages are mapped to `convo.errors`. An endpoint never retries. Closing the
    generator cancels the response, unless the request had `background`. The caller reads the generator to its end or
    closes it.

    Errors are the same for every endpoint. An unknown id of a response, conversation or item raises NotFound in every
    method, except for an unknown `previous_response_id` in a request, which raises RequestRefused with
    `previous_response_not_found`. An invalid request raises RequestRefused with the API's `code` and `param`. A
    conversation with another open request raises TryLater with `conversation_locked`. A refused request leaves no
    state; one that raised Unreachable, or TryLater with a 5xx status, may leave some.
    """

    @property
    def scope(self) -> Scope: ...

    def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        """Create one response.

        body:  the request. With `stream: false` the caller shows no events, so an error at the end of the stream is
               raised as well
        """
        ...

    def build_http_request(self, body: Mapping[str, Json]) -> HttpRequest | None:
        """Build the request that `create` would send; None for an endpoint in this process. Nothing is sent."""
        ...

    def connect(self) -> ResponsesConnection:
        """Open a connection for consecutive turns; see `ResponsesConnection`."""
        ...

    async def retrieve(self, response_id: str) -> Response: ...

    def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[StreamEvent, None]:
        """Stream the events of a background response, from the start or after sequence number `after`.

        The stream waits for the terminal event and ends with it, as that of `create` does. A cancelled response ends
        with `response.incomplete`, whose response has the status. If `after` is the terminal event, the stream is
        empty. Closing the generator does not cancel the response.

        Raises NotFound, or RequestRefused if the response was not created with `background` or its events have expired.
        """
        ...

    async def cancel(self, response_id: str) -> Response:
        """Cancel a background response in any process; one that has ended is returned unchanged.

        Raises NotFound, or RequestRefused if the response was not created with `background`.
        """
        ...

    async def compact(self, body: Mapping[str, Json]) -> Mapping[str, Json]:
        """Compact a history; returns a `response.compaction` resource whose `output` is the next input.

        body:  the request: model, input, instructions, previous_response_id, ...
        """
        ...

    async def delete(self, response_id: str) -> None: ...

    async def list_input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage:
        """List the whole context of a response without its output, in pages of 1 to 100 items.

        after, before:  ids that bound the page, in the requested order
        """
        ...

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        """Create a conversation with at most 20 items; returns its resource."""
        ...

    async def retrieve_conversation(self, conversation_id: str) -> Mapping[str, Json]: ...

    async def update_conversation(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]: ...

    async def delete_conversation(self, conversation_id: str) -> None: ...

    async def add_conversation_items(self, conversation_id: str, items: Sequence[Item]) -> ItemPage:
        """Append at most 20 items; returns them with their new ids."""
        ...

    async def list_conversation_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage: ...

    async def retrieve_conversation_item(self, conversation_id: str, item_id: str) -> Item: ...

    async def delete_conversation_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        """Delete an item; returns the conversation."""
        ...

    async def count_input_tokens(self, body: Mapping[str, Json]) -> int | None:
        """Return the exact number of input tokens of a request; None if the endpoint cannot count them."""
        ...

    async def check_request(self, body: Mapping[str, Json]) -> None:
        """Raise the errors of `create` that are known without a response; nothing is billed.

        Checked: the model supports the request, the server is reachable and accepts the key. Not checked: the server
        has the model, the input fits the context window, the quota is sufficient.

        Raises Unsupported, ModelMissing, Unreadable, Unreachable, KeyRefused or RequestRefused.
        """
        ...

    async def warm(self, model: str) -> None:
        """Do the preparation that the first request to `model` would wait for; send no request.

        Raises the errors that this first request would raise.
        """
        ...

    async def aclose(self) -> None: ...


class EndpointService(Protocol):
    """The endpoints of all tenants of one store, for the lifetime of a server."""

    def endpoint_for(self, tenant: str) -> Endpoint:
        """Return the endpoint with this tenant's state; always the same object."""
        ...

    def files_for(self, tenant: str) -> FileStorage:
        """Return the uploaded files of this tenant."""
        ...

    async def list_models(self) -> Sequence[Mapping[str, Json]]:
        """List the models that can be requested, as resources of `GET /models`."""
        ...

    async def check_ready(self) -> None:
        """Check that requests can be served. Raises ConvoError if the store cannot be reached."""
        ...

    async def aclose(self, grace_s: float = 0.0) -> None:
        """Reject new work, wait up to `grace_s` seconds for open responses, mark unfinished ones as such, and close."""
        ...


SENTENCE_ENDINGS = (".", "!", "?")
CODES_SENT_AS_NULL = frozenset({"missing_api_key"})
"""Codes of convo for errors that the real API sends without a code."""
STORE_FAULT_MESSAGE = "The server cannot use its store now. Please retry in a few seconds"


def error_object(fault: ConvoError) -> dict[str, Json]:
    """Build the API's error object, which is sent with `fault.status`."""
    return {
        "message": _error_message(fault),
        "type": _error_type(fault),
        "param": getattr(fault, "param", None),
        "code": _error_code(fault),
    }


def error_event(fault: ConvoError, sequence_number: int) -> dict[str, Json]:
    """Build the event that ends a stream without a response.

    Clients read it in two ways: the specification nests the error, the openai package reads the fields beside `type`.
    The event contains both forms.
    """
    error = error_object(fault)
    flat = {name: error[name] for name in ("code", "message", "param")}
    return {"type": "error", "sequence_number": sequence_number, **flat, "error": error}


def _error_message(fault: ConvoError) -> str:
    """Return the message for a client. Details of the store are for the operator of the server only."""
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
    has_default_code = isinstance(fault, EndpointFault) and fault.code == type(fault).code
    return None if has_default_code and not isinstance(fault, KeyRefused) else fault.code


def parse_conversation_id(conversation: Json) -> Json:
    """Return the id of a conversation, which the API represents as an id or an object."""
    return conversation.get("id") if isinstance(conversation, Mapping) else conversation


PAGE_ITEMS = 100
"""Items per page: the API's maximum."""

MAX_LIST_ITEMS = 100_000
MAX_LIST_BYTES = 256 * 2**20
"""Limits of one list: more than the longest conversation, less than a machine's memory."""


async def iter_pages(fetch_page: Callable[[str | None], Awaitable[ItemPage]]) -> AsyncGenerator[ItemPage, None]:
    """Yield the pages of a list; `fetch_page` fetches the page after the item with an id.

    Raises StreamBroken if the list is endless or its items have no ids.
    """
    seen_ids: set[str] = set()
    size, last_id = 0, None
    while True:
        page = await fetch_page(last_id)
        size += len(json.dumps(list(page.items)))
        ids = [item.get("id") for item in page.items]
        # A server that ignores `after` sends its first page again and again.
        if not seen_ids.isdisjoint(ids) or len(seen_ids) + len(ids) > MAX_LIST_ITEMS or size > MAX_LIST_BYTES:
            raise StreamBroken("the server's list of items does not end", hint="check the provider's base_url")
        seen_ids.update(str(item_id) for item_id in ids)
        yield page
        if not (page.has_more and ids):
            return
        if not isinstance(ids[-1], str):
            raise StreamBroken("the server's list has items without ids", hint="check the provider's base_url")
        last_id = ids[-1]


async def list_all_items(fetch_page: Callable[[str | None], Awaitable[ItemPage]]) -> list[Item]:
    """Return all items of a list. Raises the errors of `iter_pages`."""
    async with aclosing(iter_pages(fetch_page)) as pages:
        items: list[Item] = []
        async for page in pages:
            items += page.items
            report_progress("items", len(items))
        return items
