"""One change, in one transaction and two round trips.

The first begins it and asks what it meets, the second writes and commits. Rows that several writers
may bring at once are written in one order, so that none waits for another that waits for it.

Where a record leaves a place that nothing else may need, the change must know that nobody lets go of
the same place meanwhile. That is rare, so it is not paid for before: the change is given up and made
again alone.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID
from zlib import crc32

from convo.history import Key
from convo.items import Item
from convo.stores import rules
from convo.stores.contract import Change
from convo.stores.postgres import agents, links, names, records, runs
from convo.stores.postgres.collecting import collect, erase
from convo.stores.postgres.looking import Found, look
from convo.stores.postgres.planning import Grown, Plan
from convo.stores.postgres.tenant import COMMIT, Ask, Tenant, columns
from convo.stores.terms import terms_of

ITEMS = """
INSERT INTO convo.items (tenant, hash, named, body, stored_at)
SELECT $1, hash, named, body, extract(epoch FROM statement_timestamp()) + place / 1e6
FROM unnest($2::uuid[], $3::bigint[], $4::bytea[], $5::integer[]) AS new (hash, named, body, place)
ON CONFLICT DO NOTHING
"""

WORDS = """
INSERT INTO convo.words (tenant, item, length, terms)
SELECT $1, item, length, terms::integer[]
FROM unnest($2::uuid[], $3::integer[], $4::text[]) AS new (item, length, terms)
ON CONFLICT DO NOTHING
"""

NODES = """
INSERT INTO convo.nodes (tenant, id, rest, parent, item, depth)
SELECT $1, id, rest, parent, item, depth
FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::integer[]) AS new (id, rest, parent, item, depth)
ON CONFLICT DO NOTHING
"""

REFILL = """
UPDATE convo.nodes SET item = new.item, erased = NULL FROM unnest($2::uuid[], $3::uuid[]) AS new (id, item)
WHERE nodes.tenant = $1 AND nodes.id = new.id AND nodes.item IS NULL
"""


async def commit(t: Tenant, plan: Plan, *, alone: bool, known: bool) -> bool:
    """Make a change true; False, and nothing is done, when it must be made alone.

    known:   whether the tenant is there for certain
    raises:  as the contract says
    """
    found = await look(t, plan, alone=alone, known=known)
    if found.loose and not alone:
        return False
    writes = [*_writes(t, plan, found)]
    if not alone:
        await t.together(*writes, COMMIT)
        return True
    await t.together(*writes)
    dropped = await erase(t, plan.change)
    await collect(t, found.loose, dropped)
    await t.together(COMMIT)
    return True


def _writes(t: Tenant, plan: Plan, found: Found) -> Iterator[Ask]:
    change = plan.change
    yield from _grow(t, plan, found)
    yield from _links(t, change, found)
    if change.session:
        yield from records.put_session(t, change.session, there=found.session)
    if change.conversation:
        behind, further = _behind(plan, change.conversation.head, found)
        yield from records.put_conversation(t, change.conversation, found.conversation, behind, further=further)
    if change.starts:
        yield runs.start(t, change.starts)
    if change.ends:
        yield from runs.end(t, change.ends)
    if change.agent_run:
        yield agents.put(t, change.agent_run)
    yield from agents.put_calls(t, change.calls)


# -- places ---------------------------------------------------------------------------------------


def _grow(t: Tenant, plan: Plan, found: Found) -> Iterator[Ask]:
    """Make the kept places that are not there, and fill those whose items were erased."""
    kept = plan.kept({link_id for link_id, status in found.links.items() if status not in rules.UNFINISHED})
    new = {key: grown for key, grown in plan.grown.items() if key in kept and key not in found.places}
    refilled = {key: grown for key, grown in plan.grown.items() if key in found.places and found.places[key].empty}
    if new or refilled:
        yield from _keep(t, (*new.values(), *refilled.values()))
    if refilled:
        yield t.ask(REFILL, *columns([(names.half(key), grown.hash) for key, grown in refilled.items()], 2))
    if new:
        rows = [
            (names.half(key), names.rest(key), names.half(grown.parent), grown.hash, plan.depth(key, found.places))
            for key, grown in sorted(new.items())
        ]
        yield t.ask(NODES, *columns(rows, 5))


def _keep(t: Tenant, grown: Iterable[Grown]) -> Iterator[Ask]:
    """Store the items that are not stored yet, and the terms that a search finds them by."""
    items = {one.hash: one for one in grown}
    rows = [(one.hash, own_number(one.item), one.body, place) for place, one in enumerate(items.values())]
    yield t.ask(ITEMS, *columns(sorted(rows), 4))
    words = [(hashed, len(cut), _array(t, cut)) for hashed, one in sorted(items.items()) if (cut := terms_of(one.item))]
    if words:
        yield t.ask(WORDS, *columns(words, 3))


def own_number(item: Item) -> int | None:
    """What an index finds an item's own id by; None when it has none."""
    own = rules.own_id(item)
    return names.number(own) if own else None


def _array(t: Tenant, cut: str) -> str:
    return "{" + ",".join(map(str, sorted(term_numbers(t, cut)))) + "}"


def term_numbers(t: Tenant, cut: str) -> set[int]:
    """The numbers of terms: each tenant has its own, so that one tenant's search reads nothing of another's.

    cut:  as `terms` makes it; two terms may share a number, so what is found is looked at once more
    """
    salt = t.n & 0xFFFFFFFF
    return {crc32(term.encode(), salt) - 2**31 for term in set(cut.split())}


# -- records --------------------------------------------------------------------------------------


def _links(t: Tenant, change: Change, found: Found) -> Iterator[Ask]:
    there = dict(found.links)
    for new in change.links:
        yield from links.put(t, new, there.get(new.id))
        if there.get(new.id, "queued") in rules.UNFINISHED:
            there[new.id] = new.status


def _behind(plan: Plan, head: Key, found: Found) -> tuple[list[tuple[UUID, int | None]], bool]:
    """The places that a conversation names anew, oldest first, and whether those before keep their names."""
    *back, last = found.behind
    further = last[0] == found.conversation
    stored = [(place, names.number(names.read(erased)) if erased else own) for place, own, erased in back[::-1]]
    grown = [(names.half(key), own_number(plan.grown[key].item)) for key in plan.behind(head)]
    return stored + grown, further
