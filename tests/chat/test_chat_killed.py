"""kill -9 at random moments of a chat: the store opens, no confirmed item is lost, and no item is stored twice."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from convo.history.items import is_user_message, item_text
from convo.history.records import Strategy
from convo.stores.factory import open_store
from tests.chat.chat_process import NAME
from tests.command_runner import ROOT
from tests.fork_server import ConvoProcess

MAX_LIFETIME_S = 0.08


def run_and_kill(database: Path, strategy: Strategy, file: Path, lifetime_s: float) -> list[str]:
    """Start a chat process and kill it `lifetime_s` seconds after it is ready; returns the link ids that it printed."""
    arguments, pipe = [str(database), strategy, str(file)], subprocess.PIPE
    with ConvoProcess(arguments, module="tests.chat.chat_process", stdout=pipe, stderr=pipe, cwd=ROOT) as child:
        assert child.stdout
        if child.stdout.readline() != "ready\n":
            pytest.fail(f"it could not go on: {child.communicate()[1]}")
        time.sleep(lifetime_s)
        os.kill(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
    return [line for line in output.splitlines(keepends=True) if line.endswith("\n")]


def read_text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def check_store(database: Path, confirmed: list[str]) -> int:
    """Assert the invariants after a kill; returns the number of items of the conversation."""
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) - count(DISTINCT body) FROM items").fetchone() == (0,)
    connection.close()
    store = open_store(f"sqlite:{database}")
    try:
        session = await store.session(NAME)
        if session is None:
            assert not confirmed
            return 0
        path = await store.path(session.head)
        for link_id in confirmed:
            link = await store.link(link_id)
            assert link
            assert link.status == "completed"
            assert path.contains(link.head)
        messages = [item_text(item) for item in path.items if is_user_message(item)]
        assert len(messages) == len(set(messages))
        return len(path)
    finally:
        await store.aclose()


async def kill_repeatedly(times: int, strategy: Strategy, folder: Path) -> tuple[int, int]:
    """Kill one conversation `times` times; returns the number of confirmed links and the number of items."""
    database, file = folder / "convo.db", folder / "talk.json"
    confirmed: list[str] = []
    items, rng = 0, random.Random(f"{strategy}{times}")
    for _ in range(times):
        confirmed += [line.strip() for line in run_and_kill(database, strategy, file, rng.uniform(0, MAX_LIFETIME_S))]
        assert isinstance(json.loads(read_text(file) or "[]"), list)
        count = await check_store(database, confirmed)
        assert count >= items
        items = count
    return len(confirmed), items


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_killed_chat_continues_from_its_stored_state(strategy: Strategy, tmp_path: Path) -> None:
    confirmed, items = await kill_repeatedly(3, strategy, tmp_path)
    assert items >= 2 * confirmed


@pytest.mark.full
@pytest.mark.parametrize("strategy", Strategy)
async def test_a_chat_killed_fifty_times_continues_from_its_stored_state(strategy: Strategy, tmp_path: Path) -> None:
    confirmed, items = await kill_repeatedly(50, strategy, tmp_path)
    print(f"{strategy}: {confirmed} confirmed links, {items} items")
    assert confirmed
    assert items >= 2 * confirmed
