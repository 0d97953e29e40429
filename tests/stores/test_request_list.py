"""The list of requests: order, pages, filters, search and titles, on every store."""

import random
from dataclasses import replace
from typing import Any

import pytest

from convo.config.sections import Price
from convo.config.settings import BUILT_IN_MODEL
from convo.errors import DamagedRow
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link
from convo.history.tree import Path, root_key
from convo.inspect.view import link_cost_usd
from convo.stores.base import AppendItems, Store, Transaction
from convo.stores.codec import LISTED_COLUMNS
from convo.stores.request_list import MAX_MATCHING_ITEMS, REQUEST_SORTS, RequestQuery, RequestSort
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.sample_store import fill_open_store
from tests.stores.test_damaged_rows import execute

ROOT = root_key("local")

TOOL_OUTPUT: Item = {"type": "function_call_output", "call_id": "call_1", "output": "Paris is sunny"}


def usage(tokens: int, cached: int | None, output: int) -> dict[str, Any]:
    """Return a usage object; its members are in another order if `cached` is None."""
    if cached is None:
        return {"output_tokens": output, "x": [7, {"y": 8}], "input_tokens": tokens}
    details = {"cached_tokens": cached}
    return {"input_tokens": tokens, "input_tokens_details": details, "output_tokens": output}


PRICES = {
    "a/one": Price(2, 8, cached=1),
    "b/two": Price(1, 2, cached=0, max_input_tokens=150, long_input_factors=(2, 3)),
}


async def store_requests(store: Store) -> None:
    """Store five requests: two of a session, a chain's continuation with a tool output, and two that failed."""
    one = Path(ROOT).append([user_message("What is rain?")])
    two = one.append([assistant_message("Water")])
    three = two.append([user_message("And snow?"), assistant_message("Ice")])
    other = Path(ROOT).append([user_message("The weather?")])
    call = other.append([{"type": "function_call", "name": "f", "call_id": "call_1", "arguments": "{}"}])
    output = call.append([TOOL_OUTPUT])
    appends = tuple(AppendItems(ROOT, path.items) for path in (three, output))
    links = (
        link(
            "resp_a",
            one.head,
            two.head,
            model="a/one",
            created_at=NOW + 1,
            session_id="ses_1",
            usage=usage(100, 40, 5),
            duration_s=2.0,
        ),
        link(
            "resp_b",
            three.first(3).head,
            three.head,
            model="a/one",
            created_at=NOW + 2,
            session_id="ses_1",
            usage=usage(300, 200, 9),
            duration_s=0.5,
        ),
        link(
            "resp_c",
            other.head,
            call.head,
            model="b/two",
            created_at=NOW + 3,
            usage=usage(200, None, 7),
            duration_s=1.0,
        ),
        link("resp_d", output.head, model="b/two", created_at=NOW + 4, status="failed", usage=None, duration_s=None),
        link(
            "resp_e", ROOT, model="c/\ud800three\0", created_at=NOW + 4, status="cancelled", usage={}, duration_s=None
        ),
    )
    record = session(id="ses_1", name="weather", head=three.head, confirmed_head=three.head)
    await store.commit(Transaction(appends, links, record))


async def list_ids(store: Store, **fields: Any) -> list[str]:
    """Return the ids of all pages, with pages of two."""
    query = RequestQuery(limit=2, find_price=PRICES.get, **fields)
    ids: list[str] = []
    while True:
        page = await store.list_requests(query)
        ids += [request.link.id for request in page.requests]
        if page.next_cursor is None:
            return ids
        query = replace(query, after=page.next_cursor)


EXPECTED_ORDER: dict[RequestSort, str] = {
    "created_at": "abcde",
    "model": "abcde",
    "status": "eabcd",
    "latency": "bcade",
    "input": "acbde",
    "cached": "cabde",
    "output": "acbde",
    "cost": "acbde",
    "title": "bcdae",
}
"""Ascending; requests without the figure are last in either order."""


