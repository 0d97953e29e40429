"""The contract, over dictionaries.

Nothing here waits, so nothing comes between two steps of a change: that alone makes it one. What a
change does stands in `tenant`; tenants share the process and nothing else.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from convo.errors import Busy, ItemDeleted, NotFound
from convo.history import Key, Link, Node, Path, Prefix, Session
from convo.items import Event, Hash, Item
from convo.stores import rules
from convo.stores.contract import AgentCall, AgentRun, Change, Conversation, Found, Hit, Lease, Outline
from convo.stores.memory.tenant import Tenant, age, fresh
from convo.stores.memory.upkeep import MemoryUpkeep
from convo.stores.terms import density, phrases
from convo.stores.verbatim import loads


class MemoryStore:
    """Keeps histories while the process lives. `now` is the clock that leases run by."""

    def __init__(self, tenant: str = "local", *, now: Callable[[], float] = time.time) -> None:
        self.tenant = tenant
        self._now = now
        self._tenants: dict[str, Tenant] = {}
        self._secrets: dict[str, bytes] = {}

    @property
    def upkeep(self) -> MemoryUpkeep:
        return MemoryUpkeep(self._tenants, self._secrets, self._now)

    @property
    def _mine(self) -> Tenant:
        if self.tenant not in self._tenants:
            self._tenants[self.tenant] = Tenant(self.tenant)
        return self._tenants[self.tenant]

    def of(self, tenant: str) -> "MemoryStore":
        other = MemoryStore(tenant, now=self._now)
        other._tenants, other._secrets = self._tenants, self._secrets
        return other

    async def commit(self, change: Change) -> None:
        grown, links = self._mine.check(change)
        self._mine.make(change, grown, links, self._now())

    async def path(self, head: Key) -> Path:
        tree = self._mine.tree
        if head not in tree.places:
            raise rules.no_place(head)
        walked = [(key, place.item) for key, place in tree.walk(head)][::-1]
        return Path(self._mine.root, Prefix(Node(key, self._item(key, item)) for key, item in walked))

    async def tail(self, head: Key, after: Key) -> Sequence[Item]:
        tree = self._mine.tree
        if head not in tree.places:
            raise rules.no_place(head)
        behind = list(takewhile(lambda one: one[0] != after, tree.walk(head)))
        if after != (tree.places[behind[-1][0]].parent if behind else head):
            raise rules.not_through(after)
        return [self._item(key, place.item) for key, place in behind[::-1]]

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
        return sorted(self._mine.sessions.values(), key=lambda session: session.use or 0)[::-1]

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
        return found and fresh(found)

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
        mine, digits = self._mine, rules.place_in(item_id)
        called = next(iter(mine.called(item_id)), None)
        place = mine.tree.beginning(digits) if called is None else None
        found = mine.tree.places[place].item if place else called
        return loads(mine.tree.bodies[found].text) if found else None

    async def append(self, response_id: str, events: Sequence[Event]) -> None:
        self._mine.runs.append(response_id, events)

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[Event]:
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

    async def find(self, prefix: str, *, limit: int = 20) -> Sequence[Found]:
        return [found for found, names in self._known() if any(one.startswith(prefix) for one in names)][:limit]

    def _known(self) -> Iterator[tuple[Found, tuple[str, ...]]]:
        """Everything that has a handle, with its names."""
        mine = self._mine
        for session in self._by_use():
            yield Found("session", session.id, session.name), (session.id, session.name)
        for link in sorted(mine.links.values(), key=age)[::-1]:
            yield Found("response", link.id, mine.words(link.saw)), (link.id,)
        for conversation in sorted(mine.conversations.values(), key=lambda one: one.created_at)[::-1]:
            yield Found("conversation", conversation.id, mine.words(conversation.head)), (conversation.id,)
        for run in mine.agents.newest_first():
            yield Found("run", run.id, run.status), (run.id,)

    async def search(self, words: str, *, limit: int = 20) -> Sequence[Hit]:
        sought, tree = phrases(words), self._mine.tree
        best = {item: rank for item, body in tree.bodies.items() if (rank := density(body.terms, sought))}
        found = [
            (-best[item], Hit(session, key, self._item(key, item)))
            for session in self._by_use()
            for item, key in self._first_places(session).items()
            if item in best
        ]
        return [hit for _, hit in sorted(found, key=lambda one: one[0])][:limit]

    def _first_places(self, session: Session) -> dict[Hash, Key]:
        """Where each item that a session reaches stands; the place made first, if there are several."""
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

    async def holder(self, name: str) -> str | None:
        there = self._mine.leases.get(name)
        return there.holder if there and there.expires_at > self._now() else None

    async def revision(self) -> None:
        return None

    async def aclose(self) -> None:
        self._tenants.clear()
