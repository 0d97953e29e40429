"""Links as rows.

What repeats from call to call is stored once: the parameters, and the route (model, strategy, scope,
conversation) with the form that usage has there, so that a link keeps only its figures. What a link
names, it names by its own words: a parent may be a response that was made elsewhere.
"""

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from convo.history import Key, Link
from convo.history.link import Status
from convo.stores import rules
from convo.stores.forms import PARENTS_ID, link_of, previous_of, route_of
from convo.stores.postgres import names
from convo.stores.postgres.tenant import Ask, Row, Tenant
from convo.stores.postgres.tree import KEY
from convo.stores.verbatim import dumps

LINKS = f"""
SELECT id, parent, session,
    (SELECT {KEY} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = links.saw),
    (SELECT {KEY} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = links.head),
    sent, (SELECT body FROM convo.repeated WHERE repeated.tenant = $1 AND hash = route), status, created_at, previous,
    seconds, first_token_s,
    (SELECT body FROM convo.repeated WHERE repeated.tenant = $1 AND hash = parameters), usage, error
FROM convo.links
"""

OLDEST_FIRST = "ORDER BY created_at, id"

OF_CONVERSATION = """
WHERE tenant = $1 AND route IN (SELECT hash FROM convo.repeated WHERE repeated.tenant = $1 AND conversation = $2)
"""

FAMILY = """
WITH RECURSIVE kin (id) AS (
    SELECT id FROM convo.links WHERE tenant = $1 AND id = $2
    UNION
    SELECT near.id FROM kin JOIN LATERAL (
        SELECT parent AS id FROM convo.links WHERE tenant = $1 AND links.id = kin.id AND parent IS NOT NULL
        UNION ALL SELECT id FROM convo.links WHERE tenant = $1 AND parent = kin.id
        OFFSET 0
    ) AS near ON true
)
"""

REPEATED = """
INSERT INTO convo.repeated (tenant, hash, body, conversation)
SELECT $1, hash, body, conversation FROM unnest($2::uuid[], $3::text[], $4::text[]) AS new (hash, body, conversation)
ON CONFLICT DO NOTHING
"""

WRITTEN = """
id, parent, session, saw, head, sent, route, status, created_at, previous, seconds, first_token_s, parameters,
    usage, error"""
VALUES = "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16"
ADD = f"INSERT INTO convo.links (tenant, {WRITTEN}) VALUES ($1, {VALUES})"
FILL = """
UPDATE convo.links SET session = coalesce(nullif(session, ''), $3), parent = coalesce(nullif(parent, ''), $4),
    first_token_s = coalesce(first_token_s, $5)
WHERE tenant = $1 AND id = $2
"""
"""What a final link may still be told; see `rules.written`."""

REPLACE = f"UPDATE convo.links SET ({WRITTEN}) = ROW ({VALUES}) WHERE tenant = $1 AND id = $2"


async def link(t: Tenant, link_id: str) -> Link | None:
    found = await t.row(f"{LINKS} WHERE tenant = $1 AND id = $2", names.written(link_id))
    return read_link(found) if found else None


async def of_session(t: Tenant, session_id: str) -> Sequence[Link]:
    return await _oldest_first(t, "WHERE tenant = $1 AND session = $2", names.written(session_id))


async def of_conversation(t: Tenant, conversation_id: str) -> Sequence[Link]:
    return await _oldest_first(t, OF_CONVERSATION, names.written(conversation_id))


async def answers(t: Tenant, saw: Collection[Key]) -> Sequence[Link]:
    asked = {key: names.half(key) for key in saw if names.is_key(key)}
    if not asked:
        return []
    found = await _oldest_first(t, "WHERE tenant = $1 AND saw = ANY ($2::uuid[])", [*asked.values()])
    return [link for link in found if link.saw in asked]


async def family(t: Tenant, link_id: str) -> Sequence[Link]:
    kin = "WHERE tenant = $1 AND id IN (SELECT id FROM kin)"
    return await _oldest_first(t, kin, names.written(link_id), before=FAMILY)


async def _oldest_first(t: Tenant, where: str, *values: object, before: str = "") -> list[Link]:
    return [read_link(row) for row in await t.all(f"{before}{LINKS}{where} {OLDEST_FIRST}", *values)]


def read_link(row: Row) -> Link:
    """The link in a row of `LINKS`."""
    link_id, parent, session, *middle = row
    previous = middle[6] and names.read(middle[6])
    own = names.read(link_id), parent and names.read(parent), session and names.read(session)
    return link_of((*own, *middle[:6], previous, *middle[7:]))


def put(t: Tenant, made: Link, there: Status | None) -> Iterable[Ask]:
    """Write a link, and what it repeats, by the rules for one that is there. raises: NotCanonical"""
    if there is not None and there not in rules.UNFINISHED:
        known = names.maybe(made.session), names.maybe(made.parent), made.first_token_s
        yield t.ask(FILL, names.written(made.id), *known)
        return
    route, figures = route_of(made)
    repeated = {"route": dumps(route), **({"parameters": dumps(made.parameters)} if made.parameters else {})}
    hashes = {kind: names.text_name(body) for kind, body in repeated.items()}
    previous = previous_of(made)
    yield t.ask(REPEATED, *_sorted(repeated, hashes, names.maybe(made.conversation_id)))
    yield t.ask(
        REPLACE if there else ADD,
        *(names.written(made.id), names.maybe(made.parent), names.maybe(made.session)),
        *(names.half(made.saw), names.half(made.head), made.sent, hashes["route"], made.status, made.created_at),
        *(previous if previous == PARENTS_ID else names.maybe(previous), made.seconds, made.first_token_s),
        *(hashes.get("parameters"), figures, dumps(made.error) if made.error is not None else None),
    )


def _sorted(
    repeated: dict[str, str], hashes: dict[str, UUID], conversation: str | None
) -> tuple[list[UUID], list[str], list[str | None]]:
    """In one order for every writer, so that two never wait for each other."""
    kinds = sorted(repeated, key=lambda kind: str(hashes[kind]))
    at = [conversation if kind == "route" else None for kind in kinds]
    return [hashes[kind] for kind in kinds], [repeated[kind] for kind in kinds], at
