"""The figures of the charts: buckets, percentiles, tokens and costs, on every store."""

import random
from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from convo.config.sections import Price
from convo.history.items import assistant_message, user_message
from convo.history.records import Link
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Store, Transaction
from convo.stores.request_charts import BUCKET_SIZES, MAX_BUCKETS, CostGroup, CostGroups, TimeBucket
from convo.stores.request_list import MAX_MATCHING_ITEMS, RequestQuery
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.sample_store import fill_open_store
from tests.stores.test_damaged_rows import execute
from tests.stores.test_request_list import PRICES, ROOT, store_requests, usage

START = int(NOW)
STRANGE_MODEL = "c/\ud800three\0"
COST_A, COST_B = (60 * 2 + 40 * 1 + 5 * 8) / 1e6, (100 * 2 + 200 * 1 + 9 * 8) / 1e6
COST_C = (2 * 200 * 1 + 3 * 7 * 2) / 1e6


async def chart(store: Store, **fields: Any) -> Any:
    return await store.chart_requests(RequestQuery(find_price=PRICES.get, **fields))


def approximate(groups: CostGroups) -> list[tuple[object, ...]]:
    """Return the groups with their costs in millionths of a dollar, the sum of the others last."""
    every = [*groups.top, *([groups.other] if groups.other else [])]
    return [
        (name, count, requests, None if cost is None else round(cost * 1e6, 6), unpriced)
        for name, count, requests, cost, unpriced in every
    ]


async def test_the_figures_of_all_requests(store: Store) -> None:
    await store_requests(store)
    charts = await chart(store)
    assert (charts.bucket_s, charts.damaged_count, charts.is_search_limited) == (1, 0, False)
    assert charts.buckets == [
        TimeBucket(START + 1, 1, 0, 2.0, 2.0, 100, 40, 5),
        TimeBucket(START + 2, 1, 0, 0.5, 0.5, 300, 200, 9),
        TimeBucket(START + 3, 1, 0, 1.0, 1.0, 200, 0, 7),
        TimeBucket(START + 4, 2, 1, None, None, 0, 0, 0),
    ]
    assert [bucket.cache_hit_rate for bucket in charts.buckets] == [0.4, pytest.approx(2 / 3), 0, None]
    assert approximate(charts.models) == [
        ("b/two", 1, 2, pytest.approx(COST_C * 1e6), 0),
        ("a/one", 1, 2, pytest.approx((COST_A + COST_B) * 1e6), 0),
        (STRANGE_MODEL, 1, 1, None, 0),
    ] or approximate(charts.models) == [
        ("a/one", 1, 2, pytest.approx((COST_A + COST_B) * 1e6), 0),
        ("b/two", 1, 2, pytest.approx(COST_C * 1e6), 0),
        (STRANGE_MODEL, 1, 1, None, 0),
    ]
    assert sorted(approximate(charts.sessions), key=str) == [
        ("weather", 1, 2, pytest.approx((COST_A + COST_B) * 1e6), 0),
        (None, 1, 3, pytest.approx(COST_C * 1e6), 0),
    ]


async def test_the_filters_are_those_of_the_list(store: Store) -> None:
    await store_requests(store)
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"status": "completed"}, [1, 1, 1]),
        ({"status": "queued"}, []),
        ({"model": "b/two"}, [1, 1]),
        ({"model": STRANGE_MODEL}, [1]),
        ({"model": "b"}, []),
        ({"session": "weather"}, [1, 1]),
        ({"session": "\ud800\0"}, []),
        ({"text": "rain"}, [1]),
        ({"text": "weather", "model": "b/two", "status": "completed", "sort": "input", "limit": 1}, [1]),
        ({"text": "?!"}, []),
    ]
    for filters, expected in cases:
        charts = await chart(store, **filters)
        assert [bucket.requests for bucket in charts.buckets] == expected
        listed = (await store.list_requests(RequestQuery(**filters | {"limit": 50}))).requests
        assert sum(expected) == len(listed)


async def test_requests_without_a_price_are_counted(store: Store) -> None:
    await store_requests(store)
    charts = await store.chart_requests(RequestQuery(find_price={"b/two": Price(1, 2, cached=0)}.get))
    assert approximate(charts.models) == [
        ("b/two", 1, 2, pytest.approx(200 + 14), 0),
        ("a/one", 1, 2, None, 2),
        (STRANGE_MODEL, 1, 1, None, 0),
    ]


