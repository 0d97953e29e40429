"""A server on loopback that ends as soon as it is told to.

uvicorn looks ten times a second whether it should end, and pauses before it does. Most tests that ask a
server are over sooner than that, so this one waits to be told instead.

    with listening(application) as port:
        ...                                 # it takes connections from the first line on
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

CLOSING_S = 0.002
"""How often an end looks whether the last connections are gone."""


class Prompt(uvicorn.Server):
    """uvicorn's server, in a thread that has no signals."""

    def __init__(self, application: Any) -> None:
        super().__init__(uvicorn.Config(application, lifespan="off", ws="none", log_config=None, log_level="critical"))
        self.told = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # writes the headers that every answer has
        await self.told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(CLOSING_S)


@contextmanager
def running(application: Any, place: socket.socket, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Serve `application` in a thread, in `loop`. The socket listens already, so nobody has to wait for the thread."""
    server = Prompt(application)
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve([place]),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.told.set)
        thread.join()
        loop.close()
        place.close()


def any_port() -> tuple[socket.socket, str]:
    """A socket that listens on a free port of 127.0.0.1, and its base URL, with /v1."""
    place = socket.create_server(("127.0.0.1", 0))
    return place, f"http://127.0.0.1:{place.getsockname()[1]}/v1"
