"""The store contract, and the rules that every store applies.

All writes go through `Store.commit`, which applies one `Transaction` completely or not at all; a crash
leaves the state before it or after it. Items are immutable and stored once per tenant. Failures are raised
as `StoreFault`, a transaction based on an outdated head as `Conflict`. `StoreAdmin` has the operations on a
whole database, across tenants: migrations, statistics, pruning.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, Protocol, TypeAlias

from convo.config.settings import expand_built_in_name
from convo.errors import Conflict, DamagedRow, InputFault, NotCanonical, NotFound, StoreFull
from convo.history.canonical import is_utf8_encodable
from convo.history.items import Item, Json, StreamEvent
from convo.history.records import UNFINISHED_STATUSES, AgentCall, AgentRun, ApprovalDecision, Link, Session
from convo.history.tree import Key, Path
from convo.report import HIDDEN, Count, Keywords, Wire

if TYPE_CHECKING:
    from convo.stores.request_charts import RequestCharts
    from convo.stores.request_list import RequestPage, RequestQuery
    from convo.stores.unstored_requests import Retention, UnstoredRequest


ProblemCode: TypeAlias = Literal[
    "file", "unreadable", "reference", "tenant", "item", "node", "conversation", "record", "row", "index", "search"
]


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """One kind of damage.

    code:     "row" counts the rows that cannot be read
    count:    number of rows with this damage
    example:  description of the first of them
    """

    code: ProblemCode
    count: Annotated[int, Keywords(minimum=1)]
    example: str


class NamedSession(NamedTuple):
    """A session's tenant and name."""

    tenant: str
    name: str


class StoreCheckReport(NamedTuple):
    """The result of checking a whole database.

    row_counts:        rows checked, by table
    problems:          empty if every check passed
    damaged_sessions:  sessions whose history cannot be read completely, or differs from the stored one
    skipped_reason:    why some checks were skipped; empty if none was
    damaged_rows:      the first rows that cannot be read, at most `MAX_LISTED_ROWS`
    """

    row_counts: Annotated[Mapping[str, Count], Wire("rows")]
    problems: Sequence[StoreProblem] = ()
    damaged_sessions: Annotated[Sequence[NamedSession], Wire("sessions")] = ()
    skipped_reason: Annotated[str, Wire("unchecked")] = ""
    damaged_rows: Annotated[Sequence[DamagedRow], HIDDEN] = ()


MAX_LISTED_ROWS = 100
"""Damaged rows that a check lists; the others are only counted."""


class TruncatedSession(NamedTuple):
    """A session that lost a part of its history.

    item_count:       items left in it
    rest_name:        name of the session with the items after the break; empty if there are none
    rest_item_count:  number of these items
    """

    tenant: str
    name: str
    item_count: Annotated[Count, Wire("items")]
    rest_name: Annotated[str, Wire("rest")]
    rest_item_count: Annotated[Count, Wire("rest_items")]


