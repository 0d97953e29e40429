"""A small Responses and Conversations server on 127.0.0.1: convo's own endpoint behind HTTP.

It runs in a thread with its own event loop, so it serves this process and subprocesses:
`loopback.environ` has the variables that a subprocess needs. It records every request, answers any model name by
a script, gives each key a separate tenant, and simulates the failures of real servers on request.

    loopback.replies({"text": "Hello."}, {"call": {"name": "weather"}})
    loopback.arm(cut_after(3))                    # the next POST /responses breaks after three events
    loopback.bodies                               # bodies of the requests, oldest first
"""

import asyncio
import json
import math
import threading
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from convo.endpoints.base import Endpoint, error_event, error_object
from convo.errors import ConvoError, KeyRefused
from convo.history.items import Item, StreamEvent
from convo.models.base import Model, ModelRequest
from convo.models.scripted import ScriptedModel
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.stores.memory import MemoryStore
from tests.clock import ReplyClock
from tests.loopback_routes import RecordedRequest, dispatch

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

T = TypeVar("T")

KEY = "test-key"
WRONG_KEY = "test-wrong-key"


class LoopbackModels(Model):
    """Models for any name: `scripted/...` uses the script in its name, every other name the script that was set last.

    requests:  requests to the model, oldest first
    """

    def __init__(self, folder: Path) -> None:
        self.requests: list[ModelRequest] = []
        self.clock = ReplyClock()
        self._folder, self._script = folder, "echo"
        self._model = ScriptedModel(self.clock, random_id)
        self.hosted_tools = self._model.hosted_tools

    def replies(self, *replies: Mapping[str, Any], **more: Any) -> None:
        """Use this script from now on (see `convo.models.scripted`); `more`: chunk, delay_s.

        With `delay_s=HELD_S` of `tests.clock`, each delta waits until the test releases it.
        """
        script = self._folder / f"script-{len(list(self._folder.glob('script-*')))}.json"
        script.write_text(json.dumps({"replies": replies, **more}), encoding="utf-8")
        self._script = str(script)

    def __call__(self, name: str) -> tuple[Model, str]:
        provider, _, own = name.partition("/")
        return self, own if provider == "scripted" else self._script

    def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.requests.append(request)
        return self._model.respond(request)

    async def warm(self, model: str) -> None:
        await self._model.warm(model)

    async def check_request(self, request: ModelRequest) -> None:
        await self._model.check_request(request)

    async def count(self, request: ModelRequest) -> int | None:
        return await self._model.count(request)

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        return await self._model.compact(request)

    async def aclose(self) -> None:
        await self._model.aclose()


# -- faults ---------------------------------------------------------------------------------------


@dataclass
class Fault:
    """The failure of one request.

    error_response: (status, error object, headers) instead of a response
    cut_after:      the connection breaks after this many events; -1: before the headers
    commits_first:  the turn is committed before the connection breaks; with `cut_after`, after that many events
    ignores_state:  the fields that refer to a history are ignored, and the status is 200
    pause_after:    after this many events the server sends nothing until `release` or until the client disconnects
    stream:         these bytes instead of events
    """

    error_response: tuple[int, Any, Mapping[str, str]] | None = None
    cut_after: int | None = None
    commits_first: bool = False
    ignores_state: bool = False
    pause_after: int | None = None
    stream: bytes | None = None
    path: str = "/v1/responses"
    method: str = "POST"


def error_response(status: int, error: Mapping[str, Any] | str, headers: Mapping[str, str] | None = None) -> Fault:
    """Respond with an error object, or with a text body if `error` is a string."""
    return Fault(error_response=(status, error if isinstance(error, str) else {"error": dict(error)}, headers or {}))


def conversation_locked(headers: Mapping[str, str] | None = None) -> Fault:
    message = "Another process is currently operating on this conversation. Please retry in a few seconds."
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "conversation",
        "code": "conversation_locked",
    }
    return error_response(400, error, headers)


def overloaded(retry_after_s: float = 0.0) -> Fault:
    error = {"message": "The server is overloaded.", "type": "server_error", "param": None, "code": "server_error"}
    return error_response(503, error, {"retry-after": str(retry_after_s)})


