"""List the requests of a tenant, sorted and filtered by the database.

The rows of a page are chosen by rowid first; only their links and titles are read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from convo.errors import DamagedRow
from convo.history.items import MAX_TITLE_ITEMS, Item, typed_text
from convo.stores.codec import (
    decode_item,
    decode_link,
    encode_json,
    parse_search_phrases,
    phrase_density,
    tokenize_item,
)
from convo.stores.request_list import (
    MAX_MATCHING_ITEMS,
    MAX_MODEL_ROUTES,
    MAX_TOOL_CALLS,
    PRICE_COLUMNS,
    ROUTE_COLUMNS,
    TITLES_PER_READ,
    TOKEN_COLUMNS,
    ListedRequest,
    RequestCursor,
    RequestPage,
    RequestQuery,
    TitledRow,
    build_route_row,
    choose_page_by_title,
    choose_title,
    decode_offered_tools,
    decode_route_usage,
    is_call_of,
    kept_titles,
    list_models,
    list_tools,
    sort_expression,
)
from convo.stores.sqlite.records import SELECT_LINKS
from convo.stores.sqlite.tenant_rows import TenantConnection, to_query_name

SELECT_ROUTES = """
SELECT n, body FROM repeated WHERE tenant = ? AND EXISTS (SELECT 1 FROM links WHERE route = repeated.n)
"""

SELECT_PARAMETERS = """
SELECT n, body FROM repeated WHERE tenant = ? AND body LIKE '%"tools"%'
"""

SELECT_NEWEST_ROUTES = """
SELECT body FROM repeated WHERE tenant = ? AND EXISTS (SELECT 1 FROM links WHERE route = repeated.n)
ORDER BY n DESC LIMIT ?
"""

ROUTE_VALUES = ", ".join(f"json_extract(value, '$[{index}]') AS {name}" for index, name in enumerate(ROUTE_COLUMNS, 1))
ROUTES_TABLE = (
    f"routes AS MATERIALIZED (SELECT json_extract(value, '$[0]') AS route, {ROUTE_VALUES} FROM json_each(:routes))"  # noqa: S608 - constant names
)

REACHED_TABLE = """
reached_{name} (n) AS (
    SELECT nodes.n FROM nodes WHERE item IN (SELECT value FROM json_each(:{name}))
    UNION
    SELECT nodes.n FROM reached_{name} JOIN nodes ON nodes.parent = reached_{name}.n
    WHERE NOT EXISTS (SELECT 1 FROM links WHERE saw = reached_{name}.n)
        AND NOT EXISTS (SELECT 1 FROM links WHERE head = reached_{name}.n)
), found_{name} (n) AS (
    SELECT links.n FROM reached_{name} JOIN links ON links.saw = reached_{name}.n
    UNION SELECT links.n FROM reached_{name} JOIN links ON links.head = reached_{name}.n
)
"""
"""The links whose own input or output has one of the items: from an item's node down to the next end of a link."""

SELECT_WORD_MATCHES = """
SELECT items.n, items.body FROM words CROSS JOIN items ON items.n = words.rowid
WHERE words MATCH ? AND items.tenant = ? ORDER BY words.rowid DESC
"""

SELECT_INPUT_BACKWARDS = """
WITH RECURSIVE up (parent, item, steps) AS (
    SELECT nodes.parent, nodes.item, 1 FROM links JOIN nodes ON nodes.n = links.saw WHERE links.n = ?
    UNION ALL
    SELECT nodes.parent, nodes.item, steps + 1 FROM up JOIN nodes ON nodes.n = up.parent WHERE steps < ?
)
SELECT items.n, items.body FROM up JOIN items ON items.n = up.item
"""


SELECT_LINKS_OF_PAGE = f"{SELECT_LINKS}AND links.n IN (SELECT value FROM json_each(?)) ORDER BY links.n"  # noqa: S608 - constant names

SELECT_SESSION_NAMES = """
SELECT links.n, sessions.name FROM json_each(?) JOIN links ON links.n = value
    JOIN sessions ON sessions.n = links.session AND sessions.record IS NOT NULL
"""

