"""`convo store recover` recovers every readable row of a damaged file and reports on each session.

The damage is random and reproducible: `tests.stores.sqlite.file_damage` creates it.
"""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from convo.errors import ConvoError
from convo.history.items import Item, user_message
from convo.runtime import TEMPORARY_FILE_PREFIX, open_temporary_file
from convo.stores.base import RecoveryReport
from convo.stores.codec import encode_json
from convo.stores.factory import open_store
from convo.stores.sqlite import connection
from convo.stores.sqlite.check import check_database
from convo.stores.sqlite.recover import recover_database
from tests.command_runner import Convo
from tests.stores.chat_transactions import search_hits
from tests.stores.sample_store import fill_store
from tests.stores.sqlite.file_damage import PAGE_SIZE, damage_at_random, overwrite, recover_with_shell, rows_of
from tests.stores.sqlite.sample_database import build_database

Histories = dict[tuple[str, str], Sequence[Item]]

CHATS = (8, 24, 48)
"""The numbers of chats in the databases that are damaged."""


def no_progress(step: str, done: int, total: int) -> None:
    """Report no progress."""


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """`intact(chats)` is a database with its log, which no test may open."""

    @cache
    def build(chats: int) -> Path:
        file = tmp_path_factory.mktemp("intact") / "convo.db"
        build_database(file, chats)
        return file

    return build


@pytest.fixture
def file(intact: Callable[[int], Path], tmp_path: Path) -> Path:
    """A copy of a database, to be damaged."""
    return copy_database(intact(24), tmp_path / "damaged")


def copy_database(file: Path, folder: Path) -> Path:
    shutil.copytree(file.parent, folder)
    return folder / file.name


def histories(file: Path) -> Histories:
    async def read() -> Histories:
        result: Histories = {}
        with closing(sqlite3.connect(file)) as db:
            tenants = [name for (name,) in db.execute("SELECT name FROM tenants")]
        for tenant in tenants:
            store = open_store(f"sqlite:{file}", tenant=tenant)
            for one in await store.sessions():
                result[tenant, one.name] = (await store.path(one.head)).items
            await store.aclose()
        return result

    return asyncio.run(read())


def recover_and_check(file: Path, target: Path) -> RecoveryReport:
    """Recover a file. Asserts that it is unchanged and that the new database passes every check."""
    before = {path.name: path.read_bytes() for path in sorted(file.parent.iterdir())}
    report = recover_database(file, target, no_progress)
    assert {path.name: path.read_bytes() for path in sorted(file.parent.iterdir())} == before
    assert check_database(target, no_progress).problems == []
    return report


class Recovery(NamedTuple):
    """A damaged file, the file before, the new database, the report, and how the file was damaged."""

    original: Path
    damaged: Path
    target: Path
    report: RecoveryReport
    damage: str


@pytest.fixture(scope="module")
def recovery(intact: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Recovery]:
    """`recovery(number)` recovers the file that is damaged by this number, once for all tests."""

    @cache
    def recover(number: int) -> Recovery:
        folder, source = tmp_path_factory.mktemp("recovery"), intact(CHATS[number % len(CHATS)])
        original, damaged = copy_database(source, folder / "original"), copy_database(source, folder / "damaged")
        damage = damage_at_random(damaged, number)
        return Recovery(original, damaged, folder / "new.db", recover_and_check(damaged, folder / "new.db"), damage)

    return recover


