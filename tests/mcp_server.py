"""A real MCP server with a few tools, over HTTP in a thread; `python -m tests.mcp_server`: over stdio."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from convo.server.server import GatewayServer
from tests.asgi_server import listen_on_free_port, start_loop_thread

READ_ONLY = ToolAnnotations(read_only_hint=True)


def make_server(calls: list[str]) -> MCPServer:
    """Return a server that appends the name of each called tool to `calls`."""
    server = MCPServer("test")

    @server.tool(annotations=READ_ONLY, structured_output=False)
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        calls.append("add")
        return str(a + b)

    @server.tool(structured_output=False)
    def fail(reason: str) -> str:
        """Fail."""
        calls.append("fail")
        raise ValueError(reason)

    @server.tool(structured_output=False)
    def long(size: int) -> str:
        """Return a long text."""
        return "x" * size

    @server.tool(structured_output=False)
    def environ(name: str) -> str:
        """Return an environment variable."""
        return os.environ.get(name, "")

    @server.tool(structured_output=False)
    async def sleep() -> str:
        """Never return."""
        await asyncio.sleep(3600)
        return ""

    return server


@dataclass
class RunningMcpServer:
    """A running server; `heads` are the headers of each request, `calls` the called tools."""

    url: str
    server: Any = None
    heads: list[dict[str, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


@contextmanager
def run_mcp_server(*, sse: bool = False) -> Iterator[RunningMcpServer]:
    """Run a server over streamable HTTP, or over server-sent events."""
    listener, base = listen_on_free_port()
    running = RunningMcpServer(base.removesuffix("/v1") + ("/sse" if sse else "/mcp"))
    running.server = make_server(running.calls)
    application = running.server.sse_app() if sse else running.server.streamable_http_app()

    async def recording(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            running.heads.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await application(scope, receive, send)

    config = uvicorn.Config(recording, lifespan="on", ws="none", log_config=None, log_level="critical")
    server, loop = GatewayServer(config), asyncio.new_event_loop()
    thread = start_loop_thread(loop, server.serve([listener]))
    try:
        yield running
    finally:
        loop.call_soon_threadsafe(server.request_end)
        thread.join()
        listener.close()


if __name__ == "__main__":
    make_server([]).run("stdio")
