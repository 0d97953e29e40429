"""The store contract, and the rules that every store applies.

All writes go through `Store.commit`, which applies one `Transaction` completely or not at all; a crash
leaves the state before it or after it. Items are immutable and stored once per tenant. Failures are raised
as `StoreFault`, a transaction based on an outdated head as `Conflict`. `StoreAdmin` has the operations on a
whole database, across tenants: migrations, statistics, pruning.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from convo.errors import Conflict, InputFault, NotCanonical, NotFound
from convo.history.items import Item, Json, StreamEvent
from convo.history.records import Link, Session
from convo.history.tree import Key, Path
from convo.stores.codec import is_utf8_encodable

ReportProgress: TypeAlias = Callable[[str, int, int], None]
"""Receives the name of a step, the rows or pages done, and how many there are."""


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """One kind of damage.

    code:     "file", "unreadable", "reference", "tenant", "item", "node", "conversation", "record", "index" or "search"
    count:    how many rows it was found in
    example:  the first of them, in words
    """

    code: str
    count: int
    example: str


class NamedSession(NamedTuple):
    """A session, by its tenant and its name."""

    tenant: str
    name: str


class StoreCheckReport(NamedTuple):
    """The result of checking a whole database.

    rows:       how many were checked, by table
    problems:   empty where every check passed
    sessions:   those whose history cannot be read whole, or is not the history that was stored
    unchecked:  why some checks were left out; empty where none was
    """

    rows: Mapping[str, int]
    problems: Sequence[StoreProblem] = ()
    sessions: Sequence[NamedSession] = ()
    unchecked: str = ""


class TruncatedSession(NamedTuple):
    """A session of which a part is lost.

    items:       how many are left in it
    rest:        the name of the session that holds the items behind the break; empty where none is left
    rest_items:  how many those are
    """

    tenant: str
    name: str
    items: int
    rest: str
    rest_items: int


class RecoveryReport(NamedTuple):
    """The result of copying what can be read of a damaged database.

    rows:   how many are in the new database, by table
    whole:  sessions with the whole history that they had
    cut:    sessions of which a part is left
    lost:   sessions of which only the record is left
    made:   sessions made of histories whose own record is lost
    """

    rows: Mapping[str, int]
    whole: Sequence[NamedSession]
    cut: Sequence[TruncatedSession]
    lost: Sequence[NamedSession]
    made: Sequence[NamedSession]


class ProblemCounter:
    """Counts problems by code and keeps the first of each as the example."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, code: str, example: str, count: int = 1) -> None:
        before, first = self._found.get(code, (0, example))
        self._found[code] = before + count, first

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[StoreProblem]:
        return (StoreProblem(code, count, example) for code, (count, example) in self._found.items())


TransactionObserver: TypeAlias = Callable[[float], None]
"""Receives the seconds of one transaction, with the time that it waited for its turn."""


def ignore_transaction(seconds: float) -> None:
    """Do not measure."""


class AbandonedRun(NamedTuple):
    """An open run that nobody carries out any more: no lease of its name is alive."""

    tenant: str
    response_id: str


class TenantStats(NamedTuple):
    """What one tenant keeps.

    rows:            by kind: "sessions", "responses", "conversations", "items", "places" (the root is none),
                     "events", "runs" (of agents)
    bytes:           of its items, documents and what the tables hold around them, about; without indexes
    oldest, newest:  when its first and its last response or conversation was made, seconds since 1970
    """

    tenant: str
    rows: Mapping[str, int]
    bytes: int
    oldest: float | None
    newest: float | None


class PruneResult(NamedTuple):
    """What a pruning took, or would take: how many of each."""

    sessions: int
    responses: int
    conversations: int


