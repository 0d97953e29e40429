"""A conversation that this process has open for writing.

Input is committed at the head before anything is sent; `ChatTurn` does the rest. A replay file is
read before a turn and written after it, and edits made in between become part of the history.
A turn number in a handle is resolved to a position here: histories are cut between turns only.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from convo.chat.item_file import ReplayFile
from convo.chat.session_record import (
    NO_UPDATE,
    ChatDeps,
    RecordSnapshot,
    RunUpdate,
    SessionRecord,
    find_free_session_name,
    load_session_record,
    make_session_name,
)
from convo.chat.turn import ChatTurn, RequestOptions
from convo.compaction.window import is_instruction, turn_starts
from convo.errors import Conflict, ConvoError, ItemDeleted, NotCanonical, NotFound, RequestRefused, Unreadable
from convo.history.items import Item, StreamEvent
from convo.history.pairing import pair_id
from convo.history.records import Link, Session, is_compaction_link
from convo.history.tree import Path
from convo.stores.base import Store
from convo.strategies.branching import rewind_to_depth, undo_last_answer, undo_last_turn
from convo.strategies.requests import build_open_call_outputs, is_unsent_request
from convo.strategies.strategy import ConversationState

if TYPE_CHECKING:
    from convo.inspect.view import ConversationView


NAME_ATTEMPTS = 5
"""Names tried for a new session; another process may take each of them first."""

HEAD_ATTEMPTS = 5
"""Attempts to replace a history; each fails when another process moves the head first."""


class Chat:
    """A session's conversation, opened for writing by one process.

    record:   the session's record; agent runs commit through it too
    options:  the request options of the next turn; may be replaced between turns
    turn:     the last turn, with its link and response
    notify:   called with a message for the user while a turn runs
    """

    def __init__(self, record: SessionRecord, options: RequestOptions, deps: ChatDeps) -> None:
        self.options, self.deps = options, deps
        self.turn: ChatTurn | None = None
        self.notify: Callable[[str], None] = ignore_notice
        self.record = record
        self._replay_file = ReplayFile(record.session.replay_file) if record.session.replay_file else None
        self._path_read = record.state.path
        self._applied_file_path: Path | None = None

    @property
    def session(self) -> Session:
        return self.record.session

    @property
    def state(self) -> ConversationState:
        return self.record.state

    async def refresh(self) -> None:
        """Load the record again: another process may have changed it before this one got the lease."""
        session = await self.deps.store.session(self.session.id)
        if session and session != self.session:
            self.record = await load_session_record(session, self.deps)

    async def send(self, items: Sequence[Item], *, keep_on_failure: bool = True) -> AsyncGenerator[StreamEvent, None]:
        """Append `items` to the conversation, send a request and yield the events of the response.

        keep_on_failure:  keep the items when no request could be sent, and a new session whose first request was
                          refused because of a parameter; otherwise the record is restored
        Raises the errors of the endpoint and the store; the input stays unconfirmed.
        """
        state = self.load_state()
        snapshot = None if keep_on_failure else self.record.snapshot()
        check_tail = bool(state.unconfirmed_nodes)
        state = self.answer_open_calls(state, items)
        await self.save(self.append_input(state, items), items)
        async with aclosing(self._run_turn(check_tail, snapshot)) as events:
            async for event in events:
                yield event

    def append_input(self, state: ConversationState, items: Sequence[Item]) -> ConversationState:
        """Return `state` with new input, and the message with instructions that it needs."""
        return self.options.append_input(state, items, self.session.instructions, self.record.last_link)

    def answer_open_calls(self, state: ConversationState, new_items: Sequence[Item]) -> ConversationState:
        """Return `state` with an output for each call that `new_items` leave open, and notify of it."""
        outputs = build_open_call_outputs(state, new_items)
        if outputs:
            call_ids = ", ".join(str(pair_id(output)) for output in outputs)
            self.notify(f"{call_ids} was not run; the next request reports that to the model")
        return replace(state, path=state.path.append(outputs))

    async def save(
        self, state: ConversationState, new_items: Sequence[Item], run_update: RunUpdate = NO_UPDATE
    ) -> None:
        """Commit `state`, to which `new_items` were just added; a new session is named after the first of them."""
        if self.session.name or not new_items:
            await self._save_state(state, run_update)
        else:
            await self._save_new_session(state, make_session_name(new_items[0]), run_update)

    async def retry(self) -> AsyncGenerator[StreamEvent, None]:
        """Send the last input again, without the output after it. Raises InvalidUsage and the errors of `send`."""
        state = self.load_state()
        check_tail = bool(state.unconfirmed_nodes)
        new_state, last_link = undo_last_answer(state, self.record.last_link), self.record.last_link
        if new_state.confirmed_head != state.confirmed_head:
            _, last_link = await find_adjacent_links(
                new_state.path.up_to(new_state.confirmed_head), last_link, self.deps.store
            )
        if kept := self.options.keep_prefix(new_state.path, last_link, self.session.instructions):
            new_state = replace(new_state, path=new_state.path.append(kept.items))
        await self._save_head(new_state, last_link)
        async with aclosing(self._run_turn(check_tail)) as events:
            async for event in events:
                yield event

    async def undo(self, turn_number: int | None = None) -> None:
        """Go back to the end of a turn, or to before the last one.

        turn_number:  as for `find_turn_end`
        Raises NotFound for an unknown turn, and the errors of `undo_last_turn` and `rewind_to_depth`:
        InvalidUsage and WrongOwner.
        """
        state, last_link = self.load_state(), self.record.last_link
        depth = (
            find_last_turn_start(state, last_link)
            if turn_number is None
            else find_turn_end(state.path.items, turn_number)
        )
        link_after, link_before = await find_adjacent_links(state.path.first(depth), last_link, self.deps.store)
        await self.set_head(
            rewind_to_depth(state, depth, link_after),
            last_link if depth >= state.path.depth(state.confirmed_head) else link_before,
        )

    async def set_head(self, state: ConversationState, last_link: Link | None) -> None:
        """Move the head to `state`, whose last confirmed link is `last_link`."""
        await self._save_head(state, last_link)
        self._path_read = self.state.path
        await self.write_replay_file()

    async def ensure_saved(self) -> None:
        """Store the record of a conversation that has none yet. Raises StoreFault."""
        if not self.record.is_saved:
            state = self.load_state()
            await self.save(state, state.path.items)
            if self._replay_file and not self._replay_file.exists():
                await self.write_replay_file()  # otherwise the next fork takes this file name

    async def replace_history(
        self,
        make_state: Callable[[ConversationState], ConversationState],
        make_link: Callable[[ConversationState], Link],
    ) -> None:
        """Replace the history by another in one commit.

        make_state:  returns the new state for the current one; called again after a conflict
        make_link:   returns, for the new state, the link of the call that produced it
        Raises Conflict when the head moves at every attempt, StoreFault, and the errors of `make_state`.
        """
        for remaining in reversed(range(HEAD_ATTEMPTS)):
            await self.refresh()
            state = make_state(self.load_state())
            await self._mark_file_written()
            link = make_link(state)
            try:
                await self.record.commit(state, link, last_link=link)
                break
            except Conflict:
                if not remaining:
                    raise
        self._path_read = self.state.path
        await self.write_replay_file()

    async def _mark_file_written(self) -> None:
        """Record that the file equals the history: a kill before the next write is then no edit of the file."""
        if not self._replay_file or self.session.file_head == self.state.path.head:
            return
        if Path(self.state.path.root).append(self._replay_file.read_valid()).head == self.state.path.head:
            await self._save_state(self.state)
            self.record.session = replace(self.session, file_head=self.state.path.head)

    def load_state(self) -> ConversationState:
        """Return the current state, with the edits made to the replay file.

        Raises Unreadable when the file cannot be read and StoreReadOnly when it could not be written.
        """
        if self._replay_file:
            self._replay_file.check_writable()
            if self._replay_file.is_changed():
                self._apply_file_edits(self._replay_file)
        self._path_read = self.record.state.path
        return self.record.state

    def _apply_file_edits(self, file: ReplayFile) -> None:
        """Apply the content of the file to the record.

        A file that equals the history counts as written, although a kill may have prevented the record from noting
        it. A file that equals its last written version is not edited: newer items are in the record alone.
        """
        record = self.record
        self._applied_file_path = None
        try:
            path = Path(record.state.path.root).append(file.read_valid())
        except NotCanonical as error:
            raise Unreadable(f"{file.path}: {error.message}") from error
        if path.head == record.state.path.head:
            record.session = replace(record.session, file_head=path.head if path else None)
        elif path.head != (record.session.file_head or path.root):
            record.state = replace(record.state, path=path, confirmed_head=path.head)
            self._applied_file_path = path

    async def _run_turn(
        self, check_tail: bool, snapshot: RecordSnapshot | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        turn = self.turn = ChatTurn(self.record, self.options, self.deps, check_tail=check_tail, notify=self.notify)
        is_discarded = False
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        except ConvoError as failure:
            is_unused = is_unsent_request(failure) or (
                snapshot is not None and not snapshot.is_saved and _is_parameter_refusal(failure)
            )
            # A request that was sent twice may have reached the endpoint the first time.
            if snapshot and turn.request_count < 2 and is_unused:
                await self._discard_input(snapshot, turn.link)
                is_discarded = True
            raise
        finally:
            if not is_discarded:
                await self.write_replay_file()

    async def _discard_input(self, snapshot: RecordSnapshot, attempt: Link | None) -> None:
        """Restore the record to before an input for which no request was sent or accepted."""
        conversation_id = self.session.conversation_id if not snapshot.state.handle else None
        await self.record.restore(snapshot, attempt)
        self.turn = None
        if conversation_id:
            with suppress(ConvoError):
                await self.deps.endpoint.delete_conversation(conversation_id)

    async def _save_new_session(
        self, state: ConversationState, wanted_name: str, run_update: RunUpdate = NO_UPDATE
    ) -> None:
        """Store a new session under a free name; another process may take the name in between."""
        for remaining in reversed(range(NAME_ATTEMPTS)):
            self.record.session = replace(self.session, name=await find_free_session_name(self.deps.store, wanted_name))
            try:
                await self._save_state(state, run_update)
                break
            except Conflict:
                if not remaining:
                    raise

    async def _save_head(self, state: ConversationState, last_link: Link | None) -> None:
        """Commit `state`, from which the next turn continues; `last_link` is its last confirmed link."""
        previous_link, self.record.last_link = self.record.last_link, last_link
        try:
            await self._save_state(state)
        except ConvoError:
            self.record.last_link = previous_link
            raise

    async def _save_state(self, state: ConversationState, run_update: RunUpdate = NO_UPDATE) -> None:
        applied = self._applied_file_path
        self.record.session = replace(
            self.session,
            # once edits are applied, the present file counts as written: after a kill it must not replace later items
            file_head=self.session.file_head if applied is None else applied.head if applied else None,
            model=self.options.model,
            instructions=self.options.instructions,
            scope=self.deps.endpoint.scope,
        )
        await self.record.commit(state, run_update=run_update)

    async def write_replay_file(self) -> None:
        """Write the replay file, and record the head that was written."""
        if (
            not self._replay_file
            or self.session.file_head == self.state.path.head
            or not await self.record.is_unchanged()
        ):
            return
        if self._replay_file.is_changed():
            await self._save_state(merge_file_edits(self.state, self._path_read, self._replay_file.read_valid()))
            self.notify(f"{self._replay_file.path} changed during the response; both changes are kept")
        self._replay_file.write(self.state.path.items)
        self._applied_file_path = None
        await self.record.update_fields(replace(self.session, file_head=self.state.path.head))


def _is_parameter_refusal(failure: ConvoError) -> bool:
    """Whether a server refused the request because of a parameter that it named, other than the input."""
    if not isinstance(failure, RequestRefused) or failure.status not in (400, 422):
        return False
    return bool(failure.param) and not str(failure.param).startswith("input")


def ignore_notice(message: str) -> None:
    """Ignore a notice."""


def merge_file_edits(state: ConversationState, path_read: Path, items: Sequence[Item]) -> ConversationState:
    """Return the state after `items` replaced `path_read` in the replay file during a turn."""
    new_items = state.path.items[state.path.common_depth(path_read) :]
    path = Path(state.path.root).append(items).append(new_items)
    confirmed_depth = len(path) - min(len(state.unconfirmed_nodes), len(new_items))
    return replace(state, path=path, confirmed_head=path.first(confirmed_depth).head)


def find_turn_end(items: Sequence[Item], turn_number: int) -> int:
    """Return the number of items before the end of a turn.

    turn_number:  from 1; 0 is the beginning, -1 the end of the last turn but one
    Raises NotFound when there are fewer turns.
    """
    ends = [*_request_starts(items), len(items)] if items else [0]
    turn_count = len(ends) - 1
    index = turn_number if turn_number >= 0 else turn_count + turn_number
    if not 0 <= index <= turn_count:
        raise NotFound("turn", str(turn_number), hint=f"choose a turn from 0 (the start) to {turn_count} (the last)")
    return ends[index]


async def find_adjacent_links(path: Path, last_link: Link | None, store: Store) -> tuple[Link | None, Link | None]:
    """Return the link after the end of `path` and the one before it, on the branch that ends with `last_link`.

    A compaction of which `path` keeps only a part of the new history is the link before it.
    """
    keys = {path.root, *path.keys}
    link_after: Link | None = None
    # In a damaged store two compactions may name each other as parent.
    seen_ids: set[str] = set()
    while last_link is not None and last_link.head not in keys and last_link.id not in seen_ids:
        # Its head is past the end of `path`; without it the session had no last link, and its next request began
        # another tree.
        if is_compaction_link(last_link) and await _is_part_of_compacted_history(path, last_link, store):
            break
        seen_ids.add(last_link.id)
        link_after, last_link = last_link, await store.link(last_link.parent_id) if last_link.parent_id else None
    return link_after, last_link


async def _is_part_of_compacted_history(path: Path, compaction: Link, store: Store) -> bool:
    try:
        return len(path) > 0 and (await store.path(compaction.head)).contains(path.head)
    except (NotFound, ItemDeleted):
        return False


def find_last_turn_start(state: ConversationState, last_link: Link | None) -> int:
    """Return the depth at which the last turn begins; unconfirmed items are undone before it."""
    depth = len(undo_last_turn(state, last_link).path)
    return max((start for start in _request_starts(state.path.items) if start <= depth), default=0)


def _request_starts(items: Sequence[Item]) -> Iterator[int]:
    """Yield the index at which the input of each turn begins: new instructions are sent before the user's message."""
    for start in turn_starts(items):
        while start and is_instruction(items[start - 1]):
            start -= 1
        yield start


def get_items_up_to_turn(view: "ConversationView", turn_number: int | None) -> Sequence[Item]:
    """Return the items up to the end of a turn; all of them for None. Raises NotFound."""
    items = view.path.items
    return items if turn_number is None else items[: find_turn_end(items, turn_number)]
