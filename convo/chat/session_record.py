"""The record of an open session: its commits, its name and its lease.

Callers pass the state that the session should have; the appended items and the transaction follow
from the difference to the state it had. One process writes a session: the lease is renewed while
the chat is open and expires when that process has ended.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from convo import __version__
from convo.endpoints.base import Endpoint
from convo.errors import Busy, DamagedRow, InvalidUsage, ItemDeleted, NotFound, StoreFault
from convo.history.items import Item, conversation_title
from convo.history.records import SCRATCH_PREFIX, AgentCall, AgentRun, ApprovalDecision, Link, Session
from convo.history.tree import Path
from convo.runtime import Clock, NewId, describe_process, is_process_dead, process_identity, shielded
from convo.stores.base import AppendItems, Store, Transaction, load_session_path, session_name_taken_error
from convo.stores.lease import LeaseGuard
from convo.stores.unstored_requests import DEFAULT_RETENTION, UnstoredRequest, clean_code
from convo.strategies.selection import is_session_handle, parse_turn_handle
from convo.strategies.strategy import STRATEGIES, ConversationState

if TYPE_CHECKING:
    from convo.prompt_cache.compare import PromptChange


class ChatDeps(NamedTuple):
    """The store, the endpoint, the time and the source of ids of one conversation."""

    store: Store
    endpoint: Endpoint
    clock: Clock
    new_id: NewId


class RunUpdate(NamedTuple):
    """The part of an agent run that is committed in one transaction with the session record.

    agent_run, calls:  the run that changes the record, and its call log
    appended_items:    appended after a response: the outputs of calls that started no tool
    decisions:         appended to the log of decisions; only for `SessionRecord.commit_run`
    """

    agent_run: AgentRun | None = None
    calls: tuple[AgentCall, ...] = ()
    appended_items: tuple[Item, ...] = ()
    decisions: tuple[ApprovalDecision, ...] = ()


NO_UPDATE = RunUpdate()


class SessionRecord:
    """One session's record, opened for writing by one process.

    agent_run:      the agent run that was stored last through this record
    warned_change:  the last link before the last request, and the change of the prefix; None if it only appended
    """

    def __init__(self, session: Session, path: Path, last_link: Link | None, deps: ChatDeps, *, is_saved: bool) -> None:
        """Open a record; `last_link` is its last confirmed link.

        is_saved:  whether the store has the record; a new one may begin with a history that the store lacks
        """
        self.session, self.last_link = session, last_link
        self.state = ConversationState(session.strategy, path, session.confirmed_head, session.handle)
        self._store, self._clock = deps.store, deps.clock
        self._is_saved, self._stored_path = is_saved, path if is_saved else Path(path.root)
        self._view_path = Path(path.root)
        self.agent_run: AgentRun | None = None
        self.warned_change: tuple[str | None, PromptChange] | None = None

    async def commit(
        self,
        state: ConversationState,
        *links: Link,
        last_link: Link | None = None,
        run_update: RunUpdate = NO_UPDATE,
        view_path: Path | None = None,
        used_at: float | None = None,
    ) -> None:
        """Commit `state` and `links` in one transaction.

        last_link:  the link that the owner confirmed with this commit
        view_path:  a separate path with one of `links`: its model received another input than the history
        used_at:    seconds since 1970, the time of the last use of the session; None: the current time
        Raises Conflict when another process changed the record, and StoreFault.
        """
        await shielded(self._commit(state, links, last_link, run_update, view_path, used_at))

    async def _commit(
        self,
        state: ConversationState,
        links: tuple[Link, ...],
        last_link: Link | None,
        run_update: RunUpdate,
        view_path: Path | None,
        used_at: float | None,
    ) -> None:
        appends = _make_appends(state.path, self._stored_path)
        if view_path is not None:
            appends += _make_appends(view_path, max(self._stored_path, self._view_path, key=view_path.common_depth))
        last_link = last_link or self.last_link
        session = replace(
            self.session,
            head=state.path.head,
            confirmed_head=state.confirmed_head,
            handle=state.handle,
            link_id=last_link.id if last_link else None,
            used_at=self._clock.now() if used_at is None else used_at,
            use_order=None,
        )
        await self._save(session, appends, links, run_update)
        self.state, self.last_link, self._stored_path = state, last_link, state.path
        self._view_path = view_path or self._view_path
        self.agent_run = run_update.agent_run or self.agent_run

    async def commit_run(self, run_update: RunUpdate) -> None:
        """Commit an agent run; the conversation does not change. Raises Conflict, StoreFault."""
        await shielded(self._commit_run(run_update))

    async def _commit_run(self, run_update: RunUpdate) -> None:
        transaction = Transaction(
            agent_run=run_update.agent_run, agent_calls=run_update.calls, approval_decisions=run_update.decisions
        )
        await self._store.commit(transaction)
        self.agent_run = run_update.agent_run or self.agent_run

    @property
    def is_saved(self) -> bool:
        """Whether the store has the record."""
        return self._is_saved

    def snapshot(self) -> "RecordSnapshot":
        """Return the current state, for `restore`."""
        return RecordSnapshot(self.session, self.state, self.last_link, self._is_saved, self._stored_path)

    async def restore(self, snapshot: "RecordSnapshot", attempt: Link | None) -> None:
        """Restore the record to before `attempt`, a request that was not sent or refused, and keep a row of it.

        Its link is deleted, or a new session.
        """
        await shielded(self._restore(snapshot, attempt))

    async def _restore(self, snapshot: "RecordSnapshot", attempt: Link | None) -> None:
        if not snapshot.is_saved:
            await self._store.remove_session(self.session.id)
        else:
            await self._store.commit(
                Transaction(
                    session=snapshot.session,
                    expected_session_head=self.session.head,
                    removed_link_id=attempt.id if attempt else None,
                )
            )
        self.session, self.state, self.last_link = snapshot.session, snapshot.state, snapshot.last_link
        self._is_saved, self._stored_path = snapshot.is_saved, snapshot.stored_path
        if attempt is not None:
            await add_unstored_requests(self._store, [make_unstored_request(attempt, "responses")])

    async def is_unchanged(self) -> bool:
        """Return whether the head in the store is the one of this process."""
        session = await self._store.session(self.session.id)
        return session is not None and session.head == self.session.head

    async def update_fields(self, session: Session) -> None:
        """Commit other fields of the record; its head and the time of its last use do not change."""
        await shielded(self._save(session))

    async def _save(
        self,
        session: Session,
        appends: tuple[AppendItems, ...] = (),
        links: tuple[Link, ...] = (),
        run_update: RunUpdate = NO_UPDATE,
    ) -> None:
        expected_head = self.session.head if self._is_saved else None
        agent_run = run_update.agent_run
        transaction = Transaction(
            appends,
            links,
            session=session,
            expected_session_head=expected_head,
            agent_run=agent_run,
            agent_calls=run_update.calls,
        )
        await self._store.commit(transaction)
        self.session, self._is_saved = session, True


class RecordSnapshot(NamedTuple):
    """A record at one moment; `stored_path` is the part of its path that the store had."""

    session: Session
    state: ConversationState
    last_link: Link | None
    is_saved: bool
    stored_path: Path


def _make_appends(path: Path, stored_path: Path) -> tuple[AppendItems, ...]:
    """Return the items of `path` to store, when `stored_path` is stored."""
    shared_depth = stored_path.common_depth(path)
    new_items = tuple(node.item for node in path.nodes[shared_depth:])
    return (AppendItems(path.first(shared_depth).head, new_items),) if new_items else ()


OWN_CLIENT = f"convo {__version__}"
"""The client of requests that leave no link."""


def make_unstored_request(link: Link, api: str) -> UnstoredRequest:
    """Return the row that is stored of a request without a link."""
    usage = link.usage or {}
    return UnstoredRequest(
        link.id,
        link.created_at,
        api,
        link.model,
        link.status,
        code=clean_code((link.error or {}).get("code")),
        client=OWN_CLIENT,
        latency_s=link.duration_s,
        first_token_s=link.first_token_s,
        input_tokens=usage.get("input_tokens"),
        cached_tokens=(usage.get("input_tokens_details") or {}).get("cached_tokens"),
        output_tokens=usage.get("output_tokens"),
    )


async def add_unstored_requests(store: Store, rows: Sequence[UnstoredRequest]) -> None:
    """Store requests of this process. A failure is ignored: the error of the request is the one to report."""
    with suppress(StoreFault):
        await shielded(store.add_unstored_requests(rows, DEFAULT_RETENTION))


async def load_session_record(session: Session, deps: ChatDeps) -> SessionRecord:
    """Open the record of a session that the store has. Raises NotFound, ItemDeleted."""
    session, path = await load_session_path(deps.store, session)
    last_link = await load_last_link(deps.store, session)
    return SessionRecord(session, path, last_link, deps, is_saved=True)


async def load_last_link(store: Store, session: Session) -> Link | None:
    """Return the session's last confirmed link. Raises NotFound when the record names a deleted one."""
    if not session.link_id:
        return None
    link = await store.link(session.link_id)
    if link is None:
        raise NotFound("response", session.link_id)
    return link


