"""Sum the requests of a tenant for the charts."""

from collections.abc import Sequence

from convo.stores.postgres.commit import LOCK_TENANT_EXCLUSIVE
from convo.stores.postgres.request_list import filter_links
from convo.stores.postgres.tenant_rows import (
    BEGIN,
    BEGIN_SNAPSHOT,
    COMMIT,
    TenantConnection,
    to_columns,
    unescape_name,
)
from convo.stores.postgres.unstored_requests import select_unstored
from convo.stores.request_charts import (
    SELECT_CLASSES,
    SUMMED_LIMITS,
    UNIT_S,
    RequestCharts,
    RequestClass,
    build_charts,
    can_use_sums,
    choose_bucket_size,
    count_exceeded_limits,
    encode_classes,
    filter_classes,
    find_input_limits,
    read_units,
    units_of_query,
)
from convo.stores.request_list import COUNT_COLUMNS, RequestQuery

SELECT_CHANGED_UNITS = f"""
SELECT unit FROM convo.request_sums WHERE tenant = $1 AND classes IS NULL
    AND floor(extract(epoch FROM now()))::bigint / {UNIT_S} - unit NOT IN (0, 1) ORDER BY unit
"""
"""The units without sums, except for the last hour, which changes with every request."""

SELECT_UNITS = """
SELECT unit, classes, latencies FROM convo.request_sums WHERE tenant = $1 AND unit BETWEEN $2 AND $3 ORDER BY unit
"""

UPDATE_UNITS = """
UPDATE convo.request_sums SET classes = new.classes, latencies = new.latencies
FROM unnest($2::bigint[], $3::text[], $4::bytea[]) AS new (unit, classes, latencies)
WHERE request_sums.tenant = $1 AND request_sums.unit = new.unit
"""

SELECT_SESSION_NAMES = "SELECT id, name FROM convo.sessions WHERE tenant = $1 AND id = ANY($2::text[])"

LINKS_OF_PERIODS = """
unnest($2::double precision[], $3::double precision[]) AS periods (begin, stop), LATERAL (
    SELECT * FROM convo.links WHERE tenant = $1 AND created_at >= periods.begin AND created_at < periods.stop OFFSET 0
) AS links
"""
"""With OFFSET 0 the links are found by the index of their time; a join scanned all of them."""

EXPRESSIONS = {
    "seconds": "floor(links.created_at)::bigint",
    # a sum of bigints is a numeric, which cannot overflow
    "totals": ", ".join(f"sum(links.{column})::double precision" for column in COUNT_COLUMNS),
    "latencies": "array_agg(links.seconds)",
}


async def select_changed_units(t: TenantConnection) -> list[int]:
    return [unit for (unit,) in await t.fetch_all(SELECT_CHANGED_UNITS)]


async def sum_units(t: TenantConnection, units: Sequence[int]) -> None:
    """Store the sums of these units."""
    # The lock excludes a writer whose trigger does not see these sums, and whose link is not in them.
    await t.run_pipeline(BEGIN, t.statement(LOCK_TENANT_EXCLUSIVE))
    classes = await _select_periods(t, [(unit * UNIT_S, (unit + 1) * UNIT_S) for unit in units])
    rows = [(unit, *encode_classes([each for each in classes if each.start == unit * UNIT_S])) for unit in units]
    await t.run_pipeline(t.statement(UPDATE_UNITS, *to_columns(rows, 3)), COMMIT)


async def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    await t.run_pipeline(BEGIN_SNAPSHOT)
    filtered = None if can_use_sums(query) else await filter_links(t, query)
    unstored = await select_unstored(t, query)
    if filtered is None:
        stored, periods = read_units(await t.fetch_all(SELECT_UNITS, *units_of_query(query)), query)
        classes = filter_classes([*stored, *await _select_periods(t, periods)], query)
    else:
        classes = await _select_classes(t, "convo.links", filtered.conditions, filtered.values)
    size = choose_bucket_size(classes, unstored)
    limits: Sequence[int] = find_input_limits(classes, query)
    if size and (size < UNIT_S or not set(SUMMED_LIMITS).issuperset(limits)):
        filtered = filtered or await filter_links(t, query)
        classes = await _select_classes(t, "convo.links", filtered.conditions, filtered.values, size, limits)
    else:
        limits = SUMMED_LIMITS
    sessions = {each.session for each in classes if each.session}
    names = {session: unescape_name(name) for session, name in await t.fetch_all(SELECT_SESSION_NAMES, [*sessions])}
    is_search_limited = filtered is not None and filtered.is_search_limited
    return build_charts(classes, names, limits, size, unstored, query, is_search_limited=is_search_limited)


async def _select_periods(t: TenantConnection, periods: Sequence[tuple[float, float]]) -> list[RequestClass]:
    return await _select_classes(t, LINKS_OF_PERIODS, ["true"], to_columns(periods, 2))


async def _select_classes(
    t: TenantConnection,
    links: str,
    conditions: Sequence[str],
    values: Sequence[object],
    size: int = UNIT_S,
    limits: Sequence[int] = SUMMED_LIMITS,
) -> list[RequestClass]:
    sql = SELECT_CLASSES.format(
        links=links,
        conditions=" AND ".join(conditions),
        size=size,
        exceeded=count_exceeded_limits(limits),
        **EXPRESSIONS,
    )
    return [RequestClass.from_row(row, row[-1]) for row in await t.fetch_all(sql, *values)]
