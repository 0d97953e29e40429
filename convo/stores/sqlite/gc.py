"""Remove records, and all rows that only they referenced.

A removal is one transaction. Pruning runs in batches of some hundred rows, each a transaction, so that other
writers do not wait for all of it: sessions first, then links, then conversations. SQLite keeps deleted bytes in
the file, so a removal requests a VACUUM, which runs when the file is closed.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from convo.errors import NotFound
from convo.history.records import Strategy
from convo.stores.base import PruneResult
from convo.stores.codec import LISTED_COLUMNS, decode_session_handle
from convo.stores.sqlite import connection, files, runs, tenant_rows
from convo.stores.sqlite import runs as agents
from convo.stores.sqlite.records import delete_assigned_ids
from convo.stores.sqlite.tenant_rows import Row, TenantConnection, fetch_records, to_query_name
from convo.stores.sqlite.tree import (
    delete_unreferenced_link,
    delete_unreferenced_nodes,
    delete_unreferenced_session,
    delete_unreferenced_targets,
)

Rows: TypeAlias = Sequence[Row]

CLEARED_LINK_COLUMNS = (
    *("parent", "session", "saw", "head", "sent_body", "sent", "route", "status", "created_at", "previous", "seconds"),
    *("first_token_s", "parameters", "usage", "error", *LISTED_COLUMNS),
)

SELECT_UNNEEDED_LINKS = """
WITH RECURSIVE chained (n) AS (
    SELECT link FROM sessions WHERE tenant = :tenant AND link IS NOT NULL
    UNION SELECT links.parent FROM chained JOIN links ON links.n = chained.n WHERE links.parent IS NOT NULL
)
SELECT links.n, saw, links.head, sent_body, parent, session, route, parameters
FROM links JOIN sessions ON sessions.n = links.session
WHERE links.tenant = :tenant AND saw IS NOT NULL AND sessions.removed AND links.n NOT IN (SELECT n FROM chained)
"""
"""The links of removed sessions that are in no session's chain."""

SELECT_LINK_TO_REMOVE = """
SELECT n, saw, head, sent_body, parent, session, route, parameters FROM links
WHERE tenant = ? AND id = ? AND saw IS NOT NULL
"""

SELECT_SESSION_TO_REMOVE = """
SELECT n, link, head, mark, written FROM sessions WHERE tenant = ? AND id = ? AND record IS NOT NULL
"""


def remove_session(t: TenantConnection, session_id: str) -> None:
    """Delete a session and the links that only it referenced. Raises NotFound."""
    row = t.fetch_row(SELECT_SESSION_TO_REMOVE, t.tenant_number, to_query_name(session_id))
    if row is None:
        raise NotFound("session", session_id)
    _clear_session(t, row[0])
    # After the session is cleared, which the query reads; fetched before the rows that it walks are changed.
    unneeded = t.db.execute(SELECT_UNNEEDED_LINKS, {"tenant": t.tenant_number}).fetchall()
    for link, *_ in unneeded:
        _clear_link(t, link)
    _delete_unreferenced_rows(t, sessions=[row], links=unneeded)


def remove_link(t: TenantConnection, link_id: str) -> None:
    """Delete one link. Raises NotFound."""
    if not remove_link_if_stored(t, link_id):
        raise NotFound("response", link_id)


def remove_link_if_stored(t: TenantConnection, link_id: str) -> bool:
    """Delete a link; return False if there is none with this id."""
    row = t.fetch_row(SELECT_LINK_TO_REMOVE, t.tenant_number, to_query_name(link_id))
    if row is None:
        return False
    _clear_link(t, row[0])
    _delete_unreferenced_rows(t, links=[row])
    return True


def remove_conversation(t: TenantConnection, conversation_id: str) -> None:
    """Delete a conversation and the ids that it assigned. Raises NotFound."""
    row = t.fetch_row(
        "SELECT n, head FROM conversations WHERE tenant = ? AND id = ?", t.tenant_number, to_query_name(conversation_id)
    )
    if row is None:
        raise NotFound("conversation", conversation_id)
    _delete_conversation(t, *row)
    _delete_unreferenced_rows(t, conversations=[row])


