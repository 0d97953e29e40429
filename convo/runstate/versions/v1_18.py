"""1.18: a decision on a function belongs to the agent that has the tool (first written by 0.23.1).

Decisions on functions moved from `context.approvals` to a list with their agents; those on other kinds of calls did
not move.
"""

from collections.abc import Iterator

from convo.history.items import Json
from convo.runstate.document import format_path, get_path, remove_path, replace_path
from convo.runstate.format import (
    LocatedRecord,
    RecordSlot,
    RecordSlots,
    RelabelLoss,
    RelabelResult,
    Version,
    get_sticky_decision,
    iter_interruptions,
    merge_record_at,
)
from convo.runstate.identity import StateCall, parse_state_call
from convo.runstate.versions.v1_0 import APPROVALS_PATH

FUNCTION_APPROVALS_PATH = ("context", "function_tool_approvals")


def _find_records(document: Json) -> Iterator[LocatedRecord]:
    for index, record in enumerate(get_path(document, FUNCTION_APPROVALS_PATH) or []):
        yield LocatedRecord(
            (*FUNCTION_APPROVALS_PATH, index, "decision"), record["tool_key"], record["decision"], agent=record["agent"]
        )


def _find_slots(document: Json, call: StateCall, always: bool) -> RecordSlots | None:
    if not call.is_function or call.agent is None:
        return None
    slots = []
    for key in call.record_keys_for(always=always):
        document, index = _ensure_record(document, call.agent, key)
        slots.append(RecordSlot((*FUNCTION_APPROVALS_PATH, index, "decision")))
    return document, tuple(slots)


def _ensure_record(document: Json, agent: Json, key: str) -> tuple[Json, int]:
    """Return the document with a record for this agent's tool, and the record's index."""
    records = get_path(document, FUNCTION_APPROVALS_PATH) or []
    for index, record in enumerate(records):
        if record["agent"] == agent and record["tool_key"] == key:
            return document, index
    empty = {"agent": agent, "tool_key": key, "decision": {"approved": [], "rejected": []}}
    return replace_path(document, FUNCTION_APPROVALS_PATH, [*records, empty]), len(records)


def _to_older(document: Json) -> RelabelResult:
    """Store the records under their tools' names, without agents."""
    losses: list[RelabelLoss] = []
    for located in _find_records(document):
        document = merge_record_at(document, (*APPROVALS_PATH, located.key), located.record)
        if get_sticky_decision(located.record) is not None:
            reason = "labels before 1.18 have no agent here: the decision applies to every agent with this tool"
            losses.append(
                RelabelLoss(
                    format_path(located.steps), f"that {located.key} belongs to {_agent_name(located.agent)}", reason
                )
            )
    return remove_path(document, FUNCTION_APPROVALS_PATH), tuple(losses)


def _from_older(document: Json) -> RelabelResult:
    """Add the agents of pending calls to records; decisions on completed calls stay under their tool's name."""
    losses: list[RelabelLoss] = []
    for item in iter_interruptions(document):
        call = parse_state_call(item.value.get("raw_item"), item.value)
        if call is None or not call.is_function or call.agent is None:
            continue
        for key in call.record_keys:
            document, loss = _move_to_agent(document, call.agent, key)
            losses += loss
    return document, tuple(losses)


def _move_to_agent(document: Json, agent: Json, key: str) -> tuple[Json, list[RelabelLoss]]:
    record = get_path(document, (*APPROVALS_PATH, key))
    if not record:
        return document, []
    document, index = _ensure_record(remove_path(document, (*APPROVALS_PATH, key)), agent, key)
    document = replace_path(document, (*FUNCTION_APPROVALS_PATH, index, "decision"), record)
    if get_sticky_decision(record) is None:
        return document, []
    reason = f"from 1.18 on it applies to one agent, {_agent_name(agent)}; calls of other agents need approval"
    return document, [RelabelLoss(format_path((*APPROVALS_PATH, key)), f"a decision on {key} for every agent", reason)]


def _agent_name(agent: Json) -> str:
    return str(agent.get("name")) if isinstance(agent, dict) else "nobody"


VERSION = Version(
    "1.18",
    "0.23.1",
    "decisions on functions belong to an agent; calls to local MCP servers are bound to the server",
    keys=(
        "context.function_tool_approvals",
        "last_processed_response.mcp_tool_bindings",
        "pending_session_write.response_id",
        "pending_session_write.store",
        "pending_session_write.has_local_tool_outputs",
        "pending_session_write.append_acknowledged",
        "pending_session_write.compaction_model_exchange",
    ),
    to_older=_to_older,
    from_older=_from_older,
    find_records=_find_records,
    find_slots=_find_slots,
)
