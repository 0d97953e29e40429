-- The log of decisions on tool calls. Rows are appended and deleted with their run, and never changed. place increases
-- with each new decision of a run. body is the decision as JSON. The rows are deleted also by an older version of convo,
-- which does not know the table.
CREATE TABLE convo.approval_decisions (
    tenant      bigint NOT NULL,
    decided_at  double precision NOT NULL,
    place       integer NOT NULL,
    run         text COLLATE "C" NOT NULL,
    body        text NOT NULL,
    PRIMARY KEY (tenant, run, place),
    FOREIGN KEY (tenant, run) REFERENCES convo.agent_runs (tenant, id) ON DELETE CASCADE
);

CREATE INDEX approval_decisions_by_time ON convo.approval_decisions (tenant, decided_at);
