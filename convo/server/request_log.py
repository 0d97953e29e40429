"""The requests to models of this server: those that run, and those that left no response in the store.

A running request is only in memory: waiting from the moment at which its body is read, streaming from the first event
or byte of its response. When it ends without a stored response or a recording, a row with its figures is written to
the store, within a second and together with others.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Literal, TypeAlias

from convo.endpoints.base import NOT_STORED_ERROR
from convo.errors import ConvoError, StoreFault
from convo.history.accumulator import DELTA_TARGETS, START_EVENTS, TERMINAL_EVENTS
from convo.history.items import Json, StreamEvent, is_valid_id, request_title, user_message
from convo.history.records import LinkStatus
from convo.recording.client import identify_client
from convo.server.http import CLIENT_CLOSED_STATUS, ERROR_STATUS, ClientDisconnected, HttpExchange
from convo.server.replicas import Replicas
from convo.stores.base import MessageChannel, Store
from convo.stores.unstored_requests import Retention, UnstoredRequest, clean_code, clip_text

WRITE_INTERVAL_S = 1.0
"""Seconds between two writes of rows."""

MAX_WAITING_ROWS = 1000
"""Rows of a tenant that wait to be written; while the store fails, the oldest are dropped."""

ModelApi = Literal["responses", "compact", "chat_completions", "messages", "embeddings"]
"""The APIs whose requests are listed."""


@dataclass(slots=True, eq=False)
class LiveRequest:
    """One request from its arrival to the end of its response.

    id:             "req_...", as in the response header `x-request-id`
    created_at:     seconds since 1970
    tenant:         "" until its key is accepted
    title:          the first words of its user message; "" if it is not stored
    body:           of the request; None until it is read
    response:       of the first event; None until then
    text:           of all items of the response so far; empty if it is not stored
    first_token_s:  seconds until the first event or byte of the response; None until then
    status:         of the ended response; None while it runs
    is_stored:      its response is in the store, or will be when it ends
    is_recorded:    it is recorded, so that it is in the store from its start
    usage:          of the response, in the form of the Responses API
    """

    id: str
    api: ModelApi
    created_at: float
    client: str | None
    elapsed_s: Callable[[], float]
    tenant: str = ""
    title: str = ""
    body: Mapping[str, Json] | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    response: Mapping[str, Json] | None = None
    text: StringIO = field(default_factory=lambda: StringIO(newline=""))
    first_token_s: float | None = None
    status: LinkStatus | None = None
    error_code: str | None = None
    is_stored: bool = False
    is_recorded: bool = False
    usage: Json = None

    @property
    def model(self) -> str:
        """The model that the request names; "" without one."""
        model = (self.response or {}).get("model") or (self.body or {}).get("model")
        return clip_text(model) if isinstance(model, str) else ""

    @property
    def has_stored_row(self) -> bool:
        """Whether the store has a row of it while it runs: of a recording, or of a background response."""
        return self.is_recorded or (self.body or {}).get("background") is True

    @property
    def will_be_stored(self) -> bool:
        """Whether its content will be in the store if it succeeds, as far as it is known."""
        if self.response is not None:
            return self.is_stored
        return self.api == "responses" and (self.body or {}).get("store") is not False

    def to_row(self) -> dict[str, Json]:
        """Return its row in the list of requests."""
        body = self.response or self.body or {}
        conversation, parent = body.get("conversation"), body.get("previous_response_id")
        conversation = conversation.get("id") if isinstance(conversation, dict) else conversation
        parent = parent if is_valid_id(parent) else None  # the body is not validated yet
        return {
            "id": str(self.response["id"]) if self.response else self.id,
            "request_id": self.id,
            "parent": parent,
            "title": self.title,
            "created_at": self.created_at,
            "model": self.model,
            "status": "in_progress",
            "phase": "waiting" if self.first_token_s is None else "streaming",
            "session": None,
            "client": self.client,
            **dict.fromkeys(("latency_s", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")),
            "first_token_s": self.first_token_s,
            "previous_response_id": parent,
            "conversation": conversation if is_valid_id(conversation) else None,
            "text": self.text.getvalue(),
            "is_stored": self.will_be_stored,
            "api": self.api,
        }

    def finish(self, exchange: HttpExchange) -> None:
        """Take the outcome from the response that was sent, unless an event or an error had it."""
        self.response_bytes = exchange.sent_bytes
        if exchange.status == CLIENT_CLOSED_STATUS or (exchange.connection.closed and self.status is None):
            self.status = "cancelled"
        elif exchange.error_code or exchange.status >= ERROR_STATUS:
            self.status, self.error_code = "failed", exchange.error_code or self.error_code
        elif self.status is None:
            self.status = "completed"

    def to_unstored(self) -> UnstoredRequest:
        """Return its row in the store, after its end."""
        details = (self.usage or {}).get("input_tokens_details") or {}
        return UnstoredRequest(
            id=self.id,
            created_at=self.created_at,
            api=self.api,
            model=self.model,
            status=self.status or "cancelled",
            code=clean_code(self.error_code),
            client=self.client,
            latency_s=self.elapsed_s(),
            first_token_s=self.first_token_s,
            request_bytes=self.request_bytes,
            response_bytes=self.response_bytes,
            input_tokens=(self.usage or {}).get("input_tokens"),
            cached_tokens=details.get("cached_tokens"),
            output_tokens=(self.usage or {}).get("output_tokens"),
        )


RecordEvents: TypeAlias = Callable[
    [LiveRequest, Mapping[str, Json], AsyncGenerator[StreamEvent, None]], AsyncGenerator[StreamEvent, None]
]
"""Returns the events of a response to this body, recorded if they must be."""


class RequestLog:
    """The running requests of all tenants with notification of their changes, and the rows that wait to be written.

    is_closed:  set at shutdown, so that waiting for a change ends
    """

    def __init__(self, store: Store, retention: Retention) -> None:
        self.is_closed = False
        self._store, self._retention = store, retention
        self._running: dict[str, dict[str, LiveRequest]] = {}
        self._waiting: dict[str, dict[object, UnstoredRequest]] = {}
        self._being_written: dict[str, Sequence[UnstoredRequest]] = {}
        self._revisions: dict[str, int] = {}
        self._changes: dict[str, asyncio.Future[None]] = {}
        self._replicas: Replicas | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    def share(self, messages: MessageChannel, server_id: str) -> None:
        """Send the running requests to the other servers of the database, and list theirs."""
        self._replicas = Replicas(messages, server_id, self._list_shared, self._notify)

    def _list_shared(self) -> Iterator[tuple[str, Mapping[str, Json], float]]:
        for tenant, requests in self._running.items():
            for request in requests.values():
                if not request.has_stored_row:
                    yield tenant, {**request.to_row(), "text": ""}, request.elapsed_s()

    # -- what the page reads ----------------------------------------------------------------------

    def running(self, tenant: str) -> list[Mapping[str, Json]]:
        """Return the rows of a tenant's running requests, oldest first, without those that the store has."""
        rows = [request.to_row() for request in self._running.get(tenant, {}).values() if not request.has_stored_row]
        return [*rows, *(self._replicas.running(tenant) if self._replicas else ())]

    def recent(self, tenant: str) -> Sequence[UnstoredRequest]:
        """Return a tenant's rows that are not written yet."""
        rows = [*self._being_written.get(tenant, ()), *self._waiting.get(tenant, {}).values()]
        return [*rows, *(self._replicas.recent(tenant) if self._replicas else ())]

    def revision(self, tenant: str) -> int:
        """Return a number that is increased when a request of this tenant starts, begins to stream, and ends."""
        return self._revisions.get(tenant, 0)

    def next_change(self, tenant: str) -> asyncio.Future[None]:
        """Return a future that is done when the revision increases, and at shutdown."""
        change = self._changes.get(tenant)
        if change is None or change.done():
            change = self._changes[tenant] = asyncio.get_running_loop().create_future()
        return change

    def close(self) -> None:
        self.is_closed = True
        for tenant in list(self._changes):
            self._notify(tenant)

    def _notify(self, tenant: str) -> None:
        self._revisions[tenant] = self.revision(tenant) + 1
        change = self._changes.pop(tenant, None)
        if change is not None and not change.done():
            change.set_result(None)

    # -- one request ------------------------------------------------------------------------------

    @contextmanager
    def track(self, request: LiveRequest) -> Iterator[None]:
        """Track a request for the block; with an error, or without a stored response, it leaves a row."""
        try:
            yield
        except ConvoError as error:
            request.status, request.error_code = "failed", error.code
            raise
        except (ClientDisconnected, asyncio.CancelledError):
            request.status = "cancelled"
            raise
        finally:
            self._end(request)

    def begin(self, request: LiveRequest, body: Mapping[str, Json], size: int) -> None:
        """List a request of an accepted key as running; its body was read."""
        request.body, request.request_bytes = body, size
        if request.will_be_stored:
            request.title = clip_text(input_title(body.get("input")))
        self._running.setdefault(request.tenant, {})[request.id] = request
        self._notify(request.tenant)
        if self._replicas:
            self._replicas.touch()

    def begin_response(self, request: LiveRequest, response: Mapping[str, Json] | None = None) -> None:
        """List a request as streaming, with the response of its first event if it has one."""
        if request.first_token_s is None:
            request.first_token_s, request.response = request.elapsed_s(), response
            self._notify(request.tenant)

    async def follow(
        self, request: LiveRequest, events: AsyncGenerator[StreamEvent, None]
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of the request's response, and keep its text so far if it is stored."""
        async with aclosing(events):
            async for event in events:
                if event["type"] in DELTA_TARGETS:
                    if request.is_stored:
                        request.text.write(event["delta"])
                elif event["type"] in START_EVENTS and request.response is None:
                    request.is_stored = event["response"].get("store") is not False
                    self.begin_response(request, event["response"])
                elif event["type"] == "response.output_item.added":
                    if request.text.tell():
                        request.text.write("\n")
                elif event["type"] in TERMINAL_EVENTS:
                    self._take_result(request, event["response"])
                yield event

    def _take_result(self, request: LiveRequest, response: Mapping[str, Json]) -> None:
        error = response.get("error") or {}
        request.status, request.usage = response.get("status"), response.get("usage")
        request.error_code = error.get("code")
        if error == NOT_STORED_ERROR:
            request.is_stored = False

    def _end(self, request: LiveRequest) -> None:
        running = self._running.get(request.tenant, {})
        was_listed = running.pop(request.id, None) is not None
        if not running:
            self._running.pop(request.tenant, None)
        row = None
        # A response that its client cancels before the first event is stored all the same.
        is_cancelled_response = request.status == "cancelled" and request.body is not None and request.will_be_stored
        if request.tenant and not (request.is_stored or request.is_recorded or is_cancelled_response):
            row = request.to_unstored()
            self.add(request.tenant, row)
        elif was_listed:
            self._notify(request.tenant)
        if self._replicas:
            self._replicas.end(request.tenant, request.id, row)

    def add(self, tenant: str, row: UnstoredRequest) -> None:
        """Keep a row until it is written, together with those of its kind."""
        self._keep(tenant, row)
        self._notify(tenant)
        self._start_timer()

    def _keep(self, tenant: str, row: UnstoredRequest) -> None:
        waiting = self._waiting.setdefault(tenant, {})
        known = waiting.get(row.kind)
        waiting[row.kind] = known.combine(row) if known else row
        if len(waiting) > MAX_WAITING_ROWS:
            del waiting[next(iter(waiting))]

    # -- writing ----------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        if self._timer is None and self._writer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_INTERVAL_S, self._start_writing)

    def _start_writing(self) -> None:
        self._timer, self._writer = None, asyncio.create_task(self._write())
        self._writer.add_done_callback(self._end_writing)

    def _end_writing(self, _: asyncio.Task[None]) -> None:
        self._writer = None
        if self._waiting and not self.is_closed:
            self._start_timer()

    async def _write(self) -> None:
        for tenant in list(self._waiting):
            rows = self._being_written[tenant] = list(self._waiting.pop(tenant).values())
            try:
                await self._store.for_tenant(tenant).add_unstored_requests(rows, self._retention)
            except StoreFault:  # the requests that need the store report it; the rows are written later
                for row in rows:
                    self._keep(tenant, row)
            finally:
                del self._being_written[tenant]

    async def aclose(self) -> None:
        """Write the waiting rows once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            await self._writer
        await self._write()
        if self._replicas:
            await self._replicas.aclose()


def is_continuation(row: Mapping[str, Json], link_ids: Container[str], conversation_id: str | None) -> bool:
    """Whether a running request continues one of these links, or this conversation."""
    if row["conversation"] is not None:
        return bool(row["conversation"] == conversation_id)
    return row["previous_response_id"] in link_ids


def input_title(request_input: Json) -> str:
    """Return the first words of the user message in the input of a request."""
    items = request_input if isinstance(request_input, list) else [user_message(str(request_input or ""))]
    return request_title(item for item in reversed(items) if isinstance(item, dict))


def name_client(headers: Mapping[bytes, bytes]) -> str | None:
    """Return name and version of the client that sent these headers: "codex 0.171.0"."""
    agent = headers.get(b"user-agent", b"").decode("latin-1")
    return " ".join(part for part in identify_client({"user-agent": agent}) if part) or None
