"""`convo store backup`: one complete file, even during writes of other processes, and no other files."""

import asyncio
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.cli.stored_chats import DATABASE, write_chats
from tests.cli.test_store_check import root_page, write_three_chats, zero_page
from tests.command_runner import Convo
from tests.stores.test_tenants import everything


def file_names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_backup_is_one_private_file_that_opens_as_a_database(
    convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chats(home, write_three_chats)
    sessions = convo("sessions", "--json").json()
    got = convo("store", "backup", "copy.db")

    copy = tmp_path / "copy.db"
    assert (got.exit, got.out.startswith(f"sqlite:{home / DATABASE}: copied to copy.db, ")) == (0, True)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert file_names(tmp_path) == ["copy.db", "home"]
    assert convo("store", "check", "--store", "sqlite:copy.db").exit == 0
    monkeypatch.setenv("CONVO_STORE", "sqlite:copy.db")
    assert convo("sessions", "--json").json() == sessions
    assert convo("chat", "-m", "scripted/echo", "--from", "monads", "on").out == "on\n"


def test_json_prints_the_result_of_a_backup(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, write_three_chats)
    result = convo("store", "backup", "copy.db", "--json").json()

    size = (tmp_path / "copy.db").stat().st_size
    assert result == {"store": f"sqlite:{home / DATABASE}", "file": "copy.db", "bytes": size, "command": None}


def test_data_in_the_write_ahead_log_is_in_the_backup(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, write_three_chats)
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("UPDATE sessions SET name = 'renamed' WHERE name = 'tea'")
        assert b"renamed" not in (home / DATABASE).read_bytes()
        assert convo("store", "backup", "copy.db").exit == 0

    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        assert ("renamed",) in db.execute("SELECT name FROM sessions").fetchall()


@pytest.mark.parametrize("kind", ["a file", "a folder", "a link to nothing"])
def test_an_existing_file_is_never_overwritten(kind: str, convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, write_three_chats)
    target = tmp_path / "copy.db"
    if kind == "a file":
        target.write_text("mine")
    elif kind == "a folder":
        target.mkdir()
    else:
        target.symlink_to("nowhere")
    got = convo("store", "backup", "copy.db")

    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith("convo: copy.db already exists and is not overwritten")
    assert file_names(tmp_path) == ["copy.db", "home"]
    assert kind != "a file" or target.read_text() == "mine"


def test_a_damaged_database_is_not_backed_up(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, write_three_chats)
    zero_page(home / DATABASE, root_page(home / DATABASE, "links"))
    got = convo("store", "backup", "copy.db")

    assert (got.exit, got.out) == (1, "")
    assert "is damaged" in got.err
    assert f"convo store recover NEW.db --store sqlite:{home / DATABASE}" in got.err
    assert file_names(tmp_path) == ["home"]


@pytest.mark.parametrize("target", ["nowhere/copy.db", "home/data/convo.db/copy.db"])
def test_a_missing_folder_is_reported(target: str, convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo("store", "backup", target)

    assert (got.exit, got.out) == (1, "")
    assert got.err.startswith(f"convo: {target} cannot be opened: ")
    assert got.err.endswith("\n  try: name a file in a folder that exists\n")


def test_without_a_database_there_is_nothing_to_back_up(convo: Convo, home: Path, tmp_path: Path) -> None:
    assert convo("store", "backup", "copy.db").exit == 5
    assert file_names(tmp_path) == []


@pytest.mark.needs("full disk")
def test_a_backup_on_a_full_disk_leaves_no_file(home: Path, tmp_path: Path) -> None:
    write_chats(home, write_three_chats)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    run = f"{limit}; from convo.cli import app; exit(app.run_command_line(['store', 'backup', 'copy.db']))"
    got = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)

    assert got.returncode == 1
    assert "free some space" in got.stderr
    assert file_names(tmp_path) == ["home"]


# -- concurrent writes, and kills -----------------------------------------------------------------

WRITER = """
import asyncio, sys
from pathlib import Path as File
from convo.history.tree import Path, root_key
from convo.history.items import user_message
from convo.stores.base import Transaction, AppendItems
from convo.stores.sqlite.store import SqliteStore
from convo.stores.sqlite.connection import SqliteDatabase
from tests.stores.chat_transactions import session

async def main():
    store = SqliteStore(SqliteDatabase(File(sys.argv[1]), synchronous="OFF"))
    path, turn = Path(root_key("local")), 0
    while True:
        turn += 1
        grown = path.append([user_message(f"turn {turn} " * 20)])
        change = Transaction((AppendItems(path.head, grown.items[-1:]),), session=session(head=grown.head, name="busy"))
        await store.commit(change)
        path = grown if turn % 200 else Path(root_key("local"))
        if turn == 20:
            print("writing", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def writer(home: Path) -> Iterator[None]:
    """Run another process that writes continuously."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(home / DATABASE)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"writing\n"
        yield
        process.kill()


@pytest.mark.usefixtures("writer")
def test_a_backup_during_writes_of_another_process_is_a_consistent_snapshot(convo: Convo, tmp_path: Path) -> None:
    for number in range(3):
        assert convo("store", "backup", f"copy{number}.db").exit == 0
        result = convo("store", "check", "--json", "--store", f"sqlite:copy{number}.db").json()
        assert (result["ok"], result["problems"]) == (True, [])
    assert file_names(tmp_path) == ["copy0.db", "copy1.db", "copy2.db", "home"]


def create_large_database(home: Path, megabytes: int) -> None:
    """Create a database with a blob of this size in MiB."""

    async def write() -> None:
        store = SqliteStore(SqliteDatabase(home / DATABASE))
        await store.commit(everything("local"))
        await store.aclose()

    asyncio.run(write())
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as db:
        db.execute("INSERT INTO secrets VALUES ('large', zeroblob(?))", (megabytes * 2**20,))


def run_and_kill(argv: list[str], after_s: float) -> float:
    """Run a command and kill it after this time, unless it has ended; returns its duration in seconds."""
    script = "import sys; from convo.cli import app; print('up', flush=True); exit(app.run_command_line(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", script, *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        process.stdout.readline()
        start = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.kill()
        return time.monotonic() - start


def kill_backups(kills: int, home: Path, tmp_path: Path, convo: Convo) -> set[bool]:
    """Kill backups; returns the outcomes, True for a complete copy. The first one may run for 60 seconds."""
    create_large_database(home, 60)
    outcomes, full_duration_s = set(), 60.0
    for number in range(kills):
        copy = tmp_path / f"copy{number}.db"
        duration_s = run_and_kill(["store", "backup", copy.name], full_duration_s * (1 - number / kills))
        full_duration_s = duration_s if number == 0 else full_duration_s
        exists = copy.exists()
        assert set(file_names(tmp_path)) <= {"home", copy.name}
        if exists:
            with closing(sqlite3.connect(f"{copy.as_uri()}?immutable=1", uri=True)) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            copy.unlink()
        outcomes.add(exists)
    return outcomes


@pytest.mark.needs("linux")
def test_a_killed_backup_leaves_no_file_or_a_complete_one(home: Path, tmp_path: Path, convo: Convo) -> None:
    kill_backups(3, home, tmp_path, convo)


@pytest.mark.full
@pytest.mark.needs("linux")
def test_a_backup_killed_at_any_moment_leaves_no_file_or_a_complete_one(
    home: Path, tmp_path: Path, convo: Convo
) -> None:
    assert kill_backups(40, home, tmp_path, convo) == {True, False}


# -- PostgreSQL -----------------------------------------------------------------------------------


def test_for_a_server_the_backup_command_is_printed_without_a_password(convo: Convo) -> None:
    url = "postgresql://me:hush@db.example.com:6432/chats?sslmode=require&password=hush&application_name=x"
    got = convo("store", "backup", "my copy.dump", "--store", url)

    assert (got.exit, got.out) == (
        0,
        "pg_dump --format=custom --schema=convo --file='my copy.dump'"
        " 'postgresql://me@db.example.com:6432/chats?sslmode=require&application_name=x'\n",
    )
    assert "hush" not in got.err
    assert convo("store", "backup", "x", "--json", "--store", url).json()["command"].startswith("pg_dump ")
