"""The format of a RunState document: nested states, decision records, and the versions (labels).

A decision record holds the approved and rejected calls of one tool by id, or `true` for a sticky decision; labels
differ in where it is stored. A `Version` describes one label: its keys, and how a document moves to and from the
label before it. The versions themselves are in `runstate.versions`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from convo.history.items import Json
from convo.report import Wire
from convo.runstate.document import (
    PathMatch,
    PathSteps,
    format_path,
    get_path,
    iter_path_matches,
    parse_path_pattern,
    replace_path,
)
from convo.runstate.identity import StateCall, parse_state_call

INTERRUPTION_STEP = "next_step_interruption"

APPROVAL_ITEM = "tool_approval_item"
INPUT_RUN_ITEM = "input_item"

LEDGER_PATH = ("context", "tool_invocations")

AGENT_MEMBERS = ("agent", "source_agent", "target_agent")
"""Members of a run item that name an agent."""

NESTED_STATE_PATTERN = parse_path_pattern("last_processed_response.functions[].agent_run_state")
INTERRUPTION_PATTERN = parse_path_pattern("current_step.data.interruptions[]")
MCP_REQUEST_PATTERN = parse_path_pattern("last_processed_response.mcp_approval_requests[].request_item")

ACTION_LISTS = {
    "functions": "tool",
    "computer_actions": "computer",
    "custom_tool_actions": "custom_tool",
    "local_shell_actions": "local_shell",
    "shell_actions": "shell",
    "apply_patch_actions": "apply_patch",
    "handoffs": "handoff",
}
"""List of calls to perform -> the key of the tool in each entry."""


def iter_nested_states(document: Json) -> Iterator[PathMatch]:
    """Iterate over the states of agents used as tools, one level down."""
    return (match for match in iter_path_matches(document, NESTED_STATE_PATTERN) if isinstance(match.value, dict))


def iter_states(document: Json, prefix: PathSteps = ()) -> Iterator[PathMatch]:
    """Iterate over `document` and all nested states, outer states first."""
    yield PathMatch(prefix, document)
    for steps, child in iter_nested_states(document):
        yield from iter_states(child, (*prefix, *steps))


def iter_interruptions(document: Json) -> Iterator[PathMatch]:
    """Iterate over the approval items of pending calls; none unless the current step is an interruption."""
    if get_path(document, ("current_step", "type")) != INTERRUPTION_STEP:
        return iter(())
    return iter_path_matches(document, INTERRUPTION_PATTERN)


def iter_actions(document: Json) -> Iterator[tuple[PathSteps, StateCall]]:
    """Iterate over the calls that the run would perform, with their paths."""
    for key, tool_key in ACTION_LISTS.items():
        for steps, action in iter_path_matches(document, ("last_processed_response", key, "[]")):
            call = parse_state_call(action.get("tool_call"), _action_tool_fields(action, tool_key))
            if call is not None:
                yield (*steps, "tool_call"), call
    for steps, request in iter_path_matches(document, MCP_REQUEST_PATTERN):
        call = parse_state_call(request.get("raw_item")) if isinstance(request, dict) else None
        if call is not None:
            yield (*steps, "raw_item"), call


def iter_unresolved_calls(document: Json) -> Iterator[StateCall]:
    """Iterate over the calls of agents used as tools that are open because their run is paused."""
    for steps, _ in iter_nested_states(document):
        action = get_path(document, steps[:-1])
        call = parse_state_call(action.get("tool_call"), _action_tool_fields(action, "tool"))
        if call is not None:
            yield call


def _action_tool_fields(action: Json, tool_key: str) -> dict[str, Json]:
    """Return the tool of an action under the keys of an approval item."""
    tool = action.get(tool_key)
    if not isinstance(tool, dict):
        return {}
    name, namespace = tool.get("name") or tool.get("tool_name"), tool.get("namespace")
    return {"tool_name": name, "tool_namespace": namespace, "tool_lookup_key": tool.get("lookupKey")}


DecisionRecord: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class LocatedRecord:
    """A decision record with its place.

    steps:         its path in the document
    key:           the tool's key in decisions
    agent:         the agent of the tool, if the label stores it
    is_hosted:     the tool is the provider's
    is_duplicate:  the record repeats another one for readers that look up by name
    """

    steps: PathSteps
    key: str
    record: DecisionRecord
    agent: Json = None
    is_hosted: bool = False
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalVerdict:
    """A person's decision on a call.

    message:  output for the model of a rejection
    always:   the decision applies to every call of the tool
    """

    approve: bool
    message: str | None = None
    always: bool = False


def list_decided_call_ids(record: DecisionRecord, side: str) -> list[str]:
    """Return the ids of the calls that `record` decides; `side` is "approved" or "rejected"."""
    decided = record.get(side)
    return [call for call in decided if isinstance(call, str)] if isinstance(decided, list) else []


def get_sticky_decision(record: DecisionRecord) -> bool | None:
    """Return True or False if every call of the tool is approved or rejected; None if calls are decided one by one."""
    if record.get("approved") is True:
        return True
    return False if record.get("rejected") is True else None


def get_rejection_message(record: DecisionRecord, call: str | None) -> str | None:
    """Return the message for the model if this call is rejected; None for the default message."""
    by_call = record.get("rejection_messages")
    message = by_call.get(call) if isinstance(by_call, dict) and call is not None else None
    if message is None and get_sticky_decision(record) is False:
        message = record.get("sticky_rejection_message")
    return message if isinstance(message, str) else None


def add_verdict(
    record: DecisionRecord, calls: Collection[str], verdict: ApprovalVerdict, scope: str | None
) -> DecisionRecord:
    """Return `record` with a decision on each of `calls`, which replaces earlier decisions on these calls.

    A sticky decision leaves the decisions on single other calls, which override it.
    """
    call_ids = dict.fromkeys(calls)
    if verdict.always:
        return _add_sticky_verdict(record, call_ids, verdict, scope)
    side, other = ("approved", "rejected") if verdict.approve else ("rejected", "approved")
    changed = {**record, "approved": record.get("approved", []), "rejected": record.get("rejected", [])}
    if isinstance(changed[other], list):
        changed[other] = [call_id for call_id in changed[other] if call_id not in call_ids]
    if changed[side] is not True:
        earlier = changed[side] if isinstance(changed[side], list) else []
        changed[side] = [*[call_id for call_id in earlier if call_id not in call_ids], *call_ids]
    return _set_rejection_messages(changed, call_ids, None if verdict.approve else verdict.message)


def merge_decision_records(first: DecisionRecord, second: DecisionRecord) -> DecisionRecord:
    """Merge two records of one tool; if they differ, a rejection wins."""
    merged = {**first, **second}
    for side in ("approved", "rejected"):
        sides = (first.get(side), second.get(side))
        merged[side] = (
            True
            if True in sides
            else list(dict.fromkeys([*list_decided_call_ids(first, side), *list_decided_call_ids(second, side)]))
        )
    if merged["rejected"] is True and merged["approved"] is True:
        merged["approved"] = list(
            dict.fromkeys([*list_decided_call_ids(first, "approved"), *list_decided_call_ids(second, "approved")])
        )
    messages = {**(first.get("rejection_messages") or {}), **(second.get("rejection_messages") or {})}
    return {**merged, "rejection_messages": messages} if messages else merged


def merge_record_at(document: Json, steps: PathSteps, record: DecisionRecord) -> Json:
    """Return `document` with `record` at a place, merged with the record that is there."""
    existing = get_path(document, steps)
    return replace_path(document, steps, merge_decision_records(existing, record) if existing else record)


def _add_sticky_verdict(
    record: DecisionRecord, calls: Collection[str], verdict: ApprovalVerdict, scope: str | None
) -> DecisionRecord:
    other_side = "rejected" if verdict.approve else "approved"
    others = [call_id for call_id in list_decided_call_ids(record, other_side) if call_id not in calls]
    changed: dict[str, Json] = {
        **record,
        "approved": True if verdict.approve else others or False,
        "rejected": others if verdict.approve else True,
        **({"sticky_scope": scope} if scope else {}),
    }
    changed.pop("sticky_rejection_message", None)
    if verdict.approve:
        messages = {
            call_id: message
            for call_id, message in (record.get("rejection_messages") or {}).items()
            if call_id in others
        }
        changed.pop("rejection_messages", None)
        return {**changed, "rejection_messages": messages} if messages else changed
    if verdict.message is not None:
        changed["sticky_rejection_message"] = verdict.message
    return _set_rejection_messages(changed, calls, verdict.message)


def _set_rejection_messages(record: dict[str, Json], calls: Collection[str], message: str | None) -> DecisionRecord:
    messages = {
        call_id: earlier
        for call_id, earlier in (record.get("rejection_messages") or {}).items()
        if call_id not in calls
    }
    if message is not None:
        messages |= dict.fromkeys(calls, message)
    rest = {key: value for key, value in record.items() if key != "rejection_messages"}
    return {**rest, "rejection_messages": messages} if messages else rest


RUN_ITEM_PATTERNS = (
    "generated_items[]",
    "session_items[]",
    "last_processed_response.new_items[]",
    "last_processed_response.interruptions[]",
    "current_step.data.interruptions[]",
)
"""Places of run items."""


@dataclass(frozen=True, slots=True)
class RelabelLoss:
    """Content that another label cannot express.

    path:  path of the data in the state
    """

    path: str
    description: Annotated[str, Wire("what")]
    reason: Annotated[str, Wire("why")]


RelabelResult = tuple[Json, tuple[RelabelLoss, ...]]
"""A document and the losses of its conversion."""

RelabelStep = Callable[[Json], RelabelResult]


@dataclass(frozen=True, slots=True)
class RecordSlot:
    """The path of a record for a decision.

    can_be_sticky:  a sticky decision is sticky in this record too
    """

    steps: PathSteps
    can_be_sticky: bool = True


RecordSlots = tuple[Json, tuple[RecordSlot, ...]]
"""A document with empty records for a decision, and their places."""


def return_unchanged(document: Json) -> RelabelResult:
    """Default of `Version.to_older` and `Version.from_older`: nothing has to move."""
    return document, ()


def find_no_values(document: Json) -> Iterator[PathMatch]:
    """Default of `Version.find_values`."""
    return iter(())


def find_no_records(document: Json) -> Iterator[LocatedRecord]:
    """Default of `Version.find_records`."""
    return iter(())


def find_no_slots(document: Json, call: StateCall, always: bool) -> RecordSlots | None:
    """Default of `Version.find_slots`: decisions are stored where the label before stores them."""
    return None


@dataclass(frozen=True, slots=True)
class Version:
    """One label.

    label:         "1.15"
    release:       the first release of openai-agents that wrote it
    summary:       its changes, in one line
    keys:          patterns of the keys that no older label has
    find_values:   finds values that no older label has, under keys that are older
    to_older:      moves content that the label before stores in another place; the rest is removed by `keys`
    from_older:    adds data that readers of this label need, from its place in the label before
    find_records:  finds the decision records in places that this label added
    find_slots:    returns the places of a decision on a call, if they differ from the label before
    """

    label: str
    release: str
    summary: str
    keys: tuple[str, ...] = ()
    find_values: Callable[[Json], Iterator[PathMatch]] = find_no_values
    to_older: RelabelStep = return_unchanged
    from_older: RelabelStep = return_unchanged
    find_records: Callable[[Json], Iterator[LocatedRecord]] = find_no_records
    find_slots: Callable[[Json, StateCall, bool], RecordSlots | None] = find_no_slots

    @property
    def number(self) -> tuple[int, int]:
        """The label as numbers, such as (1, 15), for comparison."""
        major, minor = self.label.split(".")
        return int(major), int(minor)

    def iter_own_members(self, document: Json) -> Iterator[PathMatch]:
        """Iterate over the places of `document`, without nested states, that no older label has."""
        for pattern in self.keys:
            yield from iter_path_matches(document, parse_path_pattern(pattern))
        yield from self.find_values(document)


def expand_item_keys(*keys: str) -> tuple[str, ...]:
    """Return the patterns of keys of a run item, in all places of run items."""
    return tuple(f"{pattern}.{key}" for pattern in RUN_ITEM_PATTERNS for key in keys)


def make_loss(match: PathMatch, reason: str) -> RelabelLoss:
    """Build the loss of a matched value."""
    return RelabelLoss(format_path(match.steps), _format_lost_value(match.value), reason)


def has_content(value: Json) -> bool:
    """Return whether a value differs from the default that readers assume for a missing one."""
    return value not in (None, False, "", [], {})


def _format_lost_value(value: Json) -> str:
    if isinstance(value, list | dict):
        return f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