async def test_requests_are_sorted_by_each_column_over_several_pages(store: Store) -> None:
    await store_requests(store)
    for sort in REQUEST_SORTS:
        expected = [f"resp_{letter}" for letter in EXPECTED_ORDER[sort]]
        assert await list_ids(store, sort=sort, is_descending=False) == expected
        unknown = {"title": ["resp_e"]}.get(
            sort, [] if sort in ("created_at", "model", "status") else ["resp_e", "resp_d"]
        )
        known = [row_id for row_id in expected if row_id not in unknown]
        assert await list_ids(store, sort=sort) == [*reversed(known), *unknown]


async def test_the_newest_requests_come_first_in_whichever_order_they_were_stored(store: Store) -> None:
    rng, path = random.Random(1), Path(ROOT).append([user_message("What is rain?")])
    links = [
        link(
            f"resp_{number}",
            path.head,
            created_at=NOW + rng.randrange(20),
            status=rng.choice(["completed", "failed"]),
            model=rng.choice(["a/one", "b/two"]),
        )
        for number in range(40)
    ]
    await store.commit(Transaction((AppendItems(ROOT, path.items),), tuple(links)))
    filters: list[dict[str, Any]] = [{}, {"status": "failed"}, {"model": "a/one"}, {"begin": NOW + 5, "end": NOW + 15}]
    for fields in filters:
        wanted = [
            each
            for each in links
            if fields.get("status") in (None, each.status)
            and fields.get("model") in (None, each.model)
            and fields.get("begin", 0) <= each.created_at < fields.get("end", NOW * 2)
        ]
        expected = sorted(wanted, key=lambda each: (each.created_at, each.id), reverse=True)
        assert await list_ids(store, **fields) == [each.id for each in expected]


async def test_the_orders_by_tokens_are_exact_for_every_form_of_usage(store: Store) -> None:
    rng, path = random.Random(2), Path(ROOT).append([user_message("What is rain?")])

    def random_usage() -> dict[str, Any]:
        details = {"cached_tokens": rng.randrange(1000), "cache_write_tokens": rng.randrange(100)}
        members = [
            ("input_tokens", rng.choice([0, -5, rng.randrange(3000), 10**9 + rng.randrange(9)])),
            ("input_tokens_details", dict(rng.sample(sorted(details.items()), rng.randrange(3)))),
            ("output_tokens", rng.choice([0, rng.randrange(3000)])),
            ("total_tokens", rng.randrange(9)),
            ("x", [rng.randrange(9), 10**25]),
        ]
        return dict(rng.sample(members, rng.randrange(6)))

    links = [link(f"resp_{number:03}", path.head, model="a/one", usage=random_usage()) for number in range(150)]
    await store.commit(Transaction((AppendItems(ROOT, path.items),), tuple(links)))
    sorts: tuple[RequestSort, ...] = ("input", "cached", "output")
    for sort in sorts:

        def tokens_of(each: Link, sort: RequestSort = sort) -> int:
            members = each.usage or {}
            details = members.get("input_tokens_details", {})
            return int(
                max(0, details.get("cached_tokens", 0) if sort == "cached" else members.get(f"{sort}_tokens", 0))
            )

        known = [each for each in links if each.usage]
        expected = [each.id for each in sorted(known, key=lambda each: (tokens_of(each), each.id))]
        assert [name for name in await list_ids(store, sort=sort, is_descending=False) if name in expected] == expected


async def test_the_short_and_the_full_name_of_the_built_in_model_are_one_model(store: Store) -> None:
    await store_requests(store)
    path = Path(ROOT).append([user_message("hi")])
    names = ("local", BUILT_IN_MODEL)
    links = tuple(link(f"resp_{number}", path.head, model=name) for number, name in enumerate(names))
    await store.commit(Transaction((AppendItems(ROOT, path.items),), links))
    assert [name for name in await store.request_models() if name.startswith("local")] == [BUILT_IN_MODEL]
    for name in names:
        assert sorted(await list_ids(store, model=name)) == ["resp_0", "resp_1"]
        charts = await store.chart_requests(RequestQuery(model=name))
        assert [(group.name, group.requests) for group in charts.models.top] == [(BUILT_IN_MODEL, 2)]


