"""Sum the requests of a tenant for the charts."""

from convo.stores.request_charts import (
    SELECT_CLASSES,
    SELECT_PRICED_MODELS,
    SELECT_TIMES,
    RequestCharts,
    RequestClass,
    build_charts,
    choose_bucket_size,
    count_exceeded_limits,
    find_input_limits,
)
from convo.stores.request_list import RequestQuery
from convo.stores.sqlite.request_list import filter_links
from convo.stores.sqlite.tenant_rows import Row, TenantConnection, fetch_records
from convo.stores.sqlite.unstored_requests import select_unstored

SELECT_NAMED_CLASSES = f"""
SELECT sessions.name, classes.* FROM ({SELECT_CLASSES}) AS classes
LEFT JOIN sessions ON sessions.n = classes.session AND sessions.record IS NOT NULL
"""  # noqa: S608 - constant names


AGGREGATES = {
    "total": "total",
    "latencies": "group_concat(iif(links.seconds IS NULL, NULL, printf('%!.17g', links.seconds)))",
}
"""SQLite writes a number into JSON, or into a text, with 15 digits; 17 are exact."""


def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    conditions, values, is_search_limited = filter_links(t, query, reads_all=True)

    def fetch(sql: str, **parts: str) -> list[Row]:
        return fetch_records(t.db, sql.format(links="links", conditions=" AND ".join(conditions), **parts), values)

    limits = find_input_limits(fetch(SELECT_PRICED_MODELS), query)
    first_at, last_at, valid_count, count = fetch(SELECT_TIMES)[0]
    unstored = select_unstored(t, query)
    size = choose_bucket_size(first_at, last_at, unstored)
    bucket = f"CAST(links.created_at / {size} AS INTEGER)"
    exceeded = count_exceeded_limits(limits)
    rows = fetch(SELECT_NAMED_CLASSES, exceeded=exceeded, bucket=bucket, **AGGREGATES) if size else []
    classes = [
        RequestClass._make((*columns, [float(text) for text in latencies.split(",")] if latencies else ()))
        for *columns, latencies in rows
    ]
    return build_charts(
        classes, limits, size, unstored, query, damaged_count=count - valid_count, is_search_limited=is_search_limited
    )
