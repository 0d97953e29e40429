"""Taking records out, and what only they held.

All of one removal is in one transaction, and alone: nobody builds meanwhile on what goes. Deleted rows
stay in the database's files until it vacuums them.
"""

from collections.abc import Sequence
from uuid import UUID

from convo.errors import NotFound
from convo.stores.postgres import agents, names, runs
from convo.stores.postgres.collecting import collect
from convo.stores.postgres.looking import ALONE
from convo.stores.postgres.tenant import BEGIN, COMMIT, Row, Tenant

TAKE_SESSIONS = (
    "DELETE FROM convo.sessions WHERE tenant = $1 AND id = ANY($2::text[]) RETURNING head, mark, written, id"
)

REMEMBER = "INSERT INTO convo.removed (tenant, session) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING"

UNNEEDED = """
WITH RECURSIVE chained (id) AS (
    SELECT link FROM convo.sessions WHERE tenant = $1 AND link IS NOT NULL
    UNION SELECT before.parent FROM chained JOIN LATERAL (
        SELECT parent FROM convo.links WHERE tenant = $1 AND id = chained.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
)
SELECT links.id FROM convo.removed JOIN convo.links ON links.tenant = $1 AND links.session = removed.session
WHERE removed.tenant = $1 AND links.id NOT IN (SELECT id FROM chained)
"""
"""The links of removed sessions that no session's chain passes through."""

TAKE_LINKS = """
DELETE FROM convo.links WHERE tenant = $1 AND id = ANY($2::text[]) RETURNING saw, head, route, parameters
"""

TAKE_NAMES = "DELETE FROM convo.members WHERE tenant = $1 AND conversation = ANY($2::text[])"

TAKE_CONVERSATIONS = "DELETE FROM convo.conversations WHERE tenant = $1 AND id = ANY($2::text[]) RETURNING head"

FORGET_REMOVED = """
DELETE FROM convo.removed WHERE tenant = $1
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND links.session = removed.session)
"""

FORGET_REPEATED = """
DELETE FROM convo.repeated WHERE tenant = $1 AND (hash = ANY($2::uuid[]) OR conversation IN (
    SELECT conversation FROM convo.repeated WHERE tenant = $1 AND hash = ANY($2::uuid[])))
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND route = hash)
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND parameters = hash)
"""


async def remove_session(t: Tenant, session_id: str) -> None:
    """Take a session and the links that only it needs. raises: NotFound"""
    await alone(t)
    rows = await take_sessions(t, [names.written(session_id)])
    if not rows:
        raise NotFound("session", session_id)
    unneeded = [link for (link,) in await t.all(UNNEEDED)]
    await tidy(t, rows, await take_links(t, unneeded))


async def remove_link(t: Tenant, link_id: str) -> None:
    """Take one link. raises: NotFound"""
    await alone(t)
    taken = await take_links(t, [names.written(link_id)])
    if not taken:
        raise NotFound("response", link_id)
    await tidy(t, [], taken)


async def remove_conversation(t: Tenant, conversation_id: str) -> None:
    """Take a conversation and the ids it gave. raises: NotFound"""
    await alone(t)
    heads = await take_conversations(t, [names.written(conversation_id)])
    if not heads:
        raise NotFound("conversation", conversation_id)
    await tidy(t, heads, [])


async def alone(t: Tenant) -> None:
    """Begin a transaction that no other change of this tenant overlaps."""
    await t.together(BEGIN, t.ask(ALONE))


async def take_sessions(t: Tenant, ids: Sequence[str]) -> list[Row]:
    """Take records, with their runs of agents, and remember their names; where each stood."""
    *_, rows = await t.together(*agents.drop(t, ids), t.ask(TAKE_SESSIONS, ids))
    await t.together(t.ask(REMEMBER, [row[3] for row in rows]))
    return [row[:3] for row in rows]


async def take_links(t: Tenant, ids: Sequence[str]) -> list[Row]:
    """Take links and their runs; of each where it stood and what it repeated."""
    if not ids:
        return []
    *_, rows = await t.together(*runs.drop(t, ids), t.ask(TAKE_LINKS, ids))
    return rows


async def take_conversations(t: Tenant, ids: Sequence[str]) -> list[Row]:
    """Take conversations and the ids that they gave; where each stood."""
    _, rows = await t.together(t.ask(TAKE_NAMES, ids), t.ask(TAKE_CONVERSATIONS, ids))
    return rows


async def tidy(t: Tenant, stood: Sequence[Row], links: Sequence[Row]) -> None:
    """Take what nothing stands on any more, and end the transaction."""
    places = [place for row in stood for place in row] + [place for link in links for place in link[:2]]
    repeated: set[UUID] = {name for link in links for name in link[2:] if name}
    await collect(t, {place for place in places if place})
    await t.together(t.ask(FORGET_REMOVED), t.ask(FORGET_REPEATED, sorted(repeated)), COMMIT)
