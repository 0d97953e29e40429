"""Aggregate the requests of a tenant for the charts, in one statement."""

from convo.stores.postgres import tenant_rows
from convo.stores.postgres.request_list import filter_links, tokens_expression
from convo.stores.postgres.tenant_rows import BEGIN_SNAPSHOT, TenantConnection
from convo.stores.request_charts import (
    BUCKET_SIZES,
    MAX_BUCKETS,
    MAX_GROUPS,
    MAX_TIME,
    MAX_TOKENS,
    STATUS_LIST,
    RequestCharts,
    build_charts,
)
from convo.stores.request_list import TOKEN_COLUMNS, RequestQuery, cost_expression

FITS_ROUTE = """
CASE WHEN links.usage IS NULL THEN routes.size IS NOT NULL
    WHEN links.usage !~ '^(-?[0-9]+(,-?[0-9]+)*)?$' THEN false
    ELSE coalesce(coalesce(array_length(string_to_array(links.usage, ','), 1), 0) = routes.size, false) END
"""

PICKED_COLUMNS = f"""
links.created_at, links.status, links.session, routes.model,
CASE WHEN links.seconds BETWEEN 0 AND 1e9 THEN links.seconds END AS seconds,
links.usage IS NOT NULL AND routes.known = 1 AS has_usage,
links.status IN ({STATUS_LIST}) AND links.created_at BETWEEN 0 AND {MAX_TIME} AND {FITS_ROUTE} AS is_valid
"""

TABLES = f"""
damaged AS (SELECT count(*) AS count FROM picked WHERE NOT is_valid),
span AS (
    SELECT (
        SELECT min(size) FROM unnest({{sizes}}::float8[]) AS sizes (size)
        WHERE floor(last / size) - floor(first / size) < {MAX_BUCKETS}
    ) AS size FROM (SELECT min(created_at) AS first, max(created_at) AS last FROM picked WHERE is_valid) AS times
),
figures AS (
    SELECT floor(created_at / span.size) AS bucket, picked.* FROM span CROSS JOIN picked WHERE is_valid
),
buckets AS (
    SELECT bucket, count(*) AS requests, count(*) FILTER (WHERE status = 'failed') AS errors,
        percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY seconds) AS percentiles,
        sum(i) AS input, sum(c) AS cached, sum(o) AS output
    FROM figures GROUP BY bucket
),
by_session AS (
    SELECT session, count(*) AS requests, sum(cost) AS cost,
        count(*) FILTER (WHERE has_usage AND cost IS NULL) AS unpriced
    FROM figures GROUP BY session
),
groups AS (
    SELECT 'model' AS kind, model AS name, count(*) AS requests, sum(cost) AS cost,
        count(*) FILTER (WHERE has_usage AND cost IS NULL) AS unpriced
    FROM figures GROUP BY model
    UNION ALL
    SELECT 'session', min(sessions.name), sum(requests), sum(cost), sum(unpriced)
    FROM by_session LEFT JOIN convo.sessions ON sessions.tenant = $1 AND sessions.id = by_session.session
    GROUP BY sessions.id
),
placed AS (
    SELECT *, least(
        row_number() OVER (
            PARTITION BY kind ORDER BY cost IS NULL, cost DESC, requests DESC, name COLLATE "C"
        ), {MAX_GROUPS + 1}
    ) AS place
    FROM groups
)
SELECT 'damaged', NULL::float8, NULL::text, count::float8, NULL::float8, NULL::float8, NULL::float8, NULL::float8,
    NULL::float8, NULL::float8
FROM damaged
UNION ALL
SELECT 'bucket', bucket, span.size::bigint::text, requests, errors, percentiles[1], percentiles[2],
    input, cached, output
FROM buckets CROSS JOIN span
UNION ALL
SELECT * FROM (
    SELECT kind, place::float8, min(name COLLATE "C")::text, sum(requests)::float8, count(*)::float8, sum(cost)::float8,
        sum(unpriced)::float8, NULL::float8, NULL::float8, NULL::float8
    FROM placed GROUP BY kind, place ORDER BY kind, place
) AS best
"""


async def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    await t.run_pipeline(BEGIN_SNAPSHOT)
    with_clause, source, conditions, values, is_search_limited = await filter_links(
        t, query, with_routes=True, with_prices=True
    )
    counts = ", ".join(f"least({tokens_expression(column)}, {MAX_TOKENS}) AS {column}" for column in TOKEN_COLUMNS)
    cost = cost_expression(lambda column: f"counts.{column}")
    picked = (
        f"picked AS (SELECT {PICKED_COLUMNS}, counts.i, counts.c, counts.o,"
        f" CASE WHEN links.usage IS NOT NULL AND routes.known = 1 THEN {cost} END AS cost"
        f" FROM {source} CROSS JOIN LATERAL (SELECT {counts} OFFSET 0) AS counts WHERE {' AND '.join(conditions)})"
    )
    tables = TABLES.strip().format(sizes=values.bind(list(BUCKET_SIZES)))
    statement = f"{f'{with_clause}, ' if with_clause else 'WITH '}{picked}, {tables}"
    rows = [
        (kind, place, name if name is None or kind != "session" else tenant_rows.unescape_name(name), *figures)
        for kind, place, name, *figures in await t.fetch_all(statement, *values)
    ]
    return build_charts(rows, is_search_limited=is_search_limited)
