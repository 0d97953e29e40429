"""The ASGI application: authenticate, parse, call the endpoint, respond.

It depends on the EndpointService contract only. A ConvoError becomes the API's error object under
its status; any other exception becomes a 500 without details, and is logged by the server.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route as Path
from starlette.routing import Router, WebSocketRoute

from convo.config.settings import ServeSettings
from convo.endpoints.base import EndpointService
from convo.errors import ConvoError, StoreFault
from convo.history.items import Json, StreamEvent
from convo.runtime import Clock, NewId
from convo.server import auth, errors, http, inspector, websocket
from convo.server.auth import Authenticator, SingleTenant
from convo.server.handlers import ApiRoute, HandlerContext, HandlerResult, InspectorDeps, RawResponse
from convo.server.http import CLIENT_CLOSED_STATUS, ClientDisconnected, HttpExchange, parse_json_object
from convo.server.metrics import CombinedMetrics, Metrics
from convo.server.pass_through import PassedExchange, PassThroughOpener, PassThroughTracker, relay_upstream
from convo.server.rate_limits import BodyBudget, BodyShare, RateLimits
from convo.server.recording import GatewayRecording
from convo.server.request_log import LiveRequest, ModelApi, RequestLog, name_client
from convo.server.routes import API_ROUTES, group_by_path
from convo.server.sse import CancelOnDisconnect, EventsResult, relay_events
from convo.server.websocket import WebSocketConnection, WebSocketConnections, WebSocketDeps, WebSocketLimits
from convo.stores.base import Store
from convo.stores.unstored_requests import Retention

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


INTERNAL_ERROR_MESSAGE = "The server had an error while processing your request."
INTERNAL_ERROR_BODY: Json = {
    "error": {"message": INTERNAL_ERROR_MESSAGE, "type": "server_error", "param": None, "code": "internal_error"}
}
ANTHROPIC_INTERNAL_ERROR_BODY: Json = {
    "type": "error",
    "error": {"type": "api_error", "message": INTERNAL_ERROR_MESSAGE},
}

AUTHORIZATION_HEADER = b"authorization"
API_KEY_HEADER = b"x-api-key"
"""The header in which Anthropic's clients send the key; used without an Authorization header."""

KEY_HEADERS = (AUTHORIZATION_HEADER, API_KEY_HEADER)

STORE_SIZE_MAX_AGE_S = 60.0
"""Seconds for which a measured size of the store is reused."""

CLOSE_CONNECTION_HEADERS = ((b"connection", b"close"),)
"""uvicorn closes the connection after an exception, so a client should not reuse it."""

API_PATH_PREFIX = "/v1/"
"""The paths that web pages of `serve.cors_origins` may call; the inspector page is not one of them."""

ANY_ORIGIN = "*"
CORS_METHODS = ("GET", "POST", "DELETE")

LogExchange = Callable[[HttpExchange], None]
"""Called with every exchange after its response."""


ReportStoreFault = Callable[[StoreFault], None]
"""Called with every error of the store: the client does not get its details."""


def ignore_report(reason: str) -> None:
    """Ignore the reason."""


