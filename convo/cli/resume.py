"""`convo resume`: decide on the pending calls of a paused run and resume it.

With --decide-only the decided state is written for the Agents SDK, signed on request: all decisions are
checked before anything is written. The exit code is 3 while a call is undecided.
The signing key comes from a variable, else the keyring; it is never an argument.
"""

import os
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from convo.chat.state_file import load_state_file, save_state_file
from convo.cli.decision_flags import (
    ALL_CALLS_WORD,
    RequestedDecisions,
    choose_decisions,
    format_decision,
    iter_unchanged_decision_notes,
    make_decision,
    make_run_not_found,
)
from convo.cli.output import PAUSED_EXIT_CODE, print_json
from convo.cli.state_input import STDIN_HANDLE, find_run_state, load_state
from convo.config.credentials import has_keyring, read_keyring
from convo.errors import InvalidSettings, InvalidUsage, NotFound
from convo.runs.stored_approvals import PendingApproval
from convo.runstate.approvals import apply_verdict, edit_arguments
from convo.runstate.format import ApprovalVerdict, RelabelLoss
from convo.runstate.javascript import JavaScriptState
from convo.runstate.reader import StateCallReport, StateDecisionReport, build_state_report, report_state_calls
from convo.runstate.relabel import relabel_state
from convo.runstate.run_state import PendingCall, RunState
from convo.runstate.signature import remove_signature, sign_state, verify_signature
from convo.runstate.versions import LABELS, VERSIONS
from convo.runstate.writer import serialize_run_state
from convo.terminal.run_state_view import loss_lines
from convo.terminal.terminal import escape_control_chars, format_count

(AGENT_STICKY_VERSION,) = (version for version in VERSIONS if version.label == "1.18")
"""From this label on a sticky decision on a function belongs to an agent; newer readers ignore older ones."""


class DecidedStateOutput(NamedTuple):
    """The file, label and signature of the decided state."""

    out: str
    schema: str | None
    sign: bool
    verify: bool
    key_env: str
    as_json: bool


class DecidedStateReport(NamedTuple):
    """With --decide-only: the written state.

    schema_version:  schema version of the state
    pending:         calls that still need a decision
    losses:          data that the requested schema version cannot represent
    """

    state_file: str
    schema_version: str
    decisions: Sequence[StateDecisionReport]
    pending: Sequence[StateCallReport]
    losses: Sequence[RelabelLoss]


class SigningOptions(NamedTuple):
    """The name of the key, and whether a state without a signature is rejected."""

    key_env: str
    must_verify: bool


def load_verified_state(handle: str, config: Path | None, signing: SigningOptions) -> RunState | None:
    """Load the state to resume; None if `handle` names a run in the store.

    Raises NotSigned, InvalidRunState, Unreadable or InvalidUsage.
    """
    state = find_run_state(handle, config, javascript=False)
    if state is None and ("/" in handle or handle.endswith(".json")):
        state = load_state_file(handle)  # raises the error for a missing file or another format
    if state is None:
        return None
    if signing.must_verify:
        verify_signature(state, load_signing_key(signing.key_env))
    return remove_signature(state)


def write_decided_state(handle: str, requested: RequestedDecisions, output: DecidedStateOutput) -> int:
    """Decide on the calls of a state, write it and return the exit code.

    Raises InvalidUsage, NotFound, InvalidRunState, NotSigned or StoreFault; then nothing was written.
    """
    key = load_signing_key(output.key_env) if output.sign or output.verify else b""
    state = load_state(handle)
    is_javascript = isinstance(state, JavaScriptState)
    if is_javascript and (output.schema or output.sign or output.verify):
        raise InvalidUsage(
            "--schema, --sign and --verify do not apply to a RunState of the JavaScript SDK", hint="omit them"
        )
    if output.verify:
        verify_signature(state, key)
    decided = _decide_and_relabel(remove_signature(state), requested, output.schema)
    _write_state(sign_state(decided.state, key) if output.sign else decided.state, output.out)
    loses_sticky = (
        not is_javascript and decided.is_sticky and decided.state.version.number < AGENT_STICKY_VERSION.number
    )
    for line in (
        *decided.notes,
        *([_format_not_sticky(decided.state.label)] if loses_sticky else []),
        *loss_lines(decided.losses),
    ):
        sys.stderr.write(escape_control_chars(line) + "\n")
    return _report_result(decided.state, decided.losses, output)


