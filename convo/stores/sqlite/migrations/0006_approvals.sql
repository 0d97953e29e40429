-- The log of decisions on tool calls. Rows are appended and deleted with their run, and never changed. n increases with
-- each new decision. body is the decision as JSON. The rows are deleted also by an older version of convo, which does
-- not know the table.
CREATE TABLE approval_decisions (
    tenant      INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    n           INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES agent_runs ON DELETE CASCADE,
    decided_at  REAL NOT NULL,
    body        TEXT NOT NULL
) STRICT;

CREATE INDEX approval_decisions_by_run ON approval_decisions (run);
CREATE INDEX approval_decisions_by_time ON approval_decisions (tenant, decided_at);
