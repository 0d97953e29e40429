-- Agent runs and their tool calls.

-- document is the run as JSON, usually compressed with zlib. Each turn rewrites it. A small document is stored in its
-- row, so the space in its page is reused without a vacuum; a larger one is stored in the TOAST table, which is
-- vacuumed early.
CREATE TABLE convo.agent_runs (
    tenant      bigint NOT NULL,
    revision    bigint NOT NULL,
    created_at  double precision NOT NULL,
    changed_at  double precision NOT NULL,
    id          text COLLATE "C" NOT NULL,
    session     text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL,
    state       text COLLATE "C",
    document    bytea NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, session) REFERENCES convo.sessions (tenant, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);

ALTER TABLE convo.agent_runs ALTER COLUMN document SET STORAGE MAIN;

CREATE INDEX agent_runs_by_session ON convo.agent_runs (tenant, session);
CREATE INDEX agent_runs_by_status ON convo.agent_runs (tenant, status);
CREATE INDEX agent_runs_by_state ON convo.agent_runs (tenant, state) WHERE state IS NOT NULL;

-- place increases with each new call of a run. output is JSON; null while the call has not ended.
CREATE TABLE convo.agent_calls (
    tenant      bigint NOT NULL,
    started_at  double precision NOT NULL,
    place       integer NOT NULL,
    run         text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    output      text,
    PRIMARY KEY (tenant, run, id),
    FOREIGN KEY (tenant, run) REFERENCES convo.agent_runs (tenant, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
