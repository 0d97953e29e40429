"""Chooses a store by its URL, and imports no other.

A driver costs time and may not be installed, so each is imported in its own branch. A store is not
made before something is written: to look into one that is not there leaves nothing behind.
"""

import os
from pathlib import Path

from convo.errors import Usage
from convo.stores.condition import Condition
from convo.stores.contract import Store

KNOWN = "memory, sqlite:PATH, postgresql://..."
POSTGRES = ("postgresql", "postgres")


def open_store(url: str, *, tenant: str = "local", inline: bool = False) -> Store:
    """The store that `url` names, as `tenant` sees it. Nothing is made before something is written.

    url:     "memory", "sqlite:" and a path ("~" is the home folder), or a PostgreSQL URL
    inline:  let its coroutines end without ever waiting, so that no event loop is needed; not PostgreSQL's
    raises:  Usage  no store has this URL, or what it needs is not installed
    """
    scheme, _, place = url.partition(":")
    if url == "memory":
        from convo.stores.memory import MemoryStore

        return MemoryStore(tenant)
    if scheme == "sqlite" and place:
        from convo.stores.sqlite import SqliteStore
        from convo.stores.sqlite.database import Database

        return SqliteStore(Database(_file(place), inline=inline), tenant)
    if scheme in POSTGRES and place.startswith("//"):
        return _postgres(url, tenant)
    raise Usage(f"{scheme!r} is not a kind of store", hint=f"one of: {KNOWN}")


def _file(place: str) -> Path:
    return Path(os.path.expanduser(place))


def _postgres(url: str, tenant: str) -> Store:
    _check_driver()
    from convo.stores.postgres import PostgresStore, database

    return PostgresStore(database.Database(url), tenant)


def _check_driver() -> None:
    try:
        import psycopg  # noqa: F401
        import psycopg_pool  # noqa: F401
    except ImportError as missing:
        raise Usage("a PostgreSQL store needs a driver", hint="pip install 'convo-state[postgres]'") from missing


async def examine(url: str) -> Condition | None:
    """What the place of a store is like, which stays as it is; None for what is not kept anywhere.

    raises:  Usage       no store has this URL, or what it needs is not installed
             StoreFault  it cannot be reached, read or written
    """
    scheme, _, place = url.partition(":")
    if scheme == "sqlite" and place:
        from convo.stores.sqlite import examining as sqlite

        return sqlite.examine(_file(place))
    if scheme in POSTGRES:
        _check_driver()
        from convo.stores.postgres import examining as postgres

        return await postgres.examine(url)
    return None


def schema_sql(url: str, *, partitions: int = 0, above: int = 0) -> str:
    """What brings the store that `url` names into being, for whoever may create tables there.

    partitions:  hash partitions of each table by tenant; PostgreSQL alone has them
    above:       the number of the last migration that ran there, of PostgreSQL too: a file is opened to be migrated
    raises:      Usage  it has no tables, or no partitions; what it needs is not installed
    """
    scheme = url.partition(":")[0]
    if scheme in POSTGRES:
        _check_driver()
        from convo.stores.postgres import schema as postgres

        return postgres.schema_sql(partitions, above=above)
    if partitions:
        raise Usage("only PostgreSQL spreads its tables over partitions")
    if above:
        raise Usage("only PostgreSQL's migrations are printed one by one", hint="convo store migrate")
    if scheme != "sqlite":
        raise Usage(f"a store of the kind {scheme!r} has no tables")
    from convo.stores.sqlite import schema as sqlite

    return sqlite.schema_sql()
