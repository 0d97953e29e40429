"""The endpoint of a remote server.

Bodies are sent and parsed as plain JSON: unknown fields are kept. The first event of a response must confirm the
requested state, otherwise StateIgnored is raised before any output is shown.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.endpoints.base import (
    INPUT_TOKENS_FIELDS,
    HttpRequest,
    IsSteered,
    ItemPage,
    SortOrder,
    parse_conversation_id,
)
from convo.errors import ConvoError, EndpointFault, NotFound, RequestRefused, StateIgnored, StreamBroken, StreamCut
from convo.history.accumulator import SERVER_TERMINAL_EVENTS
from convo.history.call_ids import CallIdRenamer, unique_call_ids
from convo.history.items import MAX_ID_CHARS, Item, Json, Response, StreamEvent, is_item, is_valid_id, user_message
from convo.history.records import Scope
from convo.models.base import (
    ListedModels,
    check_provider_reachable,
    make_issuer_tag,
    parse_models,
    parse_token_count,
    untag_tagged_items,
)
from convo.models.errors import ErrorContext, fault_from_event
from convo.models.http import (
    OpenAIClientOptions,
    SSEClient,
    build_url_and_headers,
    import_packages,
    make_openai_sse_client,
)
from convo.models.limits import apply_idle_limit, limit_response_events
from convo.models.readers.responses import ResponsesReader

CreateResponse = Callable[[Mapping[str, Json]], AsyncGenerator[StreamEvent, None]]

SUCCESS_EVENTS = ("response.completed", "response.incomplete")


@dataclass(frozen=True)
class LastResponse:
    """The last response of a connection, not stored by the server: its id, and all items up to its end."""

    id: str
    items: Sequence[Item]


class ResendingConnection:
    """A `ResponsesConnection` over HTTP, which sends the items of the last response again."""

    def __init__(self, create: CreateResponse) -> None:
        self._create = create
        self._last: LastResponse | None = None

    async def create(
        self, body: Mapping[str, Json], *, is_steered: IsSteered | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Create one response, which always runs to its end.

        Raises RequestRefused for `generate: false`, which HTTP does not support.
        """
        if body.get("generate") is False:
            raise RequestRefused("Unsupported parameter: 'generate': it is not supported over HTTP", param="generate")
        last_response = self._last if self._last and body.get("previous_response_id") == self._last.id else None
        items = [*(last_response.items if last_response else ()), *_to_items(body.get("input"))]
        try:
            async with aclosing(self._create(_to_resent_body(body, last_response, items))) as events:
                async for event in events:
                    response_event = _with_previous_response_id(event, last_response)
                    self._remember_response(response_event, body, last_response, items)
                    yield response_event
        except ConvoError:
            self._last = None if self._last is last_response else self._last
            raise

    def _remember_response(
        self, event: StreamEvent, body: Mapping[str, Json], last_response: LastResponse | None, items: Sequence[Item]
    ) -> None:
        """Keep a response that succeeded and is not stored; discard the last one after a continuation."""
        if event["type"] in SUCCESS_EVENTS and body.get("store") is False:
            self._last = LastResponse(event["response"]["id"], [*items, *event["response"]["output"]])
        elif event["type"] in (*SUCCESS_EVENTS, "response.failed") and self._last is last_response:
            self._last = None


def _to_resent_body(
    body: Mapping[str, Json], last_response: LastResponse | None, items: Sequence[Item]
) -> Mapping[str, Json]:
    if last_response is None:
        return body
    return {**{name: value for name, value in body.items() if name != "previous_response_id"}, "input": list(items)}


def _with_previous_response_id(event: StreamEvent, last_response: LastResponse | None) -> StreamEvent:
    response = event.get("response")
    if last_response is None or not isinstance(response, Mapping):
        return event
    return {**event, "response": {**response, "previous_response_id": last_response.id}}


def _to_items(value: Json) -> Sequence[Item]:
    return [user_message(value)] if isinstance(value, str) else list(value or ())


NO_COUNT_STATUSES = (404, 405)
"""The statuses of a server that cannot count tokens."""


