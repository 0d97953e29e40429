"""HTTP to providers: requests, server-sent events, and limits on response bodies.

All requests are made here, without the vendors' packages: their import takes 0.6 s and 35 MB (openai) or 1.4 s and 65
MB (anthropic), their decoders of streams join an event's lines in quadratic time, and their retries do not know who
owns the state. `limit_body` limits every body before it is read, decompressed size included.

A server's transport is aiohttp: a request takes 235 Python calls and 0.16 ms, over httpx2 1,240 and 0.48 ms. A
command's is httpx2, whose import takes a third of the time. Both use the proxies and certificates of the environment,
follow no redirect, keep no cookies and repeat no request; the errors of aiohttp become those of httpx2.
"""

import asyncio
import json
import os
import re
import sys
import zlib
from codecs import BOM_UTF8
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit
from weakref import WeakKeyDictionary

from convo import __version__
from convo.config.request_settings import EFFORT_FIELD, get_request_field
from convo.config.sections import is_openai_server
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import (
    EndpointFault,
    InvalidSettings,
    KeyRefused,
    LimitReached,
    StreamBroken,
    UnsupportedParameter,
    UnsupportedValue,
)
from convo.history.canonical import STRICT_JSON_DECODER
from convo.history.items import Json
from convo.history.records import Scope
from convo.history.tree import JoinedList, derive
from convo.models.errors import ErrorContext, fault_from_status, map_provider_errors
from convo.secrets import Secret
from convo.usage.model_info import REFUSED_FIELDS, describe_refused_field

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse
    from httpx2 import AsyncByteStream, AsyncClient, Response, TransportError


DONE_MARKER = "[DONE]"

_EMPTY: Mapping[str, str] = MappingProxyType({})

_DRAIN_TIMEOUT_S = 0.25
"""Seconds to wait for the end of the body after the last event."""

TIME_SLICE_S = 0.002
"""Seconds that a stream may run without waiting before other tasks run."""

READ_CHUNK_BYTES = 8 * 1024
"""Bytes of a stream that are parsed before other tasks may run."""

SMALL_READ_BYTES = 2 * 1024
"""Bytes; the wait for a read of at most this size does not count for the time slice: its events take a part of one."""

LARGE_EVENT_BYTES = 256 * 1024
"""Bytes; a larger event is parsed in steps, so that other tasks run in between."""

JSON_VALUE_OVERHEAD_BYTES = 64
"""Bytes that a JSON value takes in memory besides its text, counted for the limits."""

