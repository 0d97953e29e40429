-- Requests to models that left no response in the store. body is the row as JSON. An older version of convo, which does
-- not know the table, neither writes nor deletes its rows.
CREATE TABLE convo.unstored_requests (
    tenant      bigint NOT NULL,
    id          text COLLATE "C" NOT NULL,
    created_at  double precision NOT NULL,
    status      text COLLATE "C" NOT NULL,
    body        text NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX unstored_requests_by_time ON convo.unstored_requests (tenant, created_at);
