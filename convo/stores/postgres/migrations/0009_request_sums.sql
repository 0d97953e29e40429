-- The sums of the requests of each half hour, for the charts. unit is the number of the half hour since 1970. classes is
-- JSON, latencies has the numbers of 8 bytes that it counts; convo/stores/request_charts.py describes both. They are
-- null after a link of the half hour changed, also by an older version of convo, until charts are read.
CREATE TABLE convo.request_sums (
    tenant     bigint NOT NULL,
    unit       bigint NOT NULL,
    classes    text,
    latencies  bytea,
    PRIMARY KEY (tenant, unit)
);

-- 253402300799 is the end of the year 9999: a link with a later time is damaged, and in no half hour. A half hour whose
-- sums are null is not written, so that writers do not wait for each other. SECURITY DEFINER: a role that was granted the
-- tables of an older version can store responses.
CREATE FUNCTION convo.clear_request_sums() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO convo.request_sums (tenant, unit)
        SELECT DISTINCT link.tenant, floor(link.created_at)::bigint / 1800
        FROM (VALUES (old.tenant, old.created_at), (new.tenant, new.created_at)) AS link (tenant, created_at)
        WHERE link.created_at BETWEEN 0 AND 253402300799 AND NOT EXISTS (
            SELECT FROM convo.request_sums AS cleared WHERE cleared.tenant = link.tenant
                AND cleared.unit = floor(link.created_at)::bigint / 1800 AND cleared.classes IS NULL
        )
    ON CONFLICT (tenant, unit) DO UPDATE SET classes = NULL, latencies = NULL;
    RETURN NULL;
END
$$;

CREATE TRIGGER links_are_changed
    AFTER INSERT OR DELETE OR UPDATE OF tenant, session, status, created_at, seconds, model, tier,
        input_tokens, cached_tokens, output_tokens, written_tokens, written_1h_tokens ON convo.links
    FOR EACH ROW EXECUTE FUNCTION convo.clear_request_sums();

INSERT INTO convo.request_sums (tenant, unit)
    SELECT DISTINCT tenant, floor(created_at)::bigint / 1800 FROM convo.links
    WHERE created_at BETWEEN 0 AND 253402300799;
