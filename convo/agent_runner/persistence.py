"""Persistence of agent runs: the commit of each step, together with the conversation.

The run's row, its tool calls, the new items and the head of the session change in one
transaction, so a killed process leaves a run that matches its conversation. A tool output alone
is written as a call entry; the document in the row may be older, and `load_run` applies the entries.
A checkpoint has the run's position in the conversation, and the model's input that replaces it.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, NamedTuple

from convo.agents.graph import Graph
from convo.agents.handoffs import format_handoff_output
from convo.chat.conversation import Chat
from convo.chat.lookup import read_or_report, resolve_handle
from convo.chat.run_decisions import build_log_entries
from convo.chat.session_record import RunUpdate
from convo.chat.view_loader import (
    AGENTS_SOURCE_KEY,
    OPEN_RUN_STATUSES,
    RERUN_CALLS_KEY,
    load_open_run,
    make_call_key,
)
from convo.errors import DamagedRow, InvalidRunState, InvalidUsage, NotFound
from convo.history.items import Item, Json, is_client_call, is_compaction, is_item
from convo.history.records import AgentCall, AgentRun, AgentRunStatus, Session
from convo.history.tree import Key, Path
from convo.inspect.run_timeline import read_timeline_members
from convo.runs.machine import build_missing_outputs
from convo.runs.serialize import CHANGED_CODE_HINT, STAGE_WORDS, apply_call_log, run_from_json, run_to_json
from convo.runs.state import (
    TERMINAL_PHASES,
    AppendToHistory,
    ApprovalDecided,
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
from convo.runs.stored_approvals import PendingApproval, format_lookup
from convo.stores.base import UNCHANGED_DOCUMENT, Store
from convo.strategies.strategy import ConversationState


@dataclass(frozen=True, slots=True)
class ModelView:
    """The model's input in place of the conversation.

    path:           its items
    initial_count:  items on it when it was made
    source_head:    the conversation's node up to which the view replaces it
    anchor:         a node on `path` that a link refers to, and the conversation's node that it replaces
    """

    path: Path
    initial_count: int
    source_head: Key
    anchor: tuple[Key, Key] | None = None

    def extend_to(self, path: Path) -> "ModelView":
        """Append the items of the conversation `path` after `source_head`. Raises Conflict when it lacks that node."""
        new_items = [node.item for node in path.after(self.source_head)]
        return replace(self, path=self.path.append(new_items), source_head=path.head)


def make_model_view(items: Iterable[Item], path: Path) -> ModelView:
    """Make a view of `items` that replaces all of `path`. Raises NotCanonical for an item without exact JSON form."""
    view_path = Path(path.root).append(items)
    return ModelView(view_path, len(view_path), path.head)


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """The position of a run in its conversation.

    input_head:      the last node of its input
    request_head:    the last node before the newest response, or before the next one
    view:            None: the model receives the conversation itself
    filtered_input:  the head whose unconfirmed items are already the output of the input filter, and its instructions
    """

    input_head: Key
    request_head: Key
    view: ModelView | None = None
    filtered_input: tuple[Key, str | None] | None = None


def drop_partial_response(state: ConversationState, checkpoint: RunCheckpoint) -> ConversationState:
    """Return the conversation without the partial output of an interrupted response."""
    request_head = checkpoint.request_head
    can_drop = state.path.contains(request_head) and state.path.up_to(request_head).contains(state.confirmed_head)
    return replace(state, path=state.path.up_to(request_head)) if can_drop else state


def run_checkpoint_to_json(checkpoint: RunCheckpoint) -> dict[str, Json]:
    """Return `checkpoint` in the form of a run's row."""
    view = checkpoint.view
    return {
        "begun": checkpoint.input_head,
        "turn": checkpoint.request_head,
        "filtered": list(checkpoint.filtered_input) if checkpoint.filtered_input else None,
        "view": _view_to_json(view) if view else None,
    }


