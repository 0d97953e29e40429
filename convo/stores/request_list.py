"""The list of requests: the query, its rows, and the orders that are computed here.

Links have columns for the list (`codec.LISTED_COLUMNS`), by which a database filters and sorts. Prices and the full
names of models depend on the settings of the process that lists, and letters sort without their case: for the orders
by cost, model and title the database returns the columns of all requests that pass, and the page is chosen here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import merge, nlargest, nsmallest
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

from convo.config.sections import Price
from convo.config.settings import BUILT_IN_MODEL, expand_built_in_name
from convo.errors import DamagedRow
from convo.history.records import Link, LinkStatus
from convo.stores.codec import MAX_LISTED_TOOLS, unescape_name
from convo.stores.unstored_requests import UnstoredRequest

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
    session:     the name or id of the session that made them; "" for those without one
    text:        words that an item of the request's own input or output contains; "" for any
    tool:        the name of a tool that its response calls, or the type or the server label of a tool that the request
                 offers; None for any
    begin, end:  seconds since 1970 at and before which it was created; None for any
    recent:      requests without a stored response that are not written yet
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
    recent: Sequence[UnstoredRequest] = ()
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
    parent_counts: input, cached and written tokens of the request that it continues; None without one or its usage
    """

    link: Link
    session_name: str | None
    title: str
    parent_counts: tuple[int, int, int] | None = None


def read_parent_counts(columns: Sequence[int | None]) -> tuple[int, int, int] | None:
    """Return `PARENT_COLUMNS` of a row; None if one is null."""
    return None if None in columns else cast("tuple[int, int, int]", tuple(columns))


PARENT_COLUMNS = "parents.input_tokens, parents.cached_tokens, parents.written_tokens"


class RequestPage(NamedTuple):
    """One page of the list.

    next_cursor:        None on the last page
    is_search_limited:  more than `MAX_MATCHING_ITEMS` items contain the text, so requests may be missing
    damaged:            rows that were left out of the page and of its titles
    """

    rows: Sequence[ListedRequest | UnstoredRequest]
    next_cursor: RequestCursor | None = None
    is_search_limited: bool = False
    damaged: Sequence[DamagedRow] = ()

    @property
    def requests(self) -> "list[ListedRequest]":
        """The rows of stored requests."""
        return [row for row in self.rows if isinstance(row, ListedRequest)]


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


def choose_links(
    rows: Iterable[tuple[Row, str, *tuple[Any, ...]]], query: RequestQuery, after_id: str | None
) -> list[tuple[Any, str, Row]]:
    """Return the first `query.limit + 1` rows after the cursor in an order of `READ_COLUMNS`: value, id and row.

    rows:      of the requests that pass the filters: the row that the store needs, the id as stored, `READ_COLUMNS`
    after_id:  the id of the cursor as stored
    """
    places = _VALUES[query.sort](rows, query)
    if query.after is not None:
        cursor = (query.after.value, after_id or "")
        places = (place for place in places if (place[:2] < cursor if query.is_descending else place[:2] > cursor))
    return (nlargest if query.is_descending else nsmallest)(query.limit + 1, places)  # no two have the same id


def _read_models(rows: Iterable[Any], query: RequestQuery) -> Iterator[tuple[str, str, Any]]:
    @cache
    def full_name(column: str | None) -> str:
        return _without_surrogates(query.expand_model_name(unescape_name(column or "")))

    return ((full_name(model), row_id, row) for row, row_id, model in rows)


def _read_titles(rows: Iterable[Any], query: RequestQuery) -> Iterator[tuple[str, str, Any]]:
    unknown = "" if query.is_descending else BEYOND_ALL_TEXT
    return ((_without_surrogates((title or "").casefold()) or unknown, row_id, row) for row, row_id, title in rows)


def _read_costs(rows: Iterable[Any], query: RequestQuery) -> Iterator[tuple[float, str, Any]]:
    from convo.usage.cost import tokens_cost_usd  # a list that is not sorted by cost does not need it

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


