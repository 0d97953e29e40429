"""List the requests of a tenant, sorted and filtered by the columns of their links.

The rows of a page are chosen by id first; their links are read in one query.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from convo.errors import DamagedRow, StoreFault
from convo.history.items import MAX_TITLE_ITEMS, Item, called_tools, request_title, typed_text
from convo.history.records import Link
from convo.runtime import report_progress
from convo.stores.codec import (
    LISTED_COLUMNS,
    UNREADABLE_COLUMNS,
    encode_listed_columns,
    encode_tool,
    parse_search_phrases,
    phrase_density,
    tokenize_item,
)
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.commit import LOCK_TENANT_SHARED, hash_terms
from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.records import SELECT_LINKS, link_from_row
from convo.stores.postgres.search import SELECT_MATCHING_ITEMS
from convo.stores.postgres.tenant_rows import (
    BEGIN,
    BEGIN_SNAPSHOT,
    COMMIT,
    Row,
    TenantConnection,
    decode_body,
    to_columns,
)
from convo.stores.postgres.unstored_requests import select_unstored, select_unstored_models
from convo.stores.request_list import (
    LINKS_PER_BATCH,
    MAX_MATCHING_ITEMS,
    MAX_OPTION_REQUESTS,
    PARENT_COLUMNS,
    READ_COLUMNS,
    TEXT_SORTS,
    ListedRequest,
    Place,
    RequestCursor,
    RequestPage,
    RequestQuery,
    choose_links,
    list_models,
    list_tools,
    merge_page,
    read_parent_counts,
    sort_expression,
    warn_of_wait,
)
from convo.stores.unstored_requests import UnstoredRequest

SELECT_OPTIONS = """
SELECT DISTINCT {column} FROM (
    SELECT {column} FROM convo.links WHERE tenant = $1 ORDER BY created_at DESC LIMIT $2
) AS newest WHERE {column} IS NOT NULL
"""

SELECT_PAGE = (
    SELECT_LINKS.replace(
        "SELECT",
        "SELECT title, (SELECT name FROM convo.sessions WHERE sessions.tenant = $1 AND sessions.id = links.session),"
        f" (SELECT ARRAY[{PARENT_COLUMNS}] FROM convo.links AS parents"
        " WHERE parents.tenant = $1 AND parents.id = links.parent),",
        1,
    )
    + "WHERE tenant = $1 AND id = ANY($2::text[])"
)

SELECT_MODELS = "SELECT DISTINCT model FROM convo.links WHERE tenant = $1 AND model IS NOT NULL"

SELECT_LINKS_OF_ITEMS = """
WITH RECURSIVE reached (id) AS (
    SELECT id FROM convo.nodes WHERE tenant = $1 AND item = ANY($2::uuid[])
    UNION
    SELECT below.id FROM reached JOIN LATERAL (
        SELECT id FROM convo.nodes WHERE tenant = $1 AND parent = reached.id
            AND NOT EXISTS (SELECT 1 FROM convo.links WHERE tenant = $1 AND saw = reached.id)
            AND NOT EXISTS (SELECT 1 FROM convo.links WHERE tenant = $1 AND head = reached.id) OFFSET 0
    ) AS below ON true
)
SELECT links.id FROM reached JOIN convo.links ON tenant = $1 AND saw = reached.id
UNION SELECT links.id FROM reached JOIN convo.links ON tenant = $1 AND head = reached.id
"""
"""The links whose own input or output has one of the items: from an item's node down to the next end of a link."""

COUNT_INCOMPLETE_LINKS = "SELECT count(*) FROM convo.links WHERE tenant = $1 AND title IS NULL"

SELECT_INCOMPLETE_LINKS = f"""
{SELECT_LINKS} WHERE tenant = $1 AND id = ANY(ARRAY(
    SELECT id FROM convo.links WHERE tenant = $1 AND title IS NULL LIMIT $2 FOR UPDATE
))
"""
"""The rows stay locked until their columns are written: an item that is erased meanwhile clears them afterwards."""

UPDATE_LISTED_COLUMNS = f"""
UPDATE convo.links SET ({", ".join(LISTED_COLUMNS)}) = ROW ({", ".join(f"new.{column}" for column in LISTED_COLUMNS)})
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::text[], $11::text[]) AS new (id, {", ".join(LISTED_COLUMNS)})
WHERE links.tenant = $1 AND links.id = new.id
"""

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