def _view_to_json(view: ModelView) -> dict[str, Json]:
    if view.anchor:
        return {"head": view.anchor[0], "upto": view.anchor[1], "history": view.initial_count}
    return {"items": [dict(item) for item in view.path.items], "upto": view.source_head, "history": view.initial_count}


async def load_run_checkpoint(document: Mapping[str, Any] | None, path: Path, store: Store) -> RunCheckpoint:
    """Load the checkpoint of a row, for the conversation at `path`; without a row, `document` is None.

    Raises NotFound, ItemDeleted and InvalidRunState.
    """
    if document is None:
        return RunCheckpoint(path.head, path.head)
    # Checked whole at once: damaged members ended in internal errors, some of them after a tool had run.
    if not _is_checkpoint(document):
        raise InvalidRunState("$.standing", "is not a complete checkpoint", hint=CHANGED_CODE_HINT)
    view, filtered = document["view"], document["filtered"]
    model_view = await _load_view(view, path, store) if view else None
    return RunCheckpoint(
        document["begun"], document["turn"], model_view, (filtered[0], filtered[1]) if filtered else None
    )


def _is_checkpoint(document: Json) -> bool:
    """Return whether the stored JSON of a checkpoint has all members with their types."""
    if not isinstance(document, dict) or not {"begun", "turn", "view", "filtered"} <= document.keys():
        return False
    view, filtered = document["view"], document["filtered"]
    has_view = view is None or (
        isinstance(view, dict)
        and type(view.get("history")) is int
        and isinstance(view.get("upto"), str)
        and (isinstance(view.get("items"), list) and all(map(is_item, view["items"])))
        != isinstance(view.get("head"), str)
    )
    has_filtered = filtered is None or (
        isinstance(filtered, list)
        and len(filtered) == 2
        and isinstance(filtered[0], str)
        and (filtered[1] is None or isinstance(filtered[1], str))
    )
    return isinstance(document["begun"], str) and isinstance(document["turn"], str) and has_view and has_filtered


async def _load_view(document: Mapping[str, Any], path: Path, store: Store) -> ModelView | None:
    source_head = document["upto"]
    if not path.contains(source_head):  # the replay file was edited since
        return None
    if "items" in document:
        return ModelView(Path(path.root).append(document["items"]), document["history"], source_head)
    return ModelView(
        await store.path(document["head"]), document["history"], source_head, (document["head"], source_head)
    )


STATUS_BY_PHASE: Mapping[Phase, AgentRunStatus] = {
    Phase.PAUSED: "paused",
    Phase.DONE: "done",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "stopped",
}
"""The status of a row for each phase; "running" for all others."""

FIRST_AGENT_KEY = "first_agent"
"""The member of a row's document with the agent that the run began with; earlier versions did not store it."""

IDEMPOTENT_EFFECTS = (CheckInputGuardrail, CheckOutputGuardrail, EvaluateApproval)
"""Effects that are safe to perform twice, so nothing must be committed before them."""


