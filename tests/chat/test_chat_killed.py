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

LONGEST_LIFE_S = 0.08


def live_and_die(database: Path, strategy: Strategy, file: Path, life_s: float) -> list[str]:
    """Start a chat process and kill it `life_s` seconds after it is ready; returns the ids of links that it printed."""
    words, pipe = [str(database), strategy, str(file)], subprocess.PIPE
    with ConvoProcess(words, module="tests.chat.chat_process", stdout=pipe, stderr=pipe, cwd=ROOT) as child:
        assert child.stdout
        if child.stdout.readline() != "ready\n":
            pytest.fail(f"it could not go on: {child.communicate()[1]}")
        time.sleep(life_s)
        os.kill(child.pid, signal.SIGKILL)
        said, _ = child.communicate()
    return [line for line in said.splitlines(keepends=True) if line.endswith("\n")]


def read_text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def check(database: Path, confirmed: list[str]) -> int:
    """Assert the invariants after a kill; returns the number of items of the conversation."""
    with sqlite3.connect(database) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert raw.execute("SELECT count(*) - count(DISTINCT body) FROM items").fetchone() == (0,)
    raw.close()
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
        questions = [item_text(item) for item in path.items if is_user_message(item)]
        assert len(questions) == len(set(questions))
        return len(path)
    finally:
        await store.aclose()


async def killed(times: int, strategy: Strategy, folder: Path) -> tuple[int, int]:
    """Kill one conversation `times` times; returns the number of confirmed links and the number of items."""
    database, file = folder / "convo.db", folder / "talk.json"
    confirmed: list[str] = []
    items, moments = 0, random.Random(f"{strategy}{times}")
    for _ in range(times):
        confirmed += [
            line.strip() for line in live_and_die(database, strategy, file, moments.uniform(0, LONGEST_LIFE_S))
        ]
        assert isinstance(json.loads(read_text(file) or "[]"), list)
        now = await check(database, confirmed)
        assert now >= items
        items = now
    return len(confirmed), items


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_killed_chat_continues_from_its_stored_state(strategy: Strategy, tmp_path: Path) -> None:
    confirmed, items = await killed(3, strategy, tmp_path)
    assert items >= 2 * confirmed


@pytest.mark.full
@pytest.mark.parametrize("strategy", Strategy)
async def test_a_chat_killed_fifty_times_continues_from_its_stored_state(strategy: Strategy, tmp_path: Path) -> None:
    confirmed, items = await killed(50, strategy, tmp_path)
    print(f"{strategy}: {confirmed} confirmed links, {items} items")
    assert confirmed
    assert items >= 2 * confirmed
