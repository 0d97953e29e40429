"""List the requests of a tenant, sorted and filtered by the database.

The rows of a page are chosen by id first; their links and titles are read in one query each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from convo.errors import DamagedRow
from convo.history.items import MAX_TITLE_ITEMS, Item, typed_text
from convo.history.records import Link
from convo.stores.codec import encode_json, parse_search_phrases, phrase_density, tokenize_item
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.commit import hash_terms
from convo.stores.postgres.records import SELECT_LINKS, link_from_row
from convo.stores.postgres.search import SELECT_MATCHING_ITEMS
from convo.stores.postgres.tenant_rows import BEGIN_SNAPSHOT, TenantConnection, decode_body
from convo.stores.request_list import (
    MAX_MATCHING_ITEMS,
    MAX_MODEL_ROUTES,
    MAX_TOOL_CALLS,
    ROUTE_COLUMNS,
    TEXT_SORTS,
    TITLES_PER_READ,
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

SELECT_ROUTES = """
SELECT hash, body FROM convo.repeated WHERE tenant = $1
    AND hash IN (SELECT DISTINCT route FROM convo.links WHERE links.tenant = $1)
"""

SELECT_PARAMETERS = """
SELECT hash, body FROM convo.repeated WHERE tenant = $1 AND body LIKE '%"tools"%'
"""

SELECT_SOME_ROUTES = """
SELECT body FROM convo.repeated WHERE tenant = $1
    AND EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND route = repeated.hash) LIMIT $2
"""

ROUTE_TYPES = {
    "model": "text",
    "known": "integer",
    "size": "integer",
    "i": "integer",
    "c": "integer",
    "o": "integer",
    "w": "integer",
    "h": "integer",
}
ROUTES_TABLE = (
    "json_to_recordset({}::json) AS routes (route uuid, "
    + ", ".join(f"{name} {ROUTE_TYPES.get(name, 'double precision')}" for name in ROUTE_COLUMNS)
    + ")"
)

REACHED_TABLE = """
reached_{name} (id) AS (
    SELECT id FROM convo.nodes WHERE tenant = $1 AND item = ANY({items}::uuid[])
    UNION
    SELECT below.id FROM reached_{name} AS reached JOIN LATERAL (
        SELECT id FROM convo.nodes WHERE tenant = $1 AND parent = reached.id
            AND NOT EXISTS (SELECT 1 FROM convo.links WHERE tenant = $1 AND saw = reached.id)
            AND NOT EXISTS (SELECT 1 FROM convo.links WHERE tenant = $1 AND head = reached.id) OFFSET 0
    ) AS below ON true
), found_{name} (id) AS (
    SELECT links.id FROM reached_{name} AS reached JOIN convo.links ON tenant = $1 AND saw = reached.id
    UNION SELECT links.id FROM reached_{name} AS reached JOIN convo.links ON tenant = $1 AND head = reached.id
)
"""
"""The links whose own input or output has one of the items: from an item's node down to the next end of a link."""

SELECT_INPUTS_BACKWARDS = """
WITH RECURSIVE up (start, parent, item, steps) AS (
    SELECT id, parent, item, 1 FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[])
    UNION ALL
    SELECT up.start, before.parent, before.item, steps + 1 FROM up JOIN LATERAL (
        SELECT parent, item FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
    WHERE steps < $3
)
SELECT start, body FROM up JOIN convo.items ON tenant = $1 AND hash = up.item ORDER BY start, steps
"""


SELECT_LAST_INPUTS = """
SELECT id, body FROM convo.nodes JOIN convo.items ON items.tenant = $1 AND hash = item
WHERE nodes.tenant = $1 AND id = ANY($2::uuid[])
"""


class BoundValues(list[object]):
    """The values of a statement's parameters after `$1`, the tenant."""

    def bind(self, value: object) -> str:
        """Add a value and return its parameter."""
        self.append(value)
        return f"${len(self) + 1}"


class FilteredLinks(NamedTuple):
    """The parts of a statement that reads the requests of a query: WITH or "", FROM, WHERE and values."""

    with_clause: str
    source: str
    conditions: list[str]
    values: BoundValues
    is_search_limited: bool


