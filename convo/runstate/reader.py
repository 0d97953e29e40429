"""Parse and validate a RunState, or raise InvalidRunState with the place of the first error.

A state decides which tools run, so it is not trusted: its label must be one that a release wrote, no key may be newer
than the label, the call shown for approval must be the call that would run, and decisions from 1.15 on need their
ledger entry. Nothing is repaired. `StateReport` is the output of `convo inspect STATE.json --json`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Literal, NamedTuple

from convo.errors import InvalidRunState, JavaScriptRunState, UnknownSchema
from convo.history.items import MCP_APPROVAL_REQUEST, Json, is_item, is_valid_id
from convo.report import Count, Wire
from convo.runstate.document import (
    PathMatch,
    PathSteps,
    describe_json_type,
    format_path,
    get_path,
    iter_path_matches,
    parse_document,
    parse_path_pattern,
)
from convo.runstate.format import (
    ACTION_LISTS,
    AGENT_MEMBERS,
    INTERRUPTION_STEP,
    LEDGER_PATH,
    RUN_ITEM_PATTERNS,
    Version,
    get_sticky_decision,
    iter_actions,
    iter_interruptions,
    iter_nested_states,
    iter_states,
    list_decided_call_ids,
)
from convo.runstate.identity import ARGUMENT_FIELDS, HANDOFF_ROLE, StateCall, parse_state_call
from convo.runstate.run_state import PendingCall, RunState, StateDecision, wrap_document
from convo.runstate.versions import (
    LABELS,
    LEDGER_SINCE,
    NESTED_STATE_SINCE,
    UNLIMITED_TURNS_SINCE,
    VERSION_BY_LABEL,
    list_versions_after,
)

SCHEMA_VERSION_KEY = "$schemaVersion"
PYTHON_MEMBERS = {"current_agent", "original_input", "current_turn"}
JAVASCRIPT_MEMBERS = {"currentAgent", "originalInput", "currentTurn"}
"""Members that distinguish a state of the Python SDK (`PYTHON_MEMBERS`) from one of the JavaScript SDK."""

MAX_NESTED_STATES = 16
"""Levels of nested states."""

REQUIRED_WHEN_PAUSED = ("model_responses", "last_processed_response", "generated_items")
"""Members without which readers of a paused run fail or lose the pending call."""

DOWNGRADE_WARNING = "this could bypass the approval checks of newer readers"

RUN_ITEM_LIST_PATHS = tuple(parse_path_pattern(pattern.removesuffix("[]")) for pattern in RUN_ITEM_PATTERNS[:3])


def parse_run_state(data: bytes) -> RunState:
    """Parse and validate a state.

    Raises UnknownSchema for a label that no release wrote, and InvalidRunState with a JSON path for any other error.
    The limits are in `convo.runstate.document`.
    """
    return run_state_from_json(parse_document(data))


def run_state_from_json(document: Json) -> RunState:
    """Validate a parsed document as a state. Raises the errors of `parse_run_state`."""
    if is_javascript(document):
        raise make_javascript_error(document)
    version = _read_version(document, ())
    for prefix, inner in _iter_bounded_states(document):
        if prefix and _read_version(inner, prefix) != version:
            problem = (
                f"is {inner[SCHEMA_VERSION_KEY]} inside a state of {version.label}; "
                f"releases write the same label in both; {DOWNGRADE_WARNING}"
            )
            raise InvalidRunState(format_path((*prefix, SCHEMA_VERSION_KEY)), problem)
        check_shape(inner, prefix)
        _check_no_newer_members(inner, version, prefix)
        _check_owner(inner, prefix)
        _check_step(inner, prefix)
    state = wrap_document(document)
    for prefix, inner in iter_states(document):
        _check_pending(inner, version, prefix)
        if state.is_bound:
            _check_ledger(inner, prefix)
    _check_decision_records(state)
    return state


def is_javascript(document: Json) -> bool:
    """Return whether a document has the members of the JavaScript SDK."""
    return isinstance(document, dict) and bool(
        JAVASCRIPT_MEMBERS & document.keys() and not PYTHON_MEMBERS & document.keys()
    )


def make_javascript_error(document: Json) -> JavaScriptRunState:
    """Build the error for a state of the JavaScript SDK where only one of Python can be used."""
    label = document.get(SCHEMA_VERSION_KEY)
    label_note = f" (label {label[:20]})" if isinstance(label, str) else ""
    problem = f"is a RunState of the JavaScript SDK, @openai/agents{label_note}; convo shows it and decides its calls"
    return JavaScriptRunState("$", problem)


def _read_version(document: Json, prefix: PathSteps) -> Version:
    if SCHEMA_VERSION_KEY not in document:
        raise InvalidRunState(
            format_path((*prefix, SCHEMA_VERSION_KEY)), "is missing; it must be the schema version of the RunState"
        )
    label = document[SCHEMA_VERSION_KEY]
    if not isinstance(label, str):
        raise InvalidRunState(
            format_path((*prefix, SCHEMA_VERSION_KEY)), f"must be a string, not {describe_json_type(label)}"
        )
    if label not in VERSION_BY_LABEL:
        shown = repr(label if len(label) <= 20 else label[:19] + "…")
        raise UnknownSchema(format_path((*prefix, SCHEMA_VERSION_KEY)), shown, LABELS)
    return VERSION_BY_LABEL[label]


def _iter_bounded_states(document: Json) -> Iterator[tuple[PathSteps, Json]]:
    for prefix, inner in iter_states(document):
        if prefix.count("agent_run_state") > MAX_NESTED_STATES:
            raise InvalidRunState(
                format_path(prefix), f"is a state inside {MAX_NESTED_STATES} others; that is the limit"
            )
        yield prefix, inner


def _check_no_newer_members(document: Json, version: Version, prefix: PathSteps) -> None:
    """Raise InvalidRunState for content that is newer than the document's label."""
    if document["max_turns"] is None and version.number < UNLIMITED_TURNS_SINCE.number:
        raise InvalidRunState(
            format_path((*prefix, "max_turns")),
            f"is null, which needs label 1.10 or later; the label is {version.label}",
        )
    for newer in list_versions_after(version):
        for match in newer.iter_own_members(document):
            problem = f"needs label {newer.label} or later, but the label is {version.label}; {DOWNGRADE_WARNING}"
            raise InvalidRunState(format_path((*prefix, *match.steps)), problem)


