"""A server on loopback in a thread, which ends as soon as it is told to."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from convo.server.server import GatewayServer


@contextmanager
def running(application: Any, place: socket.socket, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Serve `application` in `loop`. The socket listens already, so nobody has to wait for the thread."""
    config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None, log_level="critical")
    server = GatewayServer(config)
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve([place]),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.request_end)
        thread.join()
        loop.close()
        place.close()


def any_port() -> tuple[socket.socket, str]:
    """A socket that listens on a free port of 127.0.0.1, and its base URL, with /v1."""
    place = socket.create_server(("127.0.0.1", 0))
    return place, f"http://127.0.0.1:{place.getsockname()[1]}/v1"
