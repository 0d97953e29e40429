"""Read and decide a RunState of the JavaScript SDK (`@openai/agents`), which that SDK then finishes.

The document is translated to the form of the Python SDK, and so validated and shown as one of those. Decisions are
written into the document itself, of which everything else stays. Labels have another meaning than in Python: only those
whose states were decided here and finished by a release are supported.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from convo.errors import InvalidRunState, InvalidUsage, JavaScriptRunState
from convo.history.canonical import refuse_json_constant
from convo.history.items import MCP_APPROVAL_REQUEST, Json
from convo.runstate.document import PathSteps, format_path, get_path, parse_document, replace_path
from convo.runstate.format import (
    ApprovalVerdict,
    LocatedRecord,
    add_verdict,
    get_sticky_decision,
    iter_actions,
    list_decided_call_ids,
)
from convo.runstate.identity import make_lookup_key
from convo.runstate.reader import is_javascript, run_state_from_json
from convo.runstate.run_state import PendingCall, RunState
from convo.runstate.writer import write_compact_json

RELEASES = {"1.0": "0.3.4", "1.12": "0.11.7", "1.22": "0.20.0"}
"""Supported label -> the release that was tested with it."""

OLDEST, BOUND = "1.0", "1.22"
"""Labels without messages, hosted decisions and nested runs; and with decisions bound to agent, tool and arguments."""

PYTHON_LABELS = {"1.0": "1.0", "1.12": "1.11", "1.22": "1.11"}
"""Labels of the translations: the Python label with the same nested states and turn limits."""

RECORD_FIELDS = {"messages": "rejection_messages", "stickyRejectMessage": "sticky_rejection_message"}
JAVASCRIPT_RECORD_FIELDS = {python: javascript for javascript, python in RECORD_FIELDS.items()}

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
        source = self.source
        for call in calls:
            self._check_decidable(call, verdict)
            source, slots = _find_record_slots(source, self._get_item(call), call, is_sticky=verdict.always)
            for steps in slots:
                record = _rename_fields(get_path(source, steps) or {}, RECORD_FIELDS)
                if (
                    self.label != BOUND
                    and not verdict.always
                    and get_sticky_decision(record) not in (None, verdict.approve)
                ):
                    sticky = "approved" if get_sticky_decision(record) else "rejected"
                    raise InvalidUsage(
                        f"{call.call.tool_name} is {sticky} always, and for @openai/agents {RELEASES[self.label]} that"
                        f" overrides a decision on {call.id}",
                        hint="decide it with --always",
                    )
                record = _rename_fields(add_verdict(record, [call.id], verdict, None), JAVASCRIPT_RECORD_FIELDS)
                source = replace_path(source, steps, record)
        return parse_javascript_state(source)

    def _get_item(self, call: PendingCall) -> Json:
        """Return the approval item of a call in the document as it was read."""
        return get_path(self.source, _to_source_path(call.item_path))

    def _check_decidable(self, call: PendingCall, verdict: ApprovalVerdict) -> None:
        release, hint = RELEASES[self.label], "decide it in the process that paused the run"
        if not (call.call.is_function or call.call.is_hosted):
            raise InvalidUsage(
                f"{call.id} is a {call.call.type}, which convo does not decide for JavaScript", hint=hint
            )
        if self.label == OLDEST and verdict.message is not None:
            raise InvalidUsage(
                f"a state of @openai/agents {release} cannot contain the reason of a rejection",
                hint="remove the reason",
            )
        if self.label == OLDEST and call.call.is_hosted:
            raise InvalidUsage(f"@openai/agents {release} loses the id of {call.id} when it reads a state", hint=hint)
        if self.label == OLDEST and call.id not in {action.id for _, action in iter_actions(self.document)}:
            problem = f"{call.id} is of an agent used as a tool, whose run @openai/agents {release} does not store"
            raise InvalidUsage(problem, hint=hint)


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
        shown = repr(label)[:20] if isinstance(label, str | int | float) else "no text"
        problem = f"is {shown} of the JavaScript SDK; supported labels of @openai/agents: {releases}"
        raise JavaScriptRunState(
            "$.$schemaVersion", problem, hint="decide it with @openai/agents, the SDK that wrote it"
        )
    for source in _iter_sources(document):
        _check_approvals(source, label)
    try:
        translated = run_state_from_json(_translate_state(document))
    except InvalidRunState as error:
        problem = error.message.removeprefix(f"{error.path} ")
        raise InvalidRunState(_to_camel_case(error.path), problem, hint=error.hint) from error
    state = JavaScriptState(translated.document, translated.version, document)
    for call in state.pending:
        _check_pending_call(state._get_item(call), call, document)
    return state


def _check_pending_call(item: Json, call: PendingCall, source: Json) -> None:
    """Raise InvalidRunState for an approval item that does not show the call that would run."""
    path = _to_source_path(call.item_path)
    if call.item_path[0] != "current_step":
        raise InvalidRunState(format_path(path), "is pending in a nested run, but not in the outermost one")
    raw, name, namespace = item["rawItem"], call.call.name, call.call.namespace
    shown = _translate_item(raw)
    fields = ("name", "namespace", "arguments", "caller", "server_label")
    facts = {
        "rawItem": all(shown.get(field) == call.call.raw.get(field) for field in fields),
        "agent.name": get_path(item, ("agent", "name")) == call.agent,
    }
    if call.call.is_function:
        keys = [_function_key(name, namespace)]
        keys += [] if namespace else [write_compact_json(["deferred_top_level", name])]
        facts["toolName"] = item.get("toolName", name) in (name, f"{namespace}.{name}" if namespace else name)
        facts["functionToolStateKey"] = item.get("functionToolStateKey", keys[0]) in keys
    elif call.call.is_hosted:
        facts["toolName"] = item.get("toolName", name) == raw.get("name") == name
        facts["rawItem.id"] = raw.get("id", call.id) == call.id
        facts["rawItem.providerData.server_label"] = bool(name) and isinstance(shown["server_label"], str)
    else:
        return
    facts["rawItem.arguments"] = isinstance(call.call.arguments, str)
    wrong = next((member for member, is_right in facts.items() if not is_right), None)
    if wrong:
        raise InvalidRunState(f"{format_path(path)}.{wrong}", "differs from the call that runs, or is missing")
    identity = _agent_identity(item["agent"])
    if FORBIDDEN_NAME in (call.id, name, namespace, identity):
        raise InvalidRunState(format_path(path), f"is named {FORBIDDEN_NAME}, under which no decision can be stored")
    if source["$schemaVersion"] != BOUND:
        return
    fingerprint = _fingerprint(raw, _tool_key(item, call, BOUND), path)
    for nested in _iter_sources(source):
        for entry in nested["context"].get("approvalInvocations", ()):
            if entry["agentIdentity"] == identity and entry["invocations"].get(call.id, fingerprint) != fingerprint:
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
    if not isinstance(runs, dict) or not all(isinstance(run, str) for run in runs.values()):
        raise InvalidRunState("$.pendingAgentToolRuns", "must be an object with a text for each run")
    parsed = {key: parse_document(run.encode("utf-8", "surrogatepass")) for key, run in runs.items()}
    if any(run.get("$schemaVersion") != source["$schemaVersion"] for run in parsed.values()):
        raise InvalidRunState("$.pendingAgentToolRuns", "contains a run with another schema version")
    return parsed


def _check_approvals(source: Json, label: str) -> None:
    """Raise InvalidRunState for decisions of another form, and for a call that is approved and rejected."""
    context = source.get("context")
    maps = ("approvals", "hostedMcpApprovals", "legacyFunctionApprovals")
    lists = ("functionApprovals", "approvalInvocations")
    is_valid = isinstance(context, dict) and all(_is_record_map(context.get(key, {})) for key in maps)
    for key in lists if is_valid else ():
        entries = context.get(key, [])
        is_valid = is_valid and isinstance(entries, list) and all(_is_agent_entry(entry, key) for entry in entries)
        identities = [entry["agentIdentity"] for entry in entries] if is_valid else []
        is_valid = is_valid and len(set(identities)) == len(identities)
    if not is_valid:
        raise InvalidRunState("$.context", "must be an object with valid records of decisions")
    if label != BOUND and any(context.get(key) for key in (*maps[1:], *lists)):
        raise InvalidRunState("$.context", f"has decisions of a newer form than label {label}")
    for located in _iter_records(context, label):
        rejected = list_decided_call_ids(located.record, "rejected")
        if not set(rejected).isdisjoint(list_decided_call_ids(located.record, "approved")):
            raise InvalidRunState(format_path(("context", *located.steps)), "approves and rejects a call at once")


def _is_record_map(value: Json) -> bool:
    return isinstance(value, dict) and FORBIDDEN_NAME not in value and all(map(_is_record, value.values()))


def _is_record(value: Json) -> bool:
    if not isinstance(value, dict) or not _is_text_map(value.get("messages", {})):
        return False
    sides = (value.get("approved"), value.get("rejected"))
    return isinstance(value.get("stickyRejectMessage", ""), str) and all(
        isinstance(side, bool) or (isinstance(side, list) and all(isinstance(call, str) for call in side))
        for side in sides
    )


def _is_text_map(value: Json) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_agent_entry(entry: Json, key: str) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("agentIdentity"), str)
        and _is_record_map(entry.get("approvals"))
        and (key == "functionApprovals" or _is_text_map(entry.get("invocations")))
    )


def _iter_records(context: Json, label: str) -> Iterator[LocatedRecord]:
    if label != BOUND:
        for key, record in context.get("approvals", {}).items():
            # A sticky decision overrides those on single calls up to 1.18, and an approval a rejection.
            sticky = get_sticky_decision(record)
            sides: dict[str, Json] = {} if sticky is None else {"approved": sticky, "rejected": [] if sticky else True}
            yield LocatedRecord(("approvals", key), key, _rename_fields({**record, **sides}, RECORD_FIELDS))
        return
    for key, record in context.get("hostedMcpApprovals", {}).items():
        located = LocatedRecord(("hostedMcpApprovals", key), _name_of_key(key), _rename_fields(record, RECORD_FIELDS))
        yield LocatedRecord(located.steps, located.key, located.record, is_hosted=True)
    for key, record in context.get("legacyFunctionApprovals", {}).items():
        yield LocatedRecord(("legacyFunctionApprovals", key), key, _rename_fields(record, RECORD_FIELDS))
    for index, entry in enumerate(context.get("functionApprovals", ())):
        for key, record in entry["approvals"].items():
            steps: PathSteps = ("functionApprovals", index, "approvals", key)
            agent = {"name": entry["agentIdentity"]}
            yield LocatedRecord(steps, _name_of_key(key), _rename_fields(record, RECORD_FIELDS), agent)


def _find_record_slots(
    source: Json, item: Json, call: PendingCall, *, is_sticky: bool
) -> tuple[Json, tuple[PathSteps, ...]]:
    """Return the document with the call bound to its arguments, and the places of a decision on it."""
    label = source["$schemaVersion"]
    key = _tool_key(item, call, label)
    if label != BOUND:
        return source, (("context", "approvals", key),)
    identity = _agent_identity(item["agent"])
    source, binding = _find_agent_entry(source, "approvalInvocations", identity, {"invocations": {}, "approvals": {}})
    fingerprint = _fingerprint(item["rawItem"], key, binding)
    source = replace_path(source, (*binding, "invocations", call.id), fingerprint)
    if call.call.is_function:
        source, owner = _find_agent_entry(source, "functionApprovals", identity, {"approvals": {}})
        return source, ((*owner, "approvals", key),)
    scoped = () if is_sticky else ((*binding, "approvals", key),)
    return source, (("context", "hostedMcpApprovals", key), *scoped)


def _find_agent_entry(source: Json, list_key: str, identity: str, empty: Json) -> tuple[Json, PathSteps]:
    """Return the document with an entry of the agent in a list of the context, and the path of the entry."""
    entries = source["context"].get(list_key, [])
    index = next((index for index, entry in enumerate(entries) if entry["agentIdentity"] == identity), len(entries))
    if index == len(entries):
        source = replace_path(source, ("context", list_key), [*entries, {"agentIdentity": identity, **empty}])
    return source, ("context", list_key, index)


def _tool_key(item: Json, call: PendingCall, label: str) -> str:
    """Return the key of a decision on a call."""
    if label != BOUND:
        return str(item.get("toolName", call.call.name))
    if call.call.is_hosted:
        return write_compact_json(["hosted_mcp", call.call.raw.get("server_label"), call.call.name])
    return str(item.get("functionToolStateKey", _function_key(call.call.name, call.call.namespace)))


def _function_key(name: str | None, namespace: str | None) -> str:
    return write_compact_json(make_lookup_key(name, namespace))


def _name_of_key(key: str) -> str:
    """Return the name of the tool in a key such as `["namespaced","bank","pay"]`; any other key is the name."""
    try:
        parts = json.loads(key)
    except (ValueError, RecursionError):
        return key
    if not isinstance(parts, list) or len(parts) < 2 or not all(isinstance(part, str) for part in parts):
        return key
    return ".".join(parts[1:]) if parts[0] == "namespaced" else str(parts[-1])


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
    caller = {"type": "program", "callerId": caller.get("callerId")} if is_program else {"type": "direct"}
    arguments = raw.get("arguments", data.get("arguments"))
    try:
        try:
            payload: Json = {"format": "json", "value": _mark_texts(_ARGUMENT_DECODER.decode(arguments))}
        except ValueError:
            payload = {"format": "raw", "value": arguments}
        if raw["type"] == "hosted_tool_call":
            payload = {"serverLabel": data.get("server_label"), "arguments": payload}
        call = {"caller": caller, "type": raw["type"], "toolName": tool_key, "payload": payload}
        return write_compact_json(_sort_keys(call))
    except RecursionError as error:
        raise InvalidRunState(format_path(path), "has arguments that are nested too deep") from error


def _parse_number(token: str) -> _Number:
    mantissa, _, exponent = token.lower().partition("e")
    integer, _, fraction = mantissa.removeprefix("-").partition(".")
    significant = (integer + fraction).lstrip("0")
    digits = significant.rstrip("0")
    power = int(exponent or 0) - len(fraction) + len(significant) - len(digits)
    value = f"{digits}e{power}" if digits else "0"
    return _Number(f"{MARK}number:{'-' if mantissa.startswith('-') else ''}{value}")


_ARGUMENT_DECODER = json.JSONDecoder(
    parse_int=_parse_number, parse_float=_parse_number, parse_constant=refuse_json_constant
)


def _mark_texts(value: Json) -> Json:
    """Mark texts that look like a number of `_parse_number`."""
    if isinstance(value, dict):
        return {_mark_texts(key): _mark_texts(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_mark_texts(member) for member in value]
    is_marked = isinstance(value, str) and value.startswith(MARK) and not isinstance(value, _Number)
    return f"{MARK}string:{value}" if is_marked else value


def _sort_keys(value: Json) -> Json:
    """Sort keys as JavaScript does: indexes of lists first, by value, the others by their UTF-16 code units."""
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value, key=_key_order)}
    return [_sort_keys(member) for member in value] if isinstance(value, list) else value


def _key_order(key: str) -> tuple[int, bytes]:
    is_index = re.fullmatch(r"0|[1-9][0-9]{0,9}", key) is not None and int(key) < 2**32 - 1
    return (int(key), b"") if is_index else (2**32, key.encode("utf-16-be", "surrogatepass"))


# -- translation -------------------------------------------------------------------------------------


def _translate_state(source: Json) -> Json:
    """Translate a document to the form of the Python SDK; a member of another type stays as it is, to be refused."""
    translated = {
        _to_snake_case(key): translate(source[key]) for key, translate in TRANSLATIONS.items() if key in source
    }
    translated["current_step"] = translated.get("current_step")
    runs = _parse_nested_runs(source)
    functions = get_path(translated, ("last_processed_response", "functions"))
    for action in functions if isinstance(functions, list) else ():
        call = action.get("tool_call") if isinstance(action, dict) else None
        if isinstance(call, dict):
            names = (_function_key(call.get("name"), call.get("namespace")), call.get("name"))
            keys = [key for name in names if (key := f"{name}:{call.get('call_id')}") in runs]
            if keys:
                action["agent_run_state"] = _translate_state(runs.pop(keys[0]))
    if runs:
        raise InvalidRunState("$.pendingAgentToolRuns", "contains a run of no call in lastProcessedResponse")
    return translated


def _each(translate: Callable[[Json], Json]) -> Callable[[Json], Json]:
    return lambda value: [translate(element) for element in value] if isinstance(value, list) else value


def _keep(value: Json) -> Json:
    return value


def _translate_members(value: Json) -> Json:
    """Translate the members of a run item, a response, a step or an action; its items become those of the API."""
    if not isinstance(value, dict):
        return value
    return {
        _to_snake_case(key): MEMBER_TRANSLATIONS[key](member)
        for key, member in value.items()
        if key in MEMBER_TRANSLATIONS
    }


def _translate_tool(tool: Json) -> Json:
    return {"name": tool.get("name")} if isinstance(tool, dict) else tool


def _translate_step(step: Json) -> Json:
    return _translate_members(step) if get_path(step, ("type",)) not in ENDED_STEPS else None


def _translate_usage(usage: Json) -> Json:
    if not isinstance(usage, dict):
        return usage
    return {_to_snake_case(key): count for key, count in usage.items() if key in USAGE_FIELDS}


def _translate_context(context: Json) -> Json:
    return {"usage": _translate_usage(context.get("usage", {}))} if isinstance(context, dict) else context


def _translate_item(raw: Json) -> Json:
    """Translate an item of the SDK to one of the Responses API."""
    if not isinstance(raw, dict):
        return raw
    data = raw["providerData"] if isinstance(raw.get("providerData"), dict) else {}
    item = {"call_id" if key == "callId" else key: value for key, value in raw.items() if key != "providerData"}
    content = raw.get("content")
    match raw.get("type"):
        case "function_call_result":
            output: Json = raw.get("output")
            is_text = isinstance(output, dict) and output.get("type") == "text"
            return {**item, "type": "function_call_output", "output": output.get("text") if is_text else output}
        case "hosted_tool_call" if data.get("type") == MCP_APPROVAL_REQUEST or "server_label" in data:
            fields = ("id", "name", "server_label", "arguments")
            return {"type": MCP_APPROVAL_REQUEST, **{key: data.get(key, raw.get(key)) for key in fields}}
        case "hosted_tool_call":
            return {**item, "type": raw.get("name"), **data}
        case "reasoning":
            parts = content if isinstance(content, list) else []
            summary = [{"type": "summary_text", "text": get_path(part, ("text",))} for part in parts]
            return {"type": "reasoning", "id": raw.get("id"), "summary": summary, **data}
    return item


RUN_ITEMS = _each(_translate_members)

TRANSLATIONS: dict[str, Callable[[Json], Json]] = {
    "$schemaVersion": lambda label: PYTHON_LABELS.get(label, label),
    "currentAgent": _keep,
    "originalInput": _each(_translate_item),
    "currentTurn": _keep,
    "maxTurns": _keep,
    "conversationId": _keep,
    "previousResponseId": _keep,
    "modelResponses": RUN_ITEMS,
    "generatedItems": RUN_ITEMS,
    "context": _translate_context,
    "currentStep": _translate_step,
    "lastProcessedResponse": _translate_members,
}
"""Members of a document -> their translation; the name is written in snake case."""

MEMBER_TRANSLATIONS: dict[str, Callable[[Json], Json]] = {
    **dict.fromkeys(("type", "agent", "sourceAgent", "targetAgent"), _keep),
    **dict.fromkeys(("rawItem", "toolCall"), _translate_item),
    **dict.fromkeys(("data", "requestItem"), _translate_members),
    **dict.fromkeys(("tool", "computer", "shell", "applyPatch", "handoff"), _translate_tool),
    **dict.fromkeys(("functions", "handoffs", "computerActions", "shellActions", "applyPatchActions"), RUN_ITEMS),
    **dict.fromkeys(("newItems", "interruptions", "mcpApprovalRequests"), RUN_ITEMS),
    "output": _each(_translate_item),
}
"""Members of run items, responses, steps and actions -> their translation."""

USAGE_FIELDS = ("requests", "inputTokens", "outputTokens", "totalTokens")
ENDED_STEPS = ("next_step_handoff", "next_step_final_output")
"""Steps that the Python SDK does not store."""


def _to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda match: f"_{match[0].lower()}", name) if name[:1] != "$" else name


def _to_source_path(steps: PathSteps) -> PathSteps:
    """Return a path in a translation as a path in the document."""
    return tuple(_to_camel_case(step) if isinstance(step, str) else step for step in steps)


def _to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
