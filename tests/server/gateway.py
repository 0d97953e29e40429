"""A gateway on a real socket, in its own thread, with a real store and scripted models.

gateway.script("slow", {"text": "..."}, delay_s=0.05)      sets the answers of the model "slow"
gateway.script("slow", {"text": "..."}, delay_s=HELD_S)    the same; each delta waits until `release_deltas`
gateway.create_response({"model": "echo", "input": "hi"})  sends one request over HTTP
"""

import asyncio
import json
import math
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from convo.chat.endpoint_factory import ModelsForClients, open_service
from convo.config.settings import Settings, expand_model_name
from convo.endpoints.base import EndpointService
from convo.errors import StoreFault
from convo.runtime import Clock, SystemClock, random_id
from convo.server import server
from convo.server.app import Gateway
from convo.server.auth import Authenticator
from convo.server.handlers import InspectorDeps
from convo.server.http import HttpExchange
from convo.server.websocket import WebSocketLimits
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.asgi_server import start_loop_thread
from tests.cli.stored_chats import DATABASE, ChatWriter, write_chats
from tests.clock import ReplyClock
from tests.config.settings_inputs import make_settings
from tests.models.chat_server import ChatServer, run_chat_server

T = TypeVar("T")

SCRIPTS = ("one", "two", "slow", "broken", "refused")
"""Models whose answers a test sets with `RunningGateway.script`."""

HTTP_TIMEOUT_S = 60
"""Only rules out a hang: a test may hold an answer while a page takes many seconds on a busy machine."""

HELD_MODEL = "up/m"
"""The model of `run_gateway_with_upstream`. `ChatServer.hold_answer` prepares an answer that a test ends."""


@dataclass
class RunningGateway:
    """A running gateway.

    url:                its base URL, with /v1
    exchanges:          every exchange that has ended, oldest first
    unexpected_errors:  exceptions that the server did not expect
    store_faults:       store faults that were reported to the operator
    listener:           the listening socket
    """

    url: str
    folder: Path
    store: Store
    app: Gateway
    loop: asyncio.AbstractEventLoop
    stop_event: asyncio.Event
    thread: threading.Thread
    exchanges: list[HttpExchange]
    unexpected_errors: list[BaseException]
    store_faults: list[StoreFault]
    listener: socket.socket
    reply_clock: ReplyClock
    http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx2.Client(base_url=self.root, timeout=HTTP_TIMEOUT_S, trust_env=False)

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    def script(self, name: str, *replies: dict[str, Any], **more: Any) -> None:
        """Set the answers of the model `name`. Must be called before the first request to the model."""
        assert name in SCRIPTS
        (self.folder / f"{name}.json").write_text(json.dumps({"replies": replies, **more}), encoding="utf-8")

    def release_deltas(self, count: float = math.inf) -> None:
        """Release this many deltas of scripts with the delay `HELD_S`; by default all, also those of later requests."""
        self.run(self.reply_clock.release(count))

    def create_response(self, body: dict[str, Any], **more: Any) -> httpx2.Response:
        return self.http.post("/v1/responses", json=body, **more)

    def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the events of one streamed response."""
        text = self.create_response({**body, "stream": True}).text
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the event loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def shut_down(self) -> None:
        """Start the shutdown, as a signal does."""
        with suppress(RuntimeError):  # the loop is closed, because the server has ended
            self.loop.call_soon_threadsafe(self.stop_event.set)

    def begin_shutdown(self) -> None:
        """Start the shutdown, and wait until no new turn starts. A response must still run."""
        self.shut_down()
        while not self.app.is_shutting_down:
            self.run(asyncio.sleep(0))


def gateway_settings(folder: Path, limits: dict[str, Any], toml: str = "") -> Settings:
    """Return settings that read no file and no environment.

    toml:  more of the user's settings file; it continues the [aliases] table
    """
    aliases = "".join(f'{name} = "scripted/{folder}/{name}.json"\n' for name in SCRIPTS)
    settings = make_settings(user=f'model = "echo"\n[aliases]\necho = "scripted/echo"\n{aliases}{toml}')
    return settings._replace(serve=settings.serve._replace(host="127.0.0.1", port=0, **limits))


Wrap = Callable[[EndpointService], EndpointService]


def unwrapped_service(service: EndpointService) -> EndpointService:
    return service


@contextmanager
def run_gateway(
    folder: Path, store_url: str = "memory", *, keys: Authenticator | None = None, wrap: Wrap = unwrapped_service,
    websocket_limits: WebSocketLimits | None = None, clock: Clock | None = None, toml: str = "",
    **limits: Any
) -> Iterator[RunningGateway]:  # fmt: skip
    """Run a gateway while the block runs. Its socket listens before its thread starts, so a client need not wait.

    wrap:              wraps the service
    websocket_limits:  limits of WebSocket connections
    clock:             the clock of the gateway; the service uses the system clock
    toml:              more of the settings file; it continues the [aliases] table
    limits:            fields of `[serve]`
    """
    folder.mkdir(exist_ok=True)
    settings = gateway_settings(folder, {"grace_s": 5.0, **limits}, toml)
    store, loop, system_clock = open_store(store_url), asyncio.new_event_loop(), SystemClock()
    listener = server.open_listening_socket("127.0.0.1", 0)
    exchanges: list[HttpExchange] = []
    unexpected_errors: list[BaseException] = []
    store_faults: list[StoreFault] = []
    reply_clock = ReplyClock()
    models = ModelsForClients(settings, reply_clock, random_id)
    service = wrap(open_service(settings, store=store, clock=system_clock, new_id=random_id, models=models))
    app = Gateway(
        service, settings.serve, InspectorDeps(
            store, providers=settings.providers, clock=clock or system_clock,
            expand_model_name=partial(expand_model_name, settings),
        ),
        clock=clock or system_clock, new_id=random_id, authenticator=keys, log=exchanges.append,
        report_store_fault=store_faults.append, websocket_limits=websocket_limits, upstreams=models,
    )  # fmt: skip
    stop_event = asyncio.Event()

    async def run() -> None:
        await store.admin.migrate()
        try:
            await server.run_gateway(app, service, settings.serve, listener, stop_event, unexpected_errors.append)
        finally:
            await store.aclose()

    thread = start_loop_thread(loop, run())
    running = RunningGateway(
        server.local_base_url(listener),
        folder,
        store,
        app,
        loop,
        stop_event,
        thread,
        exchanges,
        unexpected_errors,
        store_faults,
        listener,
        reply_clock,
    )
    try:
        yield running
    finally:
        running.http.close()
        running.shut_down()
        thread.join()
        listener.close()


@contextmanager
def run_gateway_with_upstream(
    folder: Path, store_url: str = "memory", **more: Any
) -> Iterator[tuple[RunningGateway, ChatServer]]:
    """Run a gateway and the server with prepared answers of its model `HELD_MODEL`."""
    with run_chat_server() as upstream:
        toml = f'[providers.up]\napi = "chat"\nbase_url = "{upstream.url}"\n'
        with run_gateway(folder, store_url, toml=toml, **more) as running:
            yield running, upstream


@contextmanager
def run_gateway_with_chats(
    folder: Path, write: Callable[[ChatWriter], Coroutine[Any, Any, None]]
) -> Iterator[RunningGateway]:
    """Run a gateway over a SQLite store with the conversations that `write` stores."""
    with ThreadPoolExecutor(1) as pool:  # a browser may run, and then no other event loop runs in this thread
        pool.submit(write_chats, folder, write).result()
    with run_gateway(folder / "served", f"sqlite:{folder / DATABASE}") as running:
        yield running
