"""The gateway on a real socket, in a thread of its own, over a real store and scripted models.

served.script("slow", {"text": "..."}, delay_s=0.05)     what the model "slow" answers
served.ask({"model": "echo", "input": "hi"})             one request, as raw HTTP
"""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from convo.chat.endpoint_factory import open_service
from convo.config.settings import Settings
from convo.endpoints.base import EndpointService
from convo.errors import StoreFault
from convo.runtime import Clock, SystemClock, random_id
from convo.server import server
from convo.server.app import Gateway
from convo.server.auth import Authenticator
from convo.server.http import HttpExchange
from convo.server.routes import InspectorDeps
from convo.server.websocket import WebSocketLimits
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.config.settings_inputs import make_settings

T = TypeVar("T")

SCRIPTS = ("one", "two", "slow", "broken", "refused")
"""Models that answer by a script of the test's own, and echo until there is one."""


@dataclass
class RunningGateway:
    """The running server.

    url:       its base URL, with /v1
    exchanges:      every exchange that was answered, oldest first
    unexpected_errors:  what nobody foresaw
    store_faults:  faults of the store that reached the operator
    """

    url: str
    folder: Path
    store: Store
    gateway: Gateway
    loop: asyncio.AbstractEventLoop
    ending: asyncio.Event
    thread: threading.Thread
    exchanges: list[HttpExchange]
    unexpected_errors: list[BaseException]
    store_faults: list[StoreFault]
    http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx2.Client(base_url=self.root, timeout=30, trust_env=False)

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def port(self) -> int:
        return int(self.root.rpartition(":")[2])

    def script(self, name: str, *replies: dict[str, Any], **more: Any) -> None:
        """What the model `name` answers; said before it is asked for the first time."""
        assert name in SCRIPTS
        (self.folder / f"{name}.json").write_text(json.dumps({"replies": replies, **more}), encoding="utf-8")

    def ask(self, body: dict[str, Any], **more: Any) -> httpx2.Response:
        return self.http.post("/v1/responses", json=body, **more)

    def events(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of one streamed answer."""
        text = self.ask({**body, "stream": True}).text
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry `work` out in the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def end(self) -> None:
        """Tell it to end, as a signal does."""
        self.loop.call_soon_threadsafe(self.ending.set)


def gateway_settings(folder: Path, limits: dict[str, Any], toml: str = "") -> Settings:
    """Settings that come from nowhere but here; `toml` is more of the user's file, from its aliases on."""
    aliases = "".join(f'{name} = "scripted/{folder}/{name}.json"\n' for name in SCRIPTS)
    given = make_settings(user=f'model = "echo"\n[aliases]\necho = "scripted/echo"\n{aliases}{toml}')
    return given._replace(serve=given.serve._replace(host="127.0.0.1", port=0, **limits))


Wrap = Callable[[EndpointService], EndpointService]


def unwrapped_service(service: EndpointService) -> EndpointService:
    return service


@contextmanager
def run_gateway(
    folder: Path, store_url: str = "memory", *, keys: Authenticator | None = None, wrap: Wrap = unwrapped_service,
    bounds: WebSocketLimits | None = None, clock: Clock | None = None, toml: str = "", **limits: Any
) -> Iterator[RunningGateway]:  # fmt: skip
    """A server while the block runs; it listens before its thread does, so nobody has to wait for it.

    wrap:    puts something around the service
    bounds:  of a WebSocket
    clock:   the gateway's own; the service keeps the machine's
    toml:    more of the settings file, from its aliases on
    limits:  fields of `[serve]`
    """
    folder.mkdir(exist_ok=True)
    found = gateway_settings(folder, {"grace_s": 5.0, **limits}, toml)
    store, loop, machine = open_store(store_url), asyncio.new_event_loop(), SystemClock()
    listening = server.open_listening_socket("127.0.0.1", 0)
    exchanges: list[HttpExchange] = []
    unexpected_errors: list[BaseException] = []
    store_faults: list[StoreFault] = []
    service = wrap(open_service(found, store=store, clock=machine, new_id=random_id))
    gateway = Gateway(
        service, found.serve, InspectorDeps(store),
        clock=clock or machine, new_id=random_id, authenticator=keys, log=exchanges.append,
        report_store_fault=store_faults.append, websocket_limits=bounds,
    )  # fmt: skip
    ending = asyncio.Event()

    async def run() -> None:
        await store.admin.migrate()
        try:
            await server.run_gateway(gateway, service, found.serve, listening, ending, unexpected_errors.append)
        finally:
            await store.aclose()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    served = RunningGateway(
        server.local_base_url(listening),
        folder,
        store,
        gateway,
        loop,
        ending,
        thread,
        exchanges,
        unexpected_errors,
        store_faults,
    )
    thread.start()
    try:
        yield served
    finally:
        served.http.close()
        served.end()
        thread.join()
        loop.close()
        listening.close()
