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

READ_AND_WRITE = """
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
def user_folder() -> Iterator[File]:
    """A folder that a user without root's privileges owns."""
    with TemporaryDirectory() as name:
        folder = File(name) / "store"
        folder.mkdir()
        give_to_nobody(File(name), folder)
        yield folder
        folder.chmod(0o755)


@pytest.fixture
async def file(user_folder: File) -> File:
    """A store with one session that the same user owns."""
    path = user_folder / "convo.db"
    store = SqliteStore(SqliteDatabase(path))
    await store.commit(Transaction(session=session()))
    await store.aclose()
    give_to_nobody(path)
    return path


def give_to_nobody(*paths: File) -> None:
    if os.getuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)


def read_and_write(file: File) -> list[str]:
    """Read and then write as a user other than root. Returns the printed results."""
    result = subprocess.run(
        [sys.executable, "-c", READ_AND_WRITE, str(file)], stdout=subprocess.PIPE, text=True, check=True
    )
    return result.stdout.splitlines()


def test_a_read_only_file_can_be_read_and_a_write_is_refused(file: File) -> None:
    file.chmod(0o400)

    assert read_and_write(file) == ["done 1", f"StoreReadOnly {file} is read-only"]


def test_a_read_only_folder_can_be_read_and_a_write_is_refused(file: File) -> None:
    file.parent.chmod(0o500)

    assert read_and_write(file) == ["done 1", f"StoreReadOnly {file} is read-only"]
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_without_write_access_is_an_empty_store_and_a_write_is_refused(user_folder: File) -> None:
    user_folder.chmod(0o500)
    file, subfolder = user_folder / "convo.db", user_folder / "deeper"

    assert read_and_write(file) == ["done 0", f"StoreReadOnly {file} cannot be written"]
    assert read_and_write(subfolder / "convo.db") == ["done 0", f"StoreReadOnly {subfolder} cannot be written"]


def test_an_unreadable_file_is_reported(file: File) -> None:
    file.chmod(0)

    assert read_and_write(file) == [f"StoreUnavailable {file} cannot be used: unable to open database file"] * 2
