-- The use order of sessions, independent of the clock. Null if an older version of convo wrote the row.
ALTER TABLE sessions ADD COLUMN used INTEGER;

UPDATE sessions SET used = ranked.place
FROM (
    SELECT n, row_number() OVER (PARTITION BY tenant ORDER BY used_at, n) AS place FROM sessions WHERE record IS NOT NULL
) AS ranked
WHERE sessions.n = ranked.n;

CREATE INDEX sessions_by_use ON sessions (tenant, used);