async def test_an_alias_with_the_short_name_of_the_built_in_model_is_a_model_of_its_own(store: Store) -> None:
    path = Path(ROOT).append([user_message("hi")])
    names = ("local", BUILT_IN_MODEL)
    links = tuple(link(f"resp_{number}", path.head, model=name) for number, name in enumerate(names))
    await store.commit(Transaction((AppendItems(ROOT, path.items),), links))
    assert list(await store.request_models(str)) == ["local", BUILT_IN_MODEL]
    for number, name in enumerate(names):
        assert await list_ids(store, model=name, expand_model_name=str) == [f"resp_{number}"]
        charts = await store.chart_requests(RequestQuery(model=name, expand_model_name=str))
        assert [(group.name, group.requests) for group in charts.models.top] == [(name, 1)]


async def test_equal_titles_differ_by_id_on_every_page_and_case_does_not_matter(store: Store) -> None:
    titles = ["Same", "same", "SAME", "Same", "apple", "Zebra", "\ud800\0"]
    paths = [Path(ROOT).append([user_message(text), user_message(text)]) for text in dict.fromkeys(titles)]
    by_text = dict(zip(dict.fromkeys(titles), paths, strict=True))
    links = tuple(link(f"resp_{number}", by_text[text].head) for number, text in enumerate(titles))
    await store.commit(Transaction(tuple(AppendItems(ROOT, path.items) for path in paths), links))
    ascending = await list_ids(store, sort="title", is_descending=False)
    assert [name for name in ascending if name != "resp_6"] == [f"resp_{number}" for number in (4, 0, 1, 2, 3, 5)]
    assert sorted(ascending) == [f"resp_{number}" for number in range(7)]
    assert await list_ids(store, sort="title") == ascending[::-1]
    assert await list_ids(store, sort="title", status="failed") == []


async def test_the_order_by_title_is_that_of_the_shown_titles(store: Store) -> None:
    reminder = user_message("<system-reminder>Zebra</system-reminder>")
    paths = [Path(ROOT).append([user_message(text), reminder]) for text in ("banana", "apple")]
    links = tuple(link(f"resp_{number}", path.head) for number, path in enumerate(paths))
    await store.commit(Transaction(tuple(AppendItems(ROOT, path.items) for path in paths), links))
    page = await store.list_requests(RequestQuery("title", is_descending=False))
    assert [request.title for request in page.requests] == ["apple", "banana"]


async def test_the_order_by_cost_is_that_of_the_costs(store: Store) -> None:
    await store_requests(store)
    page = await store.list_requests(RequestQuery("cost", find_price=PRICES.get))
    costs = [link_cost_usd(request.link, PRICES) for request in page.requests]
    known = [cost for cost in costs if cost is not None]
    assert known == sorted(known, reverse=True)
    assert costs == [*known, None, None]
    assert known[1] == pytest.approx((2 * 200 * 1 + 3 * 7 * 2) / 1e6)


