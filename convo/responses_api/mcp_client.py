"""Connections to MCP servers, over streamable HTTP or a process.

The `mcp` package ties a session to the task that opened it. So each connection has a task of its own, and each call one
in it; callers may be cancelled or be generators that are closed elsewhere.
"""

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from convo.config.trust import escape_unprintable
from convo.errors import ConvoError, EndpointFault, RequestRefused
from convo.history.items import Json
from convo.responses_api import mcp_process
from convo.responses_api.remote_files import RemoteFiles
from convo.runtime import shielded
from convo.secrets import Secret

if TYPE_CHECKING:
    import httpx2
    from mcp import ClientSession

SessionJob = Callable[["ClientSession"], Awaitable[Any]]

MAX_RESPONSE_BYTES = 4 * 1024 * 1024
"""Bytes of one HTTP response of a server."""

MAX_TOOLS = 256
"""Tools of one server; further ones are an error."""

MAX_TOOL_LIST_CHARS = 512 * 1024
MAX_TOOL_PAGES = 64
"""Pages of the list of one server's tools; a server may send an endless list."""

MAX_ERROR_CHARS = 2000
"""Characters of an error message of a server; the rest is cut off."""

MAX_OUTPUT_CHARS = 256 * 1024
"""Characters of the output of one call; the rest is cut off, with a note."""

MAX_REPORT_BYTES = 64 * 1024
"""Bytes that are read of the report of `mcp_process`."""

CLOSE_TIMEOUT_S = 5.0
PROTOCOL_ERROR_CODE = -32000


@dataclass(frozen=True, slots=True)
class McpTarget:
    """A server to connect to.

    url:            of streamable HTTP; None for a process
    command:        the program and its arguments, if there is no URL
    key:            sent to the URL as a bearer token, or to the process in the variable `key_env`
    headers:        further headers for the URL
    environ:        variables for the process, besides those that every process gets
    allowed_tools:  the tools that may be called; None for all
    blocked_tools:  the tools that may not be called
    approved_tools: the tools whose calls need no approval in a chat; None for all
    timeout_s:      for connecting and for each call
    address_check:  resolves the host of each request and refuses addresses that are not public; None for the operator's
    """

    url: str | None = None
    command: tuple[str, ...] = ()
    key: Secret | None = None
    key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_tools: tuple[str, ...] | None = None
    blocked_tools: tuple[str, ...] = ()
    approved_tools: tuple[str, ...] | None = ()
    timeout_s: float = 60.0
    address_check: RemoteFiles | None = None

    def allows(self, tool: str) -> bool:
        return (self.allowed_tools is None or tool in self.allowed_tools) and tool not in self.blocked_tools


@dataclass(frozen=True, slots=True)
class McpOptions:
    """The MCP servers that may be used.

    servers:      those of the operator, by label
    client_urls:  whether a client may name other servers by URL, at public addresses
    blocked_networks:  networks to which no URL of a client may lead, besides those that are not public
    """

    servers: Mapping[str, McpTarget] = field(default_factory=dict)
    client_urls: bool = False
    blocked_networks: tuple[str, ...] = ()


class McpResult(NamedTuple):
    """The result of a call: its output as text, or an error as in the API's `mcp_call` items.

    parts:  the output as content parts if it has an image; a model reads no image in a text
    """

    output: str | None
    error: Mapping[str, Json] | None
    parts: Sequence[Json] = ()


