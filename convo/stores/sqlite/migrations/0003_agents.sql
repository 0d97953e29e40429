-- Agent runs and their tool calls.

-- The columns that queries use, in rows so small that a full scan takes milliseconds. The run itself is in
-- agent_documents.
CREATE TABLE agent_runs (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    session     INTEGER NOT NULL REFERENCES sessions ON DELETE RESTRICT,
    revision    INTEGER NOT NULL,
    status      TEXT NOT NULL,
    state       TEXT,
    created_at  REAL NOT NULL,
    changed_at  REAL NOT NULL
) STRICT;

CREATE UNIQUE INDEX agent_runs_by_id ON agent_runs (tenant, id);
CREATE INDEX agent_runs_by_session ON agent_runs (session);

-- body is the run as JSON. Each turn rewrites it in its existing pages.
CREATE TABLE agent_documents (
    tenant  INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    run     INTEGER PRIMARY KEY REFERENCES agent_runs ON DELETE RESTRICT,
    body    TEXT NOT NULL
) STRICT;

-- n increases with each new call. output is JSON; null while the call has not ended.
CREATE TABLE agent_calls (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES agent_runs ON DELETE RESTRICT,
    id          TEXT NOT NULL,
    started_at  REAL NOT NULL,
    output      TEXT
) STRICT;

CREATE UNIQUE INDEX agent_calls_by_id ON agent_calls (run, id);
