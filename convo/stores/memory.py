"""A store that ends with its process: the shortest one that keeps the whole contract.

Read it to learn what a store does. A change is checked whole before any of it is made. Places and
items are counted by who needs them: a place by its children and by every head, mark and link that
stands on it, an item by its places. What nobody needs is gone at once, and the place before it
with it if that was its last.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from convo.errors import Busy, ItemDeleted, NotFound
from convo.history import Key, Link, Node, Path, Session, child, root
from convo.items import Hash, first_words, hash_of
from convo.stores import rules
from convo.stores.contract import Change, Conversation, Found, Growth, Hit, Lease, Outline
from convo.stores.terms import density, phrases, terms_of
from convo.stores.verbatim import dumps, loads


@dataclass(slots=True)
class _Place:
    """A node: `number` counts up, `item` is None at the root and where the item was erased."""

    number: int
    depth: int
    parent: Key | None
    item: Hash | None


@dataclass(slots=True)
class _Body:
    """An item as text, and the terms that a search finds it by."""

    text: str
    terms: str


_Grown = dict[Key, tuple[Key, Hash, str]]
"""Places that a change makes: parent, item and the item's text."""

_Record = Link | Session | Conversation
"""What stands on places and so keeps them."""


class _Tree:
    """One tenant's places and items, and who needs them."""

    def __init__(self, top: Key) -> None:
        self.places: dict[Key, _Place] = {top: _Place(0, 0, None, None)}
        self.bodies: dict[Hash, _Body] = {}
        self._needs: Counter[str] = Counter({top: 1})
        self._loose: list[Key] = []
        self._made = 0

    def walk(self, key: Key) -> Iterator[tuple[Key, _Place]]:
        """The places from `key` back to the first behind the root."""
        while (place := self.places[key]).parent is not None:
            yield key, place
            key = place.parent

    def plan(self, grow: Iterable[Growth]) -> _Grown:
        """What `grow` would make. raises: NotFound"""
        grown: _Grown = {}
        for growth in grow:
            at = growth.after
            if at not in self.places and at not in grown:
                raise rules.no_place(at)
            for item in growth.items:
                hashed = hash_of(item)
                parent, at = at, child(at, hashed)
                grown.setdefault(at, (parent, hashed, dumps(item)))
        return grown

    def length(self, key: Key, grown: _Grown) -> int:
        """How many items lead to `key`, which may stand on a place that is only planned."""
        count = 0
        while key not in self.places:
            count, key = count + 1, grown[key][0]
        return count + self.places[key].depth

    def plant(self, grown: _Grown) -> None:
        for key, (parent, item, text) in grown.items():
            if key not in self.places:
                self._made += 1
                self.places[key] = _Place(self._made, self.places[parent].depth + 1, parent, None)
                self._needs[parent] += 1
            self._loose.append(key)
            if self.places[key].item is None:
                self.places[key].item = item
                self._needs[item] += 1
                self.bodies.setdefault(item, _Body(text, terms_of(loads(text))))

    def move(self, old: _Record | None, new: _Record | None) -> None:
        """A record that stood where `old` says stands where `new` says."""
        self._needs.update(stands(new))
        self._needs.subtract(stands(old))
        self._loose.extend(stands(old))

    def empty(self, key: Key) -> None:
        """Take the item out of a place, and its body with it if that was its last place."""
        item, self.places[key].item = self.places[key].item, None
        if item is not None:
            self._needs[item] -= 1
            if not self._needs[item]:
                del self._needs[item], self.bodies[item]

    def sweep(self) -> None:
        """Take every place that nobody needs any more."""
        while self._loose:
            key = self._loose.pop()
            if key in self.places and not self._needs[key]:
                self.empty(key)
                parent = self.places.pop(key).parent
                assert parent is not None  # the root is always needed
                self._needs[parent] -= 1
                self._loose.append(parent)


