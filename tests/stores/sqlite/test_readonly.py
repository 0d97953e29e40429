"""Databases without write access. Root may always write, so the tests run as another user."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path as File
from tempfile import TemporaryDirectory

import pytest

from convo.stores.base import Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import session

NOBODY = 65534

TRY = """
import asyncio, os, sqlite3, sys
from pathlib import Path
from convo.errors import ConvoError
from convo.stores.base import Transaction
from convo.stores.sqlite.store import SqliteStore
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.connection import migrate_schema
from tests.stores.chat_transactions import session

async def main(store):
    for call in (store.sessions(), store.commit(Transaction(session=session(name="new")))):
        try:
            print("done", len(await call or ()))
        except ConvoError as wrong:
            print(type(wrong).__name__, wrong)
    await store.aclose()

migrate_schema(sqlite3.connect(":memory:", isolation_level=None))    # the package itself may lie where nobody can read
store = SqliteStore(SqliteDatabase(Path(sys.argv[1])))
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(main(store))
"""

pytestmark = pytest.mark.needs("posix")


@pytest.fixture
def place() -> Iterator[File]:
    """A folder that a user without root's privileges owns."""
    with TemporaryDirectory() as name:
        folder = File(name) / "store"
        folder.mkdir()
        hand_over(File(name), folder)
        yield folder
        folder.chmod(0o755)


@pytest.fixture
async def file(place: File) -> File:
    """A store with one session that the same user owns."""
    made = place / "convo.db"
    store = SqliteStore(SqliteDatabase(made))
    await store.commit(Transaction(session=session()))
    await store.aclose()
    hand_over(made)
    return made


def hand_over(*places: File) -> None:
    if os.getuid() == 0:
        for one in places:
            os.chown(one, NOBODY, NOBODY)


def tried(file: File) -> list[str]:
    """Read and then write as a user other than root. Returns the printed results."""
    ran = subprocess.run([sys.executable, "-c", TRY, str(file)], stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.splitlines()


def test_a_read_only_file_can_be_read_and_a_write_is_refused(file: File) -> None:
    file.chmod(0o400)

    assert tried(file) == ["done 1", f"StoreReadOnly {file} is read-only"]


def test_a_read_only_folder_can_be_read_and_a_write_is_refused(file: File) -> None:
    file.parent.chmod(0o500)

    assert tried(file) == ["done 1", f"StoreReadOnly {file} is read-only"]
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_without_write_access_is_an_empty_store_and_a_write_is_refused(place: File) -> None:
    place.chmod(0o500)
    file, deeper = place / "convo.db", place / "deeper"

    assert tried(file) == ["done 0", f"StoreReadOnly {file} cannot be written"]
    assert tried(deeper / "convo.db") == ["done 0", f"StoreReadOnly {deeper} cannot be written"]


def test_an_unreadable_file_is_reported(file: File) -> None:
    file.chmod(0)

    assert tried(file) == [f"StoreUnavailable {file} cannot be used: unable to open database file"] * 2
