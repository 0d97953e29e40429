"""The gateway of `convo serve`: made from the settings, and as an ASGI application for other servers.

`run_gateway` in `convo.server.server` serves it on a socket of its own, with limits of connections and headers;
under `asgi_app` these are the limits of the server that runs it.
"""

import asyncio
import os
from collections.abc import Callable, MutableMapping
from contextlib import AsyncExitStack
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convo.config.loader import SettingFlags, load_settings
from convo.config.settings import Settings, make_model_name_expander
from convo.config.storage import get_store_url
from convo.errors import ConvoError, InvalidUsage, StoreFull
from convo.installation import list_missing_packages, make_missing_extra_error
from convo.runtime import SystemClock, random_id
from convo.stores.base import DamagedRowObserver, Store, warn_of_damaged_row
from convo.stores.factory import open_store

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from convo.chat.endpoint_factory import ModelsForClients
    from convo.endpoints.base import EndpointService
    from convo.server.app import Gateway, LogExchange, ReportStoreFault
    from convo.server.auth import KeysFile


def check_modules_installed(subject: str) -> None:
    """Raise InvalidUsage if the extra `serve` is not installed."""
    if list_missing_packages("serve"):
        raise make_missing_extra_error(InvalidUsage, subject, "serve")


def load_keys(settings: Settings) -> "KeysFile | None":
    """Return the keys of a server; None if it serves this machine only.

    Raises InvalidSettings and InvalidUsage for settings with which nothing can be served.
    """
    from convo.server.auth import KeysFile
    from convo.server.server import check_keys_required

    check_keys_required(settings.serve)
    if settings.serve.record and settings.storage.type == "none":
        raise InvalidUsage("--record cannot be used with --store none", hint="use --store memory or sqlite:PATH")
    return KeysFile(settings.serve.keys_file) if settings.serve.keys_file else None


async def open_stores(settings: Settings, observer: DamagedRowObserver = warn_of_damaged_row) -> tuple[Store, Store]:
    """Open the configured store with this convo's schema, and the one of the inspector page. Raises StoreFault.

    The page has a second connection to a SQLite file, whose jobs run one after another: a long read of the page then
    holds up no request. PostgreSQL has a pool, and a store in memory one connection.
    """
    url = get_store_url(settings.storage)
    store = open_store(url)
    inspector_store = open_store(url) if settings.storage.type == "sqlite" else store
    for one in (store, inspector_store):
        one.admin.set_damaged_row_observer(observer)
    await store.admin.migrate()
    return store, inspector_store


def make_gateway(
    settings: Settings,
    store: Store,
    inspector_store: Store,
    keys: "KeysFile | None",
    *,
    notify: Callable[[str], None],
    strict: bool = False,
    log: "LogExchange | None" = None,
    report_store_fault: "ReportStoreFault | None" = None,
) -> "tuple[Gateway, EndpointService, ModelsForClients]":
    """Make the gateway over `store`, with its service and models; no connection is made yet.

    notify:  called with warnings for the operator
    """
    from convo.chat.endpoint_factory import ModelsForClients, open_service
    from convo.server.app import Gateway
    from convo.server.handlers import InspectorDeps

    serve, clock = settings.serve, SystemClock()
    models = ModelsForClients(settings, clock, random_id, warn=lambda message: notify(f"warning: {message}"))
    service = open_service(settings, store=store, clock=clock, new_id=random_id, strict=strict, models=models)
    gateway = Gateway(
        service, serve,
        InspectorDeps(
            inspector_store, settings.prices, providers=settings.providers,
            expand_model_name=make_model_name_expander(settings),
        ),
        clock=clock, new_id=random_id, authenticator=keys, log=log,
        report_store_fault=report_store_fault, upstreams=models, report_dropped=notify, store=store,
    )  # fmt: skip
    return gateway, service, models


class GatewayApp:
    """The gateway as an ASGI application. It starts with the lifespan of its server, or else with the first request.

    A server that mounts it below a path runs no lifespan of it: call `aclose` when that server ends.
    """

    def __init__(self, settings: Settings, keys: "KeysFile | None") -> None:
        self._settings, self._keys = settings, keys
        self._starting: asyncio.Task[Gateway] | None = None
        self._stack = AsyncExitStack()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        gateway = await self._start()
        # A mounted application gets the whole path.
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")) or "/"
        await gateway({**scope, "path": path}, receive, send)

    async def _run_lifespan(self, receive: "Receive", send: "Send") -> None:
        while True:
            event: MutableMapping[str, Any] = await receive()
            if event["type"] == "lifespan.shutdown":
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return
            try:
                await self._start()
            except ConvoError as error:
                await send({"type": "lifespan.startup.failed", "message": f"convo: {error.message}"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _start(self) -> "Gateway":
        if self._starting is None or (self._starting.done() and self._starting.exception()):
            self._starting = asyncio.create_task(self._open())
        return await asyncio.shield(self._starting)

    async def _open(self) -> "Gateway":
        notify = partial(getLogger("convo.server").warning, "%s")
        async with AsyncExitStack() as stack:
            store, inspector_store = await open_stores(self._settings)
            stack.push_async_callback(store.aclose)
            stack.push_async_callback(inspector_store.aclose)
            gateway, service, models = make_gateway(self._settings, store, inspector_store, self._keys, notify=notify)
            stack.push_async_callback(gateway.requests.aclose)
            stack.push_async_callback(gateway.recording.aclose)
            for part in (service, gateway.pass_through_tracker, gateway.sockets):
                stack.push_async_callback(part.aclose, self._settings.serve.grace_s)
            stack.callback(gateway.begin_shutdown)
            try:
                await service.check_ready()  # also starts the recovery of work that other replicas left
            except StoreFull as fault:  # what is stored can be read, and deleted
                notify(fault.message)
            if self._settings.serve.record:
                gateway.recording.start()
            await models.warm()
            gateway.start()
            self._stack = stack.pop_all()
        return gateway

    async def aclose(self) -> None:
        """End running responses within `serve.grace_s`, and close the store; a later request starts it again."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
            self._starting = None
            await self._stack.aclose()


def asgi_app(config: str | os.PathLike[str] | None = None, *, store: str | None = None) -> GatewayApp:
    """Return the gateway of `convo serve` as an ASGI application, for uvicorn or to mount below a path.

    config:  a settings file; None: that of the user
    store:   none, memory, sqlite:PATH or postgresql://...; None: that of the settings

    Without `serve.keys_file` it answers callers of this machine only. Raises InvalidSettings, and InvalidUsage if the
    extra `serve` is not installed.
    """
    check_modules_installed("asgi_app")
    settings = load_settings(Path(config) if config is not None else None, SettingFlags(store=store))
    return GatewayApp(settings, load_keys(settings))
