"""A relay on loopback: requests go to an upstream and responses come back, byte for byte.

HTTP, event streams and WebSockets are passed on as they arrive, compressed bodies as they are; nothing is
buffered or held back, and a slow side slows the other one down. Headers of the connection itself are not
passed on. Requests to the model APIs are copied for a recorder (`relay_recording`). A client that sends no key
uses the key of the upstream's provider. Browsers' requests from other origins are refused.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import socket
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

from convo.config.settings import ServeSettings
from convo.errors import ConvoError, InvalidSettings, Unreachable
from convo.models.http import find_proxy
from convo.recording.exchange import Protocol
from convo.runtime import Clock, NewId
from convo.secrets import Secret, recordable_headers, recordable_url, redact_secrets
from convo.server import errors
from convo.server.auth import check_local_caller
from convo.server.http import CLIENT_CLOSED_STATUS, ClientDisconnected, Header, HttpExchange
from convo.server.rate_limits import BodyBudget
from convo.server.relay_recording import CREDENTIAL_HEADERS, ExchangeCopy, ExchangeHead, RelayRecording, WebSocketCopies
from convo.server.server import (
    SHUTDOWN_NOTICE_S,
    GatewayServer,
    build_uvicorn_config,
    prepare_process,
    report_unexpected_errors,
    serve_until,
)
from convo.server.sse import CancelOnDisconnect
from convo.server.websocket import SWITCHING_PROTOCOLS_STATUS, with_http_rejection

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from starlette.types import Receive, Scope, Send
    from websockets.asyncio.client import ClientConnection as UpstreamWebSocket
    from websockets.http11 import Response as HandshakeResponse

CONNECT_TIMEOUT_S = 30.0
"""Seconds within which an upstream must accept a connection."""

MAX_WHOLE_BODY_BYTES = 512 * 1024
"""A request body that is complete and at most this large is sent in one piece with its headers."""

UPSTREAM_KEEPALIVE_S = 15.0
"""Seconds for which an idle connection to an upstream is kept."""

MAX_RESPONSE_HEADERS = 256

MIN_STATUS, MAX_STATUS = 200, 599

WEBSOCKET_LOG = logging.getLogger("convo.relay.websocket")
WEBSOCKET_LOG.addHandler(logging.NullHandler())
WEBSOCKET_LOG.propagate = False

KeyHeader = Literal["authorization", "x-api-key", "api-key"]

PLACEHOLDER_KEY = "convo-tap"
"""The key that clients are given in place of a missing one."""

PLACEHOLDER_KEYS = frozenset(
    {"", PLACEHOLDER_KEY, "dummy", "empty", "none", "null", "placeholder", "sk-no-key-required", "unused", "x", "xxx"}
)
"""Keys, in lower case, that clients send to servers that need none; they are replaced as if none was sent."""

CONNECTION_HEADERS = frozenset(
    {
        b"connection", b"expect", b"host", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1). `Host` and `Expect` are the relay's own towards each side."""

WEBSOCKET_HEADERS = frozenset(
    {b"sec-websocket-accept", b"sec-websocket-extensions", b"sec-websocket-key", b"sec-websocket-protocol",
     b"sec-websocket-version"}
)  # fmt: skip

DOT_SEGMENT = re.compile(r"/(?:\.|%2e){1,2}(?=/|$)", re.IGNORECASE)
"""Matches a segment of a path that leads out of its folder."""

BROWSER_SITE_HEADER = b"sec-fetch-site"
ALLOWED_SITES = frozenset({b"none", b"same-origin"})

POST_PROTOCOLS: tuple[tuple[re.Pattern[str], Protocol], ...] = (
    (re.compile(r".*/responses"), "responses"),
    (re.compile(r".*/chat/completions"), "chat_completions"),
    (re.compile(r"(?:/v1)?/messages"), "messages"),
)
"""The paths, below the base URL, of the requests that are recorded."""

