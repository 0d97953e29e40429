"""The connection to the file: worker thread, transactions, errors and migrations.

Every job is a function of the connection. It runs in the worker thread, in a transaction: BEGIN for reads,
BEGIN IMMEDIATE for writes. Jobs that are queued together share one transaction; if one of them fails, each
is run again in its own, so a job may run twice. `inline` runs jobs in the caller's thread, without an event
loop. The file is created by the first write; until then, reads find an empty store.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS
from functools import cache
from json import JSONDecodeError
from pathlib import Path
from shlex import quote
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from convo.errors import StoreFault, StoreFull, StoreReadOnly, StoreTooNew, StoreUnavailable
from convo.runtime import track_progress
from convo.stores import base
from convo.stores.base import (
    DamagedRowObserver,
    TransactionObserver,
    ignore_transaction,
    warn_of_damaged_row,
    warn_of_migration,
)
from convo.stores.codec import decode_json
from convo.stores.sqlite import tenant_rows
from convo.stores.sqlite.tenant_rows import INVALID_UTF8_MESSAGE, TenantConnection

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


JobResult = TypeVar("JobResult")
Job = Callable[[sqlite3.Connection], JobResult]

MAX_JOBS_PER_BATCH = 64
"""With more, only the first of them would wait longer."""


@dataclass(slots=True, eq=False)
class QueuedJob(Generic[JobResult]):
    """One job, the future of its caller, and its result or error.

    is_write:      it changes rows
    creates_file:  the file is created for it
    """

    job: Job[JobResult]
    is_write: bool
    creates_file: bool
    future: "Future[JobResult] | None" = None
    result: JobResult | None = None
    error: BaseException | None = None


class ConnectionWorker:
    """One worker thread.

    It calls `run_jobs` with jobs that may share a transaction; `run_jobs` sets the result or the error of each.
    """

    def __init__(self, run_jobs: Callable[[Sequence[QueuedJob[Any]]], None]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._run_jobs = run_jobs
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="convo-sqlite")
        self._lock, self._is_busy = Lock(), False
        self._queue: list[QueuedJob[Any]] = []

    async def run(self, queued: QueuedJob[JobResult]) -> JobResult:
        """Queue a job and return its result. Raises the errors of the job."""
        from asyncio import get_running_loop

        queued.future = get_running_loop().create_future()
        with self._lock:
            self._queue.append(queued)
            was_idle, self._is_busy = not self._is_busy, True
        if was_idle:
            # One submission for all jobs that come while the thread is busy: a thread that is woken waits for the
            # interpreter.
            self._executor.submit(self._process_queue)
        return await queued.future

    async def shut_down(self, function: Callable[[], None]) -> None:
        """Run `function` after all queued jobs, then shut down."""
        from asyncio import get_running_loop

        try:
            await get_running_loop().run_in_executor(self._executor, function)
        finally:
            self._executor.shutdown(wait=False)

    # -- in the worker thread ---------------------------------------------------------------------

    def _process_queue(self) -> None:
        while batch := self._next_batch():
            reads: list[QueuedJob[Any]] = []
            writes: list[QueuedJob[Any]] = []
            for queued in batch:
                # A job whose caller was cancelled has not begun, so it is left out.
                if queued.future and not queued.future.cancelled():
                    (writes if queued.is_write else reads).append(queued)
            for group in (reads, writes):  # reads do not wait for a disk; the order does not matter
                if group:
                    self._run_jobs(group)
                    _notify_event_loops(group)

    def _next_batch(self) -> Sequence[QueuedJob[Any]]:
        with self._lock:
            batch, self._queue = self._queue[:MAX_JOBS_PER_BATCH], self._queue[MAX_JOBS_PER_BATCH:]
            self._is_busy = bool(batch)
        return batch


def _notify_event_loops(group: Sequence[QueuedJob[Any]]) -> None:
    """Resolve the futures in the event loop of each caller, unless it is closed."""
    by_loop: dict[AbstractEventLoop, list[QueuedJob[Any]]] = {}
    for queued in group:
        if queued.future:
            by_loop.setdefault(queued.future.get_loop(), []).append(queued)
    for loop, jobs in by_loop.items():
        if not loop.is_closed():
            # One call for all jobs of a loop: each call wakes it.
            loop.call_soon_threadsafe(_resolve_futures, jobs)


def _resolve_futures(group: Sequence[QueuedJob[Any]]) -> None:
    for queued in group:
        if queued.future is None or queued.future.done():
            continue
        if queued.error is not None:
            queued.future.set_exception(queued.error)
        else:
            queued.future.set_result(queued.result)


Result = TypeVar("Result")
Synchronous = Literal["FULL", "NORMAL", "OFF"]

FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode: they distinguish a file from another one of the same name."""

