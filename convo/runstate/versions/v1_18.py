"""1.18: a decision on a function belongs to the agent whose tool it is (first written by 0.23.1).

Decisions on functions moved out of `context.approvals` into a list with their agents; the other
kinds of calls stay where they were.
"""

from collections.abc import Iterator

from convo.items import Json
from convo.runstate.identity import Call, call_of
from convo.runstate.nested import interruptions
from convo.runstate.paths import at, path, replaced, without
from convo.runstate.records import Kept, for_good, merged
from convo.runstate.version import Change, Loss, Room, Slot, Version
from convo.runstate.versions.v1_0 import APPROVALS

OWNED = ("context", "function_tool_approvals")


def _records(document: Json) -> Iterator[Kept]:
    for index, one in enumerate(at(document, OWNED) or []):
        yield Kept((*OWNED, index, "decision"), one["tool_key"], one["decision"], agent=one["agent"])


def _room(document: Json, call: Call, always: bool) -> Room | None:
    if not call.is_function or call.agent is None:
        return None
    slots = []
    for key in call.kept_under(always=always):
        document, index = _listed(document, call.agent, key)
        slots.append(Slot((*OWNED, index, "decision")))
    return document, tuple(slots)


def _listed(document: Json, agent: Json, key: str) -> tuple[Json, int]:
    """The document with a record for this agent's tool, and its number."""
    records = at(document, OWNED) or []
    for index, one in enumerate(records):
        if one["agent"] == agent and one["tool_key"] == key:
            return document, index
    empty = {"agent": agent, "tool_key": key, "decision": {"approved": [], "rejected": []}}
    return replaced(document, OWNED, [*records, empty]), len(records)


def _older(document: Json) -> Change:
    """Under the tools' names, whoever's tools they are."""
    losses: list[Loss] = []
    for kept in _records(document):
        steps = (*APPROVALS, kept.key)
        there = at(document, steps)
        document = replaced(document, steps, merged(there, kept.record) if there else kept.record)
        if for_good(kept.record) is not None:
            why = "labels before 1.18 know no owner: the decision holds for every agent with such a tool"
            losses.append(Loss(path(kept.steps), f"that {kept.key} is {_name(kept.agent)}'s", why))
    return without(document, OWNED), tuple(losses)


def _newer(document: Json) -> Change:
    """With the agent of the pending call; decisions on calls that are over stay under their tool's name."""
    losses: list[Loss] = []
    for item in interruptions(document):
        call = call_of(item.value.get("raw_item"), item.value)
        if call is None or not call.is_function or call.agent is None:
            continue
        for key in call.keys:
            document, loss = _owned(document, call.agent, key)
            losses += loss
    return document, tuple(losses)


def _owned(document: Json, agent: Json, key: str) -> tuple[Json, list[Loss]]:
    record = at(document, (*APPROVALS, key))
    if not record:
        return document, []
    document, index = _listed(without(document, (*APPROVALS, key)), agent, key)
    document = replaced(document, (*OWNED, index, "decision"), record)
    if for_good(record) is None:
        return document, []
    why = f"from 1.18 on it holds for one agent, {_name(agent)}; other agents' calls are asked for"
    return document, [Loss(path((*APPROVALS, key)), f"a decision on {key} for every agent", why)]


def _name(agent: Json) -> str:
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
    older=_older,
    newer=_newer,
    reads=_records,
    room=_room,
)