NAME_WORDS = 4
NAME_MAX_CHARS = 40
"""Characters of a name that is made from a message."""

CHOSEN_NAME_MAX_CHARS = 200
"""Characters of a name that a user chooses; those in a store may be longer."""

RESERVED_NAMES = (".", "..", "*")
"""Names that a shell or a command reads as a folder or as all sessions."""

RESERVED_PREFIXES = (SCRATCH_PREFIX, "-", "ses_", "try_")
"""Prefixes of handles and options, not allowed in names; `owner_of_handle` knows those of endpoints and files."""

NAME_HINT = "use words with dashes, such as monads-in-haskell"


def make_session_name(*items: Item) -> str:
    """Make a name from the title of a conversation with these first items: "what-is-a-monad".

    It never looks like an id or a file, for any message.
    """
    words = re.findall(r"[^\W_]+", conversation_title(items, 200).lower())
    return "-".join(words[:NAME_WORDS])[:NAME_MAX_CHARS].rstrip("-") or "chat"


def validate_session_name(name: str) -> str:
    """Return `name` unless it could be another kind of handle. Raises InvalidUsage."""
    if not name.strip():
        raise InvalidUsage("the name is empty", hint=NAME_HINT)
    if name != name.strip() or not name.isprintable():
        raise InvalidUsage(
            f"{name!r} is not a name: it begins or ends with a space, or is not printable", hint=NAME_HINT
        )
    if len(name) > CHOSEN_NAME_MAX_CHARS:
        raise InvalidUsage(
            f"{name[:NAME_MAX_CHARS]!r}... is longer than {CHOSEN_NAME_MAX_CHARS} characters", hint=NAME_HINT
        )
    # --fork and inspect took a session a@2 for turn 2 of a.
    is_turn = parse_turn_handle(name)[1] is not None
    if is_turn or name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES) or not is_session_handle(name):
        raise InvalidUsage(f"{name!r} is not a name: it looks like an option, an id or a file", hint=NAME_HINT)
    return name


