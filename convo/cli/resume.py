"""`convo resume`: decide on the pending calls of a paused run and resume it.

With --decide-only the decided state is written for the Agents SDK, signed on request: all decisions are
checked before anything is written. The exit code is 3 while a call is undecided.
The signing key comes from a variable, else the keyring; it is never an argument.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from convo.chat.state_file import load_state_file, save_state_file
from convo.cli.decision_flags import (
    ALL_CALLS_WORD,
    format_decision,
    format_unchanged_decision,
    rank_match,
    select_best_matches,
)
from convo.cli.output import PAUSED_EXIT_CODE, print_json
from convo.cli.state_input import STDIN_HANDLE, find_run_state, read_piped_state
from convo.config.credentials import has_keyring, read_keyring
from convo.errors import InvalidSettings, InvalidUsage
from convo.runstate.approvals import apply_verdict, edit_arguments, select_pending_calls
from convo.runstate.format import ApprovalVerdict, RelabelLoss
from convo.runstate.reader import StateCallReport, StateDecisionReport, build_state_report, report_state_calls
from convo.runstate.relabel import relabel_state
from convo.runstate.run_state import RunState
from convo.runstate.signature import remove_signature, sign_state, verify_signature
from convo.runstate.versions import LABELS, VERSIONS
from convo.runstate.writer import serialize_run_state
from convo.terminal.approval_prompt import edit_arguments_in_editor
from convo.terminal.run_state_view import loss_lines
from convo.terminal.terminal import escape_control_chars, format_count

(AGENT_STICKY_VERSION,) = (version for version in VERSIONS if version.label == "1.18")
"""From this label on a sticky decision on a function belongs to an agent; newer readers ignore older ones."""


class StateDecisions(NamedTuple):
    """The values of the decision flags: each names a call's id, a tool or "all"."""

    approve: tuple[str, ...]
    reject: tuple[str, ...]
    edit: tuple[str, ...]
    always: bool


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


class StateCallDecision(NamedTuple):
    """The decision of one flag on the calls that it names."""

    verdict: ApprovalVerdict
    is_edited: bool = False


class SigningOptions(NamedTuple):
    """The name of the key, and whether a state without a signature is rejected."""

    key_env: str
    must_verify: bool


def load_verified_state(handle: str, config: Path | None, signing: SigningOptions) -> RunState | None:
    """Load the state to resume; None if `handle` names a run in the store.

    Raises NotSigned, InvalidRunState, Unreadable or InvalidUsage.
    """
    state = find_run_state(handle, config)
    if state is None and ("/" in handle or handle.endswith(".json")):
        state = load_state_file(handle)  # raises the error for a missing file or another format
    if state is None:
        return None
    if signing.must_verify:
        verify_signature(state, load_signing_key(signing.key_env))
    return remove_signature(state)


def write_decided_state(handle: str, requested: StateDecisions, output: DecidedStateOutput) -> int:
    """Decide on the calls of a state, write it and return the exit code.

    Raises InvalidUsage, NotFound, InvalidRunState, NotSigned or StoreFault; then nothing was written.
    """
    key = load_signing_key(output.key_env) if output.sign or output.verify else b""
    state = read_piped_state() if handle == STDIN_HANDLE else load_state_file(handle)
    if output.verify:
        verify_signature(state, key)
    decided = _decide_and_relabel(remove_signature(state), requested, output.schema)
    _write_state(sign_state(decided.state, key) if output.sign else decided.state, output.out)
    loses_sticky = decided.is_sticky and decided.state.version.number < AGENT_STICKY_VERSION.number
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


def _decide_and_relabel(state: RunState, requested: StateDecisions, label: str | None) -> DecidedState:
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


def _apply_flags(state: RunState, requested: StateDecisions) -> DecidedState:
    choices, previous_verdicts = _choose_by_call(state, requested), state.verdicts
    notes = [] if state.pending else ["this state has no pending calls"]
    call_choices = [
        (pending_call, choices[pending_call.id]) for pending_call in state.pending if pending_call.id in choices
    ]
    notes += _iter_unchanged_notes(state, requested, choices)
    for pending_call, choice in call_choices:
        state = (
            edit_arguments(state, pending_call, edit_arguments_in_editor(str(pending_call.call.arguments)))
            if choice.is_edited
            else state
        )
    pending_by_id = {pending_call.id: pending_call for pending_call in state.pending}
    for verdict, group in groupby(call_choices, lambda pair: pair[1].verdict):
        state = apply_verdict(state, [pending_by_id[pending_call.id] for pending_call, _ in group], verdict)
    for pending_call, (verdict, is_edited) in call_choices:
        approve, previous = verdict.approve, previous_verdicts.get(pending_call.id)
        notes.append(
            format_decision(
                pending_call.call.tool_name,
                pending_call.id,
                approve=approve,
                previous=previous,
                is_edited=is_edited,
                always=verdict.always,
            )
        )
    is_sticky = any(choice.verdict.always and pending_call.call.is_function for pending_call, choice in call_choices)
    return DecidedState(state, tuple(notes), is_sticky=is_sticky)


def _iter_unchanged_notes(
    state: RunState, requested: StateDecisions, choices: Mapping[str, StateCallDecision]
) -> Iterator[str]:
    """Yield notes on earlier decisions that differ from a name or `all`, and stay unchanged."""
    flags = [(value, True) for value in (*requested.approve, *requested.edit)]
    flags += [(value.partition("=")[0], False) for value in requested.reject]
    for pending_call in state.pending:
        previous = state.verdicts.get(pending_call.id)
        names = (ALL_CALLS_WORD, pending_call.call.tool_name, *pending_call.call.record_keys)
        if (
            previous is not None
            and pending_call.id not in choices
            and any(word in names and approve != previous for word, approve in flags)
        ):
            yield format_unchanged_decision(pending_call.call.tool_name, pending_call.id, previous)


def _format_not_sticky(label: str) -> str:
    """Format a note that newer releases ignore the sticky decisions on functions in a state of this label."""
    return (
        f"openai-agents {AGENT_STICKY_VERSION.release} and later ignore --always in a state of schema version {label}"
        f" and ask again, for these calls too; --schema {AGENT_STICKY_VERSION.label} keeps it"
    )


def _choose_by_call(state: RunState, requested: StateDecisions) -> dict[str, StateCallDecision]:
    """Return the decision on each call. Raises InvalidUsage for two flags that differ on one, and NotFound."""
    flags = [
        *((value, ApprovalVerdict(True, None, requested.always), False) for value in requested.approve),
        *((value, ApprovalVerdict(True, None, requested.always), True) for value in requested.edit),
        *((*_parse_rejection(state, value, requested), False) for value in requested.reject),
    ]
    return select_best_matches(
        (pending_call.id, rank_match(value, pending_call.id), StateCallDecision(verdict, is_edited))
        for value, verdict, is_edited in flags
        for pending_call in select_pending_calls(state, value)
    )


def _parse_rejection(state: RunState, value: str, requested: StateDecisions) -> tuple[str, ApprovalVerdict]:
    """Split `CALL=REASON`; a call id that contains an equals sign is not split."""
    if any(value == pending_call.id for pending_call in state.pending):
        return value, ApprovalVerdict(False, None, requested.always)
    call_id, _, reason = value.partition("=")
    return call_id, ApprovalVerdict(False, reason or None, requested.always)


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
