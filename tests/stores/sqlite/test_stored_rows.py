"""The rows of a small store. They are the file format: changing them needs a migration."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from convo.stores.base import TenantStats
from convo.stores.factory import open_store
from tests.stores.chat_transactions import NOW
from tests.stores.sample_store import fill_store

RECORD = '["session","local/model",1700000000.0,"embedded",null,null,null,null]'
ROUTE = '["local/model","session","embedded",null,null,"conv_1",true,{"input_tokens":0}]'

DECISION = (
    '{"call_id":"call_1","agent":"a","tool":"look","arguments":"{}","approv'
    'ed":true,"decided_by":null,"source":"command","always":false,"reason":null}'
)

LISTED = [("local/model", None, tokens, 0, 0, 0, 0, None, None) for tokens in (2, 3)]

ROWS: dict[str, list[tuple[object, ...]]] = {
    "agent_calls": [
        (1, 1, 1, 'call_1', 1700000000.0, '"done"'),
    ],
    "agent_documents": [
        (1, 1, '{"version":1,"agent":"a","phase":"X"}'),
    ],
    "agent_runs": [
        (1, 1, 'run_1', 2, 1, 'paused', None, 1700000000.0, 1700000000.0),
    ],
    "approval_decisions": [
        (1, 1, 1, 1700000000.0, DECISION),
    ],
    "conversations": [
        (1, 1, 'conv_1', 4, 3, 1700000000.0, '{"topic":"x"}'),
    ],
    "events": [
        (1, 1, 0, '{"sequence_number":0,"type":"x"}'),
        (1, 2, 0, '{"sequence_number":0,"type":"x"}'),
    ],
    "hashes": [
        (1, '0631f367ca0e8e800571ab5a6488d1a9', 1),
        (1, '271f4b6c3da2140a89d506eb0d1869dc', 2),
        (1, '2a5d402f6e9c0381535eb53eac1999bf', 3),
    ],
    "items": [
        (1, 1, '{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}'),
        (1, 2, '{"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}'),
        (1, 3, '{"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}'),
    ],
    "links": [
        (1, 1, 'resp_2', None, 1, 2, 3, 1, 2, 'completed', NOW + 2, None, None, None, 1, '2', None, None, *LISTED[0]),
        (1, 2, 'resp_3', 1, 2, 3, 4, 1, 2, 'completed', NOW + 3, None, None, None, 1, '3', None, None, *LISTED[1]),
    ],
    "members": [
        (1, 1, 2, 'a'),
        (1, 1, 3, 'b'),
        (1, 1, 4, 'c'),
    ],
    "names": [
        (1, -1451877441, 1),
        (1, 1028306411, 2),
        (1, 1303802413, 2),
        (1, 1832335537, 3),
    ],
    "nodes": [
        (1, 1, None, None, '068d08196341b65c362ace172837c8fc174e74f9cb30b1a7475d2122d51e1870', None),
        (1, 2, 1, 1, 'd1b1ca45ff165e2dd38bb4925b49b0605d6f946f870ea800fbe8a22a55da8ca4', None),
        (1, 3, 2, 2, 'a8603defad91f92866c0c1a34fbc91c5e8e385e0a6aabbb2634ea046fb3191f1', None),
        (1, 4, 3, 3, '82a8659a1160ff2068c7568f4c60e93cf581f99b7a423a2405da28614be6c0a6', None),
    ],
    "repeated": [
        (1, 1, 'fde83854b1b18c74c455caefe0d49b5e6d4585f1ba97ab386fb85ac2a30f1924', '{"instructions":"Be brief."}'),
        (1, 2, '6a469fbd1f8f3a07c38e00e368808e764891d7d02aac4a46c6c9215e84e6d9a3', ROUTE),
    ],
    "request_sums": [
        (1, 944444, None, None),
    ],
    "runs": [
        (1, 1, None),
        (1, 2, None),
    ],
    "sessions": [
        (1, 1, 'ses_2', 'early', 3, 3, None, 1, 1700000000.0, 0, RECORD, 1),
        (1, 2, 'ses_3', 'late', 4, 4, None, 2, 1700000000.0, 0, RECORD, 2),
    ],
    "tenants": [
        (1, 'local'),
    ],
}  # fmt: skip
"""The rows of each table that has some, ordered by their columns; bytes as hex digits."""

TERMS = [("one", 1, 0), ("three", 3, 0), ("two", 2, 0)]
"""The search index: terms, items and positions."""


def test_every_column_of_a_small_store_has_its_value(tmp_path: Path) -> None:
    file = tmp_path / "convo.db"
    fill_store(f"sqlite:{file}")
    stored: dict[str, list[tuple[object, ...]]] = {}
    with closing(sqlite3.connect(file)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        for table in tables:
            if rows := [] if table.startswith("words") else db.execute(f"SELECT * FROM {table}").fetchall():
                stored[table] = [
                    tuple(value.hex() if isinstance(value, bytes) else value for value in row) for row in rows
                ]
                stored[table].sort(key=repr)
        db.execute("CREATE VIRTUAL TABLE temp.places USING fts5vocab(main, words, instance)")
        terms = db.execute('SELECT term, doc, "offset" FROM temp.places').fetchall()

    assert stored == ROWS
    assert terms == TERMS


async def test_the_size_of_a_tenant_is_that_of_its_texts_and_an_estimate_of_each_row(tmp_path: Path) -> None:
    file = tmp_path / "convo.db"
    await asyncio.to_thread(fill_store, f"sqlite:{file}")
    store = open_store(f"sqlite:{file}")
    (stats,) = await store.admin.tenant_stats()
    await store.aclose()

    counts = {
        "sessions": 2,
        "responses": 2,
        "conversations": 1,
        "items": 3,
        "places": 3,
        "events": 2,
        "runs": 1,
        "files": 0,
    }
    row_bytes = 2 * 150 + 2 * 120 + 80 + 3 * 8 + 3 * 45 + 2 * 8 + 120
    columns = {
        "items": 2,
        "repeated": 3,
        "events": 3,
        "agent_documents": 2,
        "agent_calls": 5,
        "approval_decisions": 4,
        "sessions": 10,
    }
    text_bytes = sum(len(str(row[column])) for table, column in columns.items() for row in ROWS[table])
    assert stats == TenantStats("local", counts, row_bytes + text_bytes, NOW, NOW + 3)
