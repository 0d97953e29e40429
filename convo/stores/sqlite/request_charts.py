"""Sum the requests of a tenant for the charts."""

from convo.stores.request_charts import (
    SELECT_BUCKETS,
    SELECT_CLASSES,
    SELECT_PRICED_MODELS,
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

SELECT_NAMED_CLASSES = f"""
SELECT sessions.name, classes.* FROM ({SELECT_CLASSES}) AS classes
LEFT JOIN sessions ON sessions.n = classes.session AND sessions.record IS NOT NULL
"""  # noqa: S608 - constant names


def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    conditions, values, is_search_limited = filter_links(t, query, reads_all=True)

    def fetch(sql: str, **parts: str) -> list[Row]:
        return fetch_records(t.db, sql.format(links="links", conditions=" AND ".join(conditions), **parts), values)

    limits = find_input_limits(fetch(SELECT_PRICED_MODELS), query)
    rows = fetch(SELECT_NAMED_CLASSES, exceeded=count_exceeded_limits(limits))
    classes = list(map(RequestClass._make, rows))
    size = choose_bucket_size(classes)
    buckets = fetch(SELECT_BUCKETS, bucket=f"CAST(links.created_at / {size} AS INTEGER)") if size else []
    return build_charts(classes, limits, size, buckets, query, is_search_limited=is_search_limited)