async def test_each_tenant_has_its_own_figures(store: Store) -> None:
    await store_requests(store)
    guest = store.for_tenant("guest")
    assert (await chart(guest)).buckets == []
    for session_name in (None, "weather"):
        charts = await chart(guest, session=session_name)
        assert charts == (None, [], CostGroups([], None), CostGroups([], None), 0, False)
    path = Path(root_key("guest")).append([user_message("hi")])
    mine = link("resp_a", path.head, model="a/one", created_at=NOW, session_id="ses_1", usage=usage(10, 0, 1))
    record = session("guest", id="ses_1", name="mine", head=path.head, confirmed_head=path.head)
    await guest.commit(Transaction((AppendItems(root_key("guest"), path.items),), (mine,), record))
    charts = await chart(guest)
    assert charts.buckets == [TimeBucket(START, 1, 0, None, None, 10, 0, 1)]
    assert approximate(charts.sessions) == [("mine", 1, 1, pytest.approx(28), 0)]
    assert sum(bucket.requests for bucket in (await chart(store)).buckets) == 5


async def test_percentiles_buckets_and_the_sum_of_other_groups(store: Store) -> None:
    """Compare with the same figures computed in Python, for requests of twelve models and sessions over a day."""
    rng, path = random.Random(3), Path(ROOT).append([user_message("hi"), assistant_message("yes")])
    links: list[Link] = []
    prices = {f"m/{number}": Price(number + 1, 2, cached=1) for number in range(12)}
    for number in range(12):
        record = session(id=f"ses_{number}", name=f"s{number}", head=path.head, confirmed_head=path.head)
        added = [
            link(
                f"resp_{number}_{part}",
                path.first(1).head,
                path.head,
                model=f"m/{number}",
                session_id=record.id,
                created_at=NOW + rng.random() * 86_400,
                duration_s=rng.choice([None, rng.randrange(1, 100) / 8]),
                usage=usage(1000, 10, 1),
            )
            for part in range(15)
        ]
        await store.commit(Transaction((AppendItems(ROOT, path.items),), tuple(added), record))
        links += added
    charts = await store.chart_requests(RequestQuery(find_price=prices.get))
    assert charts.bucket_s == 1800
    assert len(charts.buckets) in (48, 49)
    assert [bucket.start for bucket in charts.buckets] == [
        charts.buckets[0].start + 1800 * index for index in range(len(charts.buckets))
    ]
    for bucket in charts.buckets:
        inside = [made for made in links if bucket.start <= made.created_at < bucket.start + 1800]
        seconds = sorted(made.duration_s for made in inside if made.duration_s is not None)
        ranks = [ceil(len(seconds) * percent / 100) for percent in (50, 95)]
        expected = [seconds[rank - 1] if seconds else None for rank in ranks]
        assert (bucket.requests, [bucket.p50_s, bucket.p95_s]) == (len(inside), expected)
        assert (bucket.input_tokens, bucket.cached_tokens) == (1000 * len(inside), 10 * len(inside))
    for groups, letter in ((charts.models, "m/"), (charts.sessions, "s")):
        assert [group.name for group in groups.top] == [f"{letter}{number}" for number in range(11, 1, -1)]
        assert groups.top[0].cost_usd == pytest.approx(15 * (990 * 12 + 10 + 2) / 1e6)
        cost = pytest.approx(15 * (990 * 1 + 990 * 2 + 20 + 4) / 1e6)
        assert groups.other is not None
        assert groups.other._replace(cost_usd=None) == CostGroup(None, 2, 30, None, 0)
        assert groups.other.cost_usd == cost


LONG = Price(1, 2, cached=0.5, max_input_tokens=272_000, long_input_factors=(2, 3))


def random_filters(rng: random.Random, span_s: float) -> dict[str, Any]:
    begin, end = sorted(NOW + rng.random() * span_s for _ in range(2))
    choices: dict[str, list[Any]] = {
        "status": ["completed", "failed"],
        "model": ["a", "c"],
        "session": ["", "talk"],
        "begin": [begin, NOW, NOW + 1800],
        "end": [end, NOW + 7200],
    }
    return {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.3}


