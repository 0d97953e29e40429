-- Uploaded files. A content is stored once per tenant, however often it is uploaded.

CREATE TABLE file_contents (
    tenant   INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n        INTEGER PRIMARY KEY,
    hash     BLOB NOT NULL,
    content  BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX file_contents_by_hash ON file_contents (tenant, hash);

-- n increases with each upload. expires_at is null for a file that is kept until it is deleted or pruned.
CREATE TABLE files (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    name        TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    media_type  TEXT NOT NULL,
    content     INTEGER NOT NULL REFERENCES file_contents ON DELETE RESTRICT,
    size        INTEGER NOT NULL,
    created_at  REAL NOT NULL,
    expires_at  REAL
) STRICT;

CREATE UNIQUE INDEX files_by_id ON files (tenant, id);
CREATE INDEX files_by_content ON files (content);
CREATE INDEX files_by_expiry ON files (expires_at) WHERE expires_at IS NOT NULL;
