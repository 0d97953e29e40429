"""Fixtures: a new PostgreSQL database for each test that reads or changes the tables directly."""

from collections.abc import AsyncIterator, Iterator

import pytest

from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.store import PostgresStore
from tests import databases


@pytest.fixture
def url() -> Iterator[str]:
    """A new database with convo's tables."""
    made = databases.new_database()
    yield made
    databases.drop(made)


@pytest.fixture
def url_without_tables() -> Iterator[str]:
    """A new database without any table."""
    made = databases.new_database(schema=False)
    yield made
    databases.drop(made)


@pytest.fixture
async def postgres(url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(PostgresDatabase(url))
    yield opened
    await opened.aclose()
