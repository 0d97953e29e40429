"""View of a paused run from a RunState: agents, calls, decisions, limits.

Loaded without the agent runner, so that a state is shown without a store and without an event loop.
"""

import json
from collections.abc import Iterator, Sequence

from convo.history.items import decode_json_escapes
from convo.runstate.format import RelabelLoss
from convo.runstate.run_state import PendingCall, RunState, StateDecision
from convo.terminal.statuses import DONE, FAILED, PAUSED, Status, format_sign, status_column
from convo.terminal.tables import Column, render_table
from convo.terminal.terminal import DisplayOptions, KeyValue, escape_control_chars, format_count, key_value_lines

MIN_TOOL_COLUMNS = 16
"""Columns to which the name of a tool is cut where it does not fit."""

DECISION_NAMES = {True: "approved", False: "rejected"}


def render_paused_state(state: RunState, name: str, display: DisplayOptions) -> str:
    """Render the state as a screen, without the last line break."""
    signs = {"pending": format_sign(PAUSED, display)} if state.pending else {}
    shown = [
        display.apply_style(escape_control_chars(name), "bold"),
        *key_value_lines(_run_state_rows(state), display, signs=signs),
    ]
    if state.pending:
        shown += ["", render_pending_calls(state, display)]
    return display.translate_box_chars("\n".join(shown))


def loss_lines(losses: Sequence[RelabelLoss]) -> Iterator[str]:
    """Format one line for each value that the other schema label cannot represent."""
    return (f"lost: {loss.path} ({loss.description}): {loss.reason}" for loss in losses)


def _run_state_rows(state: RunState) -> Iterator[KeyValue]:
    document, usage = state.document, state.usage
    yield "state", state.description
    yield "agent", state.agent
    yield "owner", _history_owner(state)
    max_turns = document["max_turns"]
    yield (
        "turns",
        f"{document['current_turn']}, no limit" if max_turns is None else f"{document['current_turn']} of {max_turns}",
    )
    tokens = (
        f"{usage['input_tokens']:,} input, {usage['output_tokens']:,} output, {usage['total_tokens']:,} total tokens"
    )
    yield "usage", f"{format_count(usage['requests'], 'request')}, {tokens}"
    yield "pending", format_count(len(state.pending), "call") if state.pending else "none"
    for decision in state.decisions:
        if decision.call_id is None or decision.call_id not in {call.id for call in state.pending}:
            yield "decided", _format_decision(decision)
    from convo.lint.secrets import find_exposed_secrets  # its patterns take time, and resume imports this module

    for exposed in find_exposed_secrets(document):
        yield "secret", f"${exposed.path}: {exposed.description}"
    if state.pending and state.binding_note:
        yield "note", state.binding_note


def _history_owner(state: RunState) -> str:
    document = state.document
    if document.get("conversation_id"):
        return f"the endpoint's Conversations API ({document['conversation_id']})"
    if document.get("previous_response_id"):
        return f"the endpoint's Responses API ({document['previous_response_id']})"
    return "this file"


def render_pending_calls(state: RunState, display: DisplayOptions) -> str:
    """Render a table of the pending calls, with their decisions."""
    pending = state.pending
    columns = [
        Column("call", [pending_call.id for pending_call in pending], style="id"),
        Column("agent", [pending_call.agent for pending_call in pending], drop_order=1),
        status_column("decision", [_decision_status(state, pending_call) for pending_call in pending], display),
        Column("tool", [pending_call.call.tool_name for pending_call in pending], min_width=MIN_TOOL_COLUMNS),
        Column("arguments", [_arguments_cell(pending_call) for pending_call in pending]),
    ]
    return render_table(columns, display)


def _decision_status(state: RunState, pending_call: PendingCall) -> Status:
    decisions = [decision for decision in state.decisions if decision.call_id == pending_call.id]
    names = " ".join(_decision_name(decision) for decision in decisions)
    return Status(names, DONE if decisions[-1].approve else FAILED) if decisions else Status("-")


def _decision_name(decision: StateDecision) -> str:
    return DECISION_NAMES[decision.approve] + (" always" if decision.always else "")


def _format_decision(decision: StateDecision) -> str:
    subject = f"{decision.tool} ({decision.call_id})" if decision.call_id else decision.tool
    return f"{subject}: {_decision_name(decision)}" + (f": {decision.message}" if decision.message else "")


def _arguments_cell(pending_call: PendingCall) -> str:
    arguments = pending_call.call.arguments
    return decode_json_escapes(" ".join((arguments if isinstance(arguments, str) else json.dumps(arguments)).split()))
