"""Databases that are damaged at random, reproducible by seed, and the rows that are left in them."""

import os
import random
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from tests.needs import find_recovery_shell

PAGE_SIZE = 4096
SEED = 42


def overwrite(file: Path, offset: int, content: bytes) -> None:
    """Write `content` over a part of a file, which keeps its size."""
    with file.open("r+b") as handle:
        handle.seek(offset)
        handle.write(content[: max(os.path.getsize(file) - offset, 0)])


def overwrite_bytes(file: Path, rng: random.Random) -> None:
    overwrite(file, rng.randrange(os.path.getsize(file)), rng.randbytes(rng.randrange(1, 2000)))


def overwrite_pages(file: Path, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 5)):
        overwrite(file, rng.randrange(os.path.getsize(file) // PAGE_SIZE) * PAGE_SIZE, rng.randbytes(PAGE_SIZE))


def zero_block(file: Path, rng: random.Random) -> None:
    overwrite(file, rng.randrange(os.path.getsize(file)), bytes(PAGE_SIZE * rng.randrange(1, 17)))


def truncate(file: Path, rng: random.Random) -> None:
    os.truncate(file, int(os.path.getsize(file) * rng.uniform(0.7, 0.99)))


def flip_bits(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(rng.randrange(1, 200)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    overwrite_bytes, overwrite_pages, zero_block, truncate, flip_bits,
)  # fmt: skip


def damage_at_random(file: Path, number: int) -> str:
    """Damage a file in one to three ways that follow from `SEED` and `number`; return their names."""
    rng = random.Random(SEED * 1000 + number)
    damages = rng.choices(DAMAGES, k=rng.randrange(1, 4))
    for damage in damages:
        damage(file, rng)
    return ", ".join(damage.__name__ for damage in damages)


ROW_QUERIES = {
    "items": "SELECT body FROM items",
    "nodes": "SELECT n, key FROM nodes",
    "repeated": "SELECT DISTINCT repeated.n, body FROM repeated JOIN links ON repeated.n IN (route, parameters)",
    "sessions": "SELECT n, id, name FROM sessions WHERE record IS NOT NULL",
    "links": "SELECT n, id, status, created_at FROM links WHERE saw IS NOT NULL",
    "conversations": "SELECT n, id, created_at FROM conversations",
    "runs": "SELECT link FROM runs JOIN links ON links.n = link",
    "events": "SELECT link, number, body FROM events JOIN links ON links.n = link",
    "agent_runs": "SELECT n, id, status FROM agent_runs",
    "agent_documents": "SELECT run, body FROM agent_documents",
    "agent_calls": "SELECT run, id, output FROM agent_calls",
    "files": "SELECT id, name, file_contents.content FROM files JOIN file_contents ON file_contents.n = files.content",
}
"""By table: the columns that identify its rows. A row of use only with another one, such as a file with its content,
counts with it. `members` is left out: its rows end with their conversation, which is cut at its first gap."""

Rows = Mapping[str, "Counter[tuple[object, ...]]"]


def rows_of(file: Path) -> Rows:
    """Return the rows of each table; a table that the shell did not find has none."""
    rows = {table: Counter[tuple[object, ...]]() for table in ROW_QUERIES}
    with closing(sqlite3.connect(file)) as db:
        db.text_factory = bytes
        for table, query in ROW_QUERIES.items():
            with suppress(sqlite3.OperationalError):
                rows[table].update(db.execute(query))
    return rows


def recover_with_shell(file: Path, folder: Path) -> Rows:
    """Return the rows that `.recover` of SQLite's shell finds in a copy of the file."""
    shell = find_recovery_shell()
    assert shell
    shutil.copytree(file.parent, folder / "copy")
    script = subprocess.run([shell, folder / "copy" / file.name, ".recover"], capture_output=True, check=False).stdout
    subprocess.run([shell, folder / "shell.db"], input=script, capture_output=True, check=False)
    return rows_of(folder / "shell.db")
