"""One connection to one file, in a thread of its own.

SQLite waits for disks and locks, and an event loop must not. So every job runs in the one thread
that owns the connection, one after the other, in a transaction: a read sees one state of the file,
a write is `BEGIN IMMEDIATE` and so waits for its turn before it has read anything. Jobs that wait
at the same time share a transaction, and so one wait for the disk; if one of them fails, all are
done again, each in its own. A command that asks once and has nothing else to do needs neither
thread nor loop: inline, every job is done where it is asked for.

Nothing is made before something is written. Until then every read finds an empty store.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from convo.errors import StoreFull, StoreUnavailable
from convo.stores.sqlite import schema, traces
from convo.stores.sqlite.faults import busy, is_full, translated
from convo.stores.sqlite.lane import Job, Lane, Waiting
from convo.stores.upkeep import Observe, not_observed

Result = TypeVar("Result")
Synchronous = Literal["FULL", "NORMAL", "OFF"]

Identity: TypeAlias = tuple[int, int]
"""What tells a file from another one of its name: its device and its inode."""

AGAIN_S = 0.01

ROOM = 8_000_000
"""Bytes that a disk must have left before a model is asked: SQLite's log grows to 4 MB before it is written back,
and an answer goes through it."""


class Database:
    """A file that is opened when it is needed.

    busy_timeout_s:  how long a write waits for another process
    synchronous:     "FULL" makes a commit durable when it returns; anything else is for tests
    inline:          do every job in the caller's thread, without an event loop
    """

    def __init__(
        self,
        file: Path,
        *,
        busy_timeout_s: float = 5.0,
        synchronous: Synchronous = "FULL",
        inline: bool = False,
    ) -> None:
        self.file = file
        self.observe: Observe = not_observed
        self._wait_s, self._synchronous = busy_timeout_s, synchronous
        self._db: sqlite3.Connection | None = None
        self._nothing: sqlite3.Connection | None = None
        self._opened: Identity | None = None
        self._log: Identity | None = None
        self._lane = None if inline else Lane(self._together)
        self._closed = False
        self._ran: Sequence[int] = ()

    async def read(self, job: Job[Result]) -> Result:
        """What `job` finds, in one state of the file. raises: StoreFault"""
        return await self._done(Waiting(job, writes=False, create=False))

    async def write(self, job: Job[Result], *, create: bool = True) -> Result:
        """Do `job` whole or not at all; it is durable when this returns. It may be done twice, the first time in vain.

        create:  whether to make the file; without it a job on no file finds an empty store
        raises:  StoreFault, and what `job` raises
        """
        return await self._done(Waiting(job, writes=True, create=create))

    async def migrate(self) -> Sequence[int]:
        """The numbers of the migrations that this call ran. raises: StoreFault"""
        there = self._db is not None
        await self.write(lambda db: None)
        return () if there else self._ran

    async def aclose(self) -> None:
        if self._closed:
            return
        if self._lane is None:
            self._close()
        else:
            await self._lane.last(self._close)

    async def _done(self, one: Waiting[Result]) -> Result:
        if self._closed:
            raise StoreUnavailable(f"{self.file} was closed")
        begun = time.perf_counter()
        try:
            return self._alone(one) if self._lane is None else await self._lane.done(one)
        finally:
            self.observe(time.perf_counter() - begun)

    # -- in the thread ----------------------------------------------------------------------------

    def _together(self, group: Sequence[Waiting[Any]]) -> None:
        """Do all jobs in one transaction, which is one wait for the disk; each in its own if that cannot be."""
        if len(group) > 1 and self._in_one(group):
            return
        for one in group:
            try:
                one.result = self._alone(one)
            except BaseException as wrong:  # noqa: BLE001 - raised again where somebody waits for it
                one.wrong = wrong

    def _in_one(self, group: Sequence[Waiting[Any]]) -> bool:
        """Whether every job went well, so that the transaction stands."""
        if self._db is None:
            return False
        try:
            if self._is_moved():
                return False
            with translated(self.file), self._transaction(self._db, writes=group[0].writes):
                results = [one.job(self._db) for one in group]
        except BaseException:  # noqa: BLE001 - each is done again, and tells by itself
            return False
        for one, result in zip(group, results, strict=True):
            one.result = result
        return True

    def _alone(self, one: Waiting[Result]) -> Result:
        with translated(self.file):
            if self._db is not None and self._is_moved():
                self._leave()
            if self._db is None and not one.create and not self.file.exists():
                return self._on_nothing(one)
            if self._db is None:
                try:
                    self._db = self._open()
                except (sqlite3.Error, OSError) as wrong:
                    if one.writes or not is_full(wrong, self.file) or not self.file.exists():
                        raise
                    return self._read_only(one)
                self._opened = identity(self.file)
            with self._transaction(self._db, writes=one.writes):
                found = one.job(self._db)
            self._log = self._log or identity(_log_of(self.file))
            return found

    def _read_only(self, one: Waiting[Result]) -> Result:
        """What a job finds where the disk has no room for a log: in the file as it is, with the log that is there."""
        log = _log_of(self.file)
        if log.exists() and log.stat().st_size:
            how, pragma = "mode=rw", "locking_mode = EXCLUSIVE"  # so that the log needs no memory shared through a file
        else:
            how, pragma = "mode=ro&immutable=1", "query_only = ON"
        with closing(sqlite3.connect(f"{self.file.absolute().as_uri()}?{how}", uri=True, isolation_level=None)) as db:
            db.execute(f"PRAGMA {pragma}").fetchall()
            schema.check(db, self.file)
            with self._transaction(db, writes=False):
                return one.job(db)

    def _on_nothing(self, one: Waiting[Result]) -> Result:
        """What a job finds in an empty store; one serves all that only look."""
        if one.writes:
            with closing(_empty()) as db:
                return one.job(db)
        self._nothing = self._nothing or _empty()
        return one.job(self._nothing)

    def _is_moved(self) -> bool:
        """Whether the file, or its log, is not the one that was opened: what is written there has no name.

        raises:  StoreUnavailable  there is no file. It may come back, so the connection stays open
        """
        there = identity(self.file)
        if there is None:
            raise StoreUnavailable(
                f"{self.file} was deleted while it was in use",
                hint="restore the file or a backup of it, or create an empty one: convo store migrate",
            )
        if there != self._opened:
            return True
        return self._log is not None and identity(_log_of(self.file)) != self._log

    def _leave(self) -> None:
        """Close a connection whose file has moved, so that the next job opens what is there now.

        Where the log alone was deleted, closing writes what it held into the file. A log that belongs to a file
        that is gone would be taken for the new one's, so it goes.
        """
        assert self._db
        replaced = identity(self.file) != self._opened
        stale = _log_of(self.file)
        with suppress(sqlite3.Error):
            self._db.close()
        if replaced and self._log is not None and identity(stale) == self._log:
            for left in (stale, Path(f"{self.file}-shm")):
                with suppress(FileNotFoundError):
                    left.unlink()
        self._db = self._log = None

    def size(self) -> int:
        """Bytes of the file and its log; 0 where there is none."""
        found = 0
        for one in (self.file, _log_of(self.file)):
            with translated(self.file), suppress(FileNotFoundError):
                found += one.stat().st_size
        return found

    def check_room(self) -> None:
        """Make sure that the disk has room for an answer. raises: StoreFull"""
        there = next((folder for folder in self.file.absolute().parents if folder.exists()), Path("/"))
        with translated(self.file):
            found = os.statvfs(there)
        free = found.f_bavail * found.f_frsize
        if free < ROOM:
            raise StoreFull(
                f"the disk of {self.file} has {free / 1e6:.1f} MB left, and a turn may need {ROOM / 1e6:.0f} MB",
                hint="free some space and retry; no request was sent",
            )

    @contextmanager
    def _transaction(self, db: sqlite3.Connection, *, writes: bool) -> Iterator[None]:
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
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
        make_private(self.file)
        db = sqlite3.connect(_uri(self.file), uri=True, timeout=self._wait_s, isolation_level=None)
        try:
            self._patiently(lambda: self._prepare(db))
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        schema.check(db, self.file)
        db.execute(f"PRAGMA page_size = {schema.PAGE}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")  # else what a statement could undo goes through a file
        self._ran = schema.migrate(db)

    def _patiently(self, work: Callable[[], None]) -> None:
        """Repeat what SQLite refuses without waiting: two processes that make one file at once."""
        until = time.monotonic() + self._wait_s
        while True:
            try:
                return work()
            except sqlite3.OperationalError as wrong:
                if not busy(wrong) or time.monotonic() > until:
                    raise
                time.sleep(AGAIN_S)

    def _close(self) -> None:
        self._closed = True
        if self._nothing is not None:
            self._nothing.close()
        if self._db is not None:
            with translated(self.file), closing(self._db):
                traces.clear(self._db)


def _log_of(file: Path) -> Path:
    return Path(f"{file}-wal")


def identity(file: Path) -> Identity | None:
    """What tells this file from another one of its name; None when there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def make_private(file: Path) -> None:
    """Make `file`, and the folders it lacks, so that only their owner can read them."""
    missing = [folder for folder in file.parents if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    if not file.exists() or not file.stat().st_size:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)


def _uri(file: Path) -> str:
    """How to open `file`. Where its folder takes no log beside it, it is read as it stands."""
    if os.access(file.parent, os.W_OK) or Path(f"{file}-wal").exists():
        return file.absolute().as_uri()
    return f"{file.absolute().as_uri()}?mode=ro&immutable=1"


def _empty() -> sqlite3.Connection:
    """A store with nothing in it."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(db)
    return db
