"""Charts of the requests: figures in buckets of time, and the cost by model and by session.

The database sums the columns of the links; the costs are computed here, from the sums of requests with equal prices.

The sums of each half hour are stored (table `request_sums`), so that not every chart reads all links. Triggers of the
database clear the sums of a half hour in which a link was added, changed or removed. Before charts are read, they are
computed again, except for the last hour, whose links are read each time.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from math import ceil, nextafter
from struct import error as struct_error
from struct import pack, unpack
from typing import Any, NamedTuple

from convo.history.records import LINK_STATUSES
from convo.stores.codec import UNDECODABLE, encode_json, unescape_name
from convo.stores.request_list import RequestQuery, unstored_cost_usd
from convo.stores.unstored_requests import MAX_TIME, UnstoredRequest
from convo.usage.cost import tokens_cost_usd

MAX_BUCKETS = 60
"""Number of buckets of time."""

MAX_GROUPS = 10
"""Number of models and of sessions; the others are one sum."""

MAX_LATENCY_S = 1e9
"""A row with a longer latency is damaged: it counts as one without."""

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86_400, 365 * 86_400

BUCKET_SIZES = (
    *(1, 2, 5, 10, 30),
    *(MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(HOUR * number for number in (1, 2, 3, 6, 12)),
    *(DAY * number for number in (1, 2, 7, 14, 30, 90)),
    *(YEAR * number for number in (1, 2, 5, 10, 20, 50, 100, 200)),
)
"""Sizes of a bucket in seconds: the smallest is used that needs at most `MAX_BUCKETS` for all requests."""

STATUS_LIST = ", ".join(f"'{status}'" for status in LINK_STATUSES)
"""The valid statuses, as a list in SQL."""


class TimeBucket(NamedTuple):
    """The requests that started in one bucket of time.

    start:       seconds since 1970, a multiple of the size of the buckets
    p50_s:       the smallest latency in seconds that at least half of the requests do not exceed; None without any
    p95_s:       the same for 95 % of them
    """

    start: int
    requests: int = 0
    errors: int = 0
    p50_s: float | None = None
    p95_s: float | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @property
    def cache_hit_rate(self) -> float | None:
        """The cached part of the input tokens, from 0 to 1; None without input."""
        return min(1.0, self.cached_tokens / self.input_tokens) if self.input_tokens else None

    @classmethod
    def sum(cls, buckets: Sequence["TimeBucket"]) -> "TimeBucket":
        """Return the sums of the counts of buckets, without latencies; it starts at 0."""
        return cls(
            start=0,
            requests=sum(bucket.requests for bucket in buckets),
            errors=sum(bucket.errors for bucket in buckets),
            input_tokens=sum(bucket.input_tokens for bucket in buckets),
            cached_tokens=sum(bucket.cached_tokens for bucket in buckets),
            output_tokens=sum(bucket.output_tokens for bucket in buckets),
        )


class CostGroup(NamedTuple):
    """The cost of one model or session, or of several.

    name:      the model, or the session; None for requests without a session or of a removed one, and for a sum
    groups:    the number of models or sessions
    cost_usd:  the sum of the known costs; None if none is known
    unpriced:  requests with usage whose price is unknown
    """

    name: str | None
    groups: int
    requests: int
    cost_usd: float | None
    unpriced: int


class CostGroups(NamedTuple):
    """The groups with the highest cost, and the sum of all others; None if there are no others."""

    top: Sequence[CostGroup]
    other: CostGroup | None


class RequestCharts(NamedTuple):
    """The figures of the requests that pass the filters of a query.

    bucket_s:           size of a bucket in seconds; None without requests
    buckets:            by time, without gaps
    damaged_count:      damaged rows that were left out
    is_search_limited:  more items contain the text than the search considers, so requests may be missing
    """

    bucket_s: int | None
    buckets: Sequence[TimeBucket]
    models: CostGroups
    sessions: CostGroups
    damaged_count: int
    is_search_limited: bool


UNIT_S = 30 * MINUTE
"""Seconds of a unit, whose sums are stored. Every larger size of a bucket is a multiple."""

UNITS_PER_BATCH = 10
"""Units that are summed in one transaction."""

SUMMED_LIMITS = (128_000, 200_000, 256_000, 272_000)
"""The limits of `find_input_limits` by which stored sums are separated; with another one, all links are read."""

LOWEST, HIGHEST = -1e308, 1e308
"""Beyond every time of a link."""

SELECT_CLASSES = f"""
SELECT links.session, CASE WHEN links.created_at BETWEEN 0 AND {MAX_TIME} THEN {{seconds}} / {{size}} * {{size}} END,
    links.model, links.tier, CASE WHEN links.input_tokens IS NOT NULL THEN {{exceeded}} END,
    CASE WHEN links.status IN ({STATUS_LIST}) THEN links.status END,
    min(links.created_at), max(links.created_at), count(*), {{totals}}, {{latencies}}