SELECT_LAST_INPUTS = """
SELECT links.n, items.n, items.body FROM json_each(?) JOIN links ON links.n = value
    JOIN nodes ON nodes.n = links.saw JOIN items ON items.n = nodes.item
"""


NEWEST_CONDITION = """
links.created_at >= coalesce((
    SELECT CASE WHEN count(created_at) = count(*) THEN min(created_at) END FROM (
        SELECT links.created_at FROM {source} WHERE {conditions} ORDER BY links.n DESC LIMIT :limit
    )
), -1e300)
"""
"""Excludes most requests before the sort for a page of the newest ones.

The subquery reads as many rows as a page has, those stored last: a request that is older than all of them is not on the
page.
"""


class FilteredLinks(NamedTuple):
    """The parts of a statement that reads the requests of a query: its tables, FROM, WHERE and values."""

    tables: list[str]
    source: str
    conditions: list[str]
    values: dict[str, object]
    is_search_limited: bool


def filter_links(t: TenantConnection, query: RequestQuery, *, with_routes: bool, with_prices: bool) -> FilteredLinks:
    """Return the parts of a statement for the filters of a query.

    with_routes:  joins the table `routes`, with prices if `with_prices`. Each conversation has a route of its own, and
                  that table has no index, so the links of each route are found by the index of `links`.
    """
    tables, conditions = list[str](), ["+links.tenant = :tenant", "+links.saw IS NOT NULL"]
    values: dict[str, object] = {"tenant": t.tenant_number}
    source, is_search_limited = "links", False
    if with_routes:
        rows = [
            [n, *build_route_row(body, query, with_prices=with_prices)]
            for n, body in t.fetch_all(SELECT_ROUTES, t.tenant_number)
            if query.has_model(decode_route_usage(body).model)
        ]
        values["routes"] = encode_json(rows)
        tables.append(ROUTES_TABLE)
        source = "routes CROSS JOIN links INDEXED BY links_by_route ON links.route = routes.route"
    if query.status is not None:
        conditions.append("links.status = :status")
        values["status"] = query.status
    if query.session is not None:
        conditions.append(
            "links.session IN (SELECT n FROM sessions WHERE tenant = :tenant AND (id = :session OR name = :session))"
        )
        values["session"] = to_query_name(query.session)
    if query.text:
        items, is_search_limited = _find_items(t, query.text)
        values["words"] = encode_json(items)
        tables.append(REACHED_TABLE.format(name="words"))
        conditions.append("links.n IN (SELECT n FROM found_words)")
    if query.tool is not None:
        calls, is_tool_limited = _find_calls(t, query.tool)
        is_search_limited = is_search_limited or is_tool_limited
        offers = [
            n
            for n, body in t.fetch_all(SELECT_PARAMETERS, t.tenant_number)
            if query.tool in decode_offered_tools(body).hosted
        ]
        values |= {"calls": encode_json(calls), "offers": encode_json(offers)}
        tables.append(REACHED_TABLE.format(name="calls"))
        conditions.append(
            "(links.n IN (SELECT n FROM found_calls) OR links.parameters IN (SELECT value FROM json_each(:offers)))"
        )
    for operator, moment in ((">=", query.begin), ("<", query.end)):
        if moment is not None:
            name = "begin" if operator == ">=" else "end"
            conditions.append(f"links.created_at {operator} :{name}")
            values[name] = moment
    return FilteredLinks(tables, source, conditions, values, is_search_limited)


