"""List the requests of a tenant, sorted and filtered by the columns of their links.

The rows of a page are chosen by rowid first; only their links are read.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import NamedTuple

from convo.errors import DamagedRow, StoreFault
from convo.history.items import MAX_TITLE_ITEMS, Item, called_tools, request_title
from convo.runtime import report_progress
from convo.stores.codec import (
    LISTED_COLUMNS,
    UNREADABLE_COLUMNS,
    decode_item,
    decode_link,
    encode_json,
    encode_listed_columns,
    encode_tool,
    parse_search_phrases,
    phrase_density,
    tokenize_item,
    unescape_name,
)
from convo.stores.request_list import (
    LINKS_PER_BATCH,
    MAX_MATCHING_ITEMS,
    MAX_OPTION_REQUESTS,
    PARENT_COLUMNS,
    READ_COLUMNS,
    ListedRequest,
    Place,
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
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.records import SELECT_LINKS
from convo.stores.sqlite.tenant_rows import TenantConnection, invalid_text_as_bytes, to_query_name
from convo.stores.sqlite.unstored_requests import select_unstored, select_unstored_models
from convo.stores.unstored_requests import UnstoredRequest

SELECT_OPTIONS = """
SELECT DISTINCT {column} FROM (SELECT {column} FROM links WHERE tenant = ? ORDER BY created_at DESC LIMIT ?)
WHERE {column} IS NOT NULL
"""

SELECT_MODELS = "SELECT DISTINCT model FROM links WHERE +tenant = ? AND model IS NOT NULL"

SELECT_LINKS_OF_ITEMS = """
WITH RECURSIVE reached (n) AS (
    SELECT nodes.n FROM nodes WHERE item IN (SELECT value FROM json_each(?))
    UNION
    SELECT nodes.n FROM reached JOIN nodes ON nodes.parent = reached.n
    WHERE NOT EXISTS (SELECT 1 FROM links WHERE saw = reached.n)
        AND NOT EXISTS (SELECT 1 FROM links WHERE head = reached.n)
)
SELECT links.n FROM reached JOIN links ON links.saw = reached.n
UNION SELECT links.n FROM reached JOIN links ON links.head = reached.n
"""
"""The links whose own input or output has one of the items: from an item's node down to the next end of a link."""

SELECT_WORD_MATCHES = """
SELECT items.n, items.body FROM words CROSS JOIN items ON items.n = words.rowid
WHERE words MATCH ? AND items.tenant = ? ORDER BY words.rowid DESC
"""

SELECT_LINKS_OF_PAGE = f"{SELECT_LINKS}AND links.n IN (SELECT value FROM json_each(?)) ORDER BY links.n"  # noqa: S608 - constant names

SELECT_TITLES_OF_PAGE = f"""
SELECT links.n, {PARENT_COLUMNS}, links.title, sessions.name FROM json_each(?) JOIN links ON links.n = value
    LEFT JOIN sessions ON sessions.n = links.session AND sessions.record IS NOT NULL
    LEFT JOIN links AS parents ON parents.n = links.parent
"""  # noqa: S608 - constant names

WITHOUT_TITLE = "FROM links INDEXED BY links_without_title WHERE tenant = ? AND title IS NULL AND saw IS NOT NULL"
COUNT_WITHOUT_TITLE, SELECT_WITHOUT_TITLE = f"SELECT count(*) {WITHOUT_TITLE}", f"SELECT n {WITHOUT_TITLE} LIMIT ?"

SELECT_INPUT_BACKWARDS = """
WITH RECURSIVE up (parent, item, steps) AS (
    SELECT nodes.parent, nodes.item, 1 FROM links JOIN nodes ON nodes.n = links.saw WHERE links.n = ?
    UNION ALL
    SELECT nodes.parent, nodes.item, steps + 1 FROM up JOIN nodes ON nodes.n = up.parent WHERE steps < ?
)
SELECT items.n, items.body FROM up JOIN items ON items.n = up.item
"""

