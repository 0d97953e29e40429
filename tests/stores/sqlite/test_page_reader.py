"""The pages of a database file are read without SQLite."""

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

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


def test_every_row_of_a_tree_with_several_levels_is_read(tmp_path: Path) -> None:
    """Rows of an index are also on its interior pages."""
    file, count = tmp_path / "levels.db", 2000
    text = "substr('y' || i || hex(zeroblob(60)), 1, 100)"
    build_file(
        file,
        "CREATE TABLE a (x)",
        "CREATE INDEX b ON a (x)",
        f"WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count})"
        f" INSERT INTO a SELECT {text} FROM c",
    )
    texts = [f"y{i}{'0' * 120}"[:100] for i in range(1, count + 1)]

    with PageReader(file) as pages:
        roots = pages.tree_roots()
        trees = {name: list(pages.tree_pages(root)) for name, root in roots.items()}
        rows = {name: [cell for number in numbers for cell in pages.cells(number)] for name, numbers in trees.items()}
        assert not pages.has_rowids(roots["a"])
        assert pages.has_rowids(trees["a"][1])
        assert sorted([1, *trees["a"], *trees["b"]]) == list(range(1, pages.page_count + 1))
    assert {cell.rowid: cell.values for cell in rows["a"]} == {i: (text,) for i, text in enumerate(texts, 1)}
    assert sorted(cell.values for cell in rows["b"]) == sorted((text, i) for i, text in enumerate(texts, 1))
    assert {cell.rowid for cell in rows["b"]} == {None}


def test_a_list_of_tables_that_needs_several_pages_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tables.db"
    build_file(file, *(f"CREATE TABLE t{number} ({LONG[:200]})" for number in range(40)))
    with closing(sqlite3.connect(file)) as db:
        roots = dict(db.execute("SELECT name, rootpage FROM sqlite_schema").fetchall())

    with PageReader(file) as pages:
        assert pages.tree_roots() == roots
        assert len(roots) == 40
        assert not pages.has_rowids(1)


def test_a_list_of_free_pages_that_needs_several_pages_is_read(tmp_path: Path) -> None:
    file = tmp_path / "free.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        for statement in (
            "PRAGMA page_size = 512",
            "CREATE TABLE a (x)",
            "INSERT INTO a VALUES (zeroblob(200000))",
            "DROP TABLE a",
        ):
            db.execute(statement)
        (count,) = db.execute("PRAGMA freelist_count").fetchone()

    with PageReader(file) as pages:
        assert pages.page_size == 512
        assert pages.free_pages() == set(range(2, pages.page_count + 1))
        assert len(pages.free_pages()) == count > 256


