"""Resume a paused run, from a RunState document or from the store.

A document is resumed once: one process of a store holds its lease, and a document whose run the store
already has, by hash or by run id, resumes that run, or fails if the run has ended. The agents must be the
same as before; decisions in the document are merged with those in the store.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

from convo.agent_runner.persistence import load_run_row
from convo.agent_runner.runner import AgentRunner
from convo.chat.conversation import Chat
from convo.chat.session_record import acquire_state_lease
from convo.cli.agent_options import AgentSetup, add_stored_options, load_agent_setup
from convo.cli.agent_run import PausedStateWriter, RunPresenter, load_saved_state, present_run, with_run_context
from convo.cli.context import ChatContext, ChatOptions, ChatOutput, open_prompt_reader
from convo.cli.decision_flags import (
    ALL_CALLS_WORD,
    RequestedDecisions,
    choose_decisions,
    format_decision,
    format_verdict,
    iter_unchanged_decision_notes,
    make_decision,
)
from convo.cli.deps import open_configured_store
from convo.cli.paused_files import get_marked_run_id
from convo.cli.run_options import AgentSource, RunFlags
from convo.cli.state_input import STDIN_HANDLE
from convo.config.loader import AGENT_MODEL_SOURCE, SettingFlags, load_settings
from convo.config.settings import Settings
from convo.errors import Busy, ConvoError, InvalidUsage, StateFault
from convo.history.canonical import item_hash
from convo.history.items import Item, get_call_id, item_type
from convo.history.pairing import output_index_by_call
from convo.history.records import AgentRun, Strategy
from convo.runs.machine import step_run
from convo.runs.serialize import PHASE_WORDS
from convo.runs.state import TERMINAL_PHASES, ApprovalDecided, Phase, Run, Stage, ToolOutputSupplied
from convo.runs.stored_approvals import PendingApproval, pending_approval_from_call
from convo.runstate.calls import answerable_call_id, find_open_nested_states
from convo.runstate.export import check_reexportable
from convo.runstate.format import iter_actions, iter_interruptions
from convo.runstate.import_ import import_run_state
from convo.runstate.run_state import RunState
from convo.stores.base import Store

ENDED_STATUSES = ("done", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """The run to resume, and its options.

    state:    the document; None: `handle` names a run in the store
    handle:   as it was typed
    context:  the value of --context; that in `run_flags` may be the stored one
    """

    handle: str
    state: RunState | None
    decisions: RequestedDecisions
    run_flags: RunFlags
    model: str | None = None
    config: Path | None = None
    flags: SettingFlags = field(default_factory=SettingFlags)
    context: str | None = None


async def resume_paused_run(request: ResumeRequest, out: ChatOutput) -> int:
    """Resume a run until it ends or pauses, and return the exit code."""
    request.run_flags.validate(is_continued=True)
    run_config = request.run_flags.run_config
    settings = load_settings(request.config, request.flags)
    async with open_configured_store(settings) as store, AsyncExitStack() as exit_stack:
        request = await _add_stored_options(request, store, settings.paths.data, out)
        setup = await load_agent_setup(request.run_flags, with_context=False)
        if run_config and setup.input_items:
            raise InvalidUsage("--run-config has input, and a paused run takes none", hint="leave the input out")
        flags = request.flags._replace(model=request.model)
        if request.model is None:
            flags = flags._replace(model=setup.model, model_source=AGENT_MODEL_SOURCE)
        settings = load_settings(request.config, flags)
        setup = setup.without_agent_models() if request.model else setup
        opener = ResumedRunOpener(request, settings, store, exit_stack, out)
        return await _decide_and_resume(await opener.open(setup), request, out, settings.editing)


async def _add_stored_options(
    request: ResumeRequest, store: Store, data_folder: Path, out: ChatOutput
) -> ResumeRequest:
    """Return `request` with the options, and -m, that the run had in this store.

    Raises NotFound or AmbiguousHandle for an unknown run, InvalidUsage for agents that were not recorded or were
    recorded elsewhere, and Unreadable for a missing file.
    """
    flags, model = request.run_flags, request.model
    row = await (_find_stored_run(store, request.state) if request.state else load_run_row(store, request.handle))
    if row:
        flags, model = add_stored_options(flags, model, row, data_folder, out.note, "run")
    if flags.source is None:
        raise InvalidUsage(
            "resuming a run needs its agents, and none were given",
            hint=f"convo resume {request.handle} --agent FILE.py:NAME;"
            " or --decide-only -o decided.json, to resume with the Agents SDK",
        )
    return replace(request, model=model, run_flags=flags, context=request.run_flags.context)


class ResumedRunOpener:
    """Opens the run to resume."""

    def __init__(
        self, request: ResumeRequest, settings: Settings, store: Store, exit_stack: AsyncExitStack, out: ChatOutput
    ) -> None:
        self._request, self._settings, self._store = request, settings, store
        self._exit_stack, self._out = exit_stack, out

    async def open(self, setup: AgentSetup) -> RunPresenter:
        """Open the run without performing anything.

        Raises NotFound, InvalidRunState, Busy or StateFault, and the errors of `AgentRunner.open`.
        """
        state = self._request.state
        if state is None:
            return await self._open_stored(await load_run_row(self._store, self._request.handle), setup)
        lease = await acquire_state_lease(self._store, item_hash(state.document), self._request.handle)
        self._exit_stack.push_async_callback(lease.release)
        row = await _find_stored_run(self._store, state)
        if row is None:
            return await self._adopt_state(state, setup)
        _check_state_current(row, state, setup.source)
        presenter = await self._open_stored(row, setup)
        if presenter.runner.run.phase is Phase.PAUSED:
            run, events = _merge_decisions(presenter.runner.run, state, self._request)
            # Raises for a flag that names no call, before a decision of the document is stored.
            choose_decisions(self._request.decisions, _list_decidable_calls(run))
            await presenter.runner.apply_decisions(*events)
        return presenter

    async def _open_stored(self, row: AgentRun, setup: AgentSetup) -> RunPresenter:
        session = await self._store.session(row.session_id)
        name = session.name if session else row.session_id
        if row.status in ENDED_STATUSES:
            raise StateFault(
                f"the run of {self._request.handle} has already ended ({row.status})",
                hint=f"convo inspect {quote(name)}",
            )
        context = self._make_chat_context(handle=row.session_id)
        chat = await _open_chat(context)
        setup = setup if self._request.model else setup.with_route(context.make_route)
        state = self._request.state or load_saved_state(row, context.paused_runs_folder)
        setup = self._with_context(setup, state, row)
        setup = await setup.connect(self._settings, self._exit_stack)
        setup = context.with_agents_record(chat, setup)
        limits = None if self._request.run_flags.max_turns is None else setup.run_config.limits
        runner = await AgentRunner.open(chat, setup.graph, setup.run_config, run_row=row, limits=limits)
        return RunPresenter(chat, runner, setup, self._make_state_writer(context, setup), context, self._out)

    async def _adopt_state(self, state: RunState, setup: AgentSetup) -> RunPresenter:
        """Import a state as a run of this store, after its decision flags were checked."""
        setup = self._with_context(setup, state)
        setup = await setup.connect(self._settings, self._exit_stack)
        imported = import_run_state(state, setup.graph, setup.run_config.values)
        if imported.run.phase in TERMINAL_PHASES:
            raise StateFault(
                f"the run of {self._request.handle} has already ended",
                hint="cat STATE.json | convo inspect -"
                if self._request.handle == STDIN_HANDLE
                else f"convo inspect {quote(self._request.handle)}",
            )
        choose_decisions(self._request.decisions, _list_decidable_calls(imported.run))
        check_reexportable(imported.run, state, imported.context_values)
        context = self._make_chat_context(imported.strategy, imported.handle)
        chat = await _open_chat(context)
        setup = setup if self._request.model else setup.with_route(context.make_route)
        run, items = imported.run, imported.items
        if self._request.run_flags.max_turns is not None:
            run = replace(run, limits=setup.run_config.limits)
        if imported.handle:
            current = chat.state
            chat.record.state = replace(current, path=current.path.append(items[imported.confirmed_count :]))
            items = ()
        setup = context.with_agents_record(chat, setup)
        runner = await AgentRunner.import_run(chat, run, items, setup.run_config, state_hash=imported.source_hash)
        state_writer = self._make_state_writer(context, setup)
        assert runner.run_row
        state_writer.save_base_state(runner.run_row.id, state)
        return RunPresenter(chat, runner, setup, state_writer, context, self._out)

    def _with_context(self, setup: AgentSetup, state: RunState | None, row: AgentRun | None = None) -> AgentSetup:
        try:
            return with_run_context(setup, self._request.context, state, row)
        except ConvoError:
            if not self._request.decisions.abort:  # calls no tool
                raise
            return setup

    def _make_chat_context(self, strategy: Strategy | None = None, handle: str | None = None) -> ChatContext:
        options = ChatOptions(
            strategies=(strategy,) if strategy else (),
            handle=handle,
            model=self._request.model,
            config=self._request.config,
            run_flags=self._request.run_flags,
        )
        return ChatContext(self._settings, self._store, self._exit_stack, options, self._out)

    def _make_state_writer(self, context: ChatContext, setup: AgentSetup) -> PausedStateWriter:
        return PausedStateWriter(
            context.paused_runs_folder,
            self._request.run_flags.state,
            setup.run_config,
            self._out.note,
            is_resumed=True,
        )


async def _open_chat(context: ChatContext) -> Chat:
    try:
        return await context.open()
    except Busy as busy:
        raise Busy(busy.name, busy.process, hint="wait until that process has closed it") from busy


async def _find_stored_run(store: Store, state: RunState) -> AgentRun | None:
    """Return the run that a document is of; None if this store does not have it."""
    run_id = get_marked_run_id(state)
    row = await store.agent_run(run_id) if run_id else None
    if row:
        return row
    rows = await store.agent_runs(source_state_hash=item_hash(state.document), limit=1)
    return rows[0] if rows else None


def _check_state_current(row: AgentRun, state: RunState, agents: AgentSource) -> None:
    """Raise StateFault for a document of convo's own that is older than its run."""
    if row.status in ENDED_STATUSES or get_marked_run_id(state) != row.id:
        return
    stored_runs = dict(_iter_stored_runs(row.document))
    for call_path, turn, pending_ids in _iter_nested_states(state.document):
        if (
            call_path not in stored_runs
            or stored_runs[call_path][0] != turn
            or not pending_ids <= stored_runs[call_path][1]
        ):
            raise StateFault(
                f"{row.id} has continued since this state was written",
                hint=f"convo resume {row.id} {agents.options}",
            )


