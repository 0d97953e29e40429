"""The storage cost of a long chat under each owner, compared with a full copy for every response.

    python -m tests.bench.storage [TURNS ...]

Each chat has turns of 1 KB and 1 KB, stored as the engine stores them, with the embedded endpoint
under conversation and chain. An append is one durable commit (synchronous FULL), the median of the
last hundred turns. A read is the whole path, from a newly opened connection. The floor is one table
with a row for each response that contains its whole input and output; it is run up to 1,000 turns.
"""

import asyncio
import json
import resource
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path as File
from tempfile import TemporaryDirectory

from convo.history.items import Item
from convo.history.records import Strategy
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import json_bytes, long_chat
from tests.stores.sqlite.file_size import measure_file

LAST = 100
FLOOR = "full copy"
LONGEST_COPY = 1000
"""Above this number of turns the floor is omitted: 5,000 of them would write 29 GB."""

HEAD = "owner         turns   new KB   file KB  x new  index   B/turn  append us  read ms    MB"


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the table, in bytes, except where the name has another unit."""

    owner: str
    turns: int
    new: int
    file: int
    histories: int
    append_us: float
    read_ms: float
    peak_mb: float

    def __str__(self) -> str:
        return (
            f"{self.owner:<13}{self.turns:>6}{self.new / 1e3:>9,.0f}{self.file / 1e3:>10,.0f}"
            f"{self.histories / self.new:>7.2f}{(self.file - self.histories) / self.new:>7.2f}"
            f"{self.histories / self.turns:>9,.0f}{self.append_us:>11,.0f}{self.read_ms:>9.1f}{self.peak_mb:>6.0f}"
        )


def measure_s(function: Callable[[], object]) -> float:
    """Return the seconds that `function` takes."""
    started_at = time.perf_counter()
    function()
    return time.perf_counter() - started_at


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure_storage(strategy: Strategy, turns: int, file: File) -> Cost:
    """Measure a chat in the store."""
    store = SqliteStore(SqliteDatabase(file))
    new, seconds = 0, []
    for turn in long_chat(strategy, turns):
        new += json_bytes(turn.new)
        for change in turn.changes:
            started_at = time.perf_counter()
            await store.commit(change)
            seconds.append(time.perf_counter() - started_at)
    await store.aclose()
    again = SqliteStore(SqliteDatabase(file))
    record = await again.session("one")
    assert record is not None
    started_at = time.perf_counter()
    assert len(await again.path(record.head)) == 2 * turns
    read_s = time.perf_counter() - started_at
    await again.aclose()
    last = statistics.median(seconds[-LAST * len(turn.changes) :])
    size = measure_file(file)
    return Cost(strategy, turns, new, size.file, size.histories, last * 1e6, read_s * 1e3, peak_mb())


def copied(turns: int, file: File) -> Cost:
    """Measure the same chat in one table, with a full copy for every response."""
    new, seconds, history = 0, [], list[Item]()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE responses (id, body)")
        for number, turn in enumerate(long_chat(Strategy.CHAIN, turns)):
            new += json_bytes(turn.new)
            history += turn.new
            row = (number, json.dumps(history))
            seconds.append(measure_s(lambda row=row: db.execute("INSERT INTO responses VALUES (?, ?)", row)))  # type: ignore[misc]
        query = "SELECT body FROM responses ORDER BY rowid DESC LIMIT 1"
        read_s = measure_s(lambda: json.loads(db.execute(query).fetchone()[0]))
    size = file.stat().st_size
    return Cost(FLOOR, turns, new, size, size, statistics.median(seconds[-LAST:]) * 1e6, read_s * 1e3, peak_mb())


def measure(owner: str, turns: int) -> Cost:
    with TemporaryDirectory() as folder:
        file = File(folder) / "convo.db"
        return copied(turns, file) if owner == FLOOR else asyncio.run(measure_storage(Strategy(owner), turns, file))


def main(*lengths: int) -> None:
    print(HEAD)
    for turns in lengths:
        for owner in (*Strategy, *([FLOOR] if turns <= LONGEST_COPY else [])):
            with get_context("spawn").Pool(1) as process:  # a process for each, so that its memory is its own
                print(process.apply(measure, (str(owner), turns)), flush=True)


if __name__ == "__main__":
    main(*(int(length) for length in sys.argv[1:] or ("1000", "5000")))
