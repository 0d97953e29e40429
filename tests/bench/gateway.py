"""The latency and throughput of `convo serve` with each store, compared with LiteLLM's proxy.

    python -m tests.bench.gateway [--litellm PROGRAM] [--postgres URL] [--requests N]

One mock model responds immediately to all servers, so the measured time is that of the server; the first
line is the mock alone. Every line is a server process of its own, with persistent connections: one client
for the added time, 16 and 64 for requests a second, 16 streaming for the time to the first token: with a
model that responds immediately, where all of them wait for one core, and as the difference for one that
thinks for 100 to 300 ms. Every request is stored if the server has a store; the chains grow and show the
cost of a turn, in time and in bytes: of SQLite's files, of PostgreSQL's tables with their indexes, of the
process for the memory store. Without a URL a PostgreSQL is started for this run, which writes to the disk
before it confirms.

LiteLLM is not installed with convo: `pip install 'litellm[proxy]'` into an environment of its own.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import psycopg

from tests import databases
from tests.bench.load import KEY, Body, Times, measure_requests

WARM = 60
CLIENTS = (16, 64)
CHAINS = (100, 1000)
START_TIMEOUT_S = 180

SETTINGS = """
[providers.mock]
api = "{api}"
base_url = "http://127.0.0.1:{port}/v1"
key_env = "BENCH_KEY"
owner = "convo"
[aliases]
"mock" = "mock/m"
"""

LITELLM = """
model_list:
  - model_name: mock
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{port}/v1", api_key: sk-1}}
general_settings: {{master_key: {key}}}
"""


Process: TypeAlias = subprocess.Popen[bytes]

Size: TypeAlias = Callable[[Process], int]
"""Returns the size of all data that a server stores, in bytes."""


@dataclass(frozen=True)
class Server:
    """One line of the table: name, command and port of a server, and the size of its data if it stores any.

    passes_through:  its requests are chat completions
    """

    name: str
    command: Sequence[str]
    port: int
    size: Size | None = None
    passes_through: bool = False


@dataclass(frozen=True)
class Line:
    """The figures of one server."""

    start_s: float
    single: Times
    streamed: Times
    thinking: Times
    many: Mapping[int, Times]
    memory_mb: float


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def plain(turn: int) -> Mapping[str, Any]:
    return {"model": "mock", "input": f"This is turn {turn}."}


def streaming(turn: int) -> Mapping[str, Any]:
    return {**plain(turn), "stream": True}


def think_then_answer() -> Body:
    """Return a body of requests whose model thinks for 100 to 300 ms; all clients share one sequence of times."""
    numbers = count()
    return lambda turn: {**streaming(turn), "input": f"Turn {turn}: think for {100 + next(numbers) * 37 % 200} ms."}


def as_chat(body: Body) -> Body:
    """Return the same requests as chat completions."""

    def chat(turn: int) -> Mapping[str, Any]:
        fields = dict(body(turn))
        messages = [{"role": "user", "content": fields.pop("input")}]
        return {**fields, "messages": messages}

    return chat


@contextmanager
def running(server: Server) -> Iterator[tuple[Process, float]]:
    """Run the server as a process; yield it with the seconds until it accepted a connection."""
    devnull = subprocess.DEVNULL
    started_at = time.perf_counter()
    environment = {**os.environ, "BENCH_KEY": "sk-1234"}
    with subprocess.Popen(server.command, stdout=devnull, stderr=devnull, env=environment) as process:
        try:
            yield process, wait_until_ready(server, process, started_at)
        finally:
            process.terminate()


def wait_until_ready(server: Server, process: Process, started_at: float) -> float:
    while time.perf_counter() - started_at < START_TIMEOUT_S:
        assert process.poll() is None, f"{server.name} ended"
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=5):
                return time.perf_counter() - started_at
        except OSError:
            time.sleep(0.01)
    raise TimeoutError(server.name)


def memory(process: Process) -> int:
    """Return the resident memory of a process and of its children, in bytes."""
    pids = [process.pid, *children(process.pid)]
    return sum(resident_kb(pid) for pid in pids) * 1024


def children(pid: int) -> list[int]:
    child_ids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, child_ids) for each in (child, *children(child))]


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


async def measured(server: Server, requests: int, start_s: float, process: Process) -> Line:
    async def times(body: Body, clients: int, turns: int) -> Times:
        path = "/v1/chat/completions" if server.passes_through else "/v1/responses"
        form = as_chat(body) if server.passes_through else body
        return await measure_requests("127.0.0.1", server.port, path, form, clients=clients, turns=turns)

    await times(plain, 4, WARM // 4)
    await times(streaming, 4, WARM // 4)
    one = await times(plain, 1, requests)
    many = {clients: await times(plain, clients, max(4, requests // clients)) for clients in CLIENTS}
    streamed = await times(streaming, 16, max(4, requests // 16))
    thinking = await times(think_then_answer(), 16, 25)
    return Line(start_s, one, streamed, thinking, many, memory(process) / 1024**2)


def chained(server: Server, turns: int) -> float:
    """Return the mean time of the last tenth of a chain's turns, in milliseconds."""
    connection, previous, durations = HTTPConnection("127.0.0.1", server.port, timeout=60), None, []
    for turn in range(turns):
        body = {**plain(turn), **({"previous_response_id": previous} if previous else {})}
        started_at = time.perf_counter()
        connection.request("POST", "/v1/responses", json.dumps(body), {"content-type": "application/json"})
        previous = json.loads(connection.getresponse().read())["id"]
        durations.append(time.perf_counter() - started_at)
    connection.close()
    last = durations[-max(1, turns // 10) :]
    return sum(last) / len(last) * 1e3


def files_size(database: Path) -> Size:
    return lambda process: sum(file.stat().st_size for file in database.parent.glob(f"{database.name}*"))


def tables_size(url: str) -> Size:
    def size(process: Process) -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            found = connection.execute(TABLES).fetchone()
            return int(found[0]) if found else 0

    return size


TABLES = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'convo' AND c.relkind = 'r'
"""


def convo(name: str, folder: Path, api: str, mock: int, store: str, size: Size | None = None) -> Server:
    settings, port = folder / f"{api}.toml", free_port()
    settings.write_text(SETTINGS.format(api=api, port=mock), encoding="utf-8")
    arguments = ["--config", str(settings), "serve", "--port", str(port), "--store", store]
    return Server(name, [sys.executable, "-m", "convo", *arguments], port, size)


def servers(folder: Path, mock: int, litellm: str | None, postgres: str) -> Iterator[Server]:
    file, chat = folder / "convo.db", folder / "chat.db"
    yield convo("convo, none", folder, "responses", mock, "none")
    yield convo("convo, memory", folder, "responses", mock, "memory", memory)
    yield convo("convo, sqlite", folder, "responses", mock, f"sqlite:{file}", files_size(file))
    yield convo("convo, sqlite, chat", folder, "chat", mock, f"sqlite:{chat}", files_size(chat))
    yield convo("convo, postgres", folder, "responses", mock, postgres, tables_size(postgres))
    chat_server = convo("convo, passed through", folder, "chat", mock, "memory")
    yield replace(chat_server, passes_through=True)
    if litellm:
        config, port = folder / "litellm.yaml", free_port()
        config.write_text(LITELLM.format(port=mock, key=KEY), encoding="utf-8")
        command = [litellm, "--config", str(config), "--port", str(port), "--num_workers", "1"]
        yield Server("LiteLLM", command, port)


HEAD = f"{'':<22}{'start s':>8}{'MB':>6}{'p50 ms':>8}{'p99 ms':>8}{'added':>7}{'first ms':>9}{'added':>7}" + "".join(
    f"{f'req/s {clients}':>10}" for clients in CLIENTS
)


def format_row(name: str, line: Line, floor: Line) -> str:
    added = line.single.p50_ms - floor.single.p50_ms
    first = line.thinking.mean_first_ms - floor.thinking.mean_first_ms
    rates = "".join(f"{line.many[clients].per_s:>10,.0f}" for clients in CLIENTS)
    return (
        f"{name:<22}{line.start_s:>8.2f}{line.memory_mb:>6.0f}{line.single.p50_ms:>8.2f}{line.single.p99_ms:>8.2f}{added:>7.2f}"
        f"{line.streamed.first_ms:>9.1f}{first:>7.1f}{rates}"
    )


def measure_growth(server: Server, process: Process) -> Iterator[str]:
    """Yield the cost of each chain: the time of its last turns and the stored bytes of a turn."""
    assert server.size
    for turns in CHAINS:
        before = server.size(process)
        last_ms = chained(server, turns)
        growth = (server.size(process) - before) / turns
        yield f"{server.name:<22} a chain of {turns:>5}: {last_ms:>6.1f} ms for its last turns {growth:>8,.0f} B a turn"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--litellm")
    parser.add_argument("--postgres")
    parser.add_argument("--requests", type=int, default=2000)
    arguments = parser.parse_args()
    os.environ["NO_PROXY"] = "127.0.0.1"
    database = nullcontext(None) if arguments.postgres else databases.start_server(settings=databases.DURABLE)
    with database as own, TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        os.environ["CONVO_HOME"] = str(folder / "home")
        mock = Server("the mock alone", [sys.executable, "-m", "tests.bench.upstream", str(port)], port)
        with running(mock) as (process, start_s):
            floor = asyncio.run(measured(mock, arguments.requests, start_s, process))
            chat_floor = asyncio.run(measured(replace(mock, passes_through=True), arguments.requests, start_s, process))
            print(HEAD)
            print(format_row(mock.name, floor, floor), flush=True)
            print(format_row(f"{mock.name}, chat", chat_floor, chat_floor), flush=True)
            for server in servers(folder, port, arguments.litellm, own.url() if own else arguments.postgres):
                with running(server) as (process, start_s):
                    print(
                        format_row(
                            server.name,
                            asyncio.run(measured(server, arguments.requests, start_s, process)),
                            chat_floor if server.passes_through else floor,
                        )
                    )
                    for line in measure_growth(server, process) if server.size else ():
                        print(line, flush=True)


if __name__ == "__main__":
    main()
