"""The pages of a damaged database file: trees, cells and the log, read without SQLite.

`PageReader` needs neither an intact header nor an intact schema. It guesses the page size if the header is lost,
takes pages from the log up to its last complete transaction, and skips cells that cannot be read.
source: https://www.sqlite.org/fileformat2.html
"""

import os
import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, TypeAlias

ColumnValue: TypeAlias = int | float | str | bytes | None

SQLITE_MAGIC = b"SQLite format 3\0"
PAGE_SIZES = (4096, 1024, 2048, 512, 8192, 16384, 32768, 65536)
"""The default size first: it is used if no page can be recognized."""

FILE_HEADER_BYTES = 100
"""Bytes of the file header, at the start of the first page."""

APPLICATION_ID_SLICE = slice(68, 72)

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
TREE_PAGES = frozenset({INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF})
PAGES_WITH_ROWS = frozenset({INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF})

WAL_MAGIC = (0x377F0682, 0x377F0683)
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
MAX_SAMPLED_PAGES = 500
"""Pages that are sampled to find the page size when the header is lost."""


class PageCell(NamedTuple):
    """One row: `rowid` is None in an index, and in a table without rowids."""

    rowid: int | None
    values: tuple[ColumnValue, ...]


class PageReader:
    """The pages of a database file with those of its log; nothing is written."""

    def __init__(self, file: Path) -> None:
        self._file: BinaryIO = file.open("rb")
        self._file_size_bytes = os.fstat(self._file.fileno()).st_size
        log = Path(f"{file}-wal")
        self._wal: BinaryIO | None = log.open("rb") if log.is_file() else None
        self.page_size = self._detect_page_size()
        self._wal_offsets: dict[int, int] = {}
        wal_page_count = self._read_wal()
        self.page_count = max(-(-self._file_size_bytes // self.page_size), wal_page_count)
        self._max_table_payload_bytes, self._max_index_payload_bytes = (
            self.page_size - 35,
            (self.page_size - 12) * 64 // 255 - 23,
        )
        self._min_payload_bytes = (self.page_size - 12) * 32 // 255 - 23

    def __enter__(self) -> "PageReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        if self._wal:
            self._wal.close()

    @property
    def application_id(self) -> int:
        """The application id in the file's header; 0 if the header is lost."""
        first_page = self._page(1)
        return int.from_bytes(first_page[APPLICATION_ID_SLICE], "big") if first_page.startswith(SQLITE_MAGIC) else 0

    def has_rowids(self, number: int) -> bool:
        """Return whether this is a page of rows of a table with rowids."""
        return self._page(number)[FILE_HEADER_BYTES if number == 1 else 0] == TABLE_LEAF

    def tree_roots(self) -> dict[str, int]:
        """Return the first page of each tree by its name, as far as the file's list of tables can be read."""
        roots: dict[str, int] = {}
        for number in self.tree_pages(1):
            for _, values in self.cells(number):
                if len(values) == 5 and isinstance(values[1], str) and isinstance(values[3], int):
                    roots[values[1]] = values[3]
        return roots

    def tree_pages(self, start: int) -> Iterator[int]:
        """Iterate over the pages of a tree, each once: a damaged tree may have a cycle."""
        visited, pending = set[int](), [start]
        while pending:
            number = pending.pop()
            if number in visited or not 0 < number <= self.page_count:
                continue
            visited.add(number)
            yield number
            pending += self._child_pages(number)

    def cells(self, number: int) -> Iterator[PageCell]:
        """Iterate over the rows of a page that can be read."""
        page = self._page(number)
        start = FILE_HEADER_BYTES if number == 1 else 0
        kind = page[start]
        if kind not in PAGES_WITH_ROWS:
            return
        for offset in self._cell_offsets(page, start):
            cell = self._parse_cell(page, offset, kind)
            if cell is not None:
                yield cell

    def free_pages(self) -> set[int]:
        """Return the unused pages, as far as their list can be read."""
        first_page, pages = self._page(1), set[int]()
        if first_page[:16] != SQLITE_MAGIC:
            return pages
        trunk = _read_u32(first_page, 32)
        while 1 < trunk <= self.page_count and trunk not in pages:
            page = self._page(trunk)
            pages.add(trunk)
            count = min(_read_u32(page, 4), self.page_size // 4 - 2)
            pages.update(leaf for leaf in struct.unpack_from(f">{count}I", page, 8) if 1 < leaf <= self.page_count)
            trunk = _read_u32(page, 0)
        return pages

    # -- pages and cells --------------------------------------------------------------------------

    def _page(self, number: int) -> bytes:
        """Return a page as the last transaction wrote it; zeros after the end of the file."""
        if number in self._wal_offsets and self._wal:
            self._wal.seek(self._wal_offsets[number])
            data = self._wal.read(self.page_size)
        else:
            self._file.seek((number - 1) * self.page_size)
            data = self._file.read(self.page_size)
        return data.ljust(self.page_size, b"\0")

    def _child_pages(self, number: int) -> list[int]:
        """Return the pages below an interior page; none for any other page."""
        page = self._page(number)
        start = FILE_HEADER_BYTES if number == 1 else 0
        if page[start] not in (INDEX_INTERIOR, TABLE_INTERIOR):
            return []
        pages = [_read_u32(page, offset) for offset in self._cell_offsets(page, start)]
        return [child for child in (*pages, _read_u32(page, start + 8)) if 1 < child <= self.page_count]

    def _cell_offsets(self, page: bytes, start: int) -> list[int]:
        array_start = start + (12 if page[start] in (INDEX_INTERIOR, TABLE_INTERIOR) else 8)
        count = min(struct.unpack_from(">H", page, start + 3)[0], (self.page_size - array_start) // 2)
        offsets = struct.unpack_from(f">{count}H", page, array_start)
        return [offset for offset in offsets if array_start <= offset < self.page_size - 3]

    def _parse_cell(self, page: bytes, offset: int, kind: int) -> PageCell | None:
        try:
            if kind == INDEX_INTERIOR:
                offset += 4
            size, offset = _read_varint(page, offset)
            rowid = None
            if kind == TABLE_LEAF:
                unsigned, offset = _read_varint(page, offset)
                rowid = unsigned - 2**64 if unsigned >= 2**63 else unsigned
            max_bytes = self._max_table_payload_bytes if kind == TABLE_LEAF else self._max_index_payload_bytes
            payload = self._read_payload(page, offset, size, max_bytes)
            values = None if payload is None else _parse_record(payload)
        except (IndexError, struct.error):
            return None
        return None if values is None else PageCell(rowid, values)

    def _read_payload(self, page: bytes, offset: int, size: int, max_bytes: int) -> bytes | None:
        """Return a row's bytes, with the overflow pages that can be followed; None if it is not a row."""
        if size > self.page_count * self.page_size:
            return None
        if size <= max_bytes:
            return page[offset : offset + size] if offset + size <= self.page_size else None
        local_size = self._min_payload_bytes + (size - self._min_payload_bytes) % (self.page_size - 4)
        if local_size > max_bytes:
            local_size = self._min_payload_bytes
        if offset + local_size + 4 > self.page_size:
            return None
        parts, remaining, next_page = (
            [page[offset : offset + local_size]],
            size - local_size,
            _read_u32(page, offset + local_size),
        )
        while remaining > 0:
            if not 1 < next_page <= self.page_count:
                break
            overflow_page = self._page(next_page)
            parts.append(overflow_page[4 : 4 + remaining])
            remaining -= len(parts[-1])
            next_page = _read_u32(overflow_page, 0)
        return b"".join(parts).rstrip(b"\0") if remaining > 0 else b"".join(parts)

    # -- the size of a page, and the log ----------------------------------------------------------

    def _detect_page_size(self) -> int:
        header = self._file.read(FILE_HEADER_BYTES)
        size = struct.unpack_from(">H", header, 16)[0] if len(header) >= FILE_HEADER_BYTES else 0
        size = 65536 if size == 1 else size
        if header[:16] == SQLITE_MAGIC and size in PAGE_SIZES:
            return size
        scores = {size: self._score_page_size(size) for size in PAGE_SIZES}
        return max(PAGE_SIZES, key=scores.__getitem__)

    def _score_page_size(self, size: int) -> int:
        """Return how many of the sampled pages look like pages of a tree if pages have this size."""
        score = 0
        for number in range(min(self._file_size_bytes // size, MAX_SAMPLED_PAGES)):
            self._file.seek(number * size)
            page = self._file.read(size)
            count = struct.unpack_from(">H", page, 3)[0]
            array_start = 12 if page[0] in (INDEX_INTERIOR, TABLE_INTERIOR) else 8
            if page[0] in TREE_PAGES and 0 < count <= (size - array_start) // 2:
                score += all(
                    array_start <= offset < size for offset in struct.unpack_from(f">{count}H", page, array_start)
                )
        return score

    def _read_wal(self) -> int:
        """Find the pages in the log up to its last complete transaction; return the page count of the file after it."""
        if self._wal is None:
            return 0
        header = self._wal.read(WAL_HEADER_BYTES)
        if len(header) < WAL_HEADER_BYTES:
            return 0
        magic, _, size, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", header)
        order = "big" if magic == WAL_MAGIC[1] else "little"
        if (
            magic not in WAL_MAGIC
            or size != self.page_size
            or _wal_checksum(header[:24], (0, 0), order) != (sum1, sum2)
        ):
            return 0
        checksum, page_count, pending_offsets, offset = (sum1, sum2), 0, dict[int, int](), WAL_HEADER_BYTES
        while len(frame := self._wal.read(FRAME_HEADER_BYTES + size)) == FRAME_HEADER_BYTES + size:
            page_number, committed_page_count, *salts, sum1, sum2 = struct.unpack(">6I", frame[:FRAME_HEADER_BYTES])
            checksum = _wal_checksum(frame[:8] + frame[FRAME_HEADER_BYTES:], checksum, order)
            if salts != [salt1, salt2] or checksum != (sum1, sum2) or not page_number:
                break
            pending_offsets[page_number] = offset + FRAME_HEADER_BYTES
            if committed_page_count:
                self._wal_offsets.update(pending_offsets)
                pending_offsets, page_count = {}, committed_page_count
            offset += FRAME_HEADER_BYTES + size
        return page_count


def _wal_checksum(data: bytes, checksum: tuple[int, int], order: str) -> tuple[int, int]:
    integers = array("I", data)
    if order != sys.byteorder:
        integers.byteswap()
    first, second = checksum
    for even, odd in zip(integers[::2], integers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _read_u32(page: bytes, offset: int) -> int:
    return int.from_bytes(page[offset : offset + 4], "big")


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a number and the offset after it. Raises IndexError."""
    value = 0
    for position in range(offset, offset + 8):
        byte = data[position]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, position + 1
    return value << 8 | data[offset + 8], offset + 9


INTEGER_SIZES_BYTES = (0, 1, 2, 3, 4, 6, 8)


def _parse_record(payload: bytes) -> tuple[ColumnValue, ...] | None:
    """Return the values of a row; None if it is not one. The last text may be truncated.

    Raises IndexError and struct.error.
    """
    header_size, offset = _read_varint(payload, 0)
    if not offset <= header_size <= len(payload):
        return None
    values: list[ColumnValue] = []
    body_offset = header_size
    while offset < header_size:
        kind, offset = _read_varint(payload, offset)
        length = INTEGER_SIZES_BYTES[kind] if kind < 7 else 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2
        is_truncated = body_offset + length > len(payload)
        if kind in (10, 11) or (is_truncated and (kind < 13 or kind % 2 == 0 or offset < header_size)):
            return None
        raw = payload[body_offset : body_offset + length]
        body_offset += length
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
