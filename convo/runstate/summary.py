"""What `convo inspect STATE.json --json` says of a state."""

from convo.items import Json
from convo.runstate.state import Decision, Pending, State


def summary(state: State) -> dict[str, Json]:
    """One JSON object; `arguments` are the raw string, or an object where the call has one."""
    document = state.document
    waiting = {one.id for one in state.pending}
    return {
        "schema_version": state.label,
        "current_agent": state.agent,
        "pending": [pending(one) for one in state.pending],
        "decisions": [_decision(one) for one in state.decisions if one.call_id is None or one.call_id in waiting],
        "past_decisions": [_decision(one) for one in state.decisions if one.call_id and one.call_id not in waiting],
        "conversation_id": document.get("conversation_id"),
        "previous_response_id": document.get("previous_response_id"),
        "auto_previous_response_id": document.get("auto_previous_response_id", False),
        "model_responses": len(document.get("model_responses") or []),
        "usage": state.usage,
        "current_turn": document["current_turn"],
        "max_turns": document["max_turns"],
    }


def pending(one: Pending) -> dict[str, Json]:
    """One call that waits."""
    return {"call_id": one.id, "tool_name": one.call.tool, "arguments": one.call.arguments, "agent": one.agent}


def _decision(one: Decision) -> dict[str, Json]:
    return {
        "call_id": one.call_id,
        "tool_name": one.tool,
        "agent": one.agent,
        "decision": "approve" if one.approve else "reject",
        "always": one.always,
        "message": one.message,
        "authenticated": one.bound,
    }
