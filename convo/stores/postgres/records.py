"""Sessions and conversations as rows.

A conversation's row of ids is not written again with every item: only an id that the conversation
itself gave is kept, beside the node that it was given to.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from convo.errors import NotFound
from convo.history import Key, Session
from convo.stores import rules
from convo.stores.contract import Conversation, Outline
from convo.stores.forms import record_of, session_of
from convo.stores.postgres import names
from convo.stores.postgres.bodies import item_of
from convo.stores.postgres.tenant import Ask, Row, Tenant, columns
from convo.stores.postgres.tree import KEY
from convo.stores.verbatim import dumps, loads

SESSION = f"""
id, name, (SELECT {KEY} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = sessions.head),
    (SELECT {KEY} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = sessions.mark),
    (SELECT {KEY} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = sessions.written), link, used_at, record, used
"""

SESSIONS = f"SELECT {SESSION} FROM convo.sessions WHERE tenant = $1"

OUTLINE = """
WITH RECURSIVE up (id, parent, item, depth) AS (
    SELECT nodes.id, parent, item, depth FROM convo.sessions JOIN convo.nodes
        ON nodes.tenant = $1 AND nodes.id = sessions.head WHERE sessions.tenant = $1 AND sessions.id = $2
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, depth FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
)
SELECT (SELECT max(depth) FROM up), (SELECT depth FROM up WHERE id = mark),
    (SELECT count(*) FROM convo.links WHERE tenant = $1 AND session = $2 AND status = ANY($3::text[])),
    (SELECT body FROM convo.items WHERE tenant = $1 AND hash = (SELECT item FROM up WHERE depth = 1))
FROM convo.sessions WHERE tenant = $1 AND id = $2
"""

USED_LAST = "(SELECT coalesce(max(used), 0) FROM convo.sessions WHERE tenant = $1 AND id <> $2)"
"""The place of the session used last among the others; `used` counts up with every use, whatever the clock says."""

ADD_SESSION = f"""
INSERT INTO convo.sessions (tenant, id, name, head, mark, written, link, used_at, record, used)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::bigint, {USED_LAST} + 1))
"""
REPLACE_SESSION = f"""
UPDATE convo.sessions SET (name, head, mark, written, link, used_at, record) = ROW ($3, $4, $5, $6, $7, $8, $9),
    used = CASE
        WHEN $10::bigint IS NOT NULL THEN $10
        WHEN used_at = $8 OR used > {USED_LAST} THEN used
        ELSE {USED_LAST} + 1
    END
WHERE tenant = $1 AND id = $2
"""
NOT_REMOVED = "DELETE FROM convo.removed WHERE tenant = $1 AND session = $2"

MEMBERS = f"""
WITH RECURSIVE up (id, parent, item, erased, key) AS (
    SELECT nodes.id, parent, item, erased, {KEY} FROM convo.conversations JOIN convo.nodes
        ON nodes.tenant = $1 AND nodes.id = head WHERE conversations.tenant = $1 AND conversations.id = $2
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, erased, {KEY} FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
), called (key, erased, item, given) AS (
    SELECT key, erased, item,
        (SELECT id FROM convo.members WHERE tenant = $1 AND node = up.id AND conversation = $2) FROM up
)
SELECT key, given, erased,
    CASE WHEN given IS NULL THEN (SELECT body FROM convo.items WHERE tenant = $1 AND hash = called.item) END,
    created_at, metadata
FROM called, convo.conversations WHERE tenant = $1 AND id = $2
"""
"""The nodes from a conversation's head back to the root, and what names each."""

BEHIND = """
WITH RECURSIVE up (id, parent, item, erased) AS (
    SELECT id, parent, item, erased FROM convo.nodes WHERE tenant = $1 AND id = $2
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, erased FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
    WHERE up.id IS DISTINCT FROM (SELECT head FROM convo.conversations WHERE tenant = $1 AND id = $3)
)
SELECT id, (SELECT named FROM convo.items WHERE tenant = $1 AND hash = up.item), erased FROM up
"""
"""The nodes from a place back to the head of a conversation or to the root, both included."""