class Gateway:
    """An ASGI application over a service.

    authenticator:         None accepts local callers as the tenant "local"
    websocket_limits:      limits of each WebSocket
    upstreams:             the providers' own APIs, for requests that are passed through
    report_dropped:        called with the reason when the first request could not be recorded
    store:                 the service's store, if that of the inspector page is another connection
    recording:             records requests that the service does not store, if the settings ask for it
    requests:              the running requests, and the rows of those that left no response
    is_shutting_down:      set by `begin_shutdown`: from then on nothing new is started
    sockets:               the open WebSockets
    body_budget:           the bytes of all bodies
    pass_through_tracker:  the running requests that are passed through
    """

    def __init__(
        self,
        service: EndpointService,
        serve: ServeSettings,
        inspector_deps: InspectorDeps,
        *,
        clock: Clock,
        new_id: NewId,
        authenticator: Authenticator | None = None,
        log: LogExchange | None = None,
        report_store_fault: ReportStoreFault | None = None,
        websocket_limits: WebSocketLimits | None = None,
        upstreams: PassThroughOpener | None = None,
        report_dropped: Callable[[str], None] | None = None,
        store: Store | None = None,
    ) -> None:
        store = store or inspector_deps.store
        self.is_shutting_down = False
        self.sockets = WebSocketConnections()
        self.pass_through_tracker = PassThroughTracker()
        self.metrics = Metrics()
        self._metrics_by_tenant: dict[str, Metrics] = {}
        self._service, self._serve, self._inspector_deps = service, serve, inspector_deps
        self._authenticator = authenticator or SingleTenant()
        self._is_local_only = authenticator is None
        self._clock, self._new_id, self._log = clock, new_id, log
        self._report_store_fault, self._websocket_limits = report_store_fault, websocket_limits or WebSocketLimits()
        self._upstreams = upstreams
        self._running_requests = 0
        self._store_measured_at: float | None = None
        self._store = store
        store.admin.set_transaction_observer(self.metrics.record_store_duration)
        self.recording = GatewayRecording(store, serve, clock, report_dropped or ignore_report)
        self.body_budget = BodyBudget(serve.limits.process_body_bytes)
        self._rate_limits = RateLimits(serve.limits, clock.monotonic)
        retention = Retention(serve.unstored_ttl_s, serve.max_unstored_rows)
        self.requests = RequestLog(store, retention)
        paths = [
            Path(path, PathHandler(self, path, methods))
            for path, methods in group_by_path(
                (*API_ROUTES, *inspector.APPROVAL_ROUTES, *inspector.COMPARISON_ROUTES, *inspector.INSPECTOR_ROUTES)
            )
        ]
        self._router = Router(
            [*paths, WebSocketRoute(websocket.WEBSOCKET_PATH, WebSocketHandler(self))],
            redirect_slashes=False,
            default=reject_unknown_path,
        )
        self._serve_api: ASGIApp = self._serve_exchange
        if serve.cors_origins:  # keys travel in a header, so no page may send cookies
            self._serve_api = CORSMiddleware(
                self._serve_exchange,
                allow_origins=serve.cors_origins,
                allow_methods=CORS_METHODS,
                allow_headers=["*"],
                expose_headers=["*"],
            )

    def start(self) -> None:
        """Exchange the running requests with the other servers of the database, in a running event loop."""
        if messages := self._store.admin.messages:
            self.requests.share(messages, self._new_id("server"))

    def begin_shutdown(self) -> None:
        """Start nothing new, and end the feeds of changes."""
        self.is_shutting_down = True
        self.requests.close()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        serve_scope = self._serve_api if scope["path"].startswith(API_PATH_PREFIX) else self._serve_exchange
        await serve_scope(scope, receive, send)

    async def _serve_exchange(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "websocket":
            send = websocket.with_http_rejection(send)
        exchange = HttpExchange(scope, receive, send, request_id=self._new_id("req"), clock=self._clock)
        scope["exchange"] = exchange
        exchange.body_share = BodyShare(self.body_budget)
        try:
            await self._router(scope, receive, send)
        except ClientDisconnected:
            exchange.status = CLIENT_CLOSED_STATUS
        except asyncio.CancelledError:  # at the end of the grace time
            if not exchange.status:
                await exchange.send_error(errors.server_shutting_down_error())
            raise
        except ConvoError as fault:
            self._report_fault(fault, exchange.tenant)
            await exchange.send_error(fault)
        finally:
            exchange.body_share.release()
            if not exchange.status:
                body = ANTHROPIC_INTERNAL_ERROR_BODY if exchange.is_anthropic else INTERNAL_ERROR_BODY
                await exchange.send_json(body, 500, CLOSE_CONNECTION_HEADERS)
            self._record_exchange(exchange)

    def _report_fault(self, fault: ConvoError, tenant: str) -> None:
        """Count and report a store error, even if the client does not see it."""
        # A fault of the store can be the cause of an error that names no details to the client.
        for error in (fault, fault.__cause__):
            if isinstance(error, StoreFault):
                self._metrics_for(tenant).record_store_fault()
                if self._report_store_fault:
                    self._report_store_fault(error)

    def _metrics_for(self, tenant: str) -> Metrics | CombinedMetrics:
        """Return the metrics of `tenant`; without keys there is one tenant."""
        if self._is_local_only or not tenant:
            return self.metrics
        return CombinedMetrics(self.metrics, self._tenant_metrics(tenant))

    def _tenant_metrics(self, tenant: str) -> Metrics:
        if tenant not in self._metrics_by_tenant:
            # The memory and the CPU time of the process are those of all tenants.
            self._metrics_by_tenant[tenant] = Metrics(process=False)
        return self._metrics_by_tenant[tenant]

    async def _render_metrics(self, exchange: HttpExchange) -> bytes:
        """Render the metrics that the caller may see."""
        if not self._authenticator.is_admin(read_authorization(exchange)):
            return self._tenant_metrics(exchange.tenant).render()
        await self._measure_store()
        return self.metrics.render()

    async def _measure_store(self) -> None:
        """Measure the store's size, at most once a minute; if the store fails, the last size stays."""
        now = self._clock.monotonic()
        if self._store_measured_at is not None and now - self._store_measured_at < STORE_SIZE_MAX_AGE_S:
            return
        self._store_measured_at = now
        with suppress(StoreFault):
            size = await self._store.admin.size_bytes()
            if size is not None:
                self.metrics.set_store_size(size)

    async def handle_request(self, route: ApiRoute, exchange: HttpExchange) -> None:
        """Handle one request that matched `route`. Raises ClientDisconnected, and ConvoError if no model is called."""
        if route.is_public:
            await self._run_handler(route, exchange)
        elif route.model_api is None:
            with self._request_slot(exchange):
                await self._run_handler(route, exchange)
        else:
            request = self._make_live_request(route.model_api, exchange)
            with self.requests.track(request):
                try:
                    with self._request_slot(exchange, request):
                        await self._run_handler(route, exchange, request)
                except ConvoError as fault:  # sent here, so that the row has its size
                    self._report_fault(fault, exchange.tenant)
                    await exchange.send_error(fault)
                request.finish(exchange)

    def _make_live_request(self, api: ModelApi, exchange: HttpExchange, request_id: str | None = None) -> LiveRequest:
        started_s, monotonic = self._clock.monotonic(), self._clock.monotonic
        return LiveRequest(
            request_id or exchange.id,
            api,
            self._clock.now(),
            name_client(exchange.headers),
            elapsed_s=lambda: monotonic() - started_s,
        )

    @contextmanager
    def _request_slot(
        self,
        exchange: HttpExchange,
        request: LiveRequest | None = None,
        *,
        expected_tenant: str = "",
        is_limited: bool = True,
    ) -> Iterator[None]:
        """Authenticate one request and count it as running.

        request:          gets the tenant of the key
        expected_tenant:  the key must belong to this tenant; "" accepts any
        is_limited:       whether `[serve.limits]` counts the request; the opening of a WebSocket is not counted

        Raises RequestRefused, KeyRefused and TryLater.
        """
        exchange.tenant = self._authenticate(exchange)
        if expected_tenant not in ("", exchange.tenant):
            raise errors.incorrect_api_key_error()
        if request is not None:
            request.tenant = exchange.tenant
        if self.is_shutting_down:
            raise errors.server_shutting_down_error()
        if self._running_requests >= self._serve.max_requests:
            raise errors.overloaded_error()
        if is_limited:
            self._rate_limits.acquire(exchange.tenant)
        self._running_requests += 1
        try:
            yield
        finally:
            self._running_requests -= 1
            if is_limited:
                self._rate_limits.release(exchange.tenant)

    def _record_events(
        self,
        exchange: HttpExchange,
        request: LiveRequest,
        body: Mapping[str, Json],
        events: AsyncGenerator[StreamEvent, None],
    ) -> AsyncGenerator[StreamEvent, None]:
        """Return `events`, recorded if the service does not store their response and the key is recorded."""
        if body.get("store") is not False or not self.recording.is_recorded(exchange.tenant):
            return events
        exchange.recording_header = self.recording.header
        return self.recording.track(request, exchange.headers, body, events)

    def _authenticate(self, exchange: HttpExchange) -> str:
        """Return the tenant of a request. Raises RequestRefused and KeyRefused."""
        if self._is_local_only:
            is_api = exchange.scope["path"].startswith(API_PATH_PREFIX)
            origins = self._serve.cors_origins if is_api else ()
            auth.check_local_caller(exchange.scope["headers"], origins, exchange.scope.get("client"))
        # The dictionary of headers has only the last value of a name.
        names = [name.lower() for name, _ in exchange.scope["headers"]]
        for header in KEY_HEADERS:
            if names.count(header) > 1:
                raise errors.duplicate_key_header_error(header.decode())
        return self._authenticator.authenticate(read_authorization(exchange))

    async def serve_websocket(self, exchange: HttpExchange, receive: "Receive", send: "Send") -> None:
        """Serve a WebSocket. Raises RequestRefused, KeyRefused and TryLater before it is accepted."""
        exchange.route = websocket.WEBSOCKET_PATH
        http.parse_query(exchange.scope["query_string"], ())
        with self._request_slot(exchange, is_limited=False):
            if len(self.sockets) >= self._serve.max_requests:
                raise errors.overloaded_error()
        recorded = (self.recording.header,) if self.recording.is_recorded(exchange.tenant) else ()
        await websocket.accept_websocket(receive, send, exchange.id, recorded)
        exchange.status = websocket.SWITCHING_PROTOCOLS_STATUS
        deps = WebSocketDeps(
            self._clock,
            self._websocket_limits,
            self._metrics_for(exchange.tenant),
            parse_message=partial(parse_json_object, serve=self._serve),
            request_slot=lambda request: self._request_slot(exchange, request, expected_tenant=exchange.tenant),
            requests=self.requests,
            make_live_request=lambda: self._make_live_request("responses", exchange, self._new_id("req")),
            record_events=partial(self._record_events, exchange),
            body_share=BodyShare(self.body_budget),
            new_id=self._new_id,
        )
        connection = WebSocketConnection(receive, send, self._service.endpoint_for(exchange.tenant), deps)
        async with self.sockets.track(connection):
            await connection.serve()

    async def _run_handler(self, route: ApiRoute, exchange: HttpExchange, request: LiveRequest | None = None) -> None:
        scope = exchange.scope
        query = http.parse_query(scope["query_string"], route.query)
        raw_body, body = b"", dict[str, Json]()
        form = await exchange.read_form(self._serve) if route.is_form else None
        if route.request_schema and form is None:
            raw_body, body = await exchange.read_json_body(self._serve, optional=route.is_body_optional)
        if request is not None:
            self.requests.begin(request, body, len(raw_body))
        if route.upstream_api is not None:
            passed_exchange = PassedExchange(route.upstream_api, raw_body, body, query)
            await self._pass_through(passed_exchange, exchange, request)
            return
        assert route.handler is not None
        context = HandlerContext(
            self._service, self._inspector_deps, partial(self._render_metrics, exchange), self.is_shutting_down,
            exchange.tenant, scope["path_params"], query, body, exchange.base_url, exchange.headers,
            self.requests, request, partial(self._record_events, exchange), self.recording.is_recorded(exchange.tenant),
            has_keys=not self._is_local_only, form=form,
        )  # fmt: skip
        result: HandlerResult | None = None
        async with CancelOnDisconnect(exchange) if route.calls_model else nullcontext():
            result = await route.handler(context)
        # `CancelOnDisconnect` has suppressed the cancellation.
        if result is None:
            raise ClientDisconnected
        if isinstance(result, EventsResult):
            metrics = self._metrics_for(exchange.tenant)
            await relay_events(exchange, result, metrics, keepalive_s=self._serve.keepalive_s)
        elif isinstance(result, RawResponse):
            await exchange.send_bytes(result.body, result.content_type, result.status, result.headers)
        else:
            await exchange.send_json(result)

    async def _pass_through(
        self, passed_exchange: PassedExchange, exchange: HttpExchange, request: LiveRequest | None
    ) -> None:
        """Pass one request through to its model's provider. Raises ConvoError before the response has begun."""
        if request is not None:
            passed_exchange.on_first_byte = partial(self.requests.begin_response, request)
        if self._upstreams is None:
            raise errors.unknown_url_error(exchange.method, exchange.scope["path"])
        client, provider_model = self._upstreams.open_pass_through(passed_exchange.api, passed_exchange.model)
        if self.is_shutting_down:  # since the body was read, the connections to providers may have been closed
            raise errors.server_shutting_down_error()
        metrics = self._metrics_for(exchange.tenant)
        with self.pass_through_tracker.track(), self.recording.track_passed(exchange, passed_exchange):
            if request is not None:
                request.is_recorded = exchange.recording_header is not None
            await relay_upstream(exchange, passed_exchange, client, provider_model, metrics, self.pass_through_tracker)
        if request is not None:
            request.usage = passed_exchange.usage
            exchange.error_code = exchange.error_code or passed_exchange.error_code or ""

    def _record_exchange(self, exchange: HttpExchange) -> None:
        if exchange.status != websocket.SWITCHING_PROTOCOLS_STATUS:
            metrics = self._metrics_for(exchange.tenant)
            metrics.record_request(exchange.method, exchange.route, exchange.status, exchange.duration_s)
        if self._log:
            self._log(exchange)


def read_authorization(exchange: HttpExchange) -> str | None:
    """Return the Authorization header of a request; one with an x-api-key header instead counts as a bearer token."""
    header, api_key = (exchange.headers.get(name) for name in KEY_HEADERS)
    if header is None and api_key is not None:
        header = b"Bearer " + api_key
    return header.decode("latin-1") if header else None


class PathHandler:
    """Dispatches the methods of one path."""

    def __init__(self, gateway: Gateway, path: str, routes: dict[str, ApiRoute]) -> None:
        self._gateway, self._path, self._routes = gateway, path, routes
        # HTTP requires HEAD where there is GET; uvicorn leaves out the body.
        if "GET" in routes:
            routes["HEAD"] = routes["GET"]

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        exchange: HttpExchange = scope["exchange"]
        exchange.route = self._path
        route = self._routes.get(scope["method"])
        if route is None:
            exchange.allowed_methods = ", ".join(self._routes)
            raise errors.method_not_allowed_error(scope["method"], scope["path"], exchange.allowed_methods)
        await self._gateway.handle_request(route, exchange)


class WebSocketHandler:
    """Serves the path of WebSocket mode."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self._gateway.serve_websocket(scope["exchange"], receive, send)


async def reject_unknown_path(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """Raise RequestRefused: there is no such path."""
    raise errors.unknown_url_error(scope["exchange"].method, scope["path"])
