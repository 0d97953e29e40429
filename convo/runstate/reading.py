"""From bytes to a state, or to one sentence that says what is wrong and where.

A state says which tools will run, and it may have been anywhere. It is read only when its label is
one that a release wrote, when its keys are not newer than its label (a label turned back makes
newer readers take decisions without their proof), when what a person is shown is what would run,
and when every decision from 1.15 on has its proof. Nothing is repaired on the way.
"""

from collections.abc import Iterator
from dataclasses import replace

from convo.errors import BadState, JavaScriptState, UnknownSchema
from convo.items import Json
from convo.runstate.identity import ARGUMENTS, HANDOFF, Call, call_of
from convo.runstate.nested import INTERRUPTION, actions, children, interruptions, states
from convo.runstate.paths import Steps, at, path, pattern
from convo.runstate.records import for_good, ids
from convo.runstate.shape import check
from convo.runstate.state import State, view
from convo.runstate.text import kind, parse
from convo.runstate.version import ITEM_LISTS, Version
from convo.runstate.versions import BOUND, BY_LABEL, LABELS, LIMITLESS, NESTED, after

LABEL = "$schemaVersion"
SNAKE = {"current_agent", "original_input", "current_turn"}
CAMEL = {"currentAgent", "originalInput", "currentTurn"}
"""Some of the members of a state, as the Python and the JavaScript SDK name them."""

NESTING = 16
"""How many agents used as tools may wait in one another."""

NEEDED = ("model_responses", "last_processed_response", "generated_items")
"""What a paused run cannot be gone on with when it is missing: readers fail, or forget the call."""

SMUGGLED = "that is how an approval is smuggled past newer readers"

HISTORIES = tuple(pattern(holder.removesuffix("[]")) for holder in ITEM_LISTS[:3])
LEDGER = ("context", "tool_invocations")


def read(data: bytes) -> State:
    """The state that `data` is.

    raises:  UnknownSchema  its label is none that a release wrote
             BadState       anything else, with the place; see `convo.runstate.text` for the limits
    """
    return of(parse(data))


def is_state(document: Json) -> bool:
    """Whether a document means to be a state, whatever is wrong with it."""
    if not isinstance(document, dict):
        return False
    return LABEL in document or set(document) >= SNAKE or set(document) >= CAMEL


def of(document: Json) -> State:
    """The state that a document is. raises: as `read`"""
    _check_python(document)
    version = _version(document, ())
    for way, inner in _within_reason(document):
        if way and _version(inner, way) != version:
            words = f"is {inner[LABEL]} inside a state of {version.label}; a release writes both alike, and {SMUGGLED}"
            raise BadState(path((*way, LABEL)), words)
        check(inner, way)
        _check_label(inner, version, way)
        _check_owner(inner, way)
        _check_step(inner, way)
    state = view(document)
    for way, inner in states(document):
        _check_pending(inner, version, way)
        if state.is_bound:
            _check_ledger(inner, way)
    _check_decisions(state)
    return state


def _check_python(document: Json) -> None:
    """raises: JavaScriptState  the document has the members that the JavaScript SDK writes"""
    if isinstance(document, dict) and CAMEL & document.keys() and not SNAKE & document.keys():
        label = document.get(LABEL)
        said = f" (label {label[:20]})" if isinstance(label, str) else ""
        words = f"is a RunState of the JavaScript SDK, @openai/agents{said}; convo reads those of the Python SDK"
        raise JavaScriptState("$", words)


def _version(document: Json, way: Steps) -> Version:
    if LABEL not in document:
        raise BadState(path((*way, LABEL)), "is missing; a RunState says which version of the format it is")
    label = document[LABEL]
    if not isinstance(label, str):
        raise BadState(path((*way, LABEL)), f"must be a string, not {kind(label)}")
    if label not in BY_LABEL:
        shown = repr(label if len(label) <= 20 else label[:19] + "…")
        raise UnknownSchema(path((*way, LABEL)), shown, LABELS)
    return BY_LABEL[label]