ADD_CONVERSATION = """
INSERT INTO convo.conversations (tenant, id, head, created_at, metadata) VALUES ($1, $2, $3, $4, $5)
"""
REPLACE_CONVERSATION = """
UPDATE convo.conversations SET (head, created_at, metadata) = ROW ($3, $4, $5) WHERE tenant = $1 AND id = $2
"""
UNNAME = """
WITH RECURSIVE up (id, parent) AS (
    SELECT id, parent FROM convo.nodes WHERE tenant = $1 AND id = $3
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
)
DELETE FROM convo.members WHERE tenant = $1 AND conversation = $2 AND node IN (SELECT id FROM up)
"""
"""Forget the ids that a conversation gave to the items before a place."""

NAME = """
INSERT INTO convo.members (tenant, conversation, node, named, id)
SELECT $1, $2, node, named, id FROM unnest($3::uuid[], $4::bigint[], $5::text[]) AS new (node, named, id)
"""


# -- sessions -------------------------------------------------------------------------------------


async def session(t: Tenant, name_or_id: str) -> Session | None:
    by_either = f"{SESSIONS} AND (id = $2 OR name = $2) ORDER BY id <> $2 LIMIT 1"
    found = await t.row(by_either, names.written(name_or_id))
    return read_session(found) if found else None


async def sessions(t: Tenant, limit: int | None) -> Sequence[Session]:
    rows = await t.all(f"{SESSIONS} ORDER BY used DESC NULLS FIRST, used_at DESC, id DESC LIMIT $2", limit)
    return [read_session(row) for row in rows]


async def outline(t: Tenant, session_id: str) -> Outline:
    """A session in figures. raises: NotFound"""
    found = await t.row(OUTLINE, names.written(session_id), list(rules.ANSWERED))
    if found is None:
        raise NotFound("session", session_id)
    items, confirmed, turns, body = found
    return Outline(items, items - (confirmed or 0), turns, item_of(body) if body else None)


def read_session(row: Row) -> Session:
    """The session in the columns `SESSION`."""
    session_id, name, head, mark, written, link, used_at, record, used = row
    own = names.read(session_id), names.read(name)
    return session_of((*own, head, mark, written, link and names.read(link), used_at, record, used))


def put_session(t: Tenant, new: Session, *, there: bool) -> Iterable[Ask]:
    """Write a record. raises: NotCanonical"""
    yield t.ask(
        REPLACE_SESSION if there else ADD_SESSION,
        *(names.written(new.id), names.written(new.name), names.half(new.head), names.half(new.mark)),
        *(names.half(new.written) if new.written else None, names.maybe(new.link), new.used_at, record_of(new)),
        new.use,
    )
    if not there:
        yield t.ask(NOT_REMOVED, names.written(new.id))


# -- conversations --------------------------------------------------------------------------------


async def conversation(t: Tenant, conversation_id: str) -> Conversation | None:
    rows = await t.all(MEMBERS, names.written(conversation_id))
    if not rows:
        return None
    key, *_, created_at, metadata = rows[0]
    ids = tuple(_id(given, erased, body) for _, given, erased, body, _, _ in rows[-2::-1])
    return Conversation(conversation_id, Key(key.hex()), created_at, ids, loads(metadata))


def _id(given: str | None, erased: str | None, body: bytes | None) -> str:
    if body is not None:
        return rules.own_id(item_of(body))
    return names.read(given or erased or "")


def put_conversation(
    t: Tenant, new: Conversation, old: UUID | None, behind: Sequence[tuple[UUID, int | None]], *, further: bool
) -> Iterable[Ask]:
    """Write a conversation and the ids it gave. raises: NotCanonical

    behind:   places, oldest first, each with the own id of its item as a number: those behind the
              old head where the head went `further`, else all
    """
    row = names.written(new.id), names.half(new.head), new.created_at, dumps(dict(new.metadata))
    yield t.ask(ADD_CONVERSATION if old is None else REPLACE_CONVERSATION, *row)
    if old is not None and not further:
        yield t.ask(UNNAME, names.written(new.id), old)
    ids = new.ids[len(new.ids) - len(behind) :]
    given = [
        (place, names.number(item_id), names.written(item_id))
        for (place, own), item_id in zip(behind, ids, strict=True)
        if own != names.number(item_id)
    ]
    if given:
        yield t.ask(NAME, names.written(new.id), *columns(given, 3))
