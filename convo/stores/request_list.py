"""The list of requests: the query, its rows, and the figures by which both SQL stores sort.

The tokens of a link are stored as integers without names; the shared route of the link has their names. So a query
by tokens, cost or model first reads the distinct routes, and gets them back as a table of positions and prices.
Titles are not stored: an order by title reads each of them once, and keeps the newest in memory.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from heapq import nlargest, nsmallest
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from convo.config.sections import Price
from convo.config.settings import BUILT_IN_MODEL, expand_built_in_name
from convo.errors import DamagedRow
from convo.history.items import (
    Item,
    Json,
    conversation_title,
    fallback_title,
    is_user_message,
    item_type,
    typed_text,
)
from convo.history.records import Link, LinkStatus
from convo.stores.codec import TIER_MEMBER, decode_json, is_route

RequestSort: TypeAlias = Literal[
    "created_at", "model", "status", "latency", "input", "cached", "output", "cost", "title"
]
REQUEST_SORTS: tuple[RequestSort, ...] = get_args(RequestSort)

MAX_MATCHING_ITEMS = 1000
"""Items that a search for requests considers, newest first where the store knows the order."""

TITLE_WIDTH = 120
"""Characters of a title."""

MAX_TOOL_CALLS = 20_000
"""Calls of one function that a filter considers, newest first where the store knows the order."""

MAX_LISTED_TOOLS, MAX_TOOL_CHARS = 200, 100
"""Tools that are listed, and characters of their names."""

MAX_MODEL_ROUTES = 1000
"""Routes, or parameters, that are read for the list of models, or of tools."""

BEYOND_ALL, BEYOND_ALL_TEXT = 1e300, "\U0010ffff"
"""Sort an unknown figure or title after every known one in ascending order; -1 and "" do in descending order."""

TEXT_SORTS: tuple[RequestSort, ...] = ("model", "status", "title")
"""Orders whose values are texts."""

MAX_KEPT_TITLES, TITLES_PER_READ = 200_000, 2000
"""Titles that a process keeps in memory for the order by title, and that are read with one statement."""


MAX_KEPT_RESULTS, MAX_KEPT_CHARS = 10_000, 1000
"""Decoded routes, and decoded parameters, that a process keeps in memory, and the characters of one."""


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
    tool:        the name of a function that an item of the request's own input or output calls, or the type or the
                 server label of a tool that the request offers; None for any
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

    @property
    def needs_routes(self) -> bool:
        """Whether the query reads the distinct routes first."""
        return self.model is not None or self.sort in ("model", "input", "cached", "output", "cost")

    def has_model(self, name: str) -> bool:
        """Return whether requests with this model name pass the filter by model."""
        return self.model is None or self.expand_model_name(name) == self.expand_model_name(self.model)


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


# -- routes ---------------------------------------------------------------------------------------


class RouteUsage(NamedTuple):
    """The model of a route, and where the integers of a link's usage have its tokens, from 0; None: nowhere.

    model:          the stored name, which may be short
    service_tier:   as the provider reported it; None for the default one
    integer_count:  the integers of a link's usage; -1 if the route has no usage, None if the route is damaged
    """

    model: str
    is_known: bool
    input: int | None
    cached: int | None
    output: int | None
    written: int | None
    written_1h: int | None
    integer_count: int | None
    service_tier: str | None = None


def decode_route_usage(body: str) -> RouteUsage:
    """Decode the stored JSON of a route; a damaged one has no usage, and no request with it can be read.

    The results are kept, except for a long route: the name of its model is as long as a client sent it.
    """
    return _decode_kept_route(body) if len(body) <= MAX_KEPT_CHARS else _decode_route(body)


def _decode_route(body: str) -> RouteUsage:
    try:
        route = decode_json(body)
    except ValueError:
        route = None
    if not is_route(route):
        return RouteUsage("", False, None, None, None, None, None, None)
    form = route[7]
    paths = list(_integer_paths(form))
    positions = {path: number for number, path in enumerate(paths)}
    return RouteUsage(
        route[0],
        bool(form),
        positions.get(("input_tokens",)),
        positions.get(("input_tokens_details", "cached_tokens")),
        positions.get(("output_tokens",)),
        positions.get(("input_tokens_details", "cache_write_tokens")),
        positions.get(("input_tokens_details", "cache_write_1h_tokens")),
        -1 if form is None else len(paths),
        None if form is None else form.get(TIER_MEMBER),
    )


_decode_kept_route = lru_cache(MAX_KEPT_RESULTS)(_decode_route)


def _integer_paths(form: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Iterate over the paths of the integers of a usage object, in their stored order."""
    if isinstance(form, dict):
        for name, value in form.items():
            yield from _integer_paths(value, (*path, name))
    elif isinstance(form, list):
        for value in form:
            yield from _integer_paths(value, (*path, "[]"))
    elif type(form) is int:
        yield path