class RecoveryReport(NamedTuple):
    """The result of copying the readable rows of a damaged database.

    row_counts:          rows in the new database, by table
    complete_sessions:   sessions with their whole history
    truncated_sessions:  sessions with a part of their history
    lost_sessions:       sessions with nothing but their record
    recreated_sessions:  sessions created for histories whose own record is lost
    repaired_rows:       damaged records whose invalid columns were replaced
    omitted_rows:        damaged records that are not in the new database
    """

    row_counts: Mapping[str, int]
    complete_sessions: Sequence[NamedSession]
    truncated_sessions: Sequence[TruncatedSession]
    lost_sessions: Sequence[NamedSession]
    recreated_sessions: Sequence[NamedSession]
    repaired_rows: Sequence[DamagedRow] = ()
    omitted_rows: Sequence[DamagedRow] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing or replaced."""
        return not any((*self[2:],))


class ProblemCounter:
    """Count problems by code and keep the first of each as its example."""

    def __init__(self) -> None:
        self._counts: dict[ProblemCode, tuple[int, str]] = {}
        self.damaged_rows: list[DamagedRow] = []

    def add(self, code: ProblemCode, example: str, count: int = 1) -> None:
        before, first = self._counts.get(code, (0, example))
        self._counts[code] = before + count, first

    def add_row(self, error: DamagedRow) -> None:
        """Count a row that cannot be read, and list it if it is one of the first."""
        self.add("row", error.message)
        if len(self.damaged_rows) < MAX_LISTED_ROWS:
            self.damaged_rows.append(error)

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __iter__(self) -> Iterator[StoreProblem]:
        return (StoreProblem(code, count, example) for code, (count, example) in self._counts.items())


TransactionObserver: TypeAlias = Callable[[float], None]
"""Called with the duration of one transaction in seconds, including the time that it waited to start."""


def ignore_transaction(seconds: float) -> None:
    """Ignore the duration."""


DamagedRowObserver: TypeAlias = Callable[[DamagedRow], None]
"""Called with each damaged row that a list left out; the same row may be reported several times."""


def warn_of_damaged_row(error: DamagedRow) -> None:
    """Log a row that a list left out, for programs that set no observer."""
    import logging

    logging.getLogger("convo.stores").warning("%s; it was left out", error)


def warn_of_migration(location: str) -> None:
    """Log, on stderr unless the program sets a handler, that a store is migrated which others have open."""
    import logging

    logging.getLogger("convo.stores").warning(
        "convo migrates %s, which another process has open; restart it if it is of an earlier version", location
    )


class AbandonedRun(NamedTuple):
    """An open run that no process performs any more: the lease of its name is missing or expired."""

    tenant: str
    response_id: str


class TenantStats(NamedTuple):
    """The number and size of one tenant's records.

    row_counts:  by kind: "sessions", "responses", "conversations", "items", "places" (nodes without the root),
                 "events", "runs" (agent runs), "files"
    size_bytes:  estimated size of items, documents, files and row overhead; without indexes
    oldest_at:   creation of the first response or conversation, seconds since 1970
    newest_at:   creation of the last one
    """

    tenant: str
    row_counts: Annotated[Mapping[str, Count], Wire("rows")]
    size_bytes: Annotated[Count, Wire("bytes")]
    oldest_at: Annotated[float | None, Wire("oldest")]
    newest_at: Annotated[float | None, Wire("newest")]


class PruneResult(NamedTuple):
    """How many records of each kind a pruning deleted, or would delete."""

    sessions: Count
    responses: Count
    conversations: Count
    files: Count = 0


class StoredFile(NamedTuple):
    """An uploaded file, without its content.

    id:          "file-...", unique
    name:        the file name as the client sent it, never used as a path
    media_type:  as the client sent it, or guessed from the name: "application/pdf"
    size_bytes:  length of the content
    created_at, expires_at:  seconds since 1970; without `expires_at` it is kept until it is deleted or pruned
    """

    id: str
    name: str
    purpose: str
    media_type: str
    size_bytes: int
    created_at: float
    expires_at: float | None = None


class FileQuota(NamedTuple):
    """The files that one tenant may store: their number, and the sum of their sizes in bytes."""

    max_files: int
    max_bytes: int


class MessageChannel(Protocol):
    """Short messages between the processes that use a database."""

    async def send(self, message: str) -> None:
        """Send a text of at most 7,999 bytes. Raises StoreFault."""
        ...

    def receive(self) -> AsyncGenerator[str, None]:
        """Yield the messages of all processes, also of this one. Raises StoreFault."""
        ...


class StoreAdmin(Protocol):
    """Operations on a whole database, across all tenants."""

    @property
    def messages(self) -> MessageChannel | None:
        """The messages of the database's processes; None with SQLite, which cannot notify another process."""
        ...

    async def migrate(self) -> Sequence[int]:
        """Migrate the schema to this convo's version; safe when several processes call it at the same time.

        Returns the numbers of the migrations that this call ran; empty if the schema was up to date.
        Raises StoreTooNew and StoreFault.
        """
        ...

    async def check_ready(self) -> None:
        """Query the database. Raises StoreFault if it cannot be reached, lacks a migration or has no disk space.

        That a server's disk, or a quota, is full is known only from a write that failed in the last `FULL_DISK_S`.
        """
        ...

    async def check_disk_space(self) -> None:
        """Check that there is disk space for a response, before a model is called. Raises StoreFull."""
        ...

    async def tenant_stats(self) -> Sequence[TenantStats]:
        """Return the statistics of each tenant, sorted by name; tenants without records are left out."""
        ...

    async def tenant_names(self) -> Sequence[str]:
        """Return the names of all tenants that ever stored something. The cost is independent of the amount of data."""
        ...

    async def size_bytes(self) -> int | None:
        """Return the bytes on disk, with indexes and logs; None if there is no disk. Reads no rows."""
        ...

    def set_transaction_observer(self, observer: TransactionObserver) -> None:
        """Call `observer` after every later transaction of this process."""
        ...

    def set_damaged_row_observer(self, observer: DamagedRowObserver) -> None:
        """Call `observer` with each damaged row that a later list of this process leaves out, for any tenant.

        Without an observer such rows are logged.
        """
        ...

    async def prune(self, tenant: str, cutoff: float, *, dry_run: bool) -> PruneResult:
        """Remove records last used, or created, before `cutoff` (seconds since 1970), as the `remove_` methods do.

        For a session the time of its last use counts; for a file the time of its upload; for a conversation or response
        that no session references, the time of its creation or of the last response in it that stays. A session
        references the links that it made, those that its chain continues, and the conversation that is its handle. A
        response in an open run is not removed, nor is the session or conversation that it belongs to.

        dry_run:  only count
        """
        ...

    async def abandoned_runs(self) -> Sequence[AbandonedRun]:
        """Return the open runs whose lease has expired on the database's own clock, in any order."""
        ...

    async def prune_events(self, older_than_s: float) -> int:
        """Delete the events of runs that ended longer ago than this, and leases that expired as long ago.

        Returns the number of responses whose events were deleted.
        """
        ...

    async def prune_files(self, now: float) -> int:
        """Delete the files of all tenants that expired up to `now` (seconds since 1970), and return their number."""
        ...

    async def get_or_create_secret(self, name: str, new_secret: bytes) -> bytes:
        """Return the database's secret of this name. If there is none, `new_secret` is stored and returned."""
        ...


