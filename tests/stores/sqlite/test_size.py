"""The SQLite file grows with new items, not with items that are sent again."""

from pathlib import Path as File
from random import Random

import pytest

from convo.history.records import Strategy
from convo.stores.base import AppendItems, Transaction
from convo.stores.sqlite.connection import PAGE_SIZE_BYTES, SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import json_bytes, long_chat, prose, session
from tests.stores.sqlite.file_size import measure_file
from tests.stores.test_agent_runs import RUN

MAX_RATIO = 1.6
"""Maximum bytes on disk for each byte of new items, without the search index."""


@pytest.mark.parametrize(
    "strategy",
    [
        *(Strategy.SESSION, Strategy.CHAIN),
        pytest.param(Strategy.REPLAY, marks=pytest.mark.full(every_commit=True)),
        pytest.param(Strategy.CONVERSATION, marks=pytest.mark.full(every_commit=True)),
    ],
)
async def test_a_thousand_turns_take_at_most_1_6_times_the_bytes_of_their_new_items(
    file: File, strategy: Strategy
) -> None:
    """Each turn has a message and an answer of 1 KB. The size does not depend on fsync, which is off."""
    store = SqliteStore(SqliteDatabase(file, synchronous="OFF"))
    new_bytes = 0
    for turn in long_chat(strategy, 1000):
        new_bytes += json_bytes(turn.new)
        for change in turn.changes:
            await store.commit(change)
    await store.aclose()

    assert measure_file(file).histories <= MAX_RATIO * new_bytes


async def test_a_resent_history_takes_no_space(file: File) -> None:
    store = SqliteStore(SqliteDatabase(file, synchronous="OFF"))
    turns = list(long_chat(Strategy.SESSION, 20))
    for turn in turns:
        await store.commit(turn.changes[0])
        await store.commit(turn.changes[1])
    before = await row_counts(store)
    head = turns[0].changes[0].appends[0].after
    items = tuple(item for turn in turns for item in turn.new)
    for _ in range(10):
        await store.commit(Transaction((AppendItems(head, items),)))

    assert await row_counts(store) == before
    await store.aclose()


async def test_rewriting_a_run_each_turn_takes_the_space_of_its_last_turn(file: File) -> None:
    store = SqliteStore(SqliteDatabase(file, synchronous="OFF"))
    await store.commit(Transaction(session=session()))
    for revision in range(1, 201):
        document = {"history": prose(Random(revision), 5000)}
        await store.commit(Transaction(agent_run=RUN._replace(revision=revision, document=document)))
        if revision == 1:
            await store.database.read(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
            first_size = size(file)
    log_size = size(file.with_name(f"{file.name}-wal"))
    await store.aclose()

    assert size(file) <= first_size + 2 * PAGE_SIZE_BYTES
    assert log_size < 10_000_000  # SQLite checkpoints the log after 1000 pages and then overwrites it


def size(file: File) -> int:
    return file.stat().st_size


async def row_counts(store: SqliteStore) -> list[int]:
    queries = [f"SELECT count(*) FROM {table}" for table in ("items", "hashes", "nodes", "links", "repeated")]
    return await store.database.read(lambda db: [db.execute(sql).fetchone()[0] for sql in queries])
