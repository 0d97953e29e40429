"""The check of a SQLite database reports on its file, rows and disk without changing them."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from convo.errors import StoreReadOnly, StoreTooNew, StoreUnavailable
from convo.history.items import user_message
from convo.history.tree import Path as History
from convo.history.tree import root_key
from convo.stores.base import AppendItems, FileHealth, NamedSession, StoreProblem, Transaction
from convo.stores.factory import check_store, open_store, probe_store
from convo.stores.sqlite.check import MOUNTINFO_FILE, check_database, filesystem_type, quick_check, read_snapshot
from convo.stores.sqlite.connection import SCHEMA_VERSION
from tests.config.permissions import without_root
from tests.stores.chat_transactions import session
from tests.stores.sample_store import fill_store
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


def test_a_newer_schema_is_refused(file: Path) -> None:
    set_schema_version(file, SCHEMA_VERSION + 1)
    with pytest.raises(StoreTooNew):
        probe(file)


def test_a_check_creates_no_file(tmp_path: Path) -> None:
    health = probe(tmp_path / "not/yet/convo.db")

    assert health.schema_version is None
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_has_no_schema_and_stays_empty(tmp_path: Path) -> None:
    file = tmp_path / "convo.db"
    file.touch()
    health = probe(file)

    assert (health.schema_version, health.quick_check) == (None, "ok")
    assert file.stat().st_size == 0
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_is_not_a_database() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        probe(Path("/dev/null"))
    assert caught.value.message == "/dev/null is a device, not a database"


def test_a_database_that_another_process_writes_to_for_too_long_is_locked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convo.stores.sqlite.check.PROBE_BUSY_TIMEOUT_S", 0.01)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="is locked: another process has been writing to it for too long"):
            probe(file)
        other.execute("ROLLBACK")
        assert probe(file).quick_check == "ok"


def write_tenant(file: Path, *, in_log: bool) -> None:
    """Write a tenant into the file, or into a log that stays there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {'WAL' if in_log else 'DELETE'}")
        (count,) = db.execute("SELECT count(*) FROM tenants").fetchone()
        db.execute("INSERT INTO tenants (name) VALUES (?)", (f"{count} {'x' * 5000}",))
        if in_log:
            log = Path(f"{file}-wal").read_bytes()
    if in_log:
        before = file.stat()
        Path(f"{file}-wal").write_bytes(log)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("writes", "counts"),
    [
        ([], [1]),
        (["file"], [1, 2]),
        (["file", "file"], [1, 2, 3]),
        (["file", "file", "file"], [1, 2, 3]),
        (["log"], [1, 2]),
    ],
)
def test_a_file_that_changes_while_it_is_read_is_read_again(writes: list[str], counts: list[int], file: Path) -> None:
    """The third time it is read in a transaction, which needs files beside it."""
    remaining, seen = list(writes), list[int]()

    def read(db: sqlite3.Connection) -> int:
        seen.extend(db.execute("SELECT count(*) FROM tenants").fetchone())
        db.execute("SELECT 1 FROM items").fetchall()
        if remaining:
            write_tenant(file, in_log=remaining.pop(0) == "log")
        return seen[-1]

    assert read_snapshot(file, read) == counts[-1]
    assert seen == counts


def test_a_log_with_data_is_read_and_an_empty_one_ignored(file: Path) -> None:
    def count(db: sqlite3.Connection) -> tuple[int, int]:
        (tenants,) = db.execute("SELECT count(*) FROM tenants").fetchone()
        (temp_store,) = db.execute("PRAGMA temp_store").fetchone()
        return tenants, temp_store

    Path(f"{file}-wal").touch()
    assert read_snapshot(file, count) == (1, 2)
    assert sorted(path.name for path in file.parent.iterdir()) == ["convo.db", "convo.db-wal"]
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("INSERT INTO tenants (name) VALUES ('in the log')")
        assert read_snapshot(file, count) == (2, 2)


def test_the_log_that_a_killed_process_left_is_read_and_not_written_back(file: Path) -> None:
    write_tenant(file, in_log=True)
    parts = file, Path(f"{file}-wal")
    before = [part.read_bytes() for part in parts]
    assert read_snapshot(file, lambda db: db.execute("SELECT count(*) FROM tenants").fetchone()) == (2,)
    assert [part.read_bytes() for part in parts] == before