@pytest.mark.parametrize("size", [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
def test_the_page_size_is_found_with_the_header_and_without_it(size: int, tmp_path: Path) -> None:
    """Without it, the pages that look like pages of a tree are counted. The first one does not."""
    file = tmp_path / "size.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {size}")
        db.execute("CREATE TABLE a (x)")
        db.executemany("INSERT INTO a VALUES (?)", [("z" * (size // 8),)] * 40)
    with PageReader(file) as pages:
        assert pages.page_size == size
        assert pages.tree_roots() == {"a": 2}

    with file.open("r+b") as damaged:
        damaged.write(bytes(100))
    with PageReader(file) as pages:
        assert pages.page_size == size
        assert (pages.application_id, pages.free_pages()) == (0, set())
        assert [cell.rowid for number in pages.tree_pages(2) for cell in pages.cells(number)]


@pytest.mark.parametrize("content", [b"", bytes(5000), b"SQLite format 3\0"])
def test_a_file_without_a_tree_has_pages_of_the_usual_size(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    file.write_bytes(content)

    with PageReader(file) as pages:
        assert (pages.page_size, pages.tree_roots(), pages.free_pages()) == (4096, {}, set())
        assert pages.page_count == -(-len(content) // 4096)


def log_checksum(data: bytes, order: str, first: int = 0, second: int = 0) -> tuple[int, int]:
    """Return the checksum of a log, as SQLite's documentation of the file format defines it."""
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) % 2**32
        second = (second + odd + first) % 2**32
    return first, second


@pytest.mark.parametrize(("magic", "order"), [(0x377F0682, "<"), (0x377F0683, ">")])
def test_a_log_of_a_machine_with_either_byte_order_is_read(magic: int, order: str, tmp_path: Path) -> None:
    """Pages of transactions that are complete are taken from it, later ones are not."""
    file, copy = tmp_path / "log.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE a (x)")
        db.execute("INSERT INTO a VALUES ('in the log')")
        copy.write_bytes(file.read_bytes())
        log = Path(f"{file}-wal").read_bytes()

    header = struct.pack(">I", magic) + log[4:24]
    checksum = log_checksum(header, order)
    parts = [header, struct.pack(">2I", *checksum)]
    for start in range(32, len(log), 24 + PAGE_SIZE):
        frame = log[start : start + 24 + PAGE_SIZE]
        checksum = log_checksum(frame[:8] + frame[24:], order, *checksum)
        parts += [frame[:16], struct.pack(">2I", *checksum), frame[24:]]
    Path(f"{copy}-wal").write_bytes(b"".join(parts))
    with PageReader(copy) as pages:
        assert (pages.page_count, pages.tree_roots()) == (2, {"a": 2})
        assert [cell.values for cell in pages.cells(2)] == [("in the log",)]

    parts[-1] = b"?" + parts[-1][1:]
    Path(f"{copy}-wal").write_bytes(b"".join(parts))
    with PageReader(copy) as pages:
        assert (pages.page_count, pages.tree_roots()) == (2, {"a": 2})
        assert list(pages.cells(2)) == []


def read_rows(file: Path, tree: str) -> list[tuple[object, ...]]:
    with PageReader(file) as pages:
        numbers = list(pages.tree_pages(pages.tree_roots()[tree]))
        return [cell.values for number in numbers for cell in pages.cells(number)]


def test_rows_of_every_length_around_a_page_are_read_from_tables_and_indexes(tmp_path: Path) -> None:
    """A longer row continues in other pages; a row of an index does so at a quarter of a page."""
    file = tmp_path / "lengths.db"
    build_file(file, "CREATE TABLE a (x)", "CREATE INDEX b ON a (x)")
    texts = [
        "y" * length
        for length in (
            *range(990, 1010),
            *range(1990, 2010),
            *range(4050, 4070),
            *range(5080, 5100),
            *range(8140, 8160),
        )
    ]
    with closing(sqlite3.connect(file)) as db:
        db.executemany("INSERT INTO a VALUES (?)", [(text,) for text in texts])
        db.commit()

    assert sorted(len(str(text)) for (text,) in read_rows(file, "a")) == [len(text) for text in texts]
    assert {text for (text,) in read_rows(file, "a")} == set(texts)
    assert {(text, rowid) for text, rowid in read_rows(file, "b")} == {(text, n) for n, text in enumerate(texts, 1)}


def test_long_values_keep_their_zeros_and_invalid_letters_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "values.db"
    build_file(file, "CREATE TABLE a (x)", "INSERT INTO a VALUES (zeroblob(9000)), (CAST(x'61ff62' AS TEXT)), ('')")
    assert read_rows(file, "a") == [(bytes(9000),), ("a\ufffdb",), ("",)]


def test_a_text_ends_where_its_pages_are_lost(tmp_path: Path) -> None:
    file = tmp_path / "lost.db"
    build_file(file, "CREATE TABLE a (x, y)", f"INSERT INTO a VALUES (1, '{LONG}')")
    with file.open("r+b") as damaged:
        damaged.seek(2 * PAGE_SIZE)  # the first page of the rest of the text: the page after it is not known
        damaged.write(struct.pack(">I", 99))
    ((number, text),) = read_rows(file, "a")
    assert number == 1
    assert isinstance(text, str)
    assert PAGE_SIZE < len(text) < len(LONG)
    assert set(text) == {"x"}

    build_file(tmp_path / "bytes.db", "CREATE TABLE a (x, y)", f"INSERT INTO a VALUES ('{LONG}', 1)")
    with (tmp_path / "bytes.db").open("r+b") as damaged:
        damaged.seek(2 * PAGE_SIZE)
        damaged.write(struct.pack(">I", 0))
    assert read_rows(tmp_path / "bytes.db", "a") == []  # a value in the middle is lost, so this is not a whole row


def test_the_application_is_read_from_the_header(tmp_path: Path) -> None:
    file = tmp_path / "id.db"
    build_file(file, "PRAGMA application_id = 0x636F6E76", "PRAGMA user_version = 255", "CREATE TABLE a (x)")
    with PageReader(file) as pages:
        assert pages.application_id == 0x636F6E76


@pytest.mark.parametrize("size", [512, 65536])
def test_the_page_size_of_a_file_without_rows_is_that_of_the_header(size: int, tmp_path: Path) -> None:
    file = tmp_path / "size.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {size}")
        db.execute("CREATE TABLE a (x)")
    with PageReader(file) as pages:
        assert (pages.page_size, pages.page_count, pages.tree_roots()) == (size, 2, {"a": 2})


def test_a_damaged_list_of_free_pages_is_read_as_far_as_it_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "free.db"
    build_file(file, "CREATE TABLE a (x)", f"INSERT INTO a VALUES ('{LONG}')", "DROP TABLE a")
    with PageReader(file) as pages:
        free, (trunk,) = pages.free_pages(), struct.unpack(">I", file.read_bytes()[32:36])
    for position, value in ((4, 2**32 - 1), (0, trunk), (0, 77)):  # a length, a cycle, and a page that is not there
        with file.open("r+b") as damaged:
            damaged.seek((trunk - 1) * PAGE_SIZE + position)
            damaged.write(struct.pack(">I", value))
        with PageReader(file) as pages:
            assert pages.free_pages() == free == {2, 3, 4, 5}


@pytest.mark.parametrize("damage", ["short", "magic", "size", "checksum", "salt", "page"])
def test_a_log_that_is_not_of_the_file_is_ignored(damage: str, tmp_path: Path) -> None:
    file, copy = tmp_path / "log.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE a (x)")
        copy.write_bytes(file.read_bytes())
        log = bytearray(Path(f"{file}-wal").read_bytes())
    if damage == "short":
        del log[31:]
    elif damage in ("magic", "size", "checksum"):
        log[{"magic": 0, "size": 10, "checksum": 31}[damage]] ^= 1
        if damage != "checksum":
            log[24:32] = struct.pack(">2I", *log_checksum(bytes(log[:24]), "<"))
    else:
        log[32 + {"salt": 8, "page": 3}[damage]] ^= 1
    Path(f"{copy}-wal").write_bytes(log)
    with PageReader(copy) as pages:
        assert (pages.page_count, pages.tree_roots()) == (-(-copy.stat().st_size // PAGE_SIZE), {})


def test_an_empty_file_with_a_short_log_has_no_page(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    (tmp_path / "empty.db-wal").write_bytes(b"x" * 20)
    with PageReader(tmp_path / "empty.db") as pages:
        assert pages.page_count == 0