class DecidedState(NamedTuple):
    """The state to write, and its report.

    notes:      the decisions as text
    is_sticky:  whether a decision on a function also applies to later calls
    """

    state: RunState
    notes: tuple[str, ...]
    losses: tuple[RelabelLoss, ...] = ()
    is_sticky: bool = False


def _decide_and_relabel(state: RunState, requested: RequestedDecisions, label: str | None) -> DecidedState:
    """Return the decided state under the requested label.

    The decisions are applied under the newer of the two labels, which can express more of them.
    """
    if label is None:
        return _apply_flags(state, requested)
    if label in LABELS[LABELS.index(state.label) :]:
        state, losses = relabel_state(state, label)
        return _apply_flags(state, requested)._replace(losses=losses)
    decided = _apply_flags(state, requested)
    state, losses = relabel_state(decided.state, label)
    return decided._replace(state=state, losses=losses)


def _apply_flags(state: RunState, requested: RequestedDecisions) -> DecidedState:
    pending = [_describe_pending_call(state, call) for call in state.pending]
    choices = choose_decisions(requested, pending, _make_not_found)
    notes = [] if pending else ["this state has no pending calls"]
    notes += iter_unchanged_decision_notes(requested, pending, choices)
    decided = [(index, make_decision(pending[index], choice, requested)) for index, choice in sorted(choices.items())]
    for index, event in decided:
        if event.arguments is not None:
            state = edit_arguments(state, state.pending[index], event.arguments)
    calls = state.pending
    for verdict, group in groupby(
        decided, lambda pair: ApprovalVerdict(pair[1].approve, pair[1].message, pair[1].always)
    ):
        state = apply_verdict(state, [calls[index] for index, _ in group], verdict)
    notes += [format_decision(pending[index], event) for index, event in decided]
    is_sticky = any(event.always and calls[index].call.is_function for index, event in decided)
    return DecidedState(state, tuple(notes), is_sticky=is_sticky)


def _describe_pending_call(state: RunState, call: PendingCall) -> PendingApproval:
    return PendingApproval(
        call.id,
        call.call.tool_name,
        str(call.call.arguments),
        call.agent,
        outcome_unknown=False,
        is_hosted=call.call.is_hosted,
        approved=state.verdicts.get(call.id),
        aliases=call.call.record_keys,
    )


def _make_not_found(name: str, pending: Sequence[PendingApproval]) -> NotFound | None:
    if pending:
        return make_run_not_found(name, pending)
    note = ": the state has no pending calls"
    return (
        None
        if name == ALL_CALLS_WORD
        else NotFound("pending call", name, note=note, hint="resume it without a decision")
    )


def _format_not_sticky(label: str) -> str:
    """Format a note that newer releases ignore the sticky decisions on functions in a state of this label."""
    return (
        f"openai-agents {AGENT_STICKY_VERSION.release} and later ignore --always in a state of schema version {label}"
        f" and ask again, for these calls too; --schema {AGENT_STICKY_VERSION.label} keeps it"
    )


def _write_state(state: RunState, out: str) -> None:
    if out == STDIN_HANDLE:
        sys.stdout.write(serialize_run_state(state))
    else:
        save_state_file(state, out)


def _report_result(state: RunState, losses: Sequence[RelabelLoss], output: DecidedStateOutput) -> int:
    undecided = state.list_undecided()
    if output.as_json:
        decisions = build_state_report(state).decisions
        print_json(DecidedStateReport(output.out, state.label, decisions, report_state_calls(undecided), losses))
    elif undecided:
        ids = escape_control_chars(", ".join(pending_call.id for pending_call in undecided))
        sys.stderr.write(f"{format_count(len(undecided), 'call')} still undecided: {ids}\n")
    return PAUSED_EXIT_CODE if undecided else 0


def load_signing_key(name: str) -> bytes:
    """Load the key called `name`.

    Raises InvalidUsage if neither a variable nor a keyring has it, InvalidSettings for an unreadable keyring.
    """
    key = os.environ.get(name) or _read_keyring_key(name)
    if not key:
        raise InvalidUsage(
            f"no signing key {name} in the environment or the keyring", hint=f"export {name}=$(openssl rand -hex 32)"
        )
    return key.encode("utf-8", "surrogateescape")


def _read_keyring_key(name: str) -> str:
    try:
        key = read_keyring(name) if has_keyring() else None
    except InvalidSettings as error:
        error.add_hint(f"set {name}")
        raise
    return key.reveal() if key else ""