async def test_writes_for_an_hour_and_other_service_tiers_have_their_prices_in_the_order_and_in_the_charts(
    store: Store,
) -> None:
    path = Path(ROOT).append([user_message("hi")])
    links = [
        link(
            f"resp_{letter}",
            path.head,
            path.head,
            model=f"c/{letter}",
            created_at=NOW,
            usage={"input_tokens": 100, "input_tokens_details": details, "output_tokens": 1},
            reported={"service_tier": "flex"} if letter == "e" else {},
        )
        for letter, details in (
            ("e", {"cached_tokens": 10, "cache_write_tokens": 80}),
            ("a", {"cached_tokens": 10, "cache_write_tokens": 80}),
            ("b", {"cached_tokens": 10, "cache_write_tokens": 80, "cache_write_1h_tokens": 30}),
            ("c", {"cached_tokens": 10, "cache_write_tokens": 80, "cache_write_1h_tokens": 80}),
            ("d", {"cached_tokens": 10, "cache_write_tokens": 80, "cache_write_1h_tokens": 1}),
        )
    ]
    await store.commit(Transaction((AppendItems(ROOT, path.items),), tuple(links)))
    known = Price(2, 10, cached=0.5, written=4, written_1h=8)
    tiers = known._replace(source="https://example.com", tier_factors={"flex": 0.5})
    prices = {
        **dict.fromkeys(("c/a", "c/b", "c/c"), known),
        "c/d": known._replace(input=3, written_1h=None),
        "c/e": tiers,
    }
    page = await store.list_requests(RequestQuery("cost", find_price=prices.get))
    charts = await store.chart_requests(RequestQuery(find_price=prices.get))
    by_hand: dict[str, float] = {"c/c": 20 + 5 + 640 + 10, "c/b": 20 + 5 + 200 + 240 + 10, "c/a": 20 + 5 + 320 + 10}
    by_hand |= {"c/d": 30 + 5 + 316 + 2 * 3 + 10, "c/e": by_hand["c/a"] / 2}  # an hour is twice the input price
    assert [request.link.id for request in page.requests] == ["resp_c", "resp_b", "resp_d", "resp_a", "resp_e"]
    assert {request.link.id: request.link for request in page.requests} == {stored.id: stored for stored in links}
    costs = {request.link.model: link_cost_usd(request.link, prices) for request in page.requests}
    expected = {name: pytest.approx(cost / 1e6) for name, cost in by_hand.items()}
    assert costs == expected
    assert {group.name: group.cost_usd for group in charts.models.top} == expected


async def test_filters_are_combined(store: Store) -> None:
    await store_requests(store)
    for filters, expected in [
        ({"status": "completed"}, "cba"),
        ({"status": "queued"}, ""),
        ({"model": "b/two"}, "dc"),
        ({"model": "c/\ud800three\0"}, "e"),
        ({"model": "b"}, ""),
        ({"session": "weather"}, "ba"),
        ({"session": "ses_1"}, "ba"),
        ({"session": "\ud800\0"}, ""),
        ({"text": "rain"}, "a"),
        ({"text": "ICE"}, "b"),
        ({"text": "snow?"}, "b"),
        ({"text": "sunny paris"}, "d"),
        ({"text": "rain snow"}, ""),
        ({"text": "weather", "model": "b/two", "status": "completed", "sort": "input"}, "c"),
        ({"text": "weather", "session": "weather"}, ""),
        ({"text": "?!"}, ""),
    ]:
        assert await list_ids(store, **filters) == [f"resp_{letter}" for letter in expected]


async def test_a_model_with_two_names_is_one_for_the_filter_the_order_and_the_charts(store: Store) -> None:
    await store_requests(store)
    names = {"b/two": "a/one"}

    def full_name(name: str) -> str:
        return names.get(name, name)

    expected = ["resp_d", "resp_c", "resp_b", "resp_a"]
    for name in ("a/one", "b/two"):
        assert await list_ids(store, model=name, expand_model_name=full_name) == expected
    by_model = await list_ids(store, sort="model", is_descending=False, expand_model_name=full_name)
    assert by_model == [*expected[::-1], "resp_e"]
    charts = await store.chart_requests(RequestQuery(expand_model_name=full_name))
    assert [(group.name, group.requests) for group in charts.models.top] == [("a/one", 4), ("c/\ud800three\0", 1)]


async def test_a_title_is_the_user_message_that_a_request_continues_from(store: Store) -> None:
    await store_requests(store)
    page = await store.list_requests(RequestQuery())
    assert [(request.title, request.session_name) for request in page.requests] == [
        ("", None),
        ("The weather?", None),
        ("The weather?", None),
        ("And snow?", "weather"),
        ("What is rain?", "weather"),
    ]
    assert (page.next_cursor, page.is_search_limited) == (None, False)


