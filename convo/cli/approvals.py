"""`convo approvals`: list and decide the pending calls of paused runs.

Needs the store and no agents: a decision changes the stored run, also while a chat waits for it.
Nothing runs until the run is resumed, by `convo resume` or by that chat.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple, TypeAlias

from convo.agent_runner.persistence import OrphanedRun, list_orphaned_runs, load_run_row
from convo.chat.lookup import read_or_report
from convo.chat.run_decisions import build_decision_report, save_decisions
from convo.chat.view_loader import get_agents_option
from convo.cli.decision_flags import (
    ALL_CALLS_WORD,
    CallDecision,
    RequestedDecisions,
    choose_decisions,
    format_decision,
    iter_unchanged_decision_notes,
    make_decision,
    split_flag_value,
)
from convo.cli.deps import open_configured_store, read_from_store
from convo.cli.output import print_json, print_line
from convo.config.loader import load_settings
from convo.errors import AmbiguousHandle, DamagedRow, InvalidRunState, InvalidUsage, NotFound, UnknownSchema
from convo.history.records import AgentRun, ApprovalDecision
from convo.report import Wire
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import (
    PendingApproval,
    list_decidable_approvals,
    list_pending_approvals,
)
from convo.runtime import SystemClock
from convo.stores.base import Store
from convo.terminal.approval_prompt import (
    PausedRun,
    render_decision_log,
    render_paused_runs,
    render_pending_call,
)
from convo.terminal.statuses import DONE, format_line_start
from convo.terminal.terminal import DisplayOptions, detect_display, escape_control_chars, format_count, wrap_sentence

ConfigPath: TypeAlias = Path | None

MAX_PAUSED_RUNS = 10_000
"""Paused runs that are loaded at most."""


MAX_NAMED_CALLS = 10
"""Pending calls that the error for an unknown one names."""


class UnreadableRun(NamedTuple):
    """A paused run of a newer version of convo; `error` names the version of its document."""

    run_id: str
    session_name: str
    error: UnknownSchema


class LoadedRuns(NamedTuple):
    """The paused runs of a store; the pending calls of the unreadable ones are unknown."""

    paused: Sequence[tuple[AgentRun, PausedRun]]
    unreadable: Sequence[UnreadableRun]


def _get_exit_code(unreadable: Sequence[UnreadableRun]) -> int:
    """Return the exit code of a command for all pending calls: an unreadable run may have further ones."""
    return UnknownSchema.exit if unreadable else 0


def print_pending_calls(config: ConfigPath, *, as_json: bool) -> int:
    """Print the pending calls, last changed first, and the interrupted runs; return the exit code.

    An interrupted run must be resumed before its pending calls are known for certain. Unreadable runs are named on
    stderr.
    """

    async def read(store: Store) -> tuple[LoadedRuns, Sequence[OrphanedRun]]:
        return await _load_paused_runs(store, None), await list_orphaned_runs(store)

    (paused_runs, unreadable), orphaned = read_from_store(load_settings(config), read)
    if as_json:
        reports = [_report_pending_call(*listed) for listed in _list_calls(paused_runs)]
        print_json(reports + [report for orphan in orphaned for report in _report_orphaned_calls(orphan)])
    elif paused_runs:
        print_line(_render_paused_and_decided_runs(paused_runs, detect_display(sys.stdout, os.environ)))
    elif not orphaned and not unreadable:
        _write_stderr_line("no pending calls")
    if orphaned:
        _write_stderr_line(_format_orphaned_runs(orphaned))
    _write_unreadable_runs(unreadable)
    return _get_exit_code(unreadable)


def print_state_calls(handle: str, *, as_json: bool) -> None:
    """Print the pending calls of a state file of either SDK. Raises InvalidUsage and the errors of `load_state`."""
    if as_json:
        raise InvalidUsage("--json applies to stored runs", hint=f"convo inspect {quote(handle)} --json")
    # Without a state file these modules are not needed.
    from convo.cli.state_input import load_state
    from convo.terminal.run_state_view import render_pending_calls

    state, display = load_state(handle), detect_display(sys.stdout, os.environ)
    if state.pending:
        print_line(display.translate_box_chars(render_pending_calls(state, display)))
    note = "no undecided calls"
    if undecided := state.list_undecided():
        id_ = quote(undecided[0].id)
        note = f"to decide: convo resume {quote(handle)} --decide-only -o decided.json --approve {id_}"
    _write_stderr_line(note)


def _render_paused_and_decided_runs(paused_runs: Sequence[tuple[AgentRun, PausedRun]], display: DisplayOptions) -> str:
    """Render the pending calls; a terminal names the runs whose calls are all decided below them."""
    if display.width is None:
        return render_paused_runs([paused for _, paused in paused_runs], display)
    pending = [paused for _, paused in paused_runs if paused.calls]
    decided = [(run, paused) for run, paused in paused_runs if not paused.calls]
    lines = [render_paused_runs(pending, display)] if pending else []
    lines += [""] if pending and decided else []
    for run, paused in decided:
        text = escape_control_chars(f"{paused.session_name or run.id}: {_format_resume_step(run, paused)}")
        wrapped = wrap_sentence(f"{DONE.sign} {text}", display.width)
        lines.append(wrapped.replace(f"{DONE.sign} ", format_line_start(DONE, display), 1))
    return "\n".join(lines)


def print_call_details(config: ConfigPath, selectors: Sequence[str], run: str | None, *, as_json: bool) -> None:
    """Print calls in full. Raises NotFound or AmbiguousHandle."""
    paused_runs = read_from_store(load_settings(config), lambda store: _load_paused_runs(store, run)).paused
    calls = _list_calls(paused_runs)
    selected = [
        calls[index] for index in _choose(RequestedDecisions(approve=tuple(selectors), can_approve_unknown=True), calls)
    ]
    if as_json:
        print_json([_report_pending_call(*listed) for listed in selected])
        return
    display = detect_display(sys.stdout, os.environ)
    details = (
        render_pending_call(call, display, ("session", paused.session_name), ("run", run.id))
        for run, paused, call in selected
    )
    print_line("\n\n".join(details))


MAX_LISTED_DECISIONS = 1000
"""Newest decisions that the log prints at most."""


def print_decision_log(config: ConfigPath, run: str | None, *, as_json: bool) -> None:
    """Print the logged decisions, newest first. Raises the errors of `load_run_row` if the run is unknown."""

    async def read(store: Store) -> Sequence[ApprovalDecision]:
        row = await load_run_row(store, run) if run is not None else None
        return await store.approval_decisions(row.id if row else None, limit=MAX_LISTED_DECISIONS)

    decisions = read_from_store(load_settings(config), read)
    if as_json:
        print_json(map(build_decision_report, decisions))
    elif decisions:
        print_line(render_decision_log(decisions, detect_display(sys.stdout, os.environ)))
    else:
        _write_stderr_line("no decisions")


async def decide_calls(
    config: ConfigPath, requested: RequestedDecisions, run_filter: str | None, *, as_json: bool
) -> int:
    """Store decisions: in each run for all of its selected calls or for none. Return the exit code.

    An unreadable run changes the exit code only if all calls were selected.

    Raises NotFound or AmbiguousHandle, InvalidUsage for two different decisions on a call, AlreadyDecided for a call
    that was decided meanwhile, and Conflict for a run that was resumed meanwhile.
    """
    async with open_configured_store(load_settings(config)) as store:
        paused_runs, unreadable = await _load_paused_runs(store, run_filter, include_decided=True)
        calls = _list_calls(paused_runs)
        choices = _choose(requested, calls)
        decided: list[tuple[PendingApproval, ApprovalDecided]] = []
        runs = {calls[index].run.id: calls[index].run for index in choices}
        for run in runs.values():
            chosen = [(calls[index].call, choices[index]) for index in choices if calls[index].run.id == run.id]
            events = [make_decision(call, choice, requested) for call, choice in chosen]
            await save_decisions(store, run, events, now=SystemClock().now())
            decided += [(call, event) for (call, _), event in zip(chosen, events, strict=True)]
        remaining = [pair for pair in (await _load_paused_runs(store, run_filter)).paused if pair[0].id in runs]
    if as_json:
        print_json([_report_pending_call(*listed) for listed in _list_calls(remaining)])
    else:
        for call, event in decided:
            _write_stderr_line(format_decision(call, event))
        _report_remaining_calls(remaining)
    for note in iter_unchanged_decision_notes(requested, [listed.call for listed in calls], choices):
        _write_stderr_line(note)
    if ALL_CALLS_WORD not in {value.partition("=")[0] for value in requested.call_values}:
        return 0
    _write_unreadable_runs(unreadable)
    return _get_exit_code(unreadable)


# -- selection ------------------------------------------------------------------------------------


async def _load_paused_runs(store: Store, run_filter: str | None, *, include_decided: bool = False) -> LoadedRuns:
    """Return the paused runs, or the one that `run_filter` names: by run id, session name or session id.

    include_decided:  include the calls that are decided and not performed yet

    A damaged run is left out and reported. Raises NotFound, and UnknownSchema or InvalidRunState if the named run is
    one of a newer version or damaged.
    """
    list_calls = list_decidable_approvals if include_decided else list_pending_approvals
    paused_runs, unreadable, names = [], [], []
    for run in await store.agent_runs(status="paused", limit=MAX_PAUSED_RUNS):
        session = await read_or_report(store, store.session(run.session_id))
        name = session.name if session else run.session_id
        names.append(name)
        if run_filter not in (None, run.id, run.session_id, name):
            continue
        try:
            calls = list_calls(run.document)
        except InvalidRunState as error:
            if run_filter is not None:
                raise
            # One run of a newer version made the whole list fail.
            if isinstance(error, UnknownSchema):
                unreadable.append(UnreadableRun(run.id, name, error))
                continue
            store.report_damaged_row(DamagedRow("run", run.id, f"its document at {error.message}"))
            continue
        paused_runs.append((run, PausedRun(run.id, name, _waiting_time_s(run), calls)))
    if run_filter is not None and not paused_runs:
        raise NotFound("paused run", run_filter, hint="convo approvals")
    return LoadedRuns(paused_runs, unreadable)


def _waiting_time_s(run: AgentRun) -> float:
    """Return the seconds since the run was changed."""
    return max(0.0, SystemClock().now() - run.changed_at)


class ListedCall(NamedTuple):
    """A call of the inbox, with its run."""

    run: AgentRun
    paused: PausedRun
    call: PendingApproval


def _list_calls(paused_runs: Sequence[tuple[AgentRun, PausedRun]]) -> list[ListedCall]:
    return [ListedCall(run, paused, call) for run, paused in paused_runs for call in paused.calls]


def _choose(requested: RequestedDecisions, calls: Sequence[ListedCall]) -> dict[int, CallDecision]:
    """Return the decisions by the index of their call.

    Raises AmbiguousHandle for an id that two runs have, and the errors of `choose_decisions`.
    """
    pending = [listed.call for listed in calls]
    for value, flag in requested.iter_flags():
        name, _ = split_flag_value(value, flag, pending)
        by_id = [listed for listed in calls if listed.call.call_id == name]
        if len({listed.run.id for listed in by_id}) > 1:
            candidates = [(f"--run {listed.run.id}", listed.call.tool) for listed in by_id]
            raise AmbiguousHandle(name, candidates, hint="add --run RUN to select one run")

    def make_not_found(name: str, pending: Sequence[PendingApproval]) -> NotFound:
        ids = list(dict.fromkeys(call.call_id for call in pending if call.approved is None))
        if ids and requested.reject and " " in name:
            hint = f"a reason belongs to its call: convo approvals reject {quote(f'{ids[0]}={name}')}"
            return NotFound("pending call", name, hint=hint)
        note = f"; pending: {', '.join(ids[:MAX_NAMED_CALLS])}{', ...' if len(ids) > MAX_NAMED_CALLS else ''}"
        return NotFound("pending call", name, note=note if ids else "", hint="convo approvals")

    return choose_decisions(requested, pending, make_not_found)


# -- output ---------------------------------------------------------------------------------


class PendingCallReport(NamedTuple):
    """A pending call.

    arguments:       as written by the model
    is_unknown:      whether the call was started and its outcome is unknown
    since:           time at which the run paused or was interrupted, in seconds since 1970
    waits_s:         seconds for which the call has been pending
    is_interrupted:  whether its run was interrupted because its process ended: the call can be decided on after convo
                     resume has continued the run. Only the list has such calls
    """

    run: str
    session: str
    session_id: str
    call_id: str
    tool_name: str
    arguments: str
    agent: str
    is_unknown: Annotated[bool, Wire("unknown")]
    since: float
    waits_s: float
    is_interrupted: Annotated[bool, Wire("left")] = False


def _report_orphaned_calls(orphaned_run: OrphanedRun) -> list[PendingCallReport]:
    """Return the calls of an interrupted run, as they will be pending once it is resumed."""
    paused = PausedRun(
        orphaned_run.run.id, orphaned_run.session.name, _waiting_time_s(orphaned_run.run), orphaned_run.calls
    )
    return [
        _report_pending_call(*listed)._replace(is_interrupted=True)
        for listed in _list_calls([(orphaned_run.run, paused)])
    ]


def _report_pending_call(run: AgentRun, paused_run: PausedRun, call: PendingApproval) -> PendingCallReport:
    return PendingCallReport(
        run.id,
        paused_run.session_name,
        run.session_id,
        call.call_id,
        call.tool,
        call.arguments,
        call.agent,
        call.outcome_unknown,
        run.changed_at,
        round(paused_run.paused_s, 1),
    )


def _report_remaining_calls(remaining_runs: Sequence[tuple[AgentRun, PausedRun]]) -> None:
    for run, paused in remaining_runs:
        ids = ", ".join(call.call_id for call in paused.calls)
        _write_stderr_line(
            f"{paused.session_name} still has pending calls: {ids}" if ids else _format_resume_step(run, paused)
        )


def _format_resume_step(run: AgentRun, paused: PausedRun) -> str:
    """Return the command that resumes a run without undecided calls."""
    name = quote(paused.session_name or run.id)
    return f"all calls are decided; to resume: convo resume {name}{get_agents_option(run.document)}"


def _format_orphaned_runs(orphaned_runs: Sequence[OrphanedRun]) -> str:
    """Format the interrupted runs, with the command that resumes the first of them."""
    names = [orphan.session.name or orphan.run.id for orphan in orphaned_runs]
    runs = format_count(len(orphaned_runs), "interrupted run")
    name_list = f" ({', '.join(names)})" if len(names) > 1 else ""
    option = get_agents_option(orphaned_runs[0].run.document)
    return f"{runs}{name_list}; to resume: convo resume {quote(names[0])}{option}"


def _write_unreadable_runs(runs: Sequence[UnreadableRun]) -> None:
    for run in runs:
        _write_stderr_line(
            f"{run.run_id} (session {run.session_name}) cannot be read, so its pending calls are unknown: "
            f"{run.error.message}; {run.error.hint}"
        )


def _write_stderr_line(text: str) -> None:
    sys.stderr.write(escape_control_chars(text) + "\n")
