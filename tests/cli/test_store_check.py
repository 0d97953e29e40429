"""`convo store check`: problems of a database are found and reported, and nothing is written."""

import asyncio
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from convo.history.records import Strategy
from convo.stores.factory import open_store
from tests.cli.doctor_checks import run_check
from tests.cli.stored_chats import DATABASE, ChatWriter, write_chats
from tests.command_runner import Convo
from tests.databases import cleared_database
from tests.stores.test_tenants import everything


async def write_three_chats(writer: ChatWriter) -> None:
    await writer.chat(Strategy.SESSION, "monads", "What is a monad?", "And a functor?")
    await writer.chat(Strategy.CHAIN, "tea", "How do I make tea?", "With milk?")
    await writer.chat(Strategy.CONVERSATION, "café", "Où est le café?")


def file_contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def change_database(home: Path, *statements: str) -> None:
    """Change the database in ways that convo never does."""
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


# -- a valid database -----------------------------------------------------------------------------


def test_a_valid_database_passes_and_is_not_changed(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    before = file_contents(home / "data")
    got = convo("store", "check")

    assert (got.exit, got.out) == (0, "")
    assert "no problems found (10 items, 11 nodes, 3 sessions, 5 links, 1 conversation)" in got.err
    assert file_contents(home / "data") == before


def test_a_database_that_another_process_has_open_is_checked(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as db:
        db.execute("UPDATE sessions SET used_at = used_at + 1")
        assert convo("store", "check", "--json").json()["ok"] is True


def test_without_a_database_there_is_nothing_to_check(convo: Convo, home: Path) -> None:
    got = convo("store", "check")

    assert (got.exit, got.out) == (5, "")
    assert not home.exists()


def test_an_older_schema_is_named_and_not_migrated(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    change_database(home, "PRAGMA user_version = 2")
    before = (home / DATABASE).read_bytes()
    got = convo("store", "check")

    assert got.exit == 0
    assert "this file has schema 2; convo store migrate, then check again" in got.err
    assert (home / DATABASE).read_bytes() == before


# -- reported problems ----------------------------------------------------------------------------

FAULTS = {
    "an item with another content": (
        "UPDATE items SET body = replace(body, 'monad', 'nomad') WHERE body LIKE '%What is a monad%user%'"
        " OR body LIKE '%user%What is a monad%'",
        {"item", "node", "search"},
        ["monads"],
    ),
    "a key that does not match": (
        "UPDATE nodes SET key = randomblob(32) WHERE n = (SELECT max(n) FROM nodes)",
        {"node"},
        ["café"],
    ),
    "a missing node": (
        "DELETE FROM nodes WHERE n = (SELECT head FROM sessions WHERE name = 'tea')",
        None,
        ["tea"],
    ),
    "a head of another tenant": (
        "INSERT INTO tenants (n, name) VALUES (77, 'guest'); UPDATE sessions SET tenant = 77 WHERE name = 'tea'",
        {"tenant"},
        [],
    ),
}


@pytest.mark.parametrize(("statements", "codes", "sessions"), FAULTS.values(), ids=FAULTS)
def test_a_violated_constraint_is_reported_with_the_affected_sessions(
    statements: str, codes: set[str] | None, sessions: list[str], convo: Convo, home: Path
) -> None:
    write_chats(home, write_three_chats)
    change_database(home, *statements.split("; "))
    before = file_contents(home / "data")
    got = convo("store", "check", "--json")

    result = got.json()
    assert (got.exit, result["ok"]) == (1, False)
    assert codes is None or {one["code"] for one in result["problems"]} == codes
    assert [one["name"] for one in result["sessions"]] == sessions
    assert file_contents(home / "data") == before


def test_the_first_problem_of_each_kind_is_printed_with_its_remedy(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    change_database(home, "UPDATE nodes SET key = randomblob(32) WHERE parent IS NOT NULL")
    got = convo("store", "check")

    assert got.exit == 1
    first = got.out.splitlines()[0]
    assert first.startswith("node: node 2 has a key that does not match its parent and its item (and 9 more)")
    assert got.out.splitlines()[1:] == [f"affected session: {name}" for name in ("monads", "tea", "café")]
    assert got.err.splitlines()[-1].startswith("  try: convo store recover NEW.db")


def test_the_suggested_recovery_command_names_the_checked_store(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, write_three_chats)
    change_database(home, "UPDATE nodes SET key = randomblob(32) WHERE parent IS NOT NULL")
    (tmp_path / "bad one.db").write_bytes((home / DATABASE).read_bytes())
    got = convo("store", "check", "--store", "sqlite:bad one.db")

    assert got.exit == 1
    assert got.err.splitlines()[-1].startswith(
        f"  try: convo store recover NEW.db --store 'sqlite:{tmp_path / 'bad one.db'}', "
    )


def test_no_migration_is_suggested_for_a_file_that_is_not_a_database(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(bytes(4096))
    got = convo("store", "check", "--store", "sqlite:bad.db")

    assert (got.exit, got.out) == (1, "unreadable: the file cannot be opened: file is not a database\n")
    assert got.err.splitlines()[:2] == [
        "not checked: no row could be checked",
        f"sqlite:{tmp_path / 'bad.db'}: 1 problem (no rows)",
    ]


# -- a malformed file -----------------------------------------------------------------------------


def zero_page(file: Path, page: int) -> None:
    with file.open("r+b") as stream:
        stream.seek((page - 1) * 4096)
        stream.write(bytes(4096))


def root_page(file: Path, table: str) -> int:
    with closing(sqlite3.connect(file)) as db:
        return int(db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0])


@pytest.mark.parametrize("table", ["items", "nodes", "sessions", "links"])
def test_a_malformed_file_is_found_by_the_check_and_by_doctor(table: str, convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    zero_page(home / DATABASE, root_page(home / DATABASE, table))
    before = (home / DATABASE).read_bytes()

    assert convo("store", "check").exit == 1
    check = run_check(convo, "store")
    assert check["level"] == "fault"
    assert "convo store recover" in check["next"]
    assert (home / DATABASE).read_bytes() == before


@pytest.mark.parametrize("argv", [("sessions",), ("inspect", "monads"), ("chat", "--from", "monads", "hi")])
@pytest.mark.parametrize("table", ["items", "nodes", "sessions"])
def test_any_command_suggests_the_remedy_for_a_malformed_file(
    table: str, argv: tuple[str, ...], convo: Convo, home: Path
) -> None:
    write_chats(home, write_three_chats)
    zero_page(home / DATABASE, root_page(home / DATABASE, table))
    got = convo(*argv)

    if got.exit:
        hint = f"  try: convo store recover NEW.db --store sqlite:{home / DATABASE}"
        assert got.err.splitlines()[-2:] == [f"convo: {home / DATABASE} is damaged", hint]
    assert table != "sessions" or got.exit


def test_a_stored_text_that_is_not_valid_json_is_reported_as_damage(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    change_database(home, "UPDATE items SET body = substr(body, 2)")
    got = convo("inspect", "monads")

    assert (got.exit, got.out) == (1, "")
    first_line = got.err.splitlines()[0]
    assert first_line.startswith("convo: the stored item '")
    assert first_line.endswith("' is damaged: its body is not valid JSON")


@pytest.mark.parametrize("seed", range(5))
def test_a_file_with_random_damage_never_passes(seed: int, convo: Convo, home: Path) -> None:
    """Our check passes only if SQLite's check passes: then no row is on the damaged page."""
    write_chats(home, write_three_chats)
    rng, file = random.Random(seed), home / DATABASE
    page = rng.randrange(2, os.path.getsize(file) // 4096 + 1)
    zero_page(file, page)
    result = convo("store", "check", "--json").json()
    with closing(sqlite3.connect(file)) as db:
        try:
            is_intact = db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        except sqlite3.DatabaseError:
            is_intact = False

    assert result["ok"] is is_intact


# -- PostgreSQL -----------------------------------------------------------------------------------


@pytest.mark.needs("postgresql")
def test_the_rows_of_a_server_are_checked(convo: Convo) -> None:
    url = cleared_database()

    async def write() -> None:
        store = open_store(url)
        await store.commit(everything("local"))
        await store.for_tenant("guest").commit(everything("guest"))
        await store.aclose()

    asyncio.run(write())
    valid = convo("store", "check", "--json", "--store", url).json()
    assert (valid["ok"], valid["rows"]["items"]) == (True, 2)

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE convo.nodes SET rest = gen_random_uuid() WHERE depth = 1 AND tenant IN "
                   "(SELECT tenant FROM convo.tenants WHERE name = 'guest')")  # fmt: skip
        db.execute("UPDATE convo.words SET terms = '{1}'")
    got = convo("store", "check", "--json", "--store", url)
    result = got.json()
    assert got.exit == 1
    assert {one["code"] for one in result["problems"]} == {"node", "search"}
    assert result["sessions"] == [{"tenant": "guest", "name": "one"}]
