-- Requests to models that left no response in the store. body is the row as JSON. An older version of convo, which does
-- not know the table, neither writes nor deletes its rows.
CREATE TABLE unstored_requests (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    created_at  REAL NOT NULL,
    status      TEXT NOT NULL,
    body        TEXT NOT NULL
) STRICT;

CREATE INDEX unstored_requests_by_time ON unstored_requests (tenant, created_at);