TOKEN_COLUMNS = ("i", "c", "o", "w", "h")
"""Columns of the table of routes with the positions of tokens: input, cached, output, written, written for an hour."""

PRICE_COLUMNS = (*(f"p_{column}" for column in TOKEN_COLUMNS), "max_i", "f_i", "f_o")
"""Columns of the table of routes that the cost depends on: USD per token, and the prices of a long input."""

ROUTE_COLUMNS = ("model", "known", "size", *TOKEN_COLUMNS, *PRICE_COLUMNS)
"""Columns of the table of routes after the route itself: model, count and positions of tokens, USD per token."""


def build_route_row(body: str, query: RequestQuery, *, with_prices: bool) -> list[Json]:
    """Return the values of `ROUTE_COLUMNS` for one route; the model as ASCII JSON, which every database can store."""
    from convo.usage.cost import TOKENS_PER_PRICE

    usage = decode_route_usage(body)
    full_name = query.expand_model_name(usage.model)
    price = query.find_price(full_name if full_name == BUILT_IN_MODEL else usage.model) if with_prices else None
    price = price and price.at_tier(usage.service_tier)
    prices: list[Json] = [None] * 8
    if price:
        per_token = [price.input, price.cached, price.output, price.written, price.written_1h]
        prices = [None if value is None else value / TOKENS_PER_PRICE for value in per_token]
        prices += [price.max_input_tokens, *(price.long_input_factors or (None, None))]
    return [
        json.dumps(full_name),
        int(usage.is_known),
        usage.integer_count,
        usage.input,
        usage.cached,
        usage.output,
        usage.written,
        usage.written_1h,
        *prices,
    ]


def list_models(bodies: Iterable[str], expand_model_name: Callable[[str], str]) -> Sequence[str]:
    """Return the full names of the models of these routes, sorted."""
    return sorted({expand_model_name(decode_route_usage(body).model) for body in bodies})


# -- SQL that both stores understand ----------------------------------------------------------------


def sort_expression(query: RequestQuery, tokens: Callable[[str], str], joined: str | None = None) -> str:
    """Return the SQL expression by which the rows are sorted, except by title; it is never null.

    tokens:  returns the expression of the tokens at a column of the table `routes`, 0 if there are none
    joined:  a table with the columns of both `links` and `routes`; None: they are two tables
    """
    links, routes = (joined, joined) if joined else ("links", "routes")
    if query.sort in ("created_at", "status"):
        return f"{links}.{query.sort}"
    if query.sort == "model":
        return f"{routes}.model"
    unknown = "-1" if query.is_descending else str(BEYOND_ALL)
    if query.sort == "latency":
        return f"coalesce({links}.seconds, {unknown})"
    figure = cost_expression(tokens, routes) if query.sort == "cost" else tokens(query.sort[0])
    return f"coalesce(CASE WHEN {links}.usage IS NULL OR {routes}.known = 0 THEN NULL ELSE {figure} END, {unknown})"


def cost_expression(tokens: Callable[[str], str], routes: str = "routes") -> str:
    """Return the SQL expression of a request's cost in USD; null if a price that it needs is unknown.

    routes:  the table with the prices
    """
    i, c, o, w, h = map(tokens, TOKEN_COLUMNS)
    is_long = f"{routes}.max_i IS NOT NULL AND {i} > {routes}.max_i"
    factor_i, factor_o = (f"CASE WHEN {is_long} THEN {routes}.f_{part} ELSE 1 END" for part in "io")
    written = f"CASE WHEN {w} = {h} THEN 0 ELSE ({w} - {h}) * {routes}.p_w END"
    written += f" + CASE WHEN {h} = 0 THEN 0 ELSE {h} * {routes}.p_h END"
    return (
        f"({factor_i}) * (({i} - {c} - {w}) * {routes}.p_i + {c} * {routes}.p_c + ({written}))"
        f" + ({factor_o}) * {o} * {routes}.p_o"
    )


def is_call_of(item: Item, tool: str) -> bool:
    """Return whether the item is a call of this function, or of a tool of this type."""
    return item_type(item).removesuffix("_call") == tool or (
        item_type(item).endswith("_call") and item.get("name") == tool
    )