def _check_owner(document: Json, prefix: PathSteps) -> None:
    """Raise InvalidRunState if the history has two owners."""
    is_chained = document.get("previous_response_id") is not None or document.get("auto_previous_response_id") is True
    if document.get("conversation_id") is not None and is_chained:
        problem = "is set together with conversation_id; a history has one owner"
        raise InvalidRunState(format_path((*prefix, "previous_response_id")), problem)


def _check_step(document: Json, prefix: PathSteps) -> None:
    """Raise InvalidRunState if a reader could not find the pending calls and would continue without them."""
    step = document.get("current_step")
    if step is None and "current_step" not in document and document.get("generated_items"):
        problem = "is missing; readers would continue and lose the pending calls (null means none)"
        raise InvalidRunState(format_path((*prefix, "current_step")), problem)
    if step is not None and "type" not in step:
        raise InvalidRunState(
            format_path((*prefix, "current_step", "type")), "is missing; readers would lose the pending calls"
        )
    if step is None or step["type"] != INTERRUPTION_STEP or not any(iter_interruptions(document)):
        return
    for key in REQUIRED_WHEN_PAUSED:
        if not document.get(key):
            raise InvalidRunState(
                format_path((*prefix, key)), "is missing or empty, and a paused run cannot be resumed without it"
            )


# -- a pending call is the call that would run ------------------------------------------------------


