"""PostgreSQL storage grows with new items only, and a long path is read by index."""

import json

import psycopg
import pytest

from convo.history.items import user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Transaction
from convo.stores.postgres import tree
from convo.stores.postgres.store import PostgresStore
from convo.stores.postgres.tenant_rows import Statement, TenantConnection, run_pipeline
from tests.stores.chat_transactions import json_bytes, long_chat, session

pytestmark = pytest.mark.needs("postgresql")

ROOT = root_key("local")
MAX_RATIO = 1.6
"""Maximum bytes in tables and indexes for each byte of new items, without the search index."""

TOTAL_BYTES = """
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relnamespace = 'convo'::regnamespace AND relkind = 'r' AND relname <> 'words'
"""


def stored_bytes(url: str) -> int:
    """Return the bytes of tables and indexes after VACUUM, which autovacuum otherwise runs each minute."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM")
        row = db.execute(TOTAL_BYTES).fetchone()
    assert row is not None
    return int(row[0])


async def growth_ratio(postgres: PostgresStore, url: str, strategy: Strategy, turns: int) -> float:
    """Return the stored bytes per byte of new items.

    The first tenth of the turns is not counted, because empty tables take space too.
    """
    new_bytes = bytes_before = 0
    for number, turn in enumerate(long_chat(strategy, turns)):
        if number == turns // 10:
            new_bytes, bytes_before = 0, stored_bytes(url)
        for change in turn.changes:
            await postgres.commit(change)
        new_bytes += json_bytes(turn.new)
    return (stored_bytes(url) - bytes_before) / new_bytes


async def test_turns_take_at_most_1_6_times_the_bytes_of_their_new_items(postgres: PostgresStore, url: str) -> None:
    assert await growth_ratio(postgres, url, Strategy.SESSION, 250) <= MAX_RATIO


@pytest.mark.full
@pytest.mark.parametrize("strategy", Strategy)
async def test_a_thousand_turns_of_any_strategy_take_no_more(
    postgres: PostgresStore, url: str, strategy: Strategy
) -> None:
    assert await growth_ratio(postgres, url, strategy, 1000) <= MAX_RATIO


async def test_a_resent_history_takes_no_space(postgres: PostgresStore, url: str) -> None:
    path = Path(ROOT).append(item for turn in long_chat(Strategy.SESSION, 30) for item in turn.new)
    transaction = Transaction((AppendItems(ROOT, path.items),), session=session(head=path.head))
    await postgres.commit(transaction)
    with psycopg.connect(url) as db:
        count = "SELECT (SELECT count(*) FROM convo.nodes), (SELECT count(*) FROM convo.items)"
        before = db.execute(count).fetchall()
    for _ in range(5):
        await postgres.commit(transaction)

    with psycopg.connect(url) as db:
        assert db.execute(count).fetchall() == before == [(61, 60)]


async def test_a_long_path_is_read_by_index_before_any_analyze(
    postgres: PostgresStore,
) -> None:
    path = Path(ROOT).append(user_message(f"number {number}") for number in range(2000))
    await postgres.commit(Transaction((AppendItems(ROOT, path.items),), session=session(head=path.head)))
    assert await postgres.path(path.head) == path

    async def explain(t: TenantConnection) -> str:
        key = bytes.fromhex(path.head)
        values = key[:16].hex(), key[16:].hex(), None
        (rows,) = await run_pipeline(
            t.db, Statement(f"EXPLAIN (FORMAT JSON) {tree.SELECT_PATH}", (t.tenant_number, *values))
        )
        return json.dumps(rows)

    async with postgres.database.pooled_connection() as db:
        plan = await explain(TenantConnection.from_name(db, "local"))
    assert "Index Scan" in plan
    assert "Seq Scan" not in plan
    assert "Hash Join" not in plan