class OfferedTools(NamedTuple):
    """The names of the tools that a request offers: its functions; the types and server labels of other tools."""

    functions: frozenset[str]
    hosted: frozenset[str]


def decode_offered_tools(body: str) -> OfferedTools:
    """Decode the stored parameters of a link; damaged ones offer no tools.

    The results are kept by the hash of the parameters, which may be long, except for results with long names.
    """
    kept = _kept_tools(sha256(body.encode("utf-8", "surrogatepass")).digest())
    if kept:
        return kept[0]
    tools = _decode_tools(body)
    if sum(map(len, tools.functions | tools.hosted)) <= MAX_KEPT_CHARS:
        kept.append(tools)
    return tools


@lru_cache(MAX_KEPT_RESULTS)
def _kept_tools(digest: bytes) -> list[OfferedTools]:
    """Return the list with the result for the parameters with this hash; it is empty until there is one."""
    return []


def _decode_tools(body: str) -> OfferedTools:
    try:
        parameters = decode_json(body)
    except ValueError:
        parameters = None
    tools = parameters.get("tools") if isinstance(parameters, dict) else None
    functions, hosted = set[str](), set[str]()
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            is_function = tool.get("type") == "function"
            names = [tool.get("name")] if is_function else [tool.get("type"), tool.get("server_label")]
            (functions if is_function else hosted).update(name for name in names if isinstance(name, str))
    return OfferedTools(frozenset(functions), frozenset(hosted))


def list_tools(bodies: Iterable[str]) -> Sequence[str]:
    """Return the names of the tools in these stored parameters, sorted; those that are not too long."""
    offered = [decode_offered_tools(body) for body in bodies]
    names = {name for tools in offered for name in (*tools.functions, *tools.hosted) if len(name) <= MAX_TOOL_CHARS}
    return sorted(names)[:MAX_LISTED_TOOLS]


def choose_title(items: Iterable[Item]) -> str:
    """Return the title of a request from the items of its input, last first; only as many as needed are read.

    It is the last user message that a person typed, else the last user message, else the last item.
    """
    fallback: Item | None = None
    for item in items:
        if typed_text(item):
            return conversation_title([item], TITLE_WIDTH)
        if fallback is None or (is_user_message(item) and not is_user_message(fallback)):
            fallback = item
    return "" if fallback is None else fallback_title(fallback, TITLE_WIDTH)


# -- the order by title -----------------------------------------------------------------------------

Row = TypeVar("Row")


class KeptTitles:
    """The titles by which requests were sorted, by the first half of the key of their input's last node.

    A key is a hash of all items up to its node, so the title of a key never changes and stores can share them.
    """

    def __init__(self, max_count: int = MAX_KEPT_TITLES) -> None:
        self._titles: dict[bytes, str] = {}
        self._max_count = max_count

    def find_missing(self, keys: Iterable[bytes]) -> list[bytes]:
        return [key for key in dict.fromkeys(keys) if key not in self._titles]

    def add(self, key: bytes, title: str) -> None:
        """Keep a title in the form that is compared: without the difference of upper and lower case."""
        self._titles[key] = title.casefold().replace("\0", "").encode("utf-8", "replace").decode()

    def get(self, key: bytes) -> str:
        return self._titles.get(key, "")

    def trim(self) -> None:
        """Forget the titles that were read first."""
        for key in list(self._titles)[: max(0, len(self._titles) - self._max_count)]:
            self._titles.pop(key, None)


kept_titles = KeptTitles()
"""The titles of all stores of this process."""


class TitledRow(NamedTuple, Generic[Row]):
    """A request that passes the filters: its id as stored, the key of its title, and the row that the store needs."""

    id: str
    key: bytes
    row: Row


def choose_page_by_title(
    rows: Iterable[TitledRow[Row]], query: RequestQuery, after_id: str | None
) -> tuple[list[Row], tuple[str, str] | None]:
    """Return the rows of a page, and the title and the id of the last of them if there are more; titles must be kept.

    after_id:  the id of the cursor as stored
    """
    unknown = "" if query.is_descending else BEYOND_ALL_TEXT
    places = ((kept_titles.get(each.key) or unknown, each.id, each.row) for each in rows)
    if query.after is not None:
        cursor = (str(query.after.value), after_id or "")
        places = (place for place in places if (place[:2] < cursor if query.is_descending else place[:2] > cursor))
    choose = nlargest if query.is_descending else nsmallest
    chosen = choose(query.limit + 1, places, key=lambda place: place[:2])
    page = chosen[: query.limit]
    return [row for _, _, row in page], page[-1][:2] if len(chosen) > query.limit else None
