"""Conversion of a conversation to another owner.

The source is never changed; the result is a new session, with a new file or conversation where needed. No model is
called. The owner's list is read first, and unconfirmed items of the record are appended. A conversation is seeded 20
items at a time and read back. A file is written before its record, and reused if the command was killed in between.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from convo.chat.conversation import Chat
from convo.chat.files import format_replay_file
from convo.chat.item_file import ReplayFile
from convo.chat.lookup import find_session_by_handle, to_absolute_path
from convo.chat.open import iter_numbered_paths, load_conversation_history
from convo.chat.session_record import ChatDeps, find_free_session_name, load_session_record, make_session_name
from convo.chat.turn import load_owner_tail
from convo.chat.view_loader import load_session_view
from convo.endpoints.base import PAGE_ITEMS, Endpoint, list_all_items
from convo.errors import Conflict, ConvoError, InvalidUsage, ItemDeleted, StateFault, Unreachable, Unreadable
from convo.history.items import MAX_TITLE_ITEMS, Item
from convo.history.records import EMBEDDED_SCOPE, Link, Scope, Session, Strategy
from convo.history.tree import Key, Path, common_prefix_length, root_key
from convo.inspect.serialize import ConversationDocument, links_to_json
from convo.inspect.view import ConversationView
from convo.runtime import Clock, NewId, report_progress, shielded
from convo.stores.base import AppendItems, Store, Transaction
from convo.strategies.conversion import (
    UNKNOWN_ORIGIN,
    ItemOrigin,
    TransferItem,
    TransferPlan,
    TransferTarget,
    plan_transfer,
)
from convo.strategies.requests import reconcile
from convo.strategies.strategy import STRATEGIES, ConversationState, is_complete_answer


@dataclass(frozen=True)
class ConversationSource:
    """A conversation to convert.

    handle:          as the user wrote it
    transfer_items:  the items of its path, with their origin
    state:           the path, and how much of it the owner confirmed
    links:           the known requests, on all branches
    metadata:        of a conversation at an endpoint
    notes:           other messages for the user, one sentence each
    """

    handle: str
    scope: Scope | None
    model: str | None
    state: ConversationState
    transfer_items: tuple[TransferItem, ...]
    name: str | None = None
    instructions: str | None = None
    created_at: float | None = None
    links: tuple[Link, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def strategy(self) -> Strategy:
        return self.state.strategy

    def with_redacted_document(self, document: ConversationDocument) -> "ConversationSource":
        """Return the source with the redacted items and instructions of `document`.

        Metadata, links and a name that contains a secret are left out.
        """
        transfer_items = tuple(
            replace(transfer_item, item=item)
            for transfer_item, item in zip(self.transfer_items, document.items, strict=True)
        )
        name = document.name if document.name == self.name else None
        return replace(
            self, transfer_items=transfer_items, name=name, instructions=document.instructions, metadata={}, links=()
        )

    def to_document(self) -> ConversationDocument:
        """Return the conversation as a document that a file can contain."""
        path = self.state.path
        return ConversationDocument(
            items=tuple(path.items),
            confirmed_count=path.depth(self.state.confirmed_head),
            name=self.name,
            model=self.model,
            instructions=self.instructions,
            created_at=self.created_at,
            links=links_to_json(self.links, path),
        )


async def load_source(view: ConversationView, store: Store, endpoint: Endpoint | None = None) -> ConversationSource:
    """Load the conversation of `view`, and compare it with its owner where possible.

    endpoint:  that of the owner, if it stores the history; None: use the local record only

    Raises ItemDeleted if an item of the history was deleted, and the errors of the endpoint.
    """
    handle = _owner_handle(view)
    state, notes = ConversationState(view.strategy, view.path, view.confirmed_head, handle), list(view.notes)
    metadata: Mapping[str, str] = {}
    if state.owner.uses_conversation and handle and endpoint:
        state, metadata, owner_notes = await _read_from_owner(
            state, store, endpoint, is_complete=view.unreadable_head is None
        )
        notes = [*notes, *owner_notes] if view.unreadable_head is None else owner_notes
    elif view.unreadable_head:
        raise ItemDeleted(view.unreadable_head)
    elif state.owner.uses_response and endpoint and view.session and state.unconfirmed_nodes:
        state = reconcile(state, (await load_owner_tail(state, endpoint, store)).items)
    # A redacted import shares nodes with the unredacted one, whose requests must not be exported with it.
    own = {(link.input_head, link.head) for link in view.links}
    shared = await load_links_on_path(store, state.path)
    links = [*view.links, *(link for link in shared if (link.input_head, link.head) not in own)]
    return ConversationSource(
        handle=view.handle,
        scope=view.scope,
        model=view.model,
        state=state,
        transfer_items=_to_transfer_items(state, links, view.scope),
        name=view.session.name if view.session else None,
        instructions=_source_instructions(view),
        created_at=view.session.created_at if view.session else None,
        links=tuple(links),
        metadata=metadata,
        notes=tuple(notes),
    )


def _owner_handle(view: ConversationView) -> str | None:
    if view.session:
        return view.session.handle
    return view.handle if STRATEGIES[view.strategy].is_server_side else None


def _source_instructions(view: ConversationView) -> str | None:
    """Return the instructions of each turn: from the record, else from the last link."""
    if view.session:
        return view.session.instructions
    current_link = next((link for link in view.links if link.id == view.current_link_id), None)
    instructions = current_link.parameters.get("instructions") if current_link else None
    return instructions if isinstance(instructions, str) else None


OwnerHistory = tuple[ConversationState, Mapping[str, str], list[str]]


async def _read_from_owner(
    state: ConversationState, store: Store, endpoint: Endpoint, *, is_complete: bool
) -> OwnerHistory:
    """Load a conversation from its endpoint, followed by the items that only the record has."""
    handle = state.handle or ""
    try:
        resource = await endpoint.retrieve_conversation(handle)
        owner_items = await _read_conversation_items(handle, store, endpoint)
    except Unreachable as failure:
        if not is_complete:
            raise
        return state, {}, [f"{failure.message}; using the local copy"]
    confirmed_items = state.path.up_to(state.confirmed_head).items
    if common_prefix_length(confirmed_items, owner_items) == len(confirmed_items):
        state = reconcile(state, owner_items[len(confirmed_items) :])
        notes = []
    else:
        confirmed = Path(root_key(store.tenant)).append(owner_items)
        unconfirmed = [node.item for node in state.unconfirmed_nodes]
        state = replace(state, path=confirmed.append(unconfirmed), confirmed_head=confirmed.head)
        notes = ["the local record differs from the conversation; using the conversation"]
    return state, resource.get("metadata") or {}, notes


async def _read_conversation_items(conversation_id: str, store: Store, endpoint: Endpoint) -> Sequence[Item]:
    """Load the items of a conversation, from the store if it is our own, else from its endpoint."""
    conversation = await store.conversation(conversation_id) if endpoint.scope == EMBEDDED_SCOPE else None
    if conversation:
        return (await store.path(conversation.head)).items
    return await list_all_items(
        lambda after: endpoint.list_conversation_items(conversation_id, after=after, limit=PAGE_ITEMS, order="asc")
    )


async def load_links_on_path(store: Store, path: Path) -> Sequence[Link]:
    """Load the links whose response begins on this path, after the last item of their input. Raises DamagedRow."""
    keys, is_answer = (path.root, *path.keys), [False, *(is_complete_answer(node.item) for node in path.nodes)]
    ends = [key for key, before, after in zip(keys, is_answer, is_answer[1:], strict=False) if after and not before]
    # Asked one by one, a history of 6,000 items needed 3,000 queries and 2.6 s of CPU.
    return await store.responses_to(*ends)


def _to_transfer_items(
    state: ConversationState, links: Sequence[Link], scope: Scope | None
) -> tuple[TransferItem, ...]:
    origins = _item_origins(state.path, links)
    confirmed_depth = state.path.depth(state.confirmed_head)
    default_origin = ItemOrigin(scope) if state.is_server_side else UNKNOWN_ORIGIN
    return tuple(
        TransferItem(node.item, origins.get(node.key, default_origin), is_confirmed=index < confirmed_depth)
        for index, node in enumerate(state.path.nodes)
    )


def _item_origins(path: Path, links: Sequence[Link]) -> dict[Key, ItemOrigin]:
    """Map each response item of this path to its origin."""
    keys = path.keys
    depth = {key: position for position, key in enumerate(keys, 1)} | {path.root: 0}
    origins: dict[Key, ItemOrigin] = {}
    for link in links:
        if link.head in depth and link.input_head in depth:
            output_keys = keys[depth[link.input_head] : depth[link.head]]
            origins |= dict.fromkeys(output_keys, ItemOrigin(link.scope, link.model))
    return origins


SEED_BATCH_ITEMS = 20
"""Items that the Conversations API accepts per request."""


class SeededConversation(NamedTuple):
    """A new conversation: its id and its items."""

    handle: str
    path: Path


async def seed_conversation(
    items: Sequence[Item], deps: ChatDeps, metadata: Mapping[str, str] | None = None
) -> SeededConversation:
    """Create a conversation with these items.

    Raises the errors of the endpoint, and StateFault if the conversation then has a different number of items; a
    conversation that was created is deleted again.
    """
    created = await deps.endpoint.create_conversation(items[:SEED_BATCH_ITEMS], metadata or None)
    handle = str(created["id"])
    try:
        for start in range(SEED_BATCH_ITEMS, len(items), SEED_BATCH_ITEMS):
            report_progress("items", start, len(items))
            await deps.endpoint.add_conversation_items(handle, items[start : start + SEED_BATCH_ITEMS])
        path = await load_conversation_history(handle, deps)
        if len(path) != len(items):
            raise StateFault(f"{handle} has {len(path)} items, but {len(items)} were sent")
    except BaseException:
        await delete_seeded_conversation(handle, deps)
        raise
    return SeededConversation(handle, path)


async def delete_seeded_conversation(handle: str, deps: ChatDeps) -> None:
    """Delete an unused conversation; an error of the endpoint is ignored."""
    with suppress(ConvoError):
        await deps.endpoint.delete_conversation(handle)


async def convert_chat(chat: Chat, strategy: Strategy) -> tuple[Chat, TransferPlan]:
    """Convert the conversation of `chat` to another strategy. Returns the new chat and the plan.

    Raises InvalidUsage if the conversation is empty or has that strategy already, and the errors of
    `convert_conversation`.
    """
    deps = chat.deps
    chat.load_state()
    session = await deps.store.session(chat.session.id)
    if session is None:
        raise InvalidUsage("the conversation has no message yet", hint=f"exit, and start with convo chat --{strategy}")
    source = await load_source(await load_session_view(deps.store, session), deps.store, deps.endpoint)
    target = TransferTarget(strategy, deps.endpoint.scope, chat.options.model)
    check_convertible(source, target)
    plan = plan_transfer(source.transfer_items, target)
    writer = SessionWriter(deps.store, deps.clock, deps.new_id)
    converted = await convert_conversation(source, plan, target, ConvertDestination(), writer, deps.endpoint)
    return Chat(await load_session_record(converted, deps), chat.options, deps), plan


MAX_NAME_ATTEMPTS = 5
"""Attempts to find a free name, since another process may take one first."""


@dataclass(frozen=True, slots=True)
class SessionWriter:
    """Writes new sessions, with the store, the clock and the source of ids."""

    store: Store
    clock: Clock
    new_id: NewId

    async def write_session(
        self,
        session: Session,
        path: Path,
        name: str | None,
        links: Sequence[Link] = (),
        branches: Sequence[AppendItems] = (),
    ) -> Session:
        """Store `session`, its path and other branches in one transaction. Returns the session with its final name.

        name:  the required name; None takes the session's own, with a number if it is taken

        Raises Conflict if `name` is taken, and StoreFault.
        """
        appends = (*((AppendItems(path.root, path.items),) if path.items else ()), *branches)
        for attempts_left in reversed(range(MAX_NAME_ATTEMPTS)):
            session = replace(session, name=name or await find_free_session_name(self.store, session.name))
            try:
                await shielded(
                    self.store.commit(
                        Transaction(appends=appends, links=tuple(links), session=session, expected_session_head=None)
                    )
                )
                break
            except Conflict:
                if name or not attempts_left:
                    raise
        return session


@dataclass(frozen=True, slots=True)
class ConvertDestination:
    """Names that the user chose for the result: a session's name, a file; None for automatic ones."""

    name: str | None = None
    file: str | None = None