class RunRepository:
    """Stores the runs of one chat, one after the other.

    run_row:     the row of the run as last stored
    checkpoint:  the run's position in the conversation
    timeline:    the guardrails and handoffs of the run so far, as in its document
    """

    def __init__(
        self,
        chat: Chat,
        run_row: AgentRun | None,
        checkpoint: RunCheckpoint,
        agents_source: Mapping[str, Json] | None = None,
        outer_timeline: dict[str, Json] | None = None,
    ) -> None:
        """Store runs of `chat`.

        agents_source:   where the application loaded the agents from; None: as in `run_row`
        outer_timeline:  the `timeline` of the outer run, for a nested one: its guardrails and handoffs belong there
        """
        self.chat, self.run_row, self.checkpoint = chat, run_row, checkpoint
        self._agents_source = (
            run_row.document.get(AGENTS_SOURCE_KEY) if run_row and agents_source is None else agents_source
        )
        self._started_at: dict[str, float] = {}
        self._is_nested = outer_timeline is not None
        self.timeline = (
            read_timeline_members(run_row.document if run_row else {}) if outer_timeline is None else outer_timeline
        )

    @property
    def run_id(self) -> str:
        """The id of the run's row."""
        assert self.run_row
        return self.run_row.id

    @property
    def view(self) -> ModelView | None:
        """The model's input in place of the conversation at its current head."""
        view = self.checkpoint.view
        return view.extend_to(self.chat.state.path) if view else None

    async def create(
        self,
        run: Run,
        conversation_state: ConversationState,
        new_items: Sequence[Item],
        view: ModelView | None = None,
        *,
        input_head: Key | None = None,
        state_hash: str | None = None,
    ) -> None:
        """Store a new run together with its input.

        new_items:   the items just appended to `conversation_state`
        input_head:  the end of the input, when the run began elsewhere; None: the head of `conversation_state`
        state_hash:  the content hash of the RunState that the run comes from
        """
        self.run_row, self._started_at = None, {}
        if not self._is_nested:
            self.timeline = {}
        head = input_head or conversation_state.path.head
        checkpoint = RunCheckpoint(head, head, view)
        row = self._build_row(run, checkpoint, state_hash)
        await self.chat.save(conversation_state, new_items, RunUpdate(row))
        self.run_row, self.checkpoint = row, checkpoint

    async def commit(self, previous_run: Run, run: Run, event: RunEvent, effects: Sequence[RunEffect]) -> None:
        """Commit the consequences of `event`: nothing, a tool output, or the run with the items that it appends."""
        end_entries = self._make_end_entries(previous_run, event)
        is_repeatable = all(isinstance(effect, IDEMPOTENT_EFFECTS) for effect in effects)
        # A nested run is stored in its call alone, so its pause is always committed.
        if is_repeatable and run.phase not in TERMINAL_PHASES and not isinstance(event, NestedRunPaused):
            if end_entries:
                await self.chat.record.commit_run(RunUpdate(calls=end_entries))
            return
        state = self._drop_rejected_items(previous_run, run, event)
        state = replace(state, path=state.path.append(collect_appended_items(effects)))
        if run.phase in TERMINAL_PHASES:
            state = replace(
                state, path=state.path.append(build_missing_outputs(run, self._get_items_since_request(state.path)))
            )
        checkpoint = self._advance_checkpoint(state.path, effects, self.checkpoint)
        # The whole document for each start took 16 s of CPU for 1,000 approved calls; the call log alone takes 2 s.
        row = (
            self._build_next_revision()
            if self._has_only_new_starts(event, run, effects)
            else self._build_row(run, checkpoint)
        )
        await self.chat.record.commit(
            state, run_update=RunUpdate(row, (*end_entries, *self._make_start_entries(run, effects)))
        )
        self.run_row, self.checkpoint = row, checkpoint

    async def save(
        self,
        run: Run,
        *calls: AgentCall,
        checkpoint: RunCheckpoint | None = None,
        state: ConversationState | None = None,
    ) -> None:
        """Commit the run with the ends of calls; with `state` the conversation's head moves in the same transaction."""
        checkpoint = checkpoint or self.checkpoint
        run_update = RunUpdate(self._build_row(run, checkpoint), calls)
        await (
            self.chat.record.commit(state, run_update=run_update) if state else self.chat.record.commit_run(run_update)
        )
        self.run_row, self.checkpoint = run_update.agent_run, checkpoint

    async def save_decisions(
        self, previous_run: Run, run: Run, events: Sequence[ApprovalDecided], *calls: AgentCall
    ) -> None:
        """Commit a paused run with decisions on its calls, and log them; `calls` are the ends of calls."""
        entries = build_log_entries(
            self.run_id,
            run_to_json(previous_run),
            run_to_json(run),
            events,
            now=self.chat.deps.clock.now(),
            decided_by=None,
            source="run",
        )
        run_update = RunUpdate(self._build_row(run, self.checkpoint), calls, decisions=tuple(entries))
        await self.chat.record.commit_run(run_update)
        self.run_row = run_update.agent_run

    def build_response_update(
        self,
        run: Run,
        effects: Sequence[RunEffect],
        state: ConversationState,
        output: tuple[Item, ...],
        link_path: Path | None,
    ) -> tuple[RunUpdate, RunCheckpoint]:
        """Return the update to commit together with a response, and the checkpoint after it.

        state:      the conversation with the response
        link_path:  the path of the response's link, when it is not the conversation's
        """
        has_ended = run.phase in TERMINAL_PHASES
        appended_items = collect_appended_items(effects) + (build_missing_outputs(run, output) if has_ended else ())
        request_head = state.path.first(len(state.path) - len(output)).head
        view = self._extend_view(state.path, output, link_path)
        checkpoint = RunCheckpoint(self.checkpoint.input_head, request_head, view)
        checkpoint = self._advance_checkpoint(state.path.append(appended_items), effects, checkpoint)
        return RunUpdate(
            self._build_row(run, checkpoint), self._make_start_entries(run, effects), appended_items
        ), checkpoint

    def make_call_entry(self, run: Run, call_id: str, *, is_ended: bool = False, output: Json = None) -> AgentCall:
        """Return a call's entry in the call log; its start time is set at the first use."""
        started_at = self._started_at.setdefault(make_call_key(run.turn, call_id), self.chat.deps.clock.now())
        return AgentCall(self.run_id, make_call_key(run.turn, call_id), started_at, is_ended, output)

    async def load_calls(self, run: Run) -> dict[str, AgentCall]:
        """Load the started calls of the run's last response, of any process, by their ids."""
        calls = await self.chat.deps.store.agent_calls(self.run_id)
        self._started_at = {call.call_id: call.started_at for call in calls}
        return _select_batch_calls(run, calls)

    # -- parts of a commit ------------------------------------------------------------------------

    def _build_row(self, run: Run, checkpoint: RunCheckpoint, state_hash: str | None = None) -> AgentRun:
        deps, row = self.chat.deps, self.run_row
        now, status = deps.clock.now(), STATUS_BY_PHASE.get(run.phase, "running")
        rerun_ids = [
            call.id for call in run.calls_at(Stage.READY) if make_call_key(run.turn, call.id) in self._started_at
        ]
        document = {
            **run_to_json(run),
            FIRST_AGENT_KEY: run.graph.start,
            "standing": run_checkpoint_to_json(checkpoint),
            RERUN_CALLS_KEY: rerun_ids,
        }
        if not self._is_nested:
            document |= copy.deepcopy(self.timeline)  # it changes while the row is kept
        if self._agents_source is not None:
            document[AGENTS_SOURCE_KEY] = dict(self._agents_source)
        if row is None:
            row = AgentRun(deps.new_id("run"), self.chat.session.id, 0, status, document, now, now, state_hash)
        return row._replace(revision=row.revision + 1, status=status, document=document, changed_at=now)

    def _build_next_revision(self) -> AgentRun:
        """Return the stored row with the next revision and an unchanged document."""
        assert self.run_row
        now = self.chat.deps.clock.now()
        return self.run_row._replace(revision=self.run_row.revision + 1, document=UNCHANGED_DOCUMENT, changed_at=now)

    def _has_only_new_starts(self, event: RunEvent, run: Run, effects: Sequence[RunEffect]) -> bool:
        """Return whether the call log alone records the step: calls start for the first time."""
        are_new = (
            isinstance(effect, RunTool) and make_call_key(run.turn, effect.call.id) not in self._started_at
            for effect in effects
        )
        return isinstance(event, ToolReturned) and all(are_new)

    def _make_start_entries(self, run: Run, effects: Sequence[RunEffect]) -> tuple[AgentCall, ...]:
        return tuple(self.make_call_entry(run, effect.call.id) for effect in effects if isinstance(effect, RunTool))

    def _make_end_entries(self, run: Run, event: RunEvent) -> tuple[AgentCall, ...]:
        return (
            (self.make_call_entry(run, event.call_id, is_ended=True, output=event.output),)
            if isinstance(event, ToolReturned)
            else ()
        )

    def _drop_rejected_items(self, previous_run: Run, run: Run, event: RunEvent) -> ConversationState:
        """Return the conversation without the items that a tripped guardrail rejects."""
        state = self.chat.state
        if not isinstance(event, GuardrailTripped):
            return state
        if previous_run.phase is not Phase.CHECKING_OUTPUT:
            return replace(state, path=state.path.up_to(state.confirmed_head)) if state.is_server_side else state
        has_calls = any(is_client_call(item) for item in self._get_items_since_request(state.path))
        return (
            state
            if has_calls or state.is_server_side
            else replace(
                state, path=state.path.up_to(self.checkpoint.request_head), confirmed_head=self.checkpoint.request_head
            )
        )

    def _get_items_since_request(self, path: Path) -> tuple[Item, ...]:
        request_head = self.checkpoint.request_head
        return tuple(node.item for node in path.after(request_head)) if path.contains(request_head) else ()

    def _advance_checkpoint(self, path: Path, effects: Sequence[RunEffect], checkpoint: RunCheckpoint) -> RunCheckpoint:
        """Return the checkpoint with the conversation at `path`; a model call moves its `request_head` there."""
        calls_model = any(isinstance(effect, CallModel) for effect in effects)
        return replace(checkpoint, request_head=path.head, filtered_input=None) if calls_model else checkpoint

    def _extend_view(self, path: Path, output: tuple[Item, ...], link_path: Path | None) -> ModelView | None:
        """Return the view with a response appended; it has an anchor when the response's link is on it."""
        view = self.view
        if view is None:
            return None
        view_path = view.path.append(output)
        is_anchored = link_path is not None and link_path.head == view_path.head
        return replace(
            view,
            path=view_path,
            source_head=path.head,
            anchor=(view_path.head, path.head) if is_anchored else view.anchor,
        )