# -- random damage --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [*range(6), *(pytest.param(n, marks=pytest.mark.full) for n in range(6, 120))])
def test_intact_histories_are_unchanged_and_damaged_ones_are_cut_at_the_first_gap(
    number: int, recovery: Callable[[int], Recovery]
) -> None:
    found = recovery(number)
    restored, original = histories(found.target), histories(found.original)
    by_name = {name: items for (_, name), items in original.items()}  # the name of a tenant can be lost
    for one in found.report.complete_sessions:
        assert restored[one] == by_name[one.name]
    for tenant, session, items, rest, rest_items in found.report.truncated_sessions:
        part = restored[tenant, session]
        before = by_name.get(session) or max(  # its name was lost with its record
            by_name.values(), key=lambda items: sum(one in items for one in part)
        )
        assert (len(part), len(restored[tenant, rest]) if rest else 0) == (items, rest_items)
        assert part == before[:items] or not rest  # its start is lost
        for readable in (part, restored[tenant, rest] if rest else []):
            own = [one for one in readable if one in before]
            # a damaged last node can name another item of the history: no node after it shows which is right
            assert is_part(own, before) or is_part(own[:-1], before)
    stored = {body for (body,) in rows_of(found.target)["items"]}
    readable_items = {encode_json(item) for items in restored.values() for item in items}
    for item in (encode_json(item) for items in original.values() for item in items):
        assert item.encode() not in stored or item in readable_items


def is_part(part: Sequence[Item], items: Sequence[Item]) -> bool:
    """Return whether `part` is among `items`, in the same order."""
    rest = iter(items)
    return all(any(one == other for other in rest) for one in part)


@pytest.mark.needs("sqlite3")
@pytest.mark.parametrize("number", range(6))
def test_no_fewer_rows_are_recovered_than_by_the_sqlite_shell(
    number: int, recovery: Callable[[int], Recovery], tmp_path: Path
) -> None:
    found = recovery(number)
    original, ours, theirs = rows_of(found.original), rows_of(found.target), recover_with_shell(found.damaged, tmp_path)
    for table, rows in original.items():
        assert (rows & ours[table]).total() >= (rows & theirs[table]).total(), (table, found.damage)


# -- lost pages -----------------------------------------------------------------------------------


def test_an_intact_file_is_copied_completely(file: Path, tmp_path: Path) -> None:
    report = recover_and_check(file, tmp_path / "new.db")

    assert report.is_complete
    assert histories(tmp_path / "new.db") == histories(file)
    assert dump(tmp_path / "new.db") == dump(file)


