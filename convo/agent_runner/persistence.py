"""Persistence of agent runs: the commit of each step, together with the conversation.

The run's row, its tool calls, the new items and the head of the session change in one
transaction, so a killed process leaves a run that matches its conversation. A tool output alone
is written as a call entry; the document in the row may be behind, and `load_run` applies the entries.
A checkpoint has the run's position in the conversation, and the model's input that replaces it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from convo.agents.graph import Graph
from convo.chat.conversation import Chat
from convo.chat.lookup import resolve_handle
from convo.chat.session_record import RunUpdate
from convo.chat.view_loader import OPEN_RUN_STATUSES, RERUN_CALLS_KEY, load_open_run, make_call_key
from convo.errors import InvalidUsage, NotFound
from convo.history.items import Item, Json, is_client_call
from convo.history.records import Session
from convo.history.tree import Key, Path
from convo.runs.approvals import PendingApproval, format_lookup
from convo.runs.machine import build_missing_outputs
from convo.runs.serialize import STAGE_WORDS, apply_call_log, run_from_json, run_to_json
from convo.runs.state import (
    TERMINAL_PHASES,
    AppendToHistory,
    CallModel,
    CheckInputGuardrail,
    CheckOutputGuardrail,
    EvaluateApproval,
    GuardrailTripped,
    NestedRunPaused,
    Phase,
    Run,
    RunEffect,
    RunEvent,
    RunTool,
    Stage,
    ToolReturned,
)
from convo.stores.base import UNCHANGED_DOCUMENT, AgentCall, AgentRun, Store
from convo.strategies.state import ConversationState


@dataclass(frozen=True, slots=True)
class ModelView:
    """The model's input in place of the conversation.

    path:           its items
    initial_count:  items on it when it was made
    source_head:    the conversation's node up to which the view replaces it
    anchor:         a node on `path` that a link refers to, and the conversation's node that it replaces
    """

    path: Path
    history: int
    upto: Key
    anchor: tuple[Key, Key] | None = None

    def behind(self, path: Path) -> "ModelView":
        """Append the items of the conversation `path` after `source_head`. Raises Conflict when that node is gone."""
        more = [node.item for node in path.after(self.upto)]
        return replace(self, path=self.path.grow(more), upto=path.head)


def make_model_view(items: Iterable[Item], path: Path) -> ModelView:
    """Make a view of `items` that replaces all of `path`. Raises NotCanonical for an item without exact JSON form."""
    seen = Path(path.root).grow(items)
    return ModelView(seen, len(seen), path.head)


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """The position of a run in its conversation.

    input_head:      the last node of its input
    request_head:    the last node before the newest response, or before the next one
    view:            None: the model receives the conversation itself
    filtered_input:  the head whose unconfirmed items are already the output of the input filter, and its instructions
    """

    begun: Key
    turn: Key
    view: ModelView | None = None
    filtered: tuple[Key, str | None] | None = None


def drop_partial_response(held: ConversationState, standing: RunCheckpoint) -> ConversationState:
    """Return the conversation without the partial output of an interrupted response."""
    turn = standing.turn
    own = held.path.passes(turn) and held.path.upto(turn).passes(held.mark)
    return replace(held, path=held.path.upto(turn)) if own else held


def run_checkpoint_to_json(standing: RunCheckpoint) -> dict[str, Json]:
    """Return `checkpoint` in the form of a run's row."""
    view = standing.view
    return {
        "begun": standing.begun,
        "turn": standing.turn,
        "filtered": list(standing.filtered) if standing.filtered else None,
        "view": _view_to_json(view) if view else None,
    }


def _view_to_json(view: ModelView) -> dict[str, Json]:
    if view.anchor:
        return {"head": view.anchor[0], "upto": view.anchor[1], "history": view.history}
    return {"items": [dict(item) for item in view.path.items], "upto": view.upto, "history": view.history}


async def load_run_checkpoint(said: Mapping[str, Any] | None, path: Path, store: Store) -> RunCheckpoint:
    """Load the checkpoint of a row, for the conversation at `path`. Raises NotFound, ItemDeleted."""
    if said is None:
        return RunCheckpoint(path.head, path.head)
    view, filtered = said["view"], said["filtered"]
    made = await _load_view(view, path, store) if view else None
    return RunCheckpoint(said["begun"], said["turn"], made, (filtered[0], filtered[1]) if filtered else None)