def _select_batch_calls(run: Run, calls: Sequence[AgentCall]) -> dict[str, AgentCall]:
    """Return the entries of the calls of the run's last response, by their ids."""
    entries = {make_call_key(run.turn, call.id): call.id for call in run.calls}
    return {entries[call.call_id]: call for call in calls if call.call_id in entries}


async def load_run(store: Store, row: AgentRun, graph: Graph) -> Run:
    """Load the run of a row, with the agents of `graph`. Raises the errors of `convo.runs.serialize.run_from_json`."""
    graph = replace(graph, start=row.document.get(FIRST_AGENT_KEY, graph.start))
    run = run_from_json(row.document, graph)
    if run.phase is not Phase.RUNNING_TOOLS:
        return run
    batch_calls = _select_batch_calls(run, await store.agent_calls(row.id))
    rerun_ids = row.document.get(RERUN_CALLS_KEY, ())
    # A call that a user lets run again has its first start in the log.
    started_ids = {call_id for call_id in batch_calls if call_id not in rerun_ids}
    return apply_call_log(
        run, started_ids, {call_id: call.output for call_id, call in batch_calls.items() if call.has_ended}
    )


def collect_appended_items(effects: Sequence[RunEffect]) -> tuple[Item, ...]:
    """Return the items of all `AppendToHistory` effects."""
    return tuple(item for effect in effects if isinstance(effect, AppendToHistory) for item in effect.items)


