"""Lists are fetched page by page, with a limit for lists that do not end."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from convo.endpoints.base import ItemPage, iter_pages, list_all_items
from convo.errors import StreamBroken


def fetch_of(*pages: ItemPage) -> tuple[Callable[[str | None], Any], list[str | None]]:
    """Return a function that returns `pages` in turn, and the list of ids that it is called with."""
    remaining, after = list(pages), []

    async def fetch(last_id: str | None) -> ItemPage:
        after.append(last_id)
        return remaining.pop(0)

    return fetch, after


def items(*ids: Any) -> list[dict[str, Any]]:
    return [{"id": item_id} for item_id in ids]


async def test_each_page_is_fetched_after_the_last_item_of_the_one_before() -> None:
    fetch, after = fetch_of(ItemPage(items("a", "b"), True), ItemPage(items("c"), True), ItemPage(items("d"), False))

    assert await list_all_items(fetch) == items("a", "b", "c", "d")
    assert after == [None, "b", "c"]


@pytest.mark.parametrize("page", [ItemPage((), True), ItemPage(items("a"), False), ItemPage(items(None), False)])
async def test_a_page_without_items_or_without_a_next_page_is_the_last(page: ItemPage) -> None:
    fetch, after = fetch_of(page)

    assert await list_all_items(fetch) == list(page.items)
    assert after == [None]


async def test_a_list_that_repeats_an_item_is_broken() -> None:
    fetch, _ = fetch_of(ItemPage(items("a", "b"), True), ItemPage(items("c", "a"), True))
    received: list[ItemPage] = []

    with pytest.raises(StreamBroken, match=r"^the server's list of items does not end$") as caught:
        await collect_pages(received, fetch)

    assert len(received) == 1
    assert caught.value.hint == "check the provider's base_url"


async def test_a_list_whose_items_have_no_ids_cannot_be_continued() -> None:
    fetch, _ = fetch_of(ItemPage(items(None), True))
    received: list[ItemPage] = []

    with pytest.raises(StreamBroken, match=r"^the server's list has items without ids$") as caught:
        await collect_pages(received, fetch)

    assert len(received) == 1
    assert caught.value.hint == "check the provider's base_url"


async def test_a_list_ends_after_a_hundred_thousand_items() -> None:
    page = ItemPage(items(*map(str, range(99_999))), True)

    assert len(await list_all_items(fetch_of(page, ItemPage(items("x"), False))[0])) == 100_000
    with pytest.raises(StreamBroken, match="does not end"):
        await list_all_items(fetch_of(page, ItemPage(items("x", "y"), False))[0])


async def test_a_list_ends_after_256_mebibytes() -> None:
    """The limit counts the JSON of the items. All pages share one text, so the test needs little memory."""
    received: list[ItemPage] = []
    text = "x" * (2**22 - len(json.dumps([{"id": "00", "text": ""}])))

    async def fetch(_: str | None) -> ItemPage:
        return ItemPage([{"id": f"{len(received):02}", "text": text}], True)

    with pytest.raises(StreamBroken, match="does not end"):
        await collect_pages(received, fetch)

    assert len(received) == 64


async def collect_pages(received: list[ItemPage], fetch: Callable[[str | None], Any]) -> None:
    async for page in iter_pages(fetch):
        received.append(page)  # noqa: PERF401 - the pages before the error are checked
