-- Runs with their events, what has a name that must be found, the database's own secrets; and removals
-- that cost the same however much is kept.

-- A response that is being carried out; ended_at is null while its run is open. One that ended has a
-- row as long as its events are kept.
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

-- Which items may have an id of this hash, of their own or by a conversation, and which routes may
-- lead through a conversation of this hash. The names themselves stand there, and say whether.
CREATE TABLE names (
    tenant  INTEGER NOT NULL,
    hash    INTEGER NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash, n)
) STRICT, WITHOUT ROWID;

-- Half of a hash is still more than enough to tell items apart, as half of a key is for nodes.
CREATE TABLE halves (
    tenant  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    item    INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;

INSERT INTO halves SELECT tenant, substr(hash, 1, 16), item FROM hashes;
DROP TABLE hashes;
ALTER TABLE halves RENAME TO hashes;

-- A removal asks who else needs what it leaves, and a reference asks when what it names goes.
CREATE INDEX links_by_route ON links (route);
CREATE INDEX links_by_parameters ON links (parameters);
CREATE INDEX members_by_conversation ON members (conversation);

-- From now on each goes with the last that needs it; what was left behind so far goes here.
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