class StoreAdmin(Protocol):
    """What whoever runs a database does with it, across all tenants."""

    async def migrate(self) -> Sequence[int]:
        """Bring the schema up to this convo's, whoever else tries at the same time.

        returns:  the numbers of the migrations that this call ran; none when it was up to date
        raises:   StoreTooNew, StoreFault
        """
        ...

    async def check(self) -> None:
        """Ask the database for something. raises: StoreFault  it cannot be reached, or lacks a migration"""
        ...

    async def check_room(self) -> None:
        """Make sure that there is room for an answer, before a model is asked for one. raises: StoreFull"""
        ...

    async def holdings(self) -> Sequence[TenantStats]:
        """What each tenant keeps, by name; one that keeps nothing is left out."""
        ...

    async def tenants(self) -> Sequence[str]:
        """The names of all tenants that ever kept something. Costs little, whatever they keep."""
        ...

    async def size(self) -> int | None:
        """Bytes on the disk, with indexes and logs; None where there is no disk. Reads no rows."""
        ...

    def observe(self, observe: TransactionObserver) -> None:
        """Call `observe` after every transaction of this process from now on."""
        ...

    async def prune(self, tenant: str, before: float, *, dry: bool) -> PruneResult:
        """Remove what was last used, or made, before this moment (seconds since 1970), as the `remove_` methods do.

        Sessions go by when they were used last; conversations and responses that no session holds by when
        they were made or last answered. A session holds the links that it made, those that its chain goes
        back to, and the conversation that is its handle. A response in an open run stays, and the
        session or conversation that it belongs to.

        dry:  only count
        """
        ...

    async def abandoned(self) -> Sequence[AbandonedRun]:
        """The open runs whose lease has run out, on the database's own clock; in any order."""
        ...

    async def forget_events(self, older_than_s: float) -> int:
        """Drop the events of runs that ended longer ago than this, and leases that ran out as long ago.

        returns:  of how many responses events were dropped
        """
        ...

    async def secret(self, name: str, fresh: bytes) -> bytes:
        """The database's own secret of this name; `fresh` becomes it where there is none yet."""
        ...


class AppendItems(NamedTuple):
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


UNCHANGED_DOCUMENT: Final[Mapping[str, Json]] = MappingProxyType({})
"""Stands for the document of a run as it is kept."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A run of agents, as it stands between two effects.

    id:          "run_...", unique
    session:     the id of the session whose conversation it works on; it goes with that session
    revision:    1 when it is written first, and one more each time
    status:      "running" also when nobody performs it any more; "paused" waits for a person
    document:    the run itself; only the run machine reads it. A change that has `UNCHANGED_DOCUMENT` in its place
                 leaves it as it is
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


ANY_HEAD: Final = AnyHead()


@dataclass(frozen=True, slots=True)
class Transaction:
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

    grow: tuple[AppendItems, ...] = ()
    links: tuple[Link, ...] = ()
    session: Session | None = None
    expect: Key | AnyHead | None = ANY_HEAD
    conversation: Conversation | None = None
    conversation_expect: Key | AnyHead | None = ANY_HEAD
    erase: tuple[Key, ...] = ()
    starts: str | None = None
    ends: str | None = None
    agent_run: AgentRun | None = None
    calls: tuple[AgentCall, ...] = ()


class SessionStats(NamedTuple):
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


class SearchHit(NamedTuple):
    """One item that a search found, and a session whose path passes through it."""

    session: Session
    key: Key
    item: Item


class HandleMatch(NamedTuple):
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


def run_lease_name(response_id: str) -> str:
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
    def upkeep(self) -> StoreAdmin: ...

    async def commit(self, change: Transaction) -> None:
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

    async def outline(self, session_id: str) -> SessionStats:
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

    async def append(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        """Keep these events of an open run, behind those that are kept already; durable on return.

        raises:  Conflict    the run is not open, or a sequence number is not behind the last one
                 InputFault  an event has no sequence number, or cannot be written
        """
        ...

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[StreamEvent]:
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

    async def find(self, prefix: str, *, limit: int = 20) -> Sequence[HandleMatch]:
        """What begins with `prefix`: sessions by name and id, then links, conversations, runs; newest first."""
        ...

    async def search(self, words: str, *, limit: int = 20) -> Sequence[SearchHit]:
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


ExpectedHead: TypeAlias = Key | AnyHead | None
"""Where a head must stand: there, anywhere, or nowhere yet."""

ANSWERED_STATUSES = ("completed", "incomplete")
"""How a link ended that has an answer."""

UNFINISHED_STATUSES = ("queued", "in_progress")
"""How a link stands that may still be written anew."""

MAX_INTEGER = 2**63 - 1
"""The largest number that a database takes."""

KEY_PREFIX_PATTERN = re.compile(r"(?:^|[^0-9a-f])([0-9a-f]{32,64})\Z")
"""The digits that an item's id ends in when it names a place."""


def merge_link(there: Link | None, new: Link) -> Link:
    """The link that stands after `new` was written over `there`.

    One that is unfinished is replaced. A final one stays what it is; a session may claim it, and its
    parent and first token may become known.
    """
    if there is None or there.status in UNFINISHED_STATUSES:
        return new
    return replace(
        there,
        session=there.session or new.session,
        parent=there.parent or new.parent,
        first_token_s=new.first_token_s if there.first_token_s is None else there.first_token_s,
    )


def check_expected_head(what: str, expected: ExpectedHead, there: Key | None) -> None:
    """Make sure that the head of `what` stands where a change expects it; None: no record.

    raises:  Conflict
    """
    if isinstance(expected, AnyHead) or expected == there:
        return
    if there is None:
        raise Conflict(f"{what} is gone", hint="convo sessions")
    raise Conflict(f"{what} is there already" if expected is None else f"{what} moved since it was read")


