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
from operator import attrgetter
from typing import NamedTuple

from convo.errors import Busy, ItemDeleted, NotFound
from convo.history.canonical import Hash, item_hash
from convo.history.items import Item, Json, StreamEvent, item_preview
from convo.history.records import ANSWERED_STATUSES, Link, Session
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

    sequence: int
    depth: int
    parent: Key | None
    item_hash: Hash | None


@dataclass(slots=True)
class StoredItem:
    """An item as JSON text, with its own id and its search terms; `sequence` counts up."""

    sequence: int
    text: str
    id: str
    terms: str

    @classmethod
    def from_text(cls, number: int, text: str) -> "StoredItem":
        item = decode_json(text)
        return cls(number, text, base.own_item_id(item), tokenize_item(item))


PlannedNodes = dict[Key, tuple[Key, Hash, str]]
"""Nodes that a transaction creates: parent, hash of the item, text of the item."""

NodeReferrer = Link | Session | Conversation
"""A record that references nodes."""


class ItemTree:
    """One tenant's nodes and items, and the number of references to each."""

    def __init__(self, top: Key) -> None:
        self.nodes: dict[Key, TreeNode] = {top: TreeNode(0, 0, None, None)}
        self.items: dict[Hash, StoredItem] = {}
        self._hashes_by_id: defaultdict[str, set[Hash]] = defaultdict(set)
        self._reference_counts: Counter[str] = Counter({top: 1})
        self._unchecked_nodes: list[Key] = []
        self._last_sequence = 0

    def walk_to_root(self, key: Key) -> Iterator[tuple[Key, TreeNode]]:
        """Iterate over the nodes from `key` towards the root, which is left out."""
        while (place := self.nodes[key]).parent is not None:
            yield key, place
            key = place.parent

    def plan_nodes(self, grow: Iterable[AppendItems]) -> PlannedNodes:
        """Return the nodes of these items; nothing is stored. Raises NotFound."""
        grown: PlannedNodes = {}
        for growth in grow:
            at = growth.after
            if at not in self.nodes and at not in grown:
                raise base.node_not_found_error(at)
            for item in growth.items:
                hashed = item_hash(item)
                parent, at = at, child_key(at, hashed)
                grown.setdefault(at, (parent, hashed, encode_json(item)))
        return grown

    def path_length(self, key: Key, grown: PlannedNodes) -> int:
        """Return the number of items on the path to `key`, which may be a planned node."""
        count = 0
        while key not in self.nodes:
            count, key = count + 1, grown[key][0]
        return count + self.nodes[key].depth

    def insert_nodes(self, grown: PlannedNodes) -> None:
        for key, (parent, item, text) in grown.items():
            if key not in self.nodes:
                self._last_sequence += 1
                self.nodes[key] = TreeNode(self._last_sequence, self.nodes[parent].depth + 1, parent, None)
                self._reference_counts[parent] += 1
            self._unchecked_nodes.append(key)
            if self.nodes[key].item_hash is None:
                self.nodes[key].item_hash = item
                self._reference_counts[item] += 1
                self._insert_item(item, text)

    def _insert_item(self, item: Hash, text: str) -> None:
        if item not in self.items:
            self._last_sequence += 1
            self.items[item] = body = StoredItem.from_text(self._last_sequence, text)
            self._hashes_by_id[body.id].add(item)

    def replace_references(self, old: NodeReferrer | None, new: NodeReferrer | None) -> None:
        """Move the references of the record `old` to the nodes of `new`."""
        self._reference_counts.update(_referenced_keys(new))
        self._reference_counts.subtract(_referenced_keys(old))
        self._unchecked_nodes.extend(_referenced_keys(old))

    def erase_item(self, key: Key) -> None:
        """Remove the item of a node, and delete the item if this was its last node."""
        item, self.nodes[key].item_hash = self.nodes[key].item_hash, None
        if item is not None:
            self._reference_counts[item] -= 1
            if not self._reference_counts[item]:
                del self._reference_counts[item]
                self._hashes_by_id[self.items.pop(item).id].discard(item)

    def items_with_own_id(self, item_id: str) -> set[Hash]:
        """Return the hashes of the items with this id of their own."""
        return self._hashes_by_id.get(item_id, set()) if item_id else set()

    def find_node_by_prefix(self, digits: str) -> Key | None:
        """Return a node whose key begins with `digits`."""
        return next((key for key in self.nodes if key.startswith(digits)), None) if digits else None

    def delete_unreferenced_nodes(self) -> None:
        """Delete every node that nothing references any more."""
        while self._unchecked_nodes:
            key = self._unchecked_nodes.pop()
            if key in self.nodes and not self._reference_counts[key]:
                self.erase_item(key)
                parent = self.nodes.pop(key).parent
                assert parent is not None  # the root is always referenced
                self._reference_counts[parent] -= 1
                self._unchecked_nodes.append(parent)


