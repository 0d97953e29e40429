"""`convo store recover` recovers every readable row of a damaged file and reports on each session.

The damage is reproducible: `tests.stores.sqlite.file_damage` creates it.
"""

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from convo.history.items import Item
from convo.stores.base import RecoveryReport
from convo.stores.factory import open_store
from convo.stores.sqlite import connection
from convo.stores.sqlite.check import check_database
from convo.stores.sqlite.recover import recover_database
from convo.stores.sqlite.row_reader import TABLE_COLUMNS, TABLE_SHAPES
from tests.command_runner import Convo
from tests.stores.sqlite.file_damage import DAMAGES, count_rows, pages_of, rows_recovered_by_sqlite, zero_pages
from tests.stores.sqlite.sample_database import build_database

Histories = dict[tuple[str, str], Sequence[Item]]


def no_progress(step: str, done: int, total: int) -> None:
    """Report no progress."""


@pytest.fixture(scope="module")
def intact_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an intact database and its log."""
    folder = tmp_path_factory.mktemp("intact")
    build_database(folder / "convo.db")
    return folder


@pytest.fixture
def file(intact_folder: Path, tmp_path: Path) -> Path:
    """A copy of the intact database, to be damaged."""
    folder = tmp_path / "damaged"
    shutil.copytree(intact_folder, folder)
    return folder / "convo.db"


@pytest.fixture(scope="module")
def original(intact_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Histories:
    """The history of each session before the damage."""
    folder = tmp_path_factory.mktemp("original") / "copy"
    shutil.copytree(intact_folder, folder)
    return histories(folder / "convo.db")


def histories(file: Path) -> Histories:
    async def read() -> Histories:
        result: Histories = {}
        for tenant in ("local", "guest"):
            store = open_store(f"sqlite:{file}", tenant=tenant)
            for one in await store.sessions():
                result[tenant, one.name] = (await store.path(one.head)).items
            await store.aclose()
        return result

    return asyncio.run(read())


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def recover_and_check(file: Path, target: Path) -> RecoveryReport:
    """Recover a file. Asserts that it is unchanged and that the new database passes every check."""
    before = read_files(file.parent)
    report = recover_database(file, target, no_progress)
    assert read_files(file.parent) == before
    assert check_database(target, no_progress).problems == []
    return report


@dataclass(frozen=True, slots=True)
class Recovery:
    """A damaged file, the new database with the rows that were recovered from it, and the report."""

    damaged: Path
    target: Path
    report: RecoveryReport


@pytest.fixture(scope="module")
def recovery(intact_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recovery]:
    """`recovery(name)` damages a copy and recovers it, once for all tests that examine this recovery."""

    @cache
    def recover(name: str) -> Recovery:
        folder = tmp_path_factory.mktemp("recovery")
        damaged, target = folder / "damaged" / "convo.db", folder / "new.db"
        shutil.copytree(intact_folder, damaged.parent)
        DAMAGES[name](damaged, random.Random(1))
        return Recovery(damaged, target, recover_and_check(damaged, target))

    return recover


# -- recovered rows -------------------------------------------------------------------------------


def test_an_intact_file_is_copied_completely(file: Path, original: Histories, tmp_path: Path) -> None:
    report = recover_and_check(file, tmp_path / "new.db")

    assert (
        len(report.complete_sessions),
        report.truncated_sessions,
        report.lost_sessions,
        report.recreated_sessions,
    ) == (
        len(original),
        [],
        [],
        [],
    )
    assert histories(tmp_path / "new.db") == original
    assert dump(tmp_path / "new.db") == dump(file)


def dump(file: Path) -> list[tuple[object, ...]]:
    """Return the rows of every table that is copied unchanged: not the search index, leases or traces."""
    with closing(sqlite3.connect(file)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        copied_tables = [name for name in tables if not name.startswith(("words", "leases", "traces", "sqlite_"))]
        return [(name, *row) for name in copied_tables for row in sorted(db.execute(f"SELECT * FROM {name}"), key=repr)]


@pytest.mark.parametrize("name", DAMAGES)
def test_intact_histories_are_unchanged_and_damaged_ones_become_prefixes(
    name: str, recovery: Callable[[str], Recovery], original: Histories
) -> None:
    report, restored = recovery(name).report, histories(recovery(name).target)
    for one in report.complete_sessions:
        assert restored[one] == original[one]
    for tenant, session, items, rest, rest_items in report.truncated_sessions:
        part, before = restored[tenant, session], original[tenant, session]
        assert len(part) == items
        assert part in (before[:items], before[len(before) - items :])
        assert not rest or len(restored[tenant, rest]) == rest_items
        if rest and not {"flipped", "overflow", "tenths"} & set(name.split()):  # these leave incomplete items
            assert is_part(restored[tenant, rest], before[items:])
    assert (
        len(report.complete_sessions)
        + len(report.truncated_sessions)
        + len(report.lost_sessions)
        + len(report.recreated_sessions)
        >= len(original) - 1
    )


def is_part(part: Sequence[Item], items: Sequence[Item]) -> bool:
    """Return whether `part` is among `items`, in the same order."""
    rest = iter(items)
    return all(any(one == other for other in rest) for one in part)


@pytest.mark.parametrize(
    "name", ["a zeroed header", "all interior pages zeroed", "all pages of nodes zeroed", "a zeroed page of links"]
)
def test_rows_that_another_part_of_the_file_confirms_are_recovered(
    name: str, recovery: Callable[[str], Recovery], original: Histories
) -> None:
    """Recovery needs no header, schema or interior page, and it rebuilds a lost node row from the indexes."""
    assert len(recovery(name).report.complete_sessions) == len(original)
    assert histories(recovery(name).target) == original


def test_a_history_with_a_lost_middle_keeps_both_readable_parts(
    file: Path, original: Histories, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        session = "SELECT head FROM sessions WHERE name = 'chat 2'"
        ancestors = (
            f"WITH RECURSIVE up (n, parent, item) AS (SELECT n, parent, item FROM nodes WHERE n = ({session}) UNION ALL"
            " SELECT nodes.n, nodes.parent, nodes.item FROM up JOIN nodes ON nodes.n = up.parent)"
        )
        items = [item for (item,) in db.execute(f"{ancestors} SELECT item FROM up WHERE parent IS NOT NULL ORDER BY n")]
        db.execute("DELETE FROM items WHERE n = ?", (items[3],))
        db.commit()
    report = recover_and_check(file, tmp_path / "new.db")

    before, restored = original["local", "chat 2"], histories(tmp_path / "new.db")
    assert [one[:4] for one in report.truncated_sessions] == [("local", "chat 2", 3, "chat 2-rest")]
    assert restored["local", "chat 2"] == before[:3]
    assert restored["local", "chat 2-rest"] == before[4:]
    assert len(report.complete_sessions) == len(original) - 1


def test_a_changed_item_is_not_shown_as_the_original(file: Path, original: Histories, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        (item,) = db.execute(
            "SELECT min(nodes.item) FROM sessions JOIN nodes ON nodes.n = head WHERE name = 'chat 4'"
        ).fetchone()
        db.execute("UPDATE items SET body = replace(body, 'e', 'E') WHERE n = ?", (item,))
        db.commit()
    report = recover_and_check(file, tmp_path / "new.db")

    before, restored = original["local", "chat 4"], histories(tmp_path / "new.db")
    assert [one.name for one in report.truncated_sessions] == ["chat 4"]
    assert restored["local", "chat 4"] == before[:-1]
    assert len(restored["local", "chat 4-rest"]) == 1


def test_a_deleted_session_is_not_restored(recovery: Callable[[str], Recovery]) -> None:
    restored = histories(recovery("a zeroed header").target)

    assert not {"chat 3", "chat 9", "chat 15"} & {name for _, name in restored}


def make_foreign_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE notes (words)")
        db.execute("INSERT INTO notes VALUES ('not of convo')")
        db.commit()


FOREIGN_FILES: dict[str, Callable[[Path], object]] = {
    "no database": lambda file: file.write_bytes(b"root:x:0:0:" * 999),
    "another program's database": make_foreign_database,
    "an empty file": lambda file: file.write_bytes(b""),
    "a pipe": os.mkfifo,
    "a folder": lambda file: file.mkdir(),
}


@pytest.mark.parametrize("kind", FOREIGN_FILES)
def test_a_file_without_rows_of_convo_is_refused_and_nothing_is_written(
    kind: str, tmp_path: Path, convo: Convo
) -> None:
    source, target = tmp_path / "odd.db", tmp_path / "new.db"
    FOREIGN_FILES[kind](source)

    got = convo("store", "recover", str(target), "--store", f"sqlite:{source}")

    assert got.exit == 1
    assert str(source) in got.err
    assert "Traceback" not in got.err
    assert not target.exists()


def test_an_empty_store_is_recovered_empty(tmp_path: Path) -> None:
    source, target = tmp_path / "empty.db", tmp_path / "new.db"
    with closing(sqlite3.connect(source, isolation_level=None)) as db:
        connection.migrate_schema(db)

    assert not any(recover_database(source, target, no_progress).row_counts.values())
    assert target.exists()


def test_every_column_of_the_schema_is_known(tmp_path: Path) -> None:
    """A migration that adds a column must add it to the recovery too, which skips rows of another shape."""
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as db:
        connection.migrate_schema(db)
        for table in TABLE_SHAPES:
            columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
            assert (table, TABLE_COLUMNS[table].split(", "), len(TABLE_SHAPES[table])) == (table, columns, len(columns))


def test_a_file_of_an_older_schema_is_recovered(file: Path, original: Histories, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("DROP INDEX sessions_by_use")
        db.execute("ALTER TABLE sessions DROP COLUMN used")
        db.execute("PRAGMA user_version = 3")
    report = recover_and_check(file, tmp_path / "new.db")

    assert len(report.complete_sessions) == len(original)
    with closing(sqlite3.connect(tmp_path / "new.db")) as db:
        assert db.execute("SELECT count(*) FROM sessions WHERE used > 0").fetchone() == (22,)


# -- comparison with the SQLite shell -------------------------------------------------------------


@pytest.mark.needs("sqlite3")
@pytest.mark.parametrize("name", DAMAGES)
def test_at_least_as_many_rows_are_recovered_as_by_the_sqlite_shell(
    name: str, recovery: Callable[[str], Recovery], tmp_path: Path
) -> None:
    files = recovery(name)

    counts, shell_counts = count_rows(files.target), rows_recovered_by_sqlite(files.damaged, tmp_path / "theirs.db")
    assert {table: count for table, count in counts.items() if count < shell_counts[table]} == {}


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("name", DAMAGES)
def test_recovery_from_any_damage_creates_a_database_that_passes_every_check(
    name: str, seed: int, file: Path, tmp_path: Path
) -> None:
    DAMAGES[name](file, random.Random(seed))
    recover_and_check(file, tmp_path / "new.db")


# -- the command ----------------------------------------------------------------------------------


def test_the_command_lists_each_session_and_writes_one_private_file(file: Path, tmp_path: Path, convo: Convo) -> None:
    zero_pages(file, pages_of(file)["items"][1])
    got = convo("store", "recover", "new.db", "--store", f"sqlite:{file}")

    assert got.exit == 1
    statuses = [line.split()[0] for line in got.out.splitlines()]
    assert (set(statuses), len(statuses)) == ({"complete", "truncated"}, 22)
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
    """Kill a recovery after this time. Returns whether it left a complete file; it may leave nothing else."""
    folder = target.parent
    with subprocess.Popen(
        [sys.executable, "-c", RECOVER_SCRIPT, str(file), str(target)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.kill()
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