_MAX_RETRY_AFTER_S = 24 * 3600.0
"""Seconds; a longer Retry-After is ignored."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


Transport: TypeAlias = "HttpxTransport | AiohttpTransport"
HttpResponse: TypeAlias = "Response | AiohttpResponse"
"""A response whose body is not read yet. Reading it raises the errors of httpx2, LimitReached and StreamBroken."""


def encode_request_body(body: Mapping[str, Json]) -> bytes:
    """Encode the body of a request, of megabytes after many turns: its pieces are joined once."""
    pieces: list[bytes | memoryview] = []
    for name, value in body.items():
        pieces.append(f"{',' if pieces else '{'}{_ENCODER.encode(name)}:".encode())
        if isinstance(value, JoinedList):
            elements = (element for part in value.parts for element in derive(part, _make_encode_step))
            pieces += [b"[", *[piece for element in elements for piece in (b",", element)][1:], b"]"]
        else:
            pieces.append(_ENCODER.encode(value).encode())
    return b"".join([*(pieces or [b"{"]), b"}"])


def _make_encode_step() -> Callable[[Sequence[Json]], list[memoryview]]:
    """Return a step of `derive`: each part of a list is encoded at once, without brackets."""
    # A slice of bytes would copy the megabytes of a long history; a slice of a memoryview does not.
    return lambda values: [memoryview(_ENCODER.encode(values).encode())[1:-1]] if values else []


class SSEClient:
    """Sends requests to one server, and streams its events.

    headers:  of every request, names in lower case
    """

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        headers: Mapping[str, str],
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
    ) -> None:
        """Use a transport; `aclose` closes it. The query of `base_url` is that of every request."""
        self._transport, self._limits = transport, limits
        self._base_url, _, query = base_url.partition("?")
        self._base_url = self._base_url.rstrip("/")
        self._query = dict(parse_qsl(query))
        self.headers = {
            "accept": "application/json",
            "content-type": "application/json",
            "user-agent": f"convo/{__version__}",
            **{name.lower(): value for name, value in headers.items()},
            "accept-encoding": "identity",
        }

    async def stream_json(
        self,
        path: str,
        body: Mapping[str, Json] | None,
        context: ErrorContext,
        query: Mapping[str, Any] = _EMPTY,
        *,
        strict: bool = False,
        headers: Mapping[str, str] = _EMPTY,
    ) -> AsyncGenerator[Json, None]:
        """Yield the JSON values of the server's stream, and `DONE_MARKER` where the server sends it.

        Sends a POST with `body`, a GET if it is None. A response that begins with a brace is one JSON value: the answer
        of a server that does not stream, or an error.

        headers: in addition to the client's own, which they replace
        strict:  reject NaN and numbers beyond a double: the values are stored as items, which have a canonical form

        Raises EndpointFault.
        """
        errors, decoder = map_provider_errors(context), STRICT_JSON_DECODER if strict else JSON_DECODER
        sse_decoder, is_first, count = SSEDecoder(self._limits.event_bytes), True, 0
        response = await self._send(path, body, context, headers=headers, query=query)
        async with _read_response(response, context, errors), aclosing(response.aiter_bytes()) as pieces:
            time_slice, clock = TimeSlice(), asyncio.get_running_loop().time
            waits_from = clock()
            async for piece in pieces:
                if len(piece) <= SMALL_READ_BYTES:
                    # Else an event that arrives alone takes one more pass of the event loop: its wait counted as used
                    # time.
                    time_slice.end += clock() - waits_from
                if is_first and piece.strip():
                    is_first = False
                    if piece.lstrip().startswith((b"{", b"[")):
                        yield await self._read_json(piece, pieces, decoder)
                        return
                for start in range(0, len(piece), READ_CHUNK_BYTES):
                    events = sse_decoder.feed(piece[start : start + READ_CHUNK_BYTES])
                    if clock() > time_slice.end:
                        await time_slice.checkpoint()
                    for data in events:
                        # The openai package compares the start as well.
                        if data.startswith(DONE_MARKER):
                            await _drain_response(pieces, context)
                            yield DONE_MARKER
                            return
                        if len(data) < LARGE_EVENT_BYTES:
                            value = decoder.decode(data)
                        else:
                            value = await parse_large_json(data, self._limits.event_bytes, decoder)
                        errors.is_streaming = True
                        count += 1
                        if count > self._limits.answer_events:
                            raise LimitReached("answer_events", self._limits.answer_events)
                        yield value
                        if clock() > time_slice.end:
                            await time_slice.checkpoint()
                waits_from = clock()

    async def _read_json(self, start: bytes, pieces: AsyncIterator[bytes], decoder: json.JSONDecoder) -> Json:
        """Read a body that is one JSON value, and begins with `start`. Raises LimitReached, ValueError."""
        body = BytesIO()
        body.write(start)
        async for piece in pieces:
            body.write(piece)
            if body.tell() > self._limits.event_bytes:
                raise LimitReached("event_bytes", self._limits.event_bytes)
        return await parse_large_json(body.getvalue().decode(), self._limits.event_bytes, decoder)

    async def request_json(
        self,
        path: str,
        body: Mapping[str, Json] | None,
        context: ErrorContext,
        query: Mapping[str, Any] = _EMPTY,
        *,
        method: str | None = None,
        headers: Mapping[str, str] = _EMPTY,
    ) -> Json:
        """Return the JSON value of a response, or its text. Sends a POST with `body`, a GET if it is None.

        Raises EndpointFault.
        """
        response = await self._send(path, body, context, method=method, headers=headers, query=query, is_streamed=False)
        async with _read_response(response, context, map_provider_errors(context)):
            await response.aread()
            try:
                return response.json()
            except ValueError:
                return response.text

    @asynccontextmanager
    async def send_bytes(
        self,
        path: str,
        content: bytes,
        context: ErrorContext,
        *,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        is_streamed: bool,
    ) -> AsyncIterator[HttpResponse]:
        """Send a POST with the JSON in `content`, unchanged, and yield its response, whose body is not read yet.

        headers:      in addition to the client's own, which they replace
        is_streamed:  the response has the limits of a stream, else those of a body

        Raises EndpointFault; an error status is a response.
        """
        response = await self._send(path, content, context, headers=headers, query=query, is_streamed=is_streamed)
        try:
            yield response
        finally:
            await _close(response, context)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _send(
        self,
        path: str,
        body: Mapping[str, Json] | bytes | None,
        context: ErrorContext,
        *,
        method: str | None = None,
        headers: Mapping[str, str] = _EMPTY,
        query: Mapping[str, Any] = _EMPTY,
        is_streamed: bool = True,
    ) -> HttpResponse:
        parameters = {**self._query, **query} if query else self._query
        url = f"{self._base_url}{path}?{urlencode(parameters)}" if parameters else f"{self._base_url}{path}"
        all_headers = {**self.headers, **headers} if headers else self.headers
        with map_provider_errors(context):
            content = body if isinstance(body, bytes | None) else encode_request_body(body)
            method = method or ("GET" if content is None else "POST")
            return await self._transport.send(method, url, all_headers, content, is_streamed=is_streamed)


@asynccontextmanager
async def _read_response(
    response: HttpResponse, context: ErrorContext, errors: map_provider_errors
) -> AsyncIterator[None]:
    """Map the errors of reading a response, and close it. Raises EndpointFault for an error status."""
    with errors:
        try:
            if not response.is_success:
                await response.aread()
                raise fault_from_response(response, context)
            yield
        finally:
            await _close(response, context)


def fault_from_response(response: HttpResponse, context: ErrorContext) -> EndpointFault:
    """Build the error for a response that has been read and has an error status."""
    try:
        body = response.json()
    # RecursionError: an error body that was nested too deep once ended in an internal error.
    except (ValueError, RecursionError):
        body = response.text
    return fault_from_status(response.status_code, body, context, **_retry_options(response.headers))


def _retry_options(headers: Mapping[str, str]) -> dict[str, Any]:
    """Read from the headers whether and when to retry."""
    # OpenAI's header, which its package reads before it looks at the status.
    header = headers.get("x-should-retry")
    should_retry = None if header not in ("true", "false") else header == "true"
    return {"retry_after_s": _retry_after_s(headers), "should_retry": should_retry}


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of any form of Retry-After; None without one, or if the wait is too long."""
    wait_s = _parse_retry_after_s(headers)
    # The comparison is false for nan, too: a Retry-After of nan or inf once ended in an internal error.
    return max(0.0, wait_s) if wait_s is not None and wait_s <= _MAX_RETRY_AFTER_S else None