def _check_pending(document: Json, version: Version, prefix: PathSteps) -> None:
    """Raise InvalidRunState for a pending call that has no unique id, is another agent's or differs from its action."""
    nested_ids = {call.id for _, child in iter_nested_states(document) for _, call in _iter_pending_calls(child)}
    planned_calls = {call.id: (steps, call) for steps, call in iter_actions(document)}
    # Release 0.24.0 leaves out the state of an agent tool if the decisions in it are of a release before 0.23.1.
    records = [record for record in (document["context"].get("approvals") or {}).values() if isinstance(record, dict)]
    decided_ids = {
        id_ for record in records for side in ("approved", "rejected") for id_ in list_decided_call_ids(record, side)
    }
    seen: set[str] = set()
    for steps, call in _iter_pending_calls(document, prefix):
        if call.id is None:
            raise InvalidRunState(
                format_path((*prefix, *steps, "raw_item")), "has no call id, so it cannot be approved or rejected"
            )
        if call.id in seen:
            raise InvalidRunState(
                format_path((*prefix, *steps, "raw_item")),
                f"is the second pending call with id {call.id!r}; a decision would be ambiguous",
            )
        seen.add(call.id)
        can_lack_nested = version.number < NESTED_STATE_SINCE.number or call.id in decided_ids
        if call.id in nested_ids or (can_lack_nested and call.id not in planned_calls):
            continue
        if call.agent != document["current_agent"]:
            problem = "is not the current agent, and not the agent of a nested state"
            raise InvalidRunState(format_path((*prefix, *steps, "agent")), problem)
        _check_planned_call(call, planned_calls.get(call.id), (*prefix, *steps, "raw_item"), prefix)


def _iter_pending_calls(document: Json, prefix: PathSteps = ()) -> Iterator[tuple[PathSteps, StateCall]]:
    for steps, item in iter_interruptions(document):
        call = parse_state_call(item["raw_item"], item)
        if call is None:
            raise InvalidRunState(
                format_path((*prefix, *steps, "raw_item")), "is not a call that can be approved or rejected"
            )
        yield steps, call


def _check_planned_call(
    pending_call: StateCall,
    planned_call: tuple[PathSteps, StateCall] | None,
    pending_path: PathSteps,
    prefix: PathSteps,
) -> None:
    """Raise InvalidRunState if the action of a pending call is missing or has another tool or arguments."""
    if planned_call is None:
        raise InvalidRunState(format_path(pending_path), "is pending, but is not a call in last_processed_response")
    steps, call = planned_call
    for field, shown_value, planned_value in (
        ("tool", pending_call.name, call.name),
        ("arguments", pending_call.arguments, call.arguments),
    ):
        if shown_value != planned_value and not (field == "tool" and None in (shown_value, planned_value)):
            problem = (
                f"differs from {format_path(pending_path)} in its {field}; the approved call must be the call that runs"
            )
            raise InvalidRunState(format_path((*prefix, *steps)), problem)


# -- from 1.15 on, decisions are bound to their calls --------------------------------------------------


def _check_ledger(document: Json, prefix: PathSteps) -> None:
    """Raise InvalidRunState if a ledger entry does not fit the call with its id."""
    ledger = get_path(document, LEDGER_PATH) or {}
    seen: set[tuple[str, str, str, str]] = set()
    for raw, run_item, roles in _iter_recorded_calls(document) if ledger else ():
        signature = _call_signature(raw)
        if signature is None or signature in seen or signature[0] not in ledger:
            continue
        seen.add(signature)
        call = parse_state_call(raw, run_item)
        if call is None or ledger[signature[0]]["type"] != call.type or not _has_tool_name(call):
            continue
        if not _is_bound_to(ledger[signature[0]], call, roles, (*prefix, *LEDGER_PATH, signature[0])):
            problem = "is the entry of another call; the tool or the arguments of the call in this state were changed"
            raise InvalidRunState(format_path((*prefix, *LEDGER_PATH, signature[0])), problem)


def _iter_recorded_calls(document: Json) -> Iterator[tuple[Json, Json, tuple[str | None, ...]]]:
    """Iterate over items that may be calls, with their run items and possible roles."""
    for _, item in iter_interruptions(document):
        yield item["raw_item"], item, (None,)
    for steps in RUN_ITEM_LIST_PATHS:
        for item in get_path(document, steps) or ():
            yield item["raw_item"], item, (HANDOFF_ROLE,) if item.get("type") == "handoff_call_item" else (None,)
    for response in document.get("model_responses") or ():
        for raw in response.get("output") or ():
            yield raw, None, (None, HANDOFF_ROLE)


