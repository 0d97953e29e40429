"""The time that `convo tap` adds to a request, and its memory while a large body passes.

    python -m tests.bench.relay [--requests N] [--megabytes N]

One mock model answers at once, directly and through the relay, which records. Requests alternate between the two, so
that both see the same load of the machine. The last lines relay one large body in each direction.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.load import Body, free_port, measure_requests, resident_kb, running, running_upstream

ROUNDS = 20
PIECE_BYTES = 256 * 1024


@contextmanager
def run_tap(folder: Path, upstream: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Run `convo tap` without a command; yield it with its port and the path of the base URL."""
    environ = {**os.environ, "CONVO_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "convo", "tap", "--upstream", upstream]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, text=True
    ) as process:
        assert process.stdout
        url = (
            next(line for line in process.stdout if line.startswith("export OPENAI_BASE_URL="))
            .strip()
            .partition("=")[2]
        )
        port, _, path = url.removeprefix("http://127.0.0.1:").partition("/")
        try:
            yield process, int(port), f"/{path}"
        finally:
            process.send_signal(signal.SIGINT)


def whole_body(turn: int) -> Mapping[str, Any]:
    return {"model": "mock", "input": f"This is turn {turn}."}


def streamed_body(turn: int) -> Mapping[str, Any]:
    return {**whole_body(turn), "stream": True}


async def compare(name: str, body: Body, direct: int, relay: tuple[int, str], requests: int) -> str:
    """Measure both in turn; return the row of the table."""
    whole: Mapping[str, list[float]] = {"direct": [], "relay": []}
    first: Mapping[str, list[float]] = {"direct": [], "relay": []}
    for number in range(ROUNDS + 1):
        for key, port, path in (("direct", direct, "/v1/responses"), ("relay", relay[0], f"{relay[1]}/responses")):
            turns = max(4, requests // ROUNDS)
            times = await measure_requests(port, path, body, clients=1, turns=turns)
            if number:  # the first round warms both
                whole[key].extend(answer.whole_s for answer in times.answers)
                first[key].extend(answer.first_s for answer in times.answers)
    figures = [median(values[key]) * 1e3 for values in (whole, first) for key in ("direct", "relay")]
    return (
        f"{name:<12}{figures[0]:>10.2f}{figures[1]:>10.2f}{figures[1] - figures[0]:>10.2f}"
        f"{figures[2]:>14.2f}{figures[3]:>10.2f}{figures[3] - figures[2]:>10.2f}"
    )


async def pass_large_body(process: subprocess.Popen[str], relay: tuple[int, str], size: int, *, upload: bool) -> str:
    """Relay a body; return the time and the growth of the relay's memory."""
    before_kb, started_at = resident_kb(process.pid), time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay[0])
    peak_kb = before_kb
    path = f"{relay[1]}/files" if upload else f"{relay[1]}/files/{size}"
    head = f"{'POST' if upload else 'GET'} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    writer.write(f"{head}{f'content-length: {size}' if upload else 'x-none: 1'}\r\n\r\n".encode())
    if upload:
        for _ in range(size // PIECE_BYTES):
            writer.write(bytes(PIECE_BYTES))
            await writer.drain()
            peak_kb = max(peak_kb, resident_kb(process.pid))
    await reader.readuntil(b"\r\n\r\n")
    left = 0 if upload else size
    while left > 0:
        left -= len(await reader.read(PIECE_BYTES))
        peak_kb = max(peak_kb, resident_kb(process.pid))
    writer.close()
    seconds = time.perf_counter() - started_at
    direction = "upload" if upload else "download"
    return f"{direction:<12}{size / 1e6:,.0f} MB in {seconds:.1f} s, memory +{(peak_kb - before_kb) / 1024:.1f} MB"


LARGE_BODIES = """
import asyncio, sys

async def serve(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    path = head.split()[1].decode()
    if head.startswith(b"POST"):
        left = int(head.lower().split(b"content-length:")[1].split()[0])
        while left > 0:
            left -= len(await reader.read(262144))
        size = 0
    else:
        size = int(path.rsplit("/", 1)[1])
    writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n" % size)
    while size > 0:
        writer.write(bytes(min(size, 262144)))
        size -= 262144
        await writer.drain()
    writer.close()

async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()

asyncio.run(main())
"""


async def measure(folder: Path, mock: int, large: int, requests: int, size: int) -> None:
    with run_tap(folder, f"http://127.0.0.1:{mock}/v1") as (_, port, path):
        print(f"{'p50, ms':<12}{'direct':>10}{'relay':>10}{'added':>10}{'first byte':>14}{'relay':>10}{'added':>10}")
        bodies: tuple[tuple[str, Any], ...] = (("whole", whole_body), ("streamed", streamed_body))
        for name, body in bodies:
            print(await compare(name, body, mock, (port, path), requests), flush=True)
    with run_tap(folder, f"http://127.0.0.1:{large}/v1") as (process, port, path):
        for upload in (True, False):
            await pass_large_body(process, (port, path), PIECE_BYTES * 40, upload=upload)
            print(await pass_large_body(process, (port, path), size, upload=upload), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=1024)
    arguments = parser.parse_args()
    os.environ["NO_PROXY"] = "127.0.0.1"
    large, size = free_port(), arguments.megabytes * 1024 * 1024
    with (
        TemporaryDirectory() as name,
        running_upstream() as mock,
        running([sys.executable, "-c", LARGE_BODIES, str(large)], large),
    ):
        asyncio.run(measure(Path(name), mock, large, arguments.requests, size))


if __name__ == "__main__":
    main()
