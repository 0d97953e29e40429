"""`convo serve` on PostgreSQL, as one server or two replicas, killed at random moments of streams and background runs.

A killed server is started again at its port. Clients repeat unconfirmed turns as the owner of the state
allows. At the end every confirmed turn is stored once, in order, every background run has ended, and no
conversation is locked.
"""

import asyncio
import itertools
import json
import random
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from tests import databases
from tests.cli.serve_process import ServeProcess, config_flags, run_serve
from tests.fork_server import run_convo
from tests.server.chat_clients import RETRY_S, ChatClient, ConfirmedTurns, conversation_items, list_all, user_messages

pytestmark = [pytest.mark.needs("postgresql"), pytest.mark.needs("linux")]

ANSWER = "A slow and steady answer to everything."
SCRIPT = {"replies": [{"text": ANSWER}], "chunk": 4, "delay_s": 0.01}
LOCK_S = 6.0
"""Seconds after which a conversation of a killed server is unlocked at the latest: its lease has expired."""

LEASE_S, SWEEP_S = 10.0, 4.0
"""In seconds. A background run of a killed server is marked failed by the first sweep after its lease expired."""

FEW_KILLS = 2
SIZES = [
    pytest.param(1, FEW_KILLS, id="one-small"),
    pytest.param(2, FEW_KILLS, id="two-small"),
    pytest.param(1, 20, id="one-full", marks=pytest.mark.full),
    pytest.param(2, 40, id="two-full", marks=pytest.mark.full),
]


class ServerGroup:
    """Replicas at fixed ports on one database; a killed replica is started again."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        script = folder / "slow.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        self._settings = config_flags(folder, f'[aliases]\nslow = "scripted/{script}"\n')
        self._url, self._stack = url, stack
        self.servers: dict[int, ServeProcess] = {}

    def start(self, port: int) -> None:
        process = run_serve("--port", str(port), "--store", self._url, before=self._settings)
        self.servers[port] = self._stack.enter_context(process)

    def kill(self, port: int) -> None:
        """Kill a server with SIGKILL, and start it again."""
        assert self.servers[port].stop(signal.SIGKILL) == -signal.SIGKILL
        self.start(port)


@contextmanager
def run_servers(folder: Path, url: str, count: int) -> Iterator[ServerGroup]:
    with ExitStack() as stack:
        group = ServerGroup(folder, url, stack)
        for port in free_ports(count):
            group.start(port)
        yield group


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, outside the range of ephemeral ports."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError("no free port")


@dataclass
class BackgroundClient:
    """A client of background runs.

    response_ids:  the ids that a server confirmed
    statuses:      the final status of each run that the client saw end
    """

    response_ids: list[str] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)

    async def run(self, urls: Sequence[str], done: asyncio.Event) -> None:
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            for number in itertools.count():
                if done.is_set():
                    return
                url = urls[number % len(urls)]
                try:
                    body = {"model": "slow", "input": f"run {number}", "background": True}
                    got = await http.post(f"{url}/v1/responses", json=body)
                    assert got.status_code == 200, got.text
                    self.response_ids.append(got.json()["id"])
                    await self.check_status(http, url, self.response_ids[-1])
                except httpx2.TransportError:
                    pass
                await asyncio.sleep(RETRY_S)

    async def check_status(self, http: httpx2.AsyncClient, url: str, response_id: str) -> bool:
        """Return whether a run has ended, and check that a final status never changes."""
        got = await http.get(f"{url}/v1/responses/{response_id}")
        assert got.status_code == 200, got.text
        status = got.json()["status"]
        if status in ("queued", "in_progress"):
            assert response_id not in self.statuses
            return False
        assert self.statuses.setdefault(response_id, status) == status
        if status == "completed":
            assert got.json()["output"][0]["content"][0]["text"] == ANSWER
        return True

    async def wait_for_all(self, http: httpx2.AsyncClient, url: str, limit_s: float) -> None:
        """Wait until every run has ended. Raises AssertionError after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        for response_id in self.response_ids:
            while not await self.check_status(http, url, response_id):
                assert time.monotonic() < deadline, f"{response_id} is still running"
                await asyncio.sleep(RETRY_S)


async def run_clients_while_killed(
    records: Sequence[ConfirmedTurns], background: BackgroundClient, servers: ServerGroup, kills: int
) -> None:
    """Run all clients until `kills` servers were killed, each at a random moment."""
    urls = [f"http://127.0.0.1:{port}" for port in servers.servers]
    rng, done = random.Random(f"servers {len(urls)} {kills}"), asyncio.Event()

    async def killer() -> None:
        try:
            for number in range(kills):
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                await asyncio.to_thread(servers.kill, list(servers.servers)[number % len(urls)])
        finally:
            done.set()

    await asyncio.gather(
        killer(),
        background.run(urls, done),
        *(ChatClient(record, urls, lambda: None).chat_until(done) for record in records),
    )


@pytest.mark.parametrize(("replicas", "kills"), SIZES)
async def test_killed_servers_lose_and_duplicate_no_confirmed_turn(replicas: int, kills: int, tmp_path: Path) -> None:
    url = databases.new_database()
    records = [ConfirmedTurns(f"client {n}", conversation="" if n % 2 else None) for n in range(4)]
    background = BackgroundClient()
    with run_servers(tmp_path, url, replicas) as servers:
        await run_clients_while_killed(records, background, servers, kills)
        base = f"http://127.0.0.1:{next(iter(servers.servers))}"
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            await check_stored_turns(http, base, records)
            if kills > FEW_KILLS:  # takes as long as a lease
                await background.wait_for_all(http, base, LEASE_S + 2 * SWEEP_S)
    result = await asyncio.to_thread(run_convo, ["store", "check", "--store", url, "--json"])
    assert result.returncode == 0, result.stdout + result.stderr
    confirmed = sum(len(record.confirmed) for record in records)
    statuses = list(background.statuses.values())
    print(
        f"serve, {replicas} replicas: {kills} killed, {confirmed} turns confirmed,"
        f" {sum(record.faults for record in records)} faults, background: {len(statuses)} confirmed,"
        f" {statuses.count('completed')} completed, {statuses.count('failed')} failed"
    )
    assert confirmed
    assert max(record.locked_s for record in records) < LOCK_S
    databases.drop(url)


async def check_stored_turns(http: httpx2.AsyncClient, base: str, records: Sequence[ConfirmedTurns]) -> None:
    """Check that every confirmed turn is stored once, in order, and that each client can send another turn at once."""
    for record in records:
        if record.conversation:
            assert user_messages(await conversation_items(http, base, record.conversation)) == record.texts
            state = {"conversation": record.conversation}
        else:
            items = await list_all(http, f"{base}/v1/responses/{record.last}/input_items")
            assert user_messages(items) == record.texts
            for _, response_id in record.confirmed:
                got = (await http.get(f"{base}/v1/responses/{response_id}")).json()
                assert (got["status"], got["output"][0]["content"][0]["text"]) == ("completed", ANSWER)
            state = {"previous_response_id": str(record.last)}
        got = await http.post(f"{base}/v1/responses", json={"model": "slow", "input": "one more", **state})
        assert got.status_code == 200, got.text
