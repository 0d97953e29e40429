"""Endless data of servers and long names of clients: the memory of the process, and the latency of other clients.

The tests print their figures: `pytest -m full -s tests/limits/test_memory.py`.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from convo.config.settings import BUILT_IN_MODEL, make_model_name_expander
from convo.history.items import user_message
from convo.history.tree import Path as ItemPath
from convo.history.tree import root_key
from convo.stores.base import AppendItems, Transaction
from convo.stores.request_list import RequestQuery
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.config.settings_inputs import make_settings
from tests.hostile_server import HostileServer, run_hostile_server
from tests.limits.endless_answers import FORMS, endless_answers
from tests.server.gateway import run_gateway
from tests.stores.chat_transactions import link

MAX_MB = 200
P99_S = 0.1
P99_RATIO = 2
"""While other tests use both cores, a request also waits for CPU time, as one to an idle server does."""

P99_WHILE_TESTS_RUN_S = 1.0
"""As `P99_S`, for a test that is too short for a ratio."""
KINDS = tuple(endless_answers(HostileServer(""), "chat"))

SMALL = {"answer_bytes": 2**23, "output_bytes": 2**17, "event_bytes": 2**20, "idle_s": 3, "answer_s": 20}
"""Small limits for a quick test."""

DEFAULT = {"idle_s": 20, "answer_s": 400}
"""The default limits, except that the time limits of several hours are shortened to these seconds."""


@contextmanager
def run_convo(folder: Path, limits: dict[str, Any], server: HostileServer, api: str, *argv: str) -> Iterator[Any]:
    """Run `convo ARGV` in a new process with these limits and the provider `far`."""
    lines = ["[providers.far]", f'api = "{api}"', f'base_url = "{server.url}"', 'key_env = "FAR_KEY"', "[limits]"]
    file = folder / "limits.toml"
    file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in limits.items())]))
    environ = {**os.environ, "FAR_KEY": "test-key", **server.environ}
    command = [sys.executable, "-m", "convo", "--config", str(file), *argv]
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def peak_mb(pid: int) -> float:
    """Return the peak resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match
    return int(match[1]) / 1024


# -- serve ----------------------------------------------------------------------------------------


async def measure_get_latency(url: str, response_id: str, stop: asyncio.Event) -> list[float]:
    """Return the seconds that each GET of another client took, until `stop` is set."""
    durations = []
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        while not stop.is_set():
            started = monotonic()
            (await http.get(f"{url}/responses/{response_id}")).raise_for_status()
            durations.append(monotonic() - started)
            await asyncio.sleep(0.01)
    return durations


async def request_answer(url: str, kind: str, *, stream: bool) -> tuple[str, str, float]:
    """Request an answer of the hostile server. Return its final status, its limit and its seconds."""
    started, status, limit = monotonic(), "", ""
    body = {"model": f"far/{kind}", "input": "hi", "stream": stream}
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=600) as http,
        http.stream("POST", f"{url}/responses", json=body) as answer,
    ):
        limit = answer.headers.get("x-convo-limit", "")
        if answer.headers["content-type"].startswith("application/json"):
            response = json.loads(await answer.aread())
            status = response.get("status") or f"error {answer.status_code}"
        else:
            async for line in answer.aiter_lines():
                if line.startswith(": x-convo-limit "):
                    limit = line.split()[-1]
                elif line.startswith("event: "):
                    status = line.removeprefix("event: ")
    return status, limit, monotonic() - started


async def request_all_kinds(url: str, idle_url: str) -> tuple[dict[str, tuple[str, str, float]], list[list[float]]]:
    """Return the ends of all answers, and the durations of GETs to this server and to the idle one meanwhile."""
    stop, measurements = asyncio.Event(), []
    async with httpx2.AsyncClient(trust_env=False) as http:
        for root in (url, idle_url):
            got = await http.post(f"{root}/responses", json={"model": "scripted/echo", "input": "hi"})
            measurements.append(asyncio.create_task(measure_get_latency(root, got.json()["id"], stop)))
    results = await asyncio.gather(
        *(request_answer(url, kind, stream=index % 2 == 0) for index, kind in enumerate(KINDS))
    )
    stop.set()
    return dict(zip(KINDS, results, strict=True)), await asyncio.gather(*measurements)


def read_url(process: "subprocess.Popen[str]") -> str:
    """Read the address of a server from its stderr."""
    assert process.stderr
    line = ""
    while "http" not in line:
        line = process.stderr.readline()
    match = re.search(r"http://\S+?/v1", line)
    assert match
    return match[0]


def find_p99(durations: list[float]) -> float:
    return sorted(durations)[int(len(durations) * 0.99)]


