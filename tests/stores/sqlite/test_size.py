"""Storage grows with what is new, never with how often it is sent again."""

from pathlib import Path as File

import pytest

from convo.history import Strategy
from convo.stores.contract import Change, Growth
from convo.stores.sqlite import SqliteStore
from convo.stores.sqlite.database import Database
from tests.stores.chats import json_bytes, long_chat
from tests.stores.sqlite.measuring import stored

MOST = 1.6
"""Bytes on disk for each byte of new items, the search index apart."""


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_thousand_turns_cost_at_most_1_6_times_what_is_new_in_them(file: File, strategy: Strategy) -> None:
    """Turns of 1 KB and 1 KB. Without fsync, which changes no byte."""
    store = SqliteStore(Database(file, synchronous="OFF"))
    new = 0
    for turn in long_chat(strategy, 1000):
        new += json_bytes(turn.new)
        for change in turn.changes:
            await store.commit(change)
    await store.aclose()

    assert stored(file).histories <= MOST * new


async def test_a_history_that_is_sent_again_costs_nothing(file: File) -> None:
    store = SqliteStore(Database(file, synchronous="OFF"))
    turns = list(long_chat(Strategy.SESSION, 20))
    for turn in turns:
        await store.commit(turn.changes[0])
        await store.commit(turn.changes[1])
    before = await rows(store)
    grown = turns[0].changes[0].grow[0].after
    everything = tuple(item for turn in turns for item in turn.new)
    for _ in range(10):
        await store.commit(Change((Growth(grown, everything),)))

    assert await rows(store) == before
    await store.aclose()


async def rows(store: SqliteStore) -> list[int]:
    ask = [f"SELECT count(*) FROM {table}" for table in ("items", "hashes", "nodes", "links", "repeated")]
    return await store.database.read(lambda db: [db.execute(sql).fetchone()[0] for sql in ask])
