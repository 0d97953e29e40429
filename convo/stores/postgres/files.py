"""Uploaded files, whose contents are stored once per tenant."""

from collections.abc import Sequence
from hashlib import sha256

from convo.errors import NotFound
from convo.stores.base import FileQuota, StoredFile, check_stored_name
from convo.stores.postgres.commit import INSERT_ROOT, INSERT_TENANT, LOCK_TENANT_EXCLUSIVE
from convo.stores.postgres.tenant_rows import (
    BEGIN,
    COMMIT,
    DatabaseConnection,
    Row,
    Statement,
    TenantConnection,
    escape_name,
    node_id,
    node_rest,
    run_pipeline,
    unescape_name,
)

COLUMNS = "id, name, purpose, media_type, size, created_at, expires_at"

SELECT_USAGE = "SELECT count(*), coalesce(sum(size), 0)::bigint FROM convo.files WHERE tenant = $1"

INSERT_CONTENT = "INSERT INTO convo.file_contents (tenant, hash, content) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"

INSERT_FILE = f"""
INSERT INTO convo.files (tenant, content, {COLUMNS}, place)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce(max(place), 0) + 1 FROM convo.files WHERE tenant = $1
"""

DELETE_FILE = "DELETE FROM convo.files WHERE tenant = $1 AND id = $2 RETURNING id"

DELETE_OLD_FILES = "DELETE FROM convo.files WHERE tenant = $1 AND created_at < $2 RETURNING id"

DELETE_UNREFERENCED_CONTENTS = """
DELETE FROM convo.file_contents WHERE tenant = $1 AND NOT EXISTS (
    SELECT 1 FROM convo.files WHERE files.tenant = $1 AND files.content = file_contents.hash)
"""

SELECT_TENANTS_WITH_EXPIRED_FILES = """
SELECT DISTINCT tenants.name FROM convo.files JOIN convo.tenants ON tenants.tenant = files.tenant WHERE expires_at <= $1
"""

DELETE_EXPIRED_FILES = "DELETE FROM convo.files WHERE tenant = $1 AND expires_at <= $2 RETURNING id"


async def insert_file(t: TenantConnection, file: StoredFile, content: bytes, quota: FileQuota) -> bool:
    """Insert a file, unless the tenant would then have more than `quota`. Expired files are deleted first.

    The exclusive lock of the tenant makes concurrent uploads keep the quota.
    """
    names = (file.id, file.name, file.purpose, file.media_type)
    for name in names:
        check_stored_name(name)
    *_, usage = await t.run_pipeline(
        BEGIN,
        t.statement(LOCK_TENANT_EXCLUSIVE),
        t.statement(INSERT_TENANT, escape_name(t.name)),
        t.statement(INSERT_ROOT, node_id(t.root), node_rest(t.root)),
        t.statement(DELETE_EXPIRED_FILES, file.created_at),
        t.statement(SELECT_USAGE),
    )
    count, size_bytes = map(int, usage[0])
    hashed = sha256(content).digest()
    inserts = (
        t.statement(INSERT_CONTENT, hashed, content),
        t.statement(INSERT_FILE, hashed, *map(escape_name, names), len(content), file.created_at, file.expires_at),
    )
    is_within = count < quota.max_files and size_bytes + len(content) <= quota.max_bytes
    await t.run_pipeline(*(inserts if is_within else ()), t.statement(DELETE_UNREFERENCED_CONTENTS), COMMIT)
    return is_within


async def select_file(t: TenantConnection, file_id: str) -> StoredFile | None:
    row = await t.fetch_row(f"SELECT {COLUMNS} FROM convo.files WHERE tenant = $1 AND id = $2", escape_name(file_id))
    return _file_from_row(row) if row else None


async def select_files(t: TenantConnection) -> Sequence[StoredFile]:
    """Return the files of the tenant, in the order of their upload."""
    rows = await t.fetch_all(f"SELECT {COLUMNS} FROM convo.files WHERE tenant = $1 ORDER BY place")
    return [_file_from_row(row) for row in rows]


async def select_file_content(t: TenantConnection, file_id: str) -> bytes | None:
    content = await t.fetch_value(
        "SELECT file_contents.content FROM convo.files"
        " JOIN convo.file_contents ON file_contents.tenant = $1 AND hash = files.content"
        " WHERE files.tenant = $1 AND files.id = $2",
        escape_name(file_id),
    )
    return None if content is None else bytes(content)


async def remove_file(t: TenantConnection, file_id: str) -> None:
    """Delete a file, and its content if no other file has it. Raises NotFound."""
    if not await _delete_files(t, t.statement(DELETE_FILE, escape_name(file_id))):
        raise NotFound("file", file_id)


async def delete_old_files(t: TenantConnection, before: float) -> int:
    """Delete the files that were uploaded before this moment, and return their number."""
    return await _delete_files(t, t.statement(DELETE_OLD_FILES, before))


async def count_old_files(t: TenantConnection, before: float) -> int:
    return int(await t.fetch_value("SELECT count(*) FROM convo.files WHERE tenant = $1 AND created_at < $2", before))


async def delete_expired_files(db: DatabaseConnection, now: float) -> int:
    """Delete the files of all tenants that expired up to `now`, and return their number."""
    total = 0
    for (name,) in (await run_pipeline(db, Statement(SELECT_TENANTS_WITH_EXPIRED_FILES, (now,))))[0]:
        t = TenantConnection.from_name(db, unescape_name(name))
        total += await _delete_files(t, t.statement(DELETE_EXPIRED_FILES, now))
    return total


async def _delete_files(t: TenantConnection, delete: Statement) -> int:
    """Run `delete`, which returns the ids of the deleted files, then delete contents that no file has."""
    _, _, deleted, _, _ = await t.run_pipeline(
        BEGIN, t.statement(LOCK_TENANT_EXCLUSIVE), delete, t.statement(DELETE_UNREFERENCED_CONTENTS), COMMIT
    )
    return len(deleted)


def _file_from_row(row: Row) -> StoredFile:
    file_id, name, purpose, media_type, size_bytes, created_at, expires_at = row
    return StoredFile(
        unescape_name(file_id),
        unescape_name(name),
        unescape_name(purpose),
        unescape_name(media_type),
        size_bytes,
        created_at,
        expires_at,
    )