async def check_session_name_free(store: Store, name: str) -> None:
    """Raise InvalidUsage for an invalid name, Conflict for the name of another session."""
    if await store.session(validate_session_name(name)):
        raise session_name_taken_error(name)


async def find_free_session_name(store: Store, wanted_name: str) -> str:
    """Return `wanted_name`, or `wanted_name` with -2, -3, ... when it is taken."""
    stem = re.sub(r"-\d+$", "", wanted_name)
    taken = {session.name for session in await store.sessions()}
    name, number = wanted_name, 1
    while name in taken or await _is_name_stored(store, name):
        number += 1
        name = f"{stem}-{number}"
    return name


async def _is_name_stored(store: Store, name: str) -> bool:
    """Return whether a damaged session, which lists leave out, has this name."""
    try:
        return await store.session(name) is not None
    except DamagedRow:
        return True


SESSION_LEASE_TTL_S = 30.0


async def acquire_session_lease(store: Store, session: Session) -> LeaseGuard:
    """Acquire the lease to write this session and its replay file. Raises Busy when another process has it."""
    try:
        return await LeaseGuard.acquire(store, session_lease_name(session), process_identity(), SESSION_LEASE_TTL_S)
    except Busy as busy:
        raise Busy(_get_session_title(session), describe_process(busy.process), hint=_make_busy_hint(session)) from busy


