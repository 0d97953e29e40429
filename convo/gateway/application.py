"""The gateway: the embedded endpoint over HTTP, and nothing more.

    guard     the caller's place, its key, whether there is room
    read      path, query, body: refused with the API's own error object
    handle    one call of the endpoint
    answer    JSON, or events as they come

It knows the contract of a service and no concrete one. What an endpoint raises is answered under
its `status`; what nobody foresaw is a 500 without words of its own, and goes on to the server's log.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from starlette.routing import Route as Path
from starlette.routing import Router, WebSocketRoute

from convo.clock import Clock
from convo.config import Serve
from convo.endpoints.contract import Service
from convo.errors import ConvoError, StoreFault
from convo.gateway import callers, page, queries, refusals, websocket
from convo.gateway.asked import Answer, Asked, Inspected, Plain
from convo.gateway.exchange import CLIENT_GONE, ClientGone, Exchange, object_in
from convo.gateway.keys import Keys, NoKeys
from convo.gateway.metrics import CombinedMetrics, Metrics
from convo.gateway.rate_limits import RateLimits
from convo.gateway.relaying import Answering, Watch, relay
from convo.gateway.routes import ROUTES, Route, by_path
from convo.gateway.websocket import Bounds, House, Socket, Sockets
from convo.ids import NewId
from convo.items import Json

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

BROKEN: Json = {
    "error": {
        "message": "The server had an error while processing your request.",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
}

AUTHORIZATION = b"authorization"

SIZE_FOR_S = 60.0
"""Seconds for which the size of the store is taken to be the same."""

CLOSING = ((b"connection", b"close"),)
"""uvicorn closes the connection behind an exception, and a client should not use it again."""

Log = Callable[[Exchange], None]
"""Told of every exchange once it has been answered."""

Trouble = Callable[[StoreFault], None]
"""Told why the store did not do something: clients hear only that it did not."""


class Gateway:
    """An ASGI application over a service.

    keys:     None lets this machine ask as the tenant "local"
    bounds:   of a WebSocket
    ending:   set by whoever ends the server: from then on nothing new is begun
    sockets:  the open ones
    """

    def __init__(
        self, service: Service, serve: Serve, inspected: Inspected, *, clock: Clock, new_id: NewId,
        keys: Keys | None = None, log: Log | None = None, trouble: Trouble | None = None, bounds: Bounds | None = None,
    ) -> None:  # fmt: skip
        self.ending = False
        self.sockets = Sockets()
        self.metrics = Metrics()
        self._metrics_of: dict[str, Metrics] = {}
        self._service, self._serve, self._inspected = service, serve, inspected
        self._keys = keys or NoKeys()
        self._guarded = keys is None
        self._clock, self._new_id, self._log = clock, new_id, log
        self._trouble, self._bounds = trouble, bounds or Bounds()
        self._running = 0
        self._measured: float | None = None
        inspected.store.upkeep.observe(self.metrics.store_took)
        self._limits = RateLimits(serve.limits, clock.ticks)
        paths = [Path(path, OnePath(self, path, methods)) for path, methods in by_path((*ROUTES, *page.ROUTES))]
        self._router = Router(
            [*paths, WebSocketRoute(websocket.PATH, OneSocket(self))], redirect_slashes=False, default=nowhere
        )

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "websocket":
            send = websocket.refusable(send)
        exchange = Exchange(scope, receive, send, request_id=self._new_id("req"), clock=self._clock)
        scope["exchange"] = exchange
        try:
            await self._router(scope, receive, send)
        except ClientGone:
            exchange.status = CLIENT_GONE
        except ConvoError as fault:
            self._notice(fault, exchange.tenant)
            await exchange.refuse(fault)
        finally:
            if not exchange.status:
                await exchange.answer(BROKEN, 500, CLOSING)
            self._tell(exchange)

    def _notice(self, fault: ConvoError, tenant: str) -> None:
        """Count and report a store that failed, also where the client does not see it."""
        for one in (fault, fault.__cause__):
            if isinstance(one, StoreFault):
                self._counting(tenant).store_fault()
                if self._trouble:
                    self._trouble(one)

    def _counting(self, tenant: str) -> Metrics | CombinedMetrics:
        """Where the requests of `tenant` are counted; without keys there is one tenant."""
        if self._guarded or not tenant:
            return self.metrics
        return CombinedMetrics(self.metrics, self._own_metrics(tenant))

    def _own_metrics(self, tenant: str) -> Metrics:
        if tenant not in self._metrics_of:
            self._metrics_of[tenant] = Metrics(process=False)
        return self._metrics_of[tenant]

    async def _figures(self, exchange: Exchange) -> bytes:
        """What `exchange` may see of what is counted."""
        if not self._keys.is_admin(said(exchange)):
            return self._own_metrics(exchange.tenant).text()
        await self._measure_store()
        return self.metrics.text()

    async def _measure_store(self) -> None:
        """Ask for the store's size, at most once a minute; a store that cannot be asked keeps its last one."""
        now = self._clock.ticks()
        if self._measured is not None and now - self._measured < SIZE_FOR_S:
            return
        self._measured = now
        with suppress(StoreFault):
            size = await self._inspected.store.upkeep.size()
            if size is not None:
                self.metrics.store_size(size)

    async def carry_out(self, route: Route, exchange: Exchange) -> None:
        """Answer one request that has found its route. raises: ConvoError, ClientGone"""
        if route.open:
            await self._handle(route, exchange)
            return
        with self._room(exchange):
            await self._handle(route, exchange)

    @contextmanager
    def _room(self, exchange: Exchange, *, of: str = "", limited: bool = True) -> Iterator[None]:
        """A place for one thing that `exchange` asks.

        of:      whose key it has to be still; any tenant's where it is empty
        limited: whether it is one of the requests that `[serve.limits]` counts; to open a WebSocket is none
        raises:  Refused, KeyRefused, TryLater
        """
        exchange.tenant = self._tenant(exchange)
        if of not in ("", exchange.tenant):
            raise refusals.wrong_key()
        if self.ending:
            raise refusals.ending()
        if self._running >= self._serve.max_requests:
            raise refusals.too_many_requests()
        if limited:
            self._limits.enter(exchange.tenant)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if limited:
                self._limits.leave(exchange.tenant)

    def _tenant(self, exchange: Exchange) -> str:
        """Whose state a request is about. raises: Refused, KeyRefused"""
        if self._guarded:
            callers.check(exchange.headers)
        if sum(name.lower() == AUTHORIZATION for name, _ in exchange.scope["headers"]) > 1:
            raise refusals.duplicate_authorization()
        return self._keys.tenant(said(exchange))

    async def talk(self, exchange: Exchange, receive: "Receive", send: "Send") -> None:
        """Carry out turns over a WebSocket. raises: Refused, KeyRefused, TryLater  it is not opened"""
        exchange.route = websocket.PATH
        queries.read(exchange.scope["query_string"], ())
        with self._room(exchange, limited=False):
            if len(self.sockets) >= self._serve.max_requests:
                raise refusals.too_many_requests()
        await websocket.accept(receive, send, exchange.id)
        exchange.status = websocket.OPENED
        house = House(
            self._clock,
            self._bounds,
            self._counting(exchange.tenant),
            read=partial(object_in, serve=self._serve),
            room=partial(self._room, exchange, of=exchange.tenant),
            told=partial(self._inspected.going.told, exchange.tenant),
        )
        socket = Socket(receive, send, self._service.of(exchange.tenant), house)
        async with self.sockets.holding(socket):
            await socket.serve()

    async def _handle(self, route: Route, exchange: Exchange) -> None:
        scope = exchange.scope
        query = queries.read(scope["query_string"], route.query)
        body = await exchange.document(self._serve, optional=route.optional) if route.takes else {}
        asked = Asked(
            self._service, self._inspected, partial(self._figures, exchange), self.ending, exchange.tenant,
            scope["path_params"], query, body,
        )  # fmt: skip
        answer: Answer | None = None
        async with Watch(exchange) if route.asks else nullcontext():
            answer = await route.handler(asked)
        if answer is None:
            raise ClientGone
        if isinstance(answer, Answering):
            counting = self._counting(exchange.tenant)
            await relay(exchange, answer, counting, keepalive_s=self._serve.keepalive_s)
        elif isinstance(answer, Plain):
            await exchange.answer_bytes(answer.body, answer.form, answer.status, answer.headers)
        else:
            await exchange.answer(answer)

    def _tell(self, exchange: Exchange) -> None:
        if exchange.status != websocket.OPENED:
            counting = self._counting(exchange.tenant)
            counting.answered(exchange.method, exchange.route, exchange.status, exchange.took_s)
        if self._log:
            self._log(exchange)


def said(exchange: Exchange) -> str | None:
    """The Authorization header of a request."""
    found = exchange.headers.get(AUTHORIZATION)
    return found.decode("latin-1") if found else None


class OnePath:
    """All the methods of one path."""

    def __init__(self, gateway: Gateway, path: str, methods: dict[str, Route]) -> None:
        self._gateway, self._path, self._methods = gateway, path, methods
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        exchange: Exchange = scope["exchange"]
        exchange.route = self._path
        route = self._methods.get(scope["method"])
        if route is None:
            exchange.allow = ", ".join(self._methods)
            raise refusals.wrong_method(scope["method"], scope["path"], exchange.allow)
        await self._gateway.carry_out(route, exchange)


class OneSocket:
    """The path of WebSocket mode."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self._gateway.talk(scope["exchange"], receive, send)


async def nowhere(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """raises: Refused  there is no such path"""
    raise refusals.no_route(scope["exchange"].method, scope["path"])
