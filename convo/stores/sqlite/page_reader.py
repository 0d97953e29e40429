"""Reads the rows of a SQLite file page by page, whatever else of the file is damaged.

SQLite finds a row by the schema, the root of its table and the pages between; where one of them is
lost, so is all that lies behind it. Here each page is read by itself and each cell is validated by
itself. source: https://www.sqlite.org/fileformat2.html
"""

import os
import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, TypeAlias

Value: TypeAlias = int | float | str | bytes | None

MAGIC = b"SQLite format 3\0"
SIZES = (4096, 1024, 2048, 512, 8192, 16384, 32768, 65536)
USUAL_SIZE = SIZES[0]
HEADER = 100
"""Bytes of the file's header, which the first page begins with."""

APPLICATION_ID = slice(68, 72)

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
TREES = frozenset({INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF})
WITH_ROWS = frozenset({INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF})

LOG_MAGIC = (0x377F0682, 0x377F0683)
LOG_HEADER, FRAME_HEADER = 32, 24
SAMPLE = 500
"""Pages by which a page size is judged whose header is lost."""


class Cell(NamedTuple):
    """One row: `rowid` is None in an index, and in a table without row ids."""

    rowid: int | None
    values: tuple[Value, ...]


class PageReader:
    """The pages of a database file with those of its log; nothing is written."""

    def __init__(self, file: Path) -> None:
        self._file: BinaryIO = file.open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        log = Path(f"{file}-wal")
        self._log: BinaryIO | None = log.open("rb") if log.is_file() else None
        self.page_size = self._found_size()
        self._in_log: dict[int, int] = {}
        logged = self._read_log()
        self.count = max(-(-self._size // self.page_size), logged)
        self._max_table, self._max_index = self.page_size - 35, (self.page_size - 12) * 64 // 255 - 23
        self._min = (self.page_size - 12) * 32 // 255 - 23

    def __enter__(self) -> "PageReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        if self._log:
            self._log.close()

    @property
    def application_id(self) -> int:
        """The number by which the file's header names its program; 0 where the header is lost."""
        first = self.page(1)
        return int.from_bytes(first[APPLICATION_ID], "big") if first.startswith(MAGIC) else 0

    def page(self, number: int) -> bytes:
        """A page as the last transaction left it; zeros for what the file is too short for."""
        if number in self._in_log and self._log:
            self._log.seek(self._in_log[number])
            found = self._log.read(self.page_size)
        else:
            self._file.seek((number - 1) * self.page_size)
            found = self._file.read(self.page_size)
        return found.ljust(self.page_size, b"\0")

    def kind(self, number: int) -> int:
        """The first byte of a page's header: one of `TREES` where it is a page of a tree."""
        return self.page(number)[HEADER if number == 1 else 0]

    def cells(self, number: int) -> Iterator[Cell]:
        """The rows of a page, without those that cannot be read."""
        page = self.page(number)
        start = HEADER if number == 1 else 0
        kind = page[start]
        if kind not in WITH_ROWS:
            return
        for at in self._pointers(page, start):
            found = self._cell(page, at, kind)
            if found is not None:
                yield found

    def children(self, number: int) -> list[int]:
        """The pages below an interior page; none of another page."""
        page = self.page(number)
        start = HEADER if number == 1 else 0
        if page[start] not in (INDEX_INTERIOR, TABLE_INTERIOR):
            return []
        found = [_u32(page, at) for at in self._pointers(page, start)]
        return [child for child in (*found, _u32(page, start + 8)) if 1 < child <= self.count]

    def free(self) -> set[int]:
        """The pages that hold nothing any more, as far as their list can be read."""
        first, found = self.page(1), set[int]()
        if first[:16] != MAGIC:
            return found
        trunk = _u32(first, 32)
        while 1 < trunk <= self.count and trunk not in found:
            page = self.page(trunk)
            found.add(trunk)
            many = min(_u32(page, 4), self.page_size // 4 - 2)
            found.update(leaf for leaf in struct.unpack_from(f">{many}I", page, 8) if 1 < leaf <= self.count)
            trunk = _u32(page, 0)
        return found

    # -- cells ------------------------------------------------------------------------------------

    def _pointers(self, page: bytes, start: int) -> list[int]:
        first = start + (12 if page[start] in (INDEX_INTERIOR, TABLE_INTERIOR) else 8)
        many = min(struct.unpack_from(">H", page, start + 3)[0], (self.page_size - first) // 2)
        found = struct.unpack_from(f">{many}H", page, first)
        return [at for at in found if first <= at < self.page_size - 3]

    def _cell(self, page: bytes, at: int, kind: int) -> Cell | None:
        try:
            if kind == INDEX_INTERIOR:
                at += 4
            size, at = _varint(page, at)
            rowid = None
            if kind == TABLE_LEAF:
                unsigned, at = _varint(page, at)
                rowid = unsigned - 2**64 if unsigned >= 2**63 else unsigned
            most = self._max_table if kind == TABLE_LEAF else self._max_index
            payload = self._payload(page, at, size, most)
            values = None if payload is None else _record(payload)
        except (IndexError, struct.error):
            return None
        return None if values is None else Cell(rowid, values)

    def _payload(self, page: bytes, at: int, size: int, most: int) -> bytes | None:
        """A row's bytes, with those on overflow pages as far as they can be followed; None where it is no row."""
        if size > self.count * self.page_size:
            return None
        if size <= most:
            return page[at : at + size] if at + size <= self.page_size else None
        local = self._min + (size - self._min) % (self.page_size - 4)
        if local > most:
            local = self._min
        if at + local + 4 > self.page_size:
            return None
        parts, left, following = [page[at : at + local]], size - local, _u32(page, at + local)
        while left > 0:
            if not 1 < following <= self.count:
                break
            more = self.page(following)
            parts.append(more[4 : 4 + left])
            left -= len(parts[-1])
            following = _u32(more, 0)
        return b"".join(parts).rstrip(b"\0") if left > 0 else b"".join(parts)

    # -- the size of a page, and the log ----------------------------------------------------------

    def _found_size(self) -> int:
        head = self._file.read(HEADER)
        size = struct.unpack_from(">H", head, 16)[0] if len(head) >= HEADER else 0
        size = 65536 if size == 1 else size
        if head[:16] == MAGIC and size in SIZES:
            return size
        scores = {size: self._score(size) for size in SIZES}
        best = max(SIZES, key=scores.__getitem__)
        return best if scores[best] else USUAL_SIZE

    def _score(self, size: int) -> int:
        """How many pages there are, at most, that look like pages of a tree if pages have this size."""
        score = 0
        for number in range(min(self._size // size, SAMPLE)):
            self._file.seek(number * size)
            page = self._file.read(size)
            many = struct.unpack_from(">H", page, 3)[0]
            if page[0] not in TREES or not 0 < many <= (size - 12) // 2:
                continue
            first = 12 if page[0] in (INDEX_INTERIOR, TABLE_INTERIOR) else 8
            if first + 2 * many <= size:
                score += all(first <= at < size for at in struct.unpack_from(f">{many}H", page, first))
        return score

    def _read_log(self) -> int:
        """Note which pages the log holds, up to its last whole transaction; how many pages the file has then."""
        if self._log is None:
            return 0
        head = self._log.read(LOG_HEADER)
        if len(head) < LOG_HEADER:
            return 0
        magic, _, size, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", head)
        order = "big" if magic == LOG_MAGIC[1] else "little"
        if magic not in LOG_MAGIC or size != self.page_size or _checksum(head[:24], (0, 0), order) != (sum1, sum2):
            return 0
        sums, pages, pending, at = (sum1, sum2), 0, dict[int, int](), LOG_HEADER
        while len(frame := self._log.read(FRAME_HEADER + size)) == FRAME_HEADER + size:
            number, commit, *salts, sum1, sum2 = struct.unpack(">6I", frame[:FRAME_HEADER])
            sums = _checksum(frame[:8] + frame[FRAME_HEADER:], sums, order)
            if salts != [salt1, salt2] or sums != (sum1, sum2) or not number:
                break
            pending[number] = at + FRAME_HEADER
            if commit:
                self._in_log.update(pending)
                pending, pages = {}, commit
            at += FRAME_HEADER + size
        return pages


def _checksum(data: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    words = array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    first, second = before
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _u32(page: bytes, at: int) -> int:
    return int.from_bytes(page[at : at + 4], "big")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place behind it. raises: IndexError"""
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


INT_BYTES = (0, 1, 2, 3, 4, 6, 8)


def _record(payload: bytes) -> tuple[Value, ...] | None:
    """The values of a row; None where it is not one. A text at the end may be cut. raises: IndexError, struct.error"""
    head, at = _varint(payload, 0)
    if not at <= head <= len(payload):
        return None
    values: list[Value] = []
    body = head
    while at < head:
        kind, at = _varint(payload, at)
        length = INT_BYTES[kind] if kind < 7 else 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2
        is_cut = body + length > len(payload)
        if kind in (10, 11) or (is_cut and (kind < 13 or kind % 2 == 0 or at < head)):
            return None
        raw = payload[body : body + length]
        body += length
        if kind == 0:
            values.append(None)
        elif kind == 7:
            values.append(struct.unpack(">d", raw)[0])
        elif kind < 10:
            values.append(kind - 8 if kind > 7 else int.from_bytes(raw, "big", signed=True))
        elif kind % 2:
            values.append(raw.decode(errors="replace"))
        else:
            values.append(raw)
    return tuple(values)