async def describe_session_writer(store: Store, session: Session) -> str:
    """Describe the process that has that lease; "" when none does or its process has ended."""
    holder = await store.lease_holder(session_lease_name(session))
    return describe_process(holder) if holder and not is_process_dead(holder) else ""


async def acquire_compaction_lease(store: Store, session: Session, model: str, started_at: float) -> LeaseGuard:
    """Acquire a lease by which other processes list the request of a compaction while it runs."""
    name = f"{_COMPACTION_LEASE_PREFIX}{started_at} {session.id} {model}"
    return await LeaseGuard.acquire(store, name, process_identity(), SESSION_LEASE_TTL_S)


_COMPACTION_LEASE_PREFIX = "compaction "

MAX_RUNNING_TURNS = 50
"""The number of sessions, most recently used first, among which running turns are searched."""


class RunningRequest(NamedTuple):
    """A request that another process makes for a session.

    started_at:  seconds since 1970
    items:       the unconfirmed items: the input, and the text so far; none for a compaction
    """

    session: Session
    model: str
    started_at: float
    items: Sequence[Item] = ()


async def list_running_requests(store: Store) -> list[RunningRequest]:
    """Return the requests of other processes that wait for a response or receive one: compactions, then turns.

    A process holds the lease of a session during a turn. After a turn that failed or was stopped, the last link ends at
    the head and at the time of the last use.
    """
    held, found = set(await store.held_leases()), list[RunningRequest]()
    for name in held:
        if name.startswith(_COMPACTION_LEASE_PREFIX):
            _, started_at, session_id, model = name.split(" ", 3)
            compacted = await store.session(session_id)
            holder = await store.lease_holder(name)
            if compacted and holder and not is_process_dead(holder):
                found.append(RunningRequest(compacted, model, float(started_at)))
    for session in await store.sessions(limit=MAX_RUNNING_TURNS) if held else ():
        if session.head == session.confirmed_head or not await describe_session_writer(store, session):
            continue
        with suppress(DamagedRow, ItemDeleted):
            last_links = await store.links(session.id, limit=1)
            if not any(link.head == session.head and link.ended_at >= session.used_at for link in last_links):
                items = await store.items_after(session.head, session.confirmed_head)
                found.append(RunningRequest(session, session.model, session.used_at, items))
    return found


async def acquire_state_lease(store: Store, state_hash: str, document_name: str) -> LeaseGuard:
    """Acquire the lease to resume a document, by its content hash. Raises Busy when another process has it.

    document_name:  for the error message
    """
    try:
        return await LeaseGuard.acquire(store, f"state {state_hash}", process_identity(), SESSION_LEASE_TTL_S)
    except Busy as busy:
        raise Busy(document_name, describe_process(busy.process), hint="wait until that process ends") from busy


def session_lease_name(session: Session) -> str:
    """Return the name of the lease; all sessions of one file share a lease, under any path to it."""
    if session.replay_file:
        return f"file {os.path.realpath(session.replay_file)}"
    return f"session {session.id}"


def _get_session_title(session: Session) -> str:
    return session.replay_file or session.name or session.id


def _make_busy_hint(session: Session) -> str:
    """Return the hint for a busy session; a conversation cannot be forked, since it has one head at its endpoint."""
    if STRATEGIES[session.strategy].uses_conversation:
        return "close that chat first"
    return f"convo chat --fork {quote(_get_session_title(session))}"