FROM {{links}} WHERE {{conditions}} GROUP BY 1, 2, 3, 4, 5, 6
"""  # noqa: S608 - constant names
"""The columns of `RequestClass`, the same in every database.

links, conditions:  the tables and the filters
seconds:            the time of a request in whole seconds
size:               of a bucket in seconds
exceeded:           from `count_exceeded_limits`
totals, latencies:  aggregates

One statement for costs and buckets, which collects the latencies: two, with ranks by a window function, took 2.4 times
as long for 300,000 requests.
"""


class RequestClass(NamedTuple):
    """Requests of one session, bucket and status that have the same price, so that one sum has their cost.

    session:            None without a session
    start:              of the bucket of time in seconds; None if the time is damaged
    model, tier:        the columns of the links; a link without a model is damaged
    exceeded:           how many limits of `find_input_limits` the input of each request exceeds; None without usage
    status:             None if it is damaged
    first_at, last_at:  times of the first and the last request
    latencies:          those that are known and valid, sorted
    """

    session: int | str | None
    start: int | None
    model: str | None
    tier: str | None
    exceeded: int | None
    status: str | None
    first_at: float
    last_at: float
    requests: int
    input_tokens: float | None
    cached_tokens: float | None
    output_tokens: float | None
    written_tokens: float | None
    written_1h_tokens: float | None
    latencies: Sequence[float]

    @classmethod
    def from_row(cls, row: Sequence[Any], latencies: Iterable[float | None]) -> "RequestClass":
        """Build a class from the columns of a row, of which `latencies` is the last."""
        valid = (value for value in latencies if value is not None and 0 <= value <= MAX_LATENCY_S)
        return cls._make((*row[:-1], sorted(valid)))


def encode_classes(classes: Sequence[RequestClass]) -> tuple[str, bytes]:
    """Return the columns `classes` and `latencies` of a unit."""
    latencies = list(chain.from_iterable(each.latencies for each in classes))
    rows = [[*each[:-1], len(each.latencies)] for each in classes]
    # Numbers in JSON took six times as long to decode.
    return encode_json(rows), pack(f"<{len(latencies)}d", *latencies)


def _decode_classes(classes: str, latencies: bytes) -> list[RequestClass] | None:
    """Return the classes of a unit; None if they cannot be decoded."""
    decoded, begin = list[RequestClass](), 0
    try:
        values = unpack(f"<{len(latencies) // 8}d", latencies)
        for *columns, count in json.loads(classes):
            decoded.append(RequestClass._make((*columns, values[begin : begin + count])))
            begin += count
    except (*UNDECODABLE, TypeError, struct_error):
        return None
    return decoded


def can_use_sums(query: RequestQuery) -> bool:
    """Return whether the stored sums have the figures of a query; the links of one session are found by an index."""
    return not query.session and not query.text and query.tool is None


def units_of_query(query: RequestQuery) -> tuple[int, int]:
    """Return the first and the last unit with requests that pass the filter by time."""
    first = 0 if query.begin is None else query.begin
    last = MAX_TIME if query.end is None else query.end
    return int(min(max(first, 0), MAX_TIME)) // UNIT_S, int(min(max(last, 0), MAX_TIME)) // UNIT_S


def read_units(
    rows: Iterable[tuple[int, str | None, bytes | None]], query: RequestQuery
) -> tuple[list[RequestClass], list[tuple[float, float]]]:
    """Return the stored classes, and the periods whose links have to be read, each with its end, which is not in it.

    rows:  the units of `units_of_query`, in their order: number, classes and latencies
    """
    classes, periods = list[RequestClass](), [(LOWEST, 0.0)]
    begin = LOWEST if query.begin is None else query.begin
    end = HIGHEST if query.end is None else query.end
    for unit, text, latencies in rows:
        start, stop = float(unit * UNIT_S), float((unit + 1) * UNIT_S)
        is_whole = begin <= start and stop <= end
        decoded = _decode_classes(text, latencies or b"") if text is not None and is_whole else None
        if decoded is not None:
            classes += decoded
        elif periods[-1][1] == start:
            periods[-1] = periods[-1][0], stop
        else:
            periods.append((start, stop))
    periods.append((nextafter(MAX_TIME, HIGHEST), HIGHEST))
    return classes, [(max(start, begin), min(stop, end)) for start, stop in periods]


def filter_classes(classes: Iterable[RequestClass], query: RequestQuery) -> list[RequestClass]:
    """Return the classes that pass the filters by status and model, and the one for requests without a session."""

    @cache
    def has_model(column: str | None) -> bool:
        return query.model is None or (column is not None and query.has_model(unescape_name(column)))

    return [
        each
        for each in classes
        if query.status in (None, each.status) and has_model(each.model) and (query.session is None or not each.session)
    ]


def find_input_limits(classes: Iterable[RequestClass], query: RequestQuery) -> list[int]:
    """Return the numbers of input tokens above which a request has another price, lowest first."""
    find_price = query.price_finder()
    prices = [find_price(*model) for model in {(each.model, each.tier) for each in classes}]
    return sorted({price.max_input_tokens for price in prices if price and price.max_input_tokens is not None})


def count_exceeded_limits(limits: Sequence[int]) -> str:
    """Return the SQL expression of how many of the limits the input of a request exceeds."""
    return " + ".join(["0", *(f"CASE WHEN links.input_tokens > {limit:d} THEN 1 ELSE 0 END" for limit in limits)])


def choose_bucket_size(classes: Iterable[RequestClass], unstored: Iterable[UnstoredRequest]) -> int | None:
    """Return the size of the buckets in seconds; None without requests."""
    times = [time for each in classes if _is_valid(each) for time in (each.first_at, each.last_at)]
    times += [request.created_at for request in unstored]
    if not times:
        return None
    return next(size for size in BUCKET_SIZES if max(times) // size - min(times) // size < MAX_BUCKETS)


def _is_valid(each: RequestClass) -> bool:
    return each.start is not None and each.model is not None and each.status is not None


def build_charts(
    classes: Sequence[RequestClass],
    session_names: Mapping[object, str],
    limits: Sequence[int],
    size: int | None,
    unstored: Sequence[UnstoredRequest],
    query: RequestQuery,
    *,
    is_search_limited: bool,
) -> RequestCharts:
    """Build the result.

    session_names:  of the column `session`; without removed sessions
    limits:         by which the classes are separated
    size:           of the buckets; None without requests
    unstored:       requests without a stored response; those of one row have one latency, that of the slowest
    """
    valid = list(filter(_is_valid, classes))
    buckets = _sum_buckets(valid, size, unstored) if size else []
    models, sessions = _sum_costs(valid, session_names, limits, unstored, query)
    damaged_count = sum(each.requests for each in classes) - sum(each.requests for each in valid)
    return RequestCharts(size, buckets, models, sessions, damaged_count, is_search_limited)


def _sum_buckets(
    classes: Iterable[RequestClass], size: int, unstored: Iterable[UnstoredRequest]
) -> Sequence[TimeBucket]:
    """Return the buckets from the first to the last that has requests."""
    found, latencies = dict[int, TimeBucket](), dict[int, list[float]]()
    for each in classes:
        number = (each.start or 0) // size
        known = found.get(number) or TimeBucket(number * size)
        found[number] = known._replace(
            requests=known.requests + each.requests,
            errors=known.errors + (each.requests if each.status == "failed" else 0),
            input_tokens=known.input_tokens + int(each.input_tokens or 0),
            cached_tokens=known.cached_tokens + int(each.cached_tokens or 0),
            output_tokens=known.output_tokens + int(each.output_tokens or 0),
        )
        latencies.setdefault(number, []).extend(each.latencies)
    for request in unstored:
        number = int(request.created_at // size)
        found[number] = _count_unstored(found.get(number) or TimeBucket(number * size), request)
        if request.latency_s is not None:
            latencies.setdefault(number, []).append(request.latency_s)
    for number, values in latencies.items():
        if values:
            values.sort()
            p50_s, p95_s = (values[ceil(len(values) * share) - 1] for share in (0.5, 0.95))
            found[number] = found[number]._replace(p50_s=p50_s, p95_s=p95_s)
    numbers = range(min(found), max(found) + 1) if found else ()
    return [found.get(number, TimeBucket(number * size)) for number in numbers]


def _count_unstored(bucket: TimeBucket, request: UnstoredRequest) -> TimeBucket:
    return bucket._replace(
        requests=bucket.requests + request.count,
        errors=bucket.errors + (request.count if request.status == "failed" else 0),
        input_tokens=bucket.input_tokens + (request.input_tokens or 0),
        cached_tokens=bucket.cached_tokens + (request.cached_tokens or 0),
        output_tokens=bucket.output_tokens + (request.output_tokens or 0),
    )


def _sum_costs(
    classes: Iterable[RequestClass],
    session_names: Mapping[object, str],
    limits: Sequence[int],
    unstored: Iterable[UnstoredRequest],
    query: RequestQuery,
) -> tuple[CostGroups, CostGroups]:
    """Return the costs by model and by session. The cost is linear in the tokens, so a price applies to their sums."""
    find_price = query.price_finder()
    models, sessions = dict[str | None, CostGroup](), dict[str | None, CostGroup]()
    for each in classes:
        cost, has_usage = None, each.exceeded is not None
        if each.exceeded is not None and (price := find_price(each.model, each.tier)):
            limit = price.max_input_tokens
            is_long = limit is not None and each.exceeded > limits.index(limit)
            counts = each.input_tokens, each.cached_tokens, each.output_tokens
            written = each.written_tokens, each.written_1h_tokens
            cost = tokens_cost_usd(price, *(count or 0 for count in (*counts, *written)), is_long=is_long)
        unpriced = each.requests if cost is None and has_usage else 0
        full_name = query.expand_model_name(unescape_name(each.model or ""))
        for groups, name in ((models, full_name), (sessions, session_names.get(each.session))):
            groups[name] = _add(groups.get(name, CostGroup(name, 1, 0, None, 0)), each.requests, cost, unpriced)
    for request in unstored:
        cost, full_name = unstored_cost_usd(request, query), query.expand_model_name(request.model)
        unpriced = request.count if cost is None and request.input_tokens is not None else 0
        for groups, name in ((models, full_name), (sessions, None)):
            groups[name] = _add(groups.get(name, CostGroup(name, 1, 0, None, 0)), request.count, cost, unpriced)
    return _rank(models.values()), _rank(sessions.values())


def _add(group: CostGroup, requests: int, cost_usd: float | None, unpriced: int) -> CostGroup:
    cost = group.cost_usd if cost_usd is None else (group.cost_usd or 0.0) + cost_usd
    return CostGroup(group.name, group.groups, group.requests + requests, cost, group.unpriced + unpriced)


def _rank(groups: Iterable[CostGroup]) -> CostGroups:
    """Return the groups with the highest cost, and the sum of the others."""
    ranked = sorted(groups, key=lambda one: (one.cost_usd is None, -(one.cost_usd or 0), -one.requests, one.name or ""))
    rest = ranked[MAX_GROUPS:]
    other = CostGroup(None, len(rest), 0, None, 0)
    for group in rest:
        other = _add(other, group.requests, group.cost_usd, group.unpriced)
    return CostGroups(ranked[:MAX_GROUPS], other if rest else None)
