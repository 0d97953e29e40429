"""Random sequences of changes give the same results in memory and in PostgreSQL."""

import asyncio
import json
from contextlib import suppress

import psycopg
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

from convo.errors import ItemDeleted
from convo.history.tree import Path
from convo.stores.base import Store
from convo.stores.factory import open_store
from convo.stores.memory import MemoryStore
from convo.stores.postgres.tenant_rows import decode_body
from tests import databases
from tests.stores.chat_transactions import NOW, search_hits
from tests.stores.test_random_changes import EMPTY, StoreComparison

pytestmark = pytest.mark.needs("postgresql")

UNREFERENCED_ROWS = (
    "SELECT key FROM (SELECT tenant, id AS key FROM convo.nodes WHERE depth > 0) AS nodes WHERE NOT EXISTS ("
    "SELECT FROM convo.nodes AS child WHERE child.parent = key) AND key NOT IN (SELECT saw FROM convo.links)"
    " AND key NOT IN (SELECT head FROM convo.links) AND key NOT IN (SELECT head FROM convo.sessions)"
    " AND key NOT IN (SELECT mark FROM convo.sessions) AND key NOT IN (SELECT head FROM convo.conversations)"
    " AND key NOT IN (SELECT written FROM convo.sessions WHERE written IS NOT NULL)",
    "SELECT hash FROM convo.items WHERE hash NOT IN (SELECT item FROM convo.nodes WHERE item IS NOT NULL)",
    "SELECT item FROM convo.words WHERE item NOT IN (SELECT hash FROM convo.items)",
    "SELECT session FROM convo.removed"
    " WHERE NOT EXISTS (SELECT FROM convo.links WHERE links.session = removed.session)",
    "SELECT conversation FROM convo.members WHERE conversation NOT IN (SELECT id FROM convo.conversations)",
)
"""Queries for unreferenced rows: rows that are needed only while another row refers to them."""


class PostgresComparison(StoreComparison):
    """Compares memory with PostgreSQL. The tables are empty at the start of each sequence."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self.loop = asyncio.new_event_loop()
        self.memory: Store = MemoryStore()
        self.url = databases.cleared_database()
        self.sqlite: Store = open_store(self.url)
        self.paths = [EMPTY]
        self.current_time = NOW

    def teardown(self) -> None:
        self.loop.run_until_complete(self.sqlite.aclose())
        self.loop.close()

    def open_again(self) -> Store:
        return open_store(self.url)

    async def hits(self, store: Store, query: str) -> object:
        """Return the sessions and items of the hits, without nodes.

        The stores may return different nodes for an item that a session contains several times.
        """
        results = await search_hits(store, query, limit=1000)
        for hit in results:
            with suppress(ItemDeleted):
                path: Path = await store.path(hit.key)
                assert path.items[-1] == hit.item
        assert len({(hit.owner, json.dumps(hit.item)) for hit in results}) == len(results)
        return {(hit.owner, json.dumps(hit.item)) for hit in results}

    @invariant()
    def the_database_is_sound_and_has_each_item_once(self) -> None:
        with psycopg.connect(self.url) as db:
            for query in UNREFERENCED_ROWS:
                assert db.execute(query).fetchall() == []
            bodies = [
                json.dumps(decode_body("x", body), sort_keys=True)
                for (body,) in db.execute("SELECT body FROM convo.items")
            ]
            assert len(set(bodies)) == len(bodies)


TestPostgresComparison = PostgresComparison.TestCase
TestPostgresComparison.settings = settings(max_examples=2, stateful_step_count=20)


@pytest.mark.full
def test_both_stores_return_the_same_for_random_programs() -> None:
    run_state_machine_as_test(PostgresComparison, settings=settings(max_examples=100, stateful_step_count=50))
