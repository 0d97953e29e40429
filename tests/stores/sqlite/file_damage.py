"""Damaged copies of a database, as disks, copies and crashes leave them, reproducible by seed."""

import os
import random
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from tests.needs import find_recovery_shell

PAGE = 4096


def pages_of(file: Path) -> dict[str, list[int]]:
    """Return the page numbers of each table and index, and of each kind of page.

    Pages of the kinds "overflow", "interior" and "leaf" belong to any table.
    """
    found: dict[str, list[int]] = {"header": [1], "overflow": [], "interior": [], "leaf": [], "freelist": []}
    count = os.path.getsize(file) // PAGE
    owned: set[int] = set()
    data = file.read_bytes()
    with closing(sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)) as db:
        roots = db.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0").fetchall()
    for name, root in [("sqlite_schema", 1), *roots]:
        found[name] = list(_tree(data, root))
        for number in found[name]:
            start = (number - 1) * PAGE + (100 if number == 1 else 0)
            found["interior" if data[start] in (2, 5) else "leaf"].append(number)
        owned.update(found[name])
    free, trunk = set[int](), int.from_bytes(data[32:36], "big")
    while trunk:
        at = (trunk - 1) * PAGE
        many = int.from_bytes(data[at + 4 : at + 8], "big")
        free |= {trunk, *(int.from_bytes(data[at + 8 + 4 * n : at + 12 + 4 * n], "big") for n in range(many))}
        trunk = int.from_bytes(data[at : at + 4], "big")
    found["freelist"] = sorted(free)
    found["overflow"] = [number for number in range(1, count + 1) if number not in owned | free]
    found["leaf"] = [number for number in found["leaf"] if number > 1]
    return {kind: numbers for kind, numbers in found.items() if numbers}


def _tree(data: bytes, root: int) -> Iterator[int]:
    yield root
    at = (root - 1) * PAGE
    start = at + (100 if root == 1 else 0)
    if data[start] in (2, 5):
        many = int.from_bytes(data[start + 3 : start + 5], "big")
        cells = [int.from_bytes(data[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(many)]
        for cell in cells:
            yield from _tree(data, int.from_bytes(data[at + cell : at + cell + 4], "big"))
        yield from _tree(data, int.from_bytes(data[start + 8 : start + 12], "big"))


def zero(file: Path, *numbers: int) -> None:
    with file.open("r+b") as opened:
        for number in numbers:
            opened.seek((number - 1) * PAGE)
            opened.write(bytes(PAGE))


def flip(file: Path, dice: random.Random, many: int, *, first: int = 0, last: int | None = None) -> None:
    """Flip `many` random bits from the byte `first` up to `last`."""
    size = os.path.getsize(file)
    with file.open("r+b") as opened:
        for _ in range(many):
            at = dice.randrange(first, min(last or size, size))
            opened.seek(at)
            before = opened.read(1)[0]
            opened.seek(at)
            opened.write(bytes([before ^ 1 << dice.randrange(8)]))


def zero_some(kind: str, many: int = 1) -> Callable[[Path, random.Random], None]:
    def damage(file: Path, dice: random.Random) -> None:
        numbers = pages_of(file)[kind]
        zero(file, *dice.sample(numbers, min(many, len(numbers))))

    return damage


def truncate(share: float) -> Callable[[Path, random.Random], None]:
    def damage(file: Path, dice: random.Random) -> None:
        os.truncate(file, int(os.path.getsize(file) * share) + dice.randrange(PAGE))

    return damage


def flip_some(many: int) -> Callable[[Path, random.Random], None]:
    return lambda file, dice: flip(file, dice, many)


def remove_log(file: Path, dice: random.Random) -> None:
    Path(f"{file}-wal").unlink()


def write_garbage_log(file: Path, dice: random.Random) -> None:
    Path(f"{file}-wal").write_bytes(dice.randbytes(3 * PAGE))


def flip_log_bits(file: Path, dice: random.Random) -> None:
    flip(Path(f"{file}-wal"), dice, 3, first=32)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "a zeroed header": zero_some("header"),
    "a flipped header": lambda file, dice: flip(file, dice, 10, last=100),
    "a zeroed interior page": zero_some("interior"),
    "all interior pages zeroed": zero_some("interior", 1000),
    "a zeroed leaf": zero_some("leaf"),
    "ten zeroed leaves": zero_some("leaf", 10),
    "a zeroed page of items": zero_some("items", 3),
    "a zeroed page of nodes": zero_some("nodes", 2),
    "all pages of nodes zeroed": zero_some("nodes", 1000),
    "a zeroed page of sessions": zero_some("sessions"),
    "a zeroed page of links": zero_some("links", 2),
    "a zeroed overflow page": zero_some("overflow", 2),
    "a zeroed page of the free list": zero_some("freelist"),
    "half a file": truncate(0.5),
    "nine tenths of a file": truncate(0.9),
    "10 flipped bits": flip_some(10),
    "100 flipped bits": flip_some(100),
    "1000 flipped bits": flip_some(1000),
    "no log": remove_log,
    "a log of garbage": write_garbage_log,
    "a log with flipped bits": flip_log_bits,
}


def recovered_by_sqlite(file: Path, target: Path) -> dict[str, int]:
    """Count the rows of our tables that `.recover` of SQLite's shell recovers."""
    shell = find_recovery_shell()
    assert shell
    script = subprocess.run([shell, str(file), ".recover"], capture_output=True, check=False).stdout
    subprocess.run([shell, str(target)], input=script, capture_output=True, check=False)
    with closing(sqlite3.connect(target)) as db:
        return {table: _count(db, table) for table in ("items", "nodes", "sessions")}


def count_rows(file: Path) -> dict[str, int]:
    with closing(sqlite3.connect(file)) as db:
        return {table: _count(db, table) for table in ("items", "nodes", "sessions")}


def _count(db: sqlite3.Connection, table: str) -> int:
    try:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.DatabaseError:
        return 0
