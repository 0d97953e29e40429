"""Damaged copies of a database, as disks, copies and crashes leave them, reproducible by seed."""

import os
import random
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from tests.needs import find_recovery_shell

PAGE_SIZE = 4096


def pages_of(file: Path) -> dict[str, list[int]]:
    """Return the page numbers of each table and index, and of each kind of page.

    Pages of the kinds "overflow", "interior" and "leaf" belong to any table.
    """
    pages: dict[str, list[int]] = {"header": [1], "overflow": [], "interior": [], "leaf": [], "freelist": []}
    count = os.path.getsize(file) // PAGE_SIZE
    owned: set[int] = set()
    data = file.read_bytes()
    with closing(sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)) as db:
        roots = db.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0").fetchall()
    for name, root in [("sqlite_schema", 1), *roots]:
        pages[name] = list(_tree_pages(data, root))
        for number in pages[name]:
            start = (number - 1) * PAGE_SIZE + (100 if number == 1 else 0)
            pages["interior" if data[start] in (2, 5) else "leaf"].append(number)
        owned.update(pages[name])
    free, trunk = set[int](), int.from_bytes(data[32:36], "big")
    while trunk:
        offset = (trunk - 1) * PAGE_SIZE
        entries = int.from_bytes(data[offset + 4 : offset + 8], "big")
        free |= {
            trunk,
            *(int.from_bytes(data[offset + 8 + 4 * n : offset + 12 + 4 * n], "big") for n in range(entries)),
        }
        trunk = int.from_bytes(data[offset : offset + 4], "big")
    pages["freelist"] = sorted(free)
    pages["overflow"] = [number for number in range(1, count + 1) if number not in owned | free]
    pages["leaf"] = [number for number in pages["leaf"] if number > 1]
    return {kind: numbers for kind, numbers in pages.items() if numbers}


def _tree_pages(data: bytes, root: int) -> Iterator[int]:
    yield root
    offset = (root - 1) * PAGE_SIZE
    start = offset + (100 if root == 1 else 0)
    if data[start] in (2, 5):
        cell_count = int.from_bytes(data[start + 3 : start + 5], "big")
        cells = [int.from_bytes(data[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(cell_count)]
        for cell in cells:
            yield from _tree_pages(data, int.from_bytes(data[offset + cell : offset + cell + 4], "big"))
        yield from _tree_pages(data, int.from_bytes(data[start + 8 : start + 12], "big"))


def zero_pages(file: Path, *numbers: int) -> None:
    with file.open("r+b") as handle:
        for number in numbers:
            handle.seek((number - 1) * PAGE_SIZE)
            handle.write(bytes(PAGE_SIZE))


def flip_bits(file: Path, rng: random.Random, count: int, *, first: int = 0, last: int | None = None) -> None:
    """Flip `many` random bits from the byte `first` up to `last`."""
    size = os.path.getsize(file)
    with file.open("r+b") as handle:
        for _ in range(count):
            offset = rng.randrange(first, min(last or size, size))
            handle.seek(offset)
            before = handle.read(1)[0]
            handle.seek(offset)
            handle.write(bytes([before ^ 1 << rng.randrange(8)]))


def zero_pages_of(kind: str, count: int = 1) -> Callable[[Path, random.Random], None]:
    def damage(file: Path, rng: random.Random) -> None:
        numbers = pages_of(file)[kind]
        zero_pages(file, *rng.sample(numbers, min(count, len(numbers))))

    return damage


def truncate(share: float) -> Callable[[Path, random.Random], None]:
    def damage(file: Path, rng: random.Random) -> None:
        os.truncate(file, int(os.path.getsize(file) * share) + rng.randrange(PAGE_SIZE))

    return damage


def flip_random_bits(count: int) -> Callable[[Path, random.Random], None]:
    return lambda file, rng: flip_bits(file, rng, count)


def remove_log(file: Path, rng: random.Random) -> None:
    Path(f"{file}-wal").unlink()


def write_garbage_log(file: Path, rng: random.Random) -> None:
    Path(f"{file}-wal").write_bytes(rng.randbytes(3 * PAGE_SIZE))


def flip_log_bits(file: Path, rng: random.Random) -> None:
    flip_bits(Path(f"{file}-wal"), rng, 3, first=32)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "a zeroed header": zero_pages_of("header"),
    "a flipped header": lambda file, rng: flip_bits(file, rng, 10, last=100),
    "a zeroed interior page": zero_pages_of("interior"),
    "all interior pages zeroed": zero_pages_of("interior", 1000),
    "a zeroed leaf": zero_pages_of("leaf"),
    "ten zeroed leaves": zero_pages_of("leaf", 10),
    "a zeroed page of items": zero_pages_of("items", 3),
    "a zeroed page of nodes": zero_pages_of("nodes", 2),
    "all pages of nodes zeroed": zero_pages_of("nodes", 1000),
    "a zeroed page of sessions": zero_pages_of("sessions"),
    "a zeroed page of links": zero_pages_of("links", 2),
    "a zeroed overflow page": zero_pages_of("overflow", 2),
    "a zeroed page of the free list": zero_pages_of("freelist"),
    "half a file": truncate(0.5),
    "nine tenths of a file": truncate(0.9),
    "10 flipped bits": flip_random_bits(10),
    "100 flipped bits": flip_random_bits(100),
    "1000 flipped bits": flip_random_bits(1000),
    "no log": remove_log,
    "a log of garbage": write_garbage_log,
    "a log with flipped bits": flip_log_bits,
}


def rows_recovered_by_sqlite(file: Path, target: Path) -> dict[str, int]:
    """Count the rows of our tables that `.recover` of SQLite's shell recovers, of items those that are JSON."""
    shell = find_recovery_shell()
    assert shell
    script = subprocess.run([shell, str(file), ".recover"], capture_output=True, check=False).stdout
    subprocess.run([shell, str(target)], input=script, capture_output=True, check=False)
    with closing(sqlite3.connect(target)) as db:
        return {
            "items": _count(db, "items WHERE json_valid(body)"),
            "nodes": _count(db, "nodes"),
            "sessions": _count(db, "sessions"),
        }


def count_rows(file: Path) -> dict[str, int]:
    with closing(sqlite3.connect(file)) as db:
        return {table: _count(db, table) for table in ("items", "nodes", "sessions")}


def _count(db: sqlite3.Connection, table: str) -> int:
    try:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.DatabaseError:
        return 0