SELECT_OUTPUT = """
WITH RECURSIVE up (n, parent, item, saw, steps) AS (
    SELECT nodes.n, nodes.parent, nodes.item, saw, 1 FROM links JOIN nodes ON nodes.n = links.head WHERE links.n = ?
    UNION ALL
    SELECT nodes.n, nodes.parent, nodes.item, saw, steps + 1 FROM up JOIN nodes ON nodes.n = up.parent
    WHERE up.n <> saw AND steps < ?
)
SELECT items.n, items.body FROM up JOIN items ON items.n = up.item WHERE up.n <> saw
"""

UPDATE_LISTED_COLUMNS = (
    f"UPDATE links SET ({', '.join(LISTED_COLUMNS)}) = ({', '.join('?' for _ in LISTED_COLUMNS)}) WHERE n = ?"  # noqa: S608 - constant names
)

MAX_OUTPUT_ITEMS = 1000
"""Items of an output in which the calls of an older link are found."""


async def complete_links(database: SqliteDatabase, tenant: str, *, list_incomplete: bool = False) -> None:
    """Compute the columns of links without a title, in batches of which each is a transaction.

    list_incomplete:  go on with the links as they are if the file cannot be written now
    """
    total = await database.read(lambda db: _count_incomplete(TenantConnection.find(db, tenant)))
    if list_incomplete:
        warn_of_wait(str(database.file), total)
    with suppress(StoreFault) if list_incomplete else nullcontext():
        for done in range(0, total, LINKS_PER_BATCH):
            report_progress("responses", done, total)
            await database.write(lambda db: _complete_batch(TenantConnection.find(db, tenant)), create=False)


def _count_incomplete(t: TenantConnection) -> int:
    count: int = t.fetch_value(COUNT_WITHOUT_TITLE, t.tenant_number)
    return count


def _complete_batch(t: TenantConnection) -> None:
    rowids = sorted(n for (n,) in t.fetch_all(SELECT_WITHOUT_TITLE, t.tenant_number, LINKS_PER_BATCH))
    rows = t.fetch_records(SELECT_LINKS_OF_PAGE, encode_json(rowids))
    with invalid_text_as_bytes(t.db):
        for n, row in zip(rowids, rows, strict=True):
            columns = UNREADABLE_COLUMNS
            with suppress(DamagedRow):
                title = request_title(_iter_items(t, SELECT_INPUT_BACKWARDS, n, MAX_TITLE_ITEMS))
                tools = called_tools(_iter_items(t, SELECT_OUTPUT, n, MAX_OUTPUT_ITEMS))
                columns = encode_listed_columns(replace(decode_link(row), title=title, tools=tools))
            t.execute(UPDATE_LISTED_COLUMNS, *columns, n)


def _iter_items(t: TenantConnection, sql: str, n: int, limit: int) -> Iterator[Item]:
    """Yield the items of a link that can be read; only as many rows are read as are needed."""
    for item, body in t.execute(sql, n, limit):
        with suppress(DamagedRow):
            yield decode_item(str(item), body)


class FilteredLinks(NamedTuple):
    """The conditions of a statement that reads the links of a query, and their values."""

    conditions: list[str]
    values: dict[str, object]
    is_search_limited: bool


def filter_links(t: TenantConnection, query: RequestQuery, *, reads_all: bool) -> FilteredLinks:
    """Return the conditions of a query.

    reads_all:  all rows that pass are read, not only the newest. Then a scan is faster than the index by time; the plus
                keeps the tenant out of the choice of an index
    """
    is_by_time = (query.begin is not None or not reads_all) and not query.session and not query.text
    conditions = [f"{'' if is_by_time else '+'}links.tenant = :tenant", "+links.saw IS NOT NULL"]
    values: dict[str, object] = {"tenant": t.tenant_number}
    is_search_limited = False
    if query.model is not None:
        models = [model for (model,) in t.fetch_all(SELECT_MODELS, t.tenant_number)]
        values["models"] = encode_json([model for model in models if query.has_model(unescape_name(model))])
        conditions.append("links.model IN (SELECT value FROM json_each(:models))")
    if query.status is not None:
        conditions.append("links.status = :status")
        values["status"] = query.status
    if query.session == "":
        conditions.append("links.session IS NULL")
    elif query.session is not None:
        conditions.append(
            "links.session IN (SELECT n FROM sessions WHERE tenant = :tenant AND (id = :session OR name = :session))"
        )
        values["session"] = to_query_name(query.session)
    if query.text:
        items, is_search_limited = _find_items(t, query.text)
        values["found"] = encode_json([n for (n,) in t.fetch_all(SELECT_LINKS_OF_ITEMS, encode_json(items))])
        conditions.append("links.n IN (SELECT value FROM json_each(:found))")
    if query.tool is not None:
        conditions.append("instr(links.tools, :tool)")
        values["tool"] = encode_tool(query.tool)
    for operator, moment in ((">=", query.begin), ("<", query.end)):
        if moment is not None:
            name = "begin" if operator == ">=" else "end"
            conditions.append(f"links.created_at {operator} :{name}")
            values[name] = moment
    return FilteredLinks(conditions, values, is_search_limited)


