"""`convo tap` and `convo serve --record`, killed or stopped under load: few recordings are lost, none runs forever."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from convo.recording.exchange_queue import MAX_UNWRITTEN
from convo.stores.factory import open_store
from convo.stores.request_list import ListedRequest, RequestQuery
from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.bench.upstream import serve
from tests.cli.serve_process import config_flags, run_serve
from tests.command_runner import Convo
from tests.fork_server import ConvoProcess

pytestmark = pytest.mark.needs("linux")

SIZES = [
    pytest.param(8, 80, 1, id="small"),
    pytest.param(50, 1000, 6, id="full", marks=pytest.mark.full),
]
"""Parallel clients, responses before each kill, and kills."""


class Recorded(NamedTuple):
    """A running process that records: its base URL for chat completions, and the model in requests."""

    process: subprocess.Popen[str]
    base_url: str
    model: str


@contextmanager
def run_recording_tap(upstream: str, file: Path, folder: Path) -> Iterator[Recorded]:
    argv = ["tap", "--upstream", upstream, "--store", f"sqlite:{file}"]
    with ConvoProcess(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout
        yield Recorded(process, process.stdout.readline().strip().partition("=")[2], "m")
        process.kill()


@contextmanager
def run_recording_server(upstream: str, file: Path, folder: Path) -> Iterator[Recorded]:
    settings = config_flags(folder, f'[providers.up]\napi = "chat"\nbase_url = "{upstream}"\n')
    with run_serve("--record", "--store", f"sqlite:{file}", before=settings) as server:
        yield Recorded(server.process, f"{server.http.base_url}/v1", "up/m")


RUNNERS = [pytest.param(run_recording_tap, id="tap"), pytest.param(run_recording_server, id="serve")]


def send_until_killed(recorded: Recorded, clients: int, count: int, prefix: str, number: signal.Signals) -> set[str]:
    """Send requests with different texts until the process is gone; return the texts of those that were answered."""
    answered: set[str] = set()
    is_enough = threading.Event()

    def send(client: int) -> None:
        with httpx2.Client(trust_env=False, timeout=60, verify=False) as http:
            for turn in range(count):
                text = f"{prefix} {client} {turn}"
                body = {"model": recorded.model, "messages": [{"role": "user", "content": text}]}
                try:
                    got = http.post(f"{recorded.base_url}/chat/completions", json=body)
                except httpx2.HTTPError:
                    assert is_enough.is_set()
                    return
                if got.status_code >= 500 and is_enough.is_set():  # it is shutting down
                    return
                assert got.status_code == 200, got.text
                answered.add(text)
                if len(answered) >= count:
                    is_enough.set()

    with ThreadPoolExecutor(clients) as threads:
        sending = [threads.submit(send, client) for client in range(clients)]
        assert is_enough.wait(300)
        recorded.process.send_signal(number)
        for each in sending:
            each.result()
    return answered


async def list_recorded(file: Path) -> list[ListedRequest]:
    store, requests = open_store(f"sqlite:{file}"), list[ListedRequest]()
    query = RequestQuery(limit=200)
    while True:
        page = await store.list_requests(query)
        requests += page.requests
        if page.next_cursor is None:
            await store.aclose()
            return requests
        query = replace(query, after=page.next_cursor)


@pytest.mark.parametrize(("clients", "count", "kills"), SIZES)
@pytest.mark.parametrize("run_recording", RUNNERS)
def test_a_kill_under_load_loses_few_recordings_and_none_runs_forever(
    convo: Convo, tmp_path: Path, home: Path, run_recording: Callable[..., AbstractContextManager[Recorded]],
    clients: int, count: int, kills: int,
) -> None:  # fmt: skip
    file = tmp_path / "recorded.db"
    listener, url = listen_on_free_port()
    with serve_in_thread(serve, listener, asyncio.new_event_loop()):
        for number in range(kills):
            with run_recording(url, file, tmp_path) as recorded:
                answered = send_until_killed(recorded, clients, count, f"kill {number}", signal.SIGKILL)
            titles = {listed.title for listed in asyncio.run(list_recorded(file))}
            assert len(answered - titles) <= MAX_UNWRITTEN + clients
        with run_recording(url, file, tmp_path) as recorded:  # closes the recordings of the killed ones
            answered = send_until_killed(recorded, clients, count // 4, "stop", signal.SIGINT)
            recorded.process.wait(60)
    listed = asyncio.run(list_recorded(file))
    assert answered <= {each.title for each in listed}
    assert {each.link.status for each in listed} <= {"completed", "failed", "incomplete"}
    assert convo("store", "check", "--store", f"sqlite:{file}").exit == 0
