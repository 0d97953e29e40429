"""Uploaded files, whose contents are stored once per tenant."""

import sqlite3
from collections.abc import Sequence
from hashlib import sha256

from convo.errors import NotFound
from convo.stores.base import FileQuota, StoredFile, check_stored_name
from convo.stores.sqlite import connection
from convo.stores.sqlite.tenant_rows import TenantConnection, to_query_name

COLUMNS = "id, name, purpose, media_type, size, created_at, expires_at"


def insert_file(t: TenantConnection, file: StoredFile, content: bytes, quota: FileQuota) -> bool:
    """Insert a file, unless the tenant would then have more than `quota`. Expired files are deleted first."""
    for name in (file.id, file.name, file.purpose, file.media_type):
        check_stored_name(name)
    delete_expired_files(t.db, file.created_at)
    count, size_bytes = t.fetch_all(
        "SELECT count(*), coalesce(sum(size), 0) FROM files WHERE tenant = ?", t.tenant_number
    )[0]
    if count >= quota.max_files or size_bytes + len(content) > quota.max_bytes:
        return False
    hashed = sha256(content).digest()
    content_row = t.fetch_value("SELECT n FROM file_contents WHERE tenant = ? AND hash = ?", t.tenant_number, hashed)
    if content_row is None:
        content_row = t.execute_insert(
            "INSERT INTO file_contents (tenant, hash, content) VALUES (?, ?, ?)", t.tenant_number, hashed, content
        )
    t.execute(
        f"INSERT INTO files (tenant, content, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constant names
        *(t.tenant_number, content_row, file.id, file.name, file.purpose, file.media_type),
        *(len(content), file.created_at, file.expires_at),
    )
    return True


def select_file(t: TenantConnection, file_id: str) -> StoredFile | None:
    row = t.fetch_row(
        f"SELECT {COLUMNS} FROM files WHERE tenant = ? AND id = ?",  # noqa: S608 - constant names
        t.tenant_number,
        to_query_name(file_id),
    )
    return StoredFile(*row) if row else None


def select_files(t: TenantConnection) -> Sequence[StoredFile]:
    """Return the files of the tenant, in the order of their upload."""
    rows = t.fetch_all(f"SELECT {COLUMNS} FROM files WHERE tenant = ? ORDER BY n", t.tenant_number)  # noqa: S608 - constant names
    return [StoredFile(*row) for row in rows]


def select_file_content(t: TenantConnection, file_id: str) -> bytes | None:
    content: bytes | None = t.fetch_value(
        "SELECT file_contents.content FROM files JOIN file_contents ON file_contents.n = files.content"
        " WHERE files.tenant = ? AND files.id = ?",
        t.tenant_number,
        to_query_name(file_id),
    )
    return content


def remove_file(t: TenantConnection, file_id: str) -> None:
    """Delete a file, and its content if no other file has it. Raises NotFound."""
    row = t.fetch_row(
        "SELECT n, content FROM files WHERE tenant = ? AND id = ?", t.tenant_number, to_query_name(file_id)
    )
    if row is None:
        raise NotFound("file", file_id)
    delete_files(t.db, [row])


def delete_expired_files(db: sqlite3.Connection, now: float) -> int:
    """Delete the files of all tenants that expired up to `now`, and return their number."""
    rows = db.execute("SELECT n, content FROM files WHERE expires_at <= ?", (now,)).fetchall()
    delete_files(db, rows)
    return len(rows)


def delete_files(db: sqlite3.Connection, rows: Sequence[tuple[int, int]]) -> None:
    """Delete files, given as rowid and rowid of the content, and contents that no other file has."""
    db.executemany("DELETE FROM files WHERE n = ?", [(n,) for n, _ in rows])
    db.executemany(
        "DELETE FROM file_contents WHERE n = ?1 AND NOT EXISTS (SELECT 1 FROM files WHERE content = ?1)",
        [(content,) for _, content in rows],
    )
    if rows:
        connection.request_vacuum(db)
