-- Runs of responses with their events, the index of ids, the database's own secrets, and indexes that make the
-- cost of a removal independent of the size of the database.

-- The run of a response; ended_at is null while it is open. After its end the row is kept as long as its events.
CREATE TABLE runs (
    tenant    INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    link      INTEGER PRIMARY KEY REFERENCES links ON DELETE RESTRICT,
    ended_at  REAL
) STRICT;

-- number is the event's own sequence number, body its JSON.
CREATE TABLE events (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    link    INTEGER NOT NULL REFERENCES runs ON DELETE RESTRICT,
    number  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (link, number)
) STRICT, WITHOUT ROWID;

-- The items that may have an id with this hash, their own or assigned by a conversation, and the routes that may
-- have a conversation with this hash. A match is verified against the row itself.
CREATE TABLE names (
    tenant  INTEGER NOT NULL,
    hash    INTEGER NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash, n)
) STRICT, WITHOUT ROWID;

-- The first half of a hash identifies an item, as the first half of a key identifies a node.
CREATE TABLE halves (
    tenant  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    item    INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;

INSERT INTO halves SELECT tenant, substr(hash, 1, 16), item FROM hashes;
DROP TABLE hashes;
ALTER TABLE halves RENAME TO hashes;

-- For removals: they look for other references to a row, and foreign keys are checked when a row is deleted.
CREATE INDEX links_by_route ON links (route);
CREATE INDEX links_by_parameters ON links (parameters);
CREATE INDEX members_by_conversation ON members (conversation);

-- From this version on, a row is deleted with its last reference. This deletes the rows left by older versions.
DELETE FROM links WHERE saw IS NULL
    AND NOT EXISTS (SELECT 1 FROM links AS children WHERE children.parent = links.n)
    AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.link = links.n);
DELETE FROM sessions WHERE record IS NULL
    AND NOT EXISTS (SELECT 1 FROM links WHERE links.session = sessions.n);
DELETE FROM repeated
    WHERE NOT EXISTS (SELECT 1 FROM links WHERE route = repeated.n)
    AND NOT EXISTS (SELECT 1 FROM links WHERE parameters = repeated.n);

CREATE TABLE secrets (
    name   TEXT PRIMARY KEY,
    value  BLOB NOT NULL
) STRICT, WITHOUT ROWID;
