"""Approval prompt: show pending calls and ask for a decision on each.

Each decision is saved when it is made, and no call runs before all calls are decided. Leaving (Ctrl-C, Ctrl-D,
end of input) decides nothing.
"""

import asyncio
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from convo.agent_runner.runner import AgentRunner
from convo.chat.files import format_os_error
from convo.errors import ConvoError, Interrupted, InvalidUsage
from convo.history.items import decode_json_escapes
from convo.runs.state import ApprovalDecided, ToolOutputSupplied
from convo.runs.stored_approvals import PendingApproval, pending_approval_from_call
from convo.runtime import temporary_folder
from convo.stores.base import ApprovalDecision
from convo.terminal.signals import ignore_signal, on_signal
from convo.terminal.statuses import DONE, PAUSED, WARNING, Status, status_column
from convo.terminal.terminal import (
    Column,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    key_value_lines,
    render_table,
    wrap_text,
)

DURATION_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
"""Seconds and the name of each unit, largest first."""


class PausedRun(NamedTuple):
    """A paused run in the inbox.

    session_name:  the name of the run's session
    paused_s:      seconds since the run paused
    """

    run_id: str
    session_name: str
    paused_s: float
    calls: tuple[PendingApproval, ...]


def render_pending_call(call: PendingApproval, display: DisplayOptions, *extra_rows: KeyValue) -> str:
    """Render one call in full: its tool, then one line for each property."""
    title = f"{call.tool} has an unknown outcome" if call.outcome_unknown else f"{call.tool} needs approval"
    return "\n".join([escape_control_chars(title), *key_value_lines([*_call_rows(call), *extra_rows], display)])


def render_paused_runs(runs: Sequence[PausedRun], display: DisplayOptions) -> str:
    """Render one line for each pending call; one for a run whose calls are all decided."""
    rows = [(run, call) for run in runs for call in (run.calls or (None,))]
    columns = [
        Column("call", [call.call_id if call else "-" for _, call in rows], style="id"),
        Column("session", [run.session_name for run, _ in rows]),
        Column("agent", [call.agent if call else "-" for _, call in rows], drop_order=2),
        status_column(
            "paused", [Status(format_duration(run.paused_s), PAUSED) for run, _ in rows], display, drop_order=1
        ),
        Column("run", [run.run_id for run, _ in rows], drop_order=0),
        status_column("tool", [_tool_status(call) for _, call in rows], display),
        Column(
            "arguments", [decode_json_escapes(" ".join(call.arguments.split())) if call else "" for _, call in rows]
        ),
    ]
    return render_table(columns, display)


def render_decision_log(decisions: Sequence[ApprovalDecision], display: DisplayOptions) -> str:
    """Render one line for each logged decision; times are UTC."""
    statuses = [
        Status(f"{'approved' if one.approved else 'rejected'}{' always' if one.is_sticky else ''}", DONE)
        for one in decisions
    ]
    columns = [
        Column("time", [f"{datetime.fromtimestamp(one.decided_at, UTC):%Y-%m-%d %H:%M:%S}" for one in decisions]),
        status_column("decision", statuses, display),
        Column("key", [one.decided_by or "-" for one in decisions], drop_order=3),
        Column("call", [one.call_id for one in decisions], style="id"),
        Column("agent", [one.agent for one in decisions], drop_order=2),
        Column("run", [one.run_id for one in decisions], drop_order=0),
        Column("tool", [one.tool for one in decisions]),
        Column("arguments", [decode_json_escapes(" ".join(one.arguments.split())) for one in decisions]),
    ]
    if any(one.reason for one in decisions):
        columns.append(Column("reason", [one.reason or "" for one in decisions], drop_order=1))
    return render_table(columns, display)


def format_duration(seconds: float) -> str:
    """Format a duration in its largest unit: "3 minutes", "less than a minute"."""
    for size, unit in DURATION_UNITS:
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit}" + ("" if number == 1 else "s")
    return "less than a minute"


def _tool_status(call: PendingApproval | None) -> Status:
    if call is None:
        return Status("decided", DONE)
    return Status(f"{call.tool}, outcome unknown", WARNING) if call.outcome_unknown else Status(call.tool)


def _call_rows(call: PendingApproval) -> Iterator[KeyValue]:
    yield "agent", call.agent
    yield "call", call.call_id
    if call.is_hosted:
        yield "runs", "at the provider"
    first, *rest = format_arguments(call.arguments).splitlines() or [""]
    yield "arguments", first
    for line in rest:
        yield "", line
    if call.outcome_unknown:
        yield "note", "the call was started but has no output: it may or may not have run"


AskUser: TypeAlias = Callable[[str], Awaitable[str]]
"""Asks a question and returns the answer. Raises EOFError and Interrupted."""

PrintMessage: TypeAlias = Callable[[str], None]