def _call_signature(raw: Json) -> tuple[str, str, str, str] | None:
    """Return the id, type, name and arguments of a call; None for an item that is not a call."""
    call_type = raw.get("type")
    field = ARGUMENT_FIELDS.get(call_type) if isinstance(call_type, str) else None
    if field is None:
        return None
    call_id = raw.get("id") if call_type == MCP_APPROVAL_REQUEST else raw.get("call_id")
    return (call_id, str(call_type), str(raw.get("name")), str(raw.get(field))) if isinstance(call_id, str) else None


def _has_tool_name(call: StateCall) -> bool:
    """Return whether a call names its tool as the ledger does; built-in tools do so only in approval items."""
    return call.lookup is not None if call.is_function else call.name is not None


def _is_bound_to(entry: Json, call: StateCall, roles: tuple[str | None, ...], path: PathSteps) -> bool:
    """Return whether a ledger entry fits a call; a deferred tool can be called under its bare name."""
    digests = (entry["approval_scope"], entry["fingerprint"])
    deferred = [("deferred_top_level", call.tool_name)] if call.is_function else []
    try:
        for lookup in (call.lookup, *deferred):
            candidate = call if lookup == call.lookup else replace(call, lookup=lookup)
            bindings = [candidate.binding(role) for role in roles]
            if any(binding is None or (binding.scope, binding.fingerprint) == digests for binding in bindings):
                return True
    except ValueError as error:
        raise InvalidRunState(format_path(path), f"is the entry of a call that cannot have one: {error}") from error
    return False


def _check_decision_records(state: RunState) -> None:
    """Raise InvalidRunState for a call that is both approved and rejected, or a decision without its digest."""
    for state_path, located in state.records:
        contradictory = set(list_decided_call_ids(located.record, "approved")) & set(
            list_decided_call_ids(located.record, "rejected")
        )
        if contradictory:
            raise InvalidRunState(
                format_path((*state_path, *located.steps)), f"approves and rejects {min(contradictory)!r} at once"
            )
        if not state.is_bound:
            continue
        ledger = get_path(state.document, (*state_path, *LEDGER_PATH)) or {}
        for side in ("approved", "rejected"):
            for call_id in list_decided_call_ids(located.record, side):
                if call_id not in ledger:
                    problem = f"decides on {call_id!r} without its entry in tool_invocations, which 1.15 and later need"
                    raise InvalidRunState(format_path((*state_path, *located.steps, side)), problem)
        if get_sticky_decision(located.record) is not None and not isinstance(located.record.get("sticky_scope"), str):
            problem = f"has a permanent decision without the tool's digest, which {LEDGER_SINCE.label} and later need"
            raise InvalidRunState(format_path((*state_path, *located.steps)), problem)


MAX_COUNT = 2**53
DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")

WRITE_KEYS = {"session_id", "items", "before", "persisted_count"}
OPTIONAL_WRITE_KEYS = {
    *("response_id", "store", "has_local_tool_outputs", "append_acknowledged", "compaction_model_exchange"),
    *("held", "reasoning_item_id_policy", "current_response"),
}
STEP_TYPES = (INTERRUPTION_STEP, "next_step_run_again")


class ShapeRule(NamedTuple):
    """A rule for the values at a path; `expectation` completes the message "... must be"."""

    path_pattern: str
    expectation: str
    is_valid: Callable[[Json], bool]
    is_required: bool = False


def _is_type(*kinds: type) -> Callable[[Json], bool]:
    return lambda value: type(value) in kinds


def _is_count(value: Json) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT


def _or_null(is_valid: Callable[[Json], bool]) -> Callable[[Json], bool]:
    return lambda value: value is None or is_valid(value)


def _is_agent(value: Json) -> bool:
    has_name = isinstance(value, dict) and isinstance(value.get("name"), str)
    return has_name and isinstance(value.get("identity", ""), str)