def check_convertible(source: ConversationSource, target: TransferTarget) -> None:
    """Raise InvalidUsage if the conversation has the target's owner already."""
    is_same_place = source.scope == target.scope or not target.is_server_side
    if source.strategy is target.strategy and is_same_place and not target.owner.uses_conversation:
        raise InvalidUsage(
            f"{source.handle} already has the strategy {target.strategy}",
            hint=f"for a copy: convo chat --fork {source.handle}",
        )


async def convert_conversation(
    source: ConversationSource,
    plan: TransferPlan,
    target: TransferTarget,
    destination: ConvertDestination,
    writer: SessionWriter,
    endpoint: Endpoint | None = None,
) -> Session:
    """Convert the conversation as planned. Returns the record of the new session.

    endpoint:  of the new owner; only needed for a conversation

    Raises Conflict if the file or the name is taken, and the errors of the endpoint and the store. On an error the
    new conversation or file is deleted.
    """
    if target.owner.uses_conversation:
        assert endpoint
        return await _convert_to_conversation(source, plan, target, destination, writer, endpoint)
    path = Path(root_key(writer.store.tenant)).append(plan.items)
    confirmed_head = path.first(target.owner.confirmed_at_start(plan.confirmed_count)).head
    session = _new_session(source, target, path, writer)
    session = replace(session, confirmed_head=confirmed_head)
    if target.owner.uses_file:
        return await _convert_to_file(session, path, destination, writer)
    return await writer.write_session(session, path, destination.name)