def _referenced_keys(record: NodeReferrer | None) -> tuple[Key, ...]:
    if record is None:
        return ()
    if isinstance(record, Link):
        return (record.input_head, record.head)
    if isinstance(record, Conversation):
        return (record.head,)
    return (record.head, record.confirmed_head, *((record.file_head,) if record.file_head else ()))


class TenantData:
    """All data of one tenant."""

    def __init__(self, tenant: str) -> None:
        self.root = root_key(tenant)
        self.tree = ItemTree(self.root)
        self.links: dict[str, Link] = {}
        self.sessions: dict[str, Session] = {}
        self.removed_sessions: set[str] = set()
        self.conversations: dict[str, Conversation] = {}
        self.leases: dict[str, Lease] = {}
        self.response_runs = ResponseRuns()
        self.agent_runs = AgentRuns()

    def check_transaction(self, change: Transaction) -> tuple[PlannedNodes, list[Link]]:
        """Check a transaction; return the planned nodes and copies of its links. Raises the errors of `commit`."""
        base.check_stored_names(change)
        self._check_expected_heads(change)
        grown = self.tree.plan_nodes(change.appends)
        for key in (*base.iter_referenced_keys(change), *change.erased_nodes):
            if key not in self.tree.nodes and key not in grown:
                raise base.node_not_found_error(key)
        if change.conversation:
            base.check_item_ids(change.conversation, self.tree.path_length(change.conversation.head, grown))
            for item_id in change.conversation.item_ids:
                base.check_stored_name(item_id)
        if change.started_run_id and change.started_run_id not in (*self.links, *(link.id for link in change.links)):
            raise NotFound("response", change.started_run_id)
        self.agent_runs.check_references(change, self.sessions)
        return grown, [_copy_link(link) for link in change.links]

    def _check_expected_heads(self, change: Transaction) -> None:
        if change.session:
            record = self.sessions.get(change.session.id)
            base.check_expected_head(
                f"session {change.session.name!r}", change.expected_session_head, record.head if record else None
            )
            named = next((one.id for one in self.sessions.values() if one.name == change.session.name), None)
            if named not in (None, change.session.id):
                raise base.session_name_taken_error(change.session.name)
        if change.conversation:
            there = self.conversations.get(change.conversation.id)
            base.check_expected_head(
                change.conversation.id, change.expected_conversation_head, there.head if there else None
            )
        if change.ended_run_id:
            self.response_runs.require_open(change.ended_run_id)
        if change.agent_run:
            self.agent_runs.check_revision(change.agent_run)

    def apply_transaction(self, change: Transaction, grown: PlannedNodes, links: Iterable[Link], now: float) -> None:
        """Apply a transaction that was checked."""
        self.tree.insert_nodes(grown)
        for new in links:
            there = self.links.get(new.id)
            self.links[new.id] = base.merge_link(there, new)
            self.tree.replace_references(there, self.links[new.id])
        if change.session:
            before = self.sessions.get(change.session.id)
            self.tree.replace_references(before, change.session)
            self.sessions[change.session.id] = replace(
                change.session, use_order=self._use_number(before, change.session)
            )
            self.removed_sessions.discard(change.session.id)
        if change.conversation:
            self.tree.replace_references(self.conversations.get(change.conversation.id), change.conversation)
            self.conversations[change.conversation.id] = replace(
                change.conversation, metadata=dict(change.conversation.metadata)
            )
        for key in {*change.erased_nodes, *self._other_nodes_of_erased_items(change)}:
            self.tree.erase_item(key)
        if change.started_run_id:
            self.response_runs.start(change.started_run_id)
        if change.ended_run_id:
            self.response_runs.end(change.ended_run_id, now)
        self.agent_runs.apply_transaction(change)
        self.tree.delete_unreferenced_nodes()

    def _use_number(self, before: Session | None, new: Session) -> int:
        """Return a session's use order: its own, or else the stored one, or the next one if `new` is a use."""
        if new.use_order is not None:
            return new.use_order
        if before and before.use_order is not None and before.used_at == new.used_at:
            return before.use_order
        return max((one.use_order or 0 for one in self.sessions.values()), default=0) + 1

    def _other_nodes_of_erased_items(self, change: Transaction) -> Iterator[Key]:
        """Iterate over other nodes of a conversation's erased items, on the paths of its links and not on its own."""
        if not change.conversation:
            return
        erased = {self.tree.nodes[key].item_hash for key in change.erased_nodes} - {None}
        own = {key for key, _ in self.tree.walk_to_root(change.conversation.head)}
        for link in self.links.values() if erased else ():
            if link.conversation_id == change.conversation.id:
                there = self.tree.walk_to_root(link.head)
                yield from (key for key, place in there if place.item_hash in erased and key not in own)

    def delete_session(self, session_id: str) -> None:
        self.tree.replace_references(self.sessions.pop(session_id), None)
        self.removed_sessions.add(session_id)
        self.agent_runs.delete_runs_of_session(session_id)

    def delete_link(self, link_id: str) -> None:
        self.tree.replace_references(self.links.pop(link_id), None)
        self.response_runs.delete(link_id)

    def delete_conversation(self, conversation_id: str) -> None:
        self.tree.replace_references(self.conversations.pop(conversation_id), None)

    def delete_unreferenced(self) -> None:
        """Delete what nothing references any more after a removal."""
        self.removed_sessions &= {link.session_id for link in self.links.values() if link.session_id}
        self.tree.delete_unreferenced_nodes()

    def chained_link_ids(self, sessions: Iterable[Session]) -> set[str]:
        """Return the ids of the links that `sessions` continue, back to the first of each chain."""
        found: set[str] = set()
        for session in sessions:
            at = session.link_id
            while at is not None and at not in found:
                found.add(at)
                at = self.links[at].parent_id if at in self.links else None
        return found

    def reachable_keys(self, session: Session) -> set[Key]:
        """Return every node on the paths of a session's record and of its links."""
        records: list[NodeReferrer] = [
            session,
            *(link for link in self.links.values() if link.session_id == session.id),
        ]
        return {key for record in records for end in _referenced_keys(record) for key, _ in self.tree.walk_to_root(end)}

    def links_oldest_first(self, wanted: Callable[[Link], bool]) -> list[Link]:
        return [_copy_link(link) for link in sorted(self.links.values(), key=attrgetter("created_at")) if wanted(link)]

    def items_with_id(self, item_id: str) -> list[Hash]:
        """Return the items with this id, their own or assigned by a conversation; the one stored last comes first."""
        given = (hashed for one in self.conversations.values() for hashed in self._items_with_assigned_id(one, item_id))
        found = self.tree.items_with_own_id(item_id).union(given)
        return sorted(found, key=lambda hashed: self.tree.items[hashed].sequence, reverse=True)

    def _items_with_assigned_id(self, conversation: Conversation, item_id: str) -> list[Hash]:
        if item_id not in conversation.item_ids:
            return []
        behind = len(conversation.item_ids) - 1 - conversation.item_ids.index(item_id)
        _, place = next(islice(self.tree.walk_to_root(conversation.head), behind, None))
        return [place.item_hash] if place.item_hash else []

    def first_words_at(self, key: Key) -> str:
        """Return the first words of the item at `key`; "" if there is none."""
        item = self.tree.nodes[key].item_hash
        return item_preview(decode_json(self.tree.items[item].text)) if item else ""


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

    def open_response_ids(self) -> list[str]:
        """Return the responses whose run is open, in the order in which they started."""
        return [name for name, run in self._runs.items() if run.ended_at is None]

    def start(self, response_id: str) -> None:
        self._runs.setdefault(response_id, ResponseRun()).ended_at = None

    def require_open(self, response_id: str) -> ResponseRun:
        """Return the open run of a response. Raises Conflict."""
        found = self._runs.get(response_id)
        if found is None or found.ended_at is not None:
            raise base.run_not_open_error(response_id)
        return found

    def end(self, response_id: str, now: float) -> None:
        run = self._runs[response_id]
        run.ended_at = now
        if not run.events:
            self.delete(response_id)

    def delete(self, response_id: str) -> None:
        self._runs.pop(response_id, None)

    def append(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        """Append events to an open run. Raises Conflict and InputFault."""
        run = self.require_open(response_id)
        base.check_sequence_numbers(events, run.events[-1][0] if run.events else -1)
        run.events += [(event["sequence_number"], encode_json(event)) for event in events]

    def events(self, response_id: str, after: int) -> list[StreamEvent]:
        run = self._runs.get(response_id, ResponseRun())
        return [decode_json(text) for number, text in run.events if number > after]

    def event_texts(self) -> list[str]:
        """Return every stored event."""
        return [text for run in self._runs.values() for _, text in run.events]

    def prune(self, before: float) -> int:
        """Delete the runs that ended before this moment and return their number."""
        old = [name for name, run in self._runs.items() if run.ended_at is not None and run.ended_at < before]
        for name in old:
            self.delete(name)
        return len(old)


class AgentRuns:
    """The agent runs of one tenant, with their calls in the order in which each was first written."""

    def __init__(self) -> None:
        self.runs: dict[str, AgentRun] = {}
        self._calls: dict[str, dict[str, AgentCall]] = {}

    def check_revision(self, new: AgentRun) -> None:
        """Check that a run has the revision after the stored one. Raises Conflict."""
        there = self.runs.get(new.id)
        base.check_next_revision(new, there.revision if there else 0)

    def check_references(self, change: Transaction, sessions: Container[str]) -> None:
        """Check that a run and calls can be written. Raises NotFound and NotCanonical.

        sessions:  the ids of the stored sessions
        """
        new = change.agent_run
        if new:
            if new.session_id not in sessions and not (change.session and change.session.id == new.session_id):
                raise NotFound("session", new.session_id)
            encode_json(dict(new.document))
        for call in change.agent_calls:
            if call.run_id not in self.runs and not (new and call.run_id == new.id):
                raise base.agent_run_not_found_error(call.run_id)
            encode_json(call.output if call.has_ended else None)

    def apply_transaction(self, change: Transaction) -> None:
        new = change.agent_run
        if new:
            there = self.runs.get(new.id)
            self.runs[new.id] = (
                replace(new, document=there.document)
                if there and new.document is UNCHANGED_DOCUMENT
                else _copy_run(new)
            )
        for call in change.agent_calls:
            ledger = self._calls.setdefault(call.run_id, {})
            if call.call_id not in ledger or not ledger[call.call_id].has_ended:
                ledger[call.call_id] = call._replace(output=_copy_json(call.output) if call.has_ended else None)

    def get_run(self, run_id: str) -> AgentRun | None:
        found = self.runs.get(run_id)
        return found and _copy_run(found)

    def runs_newest_first(self) -> Iterator[AgentRun]:
        yield from map(_copy_run, sorted(self.runs.values(), key=lambda run: run.changed_at)[::-1])

    def list_calls(self, run_id: str) -> list[AgentCall]:
        ledger = sorted(self._calls.get(run_id, {}).values(), key=lambda call: call.started_at)
        return [call._replace(output=_copy_json(call.output)) for call in ledger]

    def delete_runs_of_session(self, session_id: str) -> None:
        """Delete the runs of a session, and their calls."""
        for run in [run.id for run in self.runs.values() if run.session_id == session_id]:
            del self.runs[run]
            self._calls.pop(run, None)

    def stored_texts(self) -> Iterator[str]:
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

    async def check_ready(self) -> None:
        """Do nothing: memory is always reachable."""

    async def check_disk_space(self) -> None:
        """Do nothing: memory has no disk."""

    async def tenant_stats(self) -> Sequence[TenantStats]:
        found = [_tenant_stats(name, tenant) for name, tenant in sorted(self._tenants.items())]
        return [one for one in found if any(one.row_counts.values())]

    async def tenant_names(self) -> Sequence[str]:
        return sorted(self._tenants)

    async def size_bytes(self) -> int | None:
        return None

    def set_transaction_observer(self, observer: TransactionObserver) -> None:
        """Do nothing: transactions in memory take no time worth measuring."""

    async def prune(self, tenant: str, cutoff: float, *, dry_run: bool) -> PruneResult:
        return (
            _prune_tenant(self._tenants[tenant], cutoff, dry_run=dry_run)
            if tenant in self._tenants
            else PruneResult(0, 0, 0)
        )

    async def abandoned_runs(self) -> Sequence[AbandonedRun]:
        return [
            AbandonedRun(name, response)
            for name, tenant in sorted(self._tenants.items())
            for response in tenant.response_runs.open_response_ids()
            if not self._has_live_lease(tenant, response)
        ]

    def _has_live_lease(self, tenant: TenantData, response: str) -> bool:
        lease = tenant.leases.get(run_lease_name(response))
        return lease is not None and lease.expires_at > self._now()

    async def prune_events(self, older_than_s: float) -> int:
        before, forgotten = self._now() - older_than_s, 0
        for tenant in self._tenants.values():
            forgotten += tenant.response_runs.prune(before)
            tenant.leases = {name: lease for name, lease in tenant.leases.items() if lease.expires_at >= before}
        return forgotten

    async def get_or_create_secret(self, name: str, new_secret: bytes) -> bytes:
        return self._secrets.setdefault(name, new_secret)


def _tenant_stats(name: str, tenant: TenantData) -> TenantStats:
    texts = tenant.response_runs.event_texts()
    runs = list(tenant.agent_runs.stored_texts())
    made = [link.created_at for link in tenant.links.values()]
    made += [conversation.created_at for conversation in tenant.conversations.values()]
    rows = {
        "sessions": len(tenant.sessions),
        "responses": len(tenant.links),
        "conversations": len(tenant.conversations),
        "items": len(tenant.tree.items),
        "places": len(tenant.tree.nodes) - 1,
        "events": len(texts),
        "runs": len(tenant.agent_runs.runs),
    }
    said = [body.text for body in tenant.tree.items.values()] + texts + runs
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
    def admin(self) -> MemoryAdmin:
        return MemoryAdmin(self._tenants, self._secrets, self._now)

    @property
    def _data(self) -> TenantData:
        if self.tenant not in self._tenants:
            self._tenants[self.tenant] = TenantData(self.tenant)
        return self._tenants[self.tenant]

    def for_tenant(self, tenant: str) -> "MemoryStore":
        other = MemoryStore(tenant, now=self._now)
        other._tenants, other._secrets = self._tenants, self._secrets
        return other

    async def commit(self, transaction: Transaction) -> None:
        grown, links = self._data.check_transaction(transaction)
        self._data.apply_transaction(transaction, grown, links, self._now())

    async def path(self, head: Key) -> Path:
        tree = self._data.tree
        if head not in tree.nodes:
            raise base.node_not_found_error(head)
        walked = [(key, place.item_hash) for key, place in tree.walk_to_root(head)][::-1]
        return Path(self._data.root, Prefix(Node(key, self._decode_item(key, item)) for key, item in walked))

    async def items_after(self, head: Key, after: Key) -> Sequence[Item]:
        tree = self._data.tree
        if head not in tree.nodes:
            raise base.node_not_found_error(head)
        behind = list(takewhile(lambda one: one[0] != after, tree.walk_to_root(head)))
        if after != (tree.nodes[behind[-1][0]].parent if behind else head):
            raise base.not_on_path_error(after)
        return [self._decode_item(key, place.item_hash) for key, place in behind[::-1]]

    def _decode_item(self, key: Key, item: Hash | None) -> dict[str, object]:
        if item is None:
            raise ItemDeleted(key)
        found: dict[str, object] = decode_json(self._data.tree.items[item].text)
        return found

    async def session(self, name_or_id: str) -> Session | None:
        named = (one for one in self._data.sessions.values() if one.name == name_or_id)
        return self._data.sessions.get(name_or_id) or next(named, None)

    async def sessions(self, *, limit: int | None = None) -> Sequence[Session]:
        return self._sessions_by_use()[:limit]

    def _sessions_by_use(self) -> list[Session]:
        return sorted(self._data.sessions.values(), key=lambda session: session.use_order or 0)[::-1]

    async def session_stats(self, session_id: str) -> SessionStats:
        session = self._data.sessions.get(session_id)
        if session is None:
            raise NotFound("session", session_id)
        back = list(self._data.tree.walk_to_root(session.head))
        first = back[-1][1].item_hash if back else None
        return SessionStats(
            item_count=len(back),
            unconfirmed_count=next(
                (at for at, (key, _) in enumerate(back) if key == session.confirmed_head), len(back)
            ),
            turn_count=sum(link.status in ANSWERED_STATUSES for link in await self.links(session_id)),
            first_item=decode_json(self._data.tree.items[first].text) if first else None,
        )

    async def link(self, link_id: str) -> Link | None:
        found = self._data.links.get(link_id)
        return found and _copy_link(found)

    async def links(self, session_id: str) -> Sequence[Link]:
        return self._data.links_oldest_first(lambda link: link.session_id == session_id)

    async def responses_to(self, *input_heads: Key) -> Sequence[Link]:
        places = set(input_heads)
        return self._data.links_oldest_first(lambda link: link.input_head in places)

    async def related_links(self, link_id: str) -> Sequence[Link]:
        near: dict[str, set[str]] = defaultdict(set)
        for link in self._data.links.values():
            if link.parent_id:
                near[link.id].add(link.parent_id)
                near[link.parent_id].add(link.id)
        kin, ahead = set(), [link_id] if link_id in self._data.links else []
        while ahead:
            kin.add(at := ahead.pop())
            ahead.extend(near[at] - kin)
        return self._data.links_oldest_first(lambda link: link.id in kin)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        found = self._data.conversations.get(conversation_id)
        return found and replace(found, metadata=dict(found.metadata))

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        return self._data.links_oldest_first(lambda link: link.conversation_id == conversation_id)

    async def item(self, item_id: str) -> Item | None:
        mine, digits = self._data, base.parse_key_prefix(item_id)
        called = next(iter(mine.items_with_id(item_id)), None)
        place = mine.tree.find_node_by_prefix(digits) if called is None else None
        found = mine.tree.nodes[place].item_hash if place else called
        return decode_json(mine.tree.items[found].text) if found else None

    async def append_events(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        self._data.response_runs.append(response_id, events)

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[StreamEvent]:
        return self._data.response_runs.events(response_id, after)

    async def agent_run(self, run_id: str) -> AgentRun | None:
        return self._data.agent_runs.get_run(run_id)

    async def agent_runs(
        self,
        *,
        session_id: str | None = None,
        source_state_hash: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> Sequence[AgentRun]:
        found = self._data.agent_runs.runs_newest_first()
        return [
            run
            for run in found
            if session_id in (None, run.session_id)
            and source_state_hash in (None, run.source_state_hash)
            and status in (None, run.status)
        ][:limit]

    async def agent_calls(self, run_id: str) -> Sequence[AgentCall]:
        return self._data.agent_runs.list_calls(run_id)

    async def find_handles(self, prefix: str, *, limit: int = 20) -> Sequence[HandleMatch]:
        return [found for found, names in self._iter_handles() if any(one.startswith(prefix) for one in names)][:limit]

    def _iter_handles(self) -> Iterator[tuple[HandleMatch, tuple[str, ...]]]:
        """Iterate over all records that have a handle, with their names."""
        mine = self._data
        for session in self._sessions_by_use():
            yield HandleMatch("session", session.id, session.name), (session.id, session.name)
        for link in sorted(mine.links.values(), key=attrgetter("created_at"))[::-1]:
            yield HandleMatch("response", link.id, mine.first_words_at(link.input_head)), (link.id,)
        for conversation in sorted(mine.conversations.values(), key=lambda one: one.created_at)[::-1]:
            yield (
                HandleMatch("conversation", conversation.id, mine.first_words_at(conversation.head)),
                (conversation.id,),
            )
        for run in mine.agent_runs.runs_newest_first():
            yield HandleMatch("run", run.id, run.status), (run.id,)

    async def search_items(self, query: str, *, limit: int = 20) -> Sequence[SearchHit]:
        sought, tree = parse_search_phrases(query), self._data.tree
        best = {item: rank for item, body in tree.items.items() if (rank := phrase_density(body.terms, sought))}
        found = [
            (-best[item], SearchHit(session, key, self._decode_item(key, item)))
            for session in self._sessions_by_use()
            for item, key in self._first_nodes(session).items()
            if item in best
        ]
        return [hit for _, hit in sorted(found, key=lambda one: one[0])][:limit]

    def _first_nodes(self, session: Session) -> dict[Hash, Key]:
        """Return the node of each item that a session reaches; the one created first, if there are several."""
        places = self._data.tree.nodes
        newest_first = sorted(self._data.reachable_keys(session), key=lambda key: places[key].sequence, reverse=True)
        return {item: key for key in newest_first if (item := places[key].item_hash)}

    async def remove_session(self, session_id: str) -> None:
        mine = self._data
        if session_id not in mine.sessions:
            raise NotFound("session", session_id)
        mine.delete_session(session_id)
        chained = mine.chained_link_ids(mine.sessions.values())
        for link in [
            one for one in mine.links.values() if one.session_id in mine.removed_sessions and one.id not in chained
        ]:
            mine.delete_link(link.id)
        mine.delete_unreferenced()

    async def remove_link(self, link_id: str) -> None:
        if link_id not in self._data.links:
            raise NotFound("response", link_id)
        self._data.delete_link(link_id)
        self._data.delete_unreferenced()

    async def remove_conversation(self, conversation_id: str) -> None:
        if conversation_id not in self._data.conversations:
            raise NotFound("conversation", conversation_id)
        self._data.delete_conversation(conversation_id)
        self._data.delete_unreferenced()

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        base.check_stored_name(name)
        base.check_stored_name(holder)
        there = self._data.leases.get(name)
        if there and there.expires_at > self._now() and there.holder not in (holder, dead_holder):
            raise Busy(name, there.holder)
        self._data.leases[name] = lease = Lease(name, holder, self._now() + ttl_s)
        return lease

    async def release_lease(self, lease: Lease) -> None:
        there = self._data.leases.get(lease.name)
        if there and there.holder == lease.holder:
            del self._data.leases[lease.name]

    async def lease_holder(self, name: str) -> str | None:
        there = self._data.leases.get(name)
        return there.holder if there and there.expires_at > self._now() else None

    async def data_version(self) -> None:
        return None

    async def aclose(self) -> None:
        self._tenants.clear()


class PrunableIds(NamedTuple):
    """The ids of the records that a pruning deletes."""

    sessions: list[str]
    links: list[str]
    conversations: list[str]


def _prune_tenant(tenant: TenantData, cutoff: float, *, dry_run: bool) -> PruneResult:
    """Delete the records last used before this moment, or only count them."""
    old = _find_prunable(tenant, cutoff)
    if not dry_run:
        for take, names in zip(
            (tenant.delete_session, tenant.delete_link, tenant.delete_conversation), old, strict=True
        ):
            for name in names:
                take(name)
        tenant.delete_unreferenced()
    return PruneResult(*map(len, old))


def _find_prunable(mine: TenantData, before: float) -> PrunableIds:
    running = [mine.links[name] for name in mine.response_runs.open_response_ids()]
    kept = [one for one in mine.sessions.values() if one.used_at >= before or _made_any_link(one, running)]
    return PrunableIds(
        [name for name in mine.sessions if name not in {session.id for session in kept}],
        list(_prunable_links(mine, before, kept)),
        [one.id for one in mine.conversations.values() if not _is_conversation_retained(one, mine, before, kept)],
    )


def _made_any_link(session: Session, links: list[Link]) -> bool:
    return any(link.session_id == session.id for link in links)


def _prunable_links(mine: TenantData, before: float, kept: list[Session]) -> Iterator[str]:
    """Iterate over unreferenced links: those of deleted or prunable sessions, and old ones that no session made."""
    holders, held = (
        {session.id for session in kept},
        {*mine.chained_link_ids(kept), *mine.response_runs.open_response_ids()},
    )
    for link in mine.links.values():
        orphan = (
            link.session_id in mine.removed_sessions or link.session_id in mine.sessions or link.created_at < before
        )
        if link.session_id not in holders and link.id not in held and orphan:
            yield link.id


def _is_conversation_retained(one: Conversation, mine: TenantData, before: float, kept: list[Session]) -> bool:
    """Return whether a session references a conversation, or it was created or used since, or its run is open."""
    running = mine.response_runs.open_response_ids()
    answered = (link for link in mine.links.values() if link.conversation_id == one.id)
    return (
        one.created_at >= before
        or one.id in {session.handle for session in kept}
        or any(link.created_at >= before or link.id in running for link in answered)
    )