@contextmanager
def run_hostile_process(api: str) -> Iterator[HostileServer]:
    """Run a hostile server in its own process, so that its threads take no CPU time from the measuring clients."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = HostileServer(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")

    def answer(request: str) -> Iterator[bytes]:
        kind = next(kind for kind in KINDS if re.search(rf'"model": ?"{kind}"', request))
        return endless_answers(server, api)[kind]()

    server.answers = answer
    server_process = multiprocessing.get_context("fork").Process(target=server.serve, args=(listener,), daemon=True)
    server_process.start()
    listener.close()
    try:
        yield server
    finally:
        server_process.kill()
        server_process.join()


def check_serve_limits(folder: Path, limits: dict[str, Any], api: str, p99_s: float) -> None:
    argv, idle_folder = ("serve", "--port", "0", "--store", "memory"), folder / "idle"
    idle_folder.mkdir()
    with (
        run_hostile_process(api) as server,
        run_convo(folder, limits, server, api, *argv) as process,
        run_convo(idle_folder, limits, server, api, *argv) as idle_process,
    ):
        url, idle_url = read_url(process), read_url(idle_process)
        before = peak_mb(process.pid)
        results, (durations, idle_durations) = asyncio.run(request_all_kinds(url, idle_url))
        peak = peak_mb(process.pid)
    p99, idle_p99 = find_p99(durations), find_p99(idle_durations)
    print(
        f"\nserve, {api}: {before:.0f} MB before, {peak:.0f} MB at most;"
        f" {len(durations)} GETs, p99 {p99 * 1000:.0f} ms, of an idle server {idle_p99 * 1000:.0f} ms,"
    )
    print(f"  the longest {max(durations) * 1000:.0f} ms")
    for kind, (status, limit, seconds) in results.items():
        print(f"  {kind:12} {status:22} {limit:24} {seconds:6.1f} s")
    assert all(status not in ("", "completed", "response.completed") for status, _, _ in results.values())
    assert peak < MAX_MB
    assert p99 < max(p99_s, P99_RATIO * idle_p99)


def test_ten_hostile_servers_cost_serve_little_memory_and_others_little_time(tmp_path: Path, home: Path) -> None:
    check_serve_limits(tmp_path, SMALL, "chat", P99_WHILE_TESTS_RUN_S)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", FORMS)
def test_ten_hostile_servers_cost_serve_little_at_the_limits_that_hold_by_default(
    tmp_path: Path, home: Path, api: str
) -> None:
    check_serve_limits(tmp_path, DEFAULT, api, P99_S)


# -- chat -----------------------------------------------------------------------------------------


def check_chat_limits(folder: Path, limits: dict[str, Any], api: str, kind: str) -> None:
    with run_hostile_server() as server:
        server.answers = lambda _: endless_answers(server, "responses" if api == "remote" else api)[kind]()
        model = "openai/m" if api == "remote" else "far/m"
        provider_api = "chat" if api == "remote" else api
        started, peak = monotonic(), 0.0
        with run_convo(folder, limits, server, provider_api, "chat", "-m", model, "--session", "-q", "hi") as process:
            reader = threading.Thread(target=process.stdout.read, daemon=True)
            reader.start()
            while process.poll() is None:
                try:
                    peak = max(peak, peak_mb(process.pid))
                except (OSError, AssertionError):
                    break
                reader.join(0.01)
            exit_code = process.wait()
    print(f"\nchat, {api}, {kind}: exit {exit_code}, {peak:.0f} MB at most, {monotonic() - started:.1f} s")
    assert exit_code == 1
    assert peak < MAX_MB


@pytest.mark.parametrize(("api", "kind"), [("chat", "gzip bomb"), ("remote", "error body")])
def test_a_hostile_server_costs_a_chat_little_memory(tmp_path: Path, home: Path, api: str, kind: str) -> None:
    check_chat_limits(tmp_path, SMALL, api, kind)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", [*FORMS, "remote"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_server_costs_a_chat_little_at_the_limits_that_hold_by_default(
    tmp_path: Path, home: Path, api: str, kind: str
) -> None:
    check_chat_limits(tmp_path, DEFAULT, api, kind)


# -- names that clients choose --------------------------------------------------------------------

LONG_TEXT = "x" * 20_000


def kept_bytes(work: Callable[[], object]) -> int:
    """Return the bytes that Python has allocated in `work` and still holds."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_long_host_names_are_not_kept(tmp_path: Path) -> None:
    with run_gateway(tmp_path / "served") as gateway:

        def send(numbers: range) -> None:
            for number in numbers:
                headers = {"host": f"{number}{LONG_TEXT}"}
                assert gateway.http.get("/v1/models", headers=headers).status_code == 403
                gateway.exchanges.clear()

        send(range(1))
        assert kept_bytes(lambda: send(range(1, 41))) < 20 * len(LONG_TEXT)


def test_long_model_names_are_not_kept() -> None:
    expand = make_model_name_expander(make_settings())

    def expand_all() -> None:
        for number in range(40):
            assert expand(f"{number}{LONG_TEXT}").endswith(LONG_TEXT)
        assert expand("local") == BUILT_IN_MODEL

    assert kept_bytes(expand_all) < 20 * len(LONG_TEXT)


def test_long_models_and_parameters_of_stored_requests_are_not_kept(tmp_path: Path) -> None:
    tools = [{"type": "function", "name": "look_up"}, {"type": "web_search"}]

    async def store_links() -> None:
        path = ItemPath(root_key("local")).append([user_message("hi")])
        links = tuple(
            link(
                f"resp_{number}",
                path.head,
                model=f"{number}{LONG_TEXT}",
                parameters={"instructions": f"{number}{LONG_TEXT}", "tools": tools},
            )
            for number in range(60)
        )
        async with aclosing(SqliteStore(SqliteDatabase(tmp_path / "convo.db"))) as store:
            await store.admin.migrate()
            await store.commit(Transaction((AppendItems(root_key("local"), path.items),), links))

    async def list_links() -> None:
        async with aclosing(SqliteStore(SqliteDatabase(tmp_path / "convo.db"))) as store:
            assert len((await store.list_requests(RequestQuery(tool="web_search"))).requests) == 50
            assert (await store.list_requests(RequestQuery(model="m"))).requests == []

    asyncio.run(store_links())
    assert kept_bytes(lambda: asyncio.run(list_links())) < 20 * len(LONG_TEXT)
