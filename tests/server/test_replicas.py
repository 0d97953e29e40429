"""Two replicas on one PostgreSQL database, when a replica is killed or the database restarts.

Half of the clients continue a chain, half a conversation; each turn goes to the other replica than the
previous one. Every confirmed turn is stored afterwards, once and in order.
"""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests import databases
from tests.cli.serve_process import ServeProcess, config_flags, run_serve
from tests.server.chat_clients import ChatClient, ConfirmedTurns, conversation_items, list_all, user_messages

pytestmark = [pytest.mark.needs("postgresql"), pytest.mark.needs("linux")]

SIZES = [pytest.param(4, 8, id="small"), pytest.param(16, 60, id="full", marks=pytest.mark.full)]
SCRIPT = {"replies": [{"text": "A slow and steady answer to everything."}], "chunk": 4, "delay_s": 0.01}


@contextmanager
def replicas(folder: Path, url: str, count: int = 2) -> Iterator[list[ServeProcess]]:
    script = folder / "slow.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    settings = config_flags(folder, f'[aliases]\nslow = "scripted/{script}"\n')
    with ExitStack() as stack:
        yield [stack.enter_context(run_serve("--store", url, before=settings)) for _ in range(count)]


def new_records(count: int) -> list[ConfirmedTurns]:
    return [ConfirmedTurns(f"client {n}", conversation="" if n % 2 else None) for n in range(count)]


async def run_clients(
    records: Sequence[ConfirmedTurns], urls: Sequence[str], turns: int, halfway: Callable[[], object]
) -> None:
    """Run all clients; call `halfway` when half of all turns are confirmed, and end when as many are after it."""
    half, confirmed, done = len(records) * turns // 2, 0, asyncio.Event()

    def on_confirmed() -> None:
        nonlocal confirmed
        confirmed += 1

    async def wait_for_confirmed(count: int) -> None:
        while confirmed < count:  # noqa: ASYNC110 - the clients have no event for it
            await asyncio.sleep(0.005)

    async def run_halfway() -> None:
        await wait_for_confirmed(half)
        await asyncio.to_thread(halfway)
        await wait_for_confirmed(confirmed + half)
        done.set()

    await asyncio.gather(
        run_halfway(), *(ChatClient(record, urls, on_confirmed).chat_until(done) for record in records)
    )


def restart_database(postgres: databases.Server, url: str) -> None:
    """Stop the database until a replica reports that it is not ready, check its error, and start the database again."""
    postgres.stop()
    with httpx2.Client(base_url=url, timeout=30, trust_env=False) as http:
        while http.get("/readyz").status_code != 503:
            pass
        response = http.post("/v1/responses", json={"model": "slow", "input": "Is anybody there?"})
    postgres.start()
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "server_error"
    assert str(postgres.folder) not in response.text


async def check_stored_turns(records: Sequence[ConfirmedTurns], url: str) -> None:
    """Check that every confirmed turn is stored once, in order, with its answer."""
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
        for record in records:
            if record.conversation is not None:
                items = await conversation_items(http, url, record.conversation)
                roles = [item["role"] for item in items]
                assert roles == ["user", "assistant"] * len(record.confirmed)
                assert user_messages(items) == record.texts
                continue
            items = await list_all(http, f"{url}/v1/responses/{record.last}/input_items")
            assert user_messages(items) == record.texts
            for _, response_id in record.confirmed:
                got = (await http.get(f"{url}/v1/responses/{response_id}")).json()
                assert got["status"] == "completed"
                assert got["output"][0]["content"][0]["text"] == SCRIPT["replies"][0]["text"]  # type: ignore[index]


@pytest.mark.parametrize(("clients", "turns"), SIZES)
async def test_no_confirmed_turn_is_lost_or_duplicated_when_a_replica_is_killed_during_a_stream(
    clients: int, turns: int, tmp_path: Path
) -> None:
    url, records = databases.new_database(), new_records(clients)
    with replicas(tmp_path, url) as (one, other):
        urls = [str(one.http.base_url).rstrip("/"), str(other.http.base_url).rstrip("/")]
        await run_clients(records, urls, turns, lambda: one.stop(signal.SIGKILL))
        assert sum(record.faults for record in records) > 0
        await check_stored_turns(records, urls[1])


@pytest.mark.parametrize(("clients", "turns"), SIZES)
async def test_no_turn_is_lost_when_the_database_restarts(clients: int, turns: int, tmp_path: Path) -> None:
    records = new_records(clients)
    with databases.start_server() as postgres, replicas(tmp_path, postgres.url()) as (one, other):
        urls = [str(server.http.base_url).rstrip("/") for server in (one, other)]
        await run_clients(records, urls, turns, lambda: restart_database(postgres, urls[0]))
        await check_stored_turns(records, urls[0])
        assert sum(record.faults for record in records) > 0
        afterwards = [ConfirmedTurns("afterwards")]
        await run_clients(afterwards, urls, 4, lambda: None)
        assert afterwards[0].faults == 0
