"""Read and decide a RunState of the JavaScript SDK (`@openai/agents`), which that SDK then finishes.

The document is translated to the form of the Python SDK, and so validated and shown as one of those. Decisions are
written into the document itself, of which everything else stays. Labels have another meaning than in Python: only those
whose states were decided here and finished by a release are supported.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from convo.errors import InvalidRunState, InvalidUsage, JavaScriptRunState
from convo.history.canonical import refuse_json_constant
from convo.history.items import MCP_APPROVAL_REQUEST, Json
from convo.runstate.document import PathSteps, format_path, get_path, iter_path_matches, parse_document
from convo.runstate.format import (
    ApprovalVerdict,
    LocatedRecord,
    add_verdict,
    get_sticky_decision,
    iter_actions,
    list_decided_call_ids,
)
from convo.runstate.identity import StateCall, make_lookup_key
from convo.runstate.reader import is_javascript, run_state_from_json
from convo.runstate.run_state import PendingCall, RunState
from convo.runstate.writer import write_compact_json

RELEASES = {"1.0": "0.3.4", "1.12": "0.11.7", "1.22": "0.20.0"}
"""Supported label -> the release that was tested with it."""

OLDEST, BOUND = "1.0", "1.22"
"""Labels without messages, hosted decisions and nested runs; and with decisions bound to agent, tool and arguments."""

RECORD_FIELDS = {"messages": "rejection_messages", "stickyRejectMessage": "sticky_rejection_message"}
JAVASCRIPT_RECORD_FIELDS = {python: javascript for javascript, python in RECORD_FIELDS.items()}

EFFECT_FIELDS = ("name", "namespace", "arguments", "caller", "server_label")
"""Fields of a call that determine its effect."""

FORBIDDEN_NAME = "__proto__"
"""A key that JavaScript sets on an object without storing it, so a decision under it would be lost."""


@dataclass(frozen=True)
class JavaScriptState(RunState):
    """A state of the JavaScript SDK.

    document:  the translation to the form of the Python SDK
    source:    the document as it was read
    """

    source: Json

    @property
    def label(self) -> str:
        return str(self.source["$schemaVersion"])

    @property
    def description(self) -> str:
        return f"RunState {self.label} of the JavaScript SDK, read as @openai/agents {RELEASES[self.label]} does"

    @property
    def written_document(self) -> Json:
        return self.source

    @property
    def binding_note(self) -> str | None:
        return None if self.label == BOUND else "a decision names only the tool and the call id, not the arguments"

    def format_member_path(self, path: str) -> str:
        return _to_camel_case(path)

    @cached_property
    def records(self) -> tuple[tuple[PathSteps, LocatedRecord], ...]:
        """All decision records; the SDK merges those of nested runs into the outermost ones."""
        agents = {_agent_identity(call.call.agent): call.call.agent for call in self.pending}
        return tuple(
            ((), replace(located, agent=located.agent and agents.get(located.agent["name"], located.agent)))
            for source in _iter_sources(self.source)
            for located in _iter_records(source["context"], self.label)
        )

    def decide(self, calls: Iterable[PendingCall], verdict: ApprovalVerdict) -> "JavaScriptState":
        """Return the state with one verdict on each of `calls`.

        Raises InvalidUsage for a decision that the label cannot have, or that its release would ignore.
        """
        context = self.source["context"]
        context = {**context, **deepcopy({key: context[key] for key in CONTEXT_SHAPE if key in context})}
        for call in calls:
            self._check_decidable(call, verdict)
            item = get_path(self.source, _to_source_path(call.item_path))
            key = _tool_key(item, call.call, self.label)
            for records in _open_records(context, item, call, self.label, is_sticky=verdict.always):
                record = _rename_fields(records.get(key, {}), RECORD_FIELDS)
                sticky = get_sticky_decision(record)
                if self.label != BOUND and not verdict.always and sticky not in (None, verdict.approve):
                    raise InvalidUsage(
                        f"{call.call.tool_name} is {'approved' if sticky else 'rejected'} always, and for"
                        f" @openai/agents {RELEASES[self.label]} that overrides a decision on {call.id}",
                        hint="decide it with --always",
                    )
                records[key] = _rename_fields(add_verdict(record, [call.id], verdict, None), JAVASCRIPT_RECORD_FIELDS)
        return parse_javascript_state({**self.source, "context": context})

    def _check_decidable(self, call: PendingCall, verdict: ApprovalVerdict) -> None:
        release, is_oldest = f"@openai/agents {RELEASES[self.label]}", self.label == OLDEST
        if is_oldest and verdict.message is not None:
            raise InvalidUsage(f"a state of {release} cannot contain the reason of a rejection", hint="omit the reason")
        if not (call.call.is_function or call.call.is_hosted):
            problem = f"{call.id} is a {call.call.type}, which convo does not decide for JavaScript"
        elif is_oldest and call.call.is_hosted:
            problem = f"{release} loses the id of {call.id} when it reads a state"
        elif is_oldest and call.id not in {action.id for _, action in iter_actions(self.document)}:
            problem = f"{call.id} is of an agent used as a tool, whose run {release} does not store"
        else:
            return
        raise InvalidUsage(problem, hint="decide it in the process that paused the run")


def parse_state_of_either_sdk(data: bytes) -> RunState:
    """Parse and validate a state of either SDK. Raises the errors of `parse_run_state` and `parse_javascript_state`."""
    document = parse_document(data)
    return parse_javascript_state(document) if is_javascript(document) else run_state_from_json(document)


def parse_javascript_state(document: Json) -> JavaScriptState:
    """Validate a parsed document of the JavaScript SDK.

    Raises JavaScriptRunState for a label that is not supported, and InvalidRunState for any other error.
    """
    label = document.get("$schemaVersion")
    if not isinstance(label, str) or label not in RELEASES:
        releases = ", ".join(f"{known} ({release})" for known, release in RELEASES.items())
        problem = f"is {repr(label)[:20]} of the JavaScript SDK; supported labels of @openai/agents: {releases}"
        hint = "decide it with @openai/agents, the SDK that wrote it"
        raise JavaScriptRunState("$.$schemaVersion", problem, hint=hint)
    for source in _iter_sources(document):
        _check_decisions(source, label)
    try:
        translated = run_state_from_json(_translate_state(document))
    except InvalidRunState as error:
        problem = error.message.removeprefix(f"{error.path} ")
        raise InvalidRunState(_to_camel_case(error.path), problem, hint=error.hint) from error
    state = JavaScriptState(translated.document, translated.version, document)
    for call in state.pending:
        _check_pending_call(get_path(document, _to_source_path(call.item_path)), call, document)
    return state


def _check_pending_call(item: Json, pending: PendingCall, source: Json) -> None:
    """Raise InvalidRunState for an approval item that does not show the call that would run."""
    path, call = _to_source_path(pending.item_path), pending.call
    if path[0] != "currentStep":
        raise InvalidRunState(format_path(path), "is pending in a nested run, but not in the outermost one")
    if not (call.is_function or call.is_hosted):
        return
    raw, name, key = item["rawItem"], call.name, _tool_key({}, call, BOUND)
    shown, title = _translate_item(raw), f"{call.namespace}.{name}" if call.namespace else name
    keys = (key, write_compact_json(["deferred_top_level", title]))
    problems = {
        "rawItem": any(shown.get(field) != call.raw.get(field) for field in EFFECT_FIELDS),
        "rawItem.arguments": not isinstance(call.arguments, str),
        "rawItem.id": call.is_hosted and (raw.get("id", pending.id), raw.get("name")) != (pending.id, name),
        "rawItem.providerData.server_label": call.is_hosted and not isinstance(shown["server_label"], str),
        "agent.name": get_path(item, ("agent", "name")) != pending.agent,
        "toolName": item.get("toolName", name) not in (name, title),
        "functionToolStateKey": item.get("functionToolStateKey", key) not in keys,
    }
    if member := next((member for member, is_wrong in problems.items() if is_wrong), None):
        raise InvalidRunState(f"{format_path(path)}.{member}", "differs from the call that runs, or is missing")
    identity = _agent_identity(item["agent"])
    if FORBIDDEN_NAME in (pending.id, name, call.namespace, identity):
        raise InvalidRunState(format_path(path), f"is named {FORBIDDEN_NAME}, under which no decision can be stored")
    fingerprint = _fingerprint(raw, _tool_key(item, call, BOUND), path)
    for nested in _iter_sources(source):
        for entry in nested["context"].get("approvalInvocations", ()):
            if entry["agentIdentity"] == identity and entry["invocations"].get(pending.id, fingerprint) != fingerprint:
                problem = "was decided with another tool or other arguments; they were changed since"
                raise InvalidRunState(format_path(path), problem)


# -- decisions ---------------------------------------------------------------------------------------


def _iter_sources(source: Json) -> Iterator[Json]:
    """Iterate over a document and those of its nested runs, which it contains as text."""
    yield source
    for run in _parse_nested_runs(source).values():
        yield from _iter_sources(run)


def _parse_nested_runs(source: Json) -> dict[str, Json]:
    """Parse the runs of agents used as tools, by the key of their call. Raises InvalidRunState."""
    runs = source.get("pendingAgentToolRuns", {})
    if not _fits(runs, {"*": str}):
        raise InvalidRunState("$.pendingAgentToolRuns", "must be an object with a text for each run")
    parsed = {key: parse_document(run.encode("utf-8", "surrogatepass")) for key, run in runs.items()}
    if any(run.get("$schemaVersion") != source["$schemaVersion"] for run in parsed.values()):
        raise InvalidRunState("$.pendingAgentToolRuns", "contains a run with another schema version")
    return parsed


MISSING = ...
SIDE_SHAPE, TEXTS_SHAPE = (bool, [str]), {"*": str}
RECORD_SHAPE = {"approved": SIDE_SHAPE, "rejected": SIDE_SHAPE, "messages": (MISSING, TEXTS_SHAPE)}
RECORDS_SHAPE = {"*": {**RECORD_SHAPE, "stickyRejectMessage": (MISSING, str)}}
ENTRY_SHAPE = {"agentIdentity": str, "approvals": RECORDS_SHAPE}
CONTEXT_SHAPE = {
    **dict.fromkeys(("approvals", "hostedMcpApprovals", "legacyFunctionApprovals"), (MISSING, RECORDS_SHAPE)),
    "functionApprovals": (MISSING, [ENTRY_SHAPE]),
    "approvalInvocations": (MISSING, [{**ENTRY_SHAPE, "invocations": TEXTS_SHAPE}]),
}
"""The decisions in a context: types, alternatives, the elements of a list, the members of an object or of a map."""


def _fits(value: object, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return any(_fits(value, alternative) for alternative in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(element, shape[0]) for element in value)
    if not isinstance(shape, dict):
        return value is shape if shape is MISSING else isinstance(value, shape)
    if "*" in shape:
        return isinstance(value, dict) and FORBIDDEN_NAME not in value and _fits([*value.values()], [shape["*"]])
    return isinstance(value, dict) and all(_fits(value.get(key, MISSING), member) for key, member in shape.items())


def _check_decisions(source: Json, label: str) -> None:
    """Raise InvalidRunState for decisions of another form, and for a call that is approved and rejected."""
    context = source.get("context")
    if not _fits(context, CONTEXT_SHAPE):
        raise InvalidRunState("$.context", "must be an object with valid records of decisions")
    for key in ("functionApprovals", "approvalInvocations"):
        identities = [entry["agentIdentity"] for entry in context.get(key, ())]
        if len(set(identities)) < len(identities):
            raise InvalidRunState(f"$.context.{key}", "has an agent twice")
    if label != BOUND and any(context.get(key) for key in CONTEXT_SHAPE if key != "approvals"):
        raise InvalidRunState("$.context", f"has decisions of a newer form than label {label}")
    for located in _iter_records(context, label):
        rejected = list_decided_call_ids(located.record, "rejected")
        if not set(rejected).isdisjoint(list_decided_call_ids(located.record, "approved")):
            raise InvalidRunState(format_path(("context", *located.steps)), "approves and rejects a call at once")


def _iter_records(context: Json, label: str) -> Iterator[LocatedRecord]:
    maps: list[tuple[PathSteps, Json]] = [((key,), None) for key in ("hostedMcpApprovals", "legacyFunctionApprovals")]
    for index, entry in enumerate(context.get("functionApprovals", ())):
        maps.append((("functionApprovals", index, "approvals"), {"name": entry["agentIdentity"]}))
    for steps, agent in maps if label == BOUND else [(("approvals",), None)]:
        for key, record in (get_path(context, steps) or {}).items():
            sticky = get_sticky_decision(record)
            if label != BOUND and sticky is not None:
                # It overrides decisions on single calls up to 1.18, and an approval a rejection.
                record = {**record, "approved": sticky, "rejected": [] if sticky else True}
            record = _rename_fields(record, RECORD_FIELDS)
            yield LocatedRecord((*steps, key), _name_of_key(key), record, agent, steps[0] == "hostedMcpApprovals")


def _open_records(
    context: Json, item: Json, pending: PendingCall, label: str, *, is_sticky: bool
) -> list[dict[str, Json]]:
    """Return the maps of `context` that a decision on a call belongs in, after binding the call to its arguments."""
    if label != BOUND:
        return [context.setdefault("approvals", {})]
    identity = _agent_identity(item["agent"])

    def open_entry(key: str, empty: dict[str, Json]) -> dict[str, Json]:
        entries = context.setdefault(key, [])
        entries += [] if any(entry["agentIdentity"] == identity for entry in entries) else [empty]
        return next(entry for entry in entries if entry["agentIdentity"] == identity)

    binding = open_entry("approvalInvocations", {"agentIdentity": identity, "invocations": {}, "approvals": {}})
    fingerprint = _fingerprint(item["rawItem"], _tool_key(item, pending.call, label), pending.item_path)
    binding["invocations"][pending.id] = fingerprint
    if pending.call.is_function:
        return [open_entry("functionApprovals", {"agentIdentity": identity, "approvals": {}})["approvals"]]
    return [context.setdefault("hostedMcpApprovals", {}), *([] if is_sticky else [binding["approvals"]])]


def _tool_key(item: Json, call: StateCall, label: str) -> str:
    """Return the key of a decision on a call."""
    if label != BOUND:
        return str(item.get("toolName", call.name))
    if call.is_hosted:
        return write_compact_json(["hosted_mcp", call.raw.get("server_label"), call.name])
    return str(item.get("functionToolStateKey", write_compact_json(make_lookup_key(call.name, call.namespace))))


def _name_of_key(key: str) -> str:
    """Return the name of the tool in a key such as `["namespaced","bank","pay"]`; any other key is the name."""
    try:
        kind, *names = json.loads(key)
        return ".".join(names if kind == "namespaced" else names[-1:]) or key
    except (TypeError, ValueError, RecursionError):
        return key


def _agent_identity(agent: Json) -> str:
    return str(agent.get("identity", agent["name"]))


def _rename_fields(record: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    return {names.get(key, key): value for key, value in record.items()}


# -- the text that binds a decision to its call ------------------------------------------------------

MARK = "\0openai-agents-json:"


class _Number(str):
    """A number in arguments, as text that is equal for equal values."""


def _fingerprint(raw: Json, tool_key: str, path: PathSteps) -> str:
    """Return a call's tool, arguments and caller as `getToolInvocationFingerprint` of the SDK writes them."""
    data = raw["providerData"] if isinstance(raw.get("providerData"), dict) else {}
    caller: Json = raw.get("caller")
    is_program = isinstance(caller, dict) and caller.get("type") == "program"
    arguments = raw.get("arguments", data.get("arguments"))
    try:
        try:
            payload: Json = {"format": "json", "value": _normalize(_ARGUMENT_DECODER.decode(arguments))}
        except ValueError:
            payload = {"format": "raw", "value": arguments}
        if raw["type"] == "hosted_tool_call":
            payload = {"arguments": payload, "serverLabel": data.get("server_label")}
        caller = {"callerId": caller.get("callerId"), "type": "program"} if is_program else {"type": "direct"}
        return write_compact_json({"caller": caller, "payload": payload, "toolName": tool_key, "type": raw["type"]})
    except RecursionError as error:
        raise InvalidRunState(format_path(path), "has arguments that are nested too deep") from error


