"""What a store is, to everything above it.

Whoever decides builds a `Change`, a frozen value that names the new items, the links and where
heads stand afterwards; the store makes it true in one transaction or not at all. Nothing else
writes a history. So a kill at any instruction leaves the state before a change or after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from convo.history import Key, Link, Path, Session
from convo.items import Event, Item, Json
from convo.stores.upkeep import Upkeep


class Growth(NamedTuple):
    """Items to stand behind a node, in order. What is there already is not written again."""

    after: Key
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of the embedded endpoint.

    head:  the last node of its items
    ids:   the id of each item on the path to `head`, oldest first: the item's own where it
           has one, else the one that this conversation gave it. It stays while the item does
    """

    id: str
    head: Key
    created_at: float
    ids: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


KEPT: Final[Mapping[str, Json]] = MappingProxyType({})
"""Stands for the document of a run as it is kept."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A run of agents, as it stands between two effects.

    id:          "run_...", unique
    session:     the id of the session whose conversation it works on; it goes with that session
    revision:    1 when it is written first, and one more each time
    status:      "running" also when nobody performs it any more; "paused" waits for a person
    document:    the run itself; only the run machine reads it. A change that has `KEPT` in its place leaves it as it is
    state:       the content hash of the RunState that it went on from; None where it began here
    created_at, changed_at:  seconds since 1970
    """

    id: str
    session: str
    revision: int
    status: Literal["running", "paused", "done", "failed", "stopped"]
    document: Mapping[str, Json]
    created_at: float
    changed_at: float
    state: str | None = None


class AgentCall(NamedTuple):
    """One call of a tool in a run of agents, as its ledger knows it.

    ended:   it has an output; one that has none still runs, or its process died
    output:  what its model is told, once it has ended
    """

    run: str
    call_id: str
    started_at: float
    ended: bool = False
    output: Json = None


class AnyHead:
    """Stands for "wherever the head is": the change does not depend on it."""


ANY: Final = AnyHead()


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction. What nothing stands on after it is collected in it.

    grow:          items, each behind a node that the store has or that an earlier growth makes; kept if a
                   link, session or conversation stands on the last of them, or behind it
    links:         written, or replaced while the one that is there is queued or in progress; of one that is
                   final, `session`, `parent` and `first_token_s` are filled in where they are empty
    session:       the record as it stands afterwards
    expect:        where the session's head must stand before; None: there must be no such record
    conversation:  as it stands afterwards
    conversation_expect:  where its head must stand before; None: there must be no such one
    erase:         places whose items are to be deleted; a path through one raises `ItemDeleted`, and
                   the body goes with the last place that holds it. Growing there again restores it. With a
                   `conversation`, places of the same items that only its earlier links still lead to go too
    starts:        a response, among `links` or written before, whose run is open from now on: it takes events.
                   A run goes with its response, and one that ended without events is forgotten
    ends:          a response whose run must be open before, and is not afterwards; else `Conflict`
    agent_run:     as it stands afterwards. Its revision is one more than the kept one's, 1 where there is none,
                   else `Conflict`; its session is `session` or written before
    calls:         written into the ledgers of their runs, in order; each run is `agent_run` or written before.
                   One that is there and has not ended is replaced; one that has ended stays as it is, and
                   whatever would be written over it, a second end too, is ignored
    """

    grow: tuple[Growth, ...] = ()
    links: tuple[Link, ...] = ()
    session: Session | None = None
    expect: Key | AnyHead | None = ANY
    conversation: Conversation | None = None
    conversation_expect: Key | AnyHead | None = ANY
    erase: tuple[Key, ...] = ()
    starts: str | None = None
    ends: str | None = None
    agent_run: AgentRun | None = None
    calls: tuple[AgentCall, ...] = ()


class Outline(NamedTuple):
    """A session in figures, without its history.

    items:    how many lead to its head
    waiting:  how many of them stand behind its mark
    turns:    how many of its links have an answer
    first:    the first item; None where there is none, or where it was deleted
    """

    items: int
    waiting: int
    turns: int
    first: Item | None


class Hit(NamedTuple):
    """One item that a search found, and a session whose path passes through it."""

    session: Session
    key: Key
    item: Item


class Found(NamedTuple):
    """Something that a handle, or the beginning of one, names.

    kind:   "session", "response", "conversation" or "run"
    id:     the full id
    words:  a name or the first words, for a person to choose by; of a run of agents its status
    """

    kind: str
    id: str
    words: str


class Lease(NamedTuple):
    """The right to write under a name, until `expires_at` on the store's own clock (seconds)."""

    name: str
    holder: str
    expires_at: float


def run_lease(response_id: str) -> str:
    """The name of the lease that whoever carries out this response holds and renews."""
    return f"running {response_id}"