BUSY_RETRY_S = 0.01

MIN_FREE_BYTES = 8_000_000
"""Free bytes that the disk must have before a model is called.

SQLite's log grows to 4 MB before it is written back, and a response is written through it.
"""


class SqliteDatabase:
    """A database file that is opened on first use.

    busy_timeout_s:  how long a write waits for another process
    synchronous:     "FULL" makes a commit durable when it returns; the other values are for tests
    inline:          run every job in the caller's thread, without an event loop
    full_at_s:       when the last write failed for lack of space, by the monotonic clock
    """

    def __init__(
        self,
        file: Path,
        *,
        busy_timeout_s: float = 5.0,
        synchronous: Synchronous = "FULL",
        inline: bool = False,
    ) -> None:
        self.file, self._wal_file = file, Path(f"{file}-wal")
        self.observer: TransactionObserver = ignore_transaction
        self.damaged_row_observer: DamagedRowObserver = warn_of_damaged_row
        self._busy_timeout_s, self._synchronous = busy_timeout_s, synchronous
        self._db: sqlite3.Connection | None = None
        self._empty_db: sqlite3.Connection | None = None
        self._file_identity: FileIdentity | None = None
        self._wal_identity: FileIdentity | None = None
        self._worker = None if inline else ConnectionWorker(self._run_batch)
        self.full_at_s: float | None = None
        self._closed = False
        self._applied_migrations: Sequence[int] = ()

    async def read(self, job: Job[Result]) -> Result:
        """Run `job` on one snapshot of the file and return its result. Raises StoreFault."""
        return await self._run(QueuedJob(job, is_write=False, creates_file=False))

    async def write(self, job: Job[Result], *, create: bool = True) -> Result:
        """Run `job` completely or not at all; it is durable on return. It may run twice, the first time rolled back.

        create:  create the file if it is missing; otherwise the job then runs on an empty store

        Raises StoreFault and the errors of `job`.
        """
        return await self._run(QueuedJob(job, is_write=True, creates_file=create))

    async def migrate(self) -> Sequence[int]:
        """Return the numbers of the migrations that this call ran. Raises StoreFault."""
        was_open = self._db is not None
        await self.write(lambda db: None)
        return () if was_open else self._applied_migrations

    async def aclose(self) -> None:
        if self._closed:
            return
        if self._worker is None:
            self._close()
        else:
            await self._worker.shut_down(self._close)

    async def _run(self, queued: QueuedJob[Result]) -> Result:
        if self._closed:
            raise StoreUnavailable(f"the store {self.file} is closed")
        started_at = time.perf_counter()
        try:
            result = self._run_one(queued) if self._worker is None else await self._worker.run(queued)
            self.full_at_s = None if queued.is_write else self.full_at_s
            return result
        except StoreFull:
            self.full_at_s = time.monotonic()
            raise
        finally:
            self.observer(time.perf_counter() - started_at)

    # -- in the worker thread ---------------------------------------------------------------------

    def _run_batch(self, group: Sequence[QueuedJob[Any]]) -> None:
        """Run all jobs in one transaction, which waits for the disk once; each in its own if that fails."""
        if len(group) > 1 and self._run_in_one_transaction(group):
            return
        for queued in group:
            try:
                queued.result = self._run_one(queued)
            except BaseException as error:  # noqa: BLE001 - raised again in the caller
                queued.error = error

    def _run_in_one_transaction(self, group: Sequence[QueuedJob[Any]]) -> bool:
        """Return whether every job succeeded and the transaction was committed."""
        if self._db is None:
            return False
        try:
            if self._is_file_replaced():
                return False
            with translate_errors(self.file), self._transaction(self._db, is_write=group[0].is_write):
                results = [queued.job(self._db) for queued in group]
        except BaseException:  # noqa: BLE001 - each job is run again and raises its own error
            return False
        for queued, result in zip(group, results, strict=True):
            queued.result = result
        return True

    def _run_one(self, queued: QueuedJob[Result]) -> Result:
        with translate_errors(self.file):
            if self._db is not None and self._is_file_replaced():
                self._close_replaced_file()
            if self._db is None and not queued.creates_file and not self.file.exists():
                return self._run_on_empty_store(queued)
            if self._db is None:
                try:
                    self._db = self._open()
                except (sqlite3.Error, OSError) as error:
                    if queued.is_write or not is_disk_full(error, self.file) or not self.file.exists():
                        raise
                    return self._run_on_full_disk(queued)
                self._file_identity = file_identity(self.file)
            with self._transaction(self._db, is_write=queued.is_write):
                result = queued.job(self._db)
            # SQLite creates the log with the first transaction.
            self._wal_identity = self._wal_identity or file_identity(self._wal_file)
            return result

    def _run_on_full_disk(self, queued: QueuedJob[Result]) -> Result:
        """Run a read on a full disk: on the file as it is, with the existing log."""
        log = self._wal_file
        if log.exists() and log.stat().st_size:
            uri_options, pragma = "mode=rw", "locking_mode = EXCLUSIVE"  # then the log needs no shared-memory file
        else:
            uri_options, pragma = "mode=ro&immutable=1", "query_only = ON"
        with closing(
            sqlite3.connect(f"{self.file.absolute().as_uri()}?{uri_options}", uri=True, isolation_level=None)
        ) as db:
            db.execute(f"PRAGMA {pragma}").fetchall()
            check_schema_version(db, self.file)
            with self._transaction(db, is_write=False):
                return queued.job(db)

    def _run_on_empty_store(self, queued: QueuedJob[Result]) -> Result:
        """Run a job on an empty store; all reads share one."""
        if queued.is_write:
            with closing(open_empty_store()) as db:
                return queued.job(db)
        self._empty_db = self._empty_db or open_empty_store()
        return queued.job(self._empty_db)

    def _is_file_replaced(self) -> bool:
        """Return whether the file or its log was replaced since it was opened: writes to a replaced file are lost.

        Raises StoreUnavailable if there is no file. It may be restored, so the connection stays open.
        """
        identity = file_identity(self.file)
        if identity is None:
            raise StoreUnavailable(
                f"{self.file} was deleted while it was in use",
                hint="restore the file or a backup of it, or create an empty one: convo store migrate",
            )
        if identity != self._file_identity:
            return True
        return self._wal_identity is not None and file_identity(self._wal_file) != self._wal_identity

    def _close_replaced_file(self) -> None:
        """Close the connection to a replaced file, so that the next job opens the new one.

        If only the log was deleted, closing writes its pages into the file. If the file was replaced, SQLite would read
        the old file's log as the new file's, so it is deleted.
        """
        assert self._db
        is_replaced = file_identity(self.file) != self._file_identity
        stale_wal = self._wal_file
        with suppress(sqlite3.Error):
            self._db.close()
        if is_replaced and self._wal_identity is not None and file_identity(stale_wal) == self._wal_identity:
            for file in (stale_wal, Path(f"{self.file}-shm")):
                with suppress(FileNotFoundError):
                    file.unlink()
        self._db = self._wal_identity = None

    def size_bytes(self) -> int | None:
        """Return the bytes of the file and its log; 0 if there is none, None in memory."""
        total = 0
        for file in (self.file, self._wal_file):
            with translate_errors(self.file), suppress(FileNotFoundError):
                total += file.stat().st_size
        return total

    def check_disk_space(self) -> None:
        """Check that the disk has space for a response. Raises StoreFull."""
        with translate_errors(self.file):
            try:
                stats = os.statvfs(self.file)
            except FileNotFoundError:
                folders = self.file.absolute().parents
                stats = os.statvfs(next((folder for folder in folders if folder.exists()), Path("/")))
        free = stats.f_bavail * stats.f_frsize
        if free < MIN_FREE_BYTES:
            raise StoreFull(
                f"the disk of {self.file} has {free / 1e6:.1f} MB left, "
                f"and a turn may need {MIN_FREE_BYTES / 1e6:.0f} MB",
                hint="free some space and retry; no request was sent",
            )

    @contextmanager
    def _transaction(self, db: sqlite3.Connection, *, is_write: bool) -> Iterator[None]:
        # A deferred transaction locks the file at its first write only: with 8 writing processes that gave
        # 408,733 errors in a measurement, BEGIN IMMEDIATE none.
        db.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        if self.file.is_dir():
            raise StoreUnavailable(f"{self.file} is a folder, not a database")
        if self.file.exists() and not self.file.is_file():
            raise StoreUnavailable(f"{self.file} is a pipe or a device, not a database")
        create_private_file(self.file)
        db = sqlite3.connect(_database_uri(self.file), uri=True, timeout=self._busy_timeout_s, isolation_level=None)
        try:
            self._retry_while_busy(lambda: self._configure(db))
        except BaseException:
            db.close()
            raise
        return db

    def _configure(self, db: sqlite3.Connection) -> None:
        check_schema_version(db, self.file)
        if 0 < read_schema_version(db) < SCHEMA_VERSION and _is_open_elsewhere(db):
            warn_of_migration(str(self.file))
        # Before WAL mode, in which the page size cannot be changed any more.
        db.execute(f"PRAGMA page_size = {PAGE_SIZE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA foreign_keys = ON")
        # Deleted texts are overwritten with zeros: they must not be left in the file.
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")  # otherwise the undo data of a statement would be written to a file
        self._applied_migrations = migrate_schema(db)

    def _retry_while_busy(self, function: Callable[[], None]) -> None:
        """Retry errors that SQLite raises without waiting: two processes that create one file at the same time."""
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                return function()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(BUSY_RETRY_S)

    def _close(self) -> None:
        self._closed = True
        if self._empty_db is not None:
            self._empty_db.close()
        if self._db is not None:
            with translate_errors(self.file), closing(self._db):
                vacuum_if_requested(self._db)