def select_requests(t: TenantConnection, query: RequestQuery) -> RequestPage:
    """Return one page of the requests."""
    conditions, values, is_search_limited = filter_links(t, query, reads_all=query.sort != "created_at")
    after_id = to_query_name(query.after.id) if query.after else None
    if query.sort in READ_COLUMNS:
        columns = ", ".join(f"links.{column}" for column in READ_COLUMNS[query.sort])
        rows = t.db.execute(
            f"SELECT links.n, links.id, {columns} FROM links WHERE {' AND '.join(conditions)}",  # noqa: S608 - constant names
            values,
        )
        chosen: list[Place[int]] = choose_links(rows, query, after_id)
    else:
        sort = sort_expression(query)
        values["limit"] = query.limit + 1
        if query.after is not None:
            conditions.append(f"({sort}, links.id) {'<' if query.is_descending else '>'} (:value, :id)")
            values |= {"value": query.after.value, "id": after_id}
        order = "DESC" if query.is_descending else "ASC"
        chosen = t.db.execute(
            f"SELECT {sort} AS value, links.id, links.n FROM links WHERE {' AND '.join(conditions)}"  # noqa: S608 - constant names
            f" ORDER BY value {order}, links.id {order} LIMIT :limit",
            values,
        ).fetchall()
    page, next_cursor = merge_page(chosen, select_unstored(t, query), query)
    links, damaged = _load_links(t, [row for row in page if not isinstance(row, UnstoredRequest)])
    listed = (row if isinstance(row, UnstoredRequest) else links.get(row) for row in page)
    return RequestPage([row for row in listed if row is not None], next_cursor, is_search_limited, damaged)


def _load_links(t: TenantConnection, rowids: Sequence[int]) -> tuple[dict[int, ListedRequest], list[DamagedRow]]:
    """Read links by rowid: one statement for all of them, and one for their titles and the names of their sessions."""
    page = encode_json(list(rowids))
    rows_by_rowid = dict(zip(sorted(rowids), t.fetch_records(SELECT_LINKS_OF_PAGE, page), strict=True))
    texts, parents = {}, {}
    for n, *columns in t.fetch_records(SELECT_TITLES_OF_PAGE, page):
        parents[n] = read_parent_counts(columns[:3])
        texts[n] = [text if isinstance(text, str) else None for text in columns[3:]]
    links, damaged = dict[int, ListedRequest](), list[DamagedRow]()
    for n in rowids:
        title, session_name = texts[n]
        try:
            link = decode_link(rows_by_rowid[n])
            links[n] = ListedRequest(link, session_name, unescape_name(title or ""), parents[n])
        except DamagedRow as error:
            damaged.append(error)
    return links, damaged


def select_models(t: TenantConnection, expand_model_name: Callable[[str], str]) -> Sequence[str]:
    """Return the models of the newest requests."""
    columns = _select_options(t, "model") + select_unstored_models(t)
    return list_models(columns, expand_model_name)


def select_tools(t: TenantConnection) -> Sequence[str]:
    """Return the tools of the newest requests."""
    return list_tools(_select_options(t, "tools"))


def _select_options(t: TenantConnection, column: str) -> list[str]:
    sql = SELECT_OPTIONS.format(column=column)
    return [value for (value,) in t.fetch_all(sql, t.tenant_number, MAX_OPTION_REQUESTS)]


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
