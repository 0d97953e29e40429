"""A store in memory, and the shortest complete implementation of the contract.

No method awaits anything, so a transaction cannot be interrupted: it is checked as a whole, then applied.
Each node has a reference count, from its children and from the records that refer to it; a node without
references is deleted at once. Records and JSON are copied on every write and every read.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import NamedTuple

from convo.errors import Busy, ItemDeleted, NotFound
from convo.history.canonical import Hash, item_hash
from convo.history.items import Item, Json, StreamEvent, item_preview
from convo.history.records import Link, Session
from convo.history.tree import Key, Node, Path, Prefix, child_key, root_key
from convo.stores import base
from convo.stores.base import (
    UNCHANGED_DOCUMENT,
    AbandonedRun,
    AgentCall,
    AgentRun,
    AppendItems,
    Conversation,
    HandleMatch,
    Lease,
    PruneResult,
    SearchHit,
    SessionStats,
    TenantStats,
    Transaction,
    TransactionObserver,
    run_lease_name,
)
from convo.stores.codec import decode_json, encode_json, parse_search_phrases, phrase_density, tokenize_item


@dataclass(slots=True)
class TreeNode:
    """A node: `sequence` counts up; `item_hash` is None at the root and where the item was erased."""

    number: int
    depth: int
    parent: Key | None
    item: Hash | None


@dataclass(slots=True)
class StoredItem:
    """An item as JSON text, with its own id and its search terms; `sequence` counts up."""

    number: int
    text: str
    id: str
    terms: str

    @classmethod
    def of(cls, number: int, text: str) -> "StoredItem":
        item = decode_json(text)
        return cls(number, text, base.own_item_id(item), tokenize_item(item))


PlannedNodes = dict[Key, tuple[Key, Hash, str]]
"""Nodes that a transaction creates: parent, hash of the item, text of the item."""

NodeReferrer = Link | Session | Conversation
"""A record that references nodes."""


class ItemTree:
    """One tenant's nodes and items, and the number of references to each."""

    def __init__(self, top: Key) -> None:
        self.places: dict[Key, TreeNode] = {top: TreeNode(0, 0, None, None)}
        self.bodies: dict[Hash, StoredItem] = {}
        self._named: defaultdict[str, set[Hash]] = defaultdict(set)
        self._needs: Counter[str] = Counter({top: 1})
        self._loose: list[Key] = []
        self._made = 0

    def walk(self, key: Key) -> Iterator[tuple[Key, TreeNode]]:
        """Iterate over the nodes from `key` towards the root, which is left out."""
        while (place := self.places[key]).parent is not None:
            yield key, place
            key = place.parent

    def plan(self, grow: Iterable[AppendItems]) -> PlannedNodes:
        """Return the nodes of these items; nothing is stored. Raises NotFound."""
        grown: PlannedNodes = {}
        for growth in grow:
            at = growth.after
            if at not in self.places and at not in grown:
                raise base.node_not_found_error(at)
            for item in growth.items:
                hashed = item_hash(item)
                parent, at = at, child_key(at, hashed)
                grown.setdefault(at, (parent, hashed, encode_json(item)))
        return grown

    def length(self, key: Key, grown: PlannedNodes) -> int:
        """Return the number of items on the path to `key`, which may be a planned node."""
        count = 0
        while key not in self.places:
            count, key = count + 1, grown[key][0]
        return count + self.places[key].depth

    def plant(self, grown: PlannedNodes) -> None:
        for key, (parent, item, text) in grown.items():
            if key not in self.places:
                self._made += 1
                self.places[key] = TreeNode(self._made, self.places[parent].depth + 1, parent, None)
                self._needs[parent] += 1
            self._loose.append(key)
            if self.places[key].item is None:
                self.places[key].item = item
                self._needs[item] += 1
                self._keep(item, text)

    def _keep(self, item: Hash, text: str) -> None:
        if item not in self.bodies:
            self._made += 1
            self.bodies[item] = body = StoredItem.of(self._made, text)
            self._named[body.id].add(item)

    def move(self, old: NodeReferrer | None, new: NodeReferrer | None) -> None:
        """Move the references of the record `old` to the nodes of `new`."""
        self._needs.update(_referenced_keys(new))
        self._needs.subtract(_referenced_keys(old))
        self._loose.extend(_referenced_keys(old))

    def empty(self, key: Key) -> None:
        """Remove the item of a node, and delete the item if this was its last node."""
        item, self.places[key].item = self.places[key].item, None
        if item is not None:
            self._needs[item] -= 1
            if not self._needs[item]:
                del self._needs[item]
                self._named[self.bodies.pop(item).id].discard(item)

    def named(self, item_id: str) -> set[Hash]:
        """Return the hashes of the items with this id of their own."""
        return self._named.get(item_id, set()) if item_id else set()

    def beginning(self, digits: str) -> Key | None:
        """Return a node whose key begins with `digits`."""
        return next((key for key in self.places if key.startswith(digits)), None) if digits else None

    def sweep(self) -> None:
        """Delete every node that nothing references any more."""
        while self._loose:
            key = self._loose.pop()
            if key in self.places and not self._needs[key]:
                self.empty(key)
                parent = self.places.pop(key).parent
                assert parent is not None  # the root is always referenced
                self._needs[parent] -= 1
                self._loose.append(parent)