def rate_limited(retry_after_s: float = 0.0) -> Fault:
    error = {"message": "Rate limit reached.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
    return error_response(429, error, {"retry-after": str(retry_after_s)})


def cut_before_headers() -> Fault:
    return Fault(cut_after=-1)


def cut_after(events: int) -> Fault:
    return Fault(cut_after=events)


def commit_then_cut(after: int | None = None) -> Fault:
    """Commit the turn, then break the connection before the response is complete; `after`: events to send first."""
    return Fault(commits_first=True, cut_after=after)


def ignore_state() -> Fault:
    return Fault(ignores_state=True)


def pause_after(after: int = 3) -> Fault:
    """Start the response, then send nothing, like a slow model; no clock is involved."""
    return Fault(pause_after=after)


def raw_stream(stream: bytes) -> Fault:
    return Fault(stream=stream)


class ConnectionCut(Exception):
    """Raised where the server must break the connection."""


# -- the server -----------------------------------------------------------------------------------


@dataclass
class LoopbackServer:
    """The running server.

    url:       its base URL, with /v1
    requests:  all received requests, oldest first
    paused:       set when an armed `pause_after` takes effect
    client_left:  set when a client disconnected before its response was complete
    """

    url: str
    folder: Path
    store: Store = field(default_factory=MemoryStore)
    requests: list[RecordedRequest] = field(default_factory=list)
    paused: threading.Event = field(default_factory=threading.Event)
    client_left: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.scripts = LoopbackModels(self.folder)
        self._faults: deque[Fault] = deque()
        self._endpoints: dict[str, EmbeddedEndpoint] = {}
        self._released = threading.Event()
        self.loop = asyncio.new_event_loop()

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that direct a process to this server."""
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": KEY}

    @property
    def bodies(self) -> list[Any]:
        """The bodies of all requests for a response, oldest first."""
        return [
            request.json for request in self.requests if (request.method, request.path) == ("POST", "/v1/responses")
        ]

    def replies(self, *replies: Mapping[str, Any], **more: Any) -> None:
        """Call `LoopbackModels.replies`."""
        self.scripts.replies(*replies, **more)

    def release_deltas(self, count: float = math.inf) -> None:
        """Release this many deltas of replies with the delay `HELD_S`; by default all, also those of later requests."""
        self.run(self.scripts.clock.release(count))

    def arm(self, *faults: Fault) -> None:
        """Apply each fault to the next request that has its method and path."""
        self._faults.extend(faults)

    def release(self) -> None:
        """Let paused responses continue."""
        self._released.set()

    def endpoint(self, key: str = KEY) -> EmbeddedEndpoint:
        """The endpoint behind the server for the tenant of `key`. Use `run` to call its coroutines."""
        if key == WRONG_KEY:
            raise KeyRefused("Incorrect API key provided", code="invalid_api_key")
        if key not in self._endpoints:
            self._endpoints[key] = EmbeddedEndpoint(self.store.for_tenant(key), self.scripts, SystemClock(), random_id)
        return self._endpoints[key]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the server, from the thread of a test; return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        request = await _record_request(scope, receive)
        self.requests.append(request)
        fault = self._fault_for(request)
        try:
            await self._answer(request, fault, receive, send)
        except ConnectionCut:
            transport = send.__self__.transport  # type: ignore[attr-defined]
            transport.abort()

    def _fault_for(self, request: RecordedRequest) -> Fault:
        if self._faults and (self._faults[0].method, self._faults[0].path) == (request.method, request.path):
            return self._faults.popleft()
        return Fault()

    async def _answer(self, request: RecordedRequest, fault: Fault, receive: "Receive", send: "Send") -> None:
        if fault.cut_after == -1:
            raise ConnectionCut
        if fault.error_response:
            status, body, headers = fault.error_response
            return await _send(send, status, body, headers)
        if fault.stream is not None:
            await _send_head(send, 200, "text/event-stream")
            return await _send_piece(send, fault.stream, more=False)
        try:
            endpoint = self.endpoint(request.headers.get("authorization", "").removeprefix("Bearer "))
            if (request.method, request.path) == ("POST", "/v1/responses"):
                return await self._respond(endpoint, dict(request.json), fault, receive, send)
            if request.method == "GET" and "stream=true" in request.query:
                return await self._follow(endpoint, request, send)
            await _send(send, 200, await dispatch(endpoint, request))
        except ConvoError as error:
            await _send_error(send, error)
        return None

    async def _respond(
        self, endpoint: Endpoint, body: dict[str, Any], fault: Fault, receive: "Receive", send: "Send"
    ) -> None:
        if fault.ignores_state:
            body = {name: value for name, value in body.items() if name not in ("previous_response_id", "conversation")}
        answering = asyncio.ensure_future(self._stream(endpoint, body, fault, send))
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        await asyncio.wait({answering, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering
            self.client_left.set()
            return
        disconnected.cancel()
        answering.result()

    async def _stream(self, endpoint: Endpoint, body: dict[str, Any], fault: Fault, send: "Send") -> None:
        streaming, sent = bool(body.pop("stream", False)), 0
        started = False
        async with aclosing(endpoint.create(body)) as events:
            try:
                async for event in events:
                    if not streaming or (fault.commits_first and sent >= (fault.cut_after or 0)):
                        final = event
                        continue
                    if not started:
                        await _send_head(send, 200, "text/event-stream")
                        started = True
                    await _send_piece(send, _sse(event))
                    sent += 1
                    if fault.cut_after is not None and sent >= fault.cut_after and not fault.commits_first:
                        raise ConnectionCut
                    if fault.pause_after is not None and sent >= fault.pause_after:
                        await self._pause()
            except ConvoError as error:
                if not started:
                    return await _send_error(send, error)
                return await _send_piece(send, _sse(error_event(error, sent)), more=False)
        if fault.commits_first:
            raise ConnectionCut
        if streaming:
            return await _send_piece(send, b"data: [DONE]\n\n", more=False)
        return await _send(send, 200, final["response"])

    async def _follow(self, endpoint: Endpoint, request: RecordedRequest, send: "Send") -> None:
        query = dict(pair.split("=", 1) for pair in request.query.split("&"))
        after, started = query.get("starting_after"), False
        followed = endpoint.follow(request.path.rpartition("/")[2], after=None if after is None else int(after))
        async with aclosing(followed) as events:
            async for event in events:
                if not started:
                    await _send_head(send, 200, "text/event-stream")
                    started = True
                await _send_piece(send, _sse(event))
        await _send_piece(send, b"data: [DONE]\n\n", more=False)

    async def _pause(self) -> None:
        self.paused.set()
        while not self._released.is_set():  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.005)


# -- HTTP messages --------------------------------------------------------------------------------


async def _record_request(scope: "Scope", receive: "Receive") -> RecordedRequest:
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return RecordedRequest(
        scope["method"], scope["path"], scope["query_string"].decode(), headers, json.loads(body or b"null")
    )


async def _wait_for_disconnect(receive: "Receive") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_error(send: "Send", error: ConvoError) -> None:
    wait = getattr(error, "retry_after_s", None)
    await _send(send, error.status, {"error": error_object(error)}, {} if wait is None else {"retry-after": str(wait)})


async def _send(send: "Send", status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
    await _send_head(send, status, "text/plain" if isinstance(body, str) else "application/json", headers)
    await _send_piece(send, body.encode() if isinstance(body, str) else json.dumps(body).encode(), more=False)


async def _send_head(send: "Send", status: int, form: str, more: Mapping[str, str] | None = None) -> None:
    headers = [(name.encode(), value.encode()) for name, value in {"content-type": form, **(more or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send_piece(send: "Send", body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _sse(event: StreamEvent) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


@contextmanager
def run_loopback_server(folder: Path, store: Store | None = None) -> Iterator[LoopbackServer]:
    """Run a server in a thread. Its socket listens before the thread starts, so callers need not wait."""
    from tests.asgi_server import listen_on_free_port, serve_in_thread

    listener, url = listen_on_free_port()
    server = LoopbackServer(url, folder, store or MemoryStore())
    with serve_in_thread(server, listener, server.loop):
        try:
            yield server
        finally:
            server.release()
            server.release_deltas()


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[LoopbackServer]:
    """A separate Responses server for this test."""
    folder = tmp_path / "loopback"
    folder.mkdir()
    with run_loopback_server(folder) as server:
        yield server
