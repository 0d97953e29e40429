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
from typing import Any, Literal, TypeVar

from convo.errors import StoreUnavailable
from convo.stores.sqlite import schema, traces
from convo.stores.sqlite.faults import busy, translated
from convo.stores.sqlite.lane import Job, Lane, Waiting

Result = TypeVar("Result")
Synchronous = Literal["FULL", "NORMAL", "OFF"]

PAGE = 4096
"""Bytes of a page, in a file that is made now. A change goes through the log in whole pages, some twenty of them."""

AGAIN_S = 0.01


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
        self._wait_s, self._synchronous = busy_timeout_s, synchronous
        self._db: sqlite3.Connection | None = None
        self._nothing: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
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
        if self._lane is not None:
            return await self._lane.done(one)
        return self._alone(one)

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
            self._check_there()
            with translated(self.file), self._transaction(self._db, writes=group[0].writes):
                results = [one.job(self._db) for one in group]
        except BaseException:  # noqa: BLE001 - each is done again, and tells by itself
            return False
        for one, result in zip(group, results, strict=True):
            one.result = result
        return True

    def _alone(self, one: Waiting[Result]) -> Result:
        with translated(self.file):
            if self._db is None and not one.create and not self.file.exists():
                return self._on_nothing(one)
            if self._db is None:
                self._db, self._opened = self._open(), identity(self.file)
            self._check_there()
            with self._transaction(self._db, writes=one.writes):
                return one.job(self._db)

    def _on_nothing(self, one: Waiting[Result]) -> Result:
        """What a job finds in an empty store; one serves all that only look."""
        if one.writes:
            with closing(_empty()) as db:
                return one.job(db)
        self._nothing = self._nothing or _empty()
        return one.job(self._nothing)

    def _check_there(self) -> None:
        """Nothing is kept in a file that has no name any more. raises: StoreUnavailable"""
        if identity(self.file) != self._opened:
            raise StoreUnavailable(
                f"{self.file} was deleted or replaced while it was in use",
                hint="put it back, or start again without it",
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
        db.execute(f"PRAGMA page_size = {PAGE}")
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


def identity(file: Path) -> tuple[int, int] | None:
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
