-- The tree of items, what stands on it, and the terms that a search goes by.
--
-- Every table has its tenant in front and a number as its key: rows name each other by number, so
-- that a node costs some ninety bytes and a link some two hundred. A reference restricts what it
-- names: nothing can be collected while something stands on it.

CREATE TABLE tenants (
    n     INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE
) STRICT;

-- body is the item's JSON as it travelled.
CREATE TABLE items (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    body    TEXT NOT NULL
) STRICT;

-- Which item has a hash. The hash stands nowhere else: it follows from the body.
CREATE TABLE hashes (
    tenant  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    item    INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;

-- A tenant's root has no parent. Where an item was erased, item is null and erased keeps its id.
-- Half of a key is still more than enough to tell nodes apart, and half as much to index.
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

-- JSON that call after call repeats. hash is SHA-256 of body.
CREATE TABLE repeated (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n       INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL,
    body    TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX repeated_by_hash ON repeated (tenant, hash);

-- record holds what no query asks for, as JSON. Without one the row is only a name that links hold:
-- of a session that was removed, or of one that nobody has recorded.
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
-- its form with 0 for every figure; the column usage holds the figures, as JSON without brackets.
-- previous is '' where it is the parent's id. Without saw the row is only a name that others hold:
-- of a response that was removed, or that nobody has recorded.
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

-- The ids that a conversation gave to items that have none of their own.
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

-- Row n holds the terms of item n, and only their places: the text stands in items alone.
CREATE VIRTUAL TABLE words USING fts5 (terms, content = '', tokenize = 'ascii');

-- A row, with any number, while something that was removed may have left traces in the file.
CREATE TABLE traces (
    n  INTEGER PRIMARY KEY
) STRICT;
