"""Everything that one tenant has: records, and the tree that they stand on.

A change is checked whole before any of it is made.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from convo.errors import NotFound
from convo.history import Key, Link, Session, root
from convo.items import Hash, first_words
from convo.stores import rules
from convo.stores.contract import Change, Conversation, Lease
from convo.stores.memory.agents import AgentRuns
from convo.stores.memory.running import Runs
from convo.stores.memory.tree import Grown, Record, Tree, stands
from convo.stores.verbatim import dumps, loads


class Tenant:
    """Everything that one tenant has."""

    def __init__(self, tenant: str) -> None:
        self.root = root(tenant)
        self.tree = Tree(self.root)
        self.links: dict[str, Link] = {}
        self.sessions: dict[str, Session] = {}
        self.removed: set[str] = set()
        self.conversations: dict[str, Conversation] = {}
        self.leases: dict[str, Lease] = {}
        self.runs = Runs()
        self.agents = AgentRuns()

    def check(self, change: Change) -> tuple[Grown, list[Link]]:
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
        if change.starts and change.starts not in (*self.links, *(link.id for link in change.links)):
            raise NotFound("response", change.starts)
        self.agents.check(change, self.sessions)
        return grown, [fresh(link) for link in change.links]

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
        if change.ends:
            self.runs.one(change.ends)
        if change.agent_run:
            self.agents.expect(change.agent_run)

    def make(self, change: Change, grown: Grown, links: Iterable[Link], now: float) -> None:
        """Make a change that was checked."""
        self.tree.plant(grown)
        for new in links:
            there = self.links.get(new.id)
            self.links[new.id] = rules.written(there, new)
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
        """The place of a session among the last used: its own where it has one, else the last when `new` is a use."""
        if new.use is not None:
            return new.use
        if before and before.use is not None and before.used_at == new.used_at:
            return before.use
        return max((one.use or 0 for one in self.sessions.values()), default=0) + 1

    def _left_behind(self, change: Change) -> Iterator[Key]:
        """Where else the erased items of a conversation stand: on the paths of its links, and no longer on its own."""
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
        """Forget, after a removal, what nothing leads to any more."""
        self.removed &= {link.session for link in self.links.values() if link.session}
        self.tree.sweep()

    def chained(self, sessions: Iterable[Session]) -> set[str]:
        """The links that `sessions` go on from, back to the first of each chain."""
        found: set[str] = set()
        for session in sessions:
            at = session.link
            while at is not None and at not in found:
                found.add(at)
                at = self.links[at].parent if at in self.links else None
        return found

    def reached(self, session: Session) -> set[Key]:
        """Every place that a session's record, or one of its links, leads back to."""
        records: list[Record] = [session, *(link for link in self.links.values() if link.session == session.id)]
        return {key for record in records for end in stands(record) for key, _ in self.tree.walk(end)}

    def oldest_first(self, wanted: Callable[[Link], bool]) -> list[Link]:
        return [fresh(link) for link in sorted(self.links.values(), key=age) if wanted(link)]

    def called(self, item_id: str) -> list[Hash]:
        """The items that have this id of their own or by a conversation, stored last first."""
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
        """The first words of the item at `key`; "" where there is none."""
        item = self.tree.places[key].item
        return first_words(loads(self.tree.bodies[item].text)) if item else ""


def age(link: Link) -> float:
    return link.created_at


def fresh(link: Link) -> Link:
    """A copy that shares nothing that could be changed."""
    return replace(
        link,
        parameters=loads(dumps(link.parameters)),
        usage=loads(dumps(link.usage)),
        error=loads(dumps(link.error)),
    )