def file_identity(file: Path) -> FileIdentity | None:
    """Return the device and inode of a file; None if there is none."""
    try:
        stats = os.stat(file)
    except OSError:
        return None
    return stats.st_dev, stats.st_ino


def create_private_file(file: Path) -> None:
    """Create `file` and its missing folders, readable only by their owner."""
    missing = [folder for folder in file.parents if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    if not file.exists() or not file.stat().st_size:
        # Created here, because SQLite would use the umask.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)


def _database_uri(file: Path) -> str:
    """Return the URI of `file`. In a folder where no log can be created, the file is opened as immutable."""
    if os.access(file.parent, os.W_OK) or Path(f"{file}-wal").exists():
        return file.absolute().as_uri()
    return f"{file.absolute().as_uri()}?mode=ro&immutable=1"


def open_empty_store() -> sqlite3.Connection:
    """Open an empty store in memory, for any thread, but one at a time."""
    # A store in memory runs each job in the thread of its caller.
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with closing(sqlite3.connect(":memory:")) as migrated:
        migrated.deserialize(_migrated_database())
        migrated.backup(db)
    for setting in ("foreign_keys = ON", "secure_delete = ON", "temp_store = MEMORY"):
        db.execute(f"PRAGMA {setting}")
    return db


@cache
def _migrated_database() -> bytes:
    """Return an empty store as the content of a file: copying it is 30 times as fast as the migrations."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate_schema(db)
        return db.serialize()


BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
DISK_FULL_CODES = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_FSYNC})

DAMAGED_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

ERRORS_BY_CODE: dict[int, tuple[type[StoreFault], str]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "{file} is locked: another process has been writing to it for too long"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "{file} is locked: another process has been writing to it for too long"),
    sqlite3.SQLITE_READONLY: (StoreReadOnly, "{file} is read-only"),
    sqlite3.SQLITE_PERM: (StoreReadOnly, "{file} cannot be written"),
    sqlite3.SQLITE_FULL: (StoreFull, "no disk space is left for {file}"),
    sqlite3.SQLITE_NOTADB: (StoreUnavailable, "{file} is not a database"),
    sqlite3.SQLITE_CORRUPT: (StoreUnavailable, "{file} is damaged"),
}
"""Error and message of a primary result code; any other code keeps SQLite's message."""


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Translate the errors of sqlite3, the JSON decoder and the operating system. Raises StoreFault."""
    try:
        yield
    except sqlite3.Error as error:
        raise _to_store_fault(error, file) from error
    except UnicodeDecodeError as error:  # SQLite's own message can quote the damaged bytes
        raise damaged_file_error(f"{file} is damaged: a text in it is not UTF-8", file) from error
    except JSONDecodeError as error:  # of a stored text: written texts are encoded by convo
        raise damaged_file_error(f"{file} is damaged: a stored text is not JSON", file) from error
    except OSError as error:
        raise _os_error_to_store_fault(error, file) from error


def _result_code(error: sqlite3.Error) -> int:
    """Return SQLite's extended result code; 0 for an error of the Python module."""
    return int(getattr(error, "sqlite_errorcode", 0))


def is_busy(error: sqlite3.Error) -> bool:
    return _result_code(error) & 0xFF in BUSY_CODES


def is_disk_full(error: sqlite3.Error | OSError, file: Path) -> bool:
    """Return whether an error was caused by a full disk or a size limit."""
    fault = _to_store_fault(error, file) if isinstance(error, sqlite3.Error) else _os_error_to_store_fault(error, file)
    return isinstance(fault, StoreFull)


def _to_store_fault(error: sqlite3.Error, file: Path) -> StoreFault:
    primary = _result_code(error) & 0xFF
    if _result_code(error) in DISK_FULL_CODES:
        return StoreFull(f"{file} could not be written: the disk is full, or a size limit is reached")
    if primary == sqlite3.SQLITE_CANTOPEN and not os.access(file.parent, os.W_OK):
        return StoreReadOnly(f"{file.parent} is read-only")
    if str(error).startswith(INVALID_UTF8_MESSAGE):
        return damaged_file_error(f"{file} is damaged: a stored text is not UTF-8", file)
    error_type, template = ERRORS_BY_CODE.get(primary, (StoreUnavailable, "{file} cannot be used: {error}"))
    message = template.format(file=file, error=error)
    return damaged_file_error(message, file) if primary in DAMAGED_CODES else error_type(message)


def damaged_file_error(message: str, file: Path) -> StoreUnavailable:
    """Return the error for a file with unusable content; its hint is the command that recovers the readable rows."""
    return StoreUnavailable(message, hint=f"convo store recover NEW.db --store {quote(f'sqlite:{file}')}")


def _os_error_to_store_fault(error: OSError, file: Path) -> StoreFault:
    if error.errno in (EACCES, EPERM, EROFS):
        return StoreReadOnly(f"{error.filename or file} cannot be written")
    if error.errno in (ENOSPC, EDQUOT, EFBIG):
        return StoreFull(f"no disk space is left for {file}")
    return StoreUnavailable(f"{file} cannot be opened: {error.strerror}")


APPLICATION_ID = 0x636F6E76
""""conv" in ASCII."""

SCHEMA_VERSION = 10
"""Number of the last migration."""

SIGNATURE_PRAGMAS = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {SCHEMA_VERSION}")
"""Statements that mark a file as a store of convo."""

PAGE_SIZE_BYTES = 4096
"""Bytes of a page in a new file. A transaction writes whole pages to the log, about twenty of them."""

MIN_SQLITE_VERSION = (3, 37, 0)
"""The first version with strict tables."""

MIGRATIONS_FOLDER = Path(__file__).with_name("migrations")


def check_schema_version(db: sqlite3.Connection, file: Path) -> None:
    """Check that `file` is a store of convo, or empty; nothing is written.

    Raises StoreTooNew, or StoreUnavailable if it belongs to another program.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        raise StoreUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old; convo needs 3.37", hint="use a newer Python"
        )
    db.execute("BEGIN")  # one snapshot: another process may be creating the store at this moment
    try:
        application_id, version = _read_pragma(db, "application_id"), _read_pragma(db, "user_version")
        has_tables = db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    if application_id == APPLICATION_ID and version > SCHEMA_VERSION:
        raise StoreTooNew(str(file), version, SCHEMA_VERSION)
    if application_id != APPLICATION_ID and (application_id or version or has_tables):
        raise StoreUnavailable(f"{file} is a database of another program", hint="set CONVO_HOME to another folder")


def _is_open_elsewhere(db: sqlite3.Connection) -> bool:
    """Return whether there is another connection to the file: only the last one can leave WAL mode."""
    (timeout_ms,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute("PRAGMA busy_timeout = 0").fetchone()
    try:
        return bool(db.execute("PRAGMA journal_mode = DELETE").fetchone() == ("wal",))
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        return True
    finally:
        db.execute(f"PRAGMA busy_timeout = {timeout_ms}").fetchone()


def read_schema_version(db: sqlite3.Connection) -> int:
    """Return the number of the last migration that ran; 0 before the first."""
    return _read_pragma(db, "user_version")


def schema_sql() -> str:
    """Return all statements that turn an empty file into a store of convo."""
    return "\n".join(
        [*map(_read_migration, range(1, SCHEMA_VERSION + 1)), *(f"{pragma};" for pragma in SIGNATURE_PRAGMAS)]
    )


def migrate_schema(db: sqlite3.Connection) -> Sequence[int]:
    """Migrate the schema to `SCHEMA_VERSION`, all or nothing; return the numbers of the migrations that ran."""
    if _read_pragma(db, "user_version") == SCHEMA_VERSION:
        return ()
    db.execute("BEGIN IMMEDIATE")
    try:
        missing = range(_read_pragma(db, "user_version") + 1, SCHEMA_VERSION + 1)
        for number in track_progress("migrations", missing):
            _run_migration(db, number)
        for pragma in SIGNATURE_PRAGMAS:
            db.execute(pragma)
        db.execute("COMMIT")
        return missing
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _run_migration(db: sqlite3.Connection, number: int) -> None:
    for statement in _split_statements(_read_migration(number)):
        db.execute(statement)
    if number in BACKFILLS:
        BACKFILLS[number](db)


def _read_pragma(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


@cache
def _read_migration(number: int) -> str:
    (file,) = MIGRATIONS_FOLDER.glob(f"{number:04}_*.sql")
    return file.read_text(encoding="utf-8")


def _split_statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _backfill_names(db: sqlite3.Connection) -> None:
    """Index the ids of all items and the conversations of all routes."""
    for (name,) in db.execute("SELECT name FROM tenants").fetchall():
        t = TenantConnection.find(db, name)
        for n, body in t.fetch_all("SELECT n, body FROM items WHERE tenant = ?", t.tenant_number):
            tenant_rows.index_item_id(t, base.own_item_id(decode_json(body)), n)
        for node, item in t.fetch_all(
            "SELECT n, item FROM members JOIN nodes ON n = node WHERE members.tenant = ?", t.tenant_number
        ):
            if item is not None:
                tenant_rows.index_assigned_ids(t, node, item)
        for n, body in t.fetch_all(
            "SELECT n, body FROM repeated WHERE n IN (SELECT route FROM links WHERE tenant = ?)", t.tenant_number
        ):
            tenant_rows.index_route(t, decode_json(body), n)


BACKFILLS = {2: _backfill_names}
"""Functions that run after the statements of a migration, by its number."""


def request_vacuum(db: sqlite3.Connection) -> None:
    """Request a VACUUM: the transaction of this connection deletes rows."""
    db.execute("INSERT INTO traces (n) VALUES (random())")


def vacuum_if_requested(db: sqlite3.Connection) -> None:
    """Rewrite the file if a removal requested it.

    While another process writes, or without space for it, the request is kept for the next close.
    """
    with suppress(sqlite3.Error):
        requests = db.execute("SELECT n FROM traces").fetchall()
        if requests:
            db.execute("PRAGMA temp_store = FILE")  # a whole copy does not fit into memory
            # On SQLite 3.40 a deleted row of FTS5 survives secure_delete and a checkpoint; 'optimize' clears it.
            db.execute("INSERT INTO words (words) VALUES ('optimize')")
            db.execute("VACUUM")
            # Only the requests read above: another process may have added one during the VACUUM.
            db.executemany("DELETE FROM traces WHERE n = ?", requests)
            # VACUUM writes to the log: until a checkpoint the file still has the deleted texts.
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
