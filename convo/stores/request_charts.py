"""Charts of the requests: figures in buckets of time, and the cost by model and by session.

The database aggregates; it returns rows of one shape for all figures, and `build_charts` sorts them into the result.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from convo.history.records import LINK_STATUSES

MAX_BUCKETS = 60
"""Number of buckets of time."""

MAX_GROUPS = 10
"""Number of models and of sessions; the others are one sum."""

MAX_TIME = 253_402_300_799
"""The end of the year 9999 in seconds since 1970; a row with a later time is damaged."""

MAX_TOKENS = 10**15
"""A higher count of tokens counts as this, so that sums stay exact enough and finite."""

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


ChartRowKind: TypeAlias = Literal["bucket", "model", "session", "damaged"]

ChartRow: TypeAlias = Sequence[Any]
"""A row of the result, by kind; a missing column is None:

    bucket   number of the bucket, its size, requests, errors, p50, p95, input, cached, output
    model    place from 1, name as JSON, requests, groups, cost, unpriced
    session  place from 1, name, requests, groups, cost, unpriced
    damaged  None, None, rows
"""


def build_charts(rows: Iterable[ChartRow], *, is_search_limited: bool) -> RequestCharts:
    """Build the result from the rows (kind, *columns). A place after `MAX_GROUPS` is the sum of all others."""
    found: dict[int, TimeBucket] = {}
    groups: dict[str, list[CostGroup]] = {"model": [], "session": []}
    others: dict[str, CostGroup] = {}
    bucket_s, damaged_count = None, 0
    for kind, key, label, requests, number, *figures in rows:
        if kind == "damaged":
            damaged_count = int(requests)
        elif kind == "bucket":
            p50, p95, *tokens = figures
            bucket_s = int(label)
            start = int(key) * bucket_s
            found[int(key)] = TimeBucket(start, int(requests), int(number), p50, p95, *(int(count) for count in tokens))
        else:
            cost, unpriced, *_ = figures
            known_cost = cost if cost is not None and math.isfinite(cost) else None
            if key <= MAX_GROUPS:
                name = _decode_name(kind, label)
                groups[kind].append(CostGroup(name, 1, int(requests), known_cost, int(unpriced)))
            else:
                others[kind] = CostGroup(None, int(number), int(requests), known_cost, int(unpriced))
    buckets = [
        found.get(number, TimeBucket(number * bucket_s))
        for number in (range(min(found), max(found) + 1) if found else ())
        if bucket_s is not None
    ]
    models, sessions = (CostGroups(groups[kind], others.get(kind)) for kind in ("model", "session"))
    return RequestCharts(bucket_s, buckets, models, sessions, damaged_count, is_search_limited)


def _decode_name(kind: str, label: str | bytes | None) -> str | None:
    if label is None:
        return None
    text = label.decode("utf-8", "replace") if isinstance(label, bytes) else label
    return str(json.loads(text)) if kind == "model" else text
