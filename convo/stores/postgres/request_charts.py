"""Sum the requests of a tenant for the charts."""

from decimal import Decimal

from convo.stores.postgres import tenant_rows
from convo.stores.postgres.request_list import filter_links
from convo.stores.postgres.tenant_rows import BEGIN_SNAPSHOT, Row, TenantConnection
from convo.stores.postgres.unstored_requests import select_unstored
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

SELECT_NAMED_CLASSES = f"""
SELECT sessions.name, classes.* FROM ({SELECT_CLASSES}) AS classes
LEFT JOIN convo.sessions ON sessions.tenant = $1 AND sessions.id = classes.session
"""


AGGREGATES = {"total": "sum", "latencies": "array_agg(links.seconds)"}
"""A sum of bigints is a numeric, which cannot overflow."""


async def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    await t.run_pipeline(BEGIN_SNAPSHOT)
    conditions, values, is_search_limited = await filter_links(t, query)

    async def fetch(sql: str, **parts: str) -> list[Row]:
        statement = sql.format(links="convo.links", conditions=" AND ".join(conditions), **parts)
        return await t.fetch_all(statement, *values)

    limits = find_input_limits(await fetch(SELECT_PRICED_MODELS), query)
    ((first_at, last_at, valid_count, count),) = await fetch(SELECT_TIMES)
    unstored = await select_unstored(t, query)
    size = choose_bucket_size(first_at, last_at, unstored)
    bucket, exceeded = f"floor(links.created_at / {size})", count_exceeded_limits(limits)
    rows = await fetch(SELECT_NAMED_CLASSES, exceeded=exceeded, bucket=bucket, **AGGREGATES) if size else []
    classes = [
        RequestClass._make(
            float(value) if isinstance(value, Decimal) else value
            for value in (name and tenant_rows.unescape_name(name), *columns)
        )
        for name, *columns in rows
    ]
    return build_charts(
        classes, limits, size, unstored, query, damaged_count=count - valid_count, is_search_limited=is_search_limited
    )
