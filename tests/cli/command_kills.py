"""Kill commands at moments spread over their whole duration, and check the store after each kill.

kills = Kills("seed", 40)
kills.measure("race", "hello")            # the duration of the command when it is not killed
lines = kills.kill("race", "hello")       # SIGKILL at the next moment; the complete lines of its stdout
"""

import asyncio
import os
import random
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import Item
from convo.history.records import Link, Session
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.command_runner import Convo
from tests.fork_server import ConvoProcess, run_convo

SQLITE, POSTGRESQL = "sqlite", "postgresql"


def store_params(cases: Iterable[Any], *, few: bool = False) -> list[Any]:
    """Return parameters (case, store): each case with each of the two stores.

    few:  a default test run has the first case on SQLite and the second on PostgreSQL, a full test run all
    """
    params = []
    for index, case in enumerate(cases):
        for number, store in enumerate((SQLITE, POSTGRESQL)):
            marks = [pytest.mark.needs("postgresql")] if store == POSTGRESQL else []
            if few and index != number:
                marks.append(pytest.mark.full)
            params.append(pytest.param(case, store, marks=marks, id=f"{case}-{store}"))
    return params


PAST_THE_END = 1.1
"""The range of moments, as a multiple of the measured duration; above 1 because the duration varies between runs."""


class Kills:
    """Kills commands. The moments are fractions of the measured duration and depend only on the seed.

    times:     the number of kills; each has its own equal part of the range
    earliest:  the start of the range, as a fraction of the duration
    killed:    the number of processes that a kill ended; the others had already ended
    """

    def __init__(self, seed: str, times: int, earliest: float = 0.0) -> None:
        rng = random.Random(seed)
        parts = [(index + rng.random()) / times for index in range(times)]
        rng.shuffle(parts)
        self._parts = iter(parts)
        self._earliest = earliest
        self.killed = 0
        self.duration_s = 0.0

    def measure(self, *argv: str) -> str:
        """Run a command to its end and measure its duration; return its stdout."""
        run_convo(["--version"])  # the first command of a test run also waits for imports
        start = time.monotonic()
        done = run_convo(argv)
        self.duration_s = time.monotonic() - start
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill(self, *argv: str) -> list[str]:
        """Kill a command at the next moment; return the complete lines of its stdout."""
        with ConvoProcess(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            part = self._earliest + next(self._parts) * (PAST_THE_END - self._earliest)
            time.sleep(part * self.duration_s)
            child.kill()
            output, _ = child.communicate()
        self.killed += child.returncode == -9
        return [line for line in output.splitlines(keepends=True) if line.endswith("\n")]


async def _sessions(store: Store) -> dict[str, tuple[Session, list[Item], list[Link]]]:
    return {
        one.name: (one, list((await store.path(one.head)).items), list(await store.links(one.id)))
        for one in await store.sessions()
    }


def stored_sessions(url: str) -> dict[str, tuple[Session, list[Item], list[Link]]]:
    """Return each session by its name, most recently used first: its record, the items of its history, its links."""

    async def read() -> dict[str, tuple[Session, list[Item], list[Link]]]:
        store = open_store(url)
        try:
            return await _sessions(store)
        finally:
            await store.aclose()

    return asyncio.run(read())


def conversation_sizes(url: str) -> list[int]:
    """Return the number of items in each conversation of the embedded endpoint."""

    async def read() -> list[int]:
        store = open_store(url)
        try:
            conversations = [await store.conversation(one.id) for one in await store.find_handles("conv_", limit=1000)]
            return [len(one.item_ids) for one in conversations if one]
        finally:
            await store.aclose()

    return asyncio.run(read())


def check_store(convo: Convo) -> None:
    """Assert that `convo store check` reports no problem, or exits with 5: there is no store yet."""
    got = convo("store", "check", "--json")
    assert got.exit in (0, 5), got.out
    assert got.exit == 5 or got.json()["ok"], got.out


def temporary_files(*folders: Path) -> list[str]:
    """Return the names of the temporary files and folders of convo in these folders."""
    return [name for folder in folders for name in os.listdir(folder) if name.startswith((".convo-", "convo-"))]
