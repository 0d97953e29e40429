"""Clients that send requests over one persistent connection each, without pauses, and measure the times.

Uses asyncio streams: a client library would cost more than the measured servers.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any

KEY = "sk-bench-4f7a92d1c6e83b50a1f2d3c4b5e69788"
"""A key that LiteLLM's proxy accepts as strong enough."""

Body = Callable[[int], Mapping[str, Any]]
"""Returns the request of a client's nth turn."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times of all clients: seconds to the first byte of content and to the end, and requests a second."""

    first_s: list[float]
    whole_s: list[float]
    per_s: float

    @property
    def p50_ms(self) -> float:
        return median(self.whole_s) * 1e3

    @property
    def p99_ms(self) -> float:
        return quantiles(self.whole_s, n=100)[98] * 1e3

    @property
    def first_ms(self) -> float:
        return median(self.first_s) * 1e3

    @property
    def mean_first_ms(self) -> float:
        return fmean(self.first_s) * 1e3


async def measure_requests(host: str, port: int, path: str, body: Body, *, clients: int, turns: int) -> Times:
    """Send `turns` requests in sequence from each of `clients`. Raises AssertionError for a status other than 200."""
    first: list[float] = []
    durations: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
        for turn in range(turns):
            sent = request(host, path, body(turn))
            started_at = time.perf_counter()
            writer.write(sent)
            first_s = await read_response(reader, started_at)
            first.append(first_s)
            durations.append(time.perf_counter() - started_at)
        writer.close()
        await writer.wait_closed()

    started_at = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return Times(first, durations, clients * turns / (time.perf_counter() - started_at))


def request(host: str, path: str, body: Mapping[str, Any]) -> bytes:
    raw = json.dumps(body).encode()
    lines = (f"POST {path} HTTP/1.1", f"host: {host}", f"authorization: Bearer {KEY}", "content-type: application/json")
    return "\r\n".join((*lines, f"content-length: {len(raw)}", "", "")).encode() + raw


async def read_response(reader: asyncio.StreamReader, started_at: float) -> float:
    """Read one response to its end; return the seconds until the first delta, or until the end without a stream."""
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    assert b" 200 " in head.split(b"\r\n", 1)[0], head + await reader.read(2000)
    if b"content-length:" in lowered:
        length = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        return time.perf_counter() - started_at
    first_s = None
    while size := int((await reader.readline()).strip() or b"0", 16):
        piece = await reader.readexactly(size + 2)
        if first_s is None and b'delta"' in piece:
            first_s = time.perf_counter() - started_at
    await reader.readline()
    return first_s if first_s is not None else time.perf_counter() - started_at
