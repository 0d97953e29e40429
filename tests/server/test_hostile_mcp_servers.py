"""MCP servers that answer with endless lists, huge or compressed results, and schemas that take forever to check."""

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from convo.errors import EndpointFault
from convo.responses_api.mcp_client import MAX_ERROR_CHARS, MAX_RESPONSE_BYTES, McpConnection, McpTarget
from tests.server.relay_peers import Message, ScriptedUpstream, encode_head, run_upstream

pytestmark = pytest.mark.needs("mcp")

Reply = Callable[[dict[str, Any]], dict[str, Any] | bytes]
"""Returns the result of a request, or the bytes of its response."""

TOOL = {"name": "t", "inputSchema": {"type": "object"}}
SLOW_PATTERN = {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}


def reply_with(listed: Any = None, called: Any = None) -> Reply:
    """Answer the requests for the tools and the calls with these results."""
    return lambda request: (listed or {"tools": [TOOL]}) if request["method"] == "tools/list" else called


@asynccontextmanager
async def hostile_server(
    reply: Reply, *, encoding: str | None = None, session_id: str | None = None
) -> AsyncIterator[tuple[ScriptedUpstream, McpConnection]]:
    """Run a server, and yield it with a connection to it."""

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        method = request.start.split()[0]
        if method == "DELETE":  # the end of the session: the response never ends
            writer.write(encode_head("HTTP/1.1 200 OK", [("content-length", "2")]))
            await reader.read()
            return False
        message = json.loads(request.body) if method == "POST" else {}
        if "id" not in message:
            status = "202 Accepted" if method == "POST" else "405 Method Not Allowed"
            writer.write(encode_head(f"HTTP/1.1 {status}", [("content-length", "0")]))
            return True
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"serverInfo": {"name": "x", "version": "1"}, "capabilities": {"tools": {}}}
            result: Any = {"protocolVersion": version, **info}
        else:
            result = reply(message)
        body = result if isinstance(result, bytes) else b""
        if not body:
            outcome = result if "error" in result else {"result": result}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        if encoding and message["method"] != "initialize":
            headers.append(("content-encoding", encoding))
        if session_id:
            headers.append(("mcp-session-id", session_id))
        writer.write(encode_head("HTTP/1.1 200 OK", headers) + body)
        return True

    async with run_upstream(answer) as server:
        connection = McpConnection("x", McpTarget(url=f"http://127.0.0.1:{server.port}/mcp", timeout_s=30))
        try:
            yield server, connection
        finally:
            await connection.aclose()


def count_requests(server: ScriptedUpstream, method: str) -> int:
    return sum(f'"{method}"'.encode() in request.body for request in server.requests)


@pytest.mark.parametrize(
    ("page", "max_pages"),
    [
        ({"tools": [], "nextCursor": "same"}, 64),
        ({"tools": [{**TOOL, "description": "x" * 300_000}], "nextCursor": "next"}, 2),
        ({"tools": [TOOL] * 200, "nextCursor": "next"}, 2),
    ],
)
async def test_a_list_of_tools_without_end_is_an_error_after_a_limited_number_of_pages(
    page: dict[str, Any], max_pages: int
) -> None:
    async with hostile_server(reply_with(page)) as (server, connection):
        with pytest.raises(EndpointFault, match=r"^MCP server 'x' failed: its list of tools is too long"):
            await connection.list_tools()

        assert count_requests(server, "tools/list") == max_pages


async def test_a_list_of_tools_with_a_number_that_is_not_json_is_an_error_of_the_server() -> None:
    """Python's parser accepts NaN; later it would fail the request to the model."""
    async with hostile_server(
        reply_with({"tools": [{**TOOL, "inputSchema": {"type": "object", "x": float("inf")}}]})
    ) as (_, connection):
        with pytest.raises(EndpointFault, match=r"^MCP server 'x' failed: its list of tools has a number"):
            await connection.list_tools()


async def test_output_is_not_compared_with_a_schema_whose_check_would_block_the_server() -> None:
    """The pattern needs 2**40 steps for this text."""
    listed = {"tools": [{**TOOL, "outputSchema": SLOW_PATTERN}]}
    called = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"a": "a" * 40 + "!"}}
    async with hostile_server(reply_with(listed, called)) as (server, connection):
        await connection.list_tools()
        result = await connection.call_tool("t", {})

        assert result.output == "done"
        assert count_requests(server, "tools/list") == 1


async def test_the_error_message_of_a_server_is_cut_off() -> None:
    error = {"error": {"code": 1, "message": "E" * 1_000_000}}
    async with hostile_server(reply_with(called=error)) as (_, connection):
        result = await connection.call_tool("t", {})

    assert result.error
    assert str(result.error["message"]).endswith("E [cut off: the message has 1,000,000 characters]")
    assert len(str(result.error["message"])) < MAX_ERROR_CHARS + 100


async def test_a_compressed_response_is_refused_because_its_size_is_unknown() -> None:
    bomb = gzip.compress(b" " * (4 * MAX_RESPONSE_BYTES))
    async with hostile_server(lambda _: bomb, encoding="gzip") as (_, connection):
        with pytest.raises(EndpointFault, match="the connection failed"):
            await connection.list_tools()


async def test_a_server_that_does_not_end_its_session_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convo.responses_api.mcp_client.CLOSE_TIMEOUT_S", 0.5)
    before = asyncio.all_tasks()
    async with hostile_server(reply_with(), session_id="1") as (server, connection):
        await connection.list_tools()
        started = asyncio.all_tasks() - before
        await connection.aclose()
        async with asyncio.timeout(10):
            await asyncio.wait([task for task in started if "McpConnection" in repr(task)])

        assert server.requests[-1].start.startswith("DELETE")


NOISY_PROCESS = r"""
import json, sys
sys.stdout.buffer.write(b"d\xe9marrage\n{}\nnull\n")
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        info = {"serverInfo": {"name": "x", "version": "1"}, "capabilities": {"tools": {}}}
        result = {"protocolVersion": request["params"]["protocolVersion"], **info}
    elif request["method"] == "tools/call":
        exec(sys.argv[1])
    else:
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


async def test_a_process_may_print_messages_that_are_neither_utf_8_nor_json() -> None:
    connection = McpConnection("x", McpTarget(command=(sys.executable, "-c", NOISY_PROCESS)))
    try:
        assert [tool["name"] for tool in await connection.list_tools()] == ["t"]
    finally:
        await connection.aclose()


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (r"result = {'content': [{'type': 'text', 'text': '\ud800'}]}", "it sent an invalid response: Invalid JSON: "),
        ("sys.exit(7)", f"its command {Path(sys.executable).name} ended with exit code 7; run its command in a term"),
    ],
)
async def test_a_call_whose_response_is_damaged_or_missing_fails_at_once_with_the_reason(
    response: str, problem: str
) -> None:
    connection = McpConnection("x", McpTarget(command=(sys.executable, "-c", NOISY_PROCESS, response), timeout_s=60))
    try:
        async with asyncio.timeout(30):
            result = await connection.call_tool("t", {})
            assert result.error
            assert f"MCP server 'x' failed: {problem}" in str(result.error["message"])
            assert [tool["name"] for tool in await connection.list_tools()] == ["t"], "the next request connects again"
    finally:
        await connection.aclose()