class _Tenant:
    """Everything that one tenant has."""

    def __init__(self, tenant: str) -> None:
        self.root = root(tenant)
        self.tree = _Tree(self.root)
        self.links: dict[str, Link] = {}
        self.sessions: dict[str, Session] = {}
        self.removed: set[str] = set()
        self.conversations: dict[str, Conversation] = {}
        self.leases: dict[str, Lease] = {}

    def check(self, change: Change) -> tuple[_Grown, list[Link]]:
        """Everything that could be wrong with `change`; what it makes. raises: as `commit`"""
        rules.check_names(change)
        self._check_heads(change)
        grown = self.tree.plan(change.grow)
        for key in (*rules.places(change), *change.erase):
            if key not in self.tree.places and key not in grown:
                raise rules.no_place(key)
        if change.conversation:
            rules.check_ids(change.conversation, self.tree.length(change.conversation.head, grown))
            for item_id in change.conversation.ids:
                rules.check_name(item_id)
        return grown, [_fresh(link) for link in change.links]

    def _check_heads(self, change: Change) -> None:
        if change.session:
            record = self.sessions.get(change.session.id)
            rules.expect(f"session {change.session.name!r}", change.expect, record.head if record else None)
            named = next((one.id for one in self.sessions.values() if one.name == change.session.name), None)
            if named not in (None, change.session.id):
                raise rules.name_taken(change.session.name)
        if change.conversation:
            there = self.conversations.get(change.conversation.id)
            rules.expect(change.conversation.id, change.conversation_expect, there.head if there else None)

    def make(self, change: Change, grown: _Grown, links: Iterable[Link]) -> None:
        """Make a change that was checked."""
        self.tree.plant(grown)
        for new in links:
            there = self.links.get(new.id)
            self.links[new.id] = rules.written(there, new)
            self.tree.move(there, self.links[new.id])
        if change.session:
            self.tree.move(self.sessions.get(change.session.id), change.session)
            self.sessions[change.session.id] = change.session
            self.removed.discard(change.session.id)
        if change.conversation:
            self.tree.move(self.conversations.get(change.conversation.id), change.conversation)
            self.conversations[change.conversation.id] = replace(
                change.conversation, metadata=dict(change.conversation.metadata)
            )
        for key in change.erase:
            self.tree.empty(key)
        self.tree.sweep()

    def tidy(self) -> None:
        """Forget, after a removal, what nothing leads to any more."""
        self.removed &= {link.session for link in self.links.values() if link.session}
        self.tree.sweep()

    def chained(self) -> set[str]:
        """The links that sessions go on from, back to the first of each chain."""
        found: set[str] = set()
        for session in self.sessions.values():
            at = session.link
            while at is not None and at not in found:
                found.add(at)
                at = self.links[at].parent if at in self.links else None
        return found

    def reached(self, session: Session) -> set[Key]:
        """Every place that a session's record, or one of its links, leads back to."""
        records: list[_Record] = [session, *(link for link in self.links.values() if link.session == session.id)]
        return {key for record in records for end in stands(record) for key, _ in self.tree.walk(end)}

    def words(self, key: Key) -> str:
        """The first words of the item at `key`; "" where there is none."""
        item = self.tree.places[key].item
        return first_words(loads(self.tree.bodies[item].text)) if item else ""