CallPath: TypeAlias = tuple[str, ...]
"""The calls that contain a run, outermost first."""


def _iter_stored_runs(
    document: Mapping[str, Any], call_path: CallPath = ()
) -> Iterator[tuple[CallPath, tuple[int, set[str]]]]:
    """Yield for a stored run and those inside its calls: call path, count of finished model calls, ids of the calls."""
    calls = document.get("batch") or ()
    turn = document.get("turn", 0) - (document.get("phase") == PHASE_WORDS[Phase.CALLING_MODEL])
    yield call_path, (turn, {call["id"] for call in calls})
    for call in calls:
        if call.get("inner"):
            yield from _iter_stored_runs(call["inner"]["run"], (*call_path, call["id"]))


def _iter_nested_states(
    document: Mapping[str, Any], call_path: CallPath = ()
) -> Iterator[tuple[CallPath, int, set[str]]]:
    """Yield for a state and the states inside its calls: the call path, the turn, the ids of its own pending calls."""
    nested = {call: location.value for call, location in find_open_nested_states(document).items()}
    nested_ids = {id_ for child in nested.values() for id_ in _collect_pending_call_ids(child)}
    action_ids = {call.id for _, call in iter_actions(document)}
    yield (
        call_path,
        document["current_turn"],
        {id_ for id_ in _collect_pending_call_ids(document) if id_ not in nested_ids or id_ in action_ids},
    )
    for call_id_, child in nested.items():
        yield from _iter_nested_states(child, (*call_path, call_id_))


