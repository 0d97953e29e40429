"""The ASGI application: authenticate, parse, call the endpoint, respond.

It depends on the EndpointService contract only. A ConvoError becomes the API's error object under
its status; any other exception becomes a 500 without details, and is logged by the server.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from starlette.routing import Route as Path
from starlette.routing import Router, WebSocketRoute

from convo.config.settings import ServeSettings
from convo.endpoints.base import EndpointService
from convo.errors import ConvoError, StoreFault
from convo.history.items import Json
from convo.runtime import Clock, NewId
from convo.server import auth, errors, http, inspector, websocket
from convo.server.auth import Authenticator, SingleTenant
from convo.server.http import CLIENT_CLOSED_STATUS, ClientDisconnected, HttpExchange, parse_json_object
from convo.server.metrics import CombinedMetrics, Metrics
from convo.server.rate_limits import RateLimits
from convo.server.routes import (
    API_ROUTES,
    ApiRoute,
    HandlerContext,
    HandlerResult,
    InspectorDeps,
    RawResponse,
    group_by_path,
)
from convo.server.sse import CancelOnDisconnect, EventsResult, relay_events
from convo.server.websocket import WebSocketConnection, WebSocketConnections, WebSocketDeps, WebSocketLimits

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


INTERNAL_ERROR_BODY: Json = {
    "error": {
        "message": "The server had an error while processing your request.",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
}

AUTHORIZATION_HEADER = b"authorization"

STORE_SIZE_MAX_AGE_S = 60.0
"""Seconds for which a measured size of the store is reused."""

CLOSE_CONNECTION_HEADERS = ((b"connection", b"close"),)
"""uvicorn closes the connection after an exception, so a client should not reuse it."""

LogExchange = Callable[[HttpExchange], None]
"""Called with every exchange after its response."""

ReportStoreFault = Callable[[StoreFault], None]
"""Called with every error of the store: the client does not get its details."""


class Gateway:
    """An ASGI application over a service.

    authenticator:     None accepts local callers as the tenant "local"
    websocket_limits:  limits of each WebSocket
    is_shutting_down:  set by the server at shutdown: from then on nothing new is started
    sockets:           the open WebSockets
    """

    def __init__(
        self,
        service: EndpointService,
        serve: ServeSettings,
        inspected: InspectorDeps,
        *,
        clock: Clock,
        new_id: NewId,
        keys: Authenticator | None = None,
        log: LogExchange | None = None,
        trouble: ReportStoreFault | None = None,
        bounds: WebSocketLimits | None = None,
    ) -> None:
        self.ending = False
        self.sockets = WebSocketConnections()
        self.metrics = Metrics()
        self._metrics_of: dict[str, Metrics] = {}
        self._service, self._serve, self._inspected = service, serve, inspected
        self._keys = keys or SingleTenant()
        self._guarded = keys is None
        self._clock, self._new_id, self._log = clock, new_id, log
        self._trouble, self._bounds = trouble, bounds or WebSocketLimits()
        self._running = 0
        self._measured: float | None = None
        inspected.store.upkeep.observe(self.metrics.store_took)
        self._limits = RateLimits(serve.limits, clock.ticks)
        paths = [
            Path(path, PathHandler(self, path, methods))
            for path, methods in group_by_path((*API_ROUTES, *inspector.INSPECTOR_ROUTES))
        ]
        self._router = Router(
            [*paths, WebSocketRoute(websocket.WEBSOCKET_PATH, WebSocketHandler(self))],
            redirect_slashes=False,
            default=reject_unknown_path,
        )

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "websocket":
            send = websocket.with_http_rejection(send)
        exchange = HttpExchange(scope, receive, send, request_id=self._new_id("req"), clock=self._clock)
        scope["exchange"] = exchange
        try:
            await self._router(scope, receive, send)
        except ClientDisconnected:
            exchange.status = CLIENT_CLOSED_STATUS
        except ConvoError as fault:
            self._notice(fault, exchange.tenant)
            await exchange.refuse(fault)
        finally:
            if not exchange.status:
                await exchange.answer(INTERNAL_ERROR_BODY, 500, CLOSE_CONNECTION_HEADERS)
            self._tell(exchange)

    def _notice(self, fault: ConvoError, tenant: str) -> None:
        """Count and report a store error, even if the client does not see it."""
        for one in (fault, fault.__cause__):
            if isinstance(one, StoreFault):
                self._counting(tenant).store_fault()
                if self._trouble:
                    self._trouble(one)

    def _counting(self, tenant: str) -> Metrics | CombinedMetrics:
        """Return the metrics of `tenant`; without keys there is one tenant."""
        if self._guarded or not tenant:
            return self.metrics
        return CombinedMetrics(self.metrics, self._own_metrics(tenant))

    def _own_metrics(self, tenant: str) -> Metrics:
        if tenant not in self._metrics_of:
            self._metrics_of[tenant] = Metrics(process=False)
        return self._metrics_of[tenant]

    async def _figures(self, exchange: HttpExchange) -> bytes:
        """Render the metrics that the caller may see."""
        if not self._keys.is_admin(read_authorization(exchange)):
            return self._own_metrics(exchange.tenant).text()
        await self._measure_store()
        return self.metrics.text()

    async def _measure_store(self) -> None:
        """Measure the store's size, at most once a minute; if the store fails, the last size stays."""
        now = self._clock.ticks()
        if self._measured is not None and now - self._measured < STORE_SIZE_MAX_AGE_S:
            return
        self._measured = now
        with suppress(StoreFault):
            size = await self._inspected.store.upkeep.size()
            if size is not None:
                self.metrics.store_size(size)

    async def carry_out(self, route: ApiRoute, exchange: HttpExchange) -> None:
        """Handle one request that matched `route`. Raises ConvoError and ClientDisconnected."""
        if route.open:
            await self._handle(route, exchange)
            return
        with self._room(exchange):
            await self._handle(route, exchange)

    @contextmanager
    def _room(self, exchange: HttpExchange, *, of: str = "", limited: bool = True) -> Iterator[None]:
        """Authenticate one request and count it as running.

        expected_tenant:  the key must belong to this tenant; "" accepts any
        is_limited:       whether `[serve.limits]` counts the request; the opening of a WebSocket is not counted

        Raises RequestRefused, KeyRefused and TryLater.
        """
        exchange.tenant = self._tenant(exchange)
        if of not in ("", exchange.tenant):
            raise errors.incorrect_api_key_error()
        if self.ending:
            raise errors.server_shutting_down_error()
        if self._running >= self._serve.max_requests:
            raise errors.overloaded_error()
        if limited:
            self._limits.enter(exchange.tenant)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if limited:
                self._limits.leave(exchange.tenant)

    def _tenant(self, exchange: HttpExchange) -> str:
        """Return the tenant of a request. Raises RequestRefused and KeyRefused."""
        if self._guarded:
            auth.check_local_caller(exchange.headers)
        if sum(name.lower() == AUTHORIZATION_HEADER for name, _ in exchange.scope["headers"]) > 1:
            raise errors.duplicate_authorization_error()
        return self._keys.tenant(read_authorization(exchange))

    async def talk(self, exchange: HttpExchange, receive: "Receive", send: "Send") -> None:
        """Serve a WebSocket. Raises RequestRefused, KeyRefused and TryLater before it is accepted."""
        exchange.route = websocket.WEBSOCKET_PATH
        http.parse_query(exchange.scope["query_string"], ())
        with self._room(exchange, limited=False):
            if len(self.sockets) >= self._serve.max_requests:
                raise errors.overloaded_error()
        await websocket.accept_websocket(receive, send, exchange.id)
        exchange.status = websocket.SWITCHING_PROTOCOLS_STATUS
        house = WebSocketDeps(
            self._clock,
            self._bounds,
            self._counting(exchange.tenant),
            read=partial(parse_json_object, serve=self._serve),
            room=partial(self._room, exchange, of=exchange.tenant),
            told=partial(self._inspected.going.told, exchange.tenant),
        )
        socket = WebSocketConnection(receive, send, self._service.of(exchange.tenant), house)
        async with self.sockets.holding(socket):
            await socket.serve()

    async def _handle(self, route: ApiRoute, exchange: HttpExchange) -> None:
        scope = exchange.scope
        query = http.parse_query(scope["query_string"], route.query)
        body = await exchange.document(self._serve, optional=route.optional) if route.takes else {}
        asked = HandlerContext(
            self._service, self._inspected, partial(self._figures, exchange), self.ending, exchange.tenant,
            scope["path_params"], query, body,
        )  # fmt: skip
        answer: HandlerResult | None = None
        async with CancelOnDisconnect(exchange) if route.asks else nullcontext():
            answer = await route.handler(asked)
        if answer is None:
            raise ClientDisconnected
        if isinstance(answer, EventsResult):
            counting = self._counting(exchange.tenant)
            await relay_events(exchange, answer, counting, keepalive_s=self._serve.keepalive_s)
        elif isinstance(answer, RawResponse):
            await exchange.answer_bytes(answer.body, answer.form, answer.status, answer.headers)
        else:
            await exchange.answer(answer)

    def _tell(self, exchange: HttpExchange) -> None:
        if exchange.status != websocket.SWITCHING_PROTOCOLS_STATUS:
            counting = self._counting(exchange.tenant)
            counting.answered(exchange.method, exchange.route, exchange.status, exchange.took_s)
        if self._log:
            self._log(exchange)


def read_authorization(exchange: HttpExchange) -> str | None:
    """Return the Authorization header of a request."""
    found = exchange.headers.get(AUTHORIZATION_HEADER)
    return found.decode("latin-1") if found else None


class PathHandler:
    """Dispatches the methods of one path."""

    def __init__(self, gateway: Gateway, path: str, methods: dict[str, ApiRoute]) -> None:
        self._gateway, self._path, self._methods = gateway, path, methods
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        exchange: HttpExchange = scope["exchange"]
        exchange.route = self._path
        route = self._methods.get(scope["method"])
        if route is None:
            exchange.allow = ", ".join(self._methods)
            raise errors.method_not_allowed_error(scope["method"], scope["path"], exchange.allow)
        await self._gateway.carry_out(route, exchange)


class WebSocketHandler:
    """Serves the path of WebSocket mode."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self._gateway.talk(scope["exchange"], receive, send)


async def reject_unknown_path(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """Raise RequestRefused: there is no such path."""
    raise errors.unknown_url_error(scope["exchange"].method, scope["path"])