LEAVE_CHOICE = "leave"
ABORT_CHOICE = "abort"

CHOICE_SYNONYMS = {
    "y": "approve",
    "yes": "approve",
    "a": "approve",
    "n": "reject",
    "no": "reject",
    "r": "reject",
    "e": "edit",
    "l": LEAVE_CHOICE,
    "q": LEAVE_CHOICE,
    "rerun": "again",
    "o": "output",
}
"""Short forms and synonyms of the choices."""

CHOICE_USAGE = {"reject": "reject [REASON]", "never": "never [REASON]", "output": "output TEXT"}

CALL_CHOICES = ("approve", "reject", "edit", "always", "never", LEAVE_CHOICE)
HOSTED_CALL_CHOICES = ("approve", "reject", "always", "never", LEAVE_CHOICE)
UNKNOWN_OUTCOME_CHOICES = ("again", "output", "reject", ABORT_CHOICE, LEAVE_CHOICE)


async def ask_for_decisions(
    runner: AgentRunner, ask: AskUser, print_message: PrintMessage, display: DisplayOptions
) -> bool:
    """Ask the user for a decision on each pending call.

    Returns whether the run can continue: every call is decided, and the run was not ended.
    """
    while runner.pending_calls:
        call = pending_approval_from_call(runner.pending_calls[0], runner.run.agent)
        print_message(render_pending_call(call, display))
        if not await _ask_for_decision(runner, call, ask, print_message, display):
            return False
    return runner.can_resume


async def _ask_for_decision(
    runner: AgentRunner, call: PendingApproval, ask: AskUser, print_message: PrintMessage, display: DisplayOptions
) -> bool:
    """Ask until the user makes a valid decision. Returns False if the user leaves."""
    choices = (
        UNKNOWN_OUTCOME_CHOICES if call.outcome_unknown else HOSTED_CALL_CHOICES if call.is_hosted else CALL_CHOICES
    )
    question = wrap_text(", ".join(CHOICE_USAGE.get(name, name) for name in choices) + "? ", display.width)
    while True:
        try:
            name, detail = parse_choice(await ask(question))
        except (EOFError, Interrupted):
            return False
        if name == LEAVE_CHOICE:
            return False
        if name not in choices:
            print_message(f"enter {', '.join(choices[:-1])} or {choices[-1]} (no decision)")
            continue
        try:
            await (
                runner.stop()
                if name == ABORT_CHOICE
                else runner.apply_decisions(await _make_decision_event(name, call, detail))
            )
        except ConvoError as error:
            print_message(f"convo: {error.message}" + (f"\n  try: {error.hint}" if error.hint else ""))
            continue
        return True


def parse_choice(line: str) -> tuple[str, str]:
    """Split `line` into the choice and the text after it."""
    word, _, detail = line.strip().partition(" ")
    return CHOICE_SYNONYMS.get(word.lower(), word.lower()), detail.strip()


async def _make_decision_event(name: str, call: PendingApproval, detail: str) -> ApprovalDecided | ToolOutputSupplied:
    match name:
        case "output":
            return ToolOutputSupplied(call.call_id, detail)
        case "edit":
            return ApprovalDecided(call.call_id, approve=True, arguments=await _run_editor(call.arguments))
    approve = name in ("approve", "always", "again")
    return ApprovalDecided(call.call_id, approve, None if approve else detail or None, name in ("always", "never"))


async def _run_editor(arguments: str) -> str:
    """Edit `arguments` in a thread: the lease is renewed meanwhile, and Ctrl-C goes to the editor alone."""
    with on_signal(signal.SIGINT, ignore_signal):
        return await asyncio.to_thread(edit_arguments_in_editor, arguments)


def edit_arguments_in_editor(arguments: str) -> str:
    """Let the user edit the arguments in $VISUAL or $EDITOR. Raises InvalidUsage if neither is set or it fails."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        raise InvalidUsage("EDITOR is not set", hint="EDITOR=nano convo ...")
    with temporary_folder("convo-edit-") as folder:
        draft = folder / "arguments.json"
        draft.write_text(format_arguments(arguments) + "\n", encoding="utf-8")
        try:
            exit_code = subprocess.run([*command, str(draft)], check=False).returncode  # noqa: S603  their own editor
        except OSError as error:
            raise InvalidUsage(
                f"{command[0]} cannot be run: {format_os_error(error)}", hint="set EDITOR to the path of an editor"
            ) from error
        if exit_code:
            raise InvalidUsage(
                f"{command[0]} exited with {exit_code}, so nothing was changed", hint="exit the editor without an error"
            )
        return draft.read_text(encoding="utf-8").strip()


def format_arguments(arguments: str) -> str:
    """Format arguments for display and editing: JSON with one member a line, other text unchanged."""
    try:
        return decode_json_escapes(json.dumps(json.loads(arguments), indent=2))
    except (ValueError, RecursionError):
        return arguments
