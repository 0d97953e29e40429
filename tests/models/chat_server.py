"""A loopback server that returns prepared chat completions responses."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from tests.asgi_server import listen_on_free_port, serve_in_thread

Answer = Callable[[Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Request:
    """A received request: its path, its headers in lower case, its body as JSON and as bytes, its query string."""

    path: str
    headers: Mapping[str, str]
    json: Any
    body: bytes = b""
    query: str = ""


@dataclass
class ChatServer:
    """Returns its prepared answers in order.

    request_received: set by a request
    client_left:      set when a client closed the connection of a stalled answer
    """

    url: str
    requests: list[Request] = field(default_factory=list)
    answers: deque[Answer] = field(default_factory=deque)
    request_received: threading.Event = field(default_factory=threading.Event)
    client_left: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = b""
        more = True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        query = scope["query_string"].decode()
        self.requests.append(Request(scope["path"], headers, json.loads(body or b"null"), body, query))
        self.request_received.set()
        await self.answers.popleft()(receive, send)

    def stream(self, *chunks: Any, end: bytes = b"data: [DONE]\n\n", cut: bool = False) -> None:
        """Answer with these chunks (bytes are sent unchanged); with `cut` the connection breaks after them."""

        async def answer(receive: Receive, send: Send) -> None:
            await send_head(send, 200, "text/event-stream")
            for chunk in chunks:
                await send_piece(send, chunk if isinstance(chunk, bytes) else event(chunk))
            if cut:
                raise ConnectionAbortedError
            await send_piece(send, end, more=False)

        self.answers.append(answer)

    def respond(self, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Answer with these bytes of JSON."""

        async def answer(receive: Receive, send: Send) -> None:
            await send_head(send, 200, "application/json", headers)
            await send_piece(send, body, more=False)

        self.answers.append(answer)

    def refuse(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        async def answer(receive: Receive, send: Send) -> None:
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            await send_head(send, status, "application/json", headers or {})
            await send_piece(send, raw, more=False)

        self.answers.append(answer)

    def hang_up(self) -> None:
        """Close the connection without a response."""

        async def answer(receive: Receive, send: Send) -> None:
            send.__self__.transport.abort()  # type: ignore[attr-defined]

        self.answers.append(answer)

    def send_non_http(self) -> None:
        """Answer with something that is not HTTP."""

        async def answer(receive: Receive, send: Send) -> None:
            send.__self__.transport.write(b"SSH-2.0-OpenSSH\r\n")  # type: ignore[attr-defined]
            send.__self__.transport.close()  # type: ignore[attr-defined]

        self.answers.append(answer)

    @contextmanager
    def hold_answer(
        self, first: str, rest: str = "", *, usage: Mapping[str, Any] | None = None
    ) -> Iterator[threading.Event]:
        """Answer with the text `first`, and when the event is set with `rest` and the end, with its usage.

        The event is set at the end of the block at the latest.
        """
        may_end = threading.Event()

        async def answer(receive: Receive, send: Send) -> None:
            await send_head(send, 200, "text/event-stream")
            await send_piece(send, event({"id": "chatcmpl-1", **delta(content=first)}))
            await asyncio.to_thread(may_end.wait)
            if rest:
                await send_piece(send, event({"id": "chatcmpl-1", **delta(content=rest)}))
            await send_piece(send, event({"id": "chatcmpl-1", **finish("stop", usage)}))
            await send_piece(send, b"data: [DONE]\n\n", more=False)

        self.answers.append(answer)
        try:
            yield may_end
        finally:
            may_end.set()

    def stall(self, *chunks: Any) -> None:
        """Answer with these chunks, then send nothing until the client disconnects."""

        async def answer(receive: Receive, send: Send) -> None:
            await send_head(send, 200, "text/event-stream")
            for chunk in chunks:
                await send_piece(send, event(chunk))
            while (await receive())["type"] != "http.disconnect":
                pass
            self.client_left.set()

        self.answers.append(answer)


def event(chunk: Any) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


async def send_head(send: Send, status: int, form: str, more: Mapping[str, str] | None = None) -> None:
    headers = {"content-type": form, **(more or {})}
    header_list = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": header_list})


async def send_piece(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


@contextmanager
def run_chat_server() -> Iterator[ChatServer]:
    """Run a server in a thread. Its socket listens before the thread starts, so no client has to wait for it."""
    listener, url = listen_on_free_port()
    server = ChatServer(url)
    with serve_in_thread(server, listener, asyncio.new_event_loop()):
        yield server


# -- chunks ---------------------------------------------------------------------------------------


def delta(**fields: Any) -> dict[str, Any]:
    return {"model": "m-2026", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def finish(reason: str, usage: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"model": "m-2026", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}


def usage_fields(**fields: Any) -> dict[str, Any]:
    return {"model": "m-2026", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3, **fields}}


def tool(index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}])