def _is_object_list(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)


def _is_input(value: Json) -> bool:
    return isinstance(value, str) or _is_object_list(value)


def _is_decision(value: Json) -> bool:
    return type(value) is bool or (isinstance(value, list) and all(isinstance(call, str) for call in value))


def _is_decision_record(value: Json) -> bool:
    has_valid_sides = (
        isinstance(value, dict) and _is_decision(value.get("approved", [])) and _is_decision(value.get("rejected", []))
    )
    return has_valid_sides and isinstance(value.get("rejection_messages") or {}, dict)


def _is_action_list(value: Json) -> bool:
    return isinstance(value, list) and all(
        isinstance(action, dict) and isinstance(action.get("tool_call"), dict) for action in value
    )


def _is_hosted_record(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("identity"), dict)
        and _is_decision_record(value.get("decision"))
    )


def _is_function_record(value: Json) -> bool:
    has_tool_key = isinstance(value, dict) and isinstance(value.get("tool_key"), str)
    return has_tool_key and _is_agent(value.get("agent")) and _is_decision_record(value.get("decision"))


def _is_ledger_entry(value: Json) -> bool:
    """Return whether a value is a ledger entry: a type of call, two digests, and consistent flags."""
    if not isinstance(value, dict) or str(value.get("type")) not in ARGUMENT_FIELDS:
        return False
    digests = (value.get("approval_scope"), value.get("fingerprint"))
    flags = (value.get("executed"), value.get("completed"))
    are_digests = all(isinstance(digest, str) and DIGEST_PATTERN.fullmatch(digest) for digest in digests)
    return are_digests and all(type(flag) is bool for flag in flags) and flags != (False, True)


def _is_session_write(value: Json) -> bool:
    if not isinstance(value, dict) or not WRITE_KEYS <= set(value) <= WRITE_KEYS | OPTIONAL_WRITE_KEYS:
        return False
    return isinstance(value["session_id"], str) and _is_count(value["persisted_count"]) and bool(value["items"])


SHAPE_RULES = (
    ShapeRule("$schemaVersion", "a string", _is_type(str), is_required=True),
    ShapeRule("current_agent", "an object with the agent's name", _is_agent, is_required=True),
    ShapeRule("original_input", "a string or a list of items", _is_input, is_required=True),
    ShapeRule("context", "an object", _is_type(dict), is_required=True),
    ShapeRule("max_turns", "a number of turns, or null for no limit", _or_null(_is_count), is_required=True),
    ShapeRule("current_turn", "a number of turns", _is_count, is_required=True),
    ShapeRule("conversation_id", "an id or null", _or_null(is_valid_id)),
    ShapeRule("previous_response_id", "an id or null", _or_null(is_valid_id)),
    ShapeRule("auto_previous_response_id", "true or false", _is_type(bool)),
    ShapeRule("pending_input", "a list of items", _is_object_list),
    ShapeRule("current_turn_persisted_item_count", "a number of items", _is_count),
    ShapeRule("tool_use_tracker", "an object", _is_type(dict)),
    ShapeRule("model_responses", "a list of responses", _is_object_list),
    ShapeRule("model_responses[].output", "a list of items", _is_object_list),
    ShapeRule("model_responses[].output[]", "an item with a type", is_item),
    ShapeRule("last_processed_response", "an object or null", _is_type(dict, type(None))),
    *(
        ShapeRule(f"last_processed_response.{key}", "a list of actions, each with its call", _is_action_list)
        for key in ACTION_LISTS
    ),
    ShapeRule("last_processed_response.mcp_tool_bindings", "an object", _is_type(dict)),
    ShapeRule("last_processed_response.functions[].agent_run_state", "a state", _is_type(dict)),
    ShapeRule("current_step", "an object or null", _is_type(dict, type(None))),
    ShapeRule("current_step.type", f"one of {', '.join(STEP_TYPES)}", lambda value: value in STEP_TYPES),
    ShapeRule("current_step.data", "an object", _is_type(dict)),
    ShapeRule("current_step.data.interruptions", "a list", _is_type(list)),
    ShapeRule("current_step.data.interruptions[].agent", "an object with the agent's name", _is_agent),
    ShapeRule("context.context_meta", "an object or null", _is_type(dict, type(None))),
    ShapeRule("context.approvals", "an object", _is_type(dict)),
    ShapeRule("context.approvals.*", "a record of decisions", _is_decision_record),
    ShapeRule("context.tool_invocations", "an object", _is_type(dict)),
    ShapeRule("context.tool_invocations.*", "a call type, two digests, and consistent flags", _is_ledger_entry),
    ShapeRule("context.hosted_mcp_approvals", "a list", _is_type(list)),
    ShapeRule("context.hosted_mcp_approvals[]", "a record of decisions on a hosted tool", _is_hosted_record),
    ShapeRule("context.function_tool_approvals", "a list", _is_type(list)),
    ShapeRule(
        "context.function_tool_approvals[]", "a record of decisions with its agent and tool", _is_function_record
    ),
    ShapeRule("context.usage", "an object", _is_type(dict)),
    ShapeRule("context.usage.request_usage_entries", "a list or null", _is_type(list, type(None))),
    ShapeRule("model_responses[].usage", "an object", _is_type(dict)),
    ShapeRule("pending_session_write", "a session write with items and no unknown keys", _or_null(_is_session_write)),
    ShapeRule("terminal_unrecoverable", "true or missing", lambda value: value is True),
    *(
        ShapeRule(f"{usage}.{key}", "a number of tokens or requests", _is_count)
        for usage in ("context.usage", "model_responses[].usage")
        for key in ("requests", "input_tokens", "output_tokens", "total_tokens")
    ),
)
COMPILED_SHAPE_RULES = tuple((rule, parse_path_pattern(rule.path_pattern)) for rule in SHAPE_RULES)

