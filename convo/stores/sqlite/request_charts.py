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
from convo.stores.request_list import PRICE_COLUMNS, TOKEN_COLUMNS, RequestQuery, cost_expression
from convo.stores.sqlite.request_list import filter_links, select_once, tokens_expression
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

PICKED_COLUMNS = ", ".join(
    [
        "links.created_at, links.status = 'failed' AS failed, links.session, routes.route, routes.model",
        "CASE WHEN links.seconds BETWEEN 0 AND 1e9 THEN links.seconds END AS seconds",
        "links.usage IS NOT NULL AND routes.known = 1 AS has_usage",
        f"{IS_VALID} AS is_valid",
        *(f"routes.{column}" for column in PRICE_COLUMNS),
        *(f"min({tokens_expression(column)}, {MAX_TOKENS}) AS {column}" for column in TOKEN_COLUMNS),
    ]
)

CHARTED_COLUMNS = f"""
created_at, failed, session, route, model, seconds, has_usage, is_valid, i, c, o,
CASE WHEN has_usage THEN {cost_expression(lambda column: f"links.{column}", "links")} END AS cost
"""

TABLES = f"""
damaged (count) AS (SELECT count(*) FROM picked WHERE NOT is_valid),
span (size) AS (
    SELECT (
        SELECT min(value) FROM json_each(:sizes)
        WHERE CAST(last / value AS INTEGER) - CAST(first / value AS INTEGER) < {MAX_BUCKETS}
    ) FROM (SELECT min(created_at) AS first, max(created_at) AS last FROM picked WHERE is_valid)
),
sums AS MATERIALIZED (
    SELECT CAST(created_at / span.size AS INTEGER) AS bucket, session, route, model, count(*) AS requests,
        count(seconds) AS timed, total(failed) AS errors, total(i) AS i, total(c) AS c, total(o) AS o,
        sum(cost) AS cost, total(has_usage AND cost IS NULL) AS unpriced
    FROM span CROSS JOIN picked WHERE is_valid GROUP BY 1, session, route
),
buckets AS MATERIALIZED (
    SELECT bucket, sum(requests) AS requests, total(errors) AS errors, total(i) AS input, total(c) AS cached,
        total(o) AS output, sum(timed) AS timed, sum(sum(timed)) OVER (ORDER BY bucket) - sum(timed) AS earlier
    FROM sums GROUP BY bucket
),
places AS MATERIALIZED (
    SELECT bucket, earlier + (timed * 50 + 99) / 100 AS p50, earlier + (timed * 95 + 99) / 100 AS p95
    FROM buckets WHERE timed > 0
),
ranked AS (
    SELECT seconds, row_number() OVER (ORDER BY CAST(created_at / span.size AS INTEGER), seconds) AS place
    FROM span CROSS JOIN picked WHERE is_valid AND seconds IS NOT NULL
),
latencies AS MATERIALIZED (
    SELECT seconds, place FROM ranked WHERE place IN (SELECT p50 FROM places UNION SELECT p95 FROM places)
),
by_session AS (
    SELECT session, sum(requests) AS requests, sum(cost) AS cost, total(unpriced) AS unpriced
    FROM sums GROUP BY session
),
groups AS (
    SELECT 'model' AS kind, model AS name, sum(requests) AS requests, sum(cost) AS cost, total(unpriced) AS unpriced
    FROM sums GROUP BY model
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
SELECT 'bucket', buckets.bucket, span.size, requests, errors, p50.seconds, p95.seconds, input, cached, output
FROM buckets CROSS JOIN span LEFT JOIN places ON places.bucket = buckets.bucket
    LEFT JOIN latencies AS p50 ON p50.place = places.p50 LEFT JOIN latencies AS p95 ON p95.place = places.p95
UNION ALL
SELECT * FROM (
    SELECT kind, place, min(name), sum(requests), count(*), sum(cost), sum(unpriced), NULL, NULL, NULL
    FROM placed GROUP BY kind, place ORDER BY kind, place
)
"""  # noqa: S608 - constant names


def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    tables, source, conditions, values, is_search_limited = filter_links(t, query, with_routes=True, with_prices=True)
    figures = select_once(PICKED_COLUMNS, source, conditions)
    picked = f"SELECT {CHARTED_COLUMNS} FROM ({figures}) AS links"  # noqa: S608 - constant names
    tables += [f"picked AS MATERIALIZED ({picked})", TABLES.strip()]
    statement = f"WITH RECURSIVE {', '.join(tables)}"
    rows = fetch_records(t.db, statement, values | {"sizes": encode_json(list(BUCKET_SIZES))})
    return build_charts(rows, is_search_limited=is_search_limited)