def _parse_number(token: str) -> _Number:
    mantissa, _, exponent = token.lower().partition("e")
    integer, _, fraction = mantissa.removeprefix("-").partition(".")
    significant = (integer + fraction).lstrip("0")
    digits = significant.rstrip("0")
    power = int(exponent or 0) - len(fraction) + len(significant) - len(digits)
    sign = "-" if mantissa.startswith("-") else ""
    return _Number(f"{MARK}number:{sign}{digits}e{power}" if digits else f"{MARK}number:{sign}0")


_ARGUMENT_DECODER = json.JSONDecoder(
    parse_int=_parse_number, parse_float=_parse_number, parse_constant=refuse_json_constant
)


def _normalize(value: Json) -> Json:
    """Mark texts that look like a number of `_parse_number`, and sort keys as JavaScript does."""
    if isinstance(value, dict):
        members = {_normalize(key): _normalize(member) for key, member in value.items()}
        return {key: members[key] for key in sorted(members, key=_key_order)}
    if isinstance(value, list):
        return [_normalize(member) for member in value]
    is_marked = isinstance(value, str) and value.startswith(MARK) and not isinstance(value, _Number)
    return f"{MARK}string:{value}" if is_marked else value


def _key_order(key: str) -> tuple[int, bytes]:
    """Order indexes of lists first, by value, and the other keys by their UTF-16 code units."""
    is_index = re.fullmatch(r"0|[1-9][0-9]{0,9}", key) is not None and int(key) < 2**32 - 1
    return (int(key), b"") if is_index else (2**32, key.encode("utf-16-be", "surrogatepass"))


