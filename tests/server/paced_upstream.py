"""A model server that answers at a fixed pace and records when its client closed the connection.

The name of the model selects the answer:

    words-40-5    40 words, 5 ms apart
    hold-3        three words, then nothing until the client disconnects
    silent        no response, not even a status
    call          half a function call, then nothing
    burst-40      40 words and the end, without a pause
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.asgi_server import start_loop_thread


@dataclass
class Call:
    """A request that arrived: its body, the number of words sent, and the time at which its connection closed."""

    body: dict[str, Any]
    words: int = 0
    finished: bool = False
    closed_at: float | None = None
    closed: threading.Event = field(default_factory=threading.Event)


@dataclass
class PacedUpstream:
    """A running server. `calls` lists all requests, oldest first."""

    url: str
    calls: list[Call] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def settings(self) -> str:
        return f'[providers.up]\napi = "chat"\nbase_url = "{self.url}"\n'

    def call(self, text: str) -> Call:
        """Wait for the request whose last message is `text`, and return it."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: self._find(text) is not None, timeout=30)
        found = self._find(text)
        assert found is not None
        return found

    def _find(self, text: str) -> Call | None:
        return next((call for call in self.calls if call.body.get("messages", [{}])[-1].get("content") == text), None)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve_requests(reader, writer)
        finally:
            writer.close()

    async def _serve_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                call = Call(json.loads(await reader.readexactly(length)))
                with self.arrived:
                    self.calls.append(call)
                    self.arrived.notify_all()
                answer_task = asyncio.create_task(self._answer(call, writer))
                close_task = asyncio.create_task(reader.read(1))
                await asyncio.wait({answer_task, close_task}, return_when=asyncio.FIRST_COMPLETED)
                answer_task.cancel()
                await asyncio.gather(answer_task, return_exceptions=True)
                await asyncio.gather(close_task, return_exceptions=True)  # a reset ends the connection, too
                call.closed_at = time.monotonic()
                call.closed.set()
                break

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> None:
        kind, *numbers = str(call.body["model"]).split("-")
        if kind == "silent":
            await asyncio.Event().wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        gap_s = int(numbers[1]) / 1000 if len(numbers) > 1 else 0.0
        if kind == "call":
            tool_call = {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"a": '},
            }
            writer.write(chunk({"tool_calls": [tool_call]}))
            await asyncio.Event().wait()
        for number in range(int(numbers[0])):
            writer.write(chunk({"content": f"w{number} "}))
            call.words += 1
            if gap_s:
                await writer.drain()
                await asyncio.sleep(gap_s)
        if kind == "hold":
            await asyncio.Event().wait()
        call.finished = True
        writer.write(chunk({}, "stop") + b"data: [DONE]\n\n")
        await writer.drain()
        writer.write_eof()


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    payload = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: %b\n\n" % json.dumps(payload).encode()


@contextmanager
def run_paced_upstream() -> Iterator[PacedUpstream]:
    """Run a server on loopback while the block runs."""
    loop = asyncio.new_event_loop()
    ready, stop_event = threading.Event(), asyncio.Event()
    upstream = PacedUpstream("")

    async def run() -> None:
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
        upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await stop_event.wait()
        server.close()

    thread = start_loop_thread(loop, run())
    ready.wait()
    try:
        yield upstream
    finally:
        loop.call_soon_threadsafe(stop_event.set)
        thread.join()
