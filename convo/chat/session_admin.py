"""Rename and delete sessions, and save a repaired history as a new session.

Renaming and deleting take the session's lease first, so no open chat loses its record. A repaired
history shares all nodes before the first fix and is a fork of the last response before it.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace

from convo.chat.lookup import read_or_report
from convo.chat.session_record import acquire_session_lease, validate_session_name
from convo.errors import Busy, InvalidUsage, ItemDeleted, NotFound
from convo.history.records import EMBEDDED_SCOPE, Link, Scope, Session, strip_item_secrets
from convo.history.tree import Key, Path, root_key
from convo.lint.model import LintView
from convo.runtime import Clock, NewId
from convo.stores.base import AppendItems, Store, Transaction
from convo.strategies.strategy import STRATEGIES

MAX_LISTED_RUNS = 1_000_000


@dataclass(frozen=True, slots=True)
class RemovedSession:
    """The deleted data of one session.

    link_count, item_count:  without those that other sessions share
    run_ids:                 the agent runs
    remaining_copies:        data that remains elsewhere, as text: a replay file, a remote endpoint's copy
    """

    session: Session
    link_count: int
    item_count: int
    run_ids: tuple[str, ...] = ()
    remaining_copies: str = ""


async def set_session_name(store: Store, session: Session, name: str) -> Session:
    """Rename a session; its position in the order of use does not change.

    Raises InvalidUsage when `name` could be taken for another kind of handle, Conflict when another session has it,
    and Busy when the session is open in another process.
    """
    renamed = replace(session, name=validate_session_name(name))
    async with _lease_sessions(store, [session]):
        await store.commit(Transaction(session=renamed, expected_session_head=session.head))
    return renamed


async def delete_sessions(store: Store, sessions: Sequence[Session]) -> list[RemovedSession]:
    """Delete sessions with all data that no other session shares; none of them when one is open.

    A conversation of the embedded endpoint is deleted with the last session that uses it.
    Raises Busy, NotFound, StoreFault.
    """
    async with _lease_sessions(store, sessions):
        return [await _remove_session(store, session) for session in sessions]


async def _remove_session(store: Store, session: Session) -> RemovedSession:
    links = await store.links(session.id)
    paths = await _load_longest_paths(
        store, [session.head, *(key for link in reversed(links) for key in (link.head, link.input_head))]
    )
    runs = await read_or_report(store, store.agent_runs(session_id=session.id, limit=MAX_LISTED_RUNS))
    run_ids = tuple([run.id for run in runs or ()])
    if session.conversation_id and session.scope == EMBEDDED_SCOPE:
        await _remove_conversation(store, session)  # first, so that after a kill in between the record still names it
    await store.remove_session(session.id)
    deleted_link_ids = [link.id for link in links if await store.link(link.id) is None]
    deleted_keys: set[Key] = set()
    for keys in paths:
        deleted_keys.update(keys[await _count_remaining(store, keys) :])
    return RemovedSession(
        session, len(deleted_link_ids), len(deleted_keys), run_ids, describe_remaining_copies(session, links)
    )


async def _load_longest_paths(store: Store, heads: Iterable[Key]) -> list[Sequence[Key]]:
    """Return the paths to `heads`, without those that are a prefix of another one."""
    paths: list[Sequence[Key]] = []
    known_keys: set[Key] = set()
    for head in heads:
        if head not in known_keys:
            with suppress(NotFound, ItemDeleted):
                paths.append((await store.path(head)).keys)
                known_keys.update(paths[-1])
    return paths


async def _remove_conversation(store: Store, session: Session) -> None:
    """Remove the conversation of a session, unless another session uses it too."""
    other_sessions = [
        other for other in await store.sessions() if other.handle == session.handle and other.id != session.id
    ]
    if not other_sessions and session.handle and await store.conversation(session.handle):
        await store.remove_conversation(session.handle)


async def _count_remaining(store: Store, keys: Sequence[Key]) -> int:
    """Return how many nodes of a path are still stored, by binary search: the ancestors of a stored node are stored."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high + 1) // 2
        if await _is_stored(store, keys[middle - 1]):
            low = middle
        else:
            high = middle - 1
    return low


async def _is_stored(store: Store, key: Key) -> bool:
    try:
        await store.path(key)
    except ItemDeleted:
        return True
    except NotFound:
        return False
    return True


def describe_remaining_copies(session: Session, links: Sequence[Link]) -> str:
    """Return a description of the data that deleting a session leaves elsewhere; "" when there is none.

    links:  the links of the session
    """
    parts = []
    if session.replay_file:
        parts.append(f"the file {session.replay_file} stays")
    if session.scope != EMBEDDED_SCOPE and STRATEGIES[session.strategy].is_server_side and session.handle:
        parts.append(f"{session.scope} keeps its own copy of {session.handle}")
    elif copies := [
        link for link in links if link.scope != EMBEDDED_SCOPE and link.is_stored and link.id.startswith("resp_")
    ]:
        parts.append(f"{copies[-1].scope} keeps its own copy of {copies[-1].id} and of the earlier responses")
    return "; ".join(parts)


@asynccontextmanager
async def _lease_sessions(store: Store, sessions: Sequence[Session]) -> AsyncIterator[None]:
    """Hold the leases of all `sessions`. Raises Busy."""
    async with AsyncExitStack() as stack:
        for session in sessions:
            try:
                lease = await acquire_session_lease(store, session)
            except Busy as busy:
                raise Busy(session.name, busy.process, hint="close that chat first") from busy
            stack.push_async_callback(lease.release)
        yield


async def save_repaired_session(
    store: Store, view: LintView, name: str, *, model: str, scope: Scope, clock: Clock, new_id: NewId
) -> Session:
    """Store the history of `view` as a new session.

    model, scope:  of its next turns
    Raises InvalidUsage when `name` could be taken for another kind of handle or an item cannot be stored,
    and Conflict when another session has the name.
    """
    path = Path(root_key(store.tenant)).append(strip_item_secrets(view.items))
    now = clock.now()
    session = Session(
        id=new_id("ses"),
        name=validate_session_name(name),
        strategy=view.strategy,
        model=model,
        head=path.head,
        confirmed_head=path.first(view.server_count).head if STRATEGIES[view.strategy].is_server_side else path.head,
        created_at=now,
        used_at=now,
        scope=scope,
        link_id=await _find_parent_id(store, view),
        handle=view.handle,
        instructions=view.instructions,
    )
    await store.commit(
        Transaction(appends=(AppendItems(path.root, path.items),), session=session, expected_session_head=None)
    )
    return session


async def check_repaired_name_free(store: Store, name: str) -> None:
    """Check that a new session may have this name. Raises InvalidUsage."""
    existing_session = await store.session(validate_session_name(name))
    if existing_session:
        raise InvalidUsage(f"a session named {name!r} already exists", hint=f"choose another name: --as {name}-2")


async def _find_parent_id(store: Store, view: LintView) -> str | None:
    """Return the id of the last response before the first fix, if the store has it."""
    if view.anchor:
        return view.anchor.id if await store.link(view.anchor.id) else None
    path = Path(root_key(store.tenant)).append(strip_item_secrets(view.items))
    heads = {path.root, *path.keys}
    links = [step.link for step in view.output_spans if step.link.head in heads]
    return links[-1].id if links and await store.link(links[-1].id) else None