class AppendItems(NamedTuple):
    """Items to append after a node, in order. Those that are stored already are not written again."""

    after: Key
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of the embedded endpoint.

    head:      the last node of its items
    item_ids:  the id of each item on the path to `head`, oldest first: the item's own id, or else the one that this
               conversation assigned. It does not change while the item exists
    """

    id: str
    head: Key
    created_at: float
    item_ids: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


UNCHANGED_DOCUMENT: Final[Mapping[str, Json]] = MappingProxyType({})
"""Placeholder in a transaction: the stored document of a run is kept as it is."""


class AnyHead:
    """The expectation "any head, or none": the transaction does not depend on it."""


ANY_HEAD: Final = AnyHead()


@dataclass(frozen=True, slots=True)
class Transaction:
    """One write. Nodes that nothing references after it are deleted in it.

    appends:       items, each after a node that the store has or that an earlier append creates; they are kept if a
                   link, session or conversation references the last of them or a node after it
    links:         inserted, or replaced while the stored one is queued or in progress; of a final one, `session_id`,
                   `parent_id` and `first_token_s` are filled in where they are empty
    session:       the new record
    expected_session_head:  the session's head before; None: there must be no such record
    conversation:  the new record
    expected_conversation_head:  the conversation's head before; None: there must be no such record
    erased_nodes:  nodes whose items are deleted; a path through one raises `ItemDeleted`, and the body is deleted with
                   the last node that has the item. Appending there again restores it. With a `conversation`, nodes of
                   the same items that only its earlier links still reach are erased too
    started_run_id:  a response, among `links` or stored before, whose run is open from now on and accepts events.
                   A run is deleted with its response; one that ended without events is deleted at once
    ended_run_id:  a response whose run must be open before and is closed afterwards; else `Conflict`
    agent_run:     the new record. Its revision is one more than the stored one's, 1 if there is none, else
                   `Conflict`; its session is `session` or stored before
    agent_calls:   written in order; the run of each is `agent_run` or stored before. A stored call that has not ended
                   is replaced; one that has ended is never changed, and a write to it (also a second end) is ignored
    approval_decisions:  appended to the log in order; the run of each is `agent_run` or stored before
    removed_link_id:  a response that is deleted, if it is stored: the request in progress that one of `links` replaces
                   under another id
    required_link_id: a response that must be stored before; else `NotFound`
    """

    appends: tuple[AppendItems, ...] = ()
    links: tuple[Link, ...] = ()
    session: Session | None = None
    expected_session_head: Key | AnyHead | None = ANY_HEAD
    conversation: Conversation | None = None
    expected_conversation_head: Key | AnyHead | None = ANY_HEAD
    erased_nodes: tuple[Key, ...] = ()
    started_run_id: str | None = None
    ended_run_id: str | None = None
    agent_run: AgentRun | None = None
    agent_calls: tuple[AgentCall, ...] = ()
    approval_decisions: tuple[ApprovalDecision, ...] = ()
    removed_link_id: str | None = None
    required_link_id: str | None = None


class SessionStats(NamedTuple):
    """Figures of a session, without its history.

    item_count:         items on the path to its head
    unconfirmed_count:  items on it after the confirmed head
    turn_count:         links with a response, or with the text of an interrupted one
    first_item:         None if there is none, or if it was deleted
    """

    item_count: int
    unconfirmed_count: int
    turn_count: int
    first_item: Item | None


class SearchResult(NamedTuple):
    """The items that a search found, best first, each with the first node that has it on the paths of each owner.

    matches:     an owner is the id of a session, a conversation, or a response without a session
    is_limited:  whether the search stopped before the last match
    """

    matches: Sequence[tuple[Item, Mapping[str, Key]]]
    is_limited: bool = False


class HandleMatch(NamedTuple):
    """One record whose handle begins with the given text.

    kind:   "session", "response", "conversation" or "run"
    id:     the full id
    label:  a name or the first words, for a person to choose by; for an agent run its status
    """

    kind: str
    id: str
    label: str


class Lease(NamedTuple):
    """The right to write under a name, until `expires_at` on the store's own clock (seconds)."""

    name: str
    holder: str
    expires_at: float


