"""The check of a SQLite database reports on its file, rows and disk without changing them."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from convo.errors import StoreReadOnly, StoreTooNew, StoreUnavailable
from convo.stores.base import FileHealth, NamedSession, StoreProblem
from convo.stores.factory import check_store, open_store, probe_store
from convo.stores.sqlite.check import MOUNTINFO_FILE, check_database, filesystem_type, quick_check
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
    """A closed database with one session."""
    return fill_database(tmp_path / "convo.db")


def fill_database(file: Path) -> Path:
    async def fill() -> None:
        store = open_store(f"sqlite:{file}")
        await store.commit(everything("local"))
        await store.aclose()

    asyncio.run(fill())
    return file


def probe(file: Path) -> FileHealth:
    health = asyncio.run(probe_store(f"sqlite:{file}"))
    assert isinstance(health, FileHealth)
    return health


def set_schema_version(file: Path, number: int) -> bytes:
    """Set the schema version of the file to `number`. Returns the bytes of the file."""
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA user_version = {number}")
    return file.read_bytes()


def test_a_check_reports_the_schema_and_the_free_space(file: Path) -> None:
    health = probe(file)

    free_bytes = shutil.disk_usage(file.parent).free
    assert health._replace(free_bytes=0, filesystem="") == FileHealth(file, SCHEMA_VERSION, SCHEMA_VERSION, 0, "", "ok")
    assert free_bytes / 2 < health.free_bytes < free_bytes * 2
    assert health.filesystem == filesystem_type(file.parent.resolve(), MOUNTINFO_FILE.read_text())
    assert [path.name for path in file.parent.iterdir()] == ["convo.db"]


def test_the_quick_check_returns_the_first_problem_or_nothing_after_its_time(file: Path) -> None:
    assert quick_check(file, 60) == "ok"
    with closing(sqlite3.connect(file)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'nodes_by_parent'").fetchone()
        db.execute("CREATE TABLE long AS WITH RECURSIVE c (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c LIMIT 20000)"
                   " SELECT x FROM c")  # fmt: skip
        db.commit()
    assert quick_check(file, -1) is None
    with file.open("r+b") as handle:
        handle.seek((page - 1) * 4096)
        handle.write(bytes(4096))
    assert "btreeInitPage() returns error code 11" in (quick_check(file, 60) or "")


def test_a_check_does_not_migrate_an_older_schema(file: Path) -> None:
    before = set_schema_version(file, SCHEMA_VERSION - 1)
    health = probe(file)

    assert (health.schema_version, health.latest_schema_version) == (SCHEMA_VERSION - 1, SCHEMA_VERSION)
    assert file.read_bytes() == before


def test_a_newer_schema_is_refused(file: Path) -> None:
    set_schema_version(file, SCHEMA_VERSION + 1)
    with pytest.raises(StoreTooNew):
        probe(file)


def test_a_check_creates_no_file(tmp_path: Path) -> None:
    health = probe(tmp_path / "not/yet/convo.db")

    assert health.schema_version is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"), [("folder", "is a folder, not a database"), ("words", "is not a database")]
)
def test_a_file_that_is_no_database_is_reported(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "words").write_text("not a database at all " * 100)
    with pytest.raises(StoreUnavailable, match=message):
        probe(tmp_path / name)


def test_a_damaged_schema_that_is_not_utf8_is_reported_with_the_command_that_recovers(file: Path) -> None:
    raw = file.read_bytes()
    entry = raw.index(b"sessionssessions")  # the row of the table in the schema
    create = raw.index(b"CREATE TABLE sessions", entry)
    file.write_bytes(raw[:entry] + b"\xff" + raw[entry + 1 : create] + b"X" + raw[create + 1 :])
    with pytest.raises(StoreUnavailable, match="is damaged: a text in it is not UTF-8") as caught:
        probe(file)
    assert caught.value.hint == f"convo store recover NEW.db --store sqlite:{file}"


def test_a_missing_table_is_a_problem_of_the_check(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DROP TABLE links")
    problems = asyncio.run(check_store(f"sqlite:{file}", lambda *_: None)).problems
    assert any("no such table: links" in problem.example for problem in problems)


def test_a_read_only_file_is_distinguished_from_a_writable_one() -> None:
    """The folder is writable, so only the mode of the file differs."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        file = fill_database(Path(folder, "convo.db"))
        file.chmod(0o444)
        with without_root(), pytest.raises(StoreReadOnly, match=r"convo\.db is read-only"):
            probe(file)
        file.chmod(0o666)
        with without_root():
            assert probe(file).schema_version == SCHEMA_VERSION


def test_a_store_in_memory_has_no_path() -> None:
    assert asyncio.run(probe_store("memory")) is None


# -- the rows -------------------------------------------------------------------------------------

NO_KEY = "a key that does not match its parent and its item"
NO_HASH = "does not have the hash that it is stored under"
SEARCH = ("search", 1, "the search index does not match the terms of the items")