async def test_a_row_has_the_token_counts_of_the_request_that_it_continues(store: Store) -> None:
    written = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5}}
    links = [link("resp_1", ROOT, usage=written), link("resp_2", ROOT, parent_id="resp_1", usage=None)]
    await store.commit(Transaction(links=(*links, link("resp_3", ROOT, parent_id="resp_2"))))
    page = await store.list_requests(RequestQuery())
    counts = {request.link.id: request.parent_counts for request in page.requests}
    assert counts == {"resp_1": None, "resp_2": (9, 4, 5), "resp_3": None}


async def test_the_title_of_a_deleted_message_is_deleted_as_well(store: Store) -> None:
    path = Path(ROOT).append([user_message("What is rain?"), assistant_message("Water"), user_message("My secret")])
    made = [link("resp_1", path.head, title="My secret"), link("resp_2", path.first(1).head, title="What is rain?")]
    await store.commit(Transaction((AppendItems(ROOT, path.items),), tuple(made)))
    await store.commit(Transaction(erased_nodes=(path.head,)))
    page = await store.list_requests(RequestQuery(sort="title", is_descending=False))
    assert [request.title for request in page.requests] == ["What is rain?", "What is rain?"]


async def test_requests_that_an_older_version_stored_are_listed_and_charted_like_others(store: Store) -> None:
    """It knows neither the columns for lists nor that they may be computed before a list."""
    await store_requests(store)

    async def read() -> list[object]:
        fields: list[dict[str, Any]] = [*({"sort": sort} for sort in REQUEST_SORTS), {"tool": "f"}]
        lists = [await list_ids(store, **each) for each in fields]
        page = await store.list_requests(RequestQuery())
        return [lists, page, await store.chart_requests(RequestQuery(find_price=PRICES.get))]

    before, unknown = await read(), ", ".join(f"{column} = NULL" for column in LISTED_COLUMNS)
    await execute(store, f"UPDATE @links SET {unknown}")
    assert await read() == before


async def test_each_tenant_lists_its_own_requests_and_models(store: Store) -> None:
    await store_requests(store)
    assert await store.request_models() == ["a/one", "b/two", "c/\ud800three\0"]
    guest = store.for_tenant("guest")
    assert (await guest.list_requests(RequestQuery())).requests == []
    assert (await guest.list_requests(RequestQuery("cost", text="rain"))).requests == []
    assert await guest.request_models() == []


async def test_a_removed_response_and_a_parent_that_is_not_stored_are_not_listed(store: Store) -> None:
    await store_requests(store)
    await store.commit(Transaction(links=(link("resp_f", ROOT, parent_id="resp_missing", created_at=NOW + 9),)))
    await store.remove_link("resp_a")
    assert await list_ids(store) == [f"resp_{letter}" for letter in "fedcb"]


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("UPDATE @links SET status = 'x' WHERE id = 'resp_3'", {"resp_3"}),
        ("UPDATE @links SET usage = '\"a\"' WHERE id = 'resp_3'", {"resp_3"}),
        ("UPDATE @links SET usage = '{' WHERE id = 'resp_3'", {"resp_3"}),
    ],
)
async def test_a_damaged_response_is_left_out_and_reported(store: Store, statement: str, left_out: set[str]) -> None:
    await fill_open_store(store)
    before = {request.link.id for request in (await store.list_requests(RequestQuery())).requests}
    assert left_out < before
    reported: list[DamagedRow] = []
    store.admin.set_damaged_row_observer(reported.append)
    await execute(store, statement)
    page = await store.list_requests(RequestQuery(sort="input"))
    assert {request.link.id for request in page.requests} == before - left_out
    assert {error.key for error in reported} == left_out


