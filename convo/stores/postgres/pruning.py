"""What is old enough to go, and letting it go piece by piece.

A large removal would keep every writer of the tenant out for long, so it is many small ones. They go
in an order in which each leaves to the others what they would have taken: first the conversations,
which live by their links and sessions, then the sessions, then the links.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from convo.stores.postgres.removing import alone, take_conversations, take_links, take_sessions, tidy
from convo.stores.postgres.tenant import SNAPSHOT, Tenant
from convo.stores.upkeep import Pruned
from convo.stores.verbatim import loads

PIECE = 200
"""How many records go in one transaction."""

KEPT = """
kept (id, link, record) AS (
    SELECT id, link, record FROM convo.sessions WHERE tenant = $1 AND (used_at >= $2 OR EXISTS (
        SELECT 1 FROM convo.runs JOIN convo.links ON links.tenant = $1 AND links.id = runs.id
        WHERE runs.tenant = $1 AND ended_at IS NULL AND session = sessions.id))
)
"""
"""The sessions that stay: used since, or in the middle of a run."""

KEPT_RECORDS = f"WITH {KEPT} SELECT record FROM kept WHERE $2::float8 IS NOT NULL"

CONVERSATIONS = """
SELECT id FROM convo.conversations WHERE tenant = $1 AND created_at < $2 AND id <> ALL($3::text[]) AND NOT EXISTS (
    SELECT 1 FROM convo.repeated JOIN convo.links ON links.tenant = $1 AND route = hash
    WHERE repeated.tenant = $1 AND conversation = conversations.id AND (links.created_at >= $2 OR EXISTS (
        SELECT 1 FROM convo.runs WHERE runs.tenant = $1 AND runs.id = links.id AND ended_at IS NULL)))
LIMIT $4
"""

SESSIONS = f"""
WITH {KEPT} SELECT id FROM convo.sessions WHERE tenant = $1 AND id NOT IN (SELECT id FROM kept) LIMIT $3
"""

LINKS = f"""
WITH RECURSIVE {KEPT}, chained (id) AS (
    SELECT link FROM kept WHERE link IS NOT NULL
    UNION SELECT before.parent FROM chained JOIN LATERAL (
        SELECT parent FROM convo.links WHERE tenant = $1 AND id = chained.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
)
SELECT id FROM convo.links WHERE tenant = $1
    AND (session IS NULL OR session NOT IN (SELECT id FROM kept))
    AND id NOT IN (SELECT id FROM chained)
    AND NOT EXISTS (SELECT 1 FROM convo.runs WHERE runs.tenant = $1 AND runs.id = links.id AND ended_at IS NULL)
    AND (created_at < $2
        OR session IN (SELECT session FROM convo.removed WHERE removed.tenant = $1)
        OR session IN (SELECT id FROM convo.sessions WHERE sessions.tenant = $1))
LIMIT $3
"""

Choice: TypeAlias = Callable[[Tenant, float, int | None], Awaitable[Sequence[str]]]
"""What is older than a moment, at most so many."""


async def conversations(t: Tenant, before: float, most: int | None) -> Sequence[str]:
    """Those that were neither made nor answered since, and that no session that stays holds."""
    handles = [loads(record)[6] for (record,) in await t.all(KEPT_RECORDS, before)]
    held = [handle for handle in handles if handle]
    return [found for (found,) in await t.all(CONVERSATIONS, before, held, most)]


async def sessions(t: Tenant, before: float, most: int | None) -> Sequence[str]:
    return [found for (found,) in await t.all(SESSIONS, before, most)]


async def links(t: Tenant, before: float, most: int | None) -> Sequence[str]:
    """Those of sessions that went or go, and old ones that no session made."""
    return [found for (found,) in await t.all(LINKS, before, most)]


async def count(t: Tenant, before: float) -> Pruned:
    """How much is old enough."""
    await t.together(SNAPSHOT)
    return Pruned(
        sessions=len(await sessions(t, before, None)),
        responses=len(await links(t, before, None)),
        conversations=len(await conversations(t, before, None)),
    )


async def take_piece(t: Tenant, choose: Choice, before: float) -> int:
    """Take some of what is old enough; how many. 0: there is no more"""
    await alone(t)
    old = await choose(t, before, PIECE)
    if not old:
        return 0
    if choose is links:
        await tidy(t, [], await take_links(t, old))
    else:
        take = take_sessions if choose is sessions else take_conversations
        await tidy(t, await take(t, old), [])
    return len(old)
