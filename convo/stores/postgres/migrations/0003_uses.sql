-- The use order of sessions, independent of the clock. Null if an older version of convo wrote the row.
ALTER TABLE convo.sessions ADD COLUMN used bigint;

UPDATE convo.sessions SET used = ranked.place
FROM (SELECT tenant, id, row_number() OVER (PARTITION BY tenant ORDER BY used_at, id) AS place FROM convo.sessions) AS ranked
WHERE sessions.tenant = ranked.tenant AND sessions.id = ranked.id;

CREATE INDEX sessions_by_use ON convo.sessions (tenant, used);
