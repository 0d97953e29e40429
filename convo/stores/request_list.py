"""The list of requests: the query, its rows, and the orders that are computed here.

Links have columns for the list (`codec.LISTED_COLUMNS`), by which a database filters and sorts. Prices and the full
names of models depend on the settings of the process that lists, and letters sort without their case: for the orders
by cost, model and title the database returns the columns of all requests that pass, and the page is chosen here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nlargest, nsmallest
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from convo.config.sections import Price
from convo.config.settings import BUILT_IN_MODEL, expand_built_in_name
from convo.errors import DamagedRow
from convo.history.records import Link, LinkStatus
from convo.stores.codec import MAX_LISTED_TOOLS, unescape_name
from convo.usage.cost import tokens_cost_usd

RequestSort: TypeAlias = Literal[
    "created_at", "model", "status", "latency", "input", "cached", "output", "cost", "title"
]
REQUEST_SORTS: tuple[RequestSort, ...] = get_args(RequestSort)

MAX_MATCHING_ITEMS = 1000
"""Items that a search for requests considers, newest first where the store knows the order."""

MAX_OPTION_REQUESTS = 10_000
"""The newest requests whose models and tools are offered as filters."""

BEYOND_ALL, BEYOND_ALL_TEXT = 1e300, "\U0010ffff"
"""Sort an unknown figure or title after every known one in ascending order; -1 and "" do in descending order."""

TEXT_SORTS: tuple[RequestSort, ...] = ("model", "status", "title")
"""Orders whose values are texts."""

LINKS_PER_BATCH = 500
"""Links of older versions whose columns are computed in one transaction."""


class RequestCursor(NamedTuple):
    """The last row of a page: the value by which it was sorted, and its id."""

    value: str | float
    id: str


def no_price(model: str) -> Price | None:
    """Return None: no price is known."""
    return None


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """Which requests to list, and in which order. Requests with an unknown figure come last in either order.

    after:       the cursor of the previous page; None for the first
    model:       a name of their model; its full name and its short name find the same requests
    session:     the name or id of the session that made them
    text:        words that an item of the request's own input or output contains; "" for any
    tool:        the name of a tool that its response calls, or the type or the server label of a tool that the request
                 offers; None for any
    begin, end:  seconds since 1970 at and before which it was created; None for any
    find_price:  returns the price of a model by its full name, for the order by cost
    expand_model_name:  returns the full name of a model; names with the same full name are one model in the filter,
                        the order and the charts
    """

    sort: RequestSort = "created_at"
    is_descending: bool = True
    limit: int = 50
    after: RequestCursor | None = None
    status: LinkStatus | None = None
    model: str | None = None
    session: str | None = None
    text: str = ""
    tool: str | None = None
    begin: float | None = None
    end: float | None = None
    find_price: Callable[[str], Price | None] = no_price
    expand_model_name: Callable[[str], str] = expand_built_in_name

    def has_model(self, name: str) -> bool:
        """Return whether requests with this model name pass the filter by model."""
        return self.model is None or self.expand_model_name(name) == self.expand_model_name(self.model)

    def price_finder(self) -> Callable[[str | None, str | None], Price | None]:
        """Return a function that finds the price by the columns `model` and `tier` of a link."""

        @cache
        def find(column: str | None, tier: str | None) -> Price | None:
            model = unescape_name(column or "")
            full_name = self.expand_model_name(model)
            price = self.find_price(full_name if full_name == BUILT_IN_MODEL else model)
            return price and price.at_tier(tier and unescape_name(tier))

        return find


class ListedRequest(NamedTuple):
    """One row.

    session_name:  None for a request of another client, or of a removed session
    title:         the first words of the user message that it continues from; of its last input item without one
    """

    link: Link
    session_name: str | None
    title: str


class RequestPage(NamedTuple):
    """One page of the list.

    next_cursor:        None on the last page
    is_search_limited:  more than `MAX_MATCHING_ITEMS` items contain the text, so requests may be missing
    damaged:            rows that were left out of the page and of its titles
    """

    requests: Sequence[ListedRequest]
    next_cursor: RequestCursor | None = None
    is_search_limited: bool = False
    damaged: Sequence[DamagedRow] = ()


def warn_of_wait(location: str, total: int) -> None:
    """Log that a list waits until the columns of `total` links are computed, unless they are few."""
    if total > LINKS_PER_BATCH:
        import logging

        text = "convo computes the titles of %d responses in %s, once after the upgrade, as convo store migrate does"
        logging.getLogger("convo.stores").warning(text, total, location)


# -- the orders that a database does not have --------------------------------------------------------

COUNT_COLUMNS = ("input_tokens", "cached_tokens", "output_tokens", "written_tokens", "written_1h_tokens")

READ_COLUMNS: dict[RequestSort, tuple[str, ...]] = {
    "model": ("model",),
    "title": ("title",),
    "cost": ("model", "tier", *COUNT_COLUMNS),
}
"""The columns from which the values of an order are computed; the database has the values of all other orders."""

Row = TypeVar("Row")


def choose_page(
    rows: Iterable[tuple[Row, str, *tuple[Any, ...]]], query: RequestQuery, after_id: str | None
) -> tuple[list[Row], tuple[str | float, str] | None]:
    """Return the rows of a page in an order of `READ_COLUMNS`, and value and id of the last of them if there are more.

    rows:      of the requests that pass the filters: the row that the store needs, the id as stored, `READ_COLUMNS`
    after_id:  the id of the cursor as stored
    """
    places = _VALUES[query.sort](rows, query)
    if query.after is not None:
        cursor = (query.after.value, after_id or "")
        places = (place for place in places if (place[:2] < cursor if query.is_descending else place[:2] > cursor))
    chosen = (nlargest if query.is_descending else nsmallest)(query.limit + 1, places)  # no two have the same id
    page = chosen[: query.limit]
    return [row for _, _, row in page], page[-1][:2] if len(chosen) > query.limit else None


def _read_models(rows: Iterable[Any], query: RequestQuery) -> Iterator[tuple[str, str, Any]]:
    @cache
    def full_name(column: str | None) -> str:
        return _without_surrogates(query.expand_model_name(unescape_name(column or "")))

    return ((full_name(model), row_id, row) for row, row_id, model in rows)


def _read_titles(rows: Iterable[Any], query: RequestQuery) -> Iterator[tuple[str, str, Any]]:
    unknown = "" if query.is_descending else BEYOND_ALL_TEXT
    return ((_without_surrogates((title or "").casefold()) or unknown, row_id, row) for row, row_id, title in rows)


def _read_costs(rows: Iterable[Any], query: RequestQuery) -> Iterator[tuple[float, str, Any]]:
    unknown, find_price = -1.0 if query.is_descending else BEYOND_ALL, query.price_finder()
    for row, row_id, model, tier, *counts in rows:
        cost = None if counts[0] is None else tokens_cost_usd(find_price(model, tier), *counts)
        yield unknown if cost is None else cost, row_id, row


_VALUES: dict[RequestSort, Callable[[Iterable[Any], RequestQuery], Iterator[tuple[Any, str, Any]]]] = {
    "model": _read_models,
    "title": _read_titles,
    "cost": _read_costs,
}


def _without_surrogates(text: str) -> str:
    """Return a text that a cursor can have."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def sort_expression(query: RequestQuery) -> str:
    """Return the SQL expression by which the rows are sorted, if not by `choose_page`; it is never null."""
    if query.sort in ("created_at", "status"):
        return f"links.{query.sort}"
    column = "seconds" if query.sort == "latency" else f"{query.sort}_tokens"
    return f"coalesce(links.{column}, {-1 if query.is_descending else BEYOND_ALL})"


# -- models and tools ---------------------------------------------------------------------------------


def list_models(columns: Iterable[str], expand_model_name: Callable[[str], str]) -> Sequence[str]:
    """Return the full names of the models in these columns, sorted."""
    return sorted({expand_model_name(unescape_name(column)) for column in columns})


def list_tools(columns: Iterable[str]) -> Sequence[str]:
    """Return the names of the tools in these columns, sorted."""
    return sorted({name for column in columns for name in json.loads(column)})[:MAX_LISTED_TOOLS]