# -- requests without a response: a tenant has few, so they are filtered and sorted here ------------


def filter_unstored(requests: Iterable[UnstoredRequest], query: RequestQuery) -> Iterator[UnstoredRequest]:
    """Yield the rows that pass the filters of `query`, each id once: none has a text or a tool."""
    if query.text or query.tool is not None:
        return
    by_id = {request.id: request for request in requests}
    for request in by_id.values():
        if (
            query.status in (None, request.status)
            and query.has_model(request.model)
            and (query.begin is None or request.created_at >= query.begin)
            and (query.end is None or request.created_at < query.end)
        ):
            yield request


Place: TypeAlias = tuple[Any, str, Row]
"""Its value in the order, its id, and what the store reads a link by."""


def merge_page(
    links: Sequence[Place[Row]], unstored: Iterable[UnstoredRequest], query: RequestQuery
) -> tuple[list[Row | UnstoredRequest], RequestCursor | None]:
    """Return a page of links and rows in their common order, and the cursor after it if there are more.

    links:     the first `query.limit + 1` links after the cursor, sorted
    unstored:  the rows that pass the filters, in any order
    """
    value_of = _UNSTORED_VALUES[query.sort](query)
    places = [(value_of(request), request.id, request) for request in unstored]
    if query.after is not None:
        after = tuple(query.after)
        places = [place for place in places if (place[:2] < after if query.is_descending else place[:2] > after)]
    places.sort(key=lambda place: place[:2], reverse=query.is_descending)
    merged: list[Place[Row | UnstoredRequest]] = list(
        merge(links, places, key=lambda place: place[:2], reverse=query.is_descending)
    )
    page = merged[: query.limit]
    cursor = RequestCursor(*page[-1][:2]) if len(merged) > query.limit else None
    return [row for _, _, row in page], cursor


def _unknown(query: RequestQuery) -> Any:
    if query.sort in TEXT_SORTS:
        return "" if query.is_descending else BEYOND_ALL_TEXT
    return -1.0 if query.is_descending else BEYOND_ALL


def _figure(name: str) -> Callable[[RequestQuery], Callable[[UnstoredRequest], Any]]:
    def value_of(query: RequestQuery) -> Callable[[UnstoredRequest], Any]:
        unknown = _unknown(query)
        return lambda request: unknown if (value := getattr(request, name)) is None else value

    return value_of


def _model(query: RequestQuery) -> Callable[[UnstoredRequest], Any]:
    return lambda request: query.expand_model_name(request.model)


def _title(query: RequestQuery) -> Callable[[UnstoredRequest], Any]:
    return lambda _: _unknown(query)


def _cost(query: RequestQuery) -> Callable[[UnstoredRequest], Any]:
    unknown = _unknown(query)

    def value_of(request: UnstoredRequest) -> float:
        cost = unstored_cost_usd(request, query)
        return unknown if cost is None else cost

    return value_of


def unstored_cost_usd(request: UnstoredRequest, query: RequestQuery) -> float | None:
    """Return the cost of the requests of a row; None without usage, or if the price is unknown."""
    if request.input_tokens is None:
        return None
    from convo.usage.cost import tokens_cost_usd

    price = query.find_price(query.expand_model_name(request.model))
    counts = request.input_tokens, request.cached_tokens or 0, request.output_tokens or 0
    input_tokens, cached_tokens, output_tokens = (tokens / request.count for tokens in counts)
    mean_cost = tokens_cost_usd(price, input_tokens, cached_tokens, output_tokens, 0, 0)
    return None if mean_cost is None else mean_cost * request.count


_UNSTORED_VALUES: dict[str, Callable[[RequestQuery], Callable[[UnstoredRequest], Any]]] = {
    "created_at": _figure("created_at"),
    "status": _figure("status"),
    "latency": _figure("latency_s"),
    "input": _figure("input_tokens"),
    "cached": _figure("cached_tokens"),
    "output": _figure("output_tokens"),
    "model": _model,
    "title": _title,
    "cost": _cost,
}
