"""`convo store`, with conversations that the engine wrote to a real store."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from convo.history.records import Strategy
from convo.stores.factory import open_store
from convo.stores.sqlite.connection import SCHEMA_VERSION
from tests.cli.stored_chats import DATABASE, ChatWriter, write_chats
from tests.command_runner import Convo
from tests.databases import cleared_database
from tests.stores.test_tenants import everything
from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]

CUTOFF = "1w"
"""All conversations below are older: they are from 2023."""


async def write_three_chats(writer: ChatWriter) -> None:
    await writer.chat(Strategy.SESSION, "monads", "What is a monad?")
    await writer.chat(Strategy.CHAIN, "tea", "How do I make tea?", "With milk?")
    await writer.chat(Strategy.CONVERSATION, "café", "Où est le café?")


def count_rows(home: Path) -> list[int]:
    tables = ("sessions", "links", "conversations", "items", "nodes")
    with closing(sqlite3.connect(home / DATABASE)) as db:
        return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]


# -- stats ----------------------------------------------------------------------------------------


def test_each_tenant_is_a_line_with_its_rows_bytes_and_age(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo("store", "stats")

    file = home / DATABASE
    note = f"stored in {file}, which is incomplete without its -wal; back it up with convo store backup FILE\n"
    assert (got.exit, got.err) == (0, note)
    head, line = got.out.splitlines()
    kinds = ["sessions", "responses", "conversations", "items", "nodes", "events", "runs", "files"]
    assert head.split() == ["tenant", *kinds, "size", "oldest", "newest"]
    assert line.split()[:9] == ["local", "3", "4", "1", "8", "8", "0", "0", "0"]
    assert line.split()[-4:] == ["2023-11-14", "22:14", "2023-11-14", "22:17"]


def test_json_prints_the_statistics(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    (tenant,) = convo("store", "stats", "--json").json()

    assert tenant["tenant"] == "local"
    row_counts = dict.fromkeys(("events", "runs", "files"), 0)
    row_counts |= {"sessions": 3, "responses": 4, "conversations": 1, "items": 8, "places": 8}
    assert tenant["rows"] == row_counts
    assert tenant["bytes"] > 0
    assert tenant["oldest"] < tenant["newest"]


@pytest.mark.parametrize("argv", [["stats"], ["prune", "--older-than", "1d", "--yes"]])
def test_without_a_database_there_is_nothing_and_nothing_is_created(argv: list[str], convo: Convo, home: Path) -> None:
    got = convo("store", *argv)

    assert (got.exit, got.out) == (0, "")
    empty = f"the store is empty: {home}/data/convo.db does not exist yet\n"
    assert got.err == {"stats": empty, "prune": "no data was unused for 1d\n"}[argv[0]]
    assert not home.exists()


@pytest.mark.parametrize("argv", [["stats"], ["migrate"], ["migrate", "--print-sql"], ["prune", "--older-than", "1d"]])
@pytest.mark.parametrize("kind", ["memory", "none"])
def test_a_store_that_does_not_persist_is_refused(argv: list[str], kind: str, convo: Convo) -> None:
    got = convo("store", *argv, "--store", kind)

    assert (got.exit, got.out) == (2, "")
    assert got.err.splitlines()[0] == f"convo: the store is {kind}, which keeps nothing after the process"


# -- prune ----------------------------------------------------------------------------------------


def test_prune_only_counts_without_yes(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    before = count_rows(home)
    got = convo("store", "prune", "--older-than", CUTOFF)

    assert got.exit == 0
    assert [line.split() for line in got.out.splitlines()] == [
        ["tenant", "sessions", "responses", "conversations", "files"],
        ["local", "3", "4", "1", "0"],
    ]
    assert got.err == "dry run, nothing removed; pass --yes to remove this data\n"
    assert count_rows(home) == before


def test_prune_removes_the_counted_data(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    dry_run_output = convo("store", "prune", "--older-than", CUTOFF).out
    got = convo("store", "prune", "--older-than", CUTOFF, "--yes")

    assert (got.exit, got.out, got.err) == (0, dry_run_output, "removed\n")
    assert convo("sessions").err == 'no conversations yet; start one: convo chat "hello"\n'
    assert count_rows(home) == [0, 0, 0, 0, 1]
    assert convo("store", "prune", "--older-than", CUTOFF, "--yes").err == f"no data was unused for {CUTOFF}\n"


def test_data_used_since_the_cutoff_is_kept(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    before = count_rows(home)

    assert convo("store", "prune", "--older-than", "5000w", "--yes").err == "no data was unused for 5000w\n"
    assert count_rows(home) == before


def test_json_prints_the_result_of_a_prune(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    counts = {"tenant": "local", "sessions": 3, "responses": 4, "conversations": 1, "files": 0}
    for argv, removed in (((), False), (("--yes",), True)):
        result = convo("store", "prune", "--older-than", CUTOFF, "--json", *argv).json()
        assert (result["removed"], result["tenants"]) == (removed, [counts])


def test_prune_can_be_limited_to_one_tenant(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, write_three_chats)

    assert convo("store", "prune", "--older-than", CUTOFF, "--tenant", "local", "--yes").err == "removed\n"
    got = convo("store", "prune", "--older-than", CUTOFF, "--tenant", "nobody", "--yes")
    assert (got.exit, got.out) == (5, "")
    assert got.err == "convo: no tenant 'nobody'\n  try: convo store stats\n"


@pytest.mark.parametrize("cutoff", ["30", "d", "-1d", "0d", "1.5h", "never"])
def test_an_invalid_cutoff_removes_nothing(cutoff: str, convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    before = count_rows(home)
    got = convo("store", "prune", f"--older-than={cutoff}", "--yes")

    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith("convo: --older-than must be ")
    assert count_rows(home) == before


# -- migrate --------------------------------------------------------------------------------------


def test_migrate_lists_the_migrations_that_it_ran(convo: Convo, home: Path) -> None:
    file = home / DATABASE
    numbers = list(range(1, SCHEMA_VERSION + 1))

    assert convo("store", "migrate").out == f"sqlite:{file}: ran migrations {', '.join(map(str, numbers))}\n"
    assert convo("store", "migrate").out == f"sqlite:{file}: up to date\n"
    assert convo("store", "migrate", "--json").json() == {"store": f"sqlite:{file}", "ran": []}


def test_migrate_accepts_another_store(convo: Convo, home: Path, tmp_path: Path) -> None:
    assert convo("store", "migrate", "--store", "sqlite:there.db").exit == 0

    assert (tmp_path / "there.db").is_file()
    assert not home.exists()


def test_the_printed_statements_create_the_schema(convo: Convo, home: Path) -> None:
    got = convo("store", "migrate", "--print-sql")
    assert (got.exit, got.err) == (0, "")
    assert not home.exists()
    assert convo("store", "migrate", "--print-sql", "--json").json() == {"sql": got.out}

    (home / "data").mkdir(parents=True)
    with closing(sqlite3.connect(home / DATABASE)) as db:
        db.executescript(got.out)
    assert convo("store", "migrate", "--json").json()["ran"] == []
    write_chats(home, write_three_chats)
    assert len(convo("sessions", "--json").json()) == 3


def test_the_printed_statements_are_those_of_the_configured_store(
    convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite = convo("store", "migrate", "--print-sql").out
    assert "PRAGMA user_version" in sqlite
    (home / "config").mkdir(parents=True)
    text = '[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me@127.0.0.1:1/db"\n'
    (home / "config" / "config.toml").write_text(text)
    postgres = convo("store", "migrate", "--print-sql")
    assert (postgres.exit, postgres.err, "CREATE SCHEMA" in postgres.out) == (0, "", True)

    monkeypatch.setenv("CONVO_STORE", f"sqlite:{home / 'other.db'}")
    assert convo("store", "migrate", "--print-sql").out == sqlite


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--partitions", "4"], "--partitions requires --print-sql"),
        (["--above", "1"], "--above requires --print-sql"),
        (["--print-sql", "--above", "1"], "only a PostgreSQL store prints single migrations"),
        (["--print-sql", "--partitions", "4"], "only a PostgreSQL store supports partitions"),
    ],
)
def test_partition_and_single_migration_options_apply_only_to_postgresql_statements(
    argv: list[str], message: str, convo: Convo
) -> None:
    got = convo("store", "migrate", *argv)

    assert (got.exit, got.out) == (2, "")
    assert got.err.splitlines()[0] == f"convo: {message}"


# -- PostgreSQL -----------------------------------------------------------------------------------


def test_the_statements_for_a_server_are_printed_without_a_connection(convo: Convo) -> None:
    url = "postgresql://nobody@nowhere.invalid/convo"
    plain = convo("store", "migrate", "--print-sql", "--store", url)
    partitioned = convo("store", "migrate", "--print-sql", "--partitions", "4", "--store", url)

    assert (plain.exit, plain.err, partitioned.exit, partitioned.err) == (0, "", 0, "")
    assert "CREATE TABLE convo.items" in plain.out
    assert "PARTITION BY HASH (tenant)" not in plain.out
    assert "PARTITION BY HASH (tenant)" in partitioned.out


@pytest.mark.needs("postgresql")
def test_a_server_is_migrated_measured_and_pruned(convo: Convo) -> None:
    url = cleared_database()
    asyncio.run(write_sample(url))

    assert convo("store", "migrate", "--json", "--store", url).json()["ran"] == []
    (tenant,) = convo("store", "stats", "--json", "--store", url).json()
    assert (tenant["tenant"], tenant["rows"]["sessions"], tenant["rows"]["items"]) == ("local", 1, 1)
    assert (
        convo("store", "prune", "--older-than", CUTOFF, "--store", url).err
        == "dry run, nothing removed; pass --yes to remove this data\n"
    )
    assert convo("store", "prune", "--older-than", CUTOFF, "--yes", "--store", url).err == "removed\n"
    assert convo("store", "stats", "--json", "--store", url).json() == []


async def write_sample(url: str) -> None:
    store = open_store(url)
    await store.commit(everything("local"))
    await store.aclose()


def test_an_unreachable_server_is_reported_without_its_password(convo: Convo) -> None:
    got = convo("store", "stats", "--store", "postgresql://me:hush@127.0.0.1:1/convo?connect_timeout=2")

    assert (got.exit, got.out) == (1, "")
    assert got.err.startswith("convo: ")
    assert "hush" not in got.err


@pytest.mark.parametrize("argv", [["check"], ["backup", "copy.db"], ["recover", "copy.db"]])
def test_a_missing_database_of_the_option_is_not_created_by_the_suggested_command(
    argv: list[str], convo: Convo, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.db"
    got = convo("store", *argv, "--store", f"sqlite:{missing}")
    assert (got.exit, got.err) == (5, f"convo: no database '{missing}'\n  try: check the path of --store\n")
    assert "check the path" not in convo("store", *argv).err