async def find_open_run_row(chat: Chat) -> AgentRun | None:
    """Return the session's newest run if it has not ended."""
    rows = await chat.deps.store.agent_runs(session_id=chat.session.id, limit=1)
    return rows[0] if rows and rows[0].status in OPEN_RUN_STATUSES else None


async def find_last_agent(chat: Chat, graph: Graph, agents_source: Mapping[str, Json] | None) -> str:
    """Return the identity of the agent that answered last in the conversation; without one, the first of `graph`.

    agents_source:  of the next run; other agents than before begin with their first one
    """
    rows = await chat.deps.store.agent_runs(session_id=chat.session.id, limit=1)
    document: Mapping[str, Any] = rows[0].document if rows else {}
    last_source, path = document.get(AGENTS_SOURCE_KEY), chat.state.path
    if last_source and agents_source and last_source.get("agent") != agents_source.get("agent"):
        return graph.start
    # A compaction replaces the path of the run, and may replace its handoff.
    last_agent, checkpoint = str(document.get("agent")), document.get("standing") or {}
    is_on_path = path.contains(checkpoint.get("begun", "")) or any(map(is_compaction, path.items))
    if is_on_path and last_agent in graph.agents:
        return last_agent
    # In a fork, in a converted conversation and after /undo the newest run is not of this path.
    outputs = {format_handoff_output(agent.name): identity for identity, agent in graph.agents.items()}
    texts = (item.get("output") for item in reversed(path.items))
    return next((outputs[text] for text in texts if isinstance(text, str) and text in outputs), graph.start)


