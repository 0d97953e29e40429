"""The tables of a store, and the patterns of their values."""

import re
import sqlite3
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import databases
from tests.surface.commands import RevisionShell
from tests.surface.document import Collection, loads

COMMENT = re.compile(r"--[^\n]*")

SHADOW = re.compile(r"words_\w+")
"""Tables that SQLite creates for the search index."""


def collect_sqlite(collection: Collection, name: str, home: Path) -> None:
    """Collect the schema of the SQLite store in `home`, and the patterns of its values in the section of `name`."""
    for file in sorted(path for path in home.rglob("*.db") if path.is_file()):
        with sqlite3.connect(file) as db:
            for pragma in ("application_id", "user_version", "journal_mode", "page_size"):
                collection.add_value("sqlite", pragma, db.execute(f"PRAGMA {pragma}").fetchone()[0])
            found = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
            for kind, table, sql in found:
                collection.add_value("sqlite", f"{kind} {table}", statement(sql))
                if kind == "table" and not SHADOW.fullmatch(table) and "VIRTUAL" not in sql:
                    cursor = db.execute(f"SELECT * FROM {table}")
                    columns = [column[0] for column in cursor.description]
                    add_rows(collection, f"sqlite {name}", table, columns, cursor)
            add_keys(collection, db)
        db.close()


def add_rows(collection: Collection, section: str, table: str, columns: list[str], rows: Iterable[Any]) -> None:
    """Add the patterns of the values of a table; JSON values get one entry per path."""
    for row in rows:
        for column, written in zip(columns, row, strict=True):
            value, form = decoded_bytes(written)
            if form:
                collection.add_words(section, f"{table}.{column} form", [form])
            document = loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else None
            if isinstance(value, bytes | memoryview):
                collection.add_words(section, f"{table}.{column}", [f"{len(value)} bytes"])
            elif document is None:
                collection.add_words(section, f"{table}.{column}", [collection.masks.pattern(column, value)])
            else:
                by_index = (
                    {str(index): one for index, one in enumerate(document)} if isinstance(document, list) else None
                )
                collection.add_document(section, f"{table}.{column}", document if by_index is None else by_index)


def decoded_bytes(value: object) -> tuple[object, str]:
    """Decode JSON bytes to text; returns the value and its form, or an unchanged value and an empty form."""
    if isinstance(value, bytes) and value[:1] in (b"{", b"x"):
        form = "JSON" if value[:1] == b"{" else "JSON with zlib"
        with suppress(zlib.error, UnicodeDecodeError):  # a hash may start with the same byte
            text = (value if form == "JSON" else zlib.decompress(value)).decode()
            return text, form
    return value, ""


def add_keys(collection: Collection, db: sqlite3.Connection) -> None:
    """Add the keys of first nodes: an item without a random id has the same key in every release."""
    for key, body in db.execute(FIRST_NODES):
        if collection.masks.masked(body) == body:
            collection.add_value("formats", f"key of {body}", key)


FIRST_NODES = """
SELECT lower(hex(nodes.key)), items.body FROM nodes JOIN items ON items.n = nodes.item
JOIN nodes AS parents ON parents.n = nodes.parent WHERE parents.item IS NULL
"""


def statement(sql: str) -> str:
    """An SQL statement without comments and line breaks."""
    return " ".join(COMMENT.sub("", sql).split())


def collect_postgresql(collection: Collection, shell: RevisionShell) -> None:
    """Collect the schema of a new PostgreSQL database, and the patterns of the rows of three conversations."""
    import psycopg

    for partitions in ("0", "4"):
        arguments = ("--store", "postgresql://nowhere/none", "--print-sql", "--partitions", partitions)
        script = statement(shell.run("store", "migrate", *arguments).stdout)
        collection.add_names(f"postgresql script, {partitions} partitions", script.split("; "))
    if not databases.available():
        return
    with databases.start_server() as server:
        url = server.url("convo")
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("CREATE DATABASE convo")
        migrated = shell.run("store", "migrate", "--store", url, "--json")
        collection.add_document("postgresql", "convo store migrate", loads(migrated.stdout))
        fill_database(shell, url)
        with psycopg.connect(url, autocommit=True) as db:
            for query in CATALOGUE:
                for name, value in db.execute(query):
                    collection.add_value("postgresql", name, value)
            for (table,) in db.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'convo'"):
                cursor = db.execute(f"SELECT * FROM convo.{table}")
                add_rows(collection, "stored postgresql", table, [one.name for one in cursor.description or ()], cursor)


CATALOGUE = (
    "SELECT 'column ' || table_name || '.' || column_name, concat_ws(' ', data_type, collation_name, 'nullable ' || "
    "is_nullable, column_default) FROM information_schema.columns WHERE table_schema = 'convo'",
    "SELECT 'index ' || indexname, indexdef FROM pg_indexes WHERE schemaname = 'convo'",
    "SELECT 'constraint ' || conrelid::regclass || ' ' || conname, pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE connamespace = 'convo'::regnamespace",
)


def fill_database(shell: RevisionShell, url: str) -> None:
    """Run one turn for each owner except replay, so that the tables have rows."""
    for owner in ("session", "conversation", "chain"):
        shell.run("chat", "-q", f"--{owner}", "-n", owner, "-m", "scripted/echo", "one", env={"CONVO_STORE": url})
