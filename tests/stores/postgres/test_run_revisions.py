"""New revisions of an agent run reuse the space of earlier revisions.

These tests have a server of their own. A transaction that is open in any database of a server can prevent
reuse of replaced rows in all of its databases, and other tests have such transactions.
"""

from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from convo.history.items import Json
from convo.stores.base import Transaction
from convo.stores.postgres.store import PostgresStore
from tests import databases
from tests.databases import Server
from tests.stores.chat_transactions import NOW, prose, session
from tests.stores.postgres.test_size import stored_bytes
from tests.stores.test_agent_runs import RUN

pytestmark = pytest.mark.needs("postgresql")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with databases.start_server() as new_server:
        yield new_server


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    database_url = databases.new_database(at=server.url())
    yield database_url
    databases.drop(database_url)


async def write_revisions(postgres: PostgresStore, revisions: range, characters: int) -> None:
    """Write these revisions of a run, each with a different document of about `characters` characters."""
    pieces = [prose(Random(number), 500) for number in range(200)]
    for revision in revisions:
        document: dict[str, Json] = {"history": Random(revision).sample(pieces, characters // 500)}
        run = RUN._replace(revision=revision, document=document, changed_at=NOW + revision)
        await postgres.commit(Transaction(session=session() if revision == 1 else None, agent_run=run))


@pytest.mark.parametrize("characters", [5_000, 50_000])
async def test_rewriting_a_run_each_turn_takes_the_space_of_its_last_turns(
    postgres: PostgresStore, url: str, characters: int
) -> None:
    """VACUUM after every fifty revisions makes their space reusable. Autovacuum does the same each minute."""
    sizes = []
    for first in range(1, 201, 50):
        await write_revisions(postgres, range(first, first + 50), characters)
        sizes.append(stored_bytes(url))

    assert sizes[-1] - sizes[0] < 2 * characters
    assert sizes[-1] < sizes[0] + 10 * characters


async def test_rewriting_a_document_within_its_page_needs_no_vacuum(postgres: PostgresStore, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER TABLE convo.agent_runs SET (autovacuum_enabled = off)")
    await write_revisions(postgres, range(1, 201), 5000)

    with psycopg.connect(url) as db:
        row = db.execute("SELECT pg_total_relation_size('convo.agent_runs')").fetchone()
    assert row is not None
    assert row[0] < 15 * 5000