async def filter_links(
    t: TenantConnection, query: RequestQuery, *, with_routes: bool, with_prices: bool
) -> FilteredLinks:
    """Return the parts of a statement for the filters of a query.

    with_routes:  joins the table `routes`, with prices if `with_prices`
    """
    values = BoundValues()
    bind = values.bind
    conditions, source, is_search_limited = ["links.tenant = $1"], "convo.links", False
    tables = list[str]()
    if with_routes:
        rows = [
            {
                "route": str(route),
                **dict(zip(ROUTE_COLUMNS, build_route_row(body, query, with_prices=with_prices), strict=True)),
            }
            for route, body in await t.fetch_all(SELECT_ROUTES)
            if query.has_model(decode_route_usage(body).model)
        ]
        source += f" JOIN {ROUTES_TABLE.format(bind(encode_json(rows)))} ON routes.route = links.route"
    if query.status is not None:
        conditions.append(f"links.status = {bind(query.status)}")
    if query.session is not None:
        name = bind(tenant_rows.escape_name(query.session))
        conditions.append(
            f"links.session IN (SELECT id FROM convo.sessions WHERE tenant = $1 AND (id = {name} OR name = {name}))"
        )
    if query.text:
        items, is_search_limited = await _find_items(t, query.text)
        tables.append(REACHED_TABLE.format(name="words", items=bind(items)))
        conditions.append("links.id IN (SELECT id FROM found_words)")
    if query.tool is not None:
        calls, is_tool_limited = await _find_calls(t, query.tool)
        is_search_limited = is_search_limited or is_tool_limited
        offers = [
            n for n, body in await t.fetch_all(SELECT_PARAMETERS) if query.tool in decode_offered_tools(body).hosted
        ]
        tables.append(REACHED_TABLE.format(name="calls", items=bind(calls)))
        conditions.append(
            f"(links.id IN (SELECT id FROM found_calls) OR links.parameters = ANY({bind(offers)}::uuid[]))"
        )
    for operator, moment in ((">=", query.begin), ("<", query.end)):
        if moment is not None:
            conditions.append(f"links.created_at {operator} {bind(moment)}::double precision")
    with_clause = f"WITH RECURSIVE {', '.join(tables)} " if tables else ""
    return FilteredLinks(with_clause, source, conditions, values, is_search_limited)


async def select_requests(t: TenantConnection, query: RequestQuery) -> RequestPage:
    """Return one page of the requests."""
    await t.run_pipeline(BEGIN_SNAPSHOT)
    with_clause, source, conditions, values, is_search_limited = await filter_links(
        t, query, with_routes=query.needs_routes, with_prices=query.sort == "cost"
    )
    if query.sort == "title":
        return await _select_requests_by_title(
            t, query, FilteredLinks(with_clause, source, conditions, values, is_search_limited)
        )
    bind = values.bind
    sort = sort_expression(query, tokens_expression)
    sort_type = "text" if query.sort in TEXT_SORTS else "double precision"
    sort = f'({sort})::text COLLATE "C"' if sort_type == "text" else f"({sort})::{sort_type}"
    if query.after is not None:
        row_id = bind(tenant_rows.escape_name(query.after.id))
        comparison = "<" if query.is_descending else ">"
        conditions.append(f"({sort}, links.id) {comparison} ({bind(query.after.value)}::{sort_type}, {row_id}::text)")
    order = "DESC" if query.is_descending else "ASC"
    chosen = await t.fetch_all(
        f"{with_clause}SELECT links.id, {sort} AS value FROM {source} WHERE {' AND '.join(conditions)}"
        f" ORDER BY value {order}, links.id {order} LIMIT {bind(query.limit + 1)}",
        *values,
    )
    page = chosen[: query.limit]
    next_cursor = None
    if len(chosen) > query.limit:
        last_id, last_value = page[-1]
        next_cursor = RequestCursor(last_value, tenant_rows.unescape_name(last_id))
    damaged: list[DamagedRow] = []
    requests = await _load_requests(t, [row[0] for row in page], damaged)
    return RequestPage(requests, next_cursor, is_search_limited, damaged)


async def _select_requests_by_title(t: TenantConnection, query: RequestQuery, filtered: FilteredLinks) -> RequestPage:
    rows = await t.fetch_all(
        f"{filtered.with_clause}SELECT links.id, links.saw FROM {filtered.source}"
        f" WHERE {' AND '.join(filtered.conditions)}",
        *filtered.values,
    )
    missing = [UUID(bytes=key) for key in kept_titles.find_missing(node.bytes for _, node in rows)]
    for begin in range(0, len(missing), TITLES_PER_READ):
        await _keep_titles(t, missing[begin : begin + TITLES_PER_READ])
    after_id = tenant_rows.escape_name(query.after.id) if query.after else None
    page, last = choose_page_by_title((TitledRow(row_id, node.bytes, row_id) for row_id, node in rows), query, after_id)
    kept_titles.trim()
    damaged: list[DamagedRow] = []
    requests = await _load_requests(t, page, damaged)
    next_cursor = RequestCursor(last[0], tenant_rows.unescape_name(last[1])) if last else None
    return RequestPage(requests, next_cursor, filtered.is_search_limited, damaged)