SELECT_OUTPUTS = """
WITH RECURSIVE up (link, id, parent, item, saw, steps) AS (
    SELECT given.link, id, parent, item, given.saw, 1
    FROM unnest($2::text[], $3::uuid[], $4::uuid[]) AS given (link, head, saw)
        JOIN convo.nodes ON nodes.tenant = $1 AND id = given.head WHERE given.head <> given.saw
    UNION ALL
    SELECT up.link, before.id, before.parent, before.item, up.saw, steps + 1 FROM up JOIN LATERAL (
        SELECT id, parent, item FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
    WHERE before.id <> up.saw AND steps < $5
)
SELECT link, body FROM up JOIN convo.items ON tenant = $1 AND hash = up.item ORDER BY link, steps
"""

MAX_OUTPUT_ITEMS = 1000
"""Items of an output in which the calls of an older link are found."""


async def complete_links(database: PostgresDatabase, tenant: str, *, list_incomplete: bool = False) -> None:
    """Compute the columns of links without a title, in batches of which each is a transaction.

    list_incomplete:  go on with the links as they are if this role cannot write now
    """
    total: int = await database.run(
        lambda db: TenantConnection.from_name(db, tenant).fetch_value(COUNT_INCOMPLETE_LINKS)
    )
    if list_incomplete:
        warn_of_wait(database.location, total)
    with suppress(StoreFault) if list_incomplete else nullcontext():
        for done in range(0, total, LINKS_PER_BATCH):
            report_progress("responses", done, total)
            await database.run(lambda db: _complete_batch(TenantConnection.from_name(db, tenant)))


async def _complete_batch(t: TenantConnection) -> None:
    await t.run_pipeline(BEGIN, t.statement(LOCK_TENANT_SHARED))
    rows = await t.fetch_all(SELECT_INCOMPLETE_LINKS, LINKS_PER_BATCH)
    columns = {row[0]: UNREADABLE_COLUMNS for row in rows}
    links: dict[str, Link] = {}
    for row in rows:
        with suppress(DamagedRow):
            links[row[0]] = link_from_row(row)
    inputs = {row_id: tenant_rows.node_id(link.input_head) for row_id, link in links.items()}
    heads = [tenant_rows.node_id(link.head) for link in links.values()]
    titles = await _load_titles(t, sorted(set(inputs.values())))
    outputs = await t.fetch_all(SELECT_OUTPUTS, list(links), heads, list(inputs.values()), MAX_OUTPUT_ITEMS)
    tools = {row_id: called_tools(_iter_items(group)) for row_id, group in groupby(outputs, key=lambda row: row[0])}
    for row_id, link in links.items():
        complete = replace(link, title=titles.get(inputs[row_id], ""), tools=tools.get(row_id, ()))
        columns[row_id] = encode_listed_columns(complete)
    values = to_columns([(row_id, *row) for row_id, row in columns.items()], 1 + len(LISTED_COLUMNS))
    await t.run_pipeline(t.statement(UPDATE_LISTED_COLUMNS, *values), COMMIT)


async def _load_titles(t: TenantConnection, nodes: Sequence[UUID]) -> dict[UUID, str]:
    """Return the titles of inputs by their last node; most end with a typed message, so that one item is enough."""
    titles: dict[UUID, str] = {}
    for node, body in await t.fetch_all(SELECT_LAST_INPUTS, list(nodes)):
        with suppress(DamagedRow):
            message = decode_body(str(node), body)
            if typed_text(message):
                titles[node] = request_title([message])
    unread = [node for node in nodes if node not in titles]
    rows = await t.fetch_all(SELECT_INPUTS_BACKWARDS, unread, MAX_TITLE_ITEMS) if unread else []
    return titles | {node: request_title(_iter_items(group)) for node, group in groupby(rows, key=lambda row: row[0])}


def _iter_items(rows: Iterable[Row]) -> Iterator[Item]:
    """Yield the items that can be read of rows with a key and a body."""
    for key, body in rows:
        with suppress(DamagedRow):
            yield decode_body(str(key), body)


class BoundValues(list[object]):
    """The values of a statement's parameters after `$1`, the tenant."""

    def bind(self, value: object) -> str:
        """Add a value and return its parameter."""
        self.append(value)
        return f"${len(self) + 1}"


class FilteredLinks(NamedTuple):
    """The conditions of a statement that reads the links of a query, and their values."""

    conditions: list[str]
    values: BoundValues
    is_search_limited: bool