async def open_run_repository(
    chat: Chat,
    run_row: AgentRun | None,
    agents_source: Mapping[str, Json] | None = None,
    outer_timeline: dict[str, Json] | None = None,
) -> RunRepository:
    """Open the repository of a chat's runs at `run_row`. Raises InvalidUsage for a row of another session."""
    if run_row and run_row.session_id != chat.session.id:
        raise InvalidUsage(f"{run_row.id} belongs to another session", hint="convo approvals")
    document = run_row.document.get("standing") or {} if run_row else None
    return RunRepository(
        chat,
        run_row,
        await load_run_checkpoint(document, chat.state.path, chat.deps.store),
        agents_source,
        outer_timeline,
    )


async def load_run_row(store: Store, handle: str) -> AgentRun:
    """Load the run that a handle names: a run id, a prefix of one, or a session, for its newest run.

    Raises the errors of `resolve_handle`; NotFound also for a session without runs.
    """
    row = await store.agent_run(handle)
    if row:
        return row
    match = await resolve_handle(store, handle)
    matched_row = await store.agent_run(match.id) if match.kind == "run" else None
    rows = [matched_row] if matched_row else await store.agent_runs(session_id=match.id, limit=1)
    if not rows:
        if match.kind != "session":
            raise NotFound("run", handle, hint="convo approvals")
        note, hint = ": this session has no agent run", f"convo chat --from {quote(handle)}"
        raise NotFound("run", handle, note=note, hint=hint)
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
    """Return the runs whose process ended in the middle of their calls, last changed first.

    A damaged run is left out and reported.
    """
    return [
        orphan
        for row in await store.agent_runs(status="running", limit=MAX_SCANNED_RUNS)
        if (orphan := await read_or_report(store, _load_orphaned_run(store, row)))
    ]


async def _load_orphaned_run(store: Store, row: AgentRun) -> OrphanedRun | None:
    """Return the run if it is orphaned. Raises DamagedRow."""
    session = await store.session(row.session_id)
    run = await load_open_run(store, session) if session else None
    if session is None or run is None or run.id != row.id or not run.is_orphaned:
        return None
    calls = await store.agent_calls(row.id)
    try:
        return OrphanedRun(row, session, tuple(_iter_interrupted_calls(row.document, calls)))
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedRow("run", row.id, "its document is incomplete") from error


def _iter_interrupted_calls(document: Mapping[str, Any], calls: Sequence[AgentCall]) -> Iterator[PendingApproval]:
    """Yield the calls that started and have no output; the call log may be newer than the document."""
    ended_by_key, rerun_ids = {call.call_id: call.has_ended for call in calls}, document.get(RERUN_CALLS_KEY, ())
    for call in document["batch"]:
        key = make_call_key(document["turn"], call["id"])
        has_started = call["stage"] == STAGE_WORDS[Stage.READY] and key in ended_by_key and call["id"] not in rerun_ids
        if (has_started or call["stage"] == STAGE_WORDS[Stage.RUNNING]) and not ended_by_key.get(key):
            yield PendingApproval(
                call["id"],
                format_lookup(call["lookup"]),
                call["arguments"],
                document["agent"],
                outcome_unknown=True,
                is_hosted=False,
            )
