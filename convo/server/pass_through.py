"""Pass a request through to its model's provider: chat completions, embeddings, Anthropic's Messages.

The request keeps its bytes, except for the model's name; the response keeps its status and its bytes. Only a recording
(`convo.server.recording`) stores them, from a `PassedExchange`, which has the whole request and a bounded copy of the
response.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from convo.errors import ConvoError
from convo.history.items import Json
from convo.models.pass_through import PASSED_REQUEST_HEADERS, PassThroughApi, UpstreamResponse
from convo.server import errors
from convo.server.http import ERROR_STATUS, FINAL_SEND_TIMEOUT_S, HttpExchange, serialize_strict_json
from convo.server.sse import CancelOnDisconnect, StreamMetrics

MAX_COPY_BYTES = 8 * 1024 * 1024
"""Bytes of a response that are kept for the recording."""


class UpstreamClient(Protocol):
    """Sends requests to one provider; see `convo.models.pass_through`."""

    def send(
        self,
        api: PassThroughApi,
        content: bytes,
        model: str,
        *,
        is_streamed: bool,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> AbstractAsyncContextManager[UpstreamResponse]: ...


class PassThroughOpener(Protocol):
    """Finds the provider of a model."""

    def open_pass_through(self, api: PassThroughApi, name: str) -> tuple[UpstreamClient, str]:
        """Return the client for the model `name`, and the provider's own name for it.

        Raises RequestRefused for an unknown model, Unsupported if its provider does not have this API.
        """
        ...


@dataclass(slots=True)
class PassedExchange:
    """One request that is passed through, and its response so far.

    request_body:     the bytes of the client
    request:          the same, parsed
    query:            query parameters, which are passed on
    response_status:  of the provider; 0 until it has responded
    response_body:    the first `MAX_COPY_BYTES` bytes that the client was sent, if `keeps_response`
    response_bytes:   bytes that the client was sent
    first_byte_s:     seconds from the request to the first bytes of the response; None without one
    usage:            token counts in the form of the Responses API; None if there are none
    is_complete:      the whole response was sent
    error:            the reason why there is no response, or why it is incomplete
    error_code:       of the provider's error response; None without one
    before_response:  awaited before the first bytes of the response are sent on
    on_first_byte:    called when the first bytes of the response arrive
    """

    api: PassThroughApi
    request_body: bytes
    request: Mapping[str, Json]
    query: Mapping[str, Any]
    keeps_response: bool = False
    response_status: int = 0
    response_headers: Mapping[str, str] = field(default_factory=dict)
    response_body: bytearray = field(default_factory=bytearray)
    response_bytes: int = 0
    first_byte_s: float | None = None
    usage: Json = None
    is_complete: bool = False
    error: str | None = None
    error_code: str | None = None
    before_response: Callable[[], Awaitable[None]] | None = None
    on_first_byte: Callable[[], None] | None = None

    @property
    def model(self) -> str:
        """The name in the request. Raises RequestRefused if it has none."""
        name = self.request.get("model")
        if name is None:
            raise errors.missing_http_parameter_error("model")
        if not isinstance(name, str) or not name:
            raise errors.http_parameter_type_error("model", "a non-empty string")
        return name

    def add_chunk(self, chunk: bytes, after_s: float) -> None:
        """Add bytes that the client is sent, `after_s` seconds after its request."""
        if self.first_byte_s is None:
            self.first_byte_s = after_s
            if self.on_first_byte is not None:
                self.on_first_byte()
        self.response_bytes += len(chunk)
        if self.keeps_response:
            self.response_body += chunk[: MAX_COPY_BYTES - len(self.response_body)]


class PassThroughTracker:
    """The running requests that are passed through.

    They use the service's connections to the providers, so a shutdown waits for them before it closes the service.
    """

    def __init__(self) -> None:
        self._end_events: set[asyncio.Event] = set()
        self._timeouts: set[asyncio.Timeout] = set()
        self._is_grace_over = False

    @contextmanager
    def track(self) -> Iterator[None]:
        end_event = asyncio.Event()
        self._end_events.add(end_event)
        try:
            yield
        finally:
            self._end_events.remove(end_event)
            end_event.set()

    @asynccontextmanager
    async def stop_after_grace(self) -> AsyncIterator[None]:
        """Cancel the block when the grace time of a shutdown is over, and raise TryLater."""
        timeout = asyncio.timeout(0 if self._is_grace_over else None)
        self._timeouts.add(timeout)
        try:
            async with timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise errors.server_shutting_down_error() from None
        finally:
            self._timeouts.remove(timeout)

    async def aclose(self, grace_s: float) -> None:
        """Wait until every request has ended; stop those that still run after `grace_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._wait_until_ended()
        # Before the timeouts are set, for requests that begin from now on.
        self._is_grace_over = True
        for timeout in self._timeouts:
            timeout.reschedule(asyncio.get_running_loop().time())
        with suppress(TimeoutError):
            async with asyncio.timeout(FINAL_SEND_TIMEOUT_S):
                await self._wait_until_ended()

    async def _wait_until_ended(self) -> None:
        # A copy: each request removes its own when it ends.
        for end_event in tuple(self._end_events):
            await end_event.wait()


async def relay_upstream(
    exchange: HttpExchange, passed_exchange: PassedExchange, client: UpstreamClient, provider_model: str,
    metrics: StreamMetrics, tracker: PassThroughTracker,
) -> None:  # fmt: skip
    """Send the request to its provider and relay the response, until the client disconnects.

    provider_model:  the provider's own name of the model

    Raises ConvoError if nothing has been sent yet.
    """
    is_streamed = passed_exchange.request.get("stream") is True
    request = client.send(
        passed_exchange.api,
        passed_exchange.request_body,
        provider_model,
        is_streamed=is_streamed,
        headers={
            name: value.decode("latin-1")
            for name in PASSED_REQUEST_HEADERS
            if (value := exchange.headers.get(name.encode())) is not None
        },
        query={name: str(value).lower() for name, value in passed_exchange.query.items()},
    )
    async with CancelOnDisconnect(exchange), AsyncExitStack() as stack:
        async with tracker.stop_after_grace():
            response = await stack.enter_async_context(request)
        passed_exchange.response_status, passed_exchange.response_headers = response.status, response.headers
        if passed_exchange.before_response is not None:
            await passed_exchange.before_response()
        if is_streamed and response.is_event_stream:
            await _relay_events(exchange, passed_exchange, response, metrics, tracker)
        else:
            await _relay_body(exchange, passed_exchange, response, metrics, tracker)
        passed_exchange.usage = response.usage.usage
        if passed_exchange.usage is not None:
            metrics.record_response({"model": passed_exchange.model, "usage": passed_exchange.usage})


async def _relay_body(
    exchange: HttpExchange, passed_exchange: PassedExchange, response: UpstreamResponse, metrics: StreamMetrics,
    tracker: PassThroughTracker,
) -> None:  # fmt: skip
    """Send a body when it is whole, so that an error of the provider can still become an error response."""
    async with tracker.stop_after_grace():
        body = b"".join([chunk async for chunk in response.body])
    metrics.record_first_event(exchange.route, exchange.duration_s)
    await response.usage.feed_body(body)
    if response.status >= ERROR_STATUS:
        passed_exchange.error_code = read_error_code(body, response.status)
    passed_exchange.add_chunk(body, exchange.duration_s)
    headers = dict(response.headers)
    content_type = headers.pop("content-type", "application/octet-stream").encode("latin-1")
    await exchange.send_bytes(body, content_type, response.status, _encode_headers(headers))
    passed_exchange.is_complete = True


async def _relay_events(
    exchange: HttpExchange, passed_exchange: PassedExchange, response: UpstreamResponse, metrics: StreamMetrics,
    tracker: PassThroughTracker,
) -> None:  # fmt: skip
    """Send the chunks as they arrive. A stream that breaks ends with an error event, or without an end."""
    end_of_body, is_started = b"", False
    metrics.add_open_streams(+1)
    try:
        async with tracker.stop_after_grace():
            async for chunk in response.body:
                if not is_started:
                    is_started = True
                    metrics.record_first_event(exchange.route, exchange.duration_s)
                    await exchange.start_response(
                        response.status, (*_encode_headers(response.headers), *_STREAM_HEADERS)
                    )
                passed_exchange.add_chunk(chunk, exchange.duration_s)
                await exchange.send_chunk(chunk)
                end_of_body = (end_of_body + chunk)[-4:]
    except ConvoError as fault:
        if not is_started:
            raise
        exchange.record_fault(fault)
        passed_exchange.error = fault.message
        if not end_of_body.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
            return  # inside an event: the server closes the connection, so that the client sees that it is incomplete
        await exchange.send_chunk(_encode_error_event(exchange, fault), more_body=False)
        return
    finally:
        metrics.add_open_streams(-1)
    if not is_started:
        raise errors.empty_stream_error()
    await exchange.send_chunk(b"", more_body=False)
    passed_exchange.is_complete = True


def read_error_code(body: bytes, status: int) -> str:
    """Return the code of a provider's error, or its type; without either the status."""
    with suppress(ValueError, RecursionError):
        document = json.loads(body)
        error = document.get("error") if isinstance(document, dict) else None
        for name in ("code", "type"):
            if isinstance(error, dict) and isinstance(error.get(name), str):
                return str(error[name])
    return f"http_{status}"


_STREAM_HEADERS = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))
"""They stop caches and proxies from buffering events."""


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]


def _encode_error_event(exchange: HttpExchange, fault: ConvoError) -> bytes:
    """Encode the error as the clients of each API read it from a stream."""
    event_name = b"event: error\n" if exchange.is_anthropic else b""
    return b"%bdata: %b\n\n" % (event_name, serialize_strict_json(exchange.build_error_body(fault)))
