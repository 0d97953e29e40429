"""Run an ASGI application on loopback in a thread."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from convo.server.server import GatewayServer


@contextmanager
def serve_in_thread(application: Any, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Serve `application` in `loop`. The socket already listens, so a client need not wait for the thread."""
    config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None, log_level="critical")
    server = GatewayServer(config)
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve([listener]),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.request_end)
        thread.join()
        loop.close()
        listener.close()


def listen_on_free_port() -> tuple[socket.socket, str]:
    """A socket that listens on a free port of 127.0.0.1, and its base URL, with /v1."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
