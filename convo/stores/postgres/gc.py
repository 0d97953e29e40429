"""Remove records, and all rows that only they referenced.

A removal is one transaction with an exclusive lock of the tenant. Pruning runs in batches, so that other
writers can run in between: sessions first, then links, then conversations.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from convo.errors import NotFound
from convo.stores.base import PruneResult
from convo.stores.codec import decode_session_handle
from convo.stores.postgres import files, tenant_rows
from convo.stores.postgres import runs as agents
from convo.stores.postgres.commit import LOCK_TENANT_EXCLUSIVE, delete_links, delete_unreferenced_rows
from convo.stores.postgres.tenant_rows import BEGIN, BEGIN_SNAPSHOT, COMMIT, Row, TenantConnection

DELETE_SESSIONS = (
    "DELETE FROM convo.sessions WHERE tenant = $1 AND id = ANY($2::text[]) RETURNING head, mark, written, id"
)

INSERT_REMOVED_MARKERS = (
    "INSERT INTO convo.removed (tenant, session) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING"
)

SELECT_UNNEEDED_LINKS = """
WITH RECURSIVE chained (id) AS (
    SELECT link FROM convo.sessions WHERE tenant = $1 AND link IS NOT NULL
    UNION SELECT before.parent FROM chained JOIN LATERAL (
        SELECT parent FROM convo.links WHERE tenant = $1 AND id = chained.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
)
SELECT links.id FROM convo.removed JOIN convo.links ON links.tenant = $1 AND links.session = removed.session
WHERE removed.tenant = $1 AND links.id NOT IN (SELECT id FROM chained)
"""
"""The links of removed sessions that are in no session's chain."""

DELETE_MEMBERS = "DELETE FROM convo.members WHERE tenant = $1 AND conversation = ANY($2::text[])"

DELETE_CONVERSATIONS = "DELETE FROM convo.conversations WHERE tenant = $1 AND id = ANY($2::text[]) RETURNING head"

DELETE_REMOVED_MARKERS = """
DELETE FROM convo.removed WHERE tenant = $1
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND links.session = removed.session)
"""


async def remove_session(t: TenantConnection, session_id: str) -> None:
    """Delete a session and the links that only it referenced. Raises NotFound."""
    await _begin_exclusive(t)
    rows = await _delete_sessions(t, [tenant_rows.escape_name(session_id)])
    if not rows:
        raise NotFound("session", session_id)
    unneeded = [link for (link,) in await t.fetch_all(SELECT_UNNEEDED_LINKS)]
    await _delete_unreferenced_and_commit(t, rows, await delete_links(t, unneeded))


async def remove_link(t: TenantConnection, link_id: str) -> None:
    """Delete one link. Raises NotFound."""
    await _begin_exclusive(t)
    deleted = await delete_links(t, [tenant_rows.escape_name(link_id)])
    if not deleted:
        raise NotFound("response", link_id)
    await _delete_unreferenced_and_commit(t, [], deleted)


async def remove_conversation(t: TenantConnection, conversation_id: str) -> None:
    """Delete a conversation and the ids that it assigned. Raises NotFound."""
    await _begin_exclusive(t)
    heads = await _delete_conversations(t, [tenant_rows.escape_name(conversation_id)])
    if not heads:
        raise NotFound("conversation", conversation_id)
    await _delete_unreferenced_and_commit(t, heads, [])


async def _begin_exclusive(t: TenantConnection) -> None:
    """Begin a transaction that excludes all other writers of this tenant."""
    await t.run_pipeline(BEGIN, t.statement(LOCK_TENANT_EXCLUSIVE))


async def _delete_sessions(t: TenantConnection, ids: Sequence[str]) -> list[Row]:
    """Delete sessions and their agent runs, and record their ids as removed; return the nodes that each referenced."""
    *_, rows = await t.run_pipeline(*agents.build_agent_run_deletes(t, ids), t.statement(DELETE_SESSIONS, ids))
    await t.run_pipeline(t.statement(INSERT_REMOVED_MARKERS, [row[3] for row in rows]))
    return [row[:3] for row in rows]


async def _delete_conversations(t: TenantConnection, ids: Sequence[str]) -> list[Row]:
    """Delete conversations and the ids that they assigned; return the head of each."""
    _, rows = await t.run_pipeline(t.statement(DELETE_MEMBERS, ids), t.statement(DELETE_CONVERSATIONS, ids))
    return rows


async def _delete_unreferenced_and_commit(t: TenantConnection, node_rows: Sequence[Row], links: Sequence[Row]) -> None:
    """Delete the rows that nothing references any more, and commit."""
    await delete_unreferenced_rows(t, [node for row in node_rows for node in row], links)
    await t.run_pipeline(t.statement(DELETE_REMOVED_MARKERS), COMMIT)


MAX_ROWS_PER_BATCH = 200
"""Records that are deleted in one transaction."""

WITH_RETAINED_SESSIONS = """
kept (id, link, name, record) AS (
    SELECT id, link, name, record FROM convo.sessions WHERE tenant = $1 AND (used_at >= $2 OR EXISTS (
        SELECT 1 FROM convo.runs JOIN convo.links ON links.tenant = $1 AND links.id = runs.id
        WHERE runs.tenant = $1 AND ended_at IS NULL AND session = sessions.id))
)
"""
"""The sessions that are kept: used since, or with an open run."""

SELECT_RETAINED_RECORDS = f"WITH {WITH_RETAINED_SESSIONS} SELECT name, record FROM kept WHERE $2::float8 IS NOT NULL"

SELECT_OLD_SESSIONS = f"""
WITH {WITH_RETAINED_SESSIONS}
SELECT id FROM convo.sessions WHERE tenant = $1 AND id NOT IN (SELECT id FROM kept) LIMIT $3
"""

WITH_OLD_LINKS = f"""
WITH RECURSIVE {WITH_RETAINED_SESSIONS}, chained (id) AS (
    SELECT link FROM kept WHERE link IS NOT NULL
    UNION SELECT before.parent FROM chained JOIN LATERAL (
        SELECT parent FROM convo.links WHERE tenant = $1 AND id = chained.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
), old_links (id) AS (
    SELECT id FROM convo.links WHERE tenant = $1
        AND (session IS NULL OR session NOT IN (SELECT id FROM kept))
        AND id NOT IN (SELECT id FROM chained)
        AND NOT EXISTS (SELECT 1 FROM convo.runs WHERE runs.tenant = $1 AND runs.id = links.id AND ended_at IS NULL)
        AND (created_at < $2
            OR session IN (SELECT session FROM convo.removed WHERE removed.tenant = $1)
            OR session IN (SELECT id FROM convo.sessions WHERE sessions.tenant = $1))
)
"""
"""The links to delete: those of deleted or prunable sessions, and old ones that no session made."""

SELECT_OLD_LINKS = f"{WITH_OLD_LINKS} SELECT id FROM old_links LIMIT $3"

SELECT_OLD_CONVERSATIONS = f"""
{WITH_OLD_LINKS}
SELECT id FROM convo.conversations WHERE tenant = $1 AND created_at < $2 AND id <> ALL($3::text[]) AND NOT EXISTS (
    SELECT 1 FROM convo.repeated JOIN convo.links ON links.tenant = $1 AND route = hash
    WHERE repeated.tenant = $1 AND conversation = conversations.id AND links.id NOT IN (SELECT id FROM old_links)
        AND (links.created_at >= $2 OR EXISTS (
            SELECT 1 FROM convo.runs WHERE runs.tenant = $1 AND runs.id = links.id AND ended_at IS NULL)))
LIMIT $4
"""

OldRowFinder: TypeAlias = Callable[[TenantConnection, float, int | None], Awaitable[Sequence[str]]]
"""Returns the ids of at most this many records older than a moment; None: all."""


async def find_old_conversations(t: TenantConnection, before: float, limit: int | None) -> Sequence[str]:
    """Return conversations that were not created or used since, and that no retained session references.

    A response that is to be deleted does not count as use.

    Raises DamagedRow for a retained session with a damaged record: it may reference any conversation.
    """
    records = await t.fetch_all(SELECT_RETAINED_RECORDS, before)
    handles = [decode_session_handle(tenant_rows.unescape_name(name), record)[1] for name, record in records]
    retained = [handle for handle in handles if handle]
    return [
        conversation_id for (conversation_id,) in await t.fetch_all(SELECT_OLD_CONVERSATIONS, before, retained, limit)
    ]


async def find_old_sessions(t: TenantConnection, before: float, limit: int | None) -> Sequence[str]:
    return [session_id for (session_id,) in await t.fetch_all(SELECT_OLD_SESSIONS, before, limit)]


async def find_old_links(t: TenantConnection, before: float, limit: int | None) -> Sequence[str]:
    return [link_id for (link_id,) in await t.fetch_all(SELECT_OLD_LINKS, before, limit)]


async def count_prunable(t: TenantConnection, before: float) -> PruneResult:
    """Return how many records would be deleted."""
    await t.run_pipeline(BEGIN_SNAPSHOT)
    return PruneResult(
        sessions=len(await find_old_sessions(t, before, None)),
        responses=len(await find_old_links(t, before, None)),
        conversations=len(await find_old_conversations(t, before, None)),
        files=await files.count_old_files(t, before),
    )


async def prune_batch(t: TenantConnection, find_old_rows: OldRowFinder, before: float) -> int:
    """Delete a batch of old records and return their number; 0 if there are none left."""
    await _begin_exclusive(t)
    ids = await find_old_rows(t, before, MAX_ROWS_PER_BATCH)
    if not ids:
        return 0
    if find_old_rows is find_old_links:
        await _delete_unreferenced_and_commit(t, [], await delete_links(t, ids))
    else:
        delete = _delete_sessions if find_old_rows is find_old_sessions else _delete_conversations
        await _delete_unreferenced_and_commit(t, await delete(t, ids), [])
    return len(ids)