# -- translation -------------------------------------------------------------------------------------

ITEM_MEMBERS = ("rawItem", "toolCall", "originalInput", "output")
"""Members that are an item of the SDK, or a list of them."""

TOOL_MEMBERS = ("tool", "computer", "shell", "applyPatch", "handoff")
AGENT_MEMBERS = ("currentAgent", "agent", "sourceAgent", "targetAgent")
TRANSLATED_MEMBERS = frozenset(
    {"currentTurn", "maxTurns", "conversationId", "previousResponseId", "modelResponses", "generatedItems", "context"}
    | {"currentStep", "lastProcessedResponse", "usage", "requests", "inputTokens", "outputTokens", "totalTokens"}
    | {"type", "data", "requestItem", "functions", "handoffs", "computerActions", "shellActions", "applyPatchActions"}
    | {"newItems", "interruptions", "mcpApprovalRequests", *ITEM_MEMBERS, *TOOL_MEMBERS, *AGENT_MEMBERS}
)
"""Members that the Python SDK has, too, with names in snake case; the other members are left out."""

ENDED_STEPS = ("next_step_handoff", "next_step_final_output")
"""Steps that the Python SDK does not store."""


def _translate_state(source: Json) -> Json:
    """Translate a document to the form of the Python SDK; a member of another type stays as it is, to be refused."""
    step = None if get_path(source, ("currentStep", "type")) in ENDED_STEPS else source.get("currentStep")
    label = "1.0" if source["$schemaVersion"] == OLDEST else "1.11"  # the same nested states and turn limits
    translated = {"$schemaVersion": label, **_translate({**source, "currentStep": step})}
    runs = _parse_nested_runs(source)
    for _, action in iter_path_matches(translated, ("last_processed_response", "functions", "[]")):
        name, namespace, id_ = (get_path(action, ("tool_call", field)) for field in ("name", "namespace", "call_id"))
        for tool in (write_compact_json(make_lookup_key(name, namespace)), name):
            if f"{tool}:{id_}" in runs and isinstance(action, dict):
                action["agent_run_state"] = _translate_state(runs.pop(f"{tool}:{id_}"))
    if runs:
        raise InvalidRunState("$.pendingAgentToolRuns", "contains a run of no call in lastProcessedResponse")
    return translated


