"""What the database has to say about a change, asked for in one round trip.

The transaction begins here, and with it the lock of the tenant: many changes at once, but a change
that takes something away is alone. So what a change finds stays, and nobody builds on what goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from convo.errors import NotFound, StoreUnavailable
from convo.history import Key
from convo.history.link import Status
from convo.stores import rules
from convo.stores.postgres import agents, names
from convo.stores.postgres.planning import Plan, There
from convo.stores.postgres.records import BEHIND
from convo.stores.postgres.tenant import BEGIN, Ask, Row, Tenant
from convo.stores.postgres.tree import KEY

SHARED = "SELECT pg_advisory_xact_lock_shared($1)"
ALONE = "SELECT pg_advisory_xact_lock($1)"

NEW_TENANT = "INSERT INTO convo.tenants (tenant, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"
NEW_ROOT = "INSERT INTO convo.nodes (tenant, id, rest, depth) VALUES ($1, $2, $3, 0) ON CONFLICT DO NOTHING"
TENANT = "SELECT name FROM convo.tenants WHERE tenant = $1"

PLACES = f"SELECT {KEY}, parent, depth, item IS NULL FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[])"

SESSIONS = """
SELECT id, head, mark, written FROM convo.sessions
WHERE tenant = $1 AND (id = $2 OR name = $3) ORDER BY id FOR UPDATE
"""

CONVERSATION = "SELECT head FROM convo.conversations WHERE tenant = $1 AND id = $2 FOR UPDATE"

THESE_LINKS = """
SELECT id, status, saw, head FROM convo.links WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR UPDATE
"""

RUN = "SELECT 1 FROM convo.runs WHERE tenant = $1 AND id = $2 AND ended_at IS NULL FOR UPDATE"

LOOSE = """
WITH RECURSIVE old (id, depth) AS (
    SELECT id, depth FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[]) AND depth > 0
), up (id, parent, depth) AS (
    SELECT id, parent, depth FROM convo.nodes WHERE tenant = $1 AND id = ANY($3::uuid[])
    UNION SELECT before.id, before.parent, before.depth FROM up JOIN LATERAL (
        SELECT id, parent, depth FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1) AS before ON true
    WHERE up.depth > (SELECT min(depth) FROM old)
)
SELECT id FROM old WHERE id NOT IN (SELECT id FROM up)
"""
"""Those of some places that are neither others nor before them."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was there before a change.

    places:        those of the plan that are there
    links:         how those stand that the change writes, or starts
    session:       whether there is a record of it already
    conversation:  where its head stands
    behind:        of a conversation: (place, its item's own id as a number, erased id), from its new
                   base back to its old head or to the root, both included
    loose:         places that may be without need afterwards
    """

    places: Mapping[Key, There]
    links: Mapping[str, Status]
    session: bool
    conversation: UUID | None
    behind: list[Row]
    loose: list[UUID]


async def look(t: Tenant, plan: Plan, *, alone: bool, known: bool) -> Found:
    """Begin the change and find what it meets. raises: Conflict, NotFound, InputFault

    alone:  keep every other change of this tenant out
    known:  whether the tenant is there for certain
    """
    asked = {**_opening(t, alone=alone, known=known), **_questions(t, plan)}
    told = dict(zip(asked, await t.together(*asked.values()), strict=True))
    if told.get("tenant", [(names.written(t.name),)]) != [(names.written(t.name),)]:
        raise StoreUnavailable(f"the tenant {t.name!a} cannot be told from another one", hint="call it otherwise")
    if plan.change.ends and not told["run"]:
        raise rules.not_running(plan.change.ends)
    agents.check_revision(plan.change, told)
    found = Found(
        places={Key(key.hex()): There(depth, empty) for key, _, depth, empty in told["places"]},
        links={names.read(link_id): status for link_id, status, _, _ in told.get("links", [])},
        session=_expected_session(plan, told.get("sessions", [])),
        conversation=_expected_conversation(plan, told.get("conversation", [])),
        behind=told.get("behind", []),
        loose=await _loose(t, plan, told),
    )
    _check(plan, found)
    agents.check_there(plan.change, told)
    return found


async def _loose(t: Tenant, plan: Plan, told: Mapping[str, list[Row]]) -> list[UUID]:
    """Where the records that change stand now, and will not stand on or before afterwards.

    That a head goes forward by what the change grows is seen without asking again.
    """
    old = {place for row in told.get("conversation", []) for place in row}
    old |= {place for session_id, *row in told.get("sessions", []) if _is_own(plan, session_id) for place in row}
    old |= {place for _, status, *row in told.get("links", []) if status in rules.UNFINISHED for place in row}
    parents = {UUID(bytes=bytes(key[:16])): parent for key, parent, _, _ in told["places"]}
    kept: set[UUID | None] = {None, names.half(t.root)}
    for base in plan.bases:
        at: UUID | None = base
        while at not in kept:
            kept.add(at)
            at = parents.get(at) if at else None
    doubtful = sorted(place for place in old - kept if place)
    return [place for (place,) in await t.all(LOOSE, doubtful, plan.bases)] if doubtful else []


def _is_own(plan: Plan, session_id: str) -> bool:
    session = plan.change.session
    return session is not None and names.read(session_id) == session.id


def _opening(t: Tenant, *, alone: bool, known: bool) -> dict[str, Ask]:
    begun = {"begin": BEGIN, "lock": t.ask(ALONE if alone else SHARED)}
    if known:
        return begun
    top = t.root
    made = {
        "new tenant": t.ask(NEW_TENANT, names.written(t.name)),
        "new root": t.ask(NEW_ROOT, names.half(top), names.rest(top)),
    }
    return {**begun, **made, "tenant": t.ask(TENANT)}


def _questions(t: Tenant, plan: Plan) -> dict[str, Ask]:
    """What must be known, in the order in which rows are locked."""
    change = plan.change
    session, conversation = change.session, change.conversation
    ids = sorted({link.id for link in change.links} | ({change.starts} if change.starts else set()))
    links = [names.written(link_id) for link_id in ids]
    asked = {"places": t.ask(PLACES, [names.half(key) for key in plan.asked])}
    if session:
        asked["sessions"] = t.ask(SESSIONS, names.written(session.id), names.written(session.name))
    if conversation:
        head = names.written(conversation.id)
        asked["conversation"] = t.ask(CONVERSATION, head)
        asked["behind"] = t.ask(BEHIND, _half_or_none(plan.base(conversation.head)), head)
    if links:
        asked["links"] = t.ask(THESE_LINKS, links)
    if change.ends:
        asked["run"] = t.ask(RUN, names.written(change.ends))
    return {**asked, **agents.questions(t, change)}


def _half_or_none(key: Key) -> UUID | None:
    return names.half(key) if names.is_key(key) else None


def _expected_session(plan: Plan, rows: list[Row]) -> bool:
    """Whether there is a record of the session already. raises: Conflict"""
    session = plan.change.session
    if session is None:
        return False
    heads = {names.read(session_id): head for session_id, head, _, _ in rows}
    rules.expect(f"session {session.name!r}", plan.change.expect, _place(plan.change.expect, heads.get(session.id)))
    if set(heads) - {session.id}:
        raise rules.name_taken(session.name)
    return session.id in heads


def _expected_conversation(plan: Plan, rows: list[Row]) -> UUID | None:
    """Where the conversation stands. raises: Conflict"""
    conversation, expected = plan.change.conversation, plan.change.conversation_expect
    head: UUID | None = rows[0][0] if rows else None
    if conversation:
        rules.expect(conversation.id, expected, _place(expected, head))
    return head


def _place(expected: rules.Expected, head: UUID | None) -> Key | None:
    """The key at `head`, which is the expected one or any other."""
    if head is None:
        return None
    same = isinstance(expected, str) and names.is_key(expected) and names.half(expected) == head
    return Key(expected) if same and isinstance(expected, str) else Key(head.hex)


def _check(plan: Plan, found: Found) -> None:
    """Make sure that the change may be made. raises: NotFound, InputFault"""
    change = plan.change
    plan.check(found.places)
    if change.conversation:
        rules.check_ids(change.conversation, plan.depth(change.conversation.head, found.places))
        for item_id in change.conversation.ids:
            rules.check_name(item_id)
    if change.starts and change.starts not in {*found.links, *(link.id for link in change.links)}:
        raise NotFound("response", change.starts)