BAD_GATEWAY_CLOSE_CODE = 1014
"""The code that closes a client's WebSocket if the upstream's broke."""

NO_CLOSE_CODES = frozenset({1005, 1006, 1015})
"""Codes for a missing close frame; they cannot be sent."""


class Upstream:
    """A server that requests are relayed to.

    name:        first segment of the local path
    base_url:    without a final slash
    key:         sent for clients that send none
    key_header:  the header of `key`
    """

    def __init__(
        self, name: str, base_url: str, *, key: Secret | None = None, key_header: KeyHeader = "authorization"
    ) -> None:
        """Raises InvalidSettings if `base_url` is not an HTTP URL, or has a user, a query or a fragment."""
        self.name, self.base_url, self.key, self.key_header = name, base_url.rstrip("/"), key, key_header
        try:
            parts = urlsplit(self.base_url)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_valid = False
        if not is_valid or parts.query or parts.fragment or parts.username is not None or not self.base_url.isascii():
            raise InvalidSettings(
                f"{redact_secrets(base_url)!r} is not the base URL of an API",
                hint="use http://HOST/PATH or https://HOST/PATH, without user and query",
            )
        self.origin, self.path = f"{parts.scheme}://{parts.netloc}", parts.path

    @property
    def local_path(self) -> str:
        """The path of the base URL at the relay."""
        return f"/{self.name}{self.path}"


@dataclass(slots=True)
class RelayCounts:
    """Counts of requests; each `response.create` of a WebSocket is one.

    unrecorded:  to other paths than those that are recorded
    failed:      without a complete response from the upstream
    not_found:   with the status 404
    """

    relayed: int = 0
    unrecorded: int = 0
    failed: int = 0
    not_found: int = 0


@dataclass(frozen=True, slots=True)
class RelayTarget:
    """The upstream of a request.

    url:        at the upstream
    protocol:   the API, if the request is recorded
    needs_key:  a request without a key gets the upstream's; not the checks of Claude Code outside of the API
    """

    upstream: Upstream
    url: str
    protocol: Protocol | None
    needs_key: bool