def select_requests(t: TenantConnection, query: RequestQuery) -> RequestPage:
    """Return one page of the requests."""
    tables, source, conditions, values, is_search_limited = filter_links(
        t, query, with_routes=query.needs_routes, with_prices=query.sort == "cost"
    )
    if query.sort == "title":
        return _select_requests_by_title(t, query, FilteredLinks(tables, source, conditions, values, is_search_limited))
    values["limit"] = query.limit + 1
    sort = sort_expression(query, tokens_expression)
    if query.sort == "cost":
        columns = ", ".join(
            [
                *("links.n", "links.id", "links.usage", "routes.known"),
                *(f"routes.{column}" for column in PRICE_COLUMNS),
                *(f"{tokens_expression(column)} AS {column}" for column in TOKEN_COLUMNS),
            ]
        )
        source = f"({select_once(columns, source, conditions)}) AS links"
        conditions = ["true"]
        sort = sort_expression(query, lambda column: f"links.{column}", "links")
    if query.after is not None:
        conditions.append(f"({sort}, links.id) {'<' if query.is_descending else '>'} (:value, :id)")
        values |= {"value": query.after.value, "id": to_query_name(query.after.id)}
    if query.sort == "created_at" and query.is_descending and not query.text and not query.tool:
        conditions.append(NEWEST_CONDITION.format(source=source, conditions=" AND ".join(conditions)))
    order = "DESC" if query.is_descending else "ASC"
    with_clause = f"WITH RECURSIVE {', '.join(tables)} " if tables else ""
    chosen = t.db.execute(
        f"{with_clause}SELECT links.n, {sort} AS value, links.id FROM {source} WHERE {' AND '.join(conditions)}"  # noqa: S608 - constant names
        f" ORDER BY value {order}, links.id {order} LIMIT :limit",
        values,
    ).fetchall()
    page = chosen[: query.limit]
    next_cursor = RequestCursor(*page[-1][1:]) if len(chosen) > query.limit else None
    return _load_page(t, [n for n, _, _ in page], next_cursor, is_search_limited)


def _load_page(
    t: TenantConnection, rowids: Sequence[int], next_cursor: RequestCursor | None, is_search_limited: bool
) -> RequestPage:
    """Read a page: one statement for all links, one for the session names, and one for the last items of the inputs.

    Only a request whose last input item is not a typed message needs another one, for its title.
    """
    page = encode_json(list(rowids))
    rows = t.fetch_records(SELECT_LINKS_OF_PAGE, page)
    rows_by_rowid = dict(zip(sorted(rowids), rows, strict=True))
    names = {n: name for n, name in t.fetch_records(SELECT_SESSION_NAMES, page) if isinstance(name, str)}
    last_inputs = {n: (item, body) for n, item, body in t.fetch_records(SELECT_LAST_INPUTS, page)}
    requests, damaged = list[ListedRequest](), list[DamagedRow]()
    for n in rowids:
        try:
            link = decode_link(rows_by_rowid[n])
        except DamagedRow as error:
            damaged.append(error)
            continue
        title = _typed_title(*last_inputs[n]) if n in last_inputs else None
        if title is None:
            title = choose_title(_iter_input_backwards(t, n, damaged))
        requests.append(ListedRequest(link, names.get(n) or None, title))
    return RequestPage(requests, next_cursor, is_search_limited, damaged)


def _select_requests_by_title(t: TenantConnection, query: RequestQuery, filtered: FilteredLinks) -> RequestPage:
    with_clause = f"WITH RECURSIVE {', '.join(filtered.tables)} " if filtered.tables else ""
    rows = t.db.execute(
        f"{with_clause}SELECT links.n, links.id, substr(nodes.key, 1, 16) FROM {filtered.source}"  # noqa: S608 - constant names
        f" JOIN nodes ON nodes.n = links.saw WHERE {' AND '.join(filtered.conditions)}",
        filtered.values,
    ).fetchall()
    rowids = {key: n for n, _, key in rows}
    missing = kept_titles.find_missing(rowids)
    for begin in range(0, len(missing), TITLES_PER_READ):
        _keep_titles(t, {rowids[key]: key for key in missing[begin : begin + TITLES_PER_READ]})
    after_id = to_query_name(query.after.id) if query.after else None
    page, last = choose_page_by_title((TitledRow(row_id, key, n) for n, row_id, key in rows), query, after_id)
    kept_titles.trim()
    return _load_page(t, page, RequestCursor(*last) if last else None, filtered.is_search_limited)


def _keep_titles(t: TenantConnection, keys: Mapping[int, bytes]) -> None:
    """Read the titles of links, by rowid; most inputs end with a typed message, so that one item is enough."""
    unread = dict(keys)
    for n, item, body in t.execute(SELECT_LAST_INPUTS, encode_json(list(keys))):
        title = _typed_title(item, body)
        if title is not None:
            kept_titles.add(unread.pop(n), title)
    for n, key in unread.items():
        kept_titles.add(key, choose_title(_iter_input_backwards(t, n, [])))