def _collect_pending_call_ids(document: Mapping[str, Any]) -> set[str]:
    """Return the ids of the calls in a state's interruptions."""
    return {
        call_id
        for interruption in iter_interruptions(document)
        if (call_id := answerable_call_id(interruption.value["raw_item"])) is not None
    }


def _merge_decisions(run: Run, state: RunState, request: ResumeRequest) -> tuple[Run, list[ApprovalDecided]]:
    """Apply the decisions of a document of convo's own to undecided calls; return the run and these decisions.

    Raises StateFault for a call on which document and store differ and that no flag names.
    """
    events = list[ApprovalDecided]()
    if get_marked_run_id(state) is None:
        return run, events
    shown_arguments = {entry.id: str(entry.call.arguments) for entry in state.pending}
    calls = {call.id: call for _, call in run.decidable_with_agents}
    decisions = {entry.call_id: entry for entry in state.decisions}
    sticky_ids = {entry.call_id for entry in state.decisions if entry.always}
    for call_id_, approve in state.verdicts.items():
        call = calls.get(call_id_)
        if call is None or call.stage is Stage.OUTCOME_UNKNOWN:  # a call that started since needs another decision
            continue
        if call.approved is not None:
            if call.approved != approve and not _is_named_by_flag(call_id_, request.decisions):
                stored_verdict, document_verdict = format_verdict(call.approved), format_verdict(approve)
                raise StateFault(
                    f"{call_id_} is {document_verdict} in {request.handle} and {stored_verdict} in the store",
                    hint=f"--approve {quote(call_id_)} or --reject {quote(call_id_)} to choose the decision",
                )
            continue
        edited_arguments = (
            shown_arguments.get(call_id_) if approve and shown_arguments.get(call_id_) != call.arguments else None
        )
        message = None if approve else decisions[call_id_].message
        events.append(
            ApprovalDecided(
                call_id_, approve, message, call_id_ in sticky_ids and edited_arguments is None, edited_arguments
            )
        )
    for event in events:
        run, _ = step_run(run, event)
    return run, events


