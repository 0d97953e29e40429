"""Servers that send endless data: the memory of the process, and the latency of other clients.

The tests print their figures: `pytest -m full -s tests/limits/test_memory.py`.
"""

import asyncio
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from tests.hostile_server import HostileServer, run_hostile_server
from tests.limits.endless_answers import FORMS, endless_answers

MOST_MB = 200
P99_S = 0.1
P99_WHILE_TESTS_RUN_S = 1.0
"""While other tests use both cores, a request also waits for CPU time."""
KINDS = tuple(endless_answers(HostileServer(""), "chat"))

SMALL = {"answer_bytes": 2**23, "output_bytes": 2**17, "event_bytes": 2**20, "idle_s": 3, "answer_s": 20}
"""Small limits for a quick test."""

DEFAULT = {"idle_s": 20, "answer_s": 400}
"""The default limits, except that the time limits of several hours are shortened to these seconds."""


@contextmanager
def process(folder: Path, limits: dict[str, Any], server: HostileServer, api: str, *argv: str) -> Iterator[Any]:
    """Run `convo ARGV` in a new process with these limits and the provider `far`."""
    lines = ["[providers.far]", f'api = "{api}"', f'base_url = "{server.url}"', 'key_env = "FAR_KEY"', "[limits]"]
    file = folder / "limits.toml"
    file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in limits.items())]))
    environ = {**os.environ, "FAR_KEY": "test-key", **server.environ}
    command = [sys.executable, "-m", "convo", "--config", str(file), *argv]
    running = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)


def peak_mb(pid: int) -> float:
    """Return the peak resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


# -- serve ----------------------------------------------------------------------------------------


async def measured(url: str, stored: str, over: asyncio.Event) -> list[float]:
    """Return the seconds that each GET of another client took, until `over` is set."""
    took = []
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        while not over.is_set():
            began = monotonic()
            (await http.get(f"{url}/responses/{stored}")).raise_for_status()
            took.append(monotonic() - began)
            await asyncio.sleep(0.01)
    return took


async def asked(url: str, kind: str, *, stream: bool) -> tuple[str, str, float]:
    """Request an answer of the hostile server. Return its final status, its limit and its seconds."""
    began, ended, limit = monotonic(), "", ""
    body = {"model": f"far/{kind}", "input": "hi", "stream": stream}
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=600) as http,
        http.stream("POST", f"{url}/responses", json=body) as answer,
    ):
        limit = answer.headers.get("x-convo-limit", "")
        if answer.headers["content-type"].startswith("application/json"):
            whole = json.loads(await answer.aread())
            ended = whole.get("status") or f"error {answer.status_code}"
        else:
            async for line in answer.aiter_lines():
                if line.startswith(": x-convo-limit "):
                    limit = line.split()[-1]
                elif line.startswith("event: "):
                    ended = line.removeprefix("event: ")
    return ended, limit, monotonic() - began


async def all_at_once(url: str) -> tuple[dict[str, tuple[str, str, float]], list[float]]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        stored = (await http.post(f"{url}/responses", json={"model": "scripted/echo", "input": "hi"})).json()["id"]
    over = asyncio.Event()
    measuring = asyncio.create_task(measured(url, stored, over))
    ends = await asyncio.gather(*(asked(url, kind, stream=at % 2 == 0) for at, kind in enumerate(KINDS)))
    over.set()
    return dict(zip(KINDS, ends, strict=True)), await measuring


@contextmanager
def in_a_process(api: str) -> Iterator[HostileServer]:
    """Run a hostile server in its own process, so that its threads take no CPU time from the measuring clients."""
    place = socket.create_server(("127.0.0.1", 0))
    server = HostileServer(f"http://127.0.0.1:{place.getsockname()[1]}/v1")

    def answer(request: str) -> Iterator[bytes]:
        kind = next(kind for kind in KINDS if re.search(rf'"model": ?"{kind}"', request))
        return endless_answers(server, api)[kind]()

    server.answers = answer
    serving = multiprocessing.get_context("fork").Process(target=server.serve, args=(place,), daemon=True)
    serving.start()
    place.close()
    try:
        yield server
    finally:
        serving.kill()
        serving.join()


def serve_ten(folder: Path, limits: dict[str, Any], api: str, p99_s: float) -> None:
    argv = ("serve", "--port", "0", "--store", "memory")
    with in_a_process(api) as server, process(folder, limits, server, api, *argv) as running:
        said = ""
        while "http" not in said:
            said = running.stderr.readline()
        found = re.search(r"http://\S+?/v1", said)
        assert found
        before = peak_mb(running.pid)
        ends, took = asyncio.run(all_at_once(found[0]))
        peak = peak_mb(running.pid)
    p99 = sorted(took)[int(len(took) * 0.99)]
    print(f"\nserve, {api}: {before:.0f} MB before, {peak:.0f} MB at most; {len(took)} GETs, p99 {p99 * 1000:.0f} ms,")
    print(f"  the longest {max(took) * 1000:.0f} ms")
    for kind, (ended, limit, seconds) in ends.items():
        print(f"  {kind:12} {ended:22} {limit:24} {seconds:6.1f} s")
    assert all(ended not in ("", "completed", "response.completed") for ended, _, _ in ends.values())
    assert peak < MOST_MB
    assert p99 < p99_s


def test_ten_hostile_servers_cost_serve_little_memory_and_others_little_time(tmp_path: Path, home: Path) -> None:
    serve_ten(tmp_path, SMALL, "chat", P99_WHILE_TESTS_RUN_S)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", FORMS)
def test_ten_hostile_servers_cost_serve_little_at_the_limits_that_hold_by_default(
    tmp_path: Path, home: Path, api: str
) -> None:
    serve_ten(tmp_path, DEFAULT, api, P99_S)


# -- chat -----------------------------------------------------------------------------------------


def chat_one(folder: Path, limits: dict[str, Any], api: str, kind: str) -> None:
    with run_hostile_server() as server:
        server.answers = lambda _: endless_answers(server, "responses" if api == "remote" else api)[kind]()
        model = "openai/m" if api == "remote" else "far/m"
        given = "chat" if api == "remote" else api
        began, peak = monotonic(), 0.0
        with process(folder, limits, server, given, "chat", "-m", model, "--session", "-q", "hi") as running:
            out = threading.Thread(target=running.stdout.read, daemon=True)
            out.start()
            while running.poll() is None:
                try:
                    peak = max(peak, peak_mb(running.pid))
                except (OSError, AssertionError):
                    break
                out.join(0.01)
            code = running.wait()
    print(f"\nchat, {api}, {kind}: exit {code}, {peak:.0f} MB at most, {monotonic() - began:.1f} s")
    assert code == 1
    assert peak < MOST_MB


@pytest.mark.parametrize(("api", "kind"), [("chat", "gzip bomb"), ("remote", "error body")])
def test_a_hostile_server_costs_a_chat_little_memory(tmp_path: Path, home: Path, api: str, kind: str) -> None:
    chat_one(tmp_path, SMALL, api, kind)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", [*FORMS, "remote"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_server_costs_a_chat_little_at_the_limits_that_hold_by_default(
    tmp_path: Path, home: Path, api: str, kind: str
) -> None:
    chat_one(tmp_path, DEFAULT, api, kind)