def _translate(value: Json, member: str = "") -> Json:
    if isinstance(value, list):
        return [_translate(element, member) for element in value]
    if not isinstance(value, dict) or member in AGENT_MEMBERS:
        return value
    if member in ITEM_MEMBERS:
        return _translate_item(value)
    if member in TOOL_MEMBERS:
        return {"name": value.get("name")}
    return {_to_snake_case(key): _translate(value[key], key) for key in value if key in TRANSLATED_MEMBERS}


def _translate_item(raw: Json) -> Json:
    """Translate an item of the SDK to one of the Responses API."""
    if not isinstance(raw, dict):
        return raw
    data = raw["providerData"] if isinstance(raw.get("providerData"), dict) else {}
    item = {"call_id" if key == "callId" else key: value for key, value in raw.items() if key != "providerData"}
    match raw.get("type"):
        case "function_call_result":
            output: Json = raw.get("output")
            is_text = get_path(output, ("type",)) == "text"
            return {**item, "type": "function_call_output", "output": output.get("text") if is_text else output}
        case "hosted_tool_call" if data.get("type") == MCP_APPROVAL_REQUEST or "server_label" in data:
            fields = ("id", "name", "server_label", "arguments")
            return {"type": MCP_APPROVAL_REQUEST, **{key: data.get(key, raw.get(key)) for key in fields}}
        case "hosted_tool_call":
            return {**item, "type": raw.get("name"), **data}
        case "reasoning":
            parts = raw["content"] if isinstance(raw.get("content"), list) else []
            summary = [{"type": "summary_text", "text": get_path(part, ("text",))} for part in parts]
            return {"type": "reasoning", "id": raw.get("id"), "summary": summary, **data}
    return item


def _to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda match: f"_{match[0].lower()}", name)


def _to_source_path(steps: PathSteps) -> PathSteps:
    """Return a path in a translation as a path in the document."""
    return tuple(_to_camel_case(step) if isinstance(step, str) else step for step in steps)


def _to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