class McpConnection:
    """One connection, opened by the first call. Closing it ends the session and the process."""

    def __init__(self, label: str, target: McpTarget) -> None:
        self._label, self._target = label, target
        self._jobs: asyncio.Queue[tuple[SessionJob, asyncio.Future[Any]]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._process_report: Mapping[str, Json] | None = None
        self._damage = ""

    @property
    def is_open(self) -> bool:
        return self._task is not None and not self._task.done()

    async def list_tools(self) -> list[dict[str, Json]]:
        """Return the tools as in the API's `mcp_list_tools` items. Raises EndpointFault."""

        async def collect(session: "ClientSession") -> list[dict[str, Json]]:
            from mcp.types import PaginatedRequestParams

            tools: list[dict[str, Json]] = []
            cursor: str | None = None
            size_chars = 0
            for _ in range(MAX_TOOL_PAGES):
                page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
                page_tools = [_tool_to_json(tool) for tool in page.tools]
                tools += page_tools
                try:
                    size_chars += len(json.dumps(page_tools, allow_nan=False))
                except ValueError as error:
                    raise self._unavailable("its list of tools has a number that JSON cannot represent") from error
                if len(tools) > MAX_TOOLS or size_chars > MAX_TOOL_LIST_CHARS:
                    break
                cursor = page.next_cursor
                if not cursor:
                    return tools
            raise self._unavailable("its list of tools is too long; allowed_tools of the server does not shorten it")

        tools: list[dict[str, Json]] = await self._run(collect)
        return tools

    async def call_tool(self, name: str, arguments: Mapping[str, Json]) -> McpResult:
        """Call a tool. A failure of the server is an error in the result."""

        async def call(session: "ClientSession") -> McpResult:
            return _result_from_call(await session.call_tool(name, dict(arguments)))

        try:
            result: McpResult = await self._run(call)
        except EndpointFault as error:
            return protocol_error(error.message)
        return result

    async def aclose(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT_S)
            if self._target.url is not None:  # the request that ends the session may take forever
                self._task.cancel()

    async def _run(self, job: "SessionJob") -> Any:
        """Run `job` in the task of the connection. Raises EndpointFault."""
        await _import_mcp()
        if self._task is None or self._task.done():
            self._jobs = asyncio.Queue()  # jobs of a broken connection have failed
            self._process_report, self._damage = None, ""
            self._task = asyncio.create_task(self._serve())
            self._task.add_done_callback(_retrieve_exception)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((job, future))
        waited = [future, self._task]
        try:
            await asyncio.wait(waited, timeout=self._target.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            future.cancel()
            raise
        if future.done():
            return future.result()
        future.cancel()
        if not self._task.done():
            await self.aclose()
            raise self._unavailable(f"it did not respond in {self._target.timeout_s:g} seconds")
        error = None if self._task.cancelled() else self._task.exception()
        reason = self._damage or self._describe_program_end() or _describe_failure(error)
        if self._target.command:  # its messages are not shown: they may contain secrets
            reason += "; run its command in a terminal to see its messages"
        raise self._unavailable(reason) from error

    def _describe_program_end(self) -> str:
        """Describe the end of the program; empty if it did not end by itself."""
        report = self._process_report
        if report is None:
            return ""
        program = escape_unprintable(Path(self._target.command[0]).name)
        if "problem" in report:
            return f"its command {program} cannot be started: {report['problem']}"
        code = int(report["exit"])
        ending = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        return f"its command {program} {ending}"

    async def _serve(self) -> None:
        """Open the session, and run jobs until the task is cancelled or the connection breaks."""
        from mcp import ClientSession, MCPError
        from mcp.types import CONNECTION_CLOSED
        from pydantic import ValidationError

        serving = asyncio.current_task()
        assert serving

        async def end_if_damaged(message: object) -> None:
            """End the connection at a damaged response: its call would wait until the time limit."""
            if isinstance(message, ValidationError):
                details = message.errors()[0]
                if re.match(r'\s*\{.*"jsonrpc"', str(details["input"])):  # other lines are a program's messages
                    self._damage = f"it sent an invalid response: {details['msg']}"
                    serving.cancel()

        class UncheckedSession(ClientSession):
            """Checks no structured output: a pattern in the server's own schema can block the event loop for hours."""

            async def validate_tool_result(self, name: str, result: object) -> None:
                """Accept the result."""

        async with AsyncExitStack() as exit_stack:
            read, write = await self._open_transport(exit_stack)
            session = await exit_stack.enter_async_context(
                UncheckedSession(read, write, message_handler=end_if_damaged)
            )
            await session.initialize()

            async def run(job: SessionJob, future: asyncio.Future[Any]) -> None:
                call = asyncio.current_task()
                assert call
                future.add_done_callback(lambda _: call.cancel())  # an abandoned call: the server is told
                try:
                    result = await job(session)
                except (MCPError, EndpointFault) as error:
                    # Servers have errors of this code, too, so the text of the package is compared.
                    if (getattr(error, "code", None), str(error)) == (CONNECTION_CLOSED, "Connection closed"):
                        serving.cancel()  # then the exit code of the program is known
                    elif not future.done():
                        fault = error if isinstance(error, EndpointFault) else self._unavailable(_cut_error(str(error)))
                        future.set_exception(fault)
                else:
                    if not future.done():
                        future.set_result(result)

            async with asyncio.TaskGroup() as tasks:
                while True:
                    tasks.create_task(run(*await self._jobs.get()))

    async def _open_transport(self, exit_stack: AsyncExitStack) -> tuple[Any, Any]:
        target = self._target
        if target.url is None:
            from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client

            environ = {**get_default_environment(), **target.environ}
            if target.key is not None and target.key_env:
                environ[target.key_env] = target.key.reveal()
            report_in, report_out = os.pipe()
            os.set_blocking(report_in, False)
            exit_stack.callback(self._read_process_report, report_in)  # after the client has ended the process
            log = exit_stack.enter_context(os.fdopen(report_out, "w", encoding="utf-8"))
            parameters = StdioServerParameters(
                command=sys.executable,
                # -I and -S: no modules of the current folder, of the user or of site-packages.
                args=["-I", "-S", mcp_process.__file__, *target.command],
                env=environ,
                encoding_error_handler="replace",  # with "strict" a byte of a startup message ends the reader unseen
            )
            return await exit_stack.enter_async_context(stdio_client(parameters, errlog=log))
        from mcp.client.streamable_http import streamable_http_client

        client = await exit_stack.enter_async_context(_make_http_client(target))
        streams = await exit_stack.enter_async_context(streamable_http_client(target.url, http_client=client))
        return streams[0], streams[1]

    def _read_process_report(self, descriptor: int) -> None:
        """Read the report of `mcp_process`, and close its pipe."""
        try:
            lines = os.read(descriptor, MAX_REPORT_BYTES).splitlines()
            report = json.loads(lines[-1]) if lines else None
            self._process_report = report if isinstance(report, dict) else None
        except (BlockingIOError, ValueError):  # no report, or Python itself wrote to stderr
            self._process_report = None
        finally:
            os.close(descriptor)

    def _unavailable(self, reason: str) -> EndpointFault:
        """Return the error for a server that cannot be reached or broke its protocol; it has the API's code."""
        return EndpointFault(
            f"MCP server '{self._label}' failed: {reason}",
            code="external_connector_error",
            status=424,
            param="tools",
            hint="check the MCP server, then retry",
        )


def _cut_error(message: str) -> str:
    if len(message) <= MAX_ERROR_CHARS:
        return message
    return f"{message[:MAX_ERROR_CHARS]} [cut off: the message has {len(message):,} characters]"


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a task: asyncio would report it, and each waiting call has raised it."""
    if not task.cancelled():
        task.exception()


def protocol_error(message: str) -> McpResult:
    return McpResult(None, {"type": "mcp_protocol_error", "code": PROTOCOL_ERROR_CODE, "message": message})


async def _import_mcp() -> None:
    """Import the package in a thread: it takes seconds. Raises RequestRefused if it is not installed."""
    try:
        await asyncio.to_thread(import_module, "mcp")
    except ImportError as error:
        from convo.installation import make_missing_extra_error

        raise make_missing_extra_error(
            RequestRefused, "An MCP tool", "mcp", code="mcp_not_installed", param="tools"
        ) from error
    logger = logging.getLogger("mcp")  # errors are raised; without a handler Python prints them on stderr
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _describe_failure(error: BaseException | None) -> str:
    """Describe the failure of a connection by its first cause, without URLs and headers."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is None:
        return "it closed the connection"
    if isinstance(error, ConvoError):
        return error.message
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    return f"it responded with status {status}" if status else f"the connection failed ({type(error).__name__})"


def _tool_to_json(tool: Any) -> dict[str, Json]:
    annotations = (
        tool.annotations.model_dump(mode="json", by_alias=True, exclude_none=True) if tool.annotations else None
    )
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "annotations": annotations,
    }


def _result_from_call(result: Any) -> McpResult:
    """Convert the result of a call: texts are joined, other content is JSON."""
    contents = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    texts = [block["text"] if block.get("type") == "text" else json.dumps(block) for block in contents]
    structured = getattr(result, "structured_content", None)
    output = "\n".join(texts) or ("" if structured is None else json.dumps(structured))
    if len(output) > MAX_OUTPUT_CHARS:
        output = f"{output[:MAX_OUTPUT_CHARS]}\n[cut off: the output has {len(output):,} characters]"
    if result.is_error:
        content = [{"type": "text", "text": output}]
        return McpResult(None, {"type": "mcp_tool_execution_error", "content": content})
    has_image = any(block.get("type") == "image" for block in contents)
    return McpResult(output, None, list(map(_to_content_part, contents)) if has_image else ())


def _to_content_part(block: Mapping[str, Json]) -> dict[str, Json]:
    if block.get("type") == "image":
        return {"type": "input_image", "image_url": f"data:{block['mimeType']};base64,{block['data']}"}
    return {"type": "input_text", "text": block["text"] if block.get("type") == "text" else json.dumps(block)}


def _make_http_client(target: McpTarget) -> "httpx2.AsyncClient":
    """Return a client that sends the target's key and limits responses; with `address_check` to public addresses."""
    import httpx2

    class LimitedStream(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > MAX_RESPONSE_BYTES:
                    raise httpx2.ReadError(f"the response is larger than {MAX_RESPONSE_BYTES:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    class LimitedTransport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if target.address_check is not None:
                host, addresses = await target.address_check.resolve_public(str(request.url), "tools")
                # The URL gets the checked address below; TLS still verifies the certificate of the host.
                request.extensions = {**request.extensions, "sni_hostname": host}
                request.url = request.url.copy_with(host=addresses[0])
            response = await super().handle_async_request(request)
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                await response.stream.aclose()
                raise httpx2.ReadError("the response is compressed")  # its size is unknown
            response.stream = LimitedStream(response.stream)
            return response

    key_headers = {"authorization": f"Bearer {target.key.reveal()}"} if target.key is not None else {}
    return httpx2.AsyncClient(
        headers={**target.headers, **key_headers, "accept-encoding": "identity"},
        timeout=target.timeout_s,
        transport=LimitedTransport(),
        trust_env=False,
        follow_redirects=False,
    )


class McpConnections:
    """The connections of one response, by label; closing it closes all of them."""

    def __init__(self, targets: Mapping[str, McpTarget]) -> None:
        self._connections = {label: McpConnection(label, target) for label, target in targets.items()}

    def __getitem__(self, label: str) -> McpConnection:
        return self._connections[label]

    async def __aenter__(self) -> "McpConnections":
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in self._connections.values():
            await shielded(connection.aclose())