RUN_ITEM_LIST_PATTERNS = tuple(parse_path_pattern(pattern.removesuffix("[]")) for pattern in RUN_ITEM_PATTERNS)
CALL_PATTERNS = tuple(
    map(
        parse_path_pattern,
        ("model_responses[].output[]", *(f"last_processed_response.{key}[].tool_call" for key in ACTION_LISTS)),
    )
)
CALL_STRING_FIELDS = ("name", "namespace", "arguments")


def check_shape(document: Json, prefix: PathSteps = ()) -> None:
    """Check the types of one state's members, without nested states. Raises InvalidRunState."""
    for rule, steps in COMPILED_SHAPE_RULES:
        for match in iter_path_matches(document, steps):
            if not rule.is_valid(match.value):
                raise InvalidRunState(
                    format_path((*prefix, *match.steps)),
                    f"must be {rule.expectation}, not {_describe_value(match.value)}",
                )
        if rule.is_required and rule.path_pattern not in document:
            raise InvalidRunState(format_path((*prefix, rule.path_pattern)), "is missing; every release needs it")
    for match in chain(_iter_invalid_run_items(document), _iter_invalid_calls(document)):
        raise InvalidRunState(format_path((*prefix, *match.steps)), f"must be {match.value}")
    _check_guardrail_result_start(document, prefix)


