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

FEW = 2
SIZES = [
    pytest.param(1, FEW, id="one-small"),
    pytest.param(2, FEW, id="two-small"),
    pytest.param(1, 20, id="one-full", marks=pytest.mark.full),
    pytest.param(2, 40, id="two-full", marks=pytest.mark.full),
]


class Fleet:
    """Replicas at fixed ports on one database; a killed replica is started again."""

    def __init__(self, folder: Path, url: str, running: ExitStack) -> None:
        script = folder / "slow.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        self._settings = config_flags(folder, f'[aliases]\nslow = "scripted/{script}"\n')
        self._url, self._running = url, running
        self.servers: dict[int, ServeProcess] = {}

    def start(self, port: int) -> None:
        one = run_serve("--port", str(port), "--store", self._url, before=self._settings)
        self.servers[port] = self._running.enter_context(one)

    def kill(self, port: int) -> None:
        """Kill a server with SIGKILL, and start it again."""
        assert self.servers[port].stop(signal.SIGKILL) == -signal.SIGKILL
        self.start(port)


@contextmanager
def fleet(folder: Path, url: str, count: int) -> Iterator[Fleet]:
    with ExitStack() as running:
        made = Fleet(folder, url, running)
        for port in free_ports(count):
            made.start(port)
        yield made


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, outside the range of ephemeral ports."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free port")


@dataclass
class Background:
    """A client of background runs.

    begun:  the ids that a server confirmed
    ended:  the final status of each run that the client saw end
    """

    begun: list[str] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)

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
                    self.begun.append(got.json()["id"])
                    await self.look(http, url, self.begun[-1])
                except httpx2.TransportError:
                    pass
                await asyncio.sleep(RETRY_S)

    async def look(self, http: httpx2.AsyncClient, url: str, response_id: str) -> bool:
        """Return whether a run has ended, and check that a final status never changes."""
        got = await http.get(f"{url}/v1/responses/{response_id}")
        assert got.status_code == 200, got.text
        status = got.json()["status"]
        if status in ("queued", "in_progress"):
            assert response_id not in self.ended
            return False
        assert self.ended.setdefault(response_id, status) == status
        if status == "completed":
            assert got.json()["output"][0]["content"][0]["text"] == ANSWER
        return True

    async def settle(self, http: httpx2.AsyncClient, url: str, limit_s: float) -> None:
        """Wait until every run has ended. Raises AssertionError after `limit_s` seconds."""
        until = time.monotonic() + limit_s
        for response_id in self.begun:
            while not await self.look(http, url, response_id):
                assert time.monotonic() < until, f"{response_id} is still running"
                await asyncio.sleep(RETRY_S)


async def talk_while_killed(held: Sequence[ConfirmedTurns], background: Background, servers: Fleet, kills: int) -> None:
    """Run all clients until `kills` servers were killed, each at a random moment."""
    urls = [f"http://127.0.0.1:{port}" for port in servers.servers]
    dice, done = random.Random(f"servers {len(urls)} {kills}"), asyncio.Event()

    async def killer() -> None:
        try:
            for number in range(kills):
                await asyncio.sleep(dice.uniform(0.05, 0.4))
                await asyncio.to_thread(servers.kill, list(servers.servers)[number % len(urls)])
        finally:
            done.set()

    await asyncio.gather(
        killer(),
        background.run(urls, done),
        *(ChatClient(account, urls, lambda: None).chat_until(done) for account in held),
    )


@pytest.mark.parametrize(("replicas", "kills"), SIZES)
async def test_killed_servers_lose_and_duplicate_no_confirmed_turn(replicas: int, kills: int, tmp_path: Path) -> None:
    url = databases.new_database()
    held = [ConfirmedTurns(f"client {n}", conversation="" if n % 2 else None) for n in range(4)]
    background = Background()
    with fleet(tmp_path, url, replicas) as servers:
        await talk_while_killed(held, background, servers, kills)
        base = f"http://127.0.0.1:{next(iter(servers.servers))}"
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            await check(http, base, held)
            if kills > FEW:  # takes as long as a lease
                await background.settle(http, base, LEASE_S + 2 * SWEEP_S)
    checked = await asyncio.to_thread(run_convo, ["store", "check", "--store", url, "--json"])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    confirmed = sum(len(account.confirmed) for account in held)
    ended = list(background.ended.values())
    print(
        f"serve, {replicas} replicas: {kills} killed, {confirmed} turns confirmed,"
        f" {sum(account.faults for account in held)} faults, background: {len(ended)} confirmed,"
        f" {ended.count('completed')} completed, {ended.count('failed')} failed"
    )
    assert confirmed
    assert max(account.locked_s for account in held) < LOCK_S
    databases.drop(url)


async def check(http: httpx2.AsyncClient, base: str, held: Sequence[ConfirmedTurns]) -> None:
    """Check that every confirmed turn is stored once, in order, and that each client can send another turn at once."""
    for account in held:
        if account.conversation:
            assert user_messages(await conversation_items(http, base, account.conversation)) == account.words
            state = {"conversation": account.conversation}
        else:
            items = await list_all(http, f"{base}/v1/responses/{account.last}/input_items")
            assert user_messages(items) == account.words
            for _, response_id in account.confirmed:
                got = (await http.get(f"{base}/v1/responses/{response_id}")).json()
                assert (got["status"], got["output"][0]["content"][0]["text"]) == ("completed", ANSWER)
            state = {"previous_response_id": str(account.last)}
        got = await http.post(f"{base}/v1/responses", json={"model": "slow", "input": "one more", **state})
        assert got.status_code == 200, got.text