def _within_reason(document: Json) -> Iterator[tuple[Steps, Json]]:
    for way, inner in states(document):
        if way.count("agent_run_state") > NESTING:
            raise BadState(path(way), f"is a state inside {NESTING} others, deeper than agents use agents")
        yield way, inner


def _check_label(document: Json, version: Version, way: Steps) -> None:
    """raises: BadState  something in the document is newer than its label"""
    if document["max_turns"] is None and version.number < LIMITLESS.number:
        raise BadState(path((*way, "max_turns")), f"is null, which came with 1.10; the label is {version.label}")
    for newer in after(version):
        for place in newer.own(document):
            words = f"came with {newer.label}, and the label is {version.label}; {SMUGGLED}"
            raise BadState(path((*way, *place.steps)), words)


def _check_owner(document: Json, way: Steps) -> None:
    """raises: BadState  two owners would hold the history"""
    chained = document.get("previous_response_id") is not None or document.get("auto_previous_response_id") is True
    if document.get("conversation_id") is not None and chained:
        words = "stands beside conversation_id; a run has one owner of its history"
        raise BadState(path((*way, "previous_response_id")), words)


def _check_step(document: Json, way: Steps) -> None:
    """raises: BadState  what the run waits for cannot be told, and a reader would go on without it"""
    step = document.get("current_step")
    if step is None and "current_step" not in document and document.get("generated_items"):
        words = "is missing; readers would go on and forget whatever waits (null means that nothing does)"
        raise BadState(path((*way, "current_step")), words)
    if step is not None and "type" not in step:
        raise BadState(path((*way, "current_step", "type")), "is missing; readers would forget whatever waits")
    if step is None or step["type"] != INTERRUPTION or not any(interruptions(document)):
        return
    for key in NEEDED:
        if not document.get(key):
            raise BadState(path((*way, key)), "is missing or empty, and a paused run cannot go on without it")


# -- what waits is what would run ---------------------------------------------------------------------


def _check_pending(document: Json, version: Version, way: Steps) -> None:
    """raises: BadState  a pending call has no id of its own, is nobody's, or is shown as other than would run"""
    nested = {call.id for _, child in children(document) for _, call in _waiting(child)}
    planned = {call.id: (place, call) for place, call in actions(document)}
    seen: set[str] = set()
    for place, call in _waiting(document, way):
        if call.id is None:
            raise BadState(path((*way, *place, "raw_item")), "has no call id; a decision could not name it")
        if call.id in seen:
            raise BadState(
                path((*way, *place, "raw_item")), f"waits twice as {call.id!r}; a decision could mean either"
            )
        seen.add(call.id)
        if call.id in nested or (version.number < NESTED.number and call.id not in planned):
            continue
        if call.agent != document["current_agent"]:
            words = "is another agent's than the current one's, and in no state of an agent used as a tool"
            raise BadState(path((*way, *place, "agent")), words)
        _check_planned(call, planned.get(call.id), (*way, *place, "raw_item"), way)


def _waiting(document: Json, way: Steps = ()) -> Iterator[tuple[Steps, Call]]:
    for place, item in interruptions(document):
        call = call_of(item["raw_item"], item)
        if call is None:
            raise BadState(path((*way, *place, "raw_item")), "is no call that could be decided on")
        yield place, call


def _check_planned(shown: Call, planned: tuple[Steps, Call] | None, here: Steps, way: Steps) -> None:
    """raises: BadState  the action behind a pending call is missing, or would do something else"""
    if planned is None:
        raise BadState(path(here), "waits, but last_processed_response holds no such call that would run")
    place, call = planned
    for what, one, other in (("tool", shown.name, call.name), ("arguments", shown.arguments, call.arguments)):
        if one != other and not (what == "tool" and None in (one, other)):
            words = f"has other {what} than {path(here)} shows; what is approved must be what runs"
            raise BadState(path((*way, *place)), words)