async def filter_links(t: TenantConnection, query: RequestQuery) -> FilteredLinks:
    """Return the conditions of a query."""
    values = BoundValues()
    bind = values.bind
    conditions, is_search_limited = ["links.tenant = $1"], False
    if query.model is not None:
        models = [model for (model,) in await t.fetch_all(SELECT_MODELS)]
        named = [model for model in models if query.has_model(tenant_rows.unescape_name(model))]
        conditions.append(f"links.model = ANY({bind(named)}::text[])")
    if query.status is not None:
        conditions.append(f"links.status = {bind(query.status)}")
    if query.session == "":
        conditions.append("links.session IS NULL")
    elif query.session is not None:
        name = bind(tenant_rows.escape_name(query.session))
        conditions.append(
            f"links.session IN (SELECT id FROM convo.sessions WHERE tenant = $1 AND (id = {name} OR name = {name}))"
        )
    if query.text:
        items, is_search_limited = await _find_items(t, query.text)
        found = [row_id for (row_id,) in await t.fetch_all(SELECT_LINKS_OF_ITEMS, items)]
        conditions.append(f"links.id = ANY({bind(found)}::text[])")
    if query.tool is not None:
        conditions.append(f"strpos(links.tools, {bind(encode_tool(query.tool))}) > 0")
    for operator, moment in ((">=", query.begin), ("<", query.end)):
        if moment is not None:
            conditions.append(f"links.created_at {operator} {bind(moment)}::double precision")
    return FilteredLinks(conditions, values, is_search_limited)


async def select_requests(t: TenantConnection, query: RequestQuery) -> RequestPage:
    """Return one page of the requests."""
    await t.run_pipeline(BEGIN_SNAPSHOT)
    conditions, values, is_search_limited = await filter_links(t, query)
    bind = values.bind
    after_id = tenant_rows.escape_name(query.after.id) if query.after else None
    if query.sort in READ_COLUMNS:
        columns = ", ".join(f"links.{column}" for column in READ_COLUMNS[query.sort])
        rows = await t.fetch_all(
            f"SELECT links.id, links.id, {columns} FROM convo.links WHERE {' AND '.join(conditions)}",
            *values,
        )
        chosen: list[Place[str]] = choose_links(rows, query, after_id)
    else:
        sort, sort_type = sort_expression(query), "text" if query.sort in TEXT_SORTS else "double precision"
        if sort_type == "text":
            sort = f'{sort} COLLATE "C"'
        if query.after is not None and after_id is not None:
            comparison = "<" if query.is_descending else ">"
            conditions.append(
                f"({sort}, links.id) {comparison} ({bind(query.after.value)}::{sort_type}, {bind(after_id)}::text)"
            )
        order = "DESC" if query.is_descending else "ASC"
        chosen = await t.fetch_all(
            f"SELECT {sort} AS value, links.id, links.id FROM convo.links WHERE {' AND '.join(conditions)}"
            f" ORDER BY value {order}, links.id {order} LIMIT {bind(query.limit + 1)}",
            *values,
        )
    page, cursor = merge_page(chosen, await select_unstored(t, query), query)
    links, damaged = await _load_links(t, [row for row in page if not isinstance(row, UnstoredRequest)])
    listed = (row if isinstance(row, UnstoredRequest) else links.get(row) for row in page)
    next_cursor = cursor and RequestCursor(cursor.value, tenant_rows.unescape_name(cursor.id))
    return RequestPage([row for row in listed if row is not None], next_cursor, is_search_limited, damaged)


async def _load_links(t: TenantConnection, ids: Sequence[str]) -> tuple[dict[str, ListedRequest], list[DamagedRow]]:
    """Read the links with these escaped ids."""
    damaged: list[DamagedRow] = []
    requests: dict[str, ListedRequest] = {}
    if not ids:
        return requests, damaged
    for title, name, parent_counts, *row in await t.fetch_all(SELECT_PAGE, list(ids)):
        try:
            requests[row[0]] = ListedRequest(
                link_from_row(tuple(row)),
                name and tenant_rows.unescape_name(name),
                tenant_rows.unescape_name(title or ""),
                parent_counts and read_parent_counts(parent_counts),
            )
        except DamagedRow as error:
            damaged.append(error)
    return requests, damaged


async def select_models(t: TenantConnection, expand_model_name: Callable[[str], str]) -> Sequence[str]:
    """Return the models of the newest requests."""
    columns = [*await _select_options(t, "model"), *await select_unstored_models(t)]
    return list_models(columns, expand_model_name)


async def select_tools(t: TenantConnection) -> Sequence[str]:
    """Return the tools of the newest requests."""
    return list_tools(await _select_options(t, "tools"))


async def _select_options(t: TenantConnection, column: str) -> list[str]:
    return [value for (value,) in await t.fetch_all(SELECT_OPTIONS.format(column=column), MAX_OPTION_REQUESTS)]


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
