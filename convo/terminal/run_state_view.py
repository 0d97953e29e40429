"""View of a paused run from a RunState: agents, calls, decisions, limits.

Loaded without the agent runner, so that a state is shown without a store and without an event loop.
"""

import json
from collections.abc import Iterator, Sequence

from convo.history.items import decode_json_escapes
from convo.runstate.format import RelabelLoss
from convo.runstate.state import PendingCall, RunState, StateDecision
from convo.terminal.terminal import (
    Column,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    fit_columns,
    format_count,
    key_value_lines,
    table_lines,
)

DECISION_NAMES = {True: "approved", False: "rejected"}


def render_paused_state(state: RunState, name: str, display: DisplayOptions) -> str:
    """Render the state as a screen, without the last line break."""
    shown = [display.apply_style(escape_control_chars(name), "bold"), *key_value_lines(_run_state_rows(state), display)]
    if state.pending:
        shown += ["", *table_lines(fit_columns(_pending_columns(state), display), display)]
    return display.translate_box_chars("\n".join(shown))


def loss_lines(losses: Sequence[RelabelLoss]) -> Iterator[str]:
    """Format one line for each value that the other schema label cannot represent."""
    return (f"lost: {one.path} ({one.what}): {one.why}" for one in losses)


def _run_state_rows(state: RunState) -> Iterator[KeyValue]:
    document, usage = state.document, state.usage
    yield "state", f"RunState {state.label}, written by {state.version.release} or later: {state.version.summary}"
    yield "agent", state.agent
    yield "owner", _history_owner(state)
    most = document["max_turns"]
    yield "turns", f"{document['current_turn']}, no limit" if most is None else f"{document['current_turn']} of {most}"
    tokens = (
        f"{usage['input_tokens']:,} input, {usage['output_tokens']:,} output, {usage['total_tokens']:,} total tokens"
    )
    yield "usage", f"{format_count(usage['requests'], 'request')}, {tokens}"
    yield "pending", format_count(len(state.pending), "call") if state.pending else "none"
    for one in state.decisions:
        if one.call_id is None or one.call_id not in {waits.id for waits in state.pending}:
            yield "decided", _format_decision(one)
    if state.pending and not state.is_bound:
        yield (
            "note",
            "a decision is not bound to its call: before 1.15 it names only the call id, not the tool or arguments",
        )


def _history_owner(state: RunState) -> str:
    document = state.document
    if document.get("conversation_id"):
        return f"the endpoint's Conversations API ({document['conversation_id']})"
    if document.get("previous_response_id"):
        return f"the endpoint's Responses API ({document['previous_response_id']})"
    return "this file"


def _pending_columns(state: RunState) -> list[Column]:
    pending = state.pending
    return [
        Column("call", [one.id for one in pending], style="id"),
        Column("agent", [one.agent for one in pending], drop_order=1),
        Column("decision", [_decision_cell(state, one) for one in pending]),
        Column("tool", [one.call.tool_name for one in pending]),
        Column("arguments", [_arguments_cell(one) for one in pending]),
    ]


def _decision_cell(state: RunState, one: PendingCall) -> str:
    found = [decision for decision in state.decisions if decision.call_id == one.id]
    return " ".join(_decision_name(decision) for decision in found) or "-"


def _decision_name(one: StateDecision) -> str:
    return DECISION_NAMES[one.approve] + (" always" if one.always else "")


def _format_decision(one: StateDecision) -> str:
    of = f"{one.tool} ({one.call_id})" if one.call_id else one.tool
    return f"{of}: {_decision_name(one)}" + (f": {one.message}" if one.message else "")


def _arguments_cell(one: PendingCall) -> str:
    said = one.call.arguments
    return decode_json_escapes(" ".join((said if isinstance(said, str) else json.dumps(said)).split()))