async def _keep_titles(t: TenantConnection, nodes: Sequence[UUID]) -> None:
    """Read the titles of inputs by their last node; most end with a typed message, so that one item is enough."""
    unread = set(nodes)
    for node, body in await t.fetch_all(SELECT_LAST_INPUTS, list(nodes)):
        with suppress(DamagedRow):
            message = decode_body(str(node), body)
            if typed_text(message):
                kept_titles.add(node.bytes, choose_title([message]))
                unread.discard(node)
    titles = await _load_titles(t, list(unread), []) if unread else {}
    for node in unread:
        kept_titles.add(node.bytes, titles.get(node, ""))


async def select_models(t: TenantConnection, expand_model_name: Callable[[str], str]) -> Sequence[str]:
    """Return the models of some routes."""
    return list_models([body for (body,) in await t.fetch_all(SELECT_SOME_ROUTES, MAX_MODEL_ROUTES)], expand_model_name)


async def select_tools(t: TenantConnection) -> Sequence[str]:
    """Return the tools that some distinct parameters offer."""
    return list_tools([body for _, body in await t.fetch_all(f"{SELECT_PARAMETERS} LIMIT $2", MAX_MODEL_ROUTES)])


def tokens_expression(column: str) -> str:
    """Return the SQL expression of the tokens at a column of the table `routes`, 0 if there are none."""
    text = f"(string_to_array(links.usage, ','))[routes.{column} + 1]"
    return f"CASE WHEN {text} ~ '^[0-9]{{1,200}}$' THEN {text}::double precision ELSE 0 END"


async def _find_items(t: TenantConnection, text: str) -> tuple[list[UUID], bool]:
    """Return items that contain all words, shortest first, and whether there may be more."""
    phrases = parse_search_phrases(text)
    found: list[UUID] = []
    if not phrases:
        return found, False
    term_hashes = sorted({term_hash for phrase in phrases for term_hash in hash_terms(t, phrase)})
    skipped = 0
    while rows := await t.fetch_all(SELECT_MATCHING_ITEMS, term_hashes, MAX_MATCHING_ITEMS + 1, skipped):
        for item, body in rows:
            with suppress(DamagedRow):
                if phrase_density(tokenize_item(decode_body(str(item), body)), phrases):
                    found.append(item)
        skipped += len(rows)
        if len(found) > MAX_MATCHING_ITEMS:
            return found[:MAX_MATCHING_ITEMS], True
    return found, False


async def _find_calls(t: TenantConnection, tool: str) -> tuple[list[UUID], bool]:
    """Return calls of a tool, shortest first, and whether there may be more."""
    found: list[UUID] = []
    term_hashes = sorted({term for phrase in parse_search_phrases(tool) for term in hash_terms(t, phrase)})
    skipped = 0
    while term_hashes and (rows := await t.fetch_all(SELECT_MATCHING_ITEMS, term_hashes, MAX_MATCHING_ITEMS, skipped)):
        for item, body in rows:
            with suppress(DamagedRow):
                if is_call_of(decode_body(str(item), body), tool):
                    found.append(item)
        skipped += len(rows)
        if len(found) > MAX_TOOL_CALLS:
            return found[:MAX_TOOL_CALLS], True
    return found, False


async def _load_requests(t: TenantConnection, ids: Sequence[str], damaged: list[DamagedRow]) -> list[ListedRequest]:
    """Return the requests with these escaped ids, in their order; damaged rows are added to `damaged`."""
    if not ids:
        return []
    rows = await t.fetch_all(f"{SELECT_LINKS} WHERE tenant = $1 AND id = ANY($2::text[])", list(ids))
    links: dict[str, Link] = {}
    for row in rows:
        try:
            links[row[0]] = link_from_row(row)
        except DamagedRow as error:
            damaged.append(error)
    sessions = [tenant_rows.escape_name(link.session_id) for link in links.values() if link.session_id]
    name_rows = await t.fetch_all(
        "SELECT id, name FROM convo.sessions WHERE tenant = $1 AND id = ANY($2::text[])", sessions
    )
    names = {tenant_rows.unescape_name(row_id): tenant_rows.unescape_name(name) for row_id, name in name_rows}
    titles = await _load_titles(t, [tenant_rows.node_id(link.input_head) for link in links.values()], damaged)
    ordered = [links[row_id] for row_id in ids if row_id in links]
    return [
        ListedRequest(link, names.get(link.session_id or ""), titles.get(tenant_rows.node_id(link.input_head), ""))
        for link in ordered
    ]


async def _load_titles(t: TenantConnection, nodes: Sequence[UUID], damaged: list[DamagedRow]) -> dict[UUID, str]:
    def iter_items(group: Iterable[tuple[UUID, bytes]]) -> Iterator[Item]:
        for start, body in group:
            try:
                yield decode_body(str(start), body)
            except DamagedRow as error:
                damaged.append(error)

    rows = await t.fetch_all(SELECT_INPUTS_BACKWARDS, list(nodes), MAX_TITLE_ITEMS)
    return {start: choose_title(iter_items(group)) for start, group in groupby(rows, key=lambda row: row[0])}
