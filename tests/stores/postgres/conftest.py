"""Fixtures: a new PostgreSQL database for each test that reads or changes the tables directly."""

from collections.abc import AsyncIterator, Iterator

import pytest

from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.store import PostgresStore
from tests import databases


@pytest.fixture
def url() -> Iterator[str]:
    """A new database with convo's tables."""
    database_url = databases.new_database()
    yield database_url
    databases.drop(database_url)


@pytest.fixture
def url_without_tables() -> Iterator[str]:
    """A new database without any table."""
    database_url = databases.new_database(schema=False)
    yield database_url
    databases.drop(database_url)


@pytest.fixture
async def postgres(url: str) -> AsyncIterator[PostgresStore]:
    new_store = PostgresStore(PostgresDatabase(url))
    yield new_store
    await new_store.aclose()
