-- A session's place among the last used, which no clock decides. Null where an older convo wrote the row.
ALTER TABLE sessions ADD COLUMN used INTEGER;

UPDATE sessions SET used = ranked.place
FROM (
    SELECT n, row_number() OVER (PARTITION BY tenant ORDER BY used_at, n) AS place FROM sessions WHERE record IS NOT NULL
) AS ranked
WHERE sessions.n = ranked.n;

CREATE INDEX sessions_by_use ON sessions (tenant, used);
