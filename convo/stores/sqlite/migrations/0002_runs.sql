-- Runs with their events, what has a name that must be found, and the database's own secrets.

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

CREATE INDEX links_by_route ON links (route);

CREATE TABLE secrets (
    name   TEXT PRIMARY KEY,
    value  BLOB NOT NULL
) STRICT, WITHOUT ROWID;