def _referenced_keys(record: NodeReferrer | None) -> tuple[Key, ...]:
    if record is None:
        return ()
    if isinstance(record, Link):
        return (record.saw, record.head)
    if isinstance(record, Conversation):
        return (record.head,)
    return (record.head, record.mark, *((record.written,) if record.written else ()))


class TenantData:
    """All data of one tenant."""

    def __init__(self, tenant: str) -> None:
        self.root = root_key(tenant)
        self.tree = ItemTree(self.root)
        self.links: dict[str, Link] = {}
        self.sessions: dict[str, Session] = {}
        self.removed: set[str] = set()
        self.conversations: dict[str, Conversation] = {}
        self.leases: dict[str, Lease] = {}
        self.runs = ResponseRuns()
        self.agents = AgentRuns()

    def check(self, change: Transaction) -> tuple[PlannedNodes, list[Link]]:
        """Check a transaction; return the planned nodes and copies of its links. Raises the errors of `commit`."""
        base.check_stored_names(change)
        self._check_heads(change)
        grown = self.tree.plan(change.grow)
        for key in (*base.iter_referenced_keys(change), *change.erase):
            if key not in self.tree.places and key not in grown:
                raise base.node_not_found_error(key)
        if change.conversation:
            base.check_item_ids(change.conversation, self.tree.length(change.conversation.head, grown))
            for item_id in change.conversation.ids:
                base.check_stored_name(item_id)
        if change.starts and change.starts not in (*self.links, *(link.id for link in change.links)):
            raise NotFound("response", change.starts)
        self.agents.check(change, self.sessions)
        return grown, [_copy_link(link) for link in change.links]

    def _check_heads(self, change: Transaction) -> None:
        if change.session:
            record = self.sessions.get(change.session.id)
            base.check_expected_head(f"session {change.session.name!r}", change.expect, record.head if record else None)
            named = next((one.id for one in self.sessions.values() if one.name == change.session.name), None)
            if named not in (None, change.session.id):
                raise base.session_name_taken_error(change.session.name)
        if change.conversation:
            there = self.conversations.get(change.conversation.id)
            base.check_expected_head(change.conversation.id, change.conversation_expect, there.head if there else None)
        if change.ends:
            self.runs.one(change.ends)
        if change.agent_run:
            self.agents.expect(change.agent_run)

    def make(self, change: Transaction, grown: PlannedNodes, links: Iterable[Link], now: float) -> None:
        """Apply a transaction that was checked."""
        self.tree.plant(grown)
        for new in links:
            there = self.links.get(new.id)
            self.links[new.id] = base.merge_link(there, new)
            self.tree.move(there, self.links[new.id])
        if change.session:
            before = self.sessions.get(change.session.id)
            self.tree.move(before, change.session)
            self.sessions[change.session.id] = replace(change.session, use=self._place(before, change.session))
            self.removed.discard(change.session.id)
        if change.conversation:
            self.tree.move(self.conversations.get(change.conversation.id), change.conversation)
            self.conversations[change.conversation.id] = replace(
                change.conversation, metadata=dict(change.conversation.metadata)
            )
        for key in {*change.erase, *self._left_behind(change)}:
            self.tree.empty(key)
        if change.starts:
            self.runs.start(change.starts)
        if change.ends:
            self.runs.end(change.ends, now)
        self.agents.make(change)
        self.tree.sweep()

    def _place(self, before: Session | None, new: Session) -> int:
        """Return a session's use order: its own, or else the stored one, or the next one if `new` is a use."""
        if new.use is not None:
            return new.use
        if before and before.use is not None and before.used_at == new.used_at:
            return before.use
        return max((one.use or 0 for one in self.sessions.values()), default=0) + 1

    def _left_behind(self, change: Transaction) -> Iterator[Key]:
        """Iterate over other nodes of a conversation's erased items, on the paths of its links and not on its own."""
        if not change.conversation:
            return
        erased = {self.tree.places[key].item for key in change.erase} - {None}
        own = {key for key, _ in self.tree.walk(change.conversation.head)}
        for link in self.links.values() if erased else ():
            if link.conversation_id == change.conversation.id:
                there = self.tree.walk(link.head)
                yield from (key for key, place in there if place.item in erased and key not in own)

    def take_session(self, session_id: str) -> None:
        self.tree.move(self.sessions.pop(session_id), None)
        self.removed.add(session_id)
        self.agents.drop(session_id)

    def take_link(self, link_id: str) -> None:
        self.tree.move(self.links.pop(link_id), None)
        self.runs.drop(link_id)

    def take_conversation(self, conversation_id: str) -> None:
        self.tree.move(self.conversations.pop(conversation_id), None)

    def tidy(self) -> None:
        """Delete what nothing references any more after a removal."""
        self.removed &= {link.session for link in self.links.values() if link.session}
        self.tree.sweep()

    def chained(self, sessions: Iterable[Session]) -> set[str]:
        """Return the ids of the links that `sessions` continue, back to the first of each chain."""
        found: set[str] = set()
        for session in sessions:
            at = session.link
            while at is not None and at not in found:
                found.add(at)
                at = self.links[at].parent if at in self.links else None
        return found

    def reached(self, session: Session) -> set[Key]:
        """Return every node on the paths of a session's record and of its links."""
        records: list[NodeReferrer] = [session, *(link for link in self.links.values() if link.session == session.id)]
        return {key for record in records for end in _referenced_keys(record) for key, _ in self.tree.walk(end)}

    def oldest_first(self, wanted: Callable[[Link], bool]) -> list[Link]:
        return [_copy_link(link) for link in sorted(self.links.values(), key=_link_created_at) if wanted(link)]

    def called(self, item_id: str) -> list[Hash]:
        """Return the items with this id, their own or assigned by a conversation; the one stored last comes first."""
        given = (hashed for one in self.conversations.values() for hashed in self._given(one, item_id))
        found = self.tree.named(item_id).union(given)
        return sorted(found, key=lambda hashed: self.tree.bodies[hashed].number, reverse=True)

    def _given(self, conversation: Conversation, item_id: str) -> list[Hash]:
        if item_id not in conversation.ids:
            return []
        behind = len(conversation.ids) - 1 - conversation.ids.index(item_id)
        _, place = next(islice(self.tree.walk(conversation.head), behind, None))
        return [place.item] if place.item else []

    def words(self, key: Key) -> str:
        """Return the first words of the item at `key`; "" if there is none."""
        item = self.tree.places[key].item
        return item_preview(decode_json(self.tree.bodies[item].text)) if item else ""