def _new_session(source: ConversationSource, target: TransferTarget, path: Path, writer: SessionWriter) -> Session:
    now = writer.clock.now()
    return Session(
        id=writer.new_id("ses"),
        name=source.name or (make_session_name(*path.items[:MAX_TITLE_ITEMS])),
        strategy=target.strategy,
        model=target.model,
        head=path.head,
        confirmed_head=path.head,
        created_at=now,
        used_at=now,
        scope=target.scope,
        instructions=source.instructions,
    )


async def _convert_to_file(
    session: Session, path: Path, destination: ConvertDestination, writer: SessionWriter
) -> Session:
    file = await _choose_file(session, path, destination, writer.store)
    is_new = not file.exists()
    file.check_writable()
    if is_new:
        file.write(path.items)
    session = replace(session, handle=str(file.path), file_head=path.head)
    try:
        return await writer.write_session(session, path, destination.name)
    except ConvoError:
        if is_new:
            with suppress(OSError):
                os.unlink(file.path)
        raise


async def _choose_file(session: Session, path: Path, destination: ConvertDestination, store: Store) -> ReplayFile:
    """Return the file for `path`: a new one, or one that a killed conversion wrote. Raises Conflict for any other."""
    paths = (
        [destination.file]
        if destination.file
        else iter_numbered_paths(to_absolute_path(f"{destination.name or session.name}.json"))
    )
    for file in map(ReplayFile, paths):
        if not file.exists() or await _is_unclaimed_copy(file, path, store):
            return file
    raise Conflict(f"{file.path} already exists", hint="choose a new file with --as")


