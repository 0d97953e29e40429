"""The gateway on a socket, from its first request to its last.

begin     the socket listens before anything is told, so that nobody has to try twice
end       new work is refused, what runs may finish within the grace time, and then both go:
          the service marks what did not finish, the server closes what is still open
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn

from convo.config import Serve
from convo.config.trust import is_loopback
from convo.endpoints.contract import Service
from convo.errors import BadSettings
from convo.gateway.application import Gateway
from convo.gateway.protocol import bounded

BACKLOG = 2048
KEPT_OPEN_S = 75
"""How long an idle connection stays: longer than clients keep theirs, so that it is they who close."""

PING_S = 20.0
"""How often a WebSocket is asked whether it is still there, and how long it has to say so."""

TAKING_TURNS_S = 0.0005
"""After so long the interpreter goes from one thread to another that waits.

A store's thread asks for it again behind each statement. By Python's own 5 ms a busy loop would let one
statement of some twenty pass in that time, and every answer wait for its commit.
"""

FLUSHING_S = 1.0
"""What a server gets beyond the grace time, to write what the service came to."""

DATED_S = 1.0
"""How old the date of an answer may be."""

CLOSING_S = 0.005
"""How often an end looks whether the last connection is gone."""

UNEXPLAINED_S = 1.0
"""How long an end may take before somebody at a terminal wonders."""


class Server(uvicorn.Server):
    """uvicorn's server, which leaves signals to whoever runs it and ends as soon as nothing runs in it.

    uvicorn's own looks ten times a second whether it should end, and pauses before it does.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told = asyncio.Event()

    def end(self) -> None:
        """Take no more connections, let what runs come to its end, and close."""
        self.should_exit = True
        self.told.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # writes the date that every answer has
            with suppress(TimeoutError):
                await asyncio.wait_for(self.told.wait(), DATED_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._at_rest(), self.config.timeout_graceful_shutdown)
        for task in self.server_state.tasks:
            task.cancel()

    async def _at_rest(self) -> None:
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(CLOSING_S)


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on.

    It names its protocol, because asyncio switches Nagle's algorithm off for such sockets alone: else
    a body waits 40 ms behind its headers.

    raises:  BadSettings
    """
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        if os.name == "posix":  # elsewhere it would let two servers take one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except (OSError, UnicodeError, OverflowError) as wrong:
        listening.close()
        why = wrong.strerror if isinstance(wrong, OSError) else "it is no host name"
        raise BadSettings(
            f"cannot listen on {host}, port {port}: {why}", hint="--port with another one; 0 is any free one"
        ) from wrong
    return listening


def address(listening: socket.socket) -> str:
    """The base URL of a client on this machine."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def check_exposed(serve: Serve) -> None:
    """raises: BadSettings  it would take requests from other machines without a key"""
    if serve.keys_file is None and not is_loopback(serve.host):
        raise BadSettings(
            f"{serve.host} lets other machines in, and there are no keys",
            hint="convo serve --new-key NAME --keys FILE makes one; then serve with --keys FILE",
        )


async def run(
    gateway: Gateway, service: Service, serve: Serve, listening: socket.socket, ending: asyncio.Event,
    report: Callable[[BaseException], None], delayed: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Serve until `ending` is set, and then until the grace time is over. Closes the service.

    report:   told what nobody foresaw
    delayed:  told that the end takes a while: answers still run
    """
    sys.setswitchinterval(TAKING_TURNS_S)
    server = Server(config(gateway, serve))
    with reported(report):
        running = asyncio.create_task(server.serve([listening]))
        told = asyncio.create_task(ending.wait())
        await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        gateway.ending = True
        patience = asyncio.get_running_loop().call_later(UNEXPLAINED_S, delayed)
        closing = asyncio.create_task(service.aclose(serve.grace_s))
        await gateway.sockets.aclose(serve.grace_s)
        server.end()
        await closing
        await running
        patience.cancel()


def config(gateway: Gateway, serve: Serve) -> uvicorn.Config:
    return uvicorn.Config(
        gateway,
        http=bounded(serve),
        ws=partial(websockets, serve.write_s),  # type: ignore[arg-type]  # makes a protocol, as a class of one does
        ws_max_size=2 * serve.max_body_bytes,  # what is not much too large is refused in words
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEPT_OPEN_S,
        timeout_graceful_shutdown=round(serve.grace_s + FLUSHING_S),
    )


def websockets(write_s: float, **named: Any) -> asyncio.Protocol:
    """A connection's protocol, loaded when somebody opens the first one."""
    from convo.gateway.websocket_protocol import BoundedSocket

    return BoundedSocket(write_s, **named)


@contextmanager
def reported(report: Callable[[BaseException], None]) -> Iterator[None]:
    """uvicorn's own log goes nowhere, but for what nobody foresaw."""

    class Reporting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and isinstance(record.exc_info[1], Exception):
                report(record.exc_info[1])

    log, handler = logging.getLogger("uvicorn.error"), Reporting()
    before = log.propagate, log.level
    log.propagate = False
    log.setLevel(logging.ERROR)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before[0]
        log.setLevel(before[1])