def _link_created_at(link: Link) -> float:
    return link.created_at


def _copy_link(link: Link) -> Link:
    """Copy a link without sharing mutable values."""
    return replace(
        link,
        parameters=decode_json(encode_json(link.parameters)),
        usage=decode_json(encode_json(link.usage)),
        error=decode_json(encode_json(link.error)),
    )


@dataclass(slots=True)
class ResponseRun:
    """The run of a response.

    ended_at:  None while it is open
    events:    sequence numbers with the JSON texts
    """

    ended_at: float | None = None
    events: list[tuple[int, str]] = field(default_factory=list)


class ResponseRuns:
    """The runs of one tenant, by response id."""

    def __init__(self) -> None:
        self._runs: dict[str, ResponseRun] = {}

    def open(self) -> list[str]:
        """Return the responses whose run is open, in the order in which they started."""
        return [name for name, run in self._runs.items() if run.ended_at is None]

    def start(self, response_id: str) -> None:
        self._runs.setdefault(response_id, ResponseRun()).ended_at = None

    def one(self, response_id: str) -> ResponseRun:
        """Return the open run of a response. Raises Conflict."""
        found = self._runs.get(response_id)
        if found is None or found.ended_at is not None:
            raise base.run_not_open_error(response_id)
        return found

    def end(self, response_id: str, now: float) -> None:
        run = self._runs[response_id]
        run.ended_at = now
        if not run.events:
            self.drop(response_id)

    def drop(self, response_id: str) -> None:
        self._runs.pop(response_id, None)

    def append(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        """Append events to an open run. Raises Conflict and InputFault."""
        run = self.one(response_id)
        base.check_sequence_numbers(events, run.events[-1][0] if run.events else -1)
        run.events += [(event["sequence_number"], encode_json(event)) for event in events]

    def events(self, response_id: str, after: int) -> list[StreamEvent]:
        run = self._runs.get(response_id, ResponseRun())
        return [decode_json(text) for number, text in run.events if number > after]

    def texts(self) -> list[str]:
        """Return every stored event."""
        return [text for run in self._runs.values() for _, text in run.events]

    def forget(self, before: float) -> int:
        """Delete the runs that ended before this moment and return their number."""
        old = [name for name, run in self._runs.items() if run.ended_at is not None and run.ended_at < before]
        for name in old:
            self.drop(name)
        return len(old)


class AgentRuns:
    """The agent runs of one tenant, with their calls in the order in which each was first written."""

    def __init__(self) -> None:
        self.runs: dict[str, AgentRun] = {}
        self._calls: dict[str, dict[str, AgentCall]] = {}

    def expect(self, new: AgentRun) -> None:
        """Check that a run has the revision after the stored one. Raises Conflict."""
        there = self.runs.get(new.id)
        base.check_next_revision(new, there.revision if there else 0)

    def check(self, change: Transaction, sessions: Container[str]) -> None:
        """Check that a run and calls can be written. Raises NotFound and NotCanonical.

        sessions:  the ids of the stored sessions
        """
        new = change.agent_run
        if new:
            if new.session not in sessions and not (change.session and change.session.id == new.session):
                raise NotFound("session", new.session)
            encode_json(dict(new.document))
        for call in change.calls:
            if call.run not in self.runs and not (new and call.run == new.id):
                raise base.agent_run_not_found_error(call.run)
            encode_json(call.output if call.ended else None)

    def make(self, change: Transaction) -> None:
        new = change.agent_run
        if new:
            there = self.runs.get(new.id)
            self.runs[new.id] = (
                replace(new, document=there.document)
                if there and new.document is UNCHANGED_DOCUMENT
                else _copy_run(new)
            )
        for call in change.calls:
            ledger = self._calls.setdefault(call.run, {})
            if call.call_id not in ledger or not ledger[call.call_id].ended:
                ledger[call.call_id] = call._replace(output=_copy_json(call.output) if call.ended else None)

    def run(self, run_id: str) -> AgentRun | None:
        found = self.runs.get(run_id)
        return found and _copy_run(found)

    def newest_first(self) -> Iterator[AgentRun]:
        yield from map(_copy_run, sorted(self.runs.values(), key=lambda run: run.changed_at)[::-1])

    def calls(self, run_id: str) -> list[AgentCall]:
        ledger = sorted(self._calls.get(run_id, {}).values(), key=lambda call: call.started_at)
        return [call._replace(output=_copy_json(call.output)) for call in ledger]

    def drop(self, session_id: str) -> None:
        """Delete the runs of a session, and their calls."""
        for run in [run.id for run in self.runs.values() if run.session == session_id]:
            del self.runs[run]
            self._calls.pop(run, None)

    def texts(self) -> Iterator[str]:
        """Iterate over every stored document and output."""
        yield from (encode_json(dict(run.document)) for run in self.runs.values())
        yield from (encode_json(call.output) for ledger in self._calls.values() for call in ledger.values())


def _copy_run(run: AgentRun) -> AgentRun:
    """Copy a run without sharing mutable values."""
    return replace(run, document=_copy_json(dict(run.document)))


def _copy_json(value: Json) -> Json:
    return decode_json(encode_json(value))


RECORD_OVERHEAD_BYTES = 100
"""Estimated bytes of a record besides its texts."""


class MemoryAdmin:
    """`StoreAdmin` over the tenants of one `MemoryStore`, with its clock."""

    def __init__(self, tenants: Mapping[str, TenantData], secrets: dict[str, bytes], now: Callable[[], float]) -> None:
        self._tenants, self._secrets, self._now = tenants, secrets, now

    async def migrate(self) -> Sequence[int]:
        return []

    async def check(self) -> None:
        """Do nothing: memory is always reachable."""

    async def check_room(self) -> None:
        """Do nothing: memory has no disk."""

    async def holdings(self) -> Sequence[TenantStats]:
        found = [_tenant_stats(name, tenant) for name, tenant in sorted(self._tenants.items())]
        return [one for one in found if any(one.rows.values())]

    async def tenants(self) -> Sequence[str]:
        return sorted(self._tenants)

    async def size(self) -> int | None:
        return None

    def observe(self, observe: TransactionObserver) -> None:
        """Do nothing: transactions in memory take no time worth measuring."""

    async def prune(self, tenant: str, before: float, *, dry: bool) -> PruneResult:
        return (
            _prune_tenant(self._tenants[tenant], before, dry=dry) if tenant in self._tenants else PruneResult(0, 0, 0)
        )

    async def abandoned(self) -> Sequence[AbandonedRun]:
        return [
            AbandonedRun(name, response)
            for name, tenant in sorted(self._tenants.items())
            for response in tenant.runs.open()
            if not self._alive(tenant, response)
        ]

    def _alive(self, tenant: TenantData, response: str) -> bool:
        lease = tenant.leases.get(run_lease_name(response))
        return lease is not None and lease.expires_at > self._now()

    async def forget_events(self, older_than_s: float) -> int:
        before, forgotten = self._now() - older_than_s, 0
        for tenant in self._tenants.values():
            forgotten += tenant.runs.forget(before)
            tenant.leases = {name: lease for name, lease in tenant.leases.items() if lease.expires_at >= before}
        return forgotten

    async def secret(self, name: str, fresh: bytes) -> bytes:
        return self._secrets.setdefault(name, fresh)


def _tenant_stats(name: str, tenant: TenantData) -> TenantStats:
    texts = tenant.runs.texts()
    runs = list(tenant.agents.texts())
    made = [link.created_at for link in tenant.links.values()]
    made += [conversation.created_at for conversation in tenant.conversations.values()]
    rows = {
        "sessions": len(tenant.sessions),
        "responses": len(tenant.links),
        "conversations": len(tenant.conversations),
        "items": len(tenant.tree.bodies),
        "places": len(tenant.tree.places) - 1,
        "events": len(texts),
        "runs": len(tenant.agents.runs),
    }
    said = [body.text for body in tenant.tree.bodies.values()] + texts + runs
    said += [encode_json(link.parameters) for link in tenant.links.values()]
    size = sum(len(text.encode()) for text in said) + RECORD_OVERHEAD_BYTES * sum(rows.values())
    return TenantStats(name, rows, size, min(made, default=None), max(made, default=None))


class MemoryStore:
    """`Store` in memory, for the lifetime of the process.

    now:  the clock of the leases, in seconds
    """

    def __init__(self, tenant: str = "local", *, now: Callable[[], float] = time.time) -> None:
        self.tenant = tenant
        self._now = now
        self._tenants: dict[str, TenantData] = {}
        self._secrets: dict[str, bytes] = {}

    @property
    def upkeep(self) -> MemoryAdmin:
        return MemoryAdmin(self._tenants, self._secrets, self._now)

    @property
    def _mine(self) -> TenantData:
        if self.tenant not in self._tenants:
            self._tenants[self.tenant] = TenantData(self.tenant)
        return self._tenants[self.tenant]

    def of(self, tenant: str) -> "MemoryStore":
        other = MemoryStore(tenant, now=self._now)
        other._tenants, other._secrets = self._tenants, self._secrets
        return other

    async def commit(self, change: Transaction) -> None:
        grown, links = self._mine.check(change)
        self._mine.make(change, grown, links, self._now())

    async def path(self, head: Key) -> Path:
        tree = self._mine.tree
        if head not in tree.places:
            raise base.node_not_found_error(head)
        walked = [(key, place.item) for key, place in tree.walk(head)][::-1]
        return Path(self._mine.root, Prefix(Node(key, self._item(key, item)) for key, item in walked))

    async def tail(self, head: Key, after: Key) -> Sequence[Item]:
        tree = self._mine.tree
        if head not in tree.places:
            raise base.node_not_found_error(head)
        behind = list(takewhile(lambda one: one[0] != after, tree.walk(head)))
        if after != (tree.places[behind[-1][0]].parent if behind else head):
            raise base.not_on_path_error(after)
        return [self._item(key, place.item) for key, place in behind[::-1]]

    def _item(self, key: Key, item: Hash | None) -> dict[str, object]:
        if item is None:
            raise ItemDeleted(key)
        found: dict[str, object] = decode_json(self._mine.tree.bodies[item].text)
        return found

    async def session(self, name_or_id: str) -> Session | None:
        named = (one for one in self._mine.sessions.values() if one.name == name_or_id)
        return self._mine.sessions.get(name_or_id) or next(named, None)

    async def sessions(self, *, limit: int | None = None) -> Sequence[Session]:
        return self._by_use()[:limit]

    def _by_use(self) -> list[Session]:
        return sorted(self._mine.sessions.values(), key=lambda session: session.use or 0)[::-1]

    async def outline(self, session_id: str) -> SessionStats:
        session = self._mine.sessions.get(session_id)
        if session is None:
            raise NotFound("session", session_id)
        back = list(self._mine.tree.walk(session.head))
        first = back[-1][1].item if back else None
        return SessionStats(
            items=len(back),
            waiting=next((at for at, (key, _) in enumerate(back) if key == session.mark), len(back)),
            turns=sum(link.status in base.ANSWERED_STATUSES for link in await self.links(session_id)),
            first=decode_json(self._mine.tree.bodies[first].text) if first else None,
        )

    async def link(self, link_id: str) -> Link | None:
        found = self._mine.links.get(link_id)
        return found and _copy_link(found)

    async def links(self, session_id: str) -> Sequence[Link]:
        return self._mine.oldest_first(lambda link: link.session == session_id)

    async def answers(self, *saw: Key) -> Sequence[Link]:
        places = set(saw)
        return self._mine.oldest_first(lambda link: link.saw in places)

    async def family(self, link_id: str) -> Sequence[Link]:
        near: dict[str, set[str]] = defaultdict(set)
        for link in self._mine.links.values():
            if link.parent:
                near[link.id].add(link.parent)
                near[link.parent].add(link.id)
        kin, ahead = set(), [link_id] if link_id in self._mine.links else []
        while ahead:
            kin.add(at := ahead.pop())
            ahead.extend(near[at] - kin)
        return self._mine.oldest_first(lambda link: link.id in kin)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        found = self._mine.conversations.get(conversation_id)
        return found and replace(found, metadata=dict(found.metadata))

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        return self._mine.oldest_first(lambda link: link.conversation_id == conversation_id)

    async def item(self, item_id: str) -> Item | None:
        mine, digits = self._mine, base.parse_key_prefix(item_id)
        called = next(iter(mine.called(item_id)), None)
        place = mine.tree.beginning(digits) if called is None else None
        found = mine.tree.places[place].item if place else called
        return decode_json(mine.tree.bodies[found].text) if found else None

    async def append(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        self._mine.runs.append(response_id, events)

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[StreamEvent]:
        return self._mine.runs.events(response_id, after)

    async def agent_run(self, run_id: str) -> AgentRun | None:
        return self._mine.agents.run(run_id)

    async def agent_runs(
        self, *, session: str | None = None, state: str | None = None, status: str | None = None, limit: int = 100
    ) -> Sequence[AgentRun]:
        found = self._mine.agents.newest_first()
        return [
            run
            for run in found
            if session in (None, run.session) and state in (None, run.state) and status in (None, run.status)
        ][:limit]

    async def calls(self, run_id: str) -> Sequence[AgentCall]:
        return self._mine.agents.calls(run_id)

    async def find(self, prefix: str, *, limit: int = 20) -> Sequence[HandleMatch]:
        return [found for found, names in self._known() if any(one.startswith(prefix) for one in names)][:limit]

    def _known(self) -> Iterator[tuple[HandleMatch, tuple[str, ...]]]:
        """Iterate over all records that have a handle, with their names."""
        mine = self._mine
        for session in self._by_use():
            yield HandleMatch("session", session.id, session.name), (session.id, session.name)
        for link in sorted(mine.links.values(), key=_link_created_at)[::-1]:
            yield HandleMatch("response", link.id, mine.words(link.saw)), (link.id,)
        for conversation in sorted(mine.conversations.values(), key=lambda one: one.created_at)[::-1]:
            yield HandleMatch("conversation", conversation.id, mine.words(conversation.head)), (conversation.id,)
        for run in mine.agents.newest_first():
            yield HandleMatch("run", run.id, run.status), (run.id,)

    async def search(self, words: str, *, limit: int = 20) -> Sequence[SearchHit]:
        sought, tree = parse_search_phrases(words), self._mine.tree
        best = {item: rank for item, body in tree.bodies.items() if (rank := phrase_density(body.terms, sought))}
        found = [
            (-best[item], SearchHit(session, key, self._item(key, item)))
            for session in self._by_use()
            for item, key in self._first_places(session).items()
            if item in best
        ]
        return [hit for _, hit in sorted(found, key=lambda one: one[0])][:limit]

    def _first_places(self, session: Session) -> dict[Hash, Key]:
        """Return the node of each item that a session reaches; the one created first, if there are several."""
        places = self._mine.tree.places
        newest_first = sorted(self._mine.reached(session), key=lambda key: places[key].number, reverse=True)
        return {item: key for key in newest_first if (item := places[key].item)}

    async def remove_session(self, session_id: str) -> None:
        mine = self._mine
        if session_id not in mine.sessions:
            raise NotFound("session", session_id)
        mine.take_session(session_id)
        chained = mine.chained(mine.sessions.values())
        for link in [one for one in mine.links.values() if one.session in mine.removed and one.id not in chained]:
            mine.take_link(link.id)
        mine.tidy()

    async def remove_link(self, link_id: str) -> None:
        if link_id not in self._mine.links:
            raise NotFound("response", link_id)
        self._mine.take_link(link_id)
        self._mine.tidy()

    async def remove_conversation(self, conversation_id: str) -> None:
        if conversation_id not in self._mine.conversations:
            raise NotFound("conversation", conversation_id)
        self._mine.take_conversation(conversation_id)
        self._mine.tidy()

    async def lease(self, name: str, holder: str, ttl_s: float, *, instead_of: str | None = None) -> Lease:
        base.check_stored_name(name)
        base.check_stored_name(holder)
        there = self._mine.leases.get(name)
        if there and there.expires_at > self._now() and there.holder not in (holder, instead_of):
            raise Busy(name, there.holder)
        self._mine.leases[name] = lease = Lease(name, holder, self._now() + ttl_s)
        return lease

    async def release(self, lease: Lease) -> None:
        there = self._mine.leases.get(lease.name)
        if there and there.holder == lease.holder:
            del self._mine.leases[lease.name]

    async def holder(self, name: str) -> str | None:
        there = self._mine.leases.get(name)
        return there.holder if there and there.expires_at > self._now() else None

    async def revision(self) -> None:
        return None

    async def aclose(self) -> None:
        self._tenants.clear()


class PrunableIds(NamedTuple):
    """The ids of the records that a pruning deletes."""

    sessions: list[str]
    links: list[str]
    conversations: list[str]


def _prune_tenant(mine: TenantData, before: float, *, dry: bool) -> PruneResult:
    """Delete the records last used before this moment, or only count them."""
    old = _find_prunable(mine, before)
    if not dry:
        for take, names in zip((mine.take_session, mine.take_link, mine.take_conversation), old, strict=True):
            for name in names:
                take(name)
        mine.tidy()
    return PruneResult(*map(len, old))


def _find_prunable(mine: TenantData, before: float) -> PrunableIds:
    running = [mine.links[name] for name in mine.runs.open()]
    kept = [one for one in mine.sessions.values() if one.used_at >= before or _made_any_link(one, running)]
    return PrunableIds(
        [name for name in mine.sessions if name not in {session.id for session in kept}],
        list(_prunable_links(mine, before, kept)),
        [one.id for one in mine.conversations.values() if not _is_conversation_retained(one, mine, before, kept)],
    )


def _made_any_link(session: Session, links: list[Link]) -> bool:
    return any(link.session == session.id for link in links)


def _prunable_links(mine: TenantData, before: float, kept: list[Session]) -> Iterator[str]:
    """Iterate over unreferenced links: those of deleted or prunable sessions, and old ones that no session made."""
    holders, held = {session.id for session in kept}, {*mine.chained(kept), *mine.runs.open()}
    for link in mine.links.values():
        orphan = link.session in mine.removed or link.session in mine.sessions or link.created_at < before
        if link.session not in holders and link.id not in held and orphan:
            yield link.id


def _is_conversation_retained(one: Conversation, mine: TenantData, before: float, kept: list[Session]) -> bool:
    """Return whether a session references a conversation, or it was created or used since, or its run is open."""
    running = mine.runs.open()
    answered = (link for link in mine.links.values() if link.conversation_id == one.id)
    return (
        one.created_at >= before
        or one.id in {session.handle for session in kept}
        or any(link.created_at >= before or link.id in running for link in answered)
    )
