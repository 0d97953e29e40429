"""The pages of a database file are read without SQLite."""

import sqlite3
from contextlib import closing
from pathlib import Path

from convo.stores.sqlite.page_reader import PageReader

PAGE_SIZE = 4096
LONG = "x" * 3 * PAGE_SIZE


def build_file(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        for statement in statements:
            db.execute(statement)


def test_every_kind_of_value_is_read_with_its_rowid(tmp_path: Path) -> None:
    """Integers are stored in 0 to 8 bytes; a long text continues in other pages."""
    integers = [sign * (1 << bits) for bits in (1, 7, 8, 15, 23, 31, 47, 62) for sign in (1, -1)]
    values = [
        None,
        0,
        1,
        -1,
        *integers,
        2**63 - 1,
        -(2**63),
        0.5,
        -1e300,
        "",
        "ä",
        LONG,
        b"",
        b"\x00\xff",
        LONG.encode(),
    ]
    file = tmp_path / "values.db"
    build_file(file, "CREATE TABLE a (x)")
    with closing(sqlite3.connect(file)) as db:
        db.executemany("INSERT INTO a VALUES (?)", [(value,) for value in values])
        db.execute("INSERT INTO a (rowid, x) VALUES (-5, 'negative')")
        db.commit()

    with PageReader(file) as pages:
        rows = {
            cell.rowid: cell.values
            for number in pages.tree_pages(pages.tree_roots()["a"])
            for cell in pages.cells(number)
        }
    assert rows == {-5: ("negative",), **{rowid: (value,) for rowid, value in enumerate(values, 1)}}


def test_the_pages_of_a_dropped_table_are_free(tmp_path: Path) -> None:
    file = tmp_path / "free.db"
    build_file(file, "CREATE TABLE a (x)", f"INSERT INTO a VALUES ('{LONG}')", "CREATE TABLE b (x)", "DROP TABLE a")

    with PageReader(file) as pages:
        assert (pages.page_count, pages.page_size, pages.application_id) == (6, PAGE_SIZE, 0)
        assert pages.tree_roots() == {"b": 6}
        assert pages.free_pages() == {2, 3, 4, 5}


def test_a_free_first_page_alone_is_free(tmp_path: Path) -> None:
    file = tmp_path / "first.db"
    build_file(file, "CREATE TABLE a (x)", "CREATE TABLE b (x)", "DROP TABLE a")

    with PageReader(file) as pages:
        assert (pages.tree_roots(), pages.free_pages()) == ({"b": 3}, {2})
