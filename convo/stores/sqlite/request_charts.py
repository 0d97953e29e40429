"""Sum the requests of a tenant for the charts."""

from collections.abc import Mapping, Sequence

from convo.stores.codec import encode_json
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
from convo.stores.sqlite.request_list import filter_links
from convo.stores.sqlite.tenant_rows import TenantConnection, database_time_s, fetch_records
from convo.stores.sqlite.unstored_requests import select_unstored

SELECT_CHANGED_UNITS = """
SELECT unit FROM request_sums WHERE tenant = ? AND classes IS NULL AND unit NOT BETWEEN ? AND ? ORDER BY unit
"""

SELECT_UNITS = (
    "SELECT unit, classes, latencies FROM request_sums WHERE tenant = ? AND unit BETWEEN ? AND ? ORDER BY unit"
)

UPDATE_UNIT = "UPDATE request_sums SET (classes, latencies) = (?, ?) WHERE tenant = ? AND unit = ?"

SELECT_SESSION_NAMES = """
SELECT n, name FROM sessions WHERE n IN (SELECT value FROM json_each(?)) AND record IS NOT NULL
"""

LINKS_OF_PERIODS = "json_each(:periods) AS periods CROSS JOIN links INDEXED BY links_by_time"

OF_PERIODS = (
    "links.tenant = :tenant",
    "links.saw IS NOT NULL",
    "links.created_at >= json_extract(periods.value, '$[0]')",
    "links.created_at < json_extract(periods.value, '$[1]')",
)

EXPRESSIONS = {
    "seconds": "CAST(links.created_at AS INTEGER)",
    "totals": ", ".join(f"total(links.{column})" for column in COUNT_COLUMNS),
    "latencies": "group_concat(iif(links.seconds IS NULL, NULL, printf('%!.17g', links.seconds)))",
}
"""SQLite writes a number into JSON, or into a text, with 15 digits; 17 are exact."""


def select_changed_units(t: TenantConnection) -> list[int]:
    """Return the units without sums, except for the last hour, which changes with every request."""
    current = int(database_time_s(t.db)) // UNIT_S
    return [unit for (unit,) in t.fetch_all(SELECT_CHANGED_UNITS, t.tenant_number, current - 1, current)]


def sum_units(t: TenantConnection, units: Sequence[int]) -> None:
    """Store the sums of these units."""
    classes = _select_periods(t, [(unit * UNIT_S, (unit + 1) * UNIT_S) for unit in units])
    for unit in units:
        sums = encode_classes([each for each in classes if each.start == unit * UNIT_S])
        t.execute(UPDATE_UNIT, *sums, t.tenant_number, unit)


def select_charts(t: TenantConnection, query: RequestQuery) -> RequestCharts:
    """Return the figures of the requests that pass the filters."""
    filtered = None if can_use_sums(query) else filter_links(t, query, reads_all=True)
    unstored = select_unstored(t, query)
    if filtered is None:
        units = t.fetch_all(SELECT_UNITS, t.tenant_number, *units_of_query(query))
        stored, periods = read_units(units, query)
        classes = filter_classes([*stored, *_select_periods(t, periods)], query)
    else:
        classes = _select_classes(t, "links", filtered.conditions, filtered.values)
    size = choose_bucket_size(classes, unstored)
    limits: Sequence[int] = find_input_limits(classes, query)
    if size and (size < UNIT_S or not set(SUMMED_LIMITS).issuperset(limits)):
        filtered = filtered or filter_links(t, query, reads_all=True)
        classes = _select_classes(t, "links", filtered.conditions, filtered.values, size, limits)
    else:
        limits = SUMMED_LIMITS
    sessions = encode_json(list({each.session for each in classes}))
    names: dict[object, str] = dict(t.fetch_records(SELECT_SESSION_NAMES, sessions))
    is_search_limited = filtered is not None and filtered.is_search_limited
    return build_charts(classes, names, limits, size, unstored, query, is_search_limited=is_search_limited)


def _select_periods(t: TenantConnection, periods: Sequence[tuple[float, float]]) -> list[RequestClass]:
    return _select_classes(
        t, LINKS_OF_PERIODS, OF_PERIODS, {"tenant": t.tenant_number, "periods": encode_json(periods)}
    )


def _select_classes(
    t: TenantConnection,
    links: str,
    conditions: Sequence[str],
    values: Mapping[str, object],
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
    rows = fetch_records(t.db, sql, values)
    return [RequestClass.from_row(row, map(float, row[-1].split(",")) if row[-1] else ()) for row in rows]
