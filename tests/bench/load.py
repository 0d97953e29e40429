"""Servers as processes, and clients that send requests over one persistent connection each and measure the times.

Uses asyncio streams: a client library would cost more than the measured servers. Every answer must be a completed
response, or a chat completion that stopped; any other raises AssertionError.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.command_runner import ROOT

START_TIMEOUT_S = 180

KEY = "sk-bench-4f7a92d1c6e83b50a1f2d3c4b5e69788"
"""A key that LiteLLM's proxy accepts as strong enough."""

Body = Callable[[int], Mapping[str, Any]]
"""Returns the request of a client's nth turn."""

DELTA = b"event: response.output_text.delta"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(
    command: Sequence[str], port: int, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server as a process; yield it when it accepts connections."""
    environ, deadline = {**os.environ, "NO_PROXY": "127.0.0.1", **(env or {})}, time.monotonic() + START_TIMEOUT_S
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environ, cwd=tempfile.gettempdir()) as process,
    ):
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                    break
                except OSError:
                    log.seek(0)
                    assert process.poll() is None, log.read()
                    assert time.monotonic() < deadline, command
                    time.sleep(0.01)
            yield process
        finally:
            process.terminate()


@contextmanager
def running_upstream() -> Iterator[int]:
    """Run the upstream as a process; yield its port."""
    port = free_port()
    with running([sys.executable, "-m", "tests.bench.upstream", str(port)], port, {"PYTHONPATH": str(ROOT)}):
        yield port


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process on Linux, as clock_getcpuclockid(3) names its clock."""
    return time.clock_gettime((~pid << 3) | 2)


@dataclass(frozen=True, slots=True)
class Answer:
    """One completed answer; `size` counts the bytes of its head and of its body as sent."""

    id: str
    size: int
    first_s: float
    whole_s: float


class Client:
    """A persistent connection to a server on loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))

    async def post(
        self, path: str, body: Mapping[str, Any], on_deltas: Callable[[int], object] = lambda _: None
    ) -> Answer:
        """Send a request and read its answer to the end.

        on_deltas:  called with the number of text deltas in each piece of a stream of response events
        """
        raw = json.dumps(body).encode()
        lines = (f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {KEY}")
        head = "\r\n".join((*lines, "content-type: application/json", f"content-length: {len(raw)}", "", ""))
        started_at, first_s = time.perf_counter(), 0.0
        self._writer.write(head.encode() + raw)
        head_bytes = await self._reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head_bytes.split(b"\r\n", 1)[0], head_bytes + await self._reader.read(2000)
        size, pieces = len(head_bytes), list[bytes]()
        async for framing, piece in self._pieces(head_bytes.lower()):
            size += framing + len(piece)
            if not first_s and b'delta"' in piece:
                first_s = time.perf_counter() - started_at
            if deltas := piece.count(DELTA):
                on_deltas(deltas)
            pieces.append(piece)
        whole_s = time.perf_counter() - started_at
        return Answer(completed_id(b"".join(pieces)), size, first_s or whole_s, whole_s)

    async def _pieces(self, head: bytes) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the size of the framing and the content of each chunk, or the whole body."""
        if b"content-length:" in head:
            yield 0, await self._reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
            return
        size = -1
        while size:
            line = await self._reader.readline()
            size = int(line, 16)
            yield len(line) + 2, (await self._reader.readexactly(size + 2))[:-2]

    async def aclose(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def completed_id(body: bytes) -> str:
    """Return the id of a completed answer. Raises AssertionError for any other."""
    events = [event.partition(b"data: ")[2] for event in body.split(b"\n\n") if b"data: {" in event]
    if not events:
        answer = json.loads(body)
        if answer.get("object") == "conversation":
            return str(answer["id"])
        is_completed = answer.get("status") == "completed" or answer["choices"][0]["finish_reason"] == "stop"
        assert is_completed, body[:2000]
        return str(answer["id"])
    last = json.loads(events[-1])
    if last.get("object") == "chat.completion.chunk":
        assert body.endswith(b"data: [DONE]\n\n"), body[-2000:]
        assert b'"finish_reason":"stop"' in body.replace(b" ", b""), body[-2000:]
        return str(last["id"])
    assert last["type"] == "response.completed", body[-2000:]
    assert last["response"]["status"] == "completed", body[-2000:]
    return str(last["response"]["id"])


@dataclass(frozen=True, slots=True)
class Times:
    """The answers to all clients, and requests a second."""

    answers: Sequence[Answer]
    per_s: float

    @property
    def p50_ms(self) -> float:
        return median(each.whole_s for each in self.answers) * 1e3


async def measure_requests(port: int, path: str, body: Body, *, clients: int, turns: int) -> Times:
    """Send `turns` requests in sequence from each of `clients`."""

    async def one() -> list[Answer]:
        client = await Client.connect(port)
        answers = [await client.post(path, body(turn)) for turn in range(turns)]
        await client.aclose()
        return answers

    started_at = time.perf_counter()
    answers = [answer for each in await asyncio.gather(*(one() for _ in range(clients))) for answer in each]
    return Times(answers, len(answers) / (time.perf_counter() - started_at))