def _is_named_by_flag(call_id: str, requested: RequestedDecisions) -> bool:
    """Return whether a flag names a call by its id."""
    return call_id in (*requested.approve, *requested.edit, *requested.reject) or any(
        value.startswith(f"{call_id}=") for value in requested.reject
    )


# -- resuming ---------------------------------------------------------------------------------------


async def _decide_and_resume(presenter: RunPresenter, request: ResumeRequest, out: ChatOutput, editing: str) -> int:
    """Apply the decisions and resume; at a terminal, ask for decisions whenever the run pauses."""
    runner, start_count = presenter.runner, len(presenter.chat.state.path)
    if request.decisions.abort:
        return await _abort_run(presenter, out, start_count)
    is_paused = runner.run.phase is Phase.PAUSED
    if not is_paused and request.decisions.call_values and await _will_pause(runner, request.decisions, out):
        await presenter.show_events(runner.resume())
    if runner.run.phase is Phase.PAUSED and (is_paused or runner.pending_calls):
        pending = _list_decidable_calls(runner.run)
        choices = choose_decisions(request.decisions, pending)
        events: list[ApprovalDecided | ToolOutputSupplied] = []
        sentences = []
        for index, choice in sorted(choices.items()):
            call = pending[index]
            if choice.flag == "output":
                events.append(ToolOutputSupplied(call.call_id, choice.text))
                sentences.append(f"supplied the output of {call.tool} ({call.call_id})")
            else:
                decision = make_decision(call, choice, request.decisions)
                events.append(decision)
                sentences.append(format_decision(call, decision))
        await runner.apply_decisions(*events)
        for sentence in sentences:
            out.note(sentence)
        for note in iter_unchanged_decision_notes(request.decisions, pending, choices):
            out.note(note)
    if not (out.as_json or out.as_jsonl) and sys.stdin.isatty() and sys.stderr.isatty():
        return await _resume_interactively(presenter, out, editing)
    return await present_run(presenter, out, start_count, runner.resume)


async def _will_pause(runner: AgentRunner, requested: RequestedDecisions, out: ChatOutput) -> bool:
    """Return whether an interrupted run pauses once it is resumed, without calling the model.

    If that is not known yet, no decision flag applies. If it does not pause, its calls were decided before: a command
    may be repeated after a kill.

    Raises NotFound or InvalidUsage for a flag that names neither a pending call nor one that has its output.
    """
    run = await runner.preview_resume()
    # A run that was killed in this stage continued to its end, and then failed because of the flags.
    if run.calls_at(Stage.CHECKING_APPROVAL):
        out.note("the pending calls are not known yet; resuming the run to find them")
        return False
    pending = _list_pending_calls(run)
    if pending:
        choose_decisions(requested, pending)
        return True
    answered = {ALL_CALLS_WORD, *_iter_answered_call_words(runner.chat.state.path.items)}
    if not all(word in answered or word.partition("=")[0] in answered for word in requested.call_values):
        choose_decisions(requested, pending)
    out.note("no calls are pending any more; resuming the run")
    return False


def _iter_answered_call_words(items: Sequence[Item]) -> Iterator[str]:
    """Yield the ids of the calls that have their output, and the names of their tools."""
    answered = output_index_by_call(items)
    for index, item in enumerate(items):
        if item_type(item) == "function_call" and index in answered:
            name = str(item.get("name"))
            yield from (str(get_call_id(item)), name, f"{item.get('namespace')}.{name}")


async def _resume_interactively(presenter: RunPresenter, out: ChatOutput, editing: str) -> int:
    from convo.terminal.approval_prompt import ask_for_decisions
    from convo.terminal.prompt import PromptOptions
    from convo.terminal.terminal import detect_display

    runner = presenter.runner
    presenter.omit_pending_calls()
    reader = open_prompt_reader(PromptOptions(Path(os.devnull), editing=editing))
    with closing(reader):
        while True:
            should_resume = not runner.pending_calls or await ask_for_decisions(
                runner, reader, out.print_message, out.print_styled, detect_display(sys.stderr, os.environ)
            )
            if not should_resume or not runner.can_resume:
                return await presenter.report_exit()
            await presenter.show_events(runner.resume())
            if not runner.pending_calls:
                return 0


async def _abort_run(presenter: RunPresenter, out: ChatOutput, start_count: int) -> int:
    await presenter.runner.stop()
    await presenter.report_exit()
    out.note("the run is aborted; its conversation can be continued without it")
    if out.as_json:
        presenter.print_outcome(start_count)
    return 0


def _list_pending_calls(run: Run) -> list[PendingApproval]:
    return [pending_approval_from_call(call, agent) for agent, call in run.pending_with_agents]


def _list_decidable_calls(run: Run) -> list[PendingApproval]:
    """Return the pending calls, and those that are decided and not performed yet."""
    return [pending_approval_from_call(call, agent) for agent, call in run.decidable_with_agents]
