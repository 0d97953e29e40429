"""A store in memory: the SQLite store over a database that has no file."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar
from weakref import finalize

from convo.stores.sqlite.connection import QueuedJob, SqliteDatabase, open_empty_store, translate_errors
from convo.stores.sqlite.store import SqliteStore

Result = TypeVar("Result")


class MemoryDatabase(SqliteDatabase):
    """A database in memory. Jobs run one after another, each in the thread of its caller."""

    def __init__(self, now: Callable[[], float] | None) -> None:
        super().__init__(Path("memory"), inline=True)
        self._connection, self._lock = open_empty_store(), Lock()
        if now is not None:
            self._connection.create_function("julianday", 1, lambda _: now() / 86400.0 + 2440587.5)
        self._close_connection = finalize(self, self._connection.close)

    def _run_one(self, queued: QueuedJob[Result]) -> Result:
        with self._lock, translate_errors(self.file), self._transaction(self._connection, is_write=queued.is_write):
            result = queued.job(self._connection)
            if queued.is_write:
                self._connection.execute("DELETE FROM traces")  # requests to rewrite a file, and there is none
            return result

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._close_connection()

    def size_bytes(self) -> None:
        return None

    def check_disk_space(self) -> None:
        """Do nothing: memory has no disk."""


class MemoryStore(SqliteStore):
    """`Store` in memory, for the lifetime of the process.

    now:  the clock of the leases, in seconds since 1970; SQLite's own by default
    """

    def __init__(self, tenant: str = "local", *, now: Callable[[], float] | None = None) -> None:
        super().__init__(MemoryDatabase(now), tenant)