@pytest.mark.parametrize(
    ("span_s", "max_tokens"), [(10 * 3600, 272_000), (3 * 86_400, 272_000), (400 * 86_400, 272_000), (3 * 86_400, 999)]
)
async def test_charts_follow_every_change_of_the_requests(store: Store, span_s: float, max_tokens: int) -> None:
    """Compare the charts with those for a tool that each request offers, which are computed from all requests."""
    rng, prices = random.Random(span_s), {"a": LONG._replace(max_input_tokens=max_tokens), "b": Price(2, 8, cached=1)}
    path, links = Path(ROOT).append([user_message("hi"), assistant_message("yes")]), dict[str, Link]()
    record = session(id="ses_1", name="talk", head=path.head, confirmed_head=path.head)
    for step in range(4):
        made = [
            link(
                f"resp_{step}_{number}" if rng.random() < 0.8 or not links else rng.choice([*links]),
                path.first(1).head,
                path.head,
                model=rng.choice("abc"),
                status=rng.choice(["completed", "failed", "in_progress"]),
                created_at=rng.choice([NOW + rng.random() * span_s, NOW + rng.randrange(9) * 1800]),
                session_id=rng.choice(["ses_1", "ses_2", None]),
                duration_s=rng.choice([None, rng.random() * 9]),
                usage=rng.choice([None, usage(rng.randrange(400_000), 100, rng.randrange(99))]),
                parameters={"tools": [{"type": "every"}]},
            )
            for number in range(50)
        ]
        links |= {each.id: each for each in made}
        await store.commit(Transaction((AppendItems(ROOT, path.items),), tuple(made), record))
        for removed in rng.sample([*links], 5):
            await store.remove_link(removed)
            del links[removed]
        if step == 3:
            await store.remove_session("ses_1")
        for filters in ({}, *(random_filters(rng, span_s) for _ in range(6))):
            query = RequestQuery(find_price=prices.get, **filters)
            charts, expected = [await store.chart_requests(replace(query, tool=tool)) for tool in (None, "every")]
            assert charts[:2] == expected[:2]
            assert charts[4:] == expected[4:]
            for groups in ("models", "sessions"):
                assert approximate(getattr(charts, groups)) == approximate(getattr(expected, groups))
    await execute(store, f"UPDATE @request_sums SET classes = '{{' WHERE unit % 2 = {int(NOW // 1800) % 2}")
    assert (await store.chart_requests(RequestQuery(tool="every"))).buckets == (await chart(store)).buckets


@pytest.mark.parametrize("span_s", [0, 59, 60, 3599, 90_000, 86_400 * 400, 86_400 * 365 * 300, 253_402_300_799 - NOW])
async def test_there_are_at_most_sixty_buckets(store: Store, span_s: float) -> None:
    path = Path(ROOT).append([user_message("hi")])
    links = tuple(link(f"resp_{at}", path.head, created_at=at) for at in (NOW, NOW + span_s))
    await store.commit(Transaction((AppendItems(ROOT, path.items),), links))
    charts = await chart(store)
    assert 1 <= len(charts.buckets) <= MAX_BUCKETS
    size, smaller = charts.bucket_s, [size for size in BUCKET_SIZES if size < charts.bucket_s]
    assert sum(bucket.requests for bucket in charts.buckets) == len({made.id for made in links})
    assert charts.buckets[0].start <= NOW < charts.buckets[0].start + size
    assert all((NOW + span_s) // unused - NOW // unused >= MAX_BUCKETS for unused in smaller)


@pytest.mark.parametrize(
    "assignment",
    [
        "status = 'x'",
        "usage = '\"a\"'",
        "usage = '{'",
        "usage = 'x'",
        "usage = ''",
        "usage = '1,2'",
        "usage = '-'",
        "created_at = 1e300",
        "created_at = -1",
    ],
)
async def test_a_damaged_response_is_left_out_and_counted(store: Store, assignment: str) -> None:
    await fill_open_store(store)
    await execute(store, f"UPDATE @links SET {assignment} WHERE id = 'resp_3'")
    charts = await chart(store)
    assert [bucket.requests for bucket in charts.buckets] == [1]
    assert (charts.buckets[0].input_tokens, charts.damaged_count) == (2, 1)


async def test_a_damaged_route_does_not_fail_the_figures(store: Store) -> None:
    await fill_open_store(store)
    await execute(store, "UPDATE @repeated SET body = '{}' WHERE body LIKE '%conv_1%'")
    charts = await chart(store)
    assert (charts.buckets, charts.damaged_count) == ([], 2)


async def test_figures_that_were_computed_survive_a_damaged_route_or_session(store: Store) -> None:
    await fill_open_store(store)
    before = await chart(store)
    await execute(store, "UPDATE @repeated SET body = '{}' WHERE body LIKE '%conv_1%'")
    await execute(store, "UPDATE @links SET usage = 'x'")
    assert await chart(store) == before
    await execute(store, "UPDATE @sessions SET record = '{' WHERE id = 'ses_2'")
    assert [group.requests for group in (await chart(store)).sessions.top] == [1, 1]


@pytest.mark.parametrize("tokens", ["9" * 18, "9" * 100, "9" * 1000, "-5"])
async def test_extreme_tokens_do_not_fail_the_figures(store: Store, tokens: str) -> None:
    await fill_open_store(store)
    await execute(store, f"UPDATE @links SET usage = '{tokens}', seconds = 1e300")
    charts = await chart(store)
    assert [bucket.requests for bucket in charts.buckets] == [1, 1]
    assert {bucket.p50_s for bucket in charts.buckets} == {None}
    assert all(0 <= bucket.input_tokens <= 10**15 for bucket in charts.buckets)


async def test_a_search_that_matches_very_many_items_says_that_it_is_limited(store: Store) -> None:
    items = tuple(user_message(f"apple {number}") for number in range(MAX_MATCHING_ITEMS + 1))
    path = Path(ROOT).append(items)
    await store.commit(Transaction((AppendItems(ROOT, items),), (link("resp_1", path.head),)))
    assert (await chart(store, text="apple")).is_search_limited
