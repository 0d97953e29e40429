"""Lists of an endpoint, page by page, to their end or a limit.

A server may say of every page that there is more, and give the same page again: what it lists is read as
long as each page has something new.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from convo.endpoints.contract import Page
from convo.errors import StreamBroken
from convo.items import Item

PAGE = 100
"""Items a page: the most that the API gives."""

MOST_ITEMS = 100_000
MOST_BYTES = 256 * 2**20
"""Of one list: more than the longest conversation, and less than a machine's memory."""


async def pages(page_after: Callable[[str | None], Awaitable[Page]]) -> AsyncGenerator[Page, None]:
    """The pages of a list; `page_after` asks for the page behind the item with this id.

    raises:  StreamBroken  the list does not end, or cannot be paged
    """
    seen: set[str] = set()
    size, last = 0, None
    while True:
        page = await page_after(last)
        size += len(json.dumps(list(page.items)))
        ids = [item.get("id") for item in page.items]
        if not seen.isdisjoint(ids) or len(seen) + len(ids) > MOST_ITEMS or size > MOST_BYTES:
            raise StreamBroken("the server lists items without an end", hint="check the provider's base_url")
        seen.update(str(one) for one in ids)
        yield page
        if not (page.has_more and ids):
            return
        if not isinstance(ids[-1], str):
            raise StreamBroken("the server lists items without ids", hint="check the provider's base_url")
        last = ids[-1]


async def every(page_after: Callable[[str | None], Awaitable[Page]]) -> list[Item]:
    """All items of a list. raises: as `pages`"""
    async with aclosing(pages(page_after)) as listed:
        return [item async for page in listed for item in page.items]
