"""The rows of a small store, and names and items as they are stored. Changing them needs a migration."""

import asyncio
import zlib

import psycopg
import pytest

from convo.errors import StoreUnavailable
from convo.history.canonical import item_hash
from convo.history.items import Item
from convo.history.tree import root_key
from convo.stores.base import TenantStats, Transaction
from convo.stores.codec import LISTED_COLUMNS
from convo.stores.factory import open_store
from convo.stores.postgres import tenant_rows
from tests import databases
from tests.stores.chat_transactions import NOW, session
from tests.stores.sample_store import fill_store

pytestmark = pytest.mark.needs("postgresql")

TENANT = 472042441076225628
RECORD = '["session","local/model",1700000000.0,"embedded",null,null,null,null]'
ROUTE = '["local/model","session","embedded",null,null,"conv_1",true,{"input_tokens":0}]'

ROOT, ROOT_REST = "068d0819-6341-b65c-362a-ce172837c8fc", "174e74f9-cb30-b1a7-475d-2122d51e1870"
NODE_1, REST_1 = "d1b1ca45-ff16-5e2d-d38b-b4925b49b060", "5d6f946f-870e-a800-fbe8-a22a55da8ca4"
NODE_2, REST_2 = "a8603def-ad91-f928-66c0-c1a34fbc91c5", "e8e385e0-a6aa-bbb2-634e-a046fb3191f1"
NODE_3, REST_3 = "82a8659a-1160-ff20-68c7-568f4c60e93c", "f581f99b-7a42-3a24-05da-28614be6c0a6"
ITEM_1, ITEM_2 = "0631f367-ca0e-8e80-0571-ab5a6488d1a9", "271f4b6c-3da2-140a-89d5-06eb0d1869dc"
ITEM_3 = "2a5d402f-6e9c-0381-535e-b53eac1999bf"
ROUTE_HASH, PARAMETERS_HASH = "6a469fbd-1f8f-3a07-c38e-00e368808e76", "fde83854-b1b1-8c74-c455-caefe0d49b5e"

DECISION = (
    '{"call_id":"call_1","agent":"a","tool":"look","arguments":"{}","approv'
    'ed":true,"decided_by":null,"source":"command","always":false,"reason":null}'
)

ROWS: dict[str, list[tuple[object, ...]]] = {
    "run, id, place, started_at, output FROM convo.agent_calls": [("run_1", "call_1", 1, 1700000000.0, '"done"')],
    "id, revision, created_at, changed_at, session, status, state, document FROM convo.agent_runs": [
        (
            "run_1", 1, 1700000000.0, 1700000000.0, "ses_3", "paused", None, b'{"version":1,"agent":"a","phase":"X"}',
        ),
    ],
    "run, place, decided_at, body FROM convo.approval_decisions": [("run_1", 1, 1700000000.0, DECISION)],
    "id, created_at, head, metadata FROM convo.conversations": [("conv_1", 1700000000.0, NODE_3, '{"topic":"x"}')],
    "run, last, many, body FROM convo.events": [
        ("resp_2", 0, 1, '[{"sequence_number":0,"type":"x"}]'),
        ("resp_3", 0, 1, '[{"sequence_number":0,"type":"x"}]'),
    ],
    "hash, named FROM convo.items": [(ITEM_1, None), (ITEM_2, None), (ITEM_3, None)],
    "name FROM convo.leases": [],
    "id, parent, session, created_at, saw, head, sent, route, parameters FROM convo.links": [
        ("resp_2", None, "ses_2", 1700000002.0, NODE_1, NODE_2, 1, ROUTE_HASH, PARAMETERS_HASH),
        ("resp_3", "resp_2", "ses_3", 1700000003.0, NODE_2, NODE_3, 1, ROUTE_HASH, PARAMETERS_HASH),
    ],
    "id, seconds, first_token_s, status, previous, usage, error FROM convo.links": [
        ("resp_2", None, None, "completed", None, "2", None),
        ("resp_3", None, None, "completed", None, "3", None),
    ],
    f"id, {', '.join(LISTED_COLUMNS)} FROM convo.links": [
        ("resp_2", "local/model", None, 2, 0, 0, 0, 0, None, None),
        ("resp_3", "local/model", None, 3, 0, 0, 0, 0, None, None),
    ],
    "id, named, node, conversation FROM convo.members": [
        ("a", -3848465438864589366, NODE_1, "conv_1"),
        ("b", 4477677635727087946, NODE_2, "conv_1"),
        ("c", 3349882092070664930, NODE_3, "conv_1"),
    ],
    "depth, id, rest, parent, item, erased FROM convo.nodes": [
        (0, ROOT, ROOT_REST, None, None, None),
        (1, NODE_1, REST_1, ROOT, ITEM_1, None),
        (2, NODE_2, REST_2, NODE_1, ITEM_2, None),
        (3, NODE_3, REST_3, NODE_2, ITEM_3, None),
    ],
    "session FROM convo.removed": [],
    "hash, body, conversation FROM convo.repeated": [
        (ROUTE_HASH, ROUTE, "conv_1"),
        (PARAMETERS_HASH, '{"instructions":"Be brief."}', None),
    ],
    "id, last, ended_at FROM convo.runs": [("resp_2", 0, None), ("resp_3", 0, None)],
    "id, used_at, head, mark, written, name, link, record, used FROM convo.sessions": [
        ("ses_2", 1700000000.0, NODE_2, NODE_2, None, "early", "resp_2", RECORD, 1),
        ("ses_3", 1700000000.0, NODE_3, NODE_3, None, "late", "resp_3", RECORD, 2),
    ],
    "tenant, name FROM convo.tenants": [(TENANT, "local")],
    "item, length, terms FROM convo.words": [
        (ITEM_1, 3, [747514238]),
        (ITEM_2, 3, [1193813481]),
        (ITEM_3, 5, [1018639594]),
    ],
}  # fmt: skip