def _parse_retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Parse Retry-After without limits; a date is relative to the server's own Date."""
    # The order of the openai package: OpenAI's own header in milliseconds comes first.
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / per_second
        except (KeyError, ValueError):
            continue
    from email.utils import parsedate_to_datetime

    try:
        retry_at, now = (parsedate_to_datetime(headers[name]) for name in ("retry-after", "date"))
        return (retry_at - now).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None


async def _close(response: HttpResponse, context: ErrorContext) -> None:
    with map_provider_errors(context, is_streaming=True):
        await response.aclose()


class SSEDecoder:
    """Extracts the data of server-sent events from chunks of any size. All other fields are ignored."""

    def __init__(self, max_bytes: int = DEFAULT_RESPONSE_LIMITS.event_bytes) -> None:
        """Buffer at most `max_bytes` bytes of one event."""
        self._max_event_bytes = max_bytes
        self._partial_line, self._data = bytearray(), bytearray()
        self._ended_with_cr, self._is_first_line = False, True

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of each event that the chunk completes. Raises UnicodeDecodeError or LimitReached."""
        if self._ended_with_cr and chunk.startswith(b"\n"):  # the second half of a CRLF that was split
            chunk = chunk[1:]
        self._ended_with_cr = chunk.endswith(b"\r")
        events, partial_line, event_data = [], self._partial_line, self._data
        # bytes end lines at CR and LF only; str.splitlines would also split a text at U+2028.
        for line in chunk.splitlines(keepends=True):
            if not line.endswith((b"\n", b"\r")):
                partial_line += line
                continue
            if partial_line:
                line = bytes(partial_line) + line
                partial_line.clear()
            if self._is_first_line:
                # The event stream format allows one byte order mark at the start of the stream.
                line, self._is_first_line = line.removeprefix(BOM_UTF8), False
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                event_data += line[5:].removeprefix(b" ") + b"\n"
            elif not line and event_data:
                # Each line of data added a newline; the format drops the last one.
                del event_data[-1]
                # Decoded only here: a chunk may end within a character.
                events.append(event_data.decode())
                event_data.clear()
        if len(partial_line) + len(event_data) > self._max_event_bytes:
            raise LimitReached("event_bytes", self._max_event_bytes)
        return events


async def _drain_response(pieces: AsyncIterator[bytes], context: ErrorContext) -> None:
    """Read the rest of the body, so that the connection can be reused."""
    with suppress(TimeoutError, EndpointFault):
        async with asyncio.timeout(_DRAIN_TIMEOUT_S):
            with map_provider_errors(context, is_streaming=True):
                async for _ in pieces:
                    pass


# -- time slices ----------------------------------------------------------------------------------


class TimeSlice:
    """Yields to the event loop when a stream has run for a time slice.

    Only one busy stream runs in each pass of the event loop: ten streams delay other tasks no more than one.

    end:  of the slice, on the loop's clock; a stream may add the time for which it waited
    """

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.end = self._clock() + TIME_SLICE_S

    async def checkpoint(self) -> None:
        """Wait for a turn if the time slice is used up."""
        if self._clock() > self.end:
            loop = asyncio.get_running_loop()
            await (_ROUND_ROBINS.get(loop) or _ROUND_ROBINS.setdefault(loop, RoundRobin())).wait_turn()
            self.end = self._clock() + TIME_SLICE_S


class RoundRobin:
    """The queue of the busy streams of one event loop; one runs in each pass."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def wait_turn(self) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiters.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._wake_next, loop)
        await turn

    def _wake_next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiters:
            turn = self._waiters.popleft()
            # It is done if its task was cancelled while it waited.
            if not turn.done():
                turn.set_result(None)
                break
        self._is_scheduled = bool(self._waiters)
        if self._is_scheduled:
            loop.call_soon(self._wake_next, loop)