class MemoryStore:
    """Keeps histories while the process lives. `now` is the clock that leases run by."""

    def __init__(self, tenant: str = "local", *, now: Callable[[], float] = time.time) -> None:
        self.tenant = tenant
        self._now = now
        self._tenants: dict[str, _Tenant] = {}

    @property
    def _mine(self) -> _Tenant:
        if self.tenant not in self._tenants:
            self._tenants[self.tenant] = _Tenant(self.tenant)
        return self._tenants[self.tenant]

    def of(self, tenant: str) -> "MemoryStore":
        other = MemoryStore(tenant, now=self._now)
        other._tenants = self._tenants
        return other

    async def commit(self, change: Change) -> None:
        grown, links = self._mine.check(change)
        self._mine.make(change, grown, links)

    async def path(self, head: Key) -> Path:
        tree = self._mine.tree
        if head not in tree.places:
            raise rules.no_place(head)
        walked = [(key, place.item) for key, place in tree.walk(head)][::-1]
        return Path(self._mine.root, tuple(Node(key, self._item(key, item)) for key, item in walked))

    def _item(self, key: Key, item: Hash | None) -> dict[str, object]:
        if item is None:
            raise ItemDeleted(key)
        found: dict[str, object] = loads(self._mine.tree.bodies[item].text)
        return found

    async def session(self, name_or_id: str) -> Session | None:
        named = (one for one in self._mine.sessions.values() if one.name == name_or_id)
        return self._mine.sessions.get(name_or_id) or next(named, None)

    async def sessions(self, *, limit: int | None = None) -> Sequence[Session]:
        return self._by_use()[:limit]

    def _by_use(self) -> list[Session]:
        return sorted(self._mine.sessions.values(), key=lambda session: session.used_at)[::-1]

    async def outline(self, session_id: str) -> Outline:
        session = self._mine.sessions.get(session_id)
        if session is None:
            raise NotFound("session", session_id)
        back = list(self._mine.tree.walk(session.head))
        first = back[-1][1].item if back else None
        return Outline(
            items=len(back),
            waiting=next((at for at, (key, _) in enumerate(back) if key == session.mark), len(back)),
            turns=sum(link.status in rules.ANSWERED for link in await self.links(session_id)),
            first=loads(self._mine.tree.bodies[first].text) if first else None,
        )

    async def link(self, link_id: str) -> Link | None:
        found = self._mine.links.get(link_id)
        return found and _fresh(found)

    async def links(self, session_id: str) -> Sequence[Link]:
        return self._oldest_first(lambda link: link.session == session_id)

    async def answers(self, saw: Key) -> Sequence[Link]:
        return self._oldest_first(lambda link: link.saw == saw)

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
        return self._oldest_first(lambda link: link.id in kin)

    def _oldest_first(self, wanted: Callable[[Link], bool]) -> list[Link]:
        return [_fresh(link) for link in sorted(self._mine.links.values(), key=_age) if wanted(link)]

    async def conversation(self, conversation_id: str) -> Conversation | None:
        found = self._mine.conversations.get(conversation_id)
        return found and replace(found, metadata=dict(found.metadata))

    async def find(self, prefix: str, *, limit: int = 20) -> Sequence[Found]:
        return [found for found, names in self._known() if any(one.startswith(prefix) for one in names)][:limit]

    def _known(self) -> Iterator[tuple[Found, tuple[str, ...]]]:
        """Everything that has a handle, with its names."""
        mine = self._mine
        for session in self._by_use():
            yield Found("session", session.id, session.name), (session.id, session.name)
        for link in sorted(mine.links.values(), key=_age)[::-1]:
            yield Found("response", link.id, mine.words(link.saw)), (link.id,)
        for conversation in sorted(mine.conversations.values(), key=lambda one: one.created_at)[::-1]:
            yield Found("conversation", conversation.id, mine.words(conversation.head)), (conversation.id,)

    async def search(self, words: str, *, limit: int = 20) -> Sequence[Hit]:
        sought, tree = phrases(words), self._mine.tree
        best = {item: rank for item, body in tree.bodies.items() if (rank := density(body.terms, sought))}
        found = [
            (-best[item], -session.used_at, Hit(session, key, self._item(key, item)))
            for session in self._by_use()
            for item, key in self._first_places(session).items()
            if item in best
        ]
        return [hit for _, _, hit in sorted(found, key=lambda one: one[:2])][:limit]

    def _first_places(self, session: Session) -> dict[Hash, Key]:
        """Where each item that a session reaches stands; the place made first, if there are several."""
        places = self._mine.tree.places
        newest_first = sorted(self._mine.reached(session), key=lambda key: places[key].number, reverse=True)
        return {item: key for key in newest_first if (item := places[key].item)}

    async def remove_session(self, session_id: str) -> None:
        mine = self._mine
        if session_id not in mine.sessions:
            raise NotFound("session", session_id)
        mine.tree.move(mine.sessions.pop(session_id), None)
        mine.removed.add(session_id)
        chained = mine.chained()
        for link in [one for one in mine.links.values() if one.session in mine.removed and one.id not in chained]:
            mine.tree.move(mine.links.pop(link.id), None)
        mine.tidy()

    async def remove_link(self, link_id: str) -> None:
        if link_id not in self._mine.links:
            raise NotFound("response", link_id)
        self._mine.tree.move(self._mine.links.pop(link_id), None)
        self._mine.tidy()

    async def remove_conversation(self, conversation_id: str) -> None:
        if conversation_id not in self._mine.conversations:
            raise NotFound("conversation", conversation_id)
        self._mine.tree.move(self._mine.conversations.pop(conversation_id), None)
        self._mine.tidy()

    async def lease(self, name: str, holder: str, ttl_s: float, *, instead_of: str | None = None) -> Lease:
        rules.check_name(name)
        rules.check_name(holder)
        there = self._mine.leases.get(name)
        if there and there.expires_at > self._now() and there.holder not in (holder, instead_of):
            raise Busy(name, there.holder)
        self._mine.leases[name] = lease = Lease(name, holder, self._now() + ttl_s)
        return lease

    async def release(self, lease: Lease) -> None:
        there = self._mine.leases.get(lease.name)
        if there and there.holder == lease.holder:
            del self._mine.leases[lease.name]

    async def aclose(self) -> None:
        self._tenants.clear()


def stands(record: _Record | None) -> tuple[Key, ...]:
    """The places that a record stands on."""
    if record is None:
        return ()
    if isinstance(record, Link):
        return (record.saw, record.head)
    if isinstance(record, Conversation):
        return (record.head,)
    return (record.head, record.mark, *((record.written,) if record.written else ()))


def _age(link: Link) -> float:
    return link.created_at


def _fresh(link: Link) -> Link:
    """A copy that shares nothing that could be changed."""
    return replace(
        link,
        parameters=loads(dumps(link.parameters)),
        usage=loads(dumps(link.usage)),
        error=loads(dumps(link.error)),
    )