def dump(file: Path) -> list[tuple[object, ...]]:
    """Return the rows of every table that is copied unchanged: not the search index, leases or traces."""
    with closing(sqlite3.connect(file)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        copied_tables = [name for name in tables if not name.startswith(("words", "leases", "traces", "sqlite_"))]
        return [(name, *row) for name in copied_tables for row in sorted(db.execute(f"SELECT * FROM {name}"), key=repr)]


@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize("lost_bytes", [100, PAGE_SIZE])
def test_no_row_needs_the_header_the_schema_or_a_page_that_leads_to_others(
    lost_bytes: int, has_log: bool, file: Path, tmp_path: Path
) -> None:
    original = copy_database(file, tmp_path / "original")
    if not has_log:
        checkpoint(file)
    for number in range(1, os.path.getsize(file) // PAGE_SIZE):
        offset = number * PAGE_SIZE
        if file.read_bytes()[offset : offset + 1] == b"\x05":  # an interior page of a table
            overwrite(file, offset, bytes(PAGE_SIZE))
    overwrite(file, 0, bytes(lost_bytes))

    assert not recover_and_check(file, tmp_path / "new.db").truncated_sessions
    assert histories(tmp_path / "new.db") == histories(original)
    assert rows_of(tmp_path / "new.db") == rows_of(original)


def checkpoint(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def test_a_session_without_its_row_is_created_again_from_its_responses(file: Path, tmp_path: Path) -> None:
    original = histories(copy_database(file, tmp_path / "original"))
    with closing(sqlite3.connect(file)) as db:
        db.execute("DELETE FROM sessions WHERE name = 'chat 2'")
        db.commit()
    report = recover_and_check(file, tmp_path / "new.db")

    (recreated,) = report.recreated_sessions
    assert histories(tmp_path / "new.db")[recreated] == original["local", "chat 2"]


def test_the_deleted_sessions_of_free_pages_are_not_restored(file: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'items'").fetchone()
    checkpoint(file)
    overwrite(file, (root - 1) * PAGE_SIZE, bytes(PAGE_SIZE))
    recover_and_check(file, tmp_path / "new.db")

    with closing(sqlite3.connect(tmp_path / "new.db")) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sessions WHERE record IS NOT NULL")}
    assert len(names) == 21
    assert not {"chat 3", "chat 9", "chat 15"} & names


def test_an_empty_store_is_recovered_empty(tmp_path: Path) -> None:
    source, target = tmp_path / "empty.db", tmp_path / "new.db"
    with closing(sqlite3.connect(source, isolation_level=None)) as db:
        connection.migrate_schema(db)

    assert not any(recover_database(source, target, no_progress).row_counts.values())
    assert target.exists()


def test_a_file_of_an_older_schema_is_recovered(file: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("DROP INDEX sessions_by_use")
        db.execute("ALTER TABLE sessions DROP COLUMN used")
        db.execute("PRAGMA user_version = 3")
    report = recover_and_check(file, tmp_path / "new.db")

    assert (report.is_complete, len(report.complete_sessions)) == (True, 21)


# -- single rows ----------------------------------------------------------------------------------

DAMAGED_ROWS = {
    "UPDATE links SET status = 'x' WHERE n = 2": (["response resp_3: its status is invalid"], []),
    "UPDATE links SET usage = '' WHERE n = 2": (["response resp_3: its usage is invalid"], []),
    "UPDATE repeated SET body = '{' WHERE body LIKE '%conv_1%'": (
        ["response resp_2: its route is not valid JSON", "response resp_3: its route is not valid JSON"],
        [],
    ),
    "UPDATE sessions SET record = '{' WHERE n = 2": (["session late: its record is not valid JSON"], []),
    "UPDATE conversations SET metadata = '[]'": (["conversation conv_1: its metadata is invalid"], []),
    "UPDATE agent_calls SET output = '{'": (["tool call run_1 call_1: it contains invalid JSON"], []),
    "UPDATE agent_runs SET status = 'x'": ([], ["run run_1: its status is invalid"]),
    "DELETE FROM agent_documents": ([], ["run run_1: its document is missing"]),
    "UPDATE events SET body = '{'": (
        [],
        ["event of resp_2: its body is not valid JSON", "event of resp_3: its body is not valid JSON"],
    ),
    "UPDATE approval_decisions SET body = '[]'": ([], ["decision of run_1: its body is invalid"]),
    "UPDATE links SET (saw, head) = (90, 91) WHERE n = 2": ([], ["response resp_3: its input is missing"]),
    "UPDATE sessions SET head = 99 WHERE n = 2": ([], []),  # reported as a session
}


@pytest.mark.parametrize(("damage", "rows"), DAMAGED_ROWS.items(), ids=DAMAGED_ROWS)
def test_damaged_rows_are_listed_by_the_check_and_by_the_recovery(
    damage: str, rows: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "store" / "convo.db"
    file.parent.mkdir()
    fill_store(f"sqlite:{file}")
    with closing(sqlite3.connect(file)) as db:
        db.executescript(damage)
    checked, result = check_database(file, no_progress), recover_and_check(file, tmp_path / "new.db")

    repaired, omitted = (
        [f"{row.table} {row.key}: {row.problem}" for row in found]
        for found in (result.repaired_rows, result.omitted_rows)
    )
    assert (repaired, omitted) == rows
    found = [f"{row.table} {row.key}: {row.problem}" for row in checked.damaged_rows]
    assert sorted(found) == sorted([*repaired, *omitted]) or result.truncated_sessions


GAPS = {
    "DELETE FROM items WHERE n = 2": ("late 1 late-rest 1", ["one", "three"]),
    "DELETE FROM nodes WHERE n = 3": ("late 1  0", ["three"]),
    "UPDATE items SET body = replace(body, 'two', 'TWO') WHERE n = 2": (
        "late 1 late-rest 2",
        ["one", "TWO", "three"],
    ),
    "UPDATE nodes SET key = zeroblob(32) WHERE n = 4": ("late 2 late-rest 1", ["one", "two", "three"]),
    "UPDATE sessions SET head = 99 WHERE n = 2": ("late 3  0", ["one", "two", "three"]),
    "DELETE FROM items WHERE n = 1": ("late 2  0", ["two", "three"]),
}


@pytest.mark.parametrize(("damage", "expected"), GAPS.items(), ids=GAPS)
def test_a_session_is_cut_at_a_gap_and_the_items_after_it_become_another_session(
    damage: str, expected: tuple[str, list[str]], tmp_path: Path
) -> None:
    file, target = tmp_path / "store" / "convo.db", tmp_path / "new.db"
    file.parent.mkdir()
    fill_store(f"sqlite:{file}")
    with closing(sqlite3.connect(file)) as db:
        db.executescript(damage)
    report, restored = recover_and_check(file, target), histories(target)

    (late,) = [one for one in report.truncated_sessions if one.name == "late"]
    assert " ".join(map(str, late[1:])) == expected[0]
    items = [*restored["local", "late"], *(restored["local", late.rest_name] if late.rest_name else [])]
    assert items == [user_message(text) for text in expected[1]]
    is_rest = [name.endswith("-rest") for _, name in restored]
    assert is_rest == sorted(is_rest)  # at the end of the order of use: @last and -c mean another session


def test_items_that_are_in_no_history_become_a_session(tmp_path: Path) -> None:
    file, target = tmp_path / "store" / "convo.db", tmp_path / "new.db"
    file.parent.mkdir()
    fill_store(f"sqlite:{file}")
    with closing(sqlite3.connect(file)) as db:
        db.executescript("DELETE FROM nodes; DELETE FROM sessions; DELETE FROM links; DELETE FROM tenants")
    report = recover_and_check(file, target)

    assert report.recreated_sessions == [("local", "recovered-items")]
    items = [user_message(text) for text in ("one", "two", "three")]
    assert list(histories(target)["local", "recovered-items"]) == items


async def test_recovered_rows_are_found_by_their_ids(tmp_path: Path) -> None:
    file = tmp_path / "convo.db"
    await asyncio.to_thread(fill_store, f"sqlite:{file}")
    with closing(sqlite3.connect(file)) as db:
        db.executescript("DELETE FROM names")
    recover_database(file, tmp_path / "new.db", no_progress)
    store = open_store(f"sqlite:{tmp_path / 'new.db'}")

    assert await store.item("b") == user_message("two")
    assert [one.id for one in await store.conversation_links("conv_1")] == ["resp_2", "resp_3"]
    assert [hit.owner for hit in await search_hits(store, "three")] == ["late", "conv_1"]
    await store.aclose()


# -- the command ----------------------------------------------------------------------------------


def make_foreign_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE notes (words)")
        db.execute("INSERT INTO notes VALUES ('not of convo')")
        db.commit()


FOREIGN_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (lambda file: None, "no database '{file}'"),
    "no database": (lambda file: file.write_bytes(b"root:x:0:0:" * 999), "{file} contains no rows of convo"),
    "another program's database": (make_foreign_database, "{file} contains no rows of convo"),
    "an empty file": (lambda file: file.write_bytes(b""), "{file} contains no rows of convo"),
    "a pipe": (os.mkfifo, "{file} is not a regular file"),
    "a folder": (lambda file: file.mkdir(), "{file} is not a regular file"),
}


@pytest.mark.parametrize("kind", FOREIGN_FILES)
def test_a_file_without_rows_of_convo_is_refused_and_nothing_is_written(kind: str, tmp_path: Path) -> None:
    source, target = tmp_path / "odd.db", tmp_path / "new.db"
    make, message = FOREIGN_FILES[kind]
    make(source)

    with pytest.raises(ConvoError) as caught:
        recover_database(source, target, no_progress)
    assert caught.value.message.startswith(message.format(file=source))
    assert caught.value.hint == "name the file with --store sqlite:PATH"
    assert set(tmp_path.iterdir()) <= {source}


def test_the_command_lists_each_session_and_writes_one_private_file(file: Path, tmp_path: Path, convo: Convo) -> None:
    with closing(sqlite3.connect(file)) as db:
        (item,) = db.execute("SELECT max(item) FROM sessions JOIN nodes ON nodes.n = head").fetchone()
        db.execute("DELETE FROM items WHERE n = ?", (item,))
        db.commit()
    got = convo("store", "recover", "new.db", "--store", f"sqlite:{file}")

    assert got.exit == 1
    statuses = [line.split()[0] for line in got.out.splitlines()]
    assert (set(statuses), len(statuses)) == ({"complete", "truncated"}, 21)
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    assert convo("store", "check", "--store", "sqlite:new.db").exit == 0
    report = convo("store", "recover", "again.db", "--store", f"sqlite:{file}", "--json").json()
    assert (report["ok"], len(report["sessions"]["cut"])) == (False, statuses.count("truncated"))


def test_an_intact_database_is_recovered_with_exit_0_and_no_file_is_overwritten(
    file: Path, tmp_path: Path, convo: Convo
) -> None:
    assert convo("store", "recover", "new.db", "--store", f"sqlite:{file}").exit == 0
    before = (tmp_path / "new.db").read_bytes()
    for target in ("new.db", str(file)):
        got = convo("store", "recover", target, "--store", f"sqlite:{file}")
        assert (got.exit, got.out) == (2, "")
    assert (tmp_path / "new.db").read_bytes() == before


def test_recovery_of_a_server_is_refused(convo: Convo) -> None:
    got = convo("store", "recover", "new.db", "--store", "postgresql://me:hush@host/db")

    assert (got.exit, got.out, "hush" in got.err) == (2, "", False)
    assert "pg_restore" in got.err


# -- kills ----------------------------------------------------------------------------------------

RECOVER_SCRIPT = """
import sys
from pathlib import Path
from convo.stores.sqlite.recover import recover_database
print("up", flush=True)
recover_database(Path(sys.argv[1]), Path(sys.argv[2]), lambda *_: None)
"""


def kill_recovery(file: Path, target: Path, after_s: float) -> bool:
    """Kill a recovery after this time. Returns whether it left a complete file.

    It leaves nothing else but the empty name of its copy, if it was killed in the microseconds in which SQLite opens
    that; the next recovery removes the name.
    """
    folder = target.parent
    with subprocess.Popen(
        [sys.executable, "-c", RECOVER_SCRIPT, str(file), str(target)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.kill()
    for path in folder.glob(f"{TEMPORARY_FILE_PREFIX}*"):
        assert path.stat().st_size == 0
        descriptor, other = open_temporary_file(folder)
        os.close(descriptor)
        other.unlink()
    files = [path.name for path in folder.iterdir()]
    assert files in ([], [target.name])
    if files:
        assert check_database(target, no_progress).problems == []
        target.unlink()
    return bool(files)


@pytest.mark.needs("linux")
def test_a_killed_recovery_leaves_no_file_or_a_complete_one(file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for after_s in (0.02, 0.15):
        kill_recovery(file, tmp_path / "out" / "new.db", after_s)


@pytest.mark.full
@pytest.mark.needs("linux")
def test_a_recovery_killed_at_any_moment_leaves_no_file_or_a_complete_one(file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    started = time.monotonic()
    assert kill_recovery(file, tmp_path / "out" / "new.db", 60)
    full_s = time.monotonic() - started
    completed = [kill_recovery(file, tmp_path / "out" / "new.db", full_s * kill / 40) for kill in range(40)]
    assert not all(completed)
