-- The sums of the requests of each half hour, for the charts. unit is the number of the half hour since 1970. classes is
-- JSON, latencies has the numbers of 8 bytes that it counts; convo/stores/request_charts.py describes both. They are
-- null after a link of the half hour changed, also by an older version of convo, until charts are read.
CREATE TABLE request_sums (
    tenant     INTEGER NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    unit       INTEGER NOT NULL,
    classes    TEXT,
    latencies  BLOB,
    PRIMARY KEY (tenant, unit)
) STRICT;

-- 253402300799 is the end of the year 9999: a link with a later time is damaged, and in no half hour.
INSERT INTO request_sums (tenant, unit)
    SELECT DISTINCT tenant, CAST(created_at AS INTEGER) / 1800 FROM links WHERE created_at BETWEEN 0 AND 253402300799;

CREATE TRIGGER links_are_added AFTER INSERT ON links WHEN new.created_at BETWEEN 0 AND 253402300799 BEGIN
    INSERT INTO request_sums (tenant, unit) VALUES (new.tenant, CAST(new.created_at AS INTEGER) / 1800)
    ON CONFLICT DO UPDATE SET (classes, latencies) = (NULL, NULL) WHERE classes IS NOT NULL;
END;

CREATE TRIGGER links_are_changed AFTER UPDATE OF tenant, session, saw, status, created_at, seconds, model, tier,
    input_tokens, cached_tokens, output_tokens, written_tokens, written_1h_tokens ON links
BEGIN
    INSERT INTO request_sums (tenant, unit)
        SELECT tenant, CAST(created_at AS INTEGER) / 1800
        FROM (SELECT old.tenant, old.created_at UNION ALL SELECT new.tenant, new.created_at)
        WHERE created_at BETWEEN 0 AND 253402300799
    ON CONFLICT DO UPDATE SET (classes, latencies) = (NULL, NULL) WHERE classes IS NOT NULL;
END;

CREATE TRIGGER links_are_removed AFTER DELETE ON links WHEN old.created_at BETWEEN 0 AND 253402300799 BEGIN
    UPDATE request_sums SET (classes, latencies) = (NULL, NULL)
    WHERE tenant = old.tenant AND unit = CAST(old.created_at AS INTEGER) / 1800;
END;
