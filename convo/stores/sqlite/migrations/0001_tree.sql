-- The tree of items, the records that reference it, and the search index.
--
-- Every table begins with the tenant and has an integer key. Rows reference each other by this integer, so a
-- node takes about 90 bytes and a link about 200. References are RESTRICT: a referenced row cannot be deleted.

CREATE TABLE tenants (
    n     INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE
) STRICT;

-- body is the item's JSON as it was sent or received.
CREATE TABLE items (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    body    TEXT NOT NULL
) STRICT;

-- The item of each hash. The hash is stored nowhere else: it is computed from the body.
CREATE TABLE hashes (
    tenant  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    item    INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;

-- A tenant's root has no parent. Where an item was erased, item is null and erased keeps its id.
-- The index contains only the first half of a key: that identifies a node and halves the index.
CREATE TABLE nodes (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    parent  INTEGER REFERENCES nodes ON DELETE RESTRICT,
    item    INTEGER REFERENCES items ON DELETE RESTRICT,
    key     BLOB NOT NULL,
    erased  TEXT
) STRICT;

CREATE UNIQUE INDEX nodes_by_key ON nodes (tenant, substr(key, 1, 16));
CREATE INDEX nodes_by_parent ON nodes (parent);
CREATE INDEX nodes_by_item ON nodes (item);

-- JSON that many links share. hash is the SHA-256 of body.
CREATE TABLE repeated (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL,
    body    TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX repeated_by_hash ON repeated (tenant, hash);

-- record has the fields that no query uses, as JSON. A row without a record has only an id that links reference:
-- the session was removed, or never stored.
CREATE TABLE sessions (
    tenant   INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n        INTEGER PRIMARY KEY,
    id       TEXT NOT NULL,
    name     TEXT,
    head     INTEGER REFERENCES nodes ON DELETE RESTRICT,
    mark     INTEGER REFERENCES nodes ON DELETE RESTRICT,
    written  INTEGER REFERENCES nodes ON DELETE RESTRICT,
    link     INTEGER REFERENCES links ON DELETE RESTRICT,
    used_at  REAL,
    removed  INTEGER NOT NULL DEFAULT 0,
    record   TEXT
) STRICT;

CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant, id);
CREATE UNIQUE INDEX sessions_by_name ON sessions (tenant, name);
CREATE INDEX sessions_by_head ON sessions (head);
CREATE INDEX sessions_by_mark ON sessions (mark);
CREATE INDEX sessions_by_written ON sessions (written);
CREATE INDEX sessions_by_link ON sessions (link);

-- route is [model, strategy, url, organisation, project, conversation, stored, usage], where usage is
-- the object with 0 for every integer; the column usage has the integers, as JSON without brackets.
-- previous is '' if it is the parent's id. A row without saw has only an id that other rows reference: the
-- response was removed, or never stored.
CREATE TABLE links (
    tenant         INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n              INTEGER PRIMARY KEY,
    id             TEXT NOT NULL,
    parent         INTEGER REFERENCES links ON DELETE RESTRICT,
    session        INTEGER REFERENCES sessions ON DELETE RESTRICT,
    saw            INTEGER REFERENCES nodes ON DELETE RESTRICT,
    head           INTEGER REFERENCES nodes ON DELETE RESTRICT,
    sent           INTEGER,
    route          INTEGER REFERENCES repeated ON DELETE RESTRICT,
    status         TEXT,
    created_at     REAL,
    previous       TEXT,
    seconds        REAL,
    first_token_s  REAL,
    parameters     INTEGER REFERENCES repeated ON DELETE RESTRICT,
    usage          TEXT,
    error          TEXT
) STRICT;

CREATE UNIQUE INDEX links_by_id ON links (tenant, id);
CREATE INDEX links_by_parent ON links (parent);
CREATE INDEX links_by_session ON links (session);
CREATE INDEX links_by_saw ON links (saw);
CREATE INDEX links_by_head ON links (head);

-- length counts the items on the path to head.
CREATE TABLE conversations (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    head        INTEGER NOT NULL REFERENCES nodes ON DELETE RESTRICT,
    length      INTEGER NOT NULL,
    created_at  REAL NOT NULL,
    metadata    TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);
CREATE INDEX conversations_by_head ON conversations (head);

-- The ids that a conversation assigned to items without an id of their own.
CREATE TABLE members (
    tenant        INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    conversation  INTEGER NOT NULL REFERENCES conversations ON DELETE RESTRICT,
    node          INTEGER NOT NULL REFERENCES nodes ON DELETE RESTRICT,
    id            TEXT NOT NULL,
    PRIMARY KEY (node, conversation)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    name        TEXT NOT NULL,
    holder      TEXT NOT NULL,
    expires_at  REAL NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- Row n is the index entry of item n: only the positions of its terms, no text.
CREATE VIRTUAL TABLE words USING fts5 (terms, content = '', tokenize = 'ascii');

-- Has a row while deleted data may remain in the file, until the next VACUUM.
CREATE TABLE traces (
    n  INTEGER PRIMARY KEY
) STRICT;