class Relay:
    """An ASGI application that relays requests; open it with `async with`.

    serve:    limits of requests; `max_requests` are relayed at once
    idle_s:   seconds for which an upstream may send nothing
    report:   called once for each upstream whose key is used
    """

    def __init__(
        self, upstreams: Sequence[Upstream], serve: ServeSettings, recordings: RelayRecording, *, clock: Clock,
        new_id: NewId, idle_s: float, report: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.counts = RelayCounts()
        self.is_shutting_down = False
        self._upstreams, self._serve, self._recordings = tuple(upstreams), serve, recordings
        self._clock, self._new_id, self._idle_s, self._report = clock, new_id, idle_s, report
        self._reported: set[str] = set()
        self._running = 0
        self._proxies = getproxies()

    async def __aenter__(self) -> Self:
        import aiohttp

        self._session = aiohttp.ClientSession(
            # The client must get the bytes of the upstream, with their Content-Encoding.
            auto_decompress=False,
            # No limit here: `max_requests` is checked before.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=UPSTREAM_KEEPALIVE_S),
            # One session serves all clients: a cookie for one of them must not be sent for another.
            cookie_jar=aiohttp.DummyCookieJar(),
            max_field_size=self._serve.max_header_bytes,
            max_headers=MAX_RESPONSE_HEADERS,
            max_line_size=self._serve.max_header_bytes,
            # aiohttp would add its own where the client sends none.
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=self._idle_s),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        is_websocket = scope["type"] == "websocket"
        exchange = HttpExchange(
            scope, receive, with_http_rejection(send) if is_websocket else send,
            request_id=self._new_id("req"), clock=self._clock,
        )  # fmt: skip
        is_counted = False
        try:
            check_not_cross_site(exchange)
            target = self._find_target(exchange)
            if self.is_shutting_down:
                raise errors.server_shutting_down_error()
            if self._running >= self._serve.max_requests:
                raise errors.overloaded_error()
            self._running += 1
            is_counted = True
            if is_websocket:
                await self._relay_websocket(exchange, receive, send, target)
            else:
                self.counts.relayed += 1
                self.counts.unrecorded += target.protocol is None
                async with CancelOnDisconnect(exchange):
                    await self._relay_http(exchange, target)
        except ClientDisconnected:
            exchange.status = CLIENT_CLOSED_STATUS
        except asyncio.CancelledError:  # at the end of the grace time
            if not exchange.status:
                await exchange.send_error(errors.server_shutting_down_error())
            raise
        except ConvoError as fault:
            self.counts.failed += isinstance(fault, Unreachable)
            await exchange.send_error(fault)
        finally:
            self._running -= is_counted

    def _find_target(self, exchange: HttpExchange) -> RelayTarget:
        """Return the target of a request. Raises RequestRefused if its path is not below a base URL."""
        scope = exchange.scope
        path = scope["raw_path"].decode("ascii", "replace")
        for upstream in self._upstreams:
            rest = path.removeprefix(upstream.local_path)
            if not path.startswith(upstream.local_path) or (rest and not rest.startswith("/")):
                continue
            # /up/v1/../x reached the upstream with its key, outside of the base URL.
            if DOT_SEGMENT.search(rest):
                break
            if (
                upstream.key_header == "x-api-key"
                and rest.startswith("/messages")
                and not upstream.path.endswith("/v1")
            ):
                rest = f"/v1{rest}"  # Vercel's SDK expects the version in the base URL, Anthropic's does not
            query = scope["query_string"].decode("ascii", "replace")
            url = f"{upstream.base_url}{rest}{'?' if query else ''}{query}"
            protocol = next((protocol for pattern, protocol in POST_PROTOCOLS if pattern.fullmatch(rest)), None)
            is_call = exchange.method == "POST" or (exchange.method == "WEBSOCKET" and protocol == "responses")
            needs_key = upstream.key_header != "x-api-key" or f"{upstream.path}{rest}".startswith("/v1/")
            return RelayTarget(upstream, url, protocol if is_call else None, needs_key)
        raise errors.unknown_relay_path_error(exchange.method, path, [each.local_path for each in self._upstreams])

    def _build_request_headers(self, exchange: HttpExchange, target: RelayTarget) -> list[tuple[str, str]]:
        """Return the headers for the upstream, with its key if the client sends none. Raises RequestRefused."""
        try:
            headers = [
                (name.decode(), value.rstrip(b"\t ").decode())  # the parser of requests keeps a tab at the end
                for name, value in end_to_end_headers(exchange.scope["headers"])
            ]
        except UnicodeDecodeError as error:
            raise errors.invalid_http_error() from error
        upstream = target.upstream
        sent = [(name, value) for name, value in headers if name in CREDENTIAL_HEADERS]
        if upstream.key is None or any(is_real_credential(*pair) for pair in sent) or not (sent or target.needs_key):
            return headers
        self._report_once(
            f"a client sends no key, or a placeholder, to {upstream.base_url}: "
            f"the key of {upstream.name} in the settings is used"
        )
        scheme = "Bearer " if upstream.key_header == "authorization" else ""
        kept = [(name, value) for name, value in headers if name not in CREDENTIAL_HEADERS]
        return [*kept, (upstream.key_header, scheme + upstream.key.reveal())]

    def _report_once(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            self._report(line)

    def _open_copy_head(self, exchange: HttpExchange, target: RelayTarget) -> ExchangeHead | None:
        if target.protocol is None:
            return None
        headers = recordable_headers(exchange.scope["headers"])
        return ExchangeHead(
            target.protocol, recordable_url(target.url), headers, encoding=headers.get("content-encoding", "")
        )

    # -- HTTP -------------------------------------------------------------------------------------

    async def _relay_http(self, exchange: HttpExchange, target: RelayTarget) -> None:
        """Relay one request. Raises Unreachable before the response started, RequestRefused and ClientDisconnected."""
        import aiohttp
        from yarl import URL

        headers = self._build_request_headers(exchange, target)
        head = self._open_copy_head(exchange, target)
        copy = self._recordings.open_copy(head) if head else None
        request_body = BodyReader(exchange, copy, self._serve.read_s)
        try:
            async with self._session.request(
                exchange.method,
                # Without it yarl decodes and encodes the path anew.
                URL(target.url, encoded=True),
                headers=headers,
                data=await request_body.open(),
                # A redirect would carry the conversation and the key to another host.
                allow_redirects=False,
                proxy=find_proxy(target.upstream.origin, self._proxies),
            ) as response:
                await self._relay_response(exchange, response, copy)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # ValueError: a header or URL that aiohttp refuses; a TimeoutError is an OSError
            fault = request_body.fault or unreachable_error(target.upstream, error)
            if copy:
                copy.finish(None, error=str(fault))
            raise fault from error
        finally:
            if copy:
                copy.finish(exchange.status or None, error="the client disconnected, or the relay was stopped")

    async def _relay_response(
        self, exchange: HttpExchange, response: "ClientResponse", copy: ExchangeCopy | None
    ) -> None:
        """Relay a response. If the upstream breaks it off, the client's connection is closed without its end."""
        import aiohttp

        if not MIN_STATUS <= response.status <= MAX_STATUS:
            raise aiohttp.ClientError("not a final status of HTTP")
        send, headers = exchange.send_raw, end_to_end_headers(response.raw_headers)
        if aiohttp.hdrs.TRANSFER_ENCODING in response.headers:  # it overrides a length (RFC 9112, 6.3)
            headers = [pair for pair in headers if pair[0].lower() != b"content-length"]
        exchange.status = response.status
        self.counts.not_found += response.status == 404
        fail_body_when_connection_closes(response)
        if copy:
            copy.is_encoded = aiohttp.hdrs.CONTENT_ENCODING in response.headers
            await self._recordings.queue.wait_for_room()
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        try:
            async for piece in response.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if copy:
                    copy.add_response_piece(piece)
        except (aiohttp.ClientError, OSError) as error:
            self.counts.failed += 1
            if copy:
                copy.finish(response.status, headers, f"the upstream broke off the response: {type(error).__name__}")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if copy:
            copy.finish(response.status, headers)

    # -- WebSocket --------------------------------------------------------------------------------

    async def _relay_websocket(
        self, exchange: HttpExchange, receive: "Receive", send: "Send", target: RelayTarget
    ) -> None:
        """Relay one WebSocket. Raises Unreachable before it is accepted."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        class Connect(connect):
            """Follows no redirect: the client's key is for this upstream only."""

            def process_redirect(self, exc: Exception) -> Exception | str:
                return exc

        headers = self._build_request_headers(exchange, target)
        await receive()
        try:
            connection = await Connect(
                target.url.replace("http", "ws", 1),
                additional_headers=[pair for pair in headers if pair[0].encode() not in WEBSOCKET_HEADERS],
                user_agent_header=None,
                subprotocols=exchange.scope["subprotocols"] or None,
                compression=None,
                max_size=2 * self._serve.max_body_bytes,
                open_timeout=CONNECT_TIMEOUT_S,
                proxy=find_proxy(target.upstream.origin, self._proxies),
                logger=WEBSOCKET_LOG,
            )
        except InvalidStatus as error:
            refusal = error.response
            exchange.status = refusal.status_code
            refusal_headers = handshake_headers(refusal)
            await exchange.send_raw(
                {"type": "http.response.start", "status": refusal.status_code, "headers": refusal_headers}
            )
            await exchange.send_raw({"type": "http.response.body", "body": bytes(refusal.body or b"")})
            return
        except (WebSocketException, OSError, ValueError) as error:
            raise unreachable_error(target.upstream, error) from error
        assert connection.response
        accept_headers = handshake_headers(connection.response)
        head = self._open_copy_head(exchange, target)
        copies = WebSocketCopies(self._recordings, head, accept_headers) if head else None
        async with connection:
            await send({"type": "websocket.accept", "subprotocol": connection.subprotocol, "headers": accept_headers})
            exchange.status = SWITCHING_PROTOCOLS_STATUS
            pumps = {
                asyncio.create_task(self._pump_to_upstream(receive, connection, copies)),
                asyncio.create_task(self._pump_to_client(send, connection, copies)),
            }
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.wait(pumps)
                if copies:
                    copies.close("the connection ended before the response")
        for pump in pumps:
            failure = None if pump.cancelled() else pump.exception()
            if failure and not isinstance(failure, OSError | RuntimeError):  # these: the client disconnected
                raise failure

    async def _pump_to_upstream(
        self, receive: "Receive", connection: "UpstreamWebSocket", copies: WebSocketCopies | None
    ) -> None:
        """Pass on the client's messages, and its close."""
        from websockets.exceptions import ConnectionClosed

        while (message := await receive())["type"] == "websocket.receive":
            text = message.get("text")
            with suppress(ConnectionClosed):  # the other task passes on the close, after the messages before it
                await connection.send(message["bytes"] if text is None else text)
            if copies and text is not None:
                self.counts.relayed += copies.add_client_message(text)
        code = message.get("code", 1005)
        await connection.close(1000 if code in NO_CLOSE_CODES else code, message.get("reason") or "")

    async def _pump_to_client(
        self, send: "Send", connection: "UpstreamWebSocket", copies: WebSocketCopies | None
    ) -> None:
        """Pass on the upstream's messages, and its close."""
        from websockets.exceptions import ConnectionClosed

        while True:
            try:
                message = await connection.recv()
            except ConnectionClosed:
                break
            if copies:
                await self._recordings.queue.wait_for_room()
            if isinstance(message, str):
                await send({"type": "websocket.send", "text": message})
                if copies:
                    copies.add_event(message)
            else:
                await send({"type": "websocket.send", "bytes": message})
        code = connection.close_code
        if code is None or code in NO_CLOSE_CODES:
            code = 1000 if code == 1005 else BAD_GATEWAY_CLOSE_CODE
        await send({"type": "websocket.close", "code": code, "reason": connection.close_reason or ""})


class BodyReader:
    """The body of one request, read as the upstream receives it.

    fault:  the reason why the body is incomplete
    """

    def __init__(self, exchange: HttpExchange, copy: ExchangeCopy | None, read_s: float) -> None:
        self.fault: ConvoError | ClientDisconnected | None = None
        self._exchange, self._copy, self._read_s = exchange, copy, read_s

    async def open(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body: as bytes if it arrived with the headers, else as an iterator over its pieces.

        Raises RequestRefused and ClientDisconnected, as the iterator does.
        """
        # "gzip, chunked" was passed on as if the body was not compressed.
        if self._exchange.headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise errors.invalid_http_error()  # the other codings of a connection are not decoded
        if not self._exchange.headers.keys() & {b"content-length", b"transfer-encoding"}:
            if self._copy:
                self._copy.begin()
            return None
        piece, more = await self._receive_piece()
        return piece if not more and len(piece) <= MAX_WHOLE_BODY_BYTES else self._iterate_pieces(piece, more)

    async def _iterate_pieces(self, piece: bytes, more: bool) -> AsyncIterator[bytes]:
        while True:
            if piece:
                yield piece
            if not more:
                return
            piece, more = await self._receive_piece()

    async def _receive_piece(self) -> tuple[bytes, bool]:
        """Return the next piece, and whether more follows."""
        try:
            async with asyncio.timeout(self._read_s):
                message = await self._exchange.receive()
        except TimeoutError as error:
            self.fault = errors.request_timeout_error(self._read_s)
            raise self.fault from error
        if message["type"] == "http.disconnect":
            self.fault = ClientDisconnected("the client disconnected")
            raise self.fault
        piece, more = message.get("body", b""), message.get("more_body", False)
        if self._copy:
            self._copy.request_body.add(piece)
            if not more:
                self._copy.begin()
        return piece, more


def check_not_cross_site(exchange: HttpExchange) -> None:
    """Raise RequestRefused if a web page may have sent the request."""
    check_local_caller(exchange.scope["headers"])
    for name, site in exchange.scope["headers"]:
        if name == BROWSER_SITE_HEADER and site not in ALLOWED_SITES:
            raise errors.origin_not_allowed_error(exchange.headers.get(b"referer", site).decode("latin-1"))


def fail_body_when_connection_closes(response: "ClientResponse") -> None:
    """Make reading the body fail when its connection closes before its end.

    aiohttp closes the connection at an invalid chunk, and leaves the reader of the body waiting.
    """
    import aiohttp

    def fail(_: object) -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError("the connection was closed"))

    protocol = response.connection.protocol if response.connection is not None else None
    closed = protocol.closed if protocol is not None else None  # a protocol is false as a condition
    if closed is not None:
        closed.add_done_callback(fail)


def end_to_end_headers(headers: Sequence[Header]) -> list[Header]:
    """Return the headers without those of the connection, which `Connection` may add to."""
    listed = b",".join(value for name, value in headers if name.lower() == b"connection")
    excluded = CONNECTION_HEADERS | {name.strip().lower() for name in listed.split(b",")}
    return [(name, value) for name, value in headers if name.lower() not in excluded]


def handshake_headers(response: "HandshakeResponse") -> list[Header]:
    """Return the headers of an upstream's response to a handshake that concern the client."""
    headers = [
        (name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in response.headers.raw_items()
    ]
    return [pair for pair in end_to_end_headers(headers) if pair[0].lower() not in WEBSOCKET_HEADERS]


def is_real_credential(name: str, value: str) -> bool:
    """Whether the credential in a header is none of the placeholders."""
    scheme, _, key = value.strip().partition(" ")
    is_bearer = name == "authorization" and scheme.lower() == "bearer"
    return (key.strip() if is_bearer else value.strip()).lower() not in PLACEHOLDER_KEYS


def unreachable_error(upstream: Upstream, error: Exception) -> Unreachable:
    """Build the error without its details, which may quote headers, except for the system's reason."""
    from convo.models.errors import format_connect_error

    os_error = getattr(error, "os_error", None)
    reason = format_connect_error(os_error) if isinstance(os_error, OSError) else type(error).__name__
    return Unreachable(
        f"convo tap got no response from {upstream.origin}: {reason}",
        hint="check the network and the upstream's base URL",
    )


async def run_relay(
    relay: Relay, serve: ServeSettings, listening_socket: socket, stop_event: asyncio.Event,
    report_error: Callable[[BaseException], None], report_delay: Callable[[], Any] = lambda: None,
) -> None:  # fmt: skip
    """Relay until `stop_event` is set, and then until the grace time is over."""
    prepare_process()
    budget = BodyBudget(serve.limits.process_body_bytes)
    server = GatewayServer(build_uvicorn_config(relay, serve, budget, date_header=False))
    with report_unexpected_errors(report_error):
        async with relay:
            serve_task = await serve_until(server, listening_socket, stop_event)
            relay.is_shutting_down = True
            delay_timer = asyncio.get_running_loop().call_later(SHUTDOWN_NOTICE_S, report_delay)
            server.request_end(serve.grace_s)
            await serve_task
            delay_timer.cancel()