PROBLEMS: dict[str, tuple[str, list[tuple[str, int, str]], bool]] = {
    "a hash of another item": (
        "UPDATE hashes SET hash = zeroblob(16)",
        [("item", 1, f"item 1 {NO_HASH}")],
        True,
    ),
    "an item that is not JSON": (
        "UPDATE items SET body = '{'",
        [("item", 1, "item 1 is not JSON"), ("node", 1, f"node 2 has {NO_KEY}"), SEARCH],
        True,
    ),
    "an item that is not an object": (
        "UPDATE items SET body = '[]'",
        [("item", 1, "item 1 is not JSON"), ("node", 1, f"node 2 has {NO_KEY}"), SEARCH],
        True,
    ),
    "an item of no tenant": (
        "UPDATE items SET tenant = 9",
        [
            ("reference", 1, "items row 1 refers to a row of tenants that does not exist"),
            ("item", 1, "item 1 has no tenant"),
            ("tenant", 1, "nodes.item refers to another tenant's items"),
        ],
        True,
    ),
    "a hash of no item": (
        "INSERT INTO hashes VALUES (1, zeroblob(16), 99)",
        [("index", 1, "a hash leads to an item that does not exist")],
        False,
    ),
    "a key of no item": (
        "UPDATE nodes SET key = zeroblob(32) WHERE parent IS NOT NULL",
        [("node", 1, f"node 2 has {NO_KEY}")],
        True,
    ),
    "a root of no tenant": (
        "UPDATE nodes SET key = zeroblob(32) WHERE parent IS NULL",
        [("node", 2, "node 1 has no parent and is not its tenant's root")],
        True,
    ),
    "a node without its parent": (
        "UPDATE nodes SET parent = 99 WHERE parent IS NOT NULL",
        [
            ("reference", 1, "nodes row 2 refers to a row of nodes that does not exist"),
            ("node", 1, "node 2 lacks its parent"),
        ],
        True,
    ),
    "a node without its item": (
        "DELETE FROM items",
        [
            ("reference", 1, "nodes row 2 refers to a row of items that does not exist"),
            ("index", 1, "a hash leads to an item that does not exist"),
            ("node", 1, "node 2 lacks its item"),
            SEARCH,
        ],
        True,
    ),
    "a head that does not exist": (
        "UPDATE sessions SET head = 99",
        [("reference", 1, "sessions row 1 refers to a row of nodes that does not exist")],
        True,
    ),
    "a record without its fields": (
        "UPDATE sessions SET record = '[1]'",
        [("record", 1, "session 1 has a record that cannot be read")],
        False,
    ),
    "JSON under another hash": (
        "UPDATE repeated SET hash = zeroblob(32)",
        [("record", 1, f"repeated 1 {NO_HASH}")],
        False,
    ),
    "a route without its fields": (
        "UPDATE repeated SET body = '[1,2,3]'",
        [("record", 2, f"repeated 1 {NO_HASH}")],
        False,
    ),
    "a route that is not JSON": (
        "UPDATE repeated SET body = '{'",
        [("record", 3, "repeated 1: body is not JSON")],
        False,
    ),
    "a route that is not indexed": (
        "DELETE FROM names",
        [("index", 1, "route 1 is not found by its conversation")],
        False,
    ),
    "an item without its id": (
        "DELETE FROM members",
        [("conversation", 1, "conversation 1 has items without an id")],
        False,
    ),
    "an id of another item": (
        "UPDATE members SET node = 1",
        [("conversation", 2, "conversation 1 has items without an id")],
        False,
    ),
    "an id of an item that is not in the conversation": (
        "INSERT INTO members (tenant, conversation, node, id) VALUES (1, 1, 1, 'b')",
        [("conversation", 1, "conversation 1 names items that are not on its path")],
        False,
    ),
    "a conversation of another length": (
        "UPDATE conversations SET length = 7",
        [("conversation", 1, "conversation 1 counts 7 items and has 1")],
        False,
    ),
    "metadata that are not JSON": (
        "UPDATE conversations SET metadata = '{'",
        [("record", 1, "conversations 1: metadata is not JSON")],
        False,
    ),
    "an error that is not JSON": (
        "UPDATE links SET error = '{'",
        [("record", 1, "links 1: error is not JSON")],
        False,
    ),
    "an empty search index": ("INSERT INTO words (words) VALUES ('delete-all')", [SEARCH], False),
    "another program's header": (
        "PRAGMA application_id = 1",
        [("file", 1, "its header does not identify it as a database of convo")],
        False,
    ),
}


@pytest.mark.parametrize(("statement", "problems", "is_session_damaged"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_check_counts_each_problem_and_describes_the_first(
    statement: str, problems: list[tuple[str, int, str]], is_session_damaged: bool, file: Path
) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(statement)
    report = check_database(file, lambda *_: None)

    assert report.problems == [StoreProblem(*problem) for problem in problems]
    assert report.damaged_sessions == ([NamedSession("local", "one")] if is_session_damaged else [])
    assert report.skipped_reason == ""


def test_a_check_counts_the_rows_and_reports_its_steps(file: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    report = check_database(file, lambda *step: steps.append(step))

    assert report.row_counts == {
        "items": 1, "nodes": 2, "sessions": 1, "links": 1, "conversations": 1, "agent_runs": 0, "events": 0,
    }  # fmt: skip
    assert (report.problems, report.damaged_sessions, report.skipped_reason) == ([], [], "")
    assert {("file", 0, 0), ("references", 0, 0), ("items", 0, 1), ("nodes", 0, 2), ("search", 0, 0)} <= set(steps)


def test_the_rules_of_another_schema_are_not_checked(file: Path) -> None:
    set_schema_version(file, 2)
    report = check_database(file, lambda *_: None)

    assert (report.problems, report.row_counts) == ([], {})
    assert report.skipped_reason == f"the rules of schema {SCHEMA_VERSION}: this file has schema 2"