def _clear_session(t: TenantConnection, session: int) -> None:
    """Clear the row of a session except for its id, which links may reference."""
    agents.delete_agent_runs(t, session)
    t.execute(
        "UPDATE sessions SET (name, head, mark, written, link, used_at, used, record, removed)"
        " = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1) WHERE n = ?",
        session,
    )


def _delete_conversation(t: TenantConnection, conversation: int, head: int) -> None:
    delete_assigned_ids(t, conversation, head)
    t.execute("DELETE FROM conversations WHERE n = ?", conversation)


def _clear_link(t: TenantConnection, link: int) -> None:
    """Clear the row of a link except for its id, which its children may reference."""
    runs.delete_response_run(t.db, link)
    t.execute(
        f"UPDATE links SET ({', '.join(CLEARED_LINK_COLUMNS)}) = ({', '.join('NULL' for _ in CLEARED_LINK_COLUMNS)})"  # noqa: S608 - constant names
        " WHERE n = ?",
        link,
    )


def _delete_unreferenced_rows(
    t: TenantConnection, *, sessions: Rows = (), links: Rows = (), conversations: Rows = ()
) -> None:
    """Delete the rows that nothing references any more after these rows were cleared.

    sessions:       rowid, link, head, mark, written
    links:          rowid, saw, head, sent_body, parent, session, route, parameters
    conversations:  rowid, head
    """
    session_nodes = [n for _, _, *nodes in sessions for n in nodes if n is not None]
    delete_unreferenced_nodes(
        t,
        [
            *session_nodes,
            *(n for link in links for n in link[1:4] if n is not None),
            *(head for _, head in conversations),
        ],
    )
    for n, _, _, _, *targets in links:
        delete_unreferenced_targets(t, *targets)
        delete_unreferenced_link(t, n)
    for n, link, *_ in sessions:
        delete_unreferenced_session(t, n)
        if link is not None:
            delete_unreferenced_link(t, link)
    connection.request_vacuum(t.db)


WITH_OLD_SESSIONS = """
WITH RECURSIVE running (link, session, route) AS (
    SELECT links.n, links.session, links.route FROM runs JOIN links ON links.n = runs.link
    WHERE runs.tenant = :tenant AND ended_at IS NULL
), old (n, link, head, mark, written) AS (
    SELECT n, link, head, mark, written FROM sessions
    WHERE tenant = :tenant AND record IS NOT NULL AND used_at < :before
        AND n NOT IN (SELECT session FROM running WHERE session IS NOT NULL)
)
"""
"""Start of the queries below: the links in open runs, and the sessions to delete."""

SELECT_OLD_SESSIONS = "SELECT n, link, head, mark, written FROM old"

SELECT_OLD_LINKS = """
, chained (n) AS (
    SELECT link FROM sessions WHERE tenant = :tenant AND link IS NOT NULL AND n NOT IN (SELECT n FROM old)
    UNION SELECT links.parent FROM chained JOIN links ON links.n = chained.n WHERE links.parent IS NOT NULL
)
SELECT links.n, saw, links.head, sent_body, parent, session, route, parameters
FROM links LEFT JOIN sessions ON sessions.n = links.session
WHERE links.tenant = :tenant AND saw IS NOT NULL
    AND links.n NOT IN (SELECT n FROM chained) AND links.n NOT IN (SELECT link FROM running)
    AND (removed OR sessions.n IN (SELECT n FROM old) OR (record IS NULL AND links.created_at < :before))
"""

SELECT_OLD_CONVERSATIONS = "SELECT n, head, id FROM conversations WHERE tenant = :tenant AND created_at < :before"

SELECT_RECENT_LINKS = """
SELECT links.n FROM links LEFT JOIN runs ON runs.link = links.n AND ended_at IS NULL
WHERE route = :route AND (created_at >= :before OR runs.link IS NOT NULL)
"""