def run_lease_name(response_id: str) -> str:
    """Return the name of the lease that the process performing this response holds and renews."""
    return f"running {response_id}"


class Store(Protocol):
    """The histories and records of one tenant; items are added, never changed.

    A store guarantees: a transaction is applied completely or not at all, and is durable when `commit` returns; readers
    see whole transactions, in order; a transaction based on an outdated head raises `Conflict`; each item is stored
    once, however often it is sent; failures are raised as `StoreFault`. Callers must close it, and must not change an
    item after passing it to the store.

    A row whose JSON or columns are invalid raises `DamagedRow` where it is read, and does not change. Lists that a
    person reads leave it out and report it to the observer of `StoreAdmin.set_damaged_row_observer`: `sessions`,
    `links`, `related_links`, `conversation_links`, `find_handles`, `search_items`, the first item in `session_stats`,
    and the `agent_runs` of all sessions.
    """

    @property
    def tenant(self) -> str: ...

    def for_tenant(self, tenant: str) -> "Store":
        """Return the same database for another tenant. Closing either closes both."""
        ...

    @property
    def admin(self) -> StoreAdmin: ...

    def report_damaged_row(self, error: DamagedRow) -> None:
        """Report a row to the observer that a caller left out of its own list."""
        ...

    async def commit(self, transaction: Transaction) -> None:
        """Apply `transaction`.

        Raises Conflict if a head is not the expected one or a name is taken; NotFound if an append, a record or an
        erasure names a missing node, `started_run_id` a missing response, an agent run a missing session, or a call a
        missing run; InputFault if an item or a name cannot be written, or an item of a conversation has no id;
        StoreFault if nothing was changed.
        """
        ...

    async def path(self, head: Key, known: Path | None = None) -> Path:
        """Return the path to `head`, with items as they were sent.

        known:  a path that was read or committed before; it is returned if it still is the path to `head`, and the
                items are not read again

        Raises NotFound for an unknown node, ItemDeleted if an item on it was deleted.
        """
        ...

    async def items_after(self, head: Key, after: Key) -> Sequence[Item]:
        """Return the items after `after` on the path to `head`, oldest first; none before them is read.

        Raises NotFound for an unknown `head`, ItemDeleted if one of these items was deleted, Conflict if `after` is not
        on the path.
        """
        ...

    async def first_items(self, head: Key, limit: int) -> Sequence[Item]:
        """Return the first items on the path to `head`, at most `limit`; deleted and damaged ones are left out.

        Raises NotFound if there is no such node.
        """
        ...

    async def session(self, name_or_id: str) -> Session | None:
        """Return the session with this id, or else with this name."""
        ...

    async def sessions(self, *, limit: int | None = None, strict: bool = False) -> Sequence[Session]:
        """Return the sessions, last used first.

        strict:  raise DamagedRow for a damaged one, instead of leaving it out
        """
        ...

    async def session_stats(self, session_id: str) -> SessionStats:
        """Return the figures of a session; only its first item is read. Raises NotFound."""
        ...

    async def link(self, link_id: str) -> Link | None: ...

    async def links(self, session_id: str, *, strict: bool = False, limit: int | None = None) -> Sequence[Link]:
        """Return every link that this session made, oldest first.

        limit:   at most this many, the newest
        strict:  raise DamagedRow for a damaged one, instead of leaving it out
        """
        ...

    async def responses_to(self, *input_heads: Key) -> Sequence[Link]:
        """Return the links whose input ends at one of `input_heads`, oldest first, in one query for all of them.

        Raises DamagedRow for any of them that is damaged: without it a request could be sent twice.
        """
        ...

    async def related_links(self, link_id: str, *, limit: int | None = None) -> Sequence[Link]:
        """Return the tree of links that contains this one, oldest first; empty for an unknown link.

        It includes forks, made by any session, and the other children of a parent that is not stored.

        limit:  the most links that are read: this one, then its ancestors, then the links closest to them; None for all
        """
        ...

    async def child_links(self, link_id: str, *, limit: int) -> Sequence[Link]:
        """Return at most `limit` links that continue this one, oldest first."""
        ...

    async def conversation(self, conversation_id: str, known: Conversation | None = None) -> Conversation | None:
        """Return a conversation.

        known:  the conversation as it was read or committed before; its item ids are used if they did not change
        """
        ...

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        """Return the links made in this conversation, oldest first, also after it was removed."""
        ...

    async def item(self, item_id: str) -> Item | None:
        """Return the item with this id, as it was sent.

        The id is the item's own, or assigned by a conversation, or ends in at least the first 32 hex digits of the key
        of the item's node, after a character that is no hex digit. If several items match, the one stored last is
        returned. A deleted item is not found.
        """
        ...

    async def append_events(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        """Append events to an open run; durable on return.

        Raises Conflict if the run is not open or a sequence number does not follow the last one; InputFault if an event
        has no sequence number or cannot be written.
        """
        ...

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[StreamEvent]:
        """Return the stored events of a response with a sequence number greater than `after`, in order."""
        ...

    async def agent_run(self, run_id: str) -> AgentRun | None: ...

    async def agent_runs(
        self,
        *,
        session_id: str | None = None,
        source_state_hash: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> Sequence[AgentRun]:
        """Return agent runs, last changed first: those of a session, with a source state, with a status, or all.

        A damaged one is left out of a list of all sessions; with `session_id` or `source_state_hash` it raises
        DamagedRow, because without it a run could start twice.
        """
        ...

    async def agent_calls(self, run_id: str) -> Sequence[AgentCall]:
        """Return the tool calls of a run by start time, then in the order in which they were first written."""
        ...

    async def approval_decisions(self, run_id: str | None = None, *, limit: int = 100) -> Sequence[ApprovalDecision]:
        """Return the newest decisions on tool calls, of one run or of all, last decided first.

        A damaged one is left out.
        """
        ...

    async def find_handles(self, prefix: str, *, limit: int = 20) -> Sequence[HandleMatch]:
        """Return records whose handle begins with `prefix`.

        Sessions (by name and id) come first, then links, conversations and agent runs; each newest first.
        """
        ...

    async def search_items(self, query: str, *, limit: int = 20) -> SearchResult:
        """Return items that contain all words of `query`, best first; quotes and operators are ordinary characters.

        An item has its owners by their records or by their links. Those of `limit` items are looked for: an item that
        has none any more is left out.
        """
        ...

    async def list_requests(self, query: "RequestQuery") -> "RequestPage":
        """Return one page of the links and of the requests that left none, sorted and filtered.

        Only the links and titles of the page are read. Sessions and links are not locked: a page may miss a request
        that was written between two pages.
        """
        ...

    async def chart_requests(self, query: "RequestQuery") -> "RequestCharts":
        """Return the figures of all links, and of the requests that left none, that pass the filters of `query`.

        Its order and page are ignored. Damaged rows are left out and counted.
        """
        ...

    async def add_unstored_requests(self, requests: "Sequence[UnstoredRequest]", retention: "Retention") -> None:
        """Add rows of requests that left no response, and delete those that are too old or too many."""
        ...

    async def unstored_request(self, request_id: str) -> "UnstoredRequest | None":
        """Return one such row by the id of its request."""
        ...

    async def count_unrecorded(self) -> Sequence[tuple[str, int]]:
        """Return clients of completed requests that a server could have recorded, and their number, most first."""
        ...

    async def request_models(self, expand_model_name: Callable[[str], str] = expand_built_in_name) -> Sequence[str]:
        """Return the models of the 10,000 newest links, sorted.

        expand_model_name:  returns the full name of a model
        """
        ...

    async def request_tools(self) -> Sequence[str]:
        """Return the tools by which the 10,000 newest links can be filtered, sorted: at most 200."""
        ...

    async def remove_session(self, session_id: str) -> None:
        """Delete a session, its links, its agent runs and everything that only it referenced.

        A link is kept while the chain of another session continues it. No deleted byte is left in any file once the
        last process has closed it. Raises NotFound.
        """
        ...

    async def remove_link(self, link_id: str) -> None:
        """Delete one response. The histories of its children stay complete. Raises NotFound."""
        ...

    async def remove_conversation(self, conversation_id: str) -> None:
        """Delete a conversation. Links made in it keep their input. Raises NotFound."""
        ...

    async def add_file(self, file: StoredFile, content: bytes, quota: FileQuota) -> bool:
        """Store an uploaded file; a content that the tenant already has is not stored again.

        Expired files are deleted first. Returns False, and stores nothing, if the tenant would then have more than
        `quota`. Raises NotCanonical for a name that cannot be stored.
        """
        ...

    async def file(self, file_id: str) -> StoredFile | None:
        """Return the file with this id, also after it expired."""
        ...

    async def files(self) -> Sequence[StoredFile]:
        """Return all files, in the order of their upload, expired ones included."""
        ...

    async def file_content(self, file_id: str) -> bytes | None: ...

    async def remove_file(self, file_id: str) -> None:
        """Delete a file, and its content unless another file has it. Raises NotFound."""
        ...

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        """Acquire or renew the right to write under `name` for `ttl_s` seconds.

        dead_holder:  a holder known to be dead, whose lease is taken over

        Raises Busy if another holder has it.
        """
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Release a lease; does nothing if another holder has it now."""
        ...

    async def lease_holder(self, name: str) -> str | None:
        """Return the holder of the lease `name` by the store's own clock, or None."""
        ...

    async def held_leases(self) -> Sequence[str]:
        """Return the names of the leases that are held by the store's own clock, in any order."""
        ...

    async def data_version(self) -> str | None:
        """Return a value that changes whenever something may have been written, by any process, for any tenant.

        It costs nearly nothing, so it can be polled; None if the store has no such counter.
        """
        ...

    async def aclose(self) -> None: ...


ExpectedHead: TypeAlias = Key | AnyHead | None
"""The head that is required: this key, any (`ANY_HEAD`), or no record yet (None)."""

MAX_ERASED_NODES = 1000
"""Nodes with a deleted item that are compared with a known path; if a tenant has more, the path is read again."""


def is_intact(path: Path, keys: Sequence[bytes]) -> bool:
    """Return whether a path is stored and no item on it was deleted.

    keys:  of its head, if that is stored, and of `MAX_ERASED_NODES` nodes of the tenant with a deleted item
    """
    found = [key.hex() for key in keys]
    if len(found) > 1 and len(found) <= MAX_ERASED_NODES:
        on_path = set(path.keys)
        found = [key for key in found if key in on_path]
    return found == [path.head]


HIGHEST_CHARACTER = "\U0010ffff"
"""Sorts after every character of a name."""

MAX_INTEGER = 2**63 - 1
"""The largest integer that a database column can store."""

KEY_PREFIX_PATTERN = r"(?:^|[^0-9a-f])([0-9a-f]{32,64})\Z"
"""Matches the digits at the end of an item's id that name a node."""


def merge_link(stored: Link | None, new: Link) -> Link:
    """Return the link that is stored after `new` was written over `stored`.

    An unfinished link is replaced. A final one keeps its values; only an empty session, parent or first token is
    filled in.
    """
    if stored is None or stored.status in UNFINISHED_STATUSES:
        return new
    return replace(
        stored,
        session_id=stored.session_id or new.session_id,
        parent_id=stored.parent_id or new.parent_id,
        first_token_s=new.first_token_s if stored.first_token_s is None else stored.first_token_s,
    )


def check_expected_head(subject: str, expected: ExpectedHead, stored: Key | None) -> None:
    """Check that the head of `subject` is the one that a transaction expects; `stored` is None if there is no record.

    Raises Conflict.
    """
    if isinstance(expected, AnyHead) or expected == stored:
        return
    if stored is None:
        raise Conflict(f"{subject} no longer exists").replace_hint(NotFound.hint, NotFound.prompt_hint)
    raise Conflict(f"{subject} already exists" if expected is None else f"{subject} changed since it was read")


def check_next_revision(new: AgentRun, stored_revision: int) -> None:
    """Check that a run has the revision after `stored_revision`; 0: there is no such run. Raises Conflict."""
    if new.revision == stored_revision + 1:
        return
    if not stored_revision:
        raise Conflict(f"{new.id} no longer exists", hint="convo approvals")
    raise Conflict(f"{new.id} changed since it was read" if new.revision > 1 else f"{new.id} already exists")


def iter_referenced_keys(transaction: Transaction) -> Iterator[Key]:
    """Iterate over the key of every node that a record of the transaction references."""
    for link in transaction.links:
        yield from (link.input_head, link.head)
        yield from (link.body_head,) if link.body_head else ()
    if transaction.session:
        yield from (transaction.session.head, transaction.session.confirmed_head)
        yield from (transaction.session.file_head,) if transaction.session.file_head else ()
    if transaction.conversation:
        yield transaction.conversation.head


def iter_stored_names(transaction: Transaction) -> Iterator[str]:
    """Iterate over every name in the transaction that is stored in a column and not in JSON."""
    for link in transaction.links:
        yield from (
            link.id,
            *((link.parent_id,) if link.parent_id else ()),
            *((link.session_id,) if link.session_id else ()),
        )
    if transaction.session:
        yield from (transaction.session.id, transaction.session.name, transaction.session.link_id or "")
    if transaction.conversation:
        yield transaction.conversation.id
    if transaction.agent_run:
        yield from (
            transaction.agent_run.id,
            transaction.agent_run.session_id,
            transaction.agent_run.source_state_hash or "",
        )
    for call in transaction.agent_calls:
        yield from (call.run_id, call.call_id)
    for decision in transaction.approval_decisions:
        yield decision.run_id


def check_stored_names(transaction: Transaction) -> None:
    names = tuple(iter_stored_names(transaction))
    if not is_utf8_encodable("".join(names)):
        for name in names:
            check_stored_name(name)


def check_stored_name(name: str) -> None:
    """Check that `name` can be encoded as UTF-8. Raises NotCanonical."""
    if not is_utf8_encodable(name):
        raise NotCanonical(f"{name!a} cannot be used as a name")


def check_item_ids(conversation: Conversation, length: int) -> None:
    """Check that a conversation has an id for each of its items. Raises InputFault."""
    if len(conversation.item_ids) != length:
        raise InputFault(f"{conversation.id} has {length} items, but {len(conversation.item_ids)} ids for them")


def check_sequence_numbers(events: Sequence[StreamEvent], last_number: int) -> int:
    """Return the sequence number of the last of `events`, which are appended after number `last_number`.

    Raises Conflict if one does not follow the one before it, InputFault if one has no number.
    """
    for event in events:
        number = event.get("sequence_number")
        if type(number) is not int or not 0 <= number <= MAX_INTEGER:
            raise InputFault("an event has no sequence number")
        if number <= last_number:
            raise Conflict(f"event {number} does not follow event {last_number}")
        last_number = number
    return last_number


def own_item_id(item: Item) -> str:
    """Return the item's own id; "" if it has none."""
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) else ""


def parse_key_prefix(item_id: str) -> str:
    """Return the first digits, 32 or more, of the node key that an item's id ends in; "" if there are none."""
    match = re.search(KEY_PREFIX_PATTERN, item_id)
    return match[1] if match else ""


async def load_session_path(store: Store, session: Session) -> tuple[Session, Path]:
    """Return the session and its path; as it is now if its writer has replaced its head since it was read.

    The text of a response in progress is stored again and again, each time in place of the one before.

    Raises NotFound, ItemDeleted.
    """
    while True:
        try:
            return session, await store.path(session.head)
        except NotFound:
            current = await store.session(session.id)
            if current is None or current.head == session.head:
                raise
            session = current


async def load_conversation(store: Store, conversation_id: str, known: Conversation | None = None) -> Conversation:
    """Load a conversation; `known` as in `Store.conversation`. Raises NotFound."""
    conversation = await store.conversation(conversation_id, known)
    if conversation is None:
        raise NotFound("conversation", conversation_id)
    return conversation


def run_not_open_error(response_id: str) -> Conflict:
    return Conflict(f"{response_id!a} is not running")


def agent_run_not_found_error(run_id: str) -> NotFound:
    return NotFound("run", run_id, hint="convo approvals")


def node_not_found_error(key: Key) -> NotFound:
    return NotFound("node", key[:12])


def not_on_path_error(key: Key) -> Conflict:
    return Conflict(f"this history does not pass through {key[:12]!a}")


FULL_DISK_S = 10.0
"""Seconds after a write that failed for lack of space in which a store counts as full: then writes are tried again."""


def check_not_recently_full(full_at_s: float | None) -> None:
    """Raise StoreFull if a write failed for lack of space less than `FULL_DISK_S` ago, by the event loop's clock."""
    from asyncio import get_running_loop

    if full_at_s is not None and get_running_loop().time() - full_at_s < FULL_DISK_S:
        raise StoreFull("the last write failed, because no disk space was left")


def session_name_taken_error(name: str) -> Conflict:
    return Conflict(f"another session has the name {name!r}", hint="choose another name")


class FileHealth(NamedTuple):
    """A database in a file that can be written or created.

    schema_version:         the number of its last migration; None if there is no file yet
    latest_schema_version:  the number of this convo's last migration
    free_bytes:             of its disk
    filesystem:             as the operating system names it: "ext4", "nfs4"; empty if unknown
    quick_check:            the first line of SQLite's quick check, "ok" if it found nothing; None if it took too long
    """

    file: FilePath
    schema_version: int | None
    latest_schema_version: int
    free_bytes: int
    filesystem: str = ""
    quick_check: str | None = "ok"


class ServerHealth(NamedTuple):
    """A database on a server that accepted this role.

    server_version:         PostgreSQL's number: 120022 is 12.22, 180001 is 18.1
    schema_version:         the number of its last migration; 0 without tables; None if it may not be read
    can_create_schema:      whether this role may create convo's schema
    missing_privileges:     of "USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"
    is_read_only:           it accepts no writes, from any role or from this one
    uses_tls:               whether the connection is encrypted
    """

    location: str
    server_version: int
    role: str
    schema_version: int | None
    latest_schema_version: int
    can_create_schema: bool = False
    missing_privileges: Sequence[str] = ()
    is_read_only: bool = False
    uses_tls: bool = False


StoreHealth: TypeAlias = FileHealth | ServerHealth