async def test_requests_of_a_damaged_route_are_left_out_in_every_order(store: Store) -> None:
    await fill_open_store(store)
    await execute(store, "UPDATE @repeated SET body = '{}' WHERE body LIKE '%conv_1%'")
    for sort in REQUEST_SORTS:
        page = await store.list_requests(RequestQuery(sort=sort))
        assert not {"resp_2", "resp_3"} & {request.link.id for request in page.requests}


async def test_a_search_that_matches_very_many_items_says_that_it_is_limited(store: Store) -> None:
    items = tuple(user_message(f"apple {number}") for number in range(MAX_MATCHING_ITEMS))
    path = Path(ROOT).append(items)
    await store.commit(Transaction((AppendItems(ROOT, items),), (link("resp_1", path.head),)))
    assert not (await store.list_requests(RequestQuery(text="apple"))).is_search_limited
    more = path.append([user_message("one more apple")])
    await store.commit(Transaction((AppendItems(path.head, more.items[-1:]),), (link("resp_2", more.head),)))
    page = await store.list_requests(RequestQuery(text="apple"))
    assert page.is_search_limited
    assert {request.link.id for request in page.requests} <= {"resp_1", "resp_2"}


async def test_a_search_finds_the_request_that_an_item_was_sent_with_and_no_later_one(store: Store) -> None:
    question = Path(ROOT).append([user_message("Is it raining?")])
    answered = question.append([assistant_message("Yes")])
    edited = question.append([assistant_message("No"), user_message("Are you sure?")])
    links = (link("resp_1", question.head, answered.head), link("resp_2", edited.head, created_at=NOW + 1))
    await store.commit(Transaction((AppendItems(ROOT, answered.items), AppendItems(ROOT, edited.items)), links))
    assert await list_ids(store, text="raining") == ["resp_1"]
    assert await list_ids(store, text="no") == await list_ids(store, text="sure") == ["resp_2"]


async def test_requests_are_filtered_by_time(store: Store) -> None:
    await store_requests(store)
    assert await list_ids(store, begin=NOW + 2, is_descending=False) == ["resp_b", "resp_c", "resp_d", "resp_e"]
    assert await list_ids(store, end=NOW + 2) == ["resp_a"]
    assert await list_ids(store, begin=NOW + 2, end=NOW + 4, model="b/two") == ["resp_c"]
    charts = await store.chart_requests(RequestQuery(begin=NOW + 2, end=NOW + 4, find_price=PRICES.get))
    assert sum(bucket.requests for bucket in charts.buckets) == 2


async def test_requests_are_filtered_by_called_functions_and_offered_tools(store: Store) -> None:
    await store_requests(store)
    path = Path(ROOT).append([user_message("Search"), assistant_message("look_up f")])
    call = path.append([{"type": "function_call", "name": "look_up", "call_id": "call_2", "arguments": "{}"}])
    tools = [{"type": "web_search"}, {"type": "function", "name": "never"}, {"type": "mcp", "server_label": "wiki"}]
    parameters = {"tools": tools}
    links = (
        link("resp_f", path.first(1).head, path.head, created_at=NOW + 5, parameters=parameters),
        link("resp_g", path.head, call.head, created_at=NOW + 6, parent_id="resp_f"),
    )
    await store.commit(Transaction((AppendItems(ROOT, call.items),), links))
    assert await list_ids(store, tool="f") == ["resp_c"]
    assert await list_ids(store, tool="look_up") == ["resp_g"]
    assert await list_ids(store, tool="never") == await list_ids(store, tool="look") == []
    for tool in ("web_search", "mcp", "wiki"):
        assert await list_ids(store, tool=tool) == ["resp_f"]
    assert await list_ids(store, tool="f", text="weather") == ["resp_c"]
    assert await list_ids(store, tool="f", text="rain") == []
    charts = await store.chart_requests(RequestQuery(tool="f", text="weather", find_price=PRICES.get))
    assert sum(bucket.requests for bucket in charts.buckets) == 1
    assert await store.request_tools() == ["f", "look_up", "mcp", "web_search", "wiki"]
    assert await store.for_tenant("guest").request_tools() == []
