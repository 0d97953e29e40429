"""Chooses a store by its URL, and imports no other.

A driver costs time and may not be installed, so each is imported in its own branch. A store is not
made before something is written: to look into one that is not there leaves nothing behind.
"""

import os
from pathlib import Path

from convo.errors import Usage
from convo.stores.condition import Condition
from convo.stores.contract import Store
from convo.stores.upkeep import Progress, Recovery, StoreCheck

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


def is_writable(url: str) -> bool:
    """Whether the file of a SQLite store may be written, or could be made; True of every other store."""
    scheme, _, place = url.partition(":")
    if scheme != "sqlite" or not place:
        return True
    file = _file(place).absolute()
    there = next((one for one in (file, *file.parents) if os.path.lexists(one)), file)
    if there == file:
        return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    return there.is_dir() and os.access(there, os.W_OK)


async def check_store(url: str, progress: Progress) -> StoreCheck:
    """Check all rows of the store that `url` names; nothing is made, migrated or written.

    raises:  NotFound    there is no such file
             Usage       no store has this URL, or what it needs is not installed
             StoreFault  it cannot be reached, or is not ours
    """
    scheme, _, place = url.partition(":")
    if scheme == "sqlite" and place:
        from convo.stores.sqlite import checking as sqlite

        return sqlite.check(_file(place), progress)
    if scheme in POSTGRES:
        _check_driver()
        from convo.stores.postgres import checking as postgres
        from convo.stores.postgres.database import Database

        database = Database(url)
        try:
            return await database.run(lambda db: postgres.check(db, database.place, progress), however_long=True)
        finally:
            await database.aclose()
    raise Usage(f"a store of the kind {scheme!r} cannot be checked", hint="--store sqlite:PATH or postgresql://...")


def backup_store(url: str, target: Path, progress: Progress) -> int:
    """Copy the file of a SQLite store into a new file; returns its size in bytes. raises: as `sqlite.backup`; Usage"""
    scheme, _, place = url.partition(":")
    if scheme != "sqlite" or not place:
        raise Usage(f"a store of the kind {scheme!r} is not a file", hint="--store sqlite:PATH")
    from convo.stores.sqlite import backup as sqlite

    return sqlite.backup(_file(place), target, progress)


def recover_store(url: str, target: Path, progress: Progress) -> Recovery:
    """Copy what can be read of a damaged SQLite store into a new file. raises: as `sqlite.recover`; Usage"""
    scheme, _, place = url.partition(":")
    if scheme != "sqlite" or not place:
        raise Usage(
            f"a store of the kind {scheme!r} is not a file that could be read page by page",
            hint="pg_restore, from a backup; or --store sqlite:PATH",
        )
    from convo.stores.sqlite import recover as sqlite

    return sqlite.recover(_file(place), target, progress)


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