def check_next_revision(new: AgentRun, there: int) -> None:
    """Make sure that a run follows the revision that is there; 0: there is no such run. raises: Conflict"""
    if new.revision == there + 1:
        return
    if not there:
        raise Conflict(f"{new.id} is gone", hint="convo approvals")
    raise Conflict(f"{new.id} went on since it was read" if new.revision > 1 else f"{new.id} is there already")


def iter_referenced_keys(change: Transaction) -> Iterator[Key]:
    """Every place that `change` says something stands at."""
    for link in change.links:
        yield from (link.saw, link.head)
    if change.session:
        yield from (change.session.head, change.session.mark)
        yield from (change.session.written,) if change.session.written else ()
    if change.conversation:
        yield change.conversation.head


def iter_stored_names(change: Transaction) -> Iterator[str]:
    """Every name that `change` brings: they stand in columns and not in JSON."""
    for link in change.links:
        yield from (link.id, *((link.parent,) if link.parent else ()), *((link.session,) if link.session else ()))
    if change.session:
        yield from (change.session.id, change.session.name, change.session.link or "")
    if change.conversation:
        yield change.conversation.id
    if change.agent_run:
        yield from (change.agent_run.id, change.agent_run.session, change.agent_run.state or "")
    for call in change.calls:
        yield from (call.run, call.call_id)


def check_stored_names(change: Transaction) -> None:
    for name in iter_stored_names(change):
        check_stored_name(name)


def check_stored_name(name: str) -> None:
    """Make sure that `name` is text. raises: NotCanonical  UTF-8 cannot carry it"""
    if not is_utf8_encodable(name):
        raise NotCanonical(f"{name!a} cannot be a name")


def check_item_ids(conversation: Conversation, length: int) -> None:
    """Make sure that a conversation names each of its items. raises: InputFault"""
    if len(conversation.ids) != length:
        raise InputFault(f"{conversation.id} has {length} items, but {len(conversation.ids)} ids for them")


def check_sequence_numbers(events: Sequence[StreamEvent], kept: int) -> int:
    """The sequence number of the last of `events`, which are to stand behind number `kept`.

    raises:  Conflict    one is not behind the one before it
             InputFault  one has no number
    """
    for event in events:
        number = event.get("sequence_number")
        if type(number) is not int or not 0 <= number <= MAX_INTEGER:
            raise InputFault("an event has no sequence number")
        if number <= kept:
            raise Conflict(f"event {number} comes after event {kept}")
        kept = number
    return kept


def own_item_id(item: Item) -> str:
    """The id that an item came with; "" when it has none."""
    found = item.get("id")
    return found if isinstance(found, str) else ""


def parse_key_prefix(item_id: str) -> str:
    """The first digits, 32 or more, of the key of the place that an item's id names; "" when it names none."""
    found = KEY_PREFIX_PATTERN.search(item_id)
    return found[1] if found else ""


def run_not_open_error(response_id: str) -> Conflict:
    return Conflict(f"{response_id!a} is not running")


def agent_run_not_found_error(run_id: str) -> NotFound:
    return NotFound("run", run_id, hint="convo approvals")


def node_not_found_error(key: Key) -> NotFound:
    return NotFound("place in a history", key[:12])


def not_on_path_error(key: Key) -> Conflict:
    return Conflict(f"this history does not pass through {key[:12]!a}")


def session_name_taken_error(name: str) -> Conflict:
    return Conflict(f"another session is called {name!r}", hint="choose another name")


class FileHealth(NamedTuple):
    """A database in a file that can be written, or could be made.

    schema:      the number of its last migration; None where there is no file yet
    known:       the number of this convo's last migration
    free_bytes:  of its disk
    filesystem:  as the system calls it: "ext4", "nfs4"; empty where that cannot be known
    quick_check: the first line of SQLite's quick check, "ok" where it found nothing; None where it took too long
    """

    file: FilePath
    schema: int | None
    known: int
    free_bytes: int
    filesystem: str = ""
    quick_check: str | None = "ok"


class ServerHealth(NamedTuple):
    """A database on a server that let this role in.

    version:     the server's, as it counts: 120022 is 12.22, 180001 is 18.1
    schema:      the number of its last migration; 0 where there are no tables; None where that may not be read
    may_create:  whether this role may make convo's schema
    lacking:     what this role may not do there: "USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"
    read_only:   it takes no writes at all, from anybody or from this role
    tls:         whether the connection is encrypted
    """

    place: str
    version: int
    role: str
    schema: int | None
    known: int
    may_create: bool = False
    lacking: Sequence[str] = ()
    read_only: bool = False
    tls: bool = False


StoreHealth: TypeAlias = FileHealth | ServerHealth