# -- from 1.15 on: what is decided is bound ------------------------------------------------------------


def _check_ledger(document: Json, way: Steps) -> None:
    """raises: BadState  an entry binds another call than the one that the document holds under its id"""
    ledger = at(document, LEDGER) or {}
    seen: set[tuple[str, str, str, str]] = set()
    for raw, shown, roles in _histories(document) if ledger else ():
        said = _said(raw)
        if said is None or said in seen or said[0] not in ledger:
            continue
        seen.add(said)
        call = call_of(raw, shown)
        if call is None or ledger[said[0]]["type"] != call.type or not _is_named(call):
            continue
        if not _binds(ledger[said[0]], call, roles, (*way, *LEDGER, said[0])):
            words = "binds another call than the one in this state; its tool or arguments were changed"
            raise BadState(path((*way, *LEDGER, said[0])), words)


def _histories(document: Json) -> Iterator[tuple[Json, Json, tuple[str | None, ...]]]:
    """Whatever may be a call, what is said around it, and the parts that it may have played."""
    for _, item in interruptions(document):
        yield item["raw_item"], item, (None,)
    for steps in HISTORIES:
        for item in at(document, steps) or ():
            yield item["raw_item"], item, (HANDOFF,) if item.get("type") == "handoff_call_item" else (None,)
    for response in document.get("model_responses") or ():
        for raw in response.get("output") or ():
            yield raw, None, (None, HANDOFF)


def _said(raw: Json) -> tuple[str, str, str, str] | None:
    """What tells one call from another: its id, kind, name and arguments; None for what is no call by its kind."""
    kind = raw.get("type")
    field = ARGUMENTS.get(kind) if isinstance(kind, str) else None
    if field is None:
        return None
    call = raw.get("id") if kind == "mcp_approval_request" else raw.get("call_id")
    return (call, str(kind), str(raw.get("name")), str(raw.get(field))) if isinstance(call, str) else None


def _is_named(call: Call) -> bool:
    """Whether a call says its tool as the ledger would: built-in tools do only where they wait."""
    return call.lookup is not None if call.is_function else call.name is not None


def _binds(entry: Json, call: Call, roles: tuple[str | None, ...], place: Steps) -> bool:
    """Whether an entry is this call's; a deferred tool may be called as if it were in view."""
    said = (entry["approval_scope"], entry["fingerprint"])
    deferred = [("deferred_top_level", call.tool)] if call.is_function else []
    try:
        for lookup in (call.lookup, *deferred):
            meant = call if lookup == call.lookup else replace(call, lookup=lookup)
            bindings = [meant.binding(role) for role in roles]
            if any(one is None or (one.scope, one.fingerprint) == said for one in bindings):
                return True
    except ValueError as wrong:
        raise BadState(path(place), f"binds a call that cannot be bound: {wrong}") from wrong
    return False


def _check_decisions(state: State) -> None:
    """raises: BadState  a call is approved and rejected at once, or decided without proof"""
    for holder, kept in state.records:
        both = set(ids(kept.record, "approved")) & set(ids(kept.record, "rejected"))
        if both:
            raise BadState(path((*holder, *kept.steps)), f"approves and rejects {min(both)!r} at once")
        if not state.is_bound:
            continue
        ledger = at(state.document, (*holder, *LEDGER)) or {}
        for side in ("approved", "rejected"):
            for call in ids(kept.record, side):
                if call not in ledger:
                    words = f"decides on {call!r} without its entry in the ledger, which 1.15 and later need"
                    raise BadState(path((*holder, *kept.steps, side)), words)
        if for_good(kept.record) is not None and not isinstance(kept.record.get("sticky_scope"), str):
            words = f"decides for good without the tool's digest, which {BOUND.label} and later need"
            raise BadState(path((*holder, *kept.steps)), words)
