"""Open, probe, check, back up and recover a store by its URL.

URLs are "memory", "sqlite:PATH" and "postgresql://...". The module of a backend, and its driver, is imported
only when a URL needs it. A database is created by the first write, never by a read.
"""

import os
from pathlib import Path

from convo.errors import InvalidUsage
from convo.runtime import ReportProgress
from convo.stores.base import RecoveryReport, Store, StoreCheckReport, StoreHealth

STORE_URL_FORMS = "memory, sqlite:PATH, postgresql://..."
POSTGRES_SCHEMES = ("postgresql", "postgres")


def open_store(url: str, *, tenant: str = "local", inline: bool = False) -> Store:
    """Open the store of `url` for `tenant`. Nothing is created before the first write.

    url:     "memory", "sqlite:" and a path ("~" is the home folder), or a PostgreSQL URL
    inline:  its coroutines complete without ever waiting, so no event loop is needed; not for PostgreSQL

    Raises InvalidUsage if no store has this URL, or its driver is not installed.
    """
    scheme, _, location = url.partition(":")
    if url == "memory":
        from convo.stores.memory import MemoryStore

        return MemoryStore(tenant)
    if scheme == "sqlite" and location:
        from convo.stores.sqlite.connection import SqliteDatabase
        from convo.stores.sqlite.store import SqliteStore

        return SqliteStore(SqliteDatabase(_sqlite_path(location), inline=inline), tenant)
    if scheme in POSTGRES_SCHEMES and location.startswith("//"):
        return _open_postgres_store(url, tenant)
    raise InvalidUsage(f"{scheme!r} is not a type of store", hint=f"use one of: {STORE_URL_FORMS}")


def _sqlite_path(location: str) -> Path:
    return Path(os.path.expanduser(location))


def _open_postgres_store(url: str, tenant: str) -> Store:
    _check_postgres_driver()
    from convo.stores.postgres import connection
    from convo.stores.postgres.store import PostgresStore

    return PostgresStore(connection.PostgresDatabase(url), tenant)


def _check_postgres_driver() -> None:
    try:
        import psycopg  # noqa: F401
        import psycopg_pool  # noqa: F401
    except ImportError as error:
        from convo.installation import make_missing_extra_error

        raise make_missing_extra_error(InvalidUsage, "PostgreSQL", "postgres") from error


async def probe_store(url: str) -> StoreHealth | None:
    """Return the health of a store without changing it; None for a store that is not persistent.

    Raises InvalidUsage if the driver is not installed, StoreFault if the store cannot be reached, read or written.
    """
    scheme, _, location = url.partition(":")
    if scheme == "sqlite" and location:
        from convo.stores.sqlite.check import probe_database as probe_sqlite

        return probe_sqlite(_sqlite_path(location))
    if scheme in POSTGRES_SCHEMES:
        _check_postgres_driver()
        from convo.stores.postgres.check import probe_database as probe_postgres

        return await probe_postgres(url)
    return None


def is_store_writable(url: str) -> bool:
    """Return whether the file of a SQLite store can be written or created; True for every other store."""
    scheme, _, location = url.partition(":")
    if scheme != "sqlite" or not location:
        return True
    file = _sqlite_path(location).absolute()
    existing = next((path for path in (file, *file.parents) if os.path.lexists(path)), file)
    if existing == file:
        return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    return existing.is_dir() and os.access(existing, os.W_OK)


async def check_store(url: str, progress: ReportProgress) -> StoreCheckReport:
    """Check all rows of the store of `url`; nothing is created, migrated or written.

    Raises NotFound if there is no such file; InvalidUsage if the store cannot be checked or its driver is not
    installed; StoreFault if it cannot be reached, or is not a store of convo.
    """
    scheme, _, location = url.partition(":")
    if scheme == "sqlite" and location:
        from convo.stores.sqlite.check import check_database as check_sqlite

        return check_sqlite(_sqlite_path(location), progress)
    if scheme in POSTGRES_SCHEMES:
        _check_postgres_driver()
        from convo.stores.postgres.check import check_database as check_postgres
        from convo.stores.postgres.connection import PostgresDatabase

        database = PostgresDatabase(url)
        try:
            return await database.run(lambda db: check_postgres(db, database.location, progress), no_time_limit=True)
        finally:
            await database.aclose()
    raise InvalidUsage(
        f"a store of type {scheme!r} cannot be checked", hint="use --store sqlite:PATH or postgresql://..."
    )


def backup_store(url: str, target: Path, progress: ReportProgress) -> int:
    """Copy the file of a SQLite store into a new file and return its size in bytes.

    Raises InvalidUsage for any other store, and the errors of `backup_database`.
    """
    scheme, _, location = url.partition(":")
    if scheme != "sqlite" or not location:
        raise InvalidUsage(f"a store of type {scheme!r} is not a file", hint="use --store sqlite:PATH")
    from convo.stores.sqlite.backup import backup_database

    return backup_database(_sqlite_path(location), target, progress)


def recover_store(url: str, target: Path, progress: ReportProgress) -> RecoveryReport:
    """Copy the readable rows of a damaged SQLite store into a new file.

    Raises InvalidUsage for any other store, and the errors of `recover_database`.
    """
    scheme, _, location = url.partition(":")
    if scheme != "sqlite" or not location:
        raise InvalidUsage(
            f"a store of type {scheme!r} is not a file, so it cannot be recovered",
            hint="restore a backup with pg_restore, or use --store sqlite:PATH",
        )
    from convo.stores.sqlite.recover import recover_database

    return recover_database(_sqlite_path(location), target, progress)


def store_schema_sql(url: str, *, partitions: int = 0, after_migration: int = 0) -> str:
    """Return the SQL that creates the store of `url`, for a role that may create tables there.

    partitions:       hash partitions of each table by tenant; PostgreSQL only
    after_migration:  the number of the last migration that ran there; PostgreSQL only, because a SQLite file is
                      migrated when it is opened

    Raises InvalidUsage if the store has no tables, or no partitions, or its driver is not installed.
    """
    scheme = url.partition(":")[0]
    if scheme in POSTGRES_SCHEMES:
        _check_postgres_driver()
        from convo.stores.postgres.connection import schema_sql as postgres_schema_sql

        return postgres_schema_sql(partitions, after_migration=after_migration)
    if partitions:
        raise InvalidUsage("only a PostgreSQL store supports partitions", hint="add --store postgresql://...")
    if after_migration:
        raise InvalidUsage("only a PostgreSQL store prints single migrations", hint="convo store migrate")
    if scheme != "sqlite":
        raise InvalidUsage(f"a store of type {scheme!r} has no tables")
    from convo.stores.sqlite.connection import schema_sql as sqlite_schema_sql

    return sqlite_schema_sql()