def test_a_system_without_a_mount_table_names_no_file_system(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convo.stores.sqlite.check.MOUNTINFO_FILE", file.parent / "missing")
    assert probe(file).filesystem == ""


def test_an_item_without_terms_is_not_in_the_search_index(tmp_path: Path) -> None:
    async def fill() -> None:
        store = open_store(f"sqlite:{tmp_path / 'convo.db'}")
        path = History(root_key("local")).append([user_message("..."), user_message("a, b")])
        await store.commit(Transaction((AppendItems(path.root, path.items),), session=session(head=path.head)))
        await store.aclose()

    asyncio.run(fill())
    assert check_database(tmp_path / "convo.db", lambda *_: None).problems == []


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

    assert [astuple(one) for one in report.problems if one.code != "row"] == problems
    assert report.damaged_sessions == ([NamedSession("local", "one")] if is_session_damaged else [])
    assert report.skipped_reason == ""


GUEST = "INSERT INTO tenants (n, name) VALUES (2, 'guest');"
NO_ROUTE = ("record", 2, f"repeated 2 {NO_HASH}")

PROBLEMS_OF_SEVERAL_ROWS: dict[str, tuple[str, list[tuple[str, int, str]], list[str]]] = {
    "the last item of another tenant": (
        f"{GUEST} UPDATE items SET tenant = 2 WHERE n = 3",
        [("item", 1, f"item 3 {NO_HASH}"), ("tenant", 1, "nodes.item refers to another tenant's items")],
        ["late"],
    ),
    "the first and the last item": (
        "UPDATE items SET body = '{' WHERE n = 1; UPDATE items SET body = '[]' WHERE n = 3",
        [("item", 2, "item 1 is not JSON"), ("node", 2, f"node 2 has {NO_KEY}"), SEARCH],
        ["early", "late"],
    ),
    "an item with an id that is not indexed": (
        """UPDATE items SET body = replace(body, '"role"', '"id":"msg_1","role"') WHERE n = 3""",
        [
            ("item", 1, f"item 3 {NO_HASH}"),
            ("index", 1, "item 3 is not found by its id"),
            ("node", 1, f"node 4 has {NO_KEY}"),
        ],
        ["late"],
    ),
    "the last node has another key": (
        "UPDATE nodes SET key = zeroblob(32) WHERE n = 4",
        [("node", 1, f"node 4 has {NO_KEY}")],
        ["late"],
    ),
    "a node of no tenant": (
        "UPDATE nodes SET tenant = 9 WHERE n = 4",
        [
            ("reference", 1, "nodes row 4 refers to a row of tenants that does not exist"),
            ("node", 1, "node 4 has no tenant"),
            ("tenant", 7, "nodes.item refers to another tenant's items"),
        ],
        ["late"],
    ),
    "a node without its item, which was deleted": ("UPDATE nodes SET item = NULL WHERE n = 3", [], []),
    "a cycle of nodes": (
        "UPDATE nodes SET parent = 4 WHERE n = 2",
        [
            ("node", 1, f"node 2 has {NO_KEY}"),
            ("conversation", 2, "conversation 1 counts 3 items and has 5"),
        ],
        ["early", "late"],
    ),
    "a response of another tenant": (
        f"{GUEST} UPDATE links SET tenant = 2 WHERE n = 1",
        [("tenant", 8, "sessions.link refers to another tenant's links")],
        [],
    ),
    "events of another tenant": (
        f"{GUEST} UPDATE events SET tenant = 2",
        [("tenant", 2, "events.link refers to another tenant's runs")],
        [],
    ),
    "sessions of no tenant and without their heads": (
        "UPDATE sessions SET tenant = 9, name = NULL, head = 99",
        [
            ("reference", 4, "sessions row 1 refers to a row of nodes that does not exist"),
            ("tenant", 7, "sessions.link refers to another tenant's links"),
        ],
        ["", ""],
    ),
    "the document of an agent run": (
        "UPDATE agent_documents SET body = '{'",
        [("record", 1, "agent_documents 1: body is not JSON")],
        [],
    ),
    "the output of a tool call": (
        "UPDATE agent_calls SET output = '{'",
        [("record", 1, "agent_calls 1: output is not JSON")],
        [],
    ),
    "events": ("UPDATE events SET body = '{'", [("record", 2, "events 1: body is not JSON")], []),
    "an event of a later response": (
        "UPDATE events SET body = '{' WHERE link = 2",
        [("record", 1, "events 2: body is not JSON")],
        [],
    ),
    "records of sessions": (
        "UPDATE sessions SET record = '{'",
        [("record", 2, "session 1 has a record that cannot be read")],
        [],
    ),
    "a session that was removed": ("UPDATE sessions SET record = NULL, head = 1 WHERE n = 2", [], []),
    "a route of no tenant": (
        "UPDATE repeated SET tenant = 9 WHERE n = 2",
        [
            ("reference", 1, "repeated row 2 refers to a row of tenants that does not exist"),
            ("tenant", 2, "links.route refers to another tenant's repeated"),
            ("record", 1, "route 2 cannot be read"),
        ],
        [],
    ),
    "a route of seven fields": ("UPDATE repeated SET body = '[1,2,3,4,5,6,7]' WHERE n = 2", [NO_ROUTE], []),
    "a route whose conversation is a number": (
        "UPDATE repeated SET body = replace(body, '\"conv_1\"', '7') WHERE n = 2",
        [NO_ROUTE],
        [],
    ),
    "a route without a conversation": (
        "UPDATE repeated SET body = replace(body, '\"conv_1\"', 'null') WHERE n = 2",
        [("record", 1, f"repeated 2 {NO_HASH}")],
        [],
    ),
    "parameters that are not an object": (
        "UPDATE repeated SET body = '[1]' WHERE n = 1",
        [("record", 1, f"repeated 1 {NO_HASH}")],
        [],
    ),
    "two ids of a conversation": (
        "DELETE FROM members WHERE node IN (2, 3)",
        [("conversation", 1, "conversation 1 has items without an id")],
        [],
    ),
    "an item with its own id that the conversation did not assign": (
        """DELETE FROM members WHERE node = 4;
           UPDATE items SET body = replace(body, '"role"', '"id":"msg_1","role"') WHERE n = 3""",
        [
            ("item", 1, f"item 3 {NO_HASH}"),
            ("index", 1, "item 3 is not found by its id"),
            ("node", 1, f"node 4 has {NO_KEY}"),
        ],
        ["late"],
    ),
    "an item whose id is a number and that the conversation did not name": (
        """DELETE FROM members WHERE node = 4;
           UPDATE items SET body = replace(body, '"role"', '"id":7,"role"') WHERE n = 3""",
        [
            ("item", 1, f"item 3 {NO_HASH}"),
            ("node", 1, f"node 4 has {NO_KEY}"),
            ("conversation", 1, "conversation 1 has items without an id"),
        ],
        ["late"],
    ),
    "items that are not objects and that the conversation did not name": (
        """DELETE FROM members WHERE node IN (3, 4); UPDATE items SET body = '{' WHERE n = 2;
           UPDATE items SET body = '[]' WHERE n = 3""",
        [
            ("item", 2, "item 2 is not JSON"),
            ("node", 2, f"node 3 has {NO_KEY}"),
            ("conversation", 1, "conversation 1 has items without an id"),
            SEARCH,
        ],
        ["early", "late"],
    ),
    "no nodes": (
        "DROP TABLE nodes",
        [
            ("reference", 12, "sessions row 1 refers to a row of nodes that does not exist"),
            ("unreadable", 7, "nodes: no such table: nodes"),
        ],
        ["early", "late"],
    ),
    "no sessions": (
        "DROP TABLE sessions",
        [
            ("reference", 3, "agent_runs row 1 refers to a row of sessions that does not exist"),
            ("unreadable", 7, "sessions: no such table: sessions"),
        ],
        [],
    ),
    "no hashes": ("DROP TABLE hashes", [("unreadable", 1, "items: no such table: hashes")], []),
    "no routes": (
        "DROP TABLE repeated",
        [
            ("reference", 4, "links row 1 refers to a row of repeated that does not exist"),
            ("unreadable", 3, "tenants: no such table: repeated"),
        ],
        [],
    ),
    "no conversations and another program's header": (
        "DROP TABLE conversations; PRAGMA application_id = 1",
        [
            ("file", 1, "its header does not identify it as a database of convo"),
            ("reference", 3, "members row None refers to a row of conversations that does not exist"),
            ("unreadable", 5, "conversations: no such table: conversations"),
        ],
        [],
    ),
    "no search index": ("DROP TABLE words", [("unreadable", 1, "search: no such fts5 table: main.words")], []),
    "a damaged search index": (
        "DELETE FROM words_data",
        [("unreadable", 1, "search: database disk image is malformed")],
        [],
    ),
}


@pytest.fixture(scope="module")
def larger_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database with two sessions, "early" and "late", a conversation, events and an agent run."""
    file = tmp_path_factory.mktemp("larger") / "convo.db"
    fill_store(f"sqlite:{file}")
    return file


@pytest.mark.parametrize(
    ("statements", "problems", "damaged_sessions"), PROBLEMS_OF_SEVERAL_ROWS.values(), ids=PROBLEMS_OF_SEVERAL_ROWS
)
def test_every_row_is_checked_and_only_sessions_with_a_damaged_path_are_listed(
    statements: str,
    problems: list[tuple[str, int, str]],
    damaged_sessions: list[str],
    larger_file: Path,
    tmp_path: Path,
) -> None:
    file = tmp_path / "convo.db"
    shutil.copy(larger_file, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executescript(statements)
    report = check_database(file, lambda *_: None)

    assert [astuple(one) for one in report.problems if one.code != "row"] == problems
    assert [one.name for one in report.damaged_sessions] == damaged_sessions
    assert {one.tenant for one in report.damaged_sessions} <= {"local" if any(damaged_sessions) else ""}
    assert report.skipped_reason == ""


def test_a_database_of_another_program_without_the_tables_is_refused(larger_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "convo.db"
    shutil.copy(larger_file, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executescript("PRAGMA application_id = 1; DROP TABLE links")
    with pytest.raises(StoreUnavailable) as caught:
        check_database(file, lambda *_: None)
    assert caught.value.message == f"{file} is a database of another program"


def test_a_check_counts_the_rows_and_reports_its_steps(larger_file: Path) -> None:
    steps: list[str] = []
    report = check_database(larger_file, lambda name, done, total: steps.append(f"{name} {done}/{total}"))

    assert report.row_counts == {
        "items": 3, "nodes": 4, "sessions": 2, "links": 2, "conversations": 1, "agent_runs": 1, "events": 2,
        "files": 0,
    }  # fmt: skip
    assert (report.problems, report.damaged_sessions, report.skipped_reason) == ([], [], "")
    assert steps == [
        "file 0/0", "references 0/0", "tenants 0/0",
        "items 0/0", "nodes 0/0", "sessions 0/0", "links 0/0", "conversations 0/0", "agent_runs 0/0", "events 0/0",
        "files 0/0",
        "items 0/0", "items 0/3", "nodes 0/0", "nodes 0/4", "tenants 0/0",
        "records 0/0", "repeated 0/0", "agent_documents 0/0", "agent_calls 0/0", "approval_decisions 0/0",
        "events 0/2", "conversations 0/1",
        "repeated 0/0", "routes 0/0", "sessions 0/2",
        "conversations 0/0", "conversations 0/1",
        "stored sessions 0/0", "stored responses 0/0", "stored conversations 0/0", "stored runs 0/0",
        "stored calls 0/0", "stored decisions 0/0", "stored events 0/0", "search 0/0", "items 0/3",
    ]  # fmt: skip


def test_a_check_is_one_snapshot_although_another_process_writes(larger_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "convo.db"
    shutil.copy(larger_file, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("INSERT INTO leases (tenant, name, holder, expires_at) VALUES (1, 'a', 'b', 0)")

        def write_meanwhile(name: str, done: int, total: int) -> None:
            if name == "tenants":
                other.execute("INSERT INTO items (tenant, body) VALUES (1, 'no JSON')")

        report = check_database(file, write_meanwhile)
    assert (report.row_counts["items"], report.problems) == (3, [])
    assert check_database(file, lambda *_: None).row_counts["items"] == 5


def test_the_progress_is_reported_after_each_thousand_rows(larger_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "convo.db"
    shutil.copy(larger_file, file)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(
            "WITH RECURSIVE c (n) AS (VALUES (10) UNION ALL SELECT n + 1 FROM c WHERE n < 2007)"
            " INSERT INTO events (tenant, link, number, body) SELECT 1, 1, n, '{}' FROM c"
        )
    steps: list[tuple[int, int]] = []
    check_database(file, lambda name, done, total: steps.append((done, total)) if name == "events" else None)
    assert steps == [(0, 0), (0, 2000), (1000, 2000)]


def test_the_first_hundred_lines_of_the_integrity_check_are_counted(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("WITH RECURSIVE c (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 120)"
                   " INSERT INTO traces SELECT n FROM c")  # fmt: skip
        db.execute("CREATE INDEX incomplete ON traces (n) WHERE n < 0")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX incomplete ON traces (n)' WHERE name = 'incomplete'")
    report = check_database(file, lambda *_: None)
    assert report.problems == [StoreProblem("file", 100, "row 1 missing from index incomplete")]


def test_the_rules_of_another_schema_are_not_checked(file: Path) -> None:
    set_schema_version(file, 2)
    report = check_database(file, lambda *_: None)

    assert (report.problems, report.row_counts) == ([], {})
    assert report.skipped_reason == f"the rules of schema {SCHEMA_VERSION}: this file has schema 2"