async def _is_unclaimed_copy(file: ReplayFile, path: Path, store: Store) -> bool:
    """Whether a file contains exactly `path`, and no session has it as its handle."""
    return _file_holds_path(file, path) and await find_session_by_handle(store, str(file.path)) is None


def _file_holds_path(file: ReplayFile, path: Path) -> bool:
    with suppress(Unreadable):
        return file.path.is_file() and format_replay_file(file.read()) == format_replay_file(path.items)
    return False


async def _convert_to_conversation(
    source: ConversationSource,
    plan: TransferPlan,
    target: TransferTarget,
    destination: ConvertDestination,
    writer: SessionWriter,
    endpoint: Endpoint,
) -> Session:
    confirmed_items, unconfirmed_items = plan.items[: plan.confirmed_count], plan.items[plan.confirmed_count :]
    deps = ChatDeps(writer.store, endpoint, writer.clock, writer.new_id)
    seeded = await seed_conversation(confirmed_items, deps, source.metadata)
    path = seeded.path.append(unconfirmed_items)
    session = replace(_new_session(source, target, path, writer), confirmed_head=seeded.path.head, handle=seeded.handle)
    try:
        return await writer.write_session(session, path, destination.name)
    except BaseException:
        await delete_seeded_conversation(seeded.handle, deps)
        raise
