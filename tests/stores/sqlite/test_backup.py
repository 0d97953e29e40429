"""A backup is one snapshot and overwrites no file; the error of a failed one names the reason."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from convo.errors import InvalidUsage, StoreFault, StoreUnavailable
from convo.stores.sqlite.backup import backup_database, new_database
from convo.stores.sqlite.connection import migrate_schema
from tests.config.permissions import NOBODY

LARGE_TEXT = "x" * 100_000


def build_store(file: Path, *, page_size: int = 4096) -> Path:
    """Make a store with the tenants "a" and "large" (100 kB), without a log."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {page_size}")
        db.execute("PRAGMA journal_mode = WAL")
        migrate_schema(db)
        db.execute("INSERT INTO tenants (name) VALUES ('a'), (?)", (LARGE_TEXT,))
    return file


def tenants(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as db:
        return [name for (name,) in db.execute("SELECT name FROM tenants ORDER BY n")]


def test_a_backup_is_one_snapshot_although_another_process_writes(tmp_path: Path) -> None:
    """SQLite would start the copy again after each write."""
    file, target = build_store(tmp_path / "convo.db", page_size=512), tmp_path / "copy.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("INSERT INTO tenants (name) VALUES (?)", (LARGE_TEXT * 2,))
    before = tenants(file)

    def write_meanwhile(name: str, done: int, total: int) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as db:
            db.execute("INSERT INTO tenants (name) VALUES (?)", (f"written at {done}",))

    backup_database(file, target, write_meanwhile)
    assert tenants(target) == before
    assert len(tenants(file)) == len(before) + 2


def refuse(*arguments: object) -> int:
    raise OSError(95, "Operation not supported")


def remove_tmpfile(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(os, "O_TMPFILE")


def remove_copy_range(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(os, "copy_file_range")


def refuse_copy_range(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "copy_file_range", refuse)


def copy_a_part_and_refuse(patch: pytest.MonkeyPatch) -> None:
    """The first call copies too few bytes, the second none."""
    copy, calls = os.copy_file_range, list[int]()

    def copy_part(source: int, target: int, count: int, *offsets: int) -> int:
        calls.append(count)
        return copy(source, target, 5000, *offsets) if len(calls) == 1 else refuse()

    patch.setattr(os, "copy_file_range", copy_part)


def copy_in_parts(patch: pytest.MonkeyPatch) -> None:
    copy = os.copy_file_range
    patch.setattr(
        os, "copy_file_range", lambda source, target, count, *offsets: copy(source, target, min(count, 5000), *offsets)
    )


SYSTEMS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no unnamed files": remove_tmpfile,
    "no copies in the kernel": remove_copy_range,
    "refused copies in the kernel": refuse_copy_range,
    "copies in parts": copy_in_parts,
    "a copy that is refused after a part": copy_a_part_and_refuse,
}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("change", SYSTEMS.values(), ids=SYSTEMS)
def test_a_backup_is_complete_on_each_file_system(
    change: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, target = build_store(tmp_path / "convo.db"), tmp_path / "copy.db"
    change(monkeypatch)
    descriptors = os.listdir("/proc/self/fd")
    assert backup_database(file, target, lambda *_: None) == file.stat().st_size

    assert os.listdir("/proc/self/fd") == descriptors
    assert tenants(target) == ["a", LARGE_TEXT]
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["convo.db", "copy.db"]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("has_tmpfile", [True, False])
def test_a_target_that_appears_while_its_name_is_given_is_kept(
    has_tmpfile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_tmpfile:
        remove_tmpfile(monkeypatch)
    file, target = build_store(tmp_path / "convo.db"), tmp_path / "copy.db"

    def create_target(*_: object) -> None:
        target.write_text("kept")

    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(InvalidUsage) as caught:
        backup_database(file, target, create_target)
    assert os.listdir("/proc/self/fd") == descriptors
    assert caught.value.message == f"{target} already exists and is not overwritten"
    assert target.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["convo.db", "copy.db"]


@pytest.mark.needs("linux")
def test_an_error_of_the_file_system_is_reported_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, target = build_store(tmp_path / "convo.db"), tmp_path / "copy.db"
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreFault) as caught:
        backup_database(file, target, lambda *_: None)
    assert caught.value.message == f"{target} cannot be opened: Operation not supported"
    assert [path.name for path in tmp_path.iterdir()] == ["convo.db"]


@pytest.mark.needs("linux")
def test_the_copy_and_then_its_folder_are_synced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, target, synced = build_store(tmp_path / "convo.db"), tmp_path / "copy.db", list[tuple[str, bool]]()

    def record(descriptor: int) -> None:
        kind = "folder" if os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path) else "file"
        synced.append((kind, target.exists()))

    monkeypatch.setattr(os, "fsync", record)
    backup_database(file, target, lambda *_: None)
    assert synced == [("file", False), ("folder", True)]


def test_a_database_of_another_program_is_not_backed_up(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE theirs (a)")
    with pytest.raises(StoreUnavailable, match="is a database of another program"):
        backup_database(file, tmp_path / "copy.db", lambda *_: None)
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]


@contextmanager
def without_root_completely() -> Iterator[None]:
    """Run the block as the user `nobody`, also for `os.access`, which checks the real user."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.needs("linux")
def test_a_database_in_a_folder_without_write_access_is_backed_up() -> None:
    with TemporaryDirectory() as name:
        folder, writable = Path(name, "store"), Path(name, "writable")
        folder.mkdir()
        writable.mkdir()
        file = build_store(folder / "convo.db")
        for path, mode in ((Path(name), 0o755), (file, 0o644), (folder, 0o555), (writable, 0o777)):
            path.chmod(mode)
        with without_root_completely():
            backup_database(file, writable / "copy.db", lambda *_: None)
            assert tenants(writable / "copy.db") == ["a", LARGE_TEXT]
        assert [path.name for path in folder.iterdir()] == ["convo.db"]


def test_a_link_to_a_missing_file_counts_as_an_existing_target(tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.symlink_to(tmp_path / "missing")
    with pytest.raises(InvalidUsage), new_database(target):
        pytest.fail("the block must not run")
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_database_is_discarded_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable), new_database(tmp_path / "copy.db") as db:
        db.execute("DROP TABLE missing")
    assert list(tmp_path.iterdir()) == []