async def _load_view(said: Mapping[str, Any], path: Path, store: Store) -> ModelView | None:
    upto = said["upto"]
    if not path.passes(upto):  # the replay file was edited since
        return None
    if "items" in said:
        return ModelView(Path(path.root).grow(said["items"]), said["history"], upto)
    return ModelView(await store.path(said["head"]), said["history"], upto, (said["head"], upto))


AgentRunStatus = Literal["running", "paused", "done", "failed", "stopped"]

STATUS_BY_PHASE: Mapping[Phase, AgentRunStatus] = {
    Phase.PAUSED: "paused",
    Phase.DONE: "done",
    Phase.FAILED: "failed",
    Phase.STOPPED: "stopped",
}
"""The status of a row for each phase; "running" for all others."""

AGENTS_SOURCE_KEY = "origin"
"""The member of a row's document with the source of the agents; the application alone reads it."""

IDEMPOTENT_EFFECTS = (CheckInputGuardrail, CheckOutputGuardrail, EvaluateApproval)
"""Effects that are safe to perform twice, so nothing must be committed before them."""


class RunRepository:
    """Stores the runs of one chat, one after the other.

    run_row:     the row of the run as last stored
    checkpoint:  the run's position in the conversation
    """

    def __init__(
        self, chat: Chat, kept: AgentRun | None, standing: RunCheckpoint, origin: Mapping[str, Json] | None = None
    ) -> None:
        """Store runs of `chat`.

        agents_source:  where the application loaded the agents from; None: as in `run_row`
        """
        self.chat, self.kept, self.standing = chat, kept, standing
        self._origin = kept.document.get(AGENTS_SOURCE_KEY) if kept and origin is None else origin
        self._started: dict[str, float] = {}

    @property
    def run_id(self) -> str:
        """The id of the run's row."""
        assert self.kept
        return self.kept.id

    @property
    def view(self) -> ModelView | None:
        """The model's input in place of the conversation at its current head."""
        view = self.standing.view
        return view.behind(self.chat.held.path) if view else None

    async def begin(
        self,
        run: Run,
        held: ConversationState,
        said: Sequence[Item],
        view: ModelView | None = None,
        *,
        asked: Key | None = None,
        state: str | None = None,
    ) -> None:
        """Store a new run together with its input.

        new_items:   the items just appended to `conversation_state`
        input_head:  the end of the input, when the run began elsewhere; None: the head of `conversation_state`
        state_hash:  the content hash of the RunState that the run comes from
        """
        self.kept, self._started = None, {}
        head = asked or held.path.head
        standing = RunCheckpoint(head, head, view)
        row = self._row(run, standing, state)
        await self.chat.keep(held, said, RunUpdate(row))
        self.kept, self.standing = row, standing

    async def commit(self, before: Run, run: Run, event: RunEvent, effects: Sequence[RunEffect]) -> None:
        """Commit the consequences of `event`: nothing, a tool output, or the run with the items that it appends."""
        ended = self._ended(before, event)
        repeated = all(isinstance(effect, IDEMPOTENT_EFFECTS) for effect in effects)
        if repeated and run.phase not in TERMINAL_PHASES and not isinstance(event, NestedRunPaused):
            if ended:
                await self.chat.record.note(RunUpdate(calls=ended))
            return
        held = self._left(before, run, event)
        held = replace(held, path=held.path.grow(collect_appended_items(effects)))
        if run.phase in TERMINAL_PHASES:
            held = replace(held, path=held.path.grow(build_missing_outputs(run, self._since(held.path))))
        standing = self._stands(held.path, effects, self.standing)
        row = self._moved() if self._only_starts(event, run, effects) else self._row(run, standing)
        await self.chat.record.move(held, beside=RunUpdate(row, (*ended, *self._starts(run, effects))))
        self.kept, self.standing = row, standing

    async def keep(
        self, run: Run, *calls: AgentCall, standing: RunCheckpoint | None = None, held: ConversationState | None = None
    ) -> None:
        """Commit the run with the ends of calls; with `state` the conversation's head moves in the same transaction."""
        standing = standing or self.standing
        beside = RunUpdate(self._row(run, standing), calls)
        await (self.chat.record.move(held, beside=beside) if held else self.chat.record.note(beside))
        self.kept, self.standing = beside.agent_run, standing

    def closed(
        self,
        run: Run,
        effects: Sequence[RunEffect],
        held: ConversationState,
        output: tuple[Item, ...],
        seen: Path | None,
    ) -> tuple[RunUpdate, RunCheckpoint]:
        """Return the update to commit together with a response, and the checkpoint after it.

        state:      the conversation with the response
        link_path:  the path of the response's link, when it is not the conversation's
        """
        ended = run.phase in TERMINAL_PHASES
        then = collect_appended_items(effects) + (build_missing_outputs(run, output) if ended else ())
        start = held.path.first(len(held.path) - len(output)).head
        view = self._view_after(held.path, output, seen)
        standing = RunCheckpoint(self.standing.begun, start, view)
        standing = self._stands(held.path.grow(then), effects, standing)
        return RunUpdate(self._row(run, standing), self._starts(run, effects), then), standing

    def call(self, run: Run, call_id: str, *, ended: bool = False, output: Json = None) -> AgentCall:
        """Return a call's ledger entry; its start time is set at the first use."""
        at = self._started.setdefault(_make_call_key(run, call_id), self.chat.edges.clock.now())
        return AgentCall(self.run_id, _make_call_key(run, call_id), at, ended, output)

    async def ledger(self, run: Run) -> dict[str, AgentCall]:
        """Load the started calls of the run's last response, of any process, by their ids."""
        calls = await self.chat.edges.store.calls(self.run_id)
        self._started = {call.call_id: call.started_at for call in calls}
        return _select_batch_calls(run, calls)

    # -- parts of a commit ------------------------------------------------------------------------

    def _row(self, run: Run, standing: RunCheckpoint, state: str | None = None) -> AgentRun:
        edges, before = self.chat.edges, self.kept
        now, status = edges.clock.now(), STATUS_BY_PHASE.get(run.phase, "running")
        again = [call.id for call in run.at(Stage.READY) if _make_call_key(run, call.id) in self._started]
        document = {**run_to_json(run), "standing": run_checkpoint_to_json(standing), RERUN_CALLS_KEY: again}
        if self._origin is not None:
            document[AGENTS_SOURCE_KEY] = dict(self._origin)
        if before is None:
            before = AgentRun(edges.new_id("run"), self.chat.session.id, 0, status, document, now, now, state)
        return replace(before, revision=before.revision + 1, status=status, document=document, changed_at=now)

    def _moved(self) -> AgentRun:
        """Return the stored row with the next revision and an unchanged document."""
        assert self.kept
        now = self.chat.edges.clock.now()
        return replace(self.kept, revision=self.kept.revision + 1, document=UNCHANGED_DOCUMENT, changed_at=now)

    def _only_starts(self, event: RunEvent, run: Run, effects: Sequence[RunEffect]) -> bool:
        """Return whether the ledger alone records the step: calls start for the first time."""
        new = (isinstance(one, RunTool) and _make_call_key(run, one.call.id) not in self._started for one in effects)
        return isinstance(event, ToolReturned) and all(new)

    def _starts(self, run: Run, effects: Sequence[RunEffect]) -> tuple[AgentCall, ...]:
        return tuple(self.call(run, effect.call.id) for effect in effects if isinstance(effect, RunTool))

    def _ended(self, run: Run, event: RunEvent) -> tuple[AgentCall, ...]:
        return (
            (self.call(run, event.call_id, ended=True, output=event.output),) if isinstance(event, ToolReturned) else ()
        )

    def _left(self, before: Run, run: Run, event: RunEvent) -> ConversationState:
        """Return the conversation without the items that a tripped guardrail rejects."""
        held = self.chat.held
        if not isinstance(event, GuardrailTripped):
            return held
        if before.phase is not Phase.CHECKING:
            return replace(held, path=held.path.upto(held.mark)) if held.remembers else held
        calls = any(is_client_call(item) for item in self._since(held.path))
        return (
            held
            if calls or held.remembers
            else replace(held, path=held.path.upto(self.standing.turn), mark=self.standing.turn)
        )

    def _since(self, path: Path) -> tuple[Item, ...]:
        turn = self.standing.turn
        return tuple(node.item for node in path.after(turn)) if path.passes(turn) else ()

    def _stands(self, path: Path, effects: Sequence[RunEffect], standing: RunCheckpoint) -> RunCheckpoint:
        """Return the checkpoint with the conversation at `path`; a model call moves its `request_head` there."""
        asks = any(isinstance(effect, CallModel) for effect in effects)
        return replace(standing, turn=path.head, filtered=None) if asks else standing

    def _view_after(self, path: Path, output: tuple[Item, ...], seen: Path | None) -> ModelView | None:
        """Return the view with a response appended; it has an anchor when the response's link is on it."""
        view = self.view
        if view is None:
            return None
        grown = view.path.grow(output)
        anchored = seen is not None and seen.head == grown.head
        return replace(view, path=grown, upto=path.head, anchor=(grown.head, path.head) if anchored else view.anchor)