_ROUND_ROBINS: WeakKeyDictionary[asyncio.AbstractEventLoop, RoundRobin] = WeakKeyDictionary()


# -- large events ---------------------------------------------------------------------------------

# \s would also match characters that JSON refuses between values.
_WHITESPACE = re.compile(r"[ \t\n\r]*")
JSON_DECODER = json.JSONDecoder()
_CLOSING_BRACKETS = {"[": "]", "{": "}"}


async def parse_large_json(text: str, max_bytes: int, decoder: json.JSONDecoder = JSON_DECODER) -> Json:
    """Parse JSON in steps: `json.loads` of some megabytes blocks the event loop.

    Raises ValueError for invalid JSON, LimitReached if the values take more than `max_bytes` bytes.
    """
    steps, time_slice = _parse_in_steps(text, max_bytes, decoder), TimeSlice()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await time_slice.checkpoint()


def _parse_in_steps(text: str, max_bytes: int, decoder: json.JSONDecoder) -> Generator[None, None, Json]:
    """Parse `text` and yield after every 256 values. Strings and numbers are parsed by the json module."""
    remaining, position, name = (max_bytes - len(text)) // JSON_VALUE_OVERHEAD_BYTES, 0, ""
    containers: list[Any] = []
    root: Json = None
    while True:
        position = skip_whitespace(text, position)
        bracket = text[position : position + 1]
        value: Json = [] if bracket == "[" else {} if bracket == "{" else None
        position += 1
        if value is None:
            value, position = decoder.raw_decode(text, position - 1)
        if not containers:
            root = value
        elif isinstance(containers[-1], dict):
            containers[-1][name] = value
        else:
            containers[-1].append(value)
        remaining -= 1
        if remaining < 0:
            raise LimitReached("event_bytes", max_bytes)
        if remaining % 256 == 0:
            yield
        if bracket in _CLOSING_BRACKETS:
            position = skip_whitespace(text, position)
            if text[position : position + 1] != _CLOSING_BRACKETS[bracket]:
                containers.append(value)
                if bracket == "{":
                    name, position = _parse_member_name(text, position)
                continue
            position += 1
        while containers:
            position = skip_whitespace(text, position) + 1
            character, is_object = text[position - 1 : position], isinstance(containers[-1], dict)
            if character == ",":
                if is_object:
                    name, position = _parse_member_name(text, skip_whitespace(text, position))
                break
            if character != ("}" if is_object else "]"):
                raise ValueError("a comma or the end is missing")
            containers.pop()
        else:
            if skip_whitespace(text, position) != len(text):
                raise ValueError("extra data after the value")
            return root


def skip_whitespace(text: str, position: int) -> int:
    """Return the first position from `position` on that has no JSON whitespace."""
    match = _WHITESPACE.match(text, position)
    return match.end() if match else position


def _parse_member_name(text: str, position: int) -> tuple[str, int]:
    """Return the name of an object's member and the position of its value. Raises ValueError."""
    if text[position : position + 1] != '"':
        raise ValueError("a name is missing")
    name, position = JSON_DECODER.raw_decode(text, position)
    position = skip_whitespace(text, position)
    if text[position : position + 1] != ":":
        raise ValueError("a colon is missing")
    return name, position + 1


# -- transports -----------------------------------------------------------------------------------

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 600.0
"""Seconds until a server must begin its response, and between two parts of it; the limits of responses are shorter."""

MAX_CONNECTIONS, MAX_IDLE_CONNECTIONS = 1000, 100

KEEPALIVE_S = 5.0
"""Seconds that an idle connection is kept: many servers close theirs soon after."""