def test_every_column_of_a_small_store_has_its_value() -> None:
    url = databases.cleared_database()
    fill_store(url)
    with psycopg.connect(url, autocommit=True) as db:
        stored = {
            columns: [
                tuple(
                    value if isinstance(value, (int, float, str, bytes, list, type(None))) else str(value)
                    for value in row
                )
                for row in db.execute(f"SELECT {columns} ORDER BY 1").fetchall()
            ]
            for columns in ROWS
        }
        tenants = {
            table: db.execute(f"SELECT DISTINCT tenant FROM convo.{table}").fetchall()
            for table in databases.TABLES
            if table not in ("secrets", "leases", "removed", "files", "file_contents", "unstored_requests")
        }
        bodies = [body for (body,) in db.execute("SELECT body FROM convo.items ORDER BY hash").fetchall()]

    assert stored == ROWS
    assert set(map(tuple, tenants.values())) == {((TENANT,),)}
    assert [zlib.decompress(body) for body in bodies] == [
        b'{"type":"message","role":"user","content":[{"type":"input_text","text":"%b"}]}' % text
        for text in (b"one", b"two", b"three")
    ]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("one", "one"),
        ("", ""),
        ("ä\n", "ä\n"),
        ("a\0b", "a\x1a0000b"),
        ("\x1a", "\x1a001a"),
        ("\ud800\udfff", "\x1ad800\x1adfff"),
        ("\x1a0000", "\x1a001a0000"),
    ],
)
def test_a_name_is_escaped_where_a_column_cannot_store_it(name: str, column: str) -> None:
    assert tenant_rows.escape_name(name) == tenant_rows.escape_optional_name(name) == column
    assert tenant_rows.unescape_name(column) == name
    assert tenant_rows.escape_optional_name(None) is None


def test_an_item_is_compressed_if_that_makes_it_shorter() -> None:
    short: Item = {"a": "ä"}
    long: Item = {"type": "x", "text": "y" * 100}
    assert tenant_rows.encode_body(short) == '{"a":"ä"}'.encode()
    assert len(tenant_rows.encode_body(long)) < 50
    assert [tenant_rows.decode_body("x", tenant_rows.encode_body(item)) for item in (short, long)] == [short, long]


def test_keys_and_hashes_are_stored_by_their_halves() -> None:
    key = root_key("local")
    assert str(tenant_rows.node_id(key)) == ROOT
    assert str(tenant_rows.node_rest(key)) == ROOT_REST
    assert tenant_rows.item_uuid(item_hash({"type": "x"})).hex == item_hash({"type": "x"})[3:35]
    assert str(tenant_rows.json_uuid(ROUTE)) == ROUTE_HASH
    assert tenant_rows.hash_item_id("a") == -3848465438864589366
    assert [tenant_rows.is_node_key(text) for text in (key, key[:63], f"{key}0", f"{key}\n", key.upper(), "")] == [
        True, False, False, False, False, False,
    ]  # fmt: skip
    assert tenant_rows.to_columns([(1, 2), (3, 4)], 2) == ([1, 3], [2, 4])
    assert tenant_rows.to_columns([], 2) == ([], [])


async def test_a_name_whose_number_another_tenant_has_is_refused(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("INSERT INTO convo.tenants (tenant, name) VALUES (%s, 'other')", (TENANT,))
    store = open_store(url)
    with pytest.raises(StoreUnavailable) as caught:
        await store.commit(Transaction(session=session()))
    assert caught.value.message == "the tenant 'local' has the number of another tenant"
    assert caught.value.hint == "choose another name"
    assert await store.session("one") is None
    await store.aclose()


async def test_the_size_of_a_tenant_is_that_of_its_texts_and_an_estimate_of_each_row() -> None:
    url = databases.cleared_database()
    await asyncio.to_thread(fill_store, url)
    with psycopg.connect(url) as db:
        (item_bytes,) = db.execute("SELECT sum(octet_length(body)) FROM convo.items").fetchone() or (0,)
    store = open_store(url)
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
    texts = (
        ROUTE, '{"instructions":"Be brief."}', '{"version":1,"agent":"a","phase":"X"}', '"done"', DECISION,
        *2 * ['[{"sequence_number":0,"type":"x"}]'],
    )  # fmt: skip
    assert stats == TenantStats("local", counts, 14 * 100 + item_bytes + sum(map(len, texts)), NOW, NOW + 3)


async def test_only_leases_that_expired_are_deleted() -> None:
    url = databases.cleared_database()
    store = open_store(url)
    await store.acquire_lease("expired", "me", -10)
    await store.acquire_lease("held", "me", 60)
    for older_than_s, names in ((60, ["expired", "held"]), (0, ["held"]), (-120, [])):
        await store.admin.prune_events(older_than_s)
        with psycopg.connect(url) as db:
            assert [name for (name,) in db.execute("SELECT name FROM convo.leases ORDER BY name")] == names
    await store.aclose()