def _make_call_key(run: Run, call_id: str) -> str:
    return make_call_key(run.turn, call_id)


def _select_batch_calls(run: Run, calls: Sequence[AgentCall]) -> dict[str, AgentCall]:
    """Return the entries of the calls of the run's last response, by their ids."""
    entries = {_make_call_key(run, call.id): call.id for call in run.batch}
    return {entries[call.call_id]: call for call in calls if call.call_id in entries}


async def load_run(store: Store, row: AgentRun, graph: Graph) -> Run:
    """Load the run of a row, with the agents of `graph`. Raises the errors of `convo.runs.serialize.run_from_json`."""
    run = run_from_json(row.document, graph)
    if run.phase is not Phase.WORKING:
        return run
    known = _select_batch_calls(run, await store.calls(row.id))
    again = row.document.get(RERUN_CALLS_KEY, ())
    started = {call_id for call_id in known if call_id not in again}
    return apply_call_log(run, started, {call_id: call.output for call_id, call in known.items() if call.ended})


def collect_appended_items(effects: Sequence[RunEffect]) -> tuple[Item, ...]:
    """Return the items of all `AppendToHistory` effects."""
    return tuple(item for effect in effects if isinstance(effect, AppendToHistory) for item in effect.items)


async def find_open_run_row(chat: Chat) -> AgentRun | None:
    """Return the session's newest run if it has not ended."""
    rows = await chat.edges.store.agent_runs(session=chat.session.id, limit=1)
    return rows[0] if rows and rows[0].status in OPEN_RUN_STATUSES else None