def _describe_value(value: Json) -> str:
    """Return a short value itself, or the type of any other value."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if type(value) in (str, int, float) and len(text) < 24 else describe_json_type(value)


def _iter_invalid_run_items(document: Json) -> Iterator[PathMatch]:
    """Iterate over the places of invalid run items, each with the form expected there."""
    for steps in RUN_ITEM_LIST_PATTERNS:
        for path, run_items in iter_path_matches(document, steps):
            if not isinstance(run_items, list):
                yield PathMatch(path, f"a list of run items, not {describe_json_type(run_items)}")
                return
            for index, item in enumerate(run_items):
                fault = _find_run_item_fault(item, (*path, index))
                if fault is not None:
                    yield fault


def _find_run_item_fault(item: Json, path: PathSteps) -> PathMatch | None:
    if not isinstance(item, dict) or not isinstance(item.get("raw_item"), dict):
        return PathMatch(path, "a run item with its raw_item")
    if not isinstance(item.get("type"), str) or not item["type"]:
        return PathMatch((*path, "type"), "the type of the run item")
    for key in AGENT_MEMBERS:
        if not (item.get(key) is None or isinstance(item[key], str) or _is_agent(item[key])):
            return PathMatch((*path, key), "an object with the agent's name")
    return _find_non_string_field(item["raw_item"], (*path, "raw_item"))


def _iter_invalid_calls(document: Json) -> Iterator[PathMatch]:
    """Iterate over the places in function calls where a name, namespace or arguments are not a string."""
    for steps in CALL_PATTERNS:
        for path, raw in iter_path_matches(document, steps):
            fault = _find_non_string_field(raw, path)
            if fault is not None:
                yield fault


def _find_non_string_field(raw: Json, path: PathSteps) -> PathMatch | None:
    if raw.get("type") == "function_call":
        for field in CALL_STRING_FIELDS:
            if not isinstance(raw.get(field), str | None):
                return PathMatch((*path, field), f"a string, not {describe_json_type(raw[field])}")
    return None


def _check_guardrail_result_start(document: Json, prefix: PathSteps) -> None:
    """Raise InvalidRunState if the guardrail results of the last response start after the end of the list."""
    steps = ("last_processed_response", "tool_output_guardrail_result_start")
    results = document.get("tool_output_guardrail_results") or []
    for match in iter_path_matches(document, steps):
        if match.value is not None and not (_is_count(match.value) and match.value <= len(results)):
            raise InvalidRunState(format_path((*prefix, *steps)), f"is more than the {len(results)} results")


class StateCallReport(NamedTuple):
    """A call that needs a decision.

    arguments:  as written by the model
    agent:      the agent that made the call
    """

    call_id: str
    tool_name: str
    arguments: str | Mapping[str, Json] | Sequence[Json]
    agent: str | None


class StateDecisionReport(NamedTuple):
    """A decision in the state.

    call_id:   null if the decision applies to every call of the tool
    is_bound:  whether the decision is bound to the arguments of the call
    """

    call_id: str | None
    tool_name: str
    agent: str | None
    decision: Literal["approve", "reject"]
    always: bool
    message: str | None
    is_bound: Annotated[bool, Wire("authenticated")]


class StateReport(NamedTuple):
    """A paused run in a file.

    decisions:        decisions on pending calls
    past_decisions:   decisions on calls that have run
    model_responses:  number of model responses
    usage:            totals of the run, in tokens
    """

    schema_version: str
    current_agent: str | None
    pending: Sequence[StateCallReport]
    decisions: Sequence[StateDecisionReport]
    past_decisions: Sequence[StateDecisionReport]
    conversation_id: str | None
    previous_response_id: str | None
    auto_previous_response_id: bool
    model_responses: Count
    usage: Mapping[str, Json]
    current_turn: Count
    max_turns: int | None


def build_state_report(state: RunState) -> StateReport:
    """Build the report of a state."""
    document = state.document
    pending_ids = {call.id for call in state.pending}
    return StateReport(
        state.label,
        state.agent,
        report_state_calls(state.pending),
        [
            _report_decision(decision)
            for decision in state.decisions
            if decision.call_id is None or decision.call_id in pending_ids
        ],
        [
            _report_decision(decision)
            for decision in state.decisions
            if decision.call_id and decision.call_id not in pending_ids
        ],
        document.get("conversation_id"),
        document.get("previous_response_id"),
        document.get("auto_previous_response_id", False),
        len(document.get("model_responses") or []),
        state.usage,
        document["current_turn"],
        document["max_turns"],
    )


def report_state_calls(calls: Iterable[PendingCall]) -> list[StateCallReport]:
    return [StateCallReport(each.id, each.call.tool_name, each.call.arguments, each.agent) for each in calls]


def _report_decision(decision: StateDecision) -> StateDecisionReport:
    return StateDecisionReport(
        decision.call_id,
        decision.tool,
        decision.agent,
        "approve" if decision.approve else "reject",
        decision.always,
        decision.message,
        decision.is_bound,
    )
