"""Reads a list of items page by page, to its end."""

from collections.abc import Awaitable, Callable

from convo.endpoints.contract import Page
from convo.items import Item

PAGE = 100
"""Items a page: the most that the API gives."""


async def every(page_after: Callable[[str | None], Awaitable[Page]]) -> list[Item]:
    """All items of a list; `page_after` asks for the page behind the item with this id."""
    items: list[Item] = []
    more = True
    while more:
        page = await page_after(str(items[-1]["id"]) if items else None)
        items += page.items
        more = page.has_more and bool(page.items)
    return items