async def open_run_repository(
    chat: Chat, kept: AgentRun | None, origin: Mapping[str, Json] | None = None
) -> RunRepository:
    """Open the repository of a chat's runs at `run_row`. Raises InvalidUsage for a row of another session."""
    if kept and kept.session != chat.session.id:
        raise InvalidUsage(f"{kept.id} belongs to another session", hint="convo approvals")
    said = kept.document.get("standing") if kept else None
    return RunRepository(chat, kept, await load_run_checkpoint(said, chat.held.path, chat.edges.store), origin)


async def load_run_row(store: Store, handle: str) -> AgentRun:
    """Load the run that a handle names: a run id, a prefix of one, or a session, for its newest run.

    Raises the errors of `resolve_handle`; NotFound also for a session without runs.
    """
    named = await store.agent_run(handle)
    if named:
        return named
    found = await resolve_handle(store, handle)
    begun = await store.agent_run(found.id) if found.kind == "run" else None
    rows = [begun] if begun else await store.agent_runs(session=found.id, limit=1)
    if not rows:
        raise NotFound("run", handle, hint="convo approvals")
    return rows[0]


MAX_SCANNED_RUNS = 10_000
"""The most runs that a search for orphaned ones reads."""


class OrphanedRun(NamedTuple):
    """A run whose process ended in the middle of its calls.

    calls:  started, without an output
    """

    run: AgentRun
    session: Session
    calls: tuple[PendingApproval, ...]


async def list_orphaned_runs(store: Store) -> list[OrphanedRun]:
    """Return the runs whose process ended in the middle of their calls, changed last first."""
    return [
        left
        for row in await store.agent_runs(status="running", limit=MAX_SCANNED_RUNS)
        if (left := await _load_orphaned_run(store, row))
    ]


async def _load_orphaned_run(store: Store, row: AgentRun) -> OrphanedRun | None:
    session = await store.session(row.session)
    run = await load_open_run(store, session) if session else None
    if session is None or run is None or run.id != row.id or not run.left:
        return None
    return OrphanedRun(row, session, tuple(_iter_interrupted_calls(row.document, await store.calls(row.id))))


def _iter_interrupted_calls(document: Mapping[str, Any], ledger: Sequence[AgentCall]) -> Iterator[PendingApproval]:
    """Yield the calls that started and have no output; the ledger may be ahead of the document."""
    ended, again = {call.call_id: call.ended for call in ledger}, document.get(RERUN_CALLS_KEY, ())
    for call in document["batch"]:
        name = make_call_key(document["turn"], call["id"])
        begun = call["stage"] == STAGE_WORDS[Stage.READY] and name in ended and call["id"] not in again
        if (begun or call["stage"] == STAGE_WORDS[Stage.STARTED]) and not ended.get(name):
            yield PendingApproval(
                call["id"], format_lookup(call["lookup"]), call["arguments"], document["agent"], unknown=True
            )
