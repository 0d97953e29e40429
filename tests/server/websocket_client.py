"""A client of WebSocket mode, and a clock that tests advance."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.clock import FixedClock

FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed", "error", "response.steer.failed")


class HasRoot(Protocol):
    """A server with an address."""

    @property
    def root(self) -> str: ...


class WebSocketClient:
    """An open connection."""

    def __init__(self, socket: Connection) -> None:
        self.socket = socket

    def send(self, message: Any = None, **fields: Any) -> None:
        """Send `message`, or a turn of the model "echo" with these fields."""
        payload = {"type": "response.create", "model": "echo", **fields} if message is None else message
        self.socket.send(payload if isinstance(payload, str | bytes) else json.dumps(payload))

    def receive(self) -> dict[str, Any]:
        data = self.socket.recv(timeout=30)
        assert isinstance(data, str)
        event: dict[str, Any] = json.loads(data)
        return event

    def receive_response_events(self) -> list[dict[str, Any]]:
        """Receive events up to the last event of a response."""
        events = [self.receive()]
        while events[-1]["type"] not in FINAL_EVENTS:
            events.append(self.receive())
        return events

    def turn(self, message: Any = None, **fields: Any) -> Any:
        """Send a turn; return its response or its error."""
        self.send(message, **fields)
        return self.receive_response()

    def receive_response(self) -> Any:
        last_event = self.receive_response_events()[-1]
        return last_event.get("response", last_event)


@contextmanager
def connect_client(
    gateway: HasRoot, *, path: str = "/v1/responses", key: str | None = None, **more: Any
) -> Iterator[WebSocketClient]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    address = f"ws{gateway.root.removeprefix('http')}{path}"
    with connect(address, additional_headers=headers | more.pop("headers", {}), proxy=None, **more) as socket:
        yield WebSocketClient(socket)


class ManualClock(FixedClock):
    """A clock whose `sleep` returns only when `advance_and_wake` reaches its end."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        wakeup = asyncio.Event()
        self._sleepers.append((self.now() + seconds, wakeup))
        await wakeup.wait()

    async def advance_and_wake(self, seconds: float) -> None:
        """Advance the time and wake the sleeping tasks. Must run in their event loop."""
        self.advance(seconds)
        for until, wakeup in self._sleepers:
            if until <= self.now():
                wakeup.set()


def response_text(response: Any) -> str:
    """Return the text of a response."""
    return "".join(part["text"] for item in response["output"] for part in item.get("content", ()) if "text" in part)