class Store(Protocol):
    """Keeps one tenant's histories; items are added, never changed.

    A store promises: a change is all or nothing, and durable when `commit` returns; a reader
    sees whole changes, in order; a change from a stale head raises `Conflict`; each item is
    stored once, however often it is sent; failures come as `StoreFault`. A caller promises: to
    close it, and not to touch an item it has handed over.
    """

    @property
    def tenant(self) -> str: ...

    def of(self, tenant: str) -> "Store":
        """The same database as seen by another tenant. Closing either closes both."""
        ...

    @property
    def upkeep(self) -> Upkeep: ...

    async def commit(self, change: Change) -> None:
        """Make `change` true.

        raises:  Conflict      a head is not where the change expects it, or a name is taken
                 NotFound      a growth, a record or an erasure names a node that is not there, `starts` a
                               response that is not, a run of agents a session or a call its run
                 InputFault    an item or a name cannot be written, or an item of a conversation has no id
                 StoreFault    nothing was changed
        """
        ...

    async def path(self, head: Key) -> Path:
        """The path to `head`, items as they travelled.

        raises:  NotFound  no such node;  ItemDeleted  an item on it was deleted
        """
        ...

    async def tail(self, head: Key, after: Key) -> Sequence[Item]:
        """The items behind `after` on the path to `head`, oldest first; nothing before them is read.

        raises:  NotFound  no such node as `head`;  ItemDeleted  one of these items was deleted
                 Conflict  the path does not pass through `after`
        """
        ...

    async def session(self, name_or_id: str) -> Session | None:
        """The session with this id, or else with this name."""
        ...

    async def sessions(self, *, limit: int | None = None) -> Sequence[Session]:
        """The sessions, last used first."""
        ...

    async def outline(self, session_id: str) -> Outline:
        """A session in figures; no item is read but the first. raises: NotFound"""
        ...

    async def link(self, link_id: str) -> Link | None: ...

    async def links(self, session_id: str) -> Sequence[Link]:
        """Every link that this session made, oldest first."""
        ...

    async def answers(self, *saw: Key) -> Sequence[Link]:
        """The links whose input ended at one of `saw`, oldest first: many places cost one question."""
        ...

    async def family(self, link_id: str) -> Sequence[Link]:
        """The whole tree of links around one, oldest first; empty when there is no such link.

        Forks count, whichever session made them, and so do the children of a parent that is not here.
        """
        ...

    async def conversation(self, conversation_id: str) -> Conversation | None: ...

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        """The links that went through this conversation, oldest first, also after it was removed."""
        ...

    async def item(self, item_id: str) -> Item | None:
        """The item, as it travelled, that has this id.

        It carries the id itself, or a conversation gave it, or the id ends in the first 32 or more
        hex digits of the key of the place where it stands, behind any other sign. Of several it is
        the one stored last. One that was deleted is not found.
        """
        ...

    async def append(self, response_id: str, events: Sequence[Event]) -> None:
        """Keep these events of an open run, behind those that are kept already; durable on return.

        raises:  Conflict    the run is not open, or a sequence number is not behind the last one
                 InputFault  an event has no sequence number, or cannot be written
        """
        ...

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[Event]:
        """The kept events of a response whose sequence number is greater than `after`, in order."""
        ...

    async def agent_run(self, run_id: str) -> AgentRun | None: ...

    async def agent_runs(
        self, *, session: str | None = None, state: str | None = None, status: str | None = None, limit: int = 100
    ) -> Sequence[AgentRun]:
        """Runs of agents, changed last first: those of a session, from a state, of a status, or all."""
        ...

    async def calls(self, run_id: str) -> Sequence[AgentCall]:
        """The ledger of a run, in the order in which its calls started, those of one moment as first written."""
        ...

    async def find(self, prefix: str, *, limit: int = 20) -> Sequence[Found]:
        """What begins with `prefix`: sessions by name and id, then links, conversations, runs; newest first."""
        ...

    async def search(self, words: str, *, limit: int = 20) -> Sequence[Hit]:
        """Items that hold all of `words`, best first; quotes and operators are only characters.

        There is one hit for an item and a session that reaches it, by its record or by its links.
        """
        ...

    async def remove_session(self, session_id: str) -> None:
        """Take a session, its links, its runs of agents and all that only it held. What others share stays.

        A link stays while the chain of another session goes on from it. Nothing of what went is
        left in any file once the last process has closed it.

        raises:  NotFound
        """
        ...

    async def remove_link(self, link_id: str) -> None:
        """Take one response. The histories of its children stay whole. raises: NotFound"""
        ...

    async def remove_conversation(self, conversation_id: str) -> None:
        """Take a conversation. Links that went through it keep what they saw. raises: NotFound"""
        ...

    async def lease(self, name: str, holder: str, ttl_s: float, *, instead_of: str | None = None) -> Lease:
        """Take or renew the right to write under `name` for `ttl_s` seconds.

        instead_of:  a holder that is known to be dead; its lease is taken over
        raises:      Busy  somebody else holds it
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back; nothing happens when it has passed to somebody else."""
        ...

    async def holder(self, name: str) -> str | None:
        """Who has the right to write under `name`, by the store's own clock; None where nobody does."""
        ...

    async def revision(self) -> str | None:
        """What differs from the last time when anything may have been written since, by whomever, for any tenant.

        It costs nearly nothing, so it can be asked again and again; None where nobody counts.
        """
        ...

    async def aclose(self) -> None: ...