READ_BYTES = 16 * 1024
"""Maximum bytes of a body to read at a time."""

MAX_WHOLE_BODY_BYTES = 512 * 1024
"""Bytes; a larger body is written in parts, so that other tasks run in between."""


async def import_packages(*, is_served: bool) -> None:
    """Import the packages of a transport: in the event loop, they would block it for tenths of a second."""
    for name in ("httpx2", *(["aiohttp"] if is_served else [])):
        await asyncio.to_thread(import_module, name)


def make_transport(base_url: str, limits: ResponseLimits, *, is_served: bool) -> Transport:
    """Create the transport to one server, in a server or in a command.

    Raises InvalidSettings for the certificates or the proxy.
    """
    if is_served:
        return AiohttpTransport(base_url, limits)
    return HttpxTransport(make_http_client(base_url, limits))


def make_http_client(base_url: str, limits: ResponseLimits) -> "AsyncClient":
    """Create a client of httpx2 with limited responses that follows no redirect: the key is for this server only.

    Raises InvalidSettings for the certificates or the proxy.
    """
    from urllib.request import getproxies

    import httpx2

    client = httpx2.AsyncClient(
        verify=_make_tls_context(base_url),
        proxy=find_proxy(base_url, getproxies()),
        trust_env=False,  # else it opens all proxies of the environment, and fails at ALL_PROXY=socks5://...
        follow_redirects=False,
        timeout=httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        limits=httpx2.Limits(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=KEEPALIVE_S,
        ),
    )
    return limit_response_bodies(client, limits)


def _make_tls_context(base_url: str) -> "SSLContext":
    """Load the trusted certificates, which takes 20 ms, unless no connection uses TLS.

    Raises InvalidSettings if the certificates that the environment names cannot be read.
    """
    import ssl
    from urllib.request import getproxies

    import httpx2

    if base_url.startswith("http:") and not any(proxy.startswith("https:") for proxy in getproxies().values()):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        raise InvalidSettings(
            f"the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error.strerror or error}",
            hint="correct the variable, or unset it",
        ) from error


class HttpxTransport:
    """The connections of a client of httpx2, whose responses are limited (see `limit_response_bodies`)."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client
        self._timeouts = client.timeout.as_dict()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, is_streamed: bool
    ) -> "Response":
        from httpx2 import Request

        extensions = {"timeout": self._timeouts, STREAM_EXTENSION: is_streamed}
        request = Request(method, url, headers=headers, content=content, extensions=extensions)
        return await self._client.send(request, stream=True)

    async def aclose(self) -> None:
        await self._client.aclose()


class AiohttpTransport:
    """The connections of a session of aiohttp, with limited responses."""

    def __init__(self, base_url: str, limits: ResponseLimits) -> None:
        from urllib.request import getproxies

        import aiohttp

        self._limits, self._proxy = limits, find_proxy(base_url, getproxies())
        self._errors = (aiohttp.ClientError, OSError)
        self._session = aiohttp.ClientSession(
            # `limit_body` decompresses: aiohttp would do so without a limit.
            auto_decompress=False,
            connector=aiohttp.TCPConnector(
                keepalive_timeout=KEEPALIVE_S, limit=MAX_CONNECTIONS, ssl=_make_tls_context(base_url)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S, sock_read=READ_TIMEOUT_S),
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, is_streamed: bool
    ) -> HttpResponse:
        data = BytesIO(content) if content is not None and len(content) > MAX_WHOLE_BODY_BYTES else content
        try:
            response = await self._session.request(
                method,
                url,
                headers=headers,
                data=data,
                allow_redirects=False,
                proxy=self._proxy,
            )
        except self._errors as error:
            raise _to_httpx_error(error) from error
        return AiohttpResponse(response, self._limits, is_streamed=is_streamed)

    async def aclose(self) -> None:
        await self._session.close()


class AiohttpResponse:
    """A response of aiohttp, with the members of httpx2's `Response` that are used."""

    def __init__(self, response: "ClientResponse", limits: ResponseLimits, *, is_streamed: bool) -> None:
        self._response, self._limits, self._is_streamed = response, limits, is_streamed
        self._body = b""
        self.status_code, self.headers = response.status, response.headers

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def text(self) -> str:
        return self._body.decode(errors="replace")

    def json(self) -> Json:
        return json.loads(self._body)

    def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        coding = self.headers.get("content-encoding", "")
        return limit_body(
            self._iter_chunks(), coding, self._limits, is_success=self.is_success, is_streamed=self._is_streamed
        )

    async def aread(self) -> bytes:
        self._body = b"".join([chunk async for chunk in self.aiter_bytes()])
        return self._body

    async def aclose(self) -> None:
        self._response.release()  # it closes the connection unless the body was read to its end

    async def _iter_chunks(self) -> AsyncGenerator[bytes, None]:
        import aiohttp

        try:
            async for chunk in self._response.content.iter_chunked(READ_BYTES):
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise _to_httpx_error(error) from error
        except RuntimeError as error:  # aiohttp closes the connection at an invalid chunk
            raise StreamBroken("the server's response is not valid HTTP") from error


