"""A look at a database's file and disk, which changes neither."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from convo.errors import StoreReadOnly, StoreTooNew, StoreUnavailable
from convo.stores.base import FileHealth
from convo.stores.factory import open_store, probe_store
from convo.stores.sqlite.check import filesystem_type
from convo.stores.sqlite.connection import SCHEMA_VERSION
from tests.config.permissions import without_root
from tests.stores.test_tenants import everything

MOUNTS = r"""
22 27 0:21 / / rw,relatime - ext4 /dev/sda rw
23 27 0:22 / /home rw,relatime shared:5 - nfs4 server:/home rw
24 27 0:6 / /home/me/with\040space rw - tmpfs tmpfs rw
25 27 0:6 / /homes rw - xfs /dev/sdb rw
""".strip()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/convo", "nfs4"),
        ("/home/me/with space/x", "tmpfs"),
        ("/homes/me", "xfs"),
        ("/homely", "ext4"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert filesystem_type(Path(folder), MOUNTS) == kind
    assert filesystem_type(Path(folder), "") == ""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with something in it, closed."""
    return filled(tmp_path / "convo.db")


def filled(file: Path) -> Path:
    async def fill() -> None:
        store = open_store(f"sqlite:{file}")
        await store.commit(everything("local"))
        await store.aclose()

    asyncio.run(fill())
    return file


def seen(file: Path) -> FileHealth:
    found = asyncio.run(probe_store(f"sqlite:{file}"))
    assert isinstance(found, FileHealth)
    return found


def sign(file: Path, number: int) -> bytes:
    """Let the file say that this migration was its last; what is in it then."""
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA user_version = {number}")
    return file.read_bytes()


def test_a_check_reports_the_schema_and_the_free_space(file: Path) -> None:
    found = seen(file)

    assert (found.schema_version, found.latest_schema_version) == (SCHEMA_VERSION, SCHEMA_VERSION)
    assert [path.name for path in file.parent.iterdir()] == ["convo.db"]


def test_a_check_does_not_migrate_an_older_schema(file: Path) -> None:
    before = sign(file, SCHEMA_VERSION - 1)
    found = seen(file)

    assert (found.schema_version, found.latest_schema_version) == (SCHEMA_VERSION - 1, SCHEMA_VERSION)
    assert file.read_bytes() == before


def test_a_newer_schema_is_refused(file: Path) -> None:
    sign(file, SCHEMA_VERSION + 1)
    with pytest.raises(StoreTooNew):
        seen(file)


def test_a_check_creates_no_file(tmp_path: Path) -> None:
    found = seen(tmp_path / "not/yet/convo.db")

    assert found.schema_version is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "said"), [("folder", "is a folder, not a database"), ("words", "is not a database")])
def test_a_file_that_is_no_database_is_reported(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "words").write_text("not a database at all " * 100)
    with pytest.raises(StoreUnavailable, match=said):
        seen(tmp_path / name)


def test_a_read_only_file_is_distinguished_from_a_writable_one() -> None:
    """In a folder that takes files: there the folder tells nothing."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        file = filled(Path(folder, "convo.db"))
        file.chmod(0o444)
        with without_root(), pytest.raises(StoreReadOnly, match=r"convo\.db is read-only"):
            seen(file)
        file.chmod(0o666)
        with without_root():
            assert seen(file).schema_version == SCHEMA_VERSION


def test_a_store_in_memory_has_no_path() -> None:
    assert asyncio.run(probe_store("memory")) is None