def _typed_title(item: int, body: str | bytes) -> str | None:
    """Return the title of a request whose input ends with this item; None if the item is not a typed message."""
    with suppress(DamagedRow):
        message = decode_item(str(item), body)
        if typed_text(message):
            return choose_title([message])
    return None


def select_models(t: TenantConnection, expand_model_name: Callable[[str], str]) -> Sequence[str]:
    """Return the models of the newest routes."""
    rows = t.fetch_all(SELECT_NEWEST_ROUTES, t.tenant_number, MAX_MODEL_ROUTES)
    return list_models([body for (body,) in rows], expand_model_name)


def select_tools(t: TenantConnection) -> Sequence[str]:
    """Return the tools that the newest distinct parameters offer."""
    sql = f"{SELECT_PARAMETERS} ORDER BY n DESC LIMIT ?"
    return list_tools(body for _, body in t.fetch_all(sql, t.tenant_number, MAX_MODEL_ROUTES))


def select_once(columns: str, source: str, conditions: Sequence[str]) -> str:
    """Return a subquery that computes each column once a row, however often the statement around it uses the column.

    Without LIMIT, SQLite would replace each use by the expression of the column.
    """
    return f"SELECT {columns} FROM {source} WHERE {' AND '.join(conditions)} LIMIT -1 OFFSET 0"  # noqa: S608 - constant names


def tokens_expression(column: str) -> str:
    """Return the SQL expression of the tokens at a column of the table `routes`, 0 if there are none.

    The first three integers of a usage are read with CAST, which stops at a comma: parsing the whole text as JSON takes
    five times as long.
    """
    usage, after_first = "'[' || links.usage || ']'", "substr(links.usage, instr(links.usage, ',') + 1)"
    after_second = f"substr({after_first}, instr({after_first}, ',') + 1)"
    return (
        f"CASE WHEN routes.{column} IS NULL OR links.usage IS NULL THEN 0"
        f" WHEN routes.{column} = 0 THEN max(CAST(links.usage AS NUMERIC), 0)"
        f" WHEN routes.{column} = 1 AND routes.size > 1 THEN max(CAST({after_first} AS NUMERIC), 0)"
        f" WHEN routes.{column} = 2 AND routes.size > 2 THEN max(CAST({after_second} AS NUMERIC), 0)"
        f" WHEN json_valid({usage})"
        f" THEN max(coalesce(json_extract({usage}, '$[' || routes.{column} || ']'), 0), 0) ELSE 0 END"
    )


def _find_items(t: TenantConnection, text: str) -> tuple[list[int], bool]:
    """Return the rowids of the newest items that contain all words, and whether there may be more."""
    found: list[int] = []
    phrases = parse_search_phrases(text)
    if not phrases:
        return found, False
    match = " ".join(f'"{phrase}"' for phrase in phrases)
    for n, body in t.execute(SELECT_WORD_MATCHES, match, t.tenant_number):
        if len(found) == MAX_MATCHING_ITEMS:
            return found, True
        with suppress(DamagedRow):
            if phrase_density(tokenize_item(decode_item(str(n), body)), phrases):
                found.append(n)
    return found, False


def _find_calls(t: TenantConnection, tool: str) -> tuple[list[int], bool]:
    """Return the rowids of the newest calls of a tool, and whether there may be more."""
    found: list[int] = []
    phrases = parse_search_phrases(tool)
    if not phrases:
        return found, False
    match = " ".join(f'"{phrase}"' for phrase in phrases)
    for n, body in t.execute(SELECT_WORD_MATCHES, match, t.tenant_number):
        if len(found) == MAX_TOOL_CALLS:
            return found, True
        with suppress(DamagedRow):
            if is_call_of(decode_item(str(n), body), tool):
                found.append(n)
    return found, False


def _iter_input_backwards(t: TenantConnection, n: int, damaged: list[DamagedRow]) -> Iterator[Item]:
    for item, body in t.execute(SELECT_INPUT_BACKWARDS, n, MAX_TITLE_ITEMS):
        try:
            yield decode_item(str(item), body)
        except DamagedRow as error:
            damaged.append(error)