SELECT_RETAINED_RECORDS = """
SELECT name, record FROM sessions WHERE tenant = :tenant AND record IS NOT NULL AND n NOT IN (SELECT n FROM old)
"""


MAX_ROWS_PER_BATCH = 500
"""Rows of one kind that are deleted in one transaction."""


class PruneBatch(NamedTuple):
    """The rows that a pruning deletes, with the columns that `_delete_unreferenced_rows` needs."""

    sessions: list[Row]
    links: list[Row]
    conversations: list[Row]
    files: list[Row]


def prune_batch(t: TenantConnection, before: float) -> PruneResult:
    """Delete a batch of rows last used before this moment; the result is zero only if nothing is left to delete."""
    batch = _next_batch(t, before)
    for session, *_ in batch.sessions:
        _clear_session(t, session)
    for link, *_ in batch.links:
        _clear_link(t, link)
    for conversation, head in batch.conversations:
        _delete_conversation(t, conversation, head)
    files.delete_files(t.db, batch.files)
    if any(batch[:3]):
        _delete_unreferenced_rows(t, sessions=batch.sessions, links=batch.links, conversations=batch.conversations)
    return PruneResult(*map(len, batch))


def count_prunable(t: TenantConnection, before: float) -> PruneResult:
    """Return how many rows would be deleted."""
    return PruneResult(*(len(list(find(t, before))) for find in OLD_ROW_FINDERS.values()))


def _next_batch(t: TenantConnection, before: float) -> PruneBatch:
    batch = PruneBatch([], [], [], [])
    for kind, find in OLD_ROW_FINDERS.items():
        if rows := list(islice(find(t, before), MAX_ROWS_PER_BATCH)):
            return batch._replace(**{kind: rows})
    return batch


def _find_old_sessions(t: TenantConnection, before: float) -> Iterator[Row]:
    return t.db.execute(WITH_OLD_SESSIONS + SELECT_OLD_SESSIONS, {"tenant": t.tenant_number, "before": before})


def _find_old_links(t: TenantConnection, before: float) -> Iterator[Row]:
    return t.db.execute(WITH_OLD_SESSIONS + SELECT_OLD_LINKS, {"tenant": t.tenant_number, "before": before})


def _find_old_conversations(t: TenantConnection, before: float) -> Iterator[Row]:
    """Find conversations that no session references and that had no response since; responses to delete do not count.

    Raises DamagedRow.
    """
    parameters = {"tenant": t.tenant_number, "before": before}
    records = fetch_records(t.db, WITH_OLD_SESSIONS + SELECT_RETAINED_RECORDS, parameters)
    continued = [decode_session_handle(name, record) for name, record in records]
    handles = {handle for strategy, handle in continued if strategy is Strategy.CONVERSATION}
    old_links = {n for n, *_ in _find_old_links(t, before)}
    for n, head, conversation_id in t.db.execute(SELECT_OLD_CONVERSATIONS, parameters):
        if conversation_id not in handles and not _is_recently_used(t, conversation_id, before, old_links):
            yield n, head


def _find_old_files(t: TenantConnection, before: float) -> Iterator[Row]:
    return t.execute("SELECT n, content FROM files WHERE tenant = ? AND created_at < ?", t.tenant_number, before)


OLD_ROW_FINDERS: dict[str, Callable[[TenantConnection, float], Iterator[Row]]] = {
    "sessions": _find_old_sessions,
    "links": _find_old_links,
    "conversations": _find_old_conversations,
    "files": _find_old_files,
}
"""Functions that find the rows of each kind, in the order of deletion."""


def _is_recently_used(t: TenantConnection, conversation_id: str, before: float, old_links: Container[int]) -> bool:
    """Return whether a conversation had a response since, or has one in an open run; `old_links` do not count."""
    parameters = {"tenant": t.tenant_number, "before": before}
    routes = tenant_rows.select_route_rowids(t, conversation_id)
    recent = (row for route in routes for row in t.db.execute(SELECT_RECENT_LINKS, {**parameters, "route": route}))
    return any(n not in old_links for (n,) in recent)