class RemoteEndpoint:
    """One account at one server."""

    def __init__(self, options: OpenAIClientOptions, *, limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS) -> None:
        self._options, self._limits = options, limits
        self._sse_client: SSEClient | None = None

    @property
    def scope(self) -> Scope:
        return self._options.scope

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self._check_body(body)
        renamer = _make_call_renamer(body)
        body = self._prepare_body(body)
        conversation = str(parse_conversation_id(body.get("conversation")) or "")
        error_context, is_honoured = self._error_context(body), False
        raw_events = self._stream_json("/responses", {**body, "stream": True}, error_context)
        events = limit_response_events(
            self._stream_response(raw_events, error_context, ("conversation", conversation)), self._limits, renamer
        )
        async with aclosing(events):
            async for event in events:
                is_honoured = is_honoured or is_state_honoured(body, event)
                yield event

    def build_http_request(self, body: Mapping[str, Json]) -> HttpRequest:
        self._check_body(body)
        url, headers = build_url_and_headers(self._options, "/responses")
        return HttpRequest(url, {**self._prepare_body(body), "stream": True}, headers)

    def connect(self) -> ResendingConnection:
        return ResendingConnection(self.create)

    async def retrieve(self, response_id: str) -> Response:
        return await self._fetch_object(response_path(response_id), ("response", response_id))

    async def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[StreamEvent, None]:
        error_context = self._error_context({})
        query = {"stream": "true", **_without_none(starting_after=after)}
        raw_events = self._stream_json(response_path(response_id), None, error_context, query)
        events = limit_response_events(
            self._stream_response(raw_events, error_context, ("response", response_id), is_whole=after is None),
            self._limits,
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def cancel(self, response_id: str) -> Response:
        path = f"{response_path(response_id)}/cancel"
        return await self._fetch_object(path, ("response", response_id), method="POST")

    async def compact(self, body: Mapping[str, Json]) -> Mapping[str, Json]:
        response = await self._fetch("/responses/compact", body=self._prepare_body(body))
        if not isinstance(response, Mapping):
            raise StreamBroken(f"{self._options.provider} sent a response that is not a JSON object")
        return response

    async def delete(self, response_id: str) -> None:
        await self._fetch(response_path(response_id), ("response", response_id), method="DELETE")

    async def list_input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage:
        path, query = f"{response_path(response_id)}/input_items", _page_query(after, before, limit, order)
        return _parse_page(await self._fetch_object(path, ("response", response_id), query=query))

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        body = _without_none(
            items=self._restore_own_items(items) or None, metadata=dict(metadata) if metadata else None
        )
        return await self._fetch_object("/conversations", ("conversation", ""), body=body)

    async def retrieve_conversation(self, conversation_id: str) -> Mapping[str, Json]:
        return await self._fetch_object(conversation_path(conversation_id), ("conversation", conversation_id))

    async def update_conversation(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]:
        return await self._fetch_object(
            conversation_path(conversation_id),
            ("conversation", conversation_id),
            body={"metadata": dict(metadata)},
        )

    async def delete_conversation(self, conversation_id: str) -> None:
        path = conversation_path(conversation_id)
        await self._fetch(path, ("conversation", conversation_id), method="DELETE")

    async def add_conversation_items(self, conversation_id: str, items: Sequence[Item]) -> ItemPage:
        path, body = f"{conversation_path(conversation_id)}/items", {"items": self._restore_own_items(items)}
        return _parse_page(await self._fetch_object(path, ("conversation", conversation_id), body=body))

    async def list_conversation_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: SortOrder = "desc",
    ) -> ItemPage:
        path, query = f"{conversation_path(conversation_id)}/items", _page_query(after, before, limit, order)
        return _parse_page(await self._fetch_object(path, ("conversation", conversation_id), query=query))

    async def retrieve_conversation_item(self, conversation_id: str, item_id: str) -> Item:
        path = conversation_item_path(conversation_id, item_id)
        return await self._fetch_object(path, ("conversation", conversation_id), ("item", item_id))

    async def delete_conversation_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        path = conversation_item_path(conversation_id, item_id)
        return await self._fetch_object(path, ("conversation", conversation_id), ("item", item_id), method="DELETE")

    async def count_input_tokens(self, body: Mapping[str, Json]) -> int | None:
        request_body = {name: value for name, value in self._prepare_body(body).items() if name in INPUT_TOKENS_FIELDS}
        try:
            response = await self._fetch("/responses/input_tokens", body=request_body)
        except EndpointFault as fault:
            if fault.status in NO_COUNT_STATUSES:
                return None
            raise
        return parse_token_count(response)

    async def list_models(self) -> ListedModels:
        """List the models, for `convo.models.base`."""
        response = await self._connect_sse().request_json("/models", None, self._error_context({}))
        return parse_models(response, self._options.provider)

    async def check_request(self, body: Mapping[str, Json]) -> None:
        self._check_body(body)
        await check_provider_reachable(self, self._options.provider)

    async def warm(self, model: str) -> None:
        await import_packages(is_served=False)
        self._connect_sse()

    async def aclose(self) -> None:
        if self._sse_client is not None:
            await self._sse_client.aclose()

    # -- requests and responses -----------------------------------------------------------------

    async def _stream_response(
        self,
        raw_events: AsyncGenerator[Json, None],
        error_context: ErrorContext,
        resource: tuple[str, str],
        *,
        is_whole: bool = True,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events up to the terminal event.

        Raises NotFound for `resource`, StreamBroken if the stream ends early.
        """
        is_started = False
        reader = ResponsesReader(is_whole=is_whole)
        async with aclosing(self._check_events(raw_events, reader, error_context, resource)) as events:
            async for event in events:
                if event["type"] == "error":
                    raise fault_from_event(event, error_context, is_streaming=is_started)
                is_started = True
                yield event
                if event["type"] in SERVER_TERMINAL_EVENTS:
                    return
        kind = StreamCut if is_started else StreamBroken
        raise kind(f"{error_context.provider} ended the stream before the response was complete")

    async def _check_events(
        self,
        raw_events: AsyncGenerator[Json, None],
        reader: ResponsesReader,
        error_context: ErrorContext,
        resource: tuple[str, str],
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events as `reader` reads them, including error events, after a check of their ids."""
        is_started = False
        try:
            async with aclosing(raw_events) as values:
                async for value in values:
                    is_started = True
                    for event in reader.read(value):
                        check_response_ids(event.get("response"), error_context.provider)
                        yield event
        except EndpointFault as fault:
            if is_started:
                raise
            raise _to_not_found(fault, resource) or fault from fault.__cause__

    async def _fetch_object(
        self,
        path: str,
        *resources: tuple[str, str],
        body: Mapping[str, Json] | None = None,
        query: Mapping[str, Any] = MappingProxyType({}),
        method: str | None = None,
    ) -> Mapping[str, Json]:
        """Return the JSON object of a response.

        Raises the errors of `_fetch`, and StreamBroken if the body is not an object or has a malformed id.
        """
        fetched = await self._fetch(path, *resources, body=body, query=query, method=method)
        if not isinstance(fetched, dict):
            raise StreamBroken(f"{self._options.provider} sent a response that is not a JSON object")
        check_response_ids(fetched, self._options.provider)
        output = fetched.get("output")
        if isinstance(output, list) and not all(map(is_item, output)):
            raise StreamBroken(f"{self._options.provider} sent an output item that has no type or is not an object")
        return fetched

    async def _fetch(
        self,
        path: str,
        *resources: tuple[str, str],
        body: Mapping[str, Json] | None = None,
        query: Mapping[str, Any] = MappingProxyType({}),
        method: str | None = None,
    ) -> Json:
        """Return the body of a response. Raises NotFound for the (kind, handle) of `resources` that is unknown."""
        request = self._connect_sse().request_json(path, body, self._error_context(body or {}), query, method=method)
        try:
            return await apply_idle_limit(request, self._limits)
        except EndpointFault as fault:
            raise _to_not_found(fault, *resources) or fault from fault.__cause__

    def _check_body(self, body: Mapping[str, Json]) -> None:
        """Raise RequestRefused for a malformed id, Unsupported for a field that the model refuses."""
        check_request_ids(body)
        self._options.check_fields(str(body.get("model")), body)

    def _prepare_body(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Prepare the items of a body: ids of calls that the server accepts, no tags of convo, no foreign reasoning."""
        items = body.get("input")
        if not isinstance(items, list):
            return dict(body)
        return {**body, "input": self._restore_own_items(unique_call_ids(items), str(body.get("model")))}

    def _restore_own_items(self, items: Sequence[Item], model: str = "") -> list[Item]:
        account = self._options
        issuer_tag = make_issuer_tag(account.provider, model, account.base_url, account.organisation, account.project)
        return untag_tagged_items(items, issuer_tag, account.provider)

    def _error_context(self, body: Mapping[str, Json]) -> ErrorContext:
        return self._options.make_error_context(body)

    def _stream_json(
        self,
        path: str,
        body: Mapping[str, Json] | None,
        error_context: ErrorContext,
        query: Mapping[str, Any] = MappingProxyType({}),
    ) -> AsyncGenerator[Json, None]:
        return self._connect_sse().stream_json(path, body, error_context, query, strict=True)

    def _connect_sse(self) -> SSEClient:
        if self._sse_client is None:
            self._sse_client = make_openai_sse_client(self._options, self._limits)
        return self._sse_client


def _make_call_renamer(body: Mapping[str, Json]) -> CallIdRenamer | None:
    """Return the renamer for the answer; None if the server keeps it: the next request names its calls by its ids."""
    if body.get("store") is not False or body.get("conversation"):
        return None
    items = body.get("input")
    return CallIdRenamer(items if isinstance(items, list) else ())


def _to_not_found(fault: EndpointFault, *resource: tuple[str, str]) -> NotFound | None:
    """Find the (kind, handle) that a server does not know. A 404 that names none of them is about the URL."""
    message = fault.message.lower() if fault.status == 404 else ""
    by_handle = (candidate for candidate in resource if candidate[1] and candidate[1].lower() in message)
    by_kind = (candidate for candidate in resource if candidate[1] and candidate[0] in message)
    match = next(by_handle, None) or next(by_kind, None)
    return NotFound(*match) if match else None


def _without_none(**fields: Any) -> dict[str, Any]:
    """Drop the fields that are None, which a server may refuse."""
    return {name: value for name, value in fields.items() if value is not None}


def _page_query(after: str | None, before: str | None, limit: int, order: SortOrder) -> dict[str, Any]:
    return _without_none(after=after, before=before, limit=limit, order=order)


def _parse_page(resource: Mapping[str, Json]) -> ItemPage:
    """Return a page of items. Raises StreamBroken for a value that is not an item."""
    items = resource.get("data") or ()
    if not isinstance(items, list | tuple) or not all(map(is_item, items)):
        raise StreamBroken("the endpoint listed an item that has no type or is not an object")
    return ItemPage(items, has_more=bool(resource.get("has_more")))


def is_state_honoured(body: Mapping[str, Json], event: StreamEvent) -> bool:
    """Whether the event confirms that the server continues from the requested state.

    Returns False as long as no event is about it, as for a keep-alive. Raises StateIgnored if the server continues from
    another state, or responds without naming one.
    """
    previous, conversation = body.get("previous_response_id"), parse_conversation_id(body.get("conversation"))
    # Gateways that keep no state answer a continuation with 200, and without the history.
    if not previous and not conversation:
        return True
    response = event.get("response")
    if not isinstance(response, Mapping):
        if str(event["type"]).startswith("response."):
            raise _state_ignored_error(previous or conversation)
        return False
    if previous and response.get("previous_response_id") != previous:
        raise _state_ignored_error(previous)
    if conversation and parse_conversation_id(response.get("conversation")) != conversation:
        raise _state_ignored_error(conversation)
    return True


def response_path(response_id: str) -> str:
    return f"/responses/{to_url_part('response', response_id)}"


def conversation_path(conversation_id: str) -> str:
    return f"/conversations/{to_url_part('conversation', conversation_id)}"


def conversation_item_path(conversation_id: str, item_id: str) -> str:
    return f"{conversation_path(conversation_id)}/items/{to_url_part('item', item_id)}"


def to_url_part(kind: str, handle: str) -> str:
    """Return an id as a part of a URL. Raises NotFound if it is malformed, since no server knows it."""
    if not is_valid_id(handle):
        raise NotFound(kind, handle if len(handle) <= MAX_ID_CHARS else f"{handle[:64]}...")
    return quote(handle, safe="")


def check_request_ids(body: Mapping[str, Json]) -> None:
    """Check the ids that a request continues from. Raises RequestRefused."""
    for name, value in (
        ("previous_response_id", body.get("previous_response_id")),
        ("conversation", parse_conversation_id(body.get("conversation"))),
    ):
        if value is not None and not is_valid_id(value):
            raise RequestRefused(f"{name} {_printable_start(value)!r} is not an id", code="invalid_value", param=name)


def check_response_ids(resource: Json, provider: str) -> None:
    """Check the ids in a server's response, conversation or item, which become handles of later requests.

    Raises StreamBroken for a malformed id.
    """
    if not isinstance(resource, Mapping):
        return
    output = resource.get("output")
    items = output if isinstance(output, list) else ()
    ids = (resource.get("id"), parse_conversation_id(resource.get("conversation")), *(_item_id(item) for item in items))
    malformed = next((value for value in ids if value is not None and value != "" and not is_valid_id(value)), None)
    if malformed is not None:
        raise StreamBroken(f"{provider} sent the malformed id {_printable_start(malformed)!r}")


def _item_id(item: Json) -> Json:
    return item.get("id") if isinstance(item, Mapping) else None


def _printable_start(value: Json) -> str:
    """Return the first 64 characters of `value`, unprintable ones replaced by "?"."""
    return "".join(char if char.isprintable() else "?" for char in str(value)[:64])


def _state_ignored_error(handle: Json) -> StateIgnored:
    return StateIgnored(f"the endpoint responded without the history of {handle}")
