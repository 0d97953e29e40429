"""Run an ASGI application on loopback in a thread."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from convo.server.server import GatewayServer


def start_loop_thread(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> threading.Thread:
    """Run `work` in `loop` in a thread. Afterwards the tasks that it left are cancelled, and the loop is closed.

    A pending task, or a socket that is not closed yet, would be reported later, in another test.
    """

    async def run_to_end() -> None:
        try:
            await work
        finally:
            for _ in range(3):
                await asyncio.sleep(0)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run_to_end())

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@contextmanager
def serve_in_thread(application: Any, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Serve `application` in `loop`. The socket already listens, so a client need not wait for the thread."""
    config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None, log_level="critical")
    server = GatewayServer(config)
    thread = start_loop_thread(loop, server.serve([listener]))
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.request_end)
        thread.join()
        listener.close()


def listen_on_free_port() -> tuple[socket.socket, str]:
    """A socket that listens on a free port of 127.0.0.1, and its base URL, with /v1."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
