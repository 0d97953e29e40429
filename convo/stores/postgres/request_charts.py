"""Sum the requests of a tenant for the charts."""

from convo.stores.postgres import tenant_rows
from convo.stores.postgres.request_list import filter_links
from convo.stores.postgres.tenant_rows import BEGIN_SNAPSHOT, Row, TenantConnection
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

SELECT_NAMED_CLASSES = f"""
SELECT sessions.name, classes.* FROM ({SELECT_CLASSES}) AS classes
LEFT JOIN convo.sessions ON sessions.tenant = $1 AND sessions.id = classes.session
"""


async def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    await t.run_pipeline(BEGIN_SNAPSHOT)
    conditions, values, is_search_limited = await filter_links(t, query)

    async def fetch(sql: str, **parts: str) -> list[Row]:
        statement = sql.format(links="convo.links", conditions=" AND ".join(conditions), **parts)
        return await t.fetch_all(statement, *values)

    limits = find_input_limits(await fetch(SELECT_PRICED_MODELS), query)
    rows = await fetch(SELECT_NAMED_CLASSES, exceeded=count_exceeded_limits(limits))
    classes = [RequestClass(name and tenant_rows.unescape_name(name), *columns) for name, *columns in rows]
    size = choose_bucket_size(classes)
    buckets = await fetch(SELECT_BUCKETS, bucket=f"floor(links.created_at / {size})") if size else []
    return build_charts(classes, limits, size, buckets, query, is_search_limited=is_search_limited)
