"""The states in a state: an agent used as a tool pauses with a whole run of its own.

`last_processed_response.functions[i].agent_run_state` is a state like any other, and what waits
in it waits in the state around it as well. Here is how to get at them, and at what waits.
"""

from collections.abc import Iterator

from convo.items import Json
from convo.runstate.identity import Call, call_of
from convo.runstate.paths import Place, Steps, at, found, pattern

INTERRUPTION = "next_step_interruption"

CHILDREN = pattern("last_processed_response.functions[].agent_run_state")
WAITING = pattern("current_step.data.interruptions[]")

ACTIONS = {
    "functions": "tool",
    "computer_actions": "computer",
    "custom_tool_actions": "custom_tool",
    "local_shell_actions": "local_shell",
    "shell_actions": "shell",
    "apply_patch_actions": "apply_patch",
    "handoffs": "handoff",
}
"""The lists of calls that a run goes on with, and the key under which each says whose tool is called."""


def children(document: Json) -> Iterator[Place]:
    """The states of agents used as tools, one level down."""
    return (place for place in found(document, CHILDREN) if isinstance(place.value, dict))


def states(document: Json, way: Steps = ()) -> Iterator[Place]:
    """`document` and every state in it, the outer ones first."""
    yield Place(way, document)
    for inner, child in children(document):
        yield from states(child, (*way, *inner))


def interruptions(document: Json) -> Iterator[Place]:
    """The approval items that a state waits for; none unless it says that it was interrupted."""
    if at(document, ("current_step", "type")) != INTERRUPTION:
        return iter(())
    return found(document, WAITING)


def actions(document: Json) -> Iterator[tuple[Steps, Call]]:
    """Every call that the run would go on with, and its place."""
    for key, holder in ACTIONS.items():
        for way, action in found(document, ("last_processed_response", key, "[]")):
            call = call_of(action.get("tool_call"), _shown(action, holder))
            if call is not None:
                yield (*way, "tool_call"), call
    for way, request in found(document, pattern("last_processed_response.mcp_approval_requests[].request_item")):
        call = call_of(request.get("raw_item")) if isinstance(request, dict) else None
        if call is not None:
            yield (*way, "raw_item"), call


def unresolved(document: Json) -> Iterator[Call]:
    """The calls of agents used as tools that stand open because something waits in them."""
    for way, _ in children(document):
        action = at(document, way[:-1])
        call = call_of(action.get("tool_call"), _shown(action, "tool"))
        if call is not None:
            yield call


def _shown(action: Json, holder: str) -> dict[str, Json]:
    """What an action says of its tool, in the words of an approval item."""
    tool = action.get(holder)
    if not isinstance(tool, dict):
        return {}
    name, space = tool.get("name") or tool.get("tool_name"), tool.get("namespace")
    return {"tool_name": name, "tool_namespace": space, "tool_lookup_key": tool.get("lookupKey")}
