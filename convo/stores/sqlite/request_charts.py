"""Aggregate the requests of a tenant for the charts, in one statement."""

from convo.stores.codec import encode_json
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
from convo.stores.sqlite.request_list import filter_links, tokens_expression
from convo.stores.sqlite.tenant_rows import TenantConnection, fetch_records

# A damaged usage must not reach a function for JSON, which would fail: CASE evaluates its parts in order.
FITS_ROUTE = """
CASE WHEN links.usage IS NULL THEN routes.size IS NOT NULL
    WHEN links.usage GLOB '*[^-0-9,]*' OR NOT json_valid('[' || links.usage || ']') THEN 0
    ELSE coalesce(json_array_length('[' || links.usage || ']') = routes.size, 0) END
"""

IS_VALID = f"""
coalesce(links.status IN ({STATUS_LIST}) AND links.created_at >= 0 AND links.created_at <= {MAX_TIME}, 0)
    AND {FITS_ROUTE}
"""

PICKED_COLUMNS = f"""
links.created_at, links.status, links.session, links.route,
CASE WHEN links.seconds BETWEEN 0 AND 1e9 THEN links.seconds END AS seconds,
links.usage IS NOT NULL AND routes.known = 1 AS has_usage,
{IS_VALID} AS is_valid
"""

TABLES = f"""
damaged (count) AS (SELECT count(*) FROM picked WHERE NOT is_valid),
span (size) AS (
    SELECT (
        SELECT min(value) FROM json_each(:sizes)
        WHERE CAST(last / value AS INTEGER) - CAST(first / value AS INTEGER) < {MAX_BUCKETS}
    ) FROM (SELECT min(created_at) AS first, max(created_at) AS last FROM picked WHERE is_valid)
),
figures AS MATERIALIZED (
    SELECT CAST(created_at / span.size AS INTEGER) AS bucket, status, seconds, session, has_usage,
        picked.i AS i, picked.c AS c, picked.o AS o,
        routes.model AS model, CASE WHEN has_usage THEN {cost_expression(lambda column: f"picked.{column}")} END AS cost
    FROM span CROSS JOIN picked CROSS JOIN routes ON routes.route = picked.route WHERE is_valid
),
ranked AS (
    SELECT bucket, seconds, row_number() OVER (PARTITION BY bucket ORDER BY seconds) AS place,
        count(*) OVER (PARTITION BY bucket) AS count
    FROM figures WHERE seconds IS NOT NULL
),
percentiles AS (
    SELECT bucket, max(CASE WHEN place = (count * 50 + 99) / 100 THEN seconds END) AS p50,
        max(CASE WHEN place = (count * 95 + 99) / 100 THEN seconds END) AS p95
    FROM ranked GROUP BY bucket
),
buckets AS (
    SELECT bucket, count(*) AS requests, sum(status = 'failed') AS errors,
        total(i) AS input, total(c) AS cached, total(o) AS output
    FROM figures GROUP BY bucket
),
by_session AS (
    SELECT session, count(*) AS requests, sum(cost) AS cost, sum(has_usage AND cost IS NULL) AS unpriced
    FROM figures GROUP BY session
),
groups AS (
    SELECT 'model' AS kind, model AS name, count(*) AS requests, sum(cost) AS cost,
        sum(has_usage AND cost IS NULL) AS unpriced
    FROM figures GROUP BY model
    UNION ALL
    SELECT 'session', sessions.name, sum(requests), sum(cost), sum(unpriced)
    FROM by_session LEFT JOIN sessions ON sessions.n = by_session.session AND sessions.record IS NOT NULL
    GROUP BY sessions.n
),
placed AS (
    SELECT *, min(
        row_number() OVER (PARTITION BY kind ORDER BY cost IS NULL, cost DESC, requests DESC, name), {MAX_GROUPS + 1}
    ) AS place
    FROM groups
)
SELECT 'damaged', NULL, NULL, count, NULL, NULL, NULL, NULL, NULL, NULL FROM damaged
UNION ALL
SELECT 'bucket', buckets.bucket, span.size, requests, errors, p50, p95, input, cached, output
FROM buckets CROSS JOIN span LEFT JOIN percentiles ON percentiles.bucket = buckets.bucket
UNION ALL
SELECT * FROM (
    SELECT kind, place, min(name), sum(requests), count(*), sum(cost), sum(unpriced), NULL, NULL, NULL
    FROM placed GROUP BY kind, place ORDER BY kind, place
)
"""  # noqa: S608 - constant names


def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    tables, source, conditions, values, is_search_limited = filter_links(t, query, with_routes=True, with_prices=True)
    tokens = ", ".join(f"min({tokens_expression(column)}, {MAX_TOKENS}) AS {column}" for column in TOKEN_COLUMNS)
    picked = (
        f"picked AS MATERIALIZED (SELECT {PICKED_COLUMNS}, {tokens} FROM {source} WHERE {' AND '.join(conditions)})"  # noqa: S608 - constant names
    )
    statement = f"WITH RECURSIVE {', '.join([*tables, picked, TABLES.strip()])}"
    rows = fetch_records(t.db, statement, values | {"sizes": encode_json(list(BUCKET_SIZES))})
    return build_charts(rows, is_search_limited=is_search_limited)