def _to_httpx_error(error: Exception) -> "TransportError":
    """Translate an error of aiohttp, or of the system."""
    import aiohttp
    import httpx2

    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return httpx2.UnsupportedProtocol(str(error))
    if isinstance(error, aiohttp.ClientConnectorError):
        return httpx2.ConnectError(str(error))
    if isinstance(error, TimeoutError):
        return httpx2.TimeoutException(str(error))
    return httpx2.ReadError(str(error))


def find_proxy(url: str, proxies: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy that the environment sets for a server, from `urllib.request.getproxies`.

    Raises InvalidSettings for a proxy of another kind, such as SOCKS.
    """
    from urllib.request import proxy_bypass

    parts = urlsplit(url)
    if proxy_bypass(parts.netloc) or _is_in_subnet(parts.hostname or "", proxies.get("no", "")):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    scheme, has_scheme, _ = (proxy or "").partition("://")
    if has_scheme and scheme.lower() not in ("http", "https"):
        name = f"{parts.scheme}_proxy".upper()
        raise InvalidSettings(
            f"the proxy that the environment sets for {parts.hostname} is {scheme}://, not an HTTP proxy",
            hint=f"set {name} to an http:// URL, or name the host in NO_PROXY",
        )
    return f"http://{proxy}" if proxy and not has_scheme else proxy


def _is_in_subnet(host: str, excluded: str) -> bool:
    """Whether NO_PROXY has a subnet with this address, as in 10.0.0.0/8, which `proxy_bypass` does not read."""
    with suppress(ValueError):  # a host name
        address = ip_address(host)
        return any(address in ip_network(part.strip(), strict=False) for part in excluded.split(",") if "/" in part)
    return False


# -- accounts -------------------------------------------------------------------------------------

OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class OpenAIClientOptions:
    """A server and the credentials for it.

    provider:         the name in error messages
    base_url:         with the version; for Azure the endpoint of the resource
    key, token:       Azure accepts either; the token takes precedence
    use_env_headers:  send the headers of OPENAI_CUSTOM_HEADERS, which are meant for OpenAI's own account
    is_azure:         use the Azure API, with `api_version` for an older one
    deployment:       Azure: the model name to send, independent of the requested model
    is_keyless:       the server needs no key
    """

    provider: str = "openai"
    base_url: str = OPENAI_URL
    key: Secret | None = None
    token: Secret | None = None
    organisation: str | None = None
    project: str | None = None
    use_env_headers: bool = False
    is_azure: bool = False
    api_version: str | None = None
    deployment: str | None = None
    is_keyless: bool = False

    @property
    def scope(self) -> Scope:
        return Scope(self.base_url.rstrip("/"), self.organisation, self.project)

    def make_error_context(self, body: Mapping[str, Json]) -> ErrorContext:
        """Return the context for errors of a request with `body`."""
        key = self.token or self.key
        return ErrorContext(self.provider, self.base_url, model=body.get("model"), key=key)

    def check_fields(self, model: str, fields: Mapping[str, Json]) -> None:
        """Raise Unsupported for a field of a request that the model is known to refuse."""
        is_openai = self.is_azure or is_openai_server(self.provider, self.base_url)
        for field in REFUSED_FIELDS:
            value = get_request_field(dict(fields), field)
            if refusal := describe_refused_field(model, field, value, api="responses", is_openai=is_openai):
                has_other_values = field in (EFFORT_FIELD, "include")
                kind = UnsupportedValue if has_other_values else UnsupportedParameter
                raise kind(f"{self.provider}/{model}", refusal, param=field)


def build_url_and_headers(options: OpenAIClientOptions, path: str) -> tuple[str, Mapping[str, str]]:
    """Return the URL of `path` and the headers of a request; `{key}` is a placeholder for the key."""
    is_old_azure = options.is_azure and options.api_version
    version = f"?api-version={options.api_version}" if is_old_azure else ""
    path_prefix = "/openai" if is_old_azure else "/openai/v1" if options.is_azure else ""
    key_header = ("api-key", "{key}") if is_old_azure and not options.token else ("Authorization", "Bearer {key}")
    account_headers = {"OpenAI-Organization": options.organisation, "OpenAI-Project": options.project}
    set_headers = {name: value for name, value in account_headers.items() if value}
    key_headers = {} if options.is_keyless else dict([key_header])
    return f"{options.base_url.rstrip('/')}{path_prefix}{path}{version}", key_headers | set_headers


def make_openai_sse_client(
    options: OpenAIClientOptions, limits: ResponseLimits, *, is_served: bool = False
) -> SSEClient:
    """Create the client of a server that speaks the Responses API. Raises KeyRefused without a key."""
    secret = options.token or options.key
    if secret is None and not options.is_keyless:
        raise KeyRefused(f"{options.provider} needs a key")
    base_url, headers = build_url_and_headers(options, "")
    key = secret.reveal() if secret else ""
    return SSEClient(
        make_transport(base_url, limits, is_served=is_served),
        base_url,
        {
            **(read_environment_headers("OPENAI_CUSTOM_HEADERS") if options.use_env_headers else {}),
            **{name.lower(): value.replace("{key}", key) for name, value in headers.items()},
        },
        limits,
    )


def read_environment_headers(variable: str) -> dict[str, str]:
    """Return the headers of a variable with a `Name: value` on each line, names in lower case."""
    lines = (line.partition(":") for line in os.environ.get(variable, "").splitlines())
    return {name.strip().lower(): value.strip() for name, colon, value in lines if colon and name.strip()}


MAX_ERROR_BYTES = 64 * 1024
ERROR_TIMEOUT_S = 10.0
"""Seconds to read the body of an error; a partial body is used."""

DECOMPRESS_CHUNK_BYTES = 64 * 1024
"""Bytes to decompress at a time."""

STREAM_EXTENSION = "convo.streamed"
"""The request extension that marks a response as a stream of events."""

MIN_BYTES_PER_JSON_VALUE = 32
"""A body limit of N bytes allows N/32 JSON values: a value takes up to 30 times its text in memory."""


def limit_response_bodies(http_client: "AsyncClient", limits: ResponseLimits) -> "AsyncClient":
    """Limit all responses of `http_client`, which is modified, and request no compression."""

    async def hook(response: "Response") -> None:
        response.stream = _limit_stream(response, limits)

    http_client.headers["accept-encoding"] = "identity"
    http_client.event_hooks = {**http_client.event_hooks, "response": [*http_client.event_hooks["response"], hook]}
    return http_client


def _limit_stream(response: "Response", limits: ResponseLimits) -> "AsyncByteStream":
    from httpx2 import AsyncByteStream

    source = response.stream
    assert isinstance(source, AsyncByteStream)
    close = source.aclose
    pieces = limit_body(
        source,
        # Removed, else httpx2 would decompress the body once more.
        response.headers.pop("content-encoding", ""),
        limits,
        is_success=response.is_success,
        is_streamed=bool(response.request.extensions.get(STREAM_EXTENSION)),
    )

    class Bounded(AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return pieces

        async def aclose(self) -> None:
            await close()

    return Bounded()


def limit_body(
    source: AsyncIterable[bytes], coding: str, limits: ResponseLimits, *, is_success: bool, is_streamed: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a body, decompressed and within the limits of an error, of a stream or of a whole body.

    Raises LimitReached, and StreamBroken if the body cannot be decompressed.
    """
    coding = coding.strip().lower()
    if not is_success:
        return _truncate_error_body(_decompress(source, coding, skip=True))
    if is_streamed:
        return _limit_bytes(_decompress(source, coding), limits.answer_bytes, "answer_bytes")
    pieces = _limit_bytes(_decompress(source, coding), limits.body_bytes, "body_bytes")
    return _limit_duration(_limit_json_values(pieces, limits), limits)


async def _truncate_error_body(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the first bytes of an error's body. A broken or late body ends early: the status is enough."""
    from httpx2 import HTTPError

    remaining, deadline = MAX_ERROR_BYTES, asyncio.get_running_loop().time() + ERROR_TIMEOUT_S
    while remaining > 0:
        try:
            async with asyncio.timeout_at(deadline):
                piece = await anext(pieces, None)
        except (TimeoutError, HTTPError, StreamBroken):
            return
        if piece is None:
            return
        yield piece[:remaining]
        remaining -= len(piece)


async def _limit_bytes(pieces: AsyncIterator[bytes], max_bytes: int, limit: str) -> AsyncGenerator[bytes, None]:
    """Yield the chunks. Raises LimitReached above `max_bytes` bytes."""
    byte_count = 0
    async for piece in pieces:
        byte_count += len(piece)
        if byte_count > max_bytes:
            raise LimitReached(limit, max_bytes)
        yield piece


async def _limit_json_values(pieces: AsyncIterator[bytes], limits: ResponseLimits) -> AsyncGenerator[bytes, None]:
    """Yield the chunks. Raises LimitReached for more JSON values than fit into memory."""
    value_count = 0
    async for piece in pieces:
        value_count += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if value_count > limits.body_bytes // MIN_BYTES_PER_JSON_VALUE:
            raise LimitReached("body_bytes", limits.body_bytes)
        yield piece


async def _limit_duration(pieces: AsyncGenerator[bytes, None], limits: ResponseLimits) -> AsyncGenerator[bytes, None]:
    """Yield the chunks. Raises LimitReached if the body takes too long."""
    deadline = asyncio.get_running_loop().time() + limits.idle_s
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                piece = await anext(pieces, None)
        except TimeoutError as error:
            raise LimitReached("idle_s", limits.idle_s) from error
        if piece is None:
            return
        yield piece


async def _decompress(source: AsyncIterable[bytes], coding: str, *, skip: bool = False) -> AsyncGenerator[bytes, None]:
    """Decompress the chunks of `source`.

    skip:  treat a body with an unknown coding as empty

    Raises StreamBroken if the coding is unknown or the data invalid.
    """
    if coding in ("identity", ""):
        async for piece in source:
            yield piece
        return
    if coding not in ("gzip", "x-gzip", "deflate"):
        if skip:
            return
        raise StreamBroken(f"the server compressed its response with {coding[:20]!r}, which was not requested")
    decompressor = Decompressor()
    try:
        async for piece in source:
            for chunk in decompressor.decompress(piece):
                yield chunk
                await asyncio.sleep(0)
    except DamagedBody as error:
        raise StreamBroken("the server's compressed response cannot be decompressed") from error


class DamagedBody(Exception):
    """The coding of a body is unknown or damaged, or its package is not installed."""


class Decompressor:
    """Decompresses one stream of a body, at most `DECOMPRESS_CHUNK_BYTES` bytes at a time.

    coding:       gzip, x-gzip, zstd or br; deflate is gzip, zlib or raw deflate, as the first bytes say
    is_finished:  the end of the stream was reached
    unused_data:  the bytes after it, where the coding allows another stream to follow
    """

    def __init__(self, coding: str = "deflate") -> None:
        self._coding = coding
        self._stream: Any = None
        self._errors: tuple[type[Exception], ...] = ()
        self._head = b""

    @property
    def is_finished(self) -> bool:
        if self._stream is None:
            return False
        return bool(self._stream.is_finished() if self._coding == "br" else self._stream.eof)

    @property
    def unused_data(self) -> bytes:
        return b"" if self._stream is None or self._coding == "br" else self._stream.unused_data

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed chunks. Raises DamagedBody."""
        if self._stream is None:
            self._head += data
            if len(self._head) < 2 and self._coding == "deflate":
                return
            data = self._head
            self._stream, self._errors = _open_decompression(self._coding, data)
        while not self.is_finished:
            try:
                if self._coding == "br":
                    chunk = self._stream.process(data, output_buffer_limit=DECOMPRESS_CHUNK_BYTES)
                else:
                    chunk = self._stream.decompress(data, DECOMPRESS_CHUNK_BYTES)
            except self._errors as error:
                raise DamagedBody from error
            data = getattr(self._stream, "unconsumed_tail", b"")  # the others keep the rest themselves
            if chunk:
                yield chunk
            elif not data:
                return


def _open_decompression(coding: str, head: bytes) -> tuple[Any, tuple[type[Exception], ...]]:
    """Open a decompressor for data that begins with `head`, with the errors that it raises. Raises DamagedBody."""
    if coding in ("gzip", "x-gzip"):
        return zlib.decompressobj(zlib.MAX_WBITS | 16), (zlib.error,)
    if coding == "deflate":  # servers send it with and without zlib's header, or gzip
        # RFC 1950: the method is 8, and the two bytes of the header are a multiple of 31.
        has_header = head[:2] == b"\x1f\x8b" or (head[0] & 15 == 8 and int.from_bytes(head[:2]) % 31 == 0)
        # 32 accepts the headers of zlib and gzip; a negative size is raw deflate without a header.
        return zlib.decompressobj(zlib.MAX_WBITS | 32 if has_header else -zlib.MAX_WBITS), (zlib.error,)
    try:
        if coding == "zstd":
            zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
            return zstd.ZstdDecompressor(), (zstd.ZstdError,)
        if coding == "br":
            brotli = import_module("brotli")
            return brotli.Decompressor(), (brotli.error,)
    except ImportError as error:
        raise DamagedBody from error
    raise DamagedBody
