"""Serialize a run as JSON, parse it again, and recover it in another process.

Agents are stored by identity, tools by lookup and a fingerprint of their schema; the caller provides the graph.
InvalidRunState is raised if a tool, guardrail or output schema changed since: an approval was given for the old one.
Model calls and guardrails are repeated after a crash. A tool call that started and has no output is never
repeated: its outcome is unknown, and a person decides. Stored words never change.
"""

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from convo.agents.graph import AgentTool, Graph
from convo.errors import InvalidRunState, NotCanonical, NotFound, UnknownSchema
from convo.history.canonical import item_hash
from convo.history.items import Json, is_item
from convo.runs.machine import StepResult, build_model_call, complete_call, run_ready_calls
from convo.runs.state import (
    TERMINAL_PHASES,
    CheckInputGuardrail,
    CheckOutputGuardrail,
    EvaluateApproval,
    NestedRun,
    PauseRun,
    Phase,
    PrepareHandoff,
    Run,
    RunEffect,
    RunFailure,
    RunLimits,
    Stage,
    ToolCall,
)
from convo.tools.schema import Mismatch
from convo.tools.tool import Lookup, Tool, toolbox

RUN_DOCUMENT_VERSION = 1
KNOWN_DOCUMENT_VERSIONS = ("1",)

PHASE_WORDS: Mapping[Phase, str] = {
    Phase.NEW: "NEW",
    Phase.CHECKING_INPUT: "GUARDING",
    Phase.CALLING_MODEL: "ASKING",
    Phase.CHECKING_APPROVALS: "CLEARING",
    Phase.RUNNING_TOOLS: "WORKING",
    Phase.PAUSED: "PAUSED",
    Phase.HANDING_OFF: "HANDING",
    Phase.CHECKING_OUTPUT: "CHECKING",
    Phase.DONE: "DONE",
    Phase.FAILED: "FAILED",
    Phase.CANCELLED: "STOPPED",
}
"""The stored word of each phase. It never changes, even if the name in Python does."""

STAGE_WORDS: Mapping[Stage, str] = {
    Stage.CHECKING_APPROVAL: "JUDGING",
    Stage.PENDING: "WAITING",
    Stage.READY: "READY",
    Stage.RUNNING: "STARTED",
    Stage.OUTCOME_UNKNOWN: "UNKNOWN",
    Stage.NESTED_RUN_PAUSED: "INSIDE",
    Stage.DONE: "DONE",
    Stage.HANDOFF: "HANDOFF",
}
"""The stored word of each stage."""

STAGE_BY_WORD: Mapping[str, Stage] = {word: stage for stage, word in STAGE_WORDS.items()}
PHASE_BY_WORD: Mapping[str, Phase] = {word: phase for phase, word in PHASE_WORDS.items()}

CHANGED_CODE_HINT = "resume with the code that the run was stored with, or start a new run"


def run_to_json(run: Run) -> dict[str, Json]:
    """Return `run` as JSON, without its graph. Raises NotCanonical for an output that JSON cannot represent."""
    return {
        "version": RUN_DOCUMENT_VERSION,
        "agent": run.agent,
        "limits": {"max_turns": run.limits.max_turns, "parallel": run.limits.max_parallel_calls},
        "phase": PHASE_WORDS[run.phase],
        "turn": run.turn,
        "batch": [_call_to_json(call) for call in run.calls],
        "guards": [{"place": index, "name": _guardrail_name(run, index)} for index in sorted(run.open_guardrails)],
        "answered": run.has_response,
        "text": run.text,
        "used": {agent: list(names) for agent, names in run.used_tools.items()},
        "always": [_sticky_decision_to_json(run, *key) for key in run.sticky_decisions],
        "staged": [dict(item) for item in run.staged_items],
        "output": _output_to_json(run),
        "failure": {"code": run.failure.code, "message": run.failure.message} if run.failure else None,
    }


def run_from_json(document: Json, graph: Graph) -> Run:
    """Parse a stored run, with the agents of `graph`.

    Raises UnknownSchema for the version of another release, NotFound for an agent or tool that the graph lacks, and
    InvalidRunState if a tool, guardrail or output schema changed, or if the document is not a complete run.
    """
    if not isinstance(document, dict) or document.get("version") != RUN_DOCUMENT_VERSION:
        version = document.get("version") if isinstance(document, dict) else document
        raise UnknownSchema("$.version", repr(version)[:20], KNOWN_DOCUMENT_VERSIONS)
    try:
        return _parse_run(document, graph)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRunState("$", f"is not a complete run ({error!r})", hint=CHANGED_CODE_HINT) from error


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_optional_text(value: Json) -> bool:
    return value is None or isinstance(value, str)


def _is_count(value: Json) -> bool:
    # Not isinstance: True and False are integers, too.
    return type(value) is int and value >= 0


def _is_flag(value: Json) -> bool:
    return type(value) is bool


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


def _is_optional_object(value: Json) -> bool:
    return value is None or isinstance(value, dict)


def _is_text_list(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_object_list(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)


def _is_item_list(value: Json) -> bool:
    return isinstance(value, list) and all(map(is_item, value))


MemberChecks: TypeAlias = Mapping[str, tuple[Callable[[Json], bool], str]]
"""By member: whether its value is valid, and the expected form for the message."""

RUN_MEMBERS: MemberChecks = {
    "agent": (_is_text, "a text"),
    "limits": (_is_object, "an object"),
    "phase": (_is_text, "a text"),
    "turn": (_is_count, "a number of turns"),
    "batch": (_is_object_list, "a list of calls"),
    "guards": (_is_object_list, "a list of guardrails"),
    "answered": (_is_flag, "true or false"),
    "text": (_is_optional_text, "a text or null"),
    "used": (lambda value: isinstance(value, dict) and all(map(_is_text_list, value.values())), "lists of tools"),
    "always": (_is_object_list, "a list of decisions"),
    "staged": (_is_item_list, "a list of items with types"),
    "output": (_is_object, "an object"),
    "failure": (_is_optional_object, "an object or null"),
}

CALL_MEMBERS: MemberChecks = {
    "item": (is_item, "an item with a type"),
    "id": (_is_text, "a text"),
    "stage": (_is_text, "a text"),
    "lookup": (lambda value: _is_text_list(value) and bool(value), "a list of texts"),
    "tool": (_is_optional_text, "a text or null"),
    "to": (_is_optional_text, "a text or null"),
    "arguments": (_is_text, "a text"),
    "output": (lambda value: value is None or is_item(value), "an item with a type, or null"),
    "ran": (_is_flag, "true or false"),
}


def _check_members(document: Mapping[str, Any], checks: MemberChecks, path: str) -> None:
    """Check the types of members before anything is performed: stored JSON may be damaged.

    Raises InvalidRunState, and KeyError for a missing one.
    """
    for name, (is_valid, expectation) in checks.items():
        if not is_valid(document[name]):
            raise InvalidRunState(f"{path}.{name}", f"must be {expectation}", hint=CHANGED_CODE_HINT)


def _parse_run(document: Mapping[str, Any], graph: Graph) -> Run:
    _check_members(document, RUN_MEMBERS, "$")
    agent, failure = document["agent"], document["failure"]
    # Raises NotFound for an agent that the graph lacks.
    for identity in (agent, *document["used"]):
        graph[identity]
    run = Run(
        graph,
        agent,
        _parse_limits(document["limits"]),
        PHASE_BY_WORD[document["phase"]],
        document["turn"],
        tuple(_parse_call(entry, graph, agent, f"$.batch[{index}]") for index, entry in enumerate(document["batch"])),
        frozenset(guard["place"] for guard in document["guards"]),
        document["answered"],
        document["text"],
        {identity: tuple(names) for identity, names in document["used"].items()},
        dict(
            _parse_sticky_decision(entry, graph, f"$.always[{index}]") for index, entry in enumerate(document["always"])
        ),
        {
            (entry["agent"], tuple(entry["lookup"])): entry["message"]
            for entry in document["always"]
            if isinstance(entry.get("message"), str)
        },
        tuple(document["staged"]),
        _parse_output(document["output"], graph, agent, document["text"]),
        _parse_failure(failure) if failure else None,
    )
    _check_guardrails(run, document["guards"])
    return run


def _parse_limits(limits: Mapping[str, Any]) -> RunLimits:
    """Parse limits; a missing one has its default. Raises TypeError for an unknown key."""
    _check_member_names(limits, ("max_turns", "parallel"))
    default = RunLimits()
    max_turns = limits.get("max_turns", default.max_turns)
    max_parallel_calls = limits.get("parallel", default.max_parallel_calls)
    if not (max_turns is None or _is_count(max_turns)) or not _is_count(max_parallel_calls) or not max_parallel_calls:
        raise InvalidRunState("$.limits", "must be two numbers", hint=CHANGED_CODE_HINT)
    return RunLimits(max_turns=max_turns, max_parallel_calls=max_parallel_calls)


def _parse_failure(failure: Mapping[str, Any]) -> RunFailure:
    _check_member_names(failure, ("code", "message"))
    _check_members(failure, {"code": (_is_text, "a text"), "message": (_is_text, "a text")}, "$.failure")
    return RunFailure(code=failure["code"], message=failure["message"])


def _check_member_names(members: Mapping[str, Any], known_names: Collection[str]) -> None:
    unknown = [name for name in members if name not in known_names]
    if unknown:
        raise TypeError(f"unknown member {unknown[0]!r}")


# -- calls and tools ------------------------------------------------------------------------------


def _call_to_json(call: ToolCall) -> dict[str, Json]:
    return {
        "item": dict(call.item),
        "id": call.id,
        "stage": STAGE_WORDS[call.stage],
        "lookup": list(call.lookup),
        "tool": _fingerprint(call.tool),
        "to": call.target,
        "arguments": call.arguments,
        "output": None if call.output is None else dict(call.output),
        "ran": call.has_run,
        "inner": _nested_run_to_json(call),
        **({} if call.approved is None else {"verdict": call.approved}),
    }


def _nested_run_to_json(call: ToolCall) -> Json:
    nested_run = call.nested_run
    return (
        {"run": run_to_json(nested_run.run), "items": [dict(item) for item in nested_run.items]} if nested_run else None
    )


def _parse_call(document: Mapping[str, Any], graph: Graph, agent: str, path: str) -> ToolCall:
    _check_members(document, CALL_MEMBERS, path)
    if not (document.get("verdict") is None or _is_flag(document["verdict"])):
        raise InvalidRunState(f"{path}.verdict", "must be true or false", hint=CHANGED_CODE_HINT)
    lookup = tuple(document["lookup"])
    # Raises NotFound for an agent that the graph lacks.
    if document["to"] is not None:
        graph[document["to"]]
    tool = _require_tool(graph, agent, lookup, document["tool"], path)
    return ToolCall(
        document["item"],
        document["id"],
        STAGE_BY_WORD[document["stage"]],
        lookup,
        tool,
        document["to"],
        document["arguments"],
        document["output"],
        document["ran"],
        # Documents of earlier versions have no nested runs and no verdicts.
        _parse_nested_run(tool, document.get("inner"), path),
        document.get("verdict"),
    )


def _parse_nested_run(tool: Tool | None, document: Mapping[str, Any] | None, path: str) -> NestedRun | None:
    if document is None:
        return None
    if not isinstance(tool, AgentTool):
        raise InvalidRunState(path, "has a nested run, but its tool is no longer an agent", hint=CHANGED_CODE_HINT)
    _check_members(document, {"items": (_is_item_list, "a list of items with types")}, f"{path}.inner")
    return NestedRun(run_from_json(document["run"], tool.graph), tuple(document["items"]))


def _sticky_decision_to_json(run: Run, agent: str, lookup: Lookup) -> dict[str, Json]:
    graph_agent = run.graph.agents.get(agent)
    tool = _find_tool(graph_agent.functions, lookup) if graph_agent else None
    approve, message = run.sticky_decisions[agent, lookup], run.sticky_rejection_messages.get((agent, lookup))
    decision = {"agent": agent, "lookup": list(lookup), "tool": _fingerprint(tool), "approve": approve}
    return decision if message is None else {**decision, "message": message}


def _parse_sticky_decision(document: Mapping[str, Any], graph: Graph, path: str) -> tuple[tuple[str, Lookup], bool]:
    agent, lookup = document["agent"], tuple(document["lookup"])
    _require_tool(graph, agent, lookup, document["tool"], path)
    return (agent, lookup), document["approve"]


def _require_tool(graph: Graph, agent: str, lookup: Lookup, fingerprint: str | None, path: str) -> Tool | None:
    """Return the agent's tool if its schema is unchanged; None if the stored call had no tool."""
    graph_agent = graph[agent]
    if fingerprint is None:
        return None
    tool = _find_tool(graph_agent.functions, lookup)
    if tool is None:
        raise NotFound("tool", ".".join(lookup[1:]), hint=f"add it: agent {agent!r} had it when the run was stored")
    if _fingerprint(tool) != fingerprint:
        raise InvalidRunState(
            path, f"is a call of tool {tool.title!r}, whose schema has changed", hint=CHANGED_CODE_HINT
        )
    return tool


def _find_tool(tools: Iterable[Tool], lookup: Lookup) -> Tool | None:
    return toolbox(tools).tools.get(lookup)


def _fingerprint(tool: Tool | None) -> str | None:
    """Hash the definition that the model saw: the name and the parameters.

    Of an MCP server's tool the name and the server: `AgentRunner.list_changed_tools` reports another definition.
    """
    if tool is None:
        return None
    definition: Json = {"server": list(tool.origin)} if tool.origin else {"parameters": dict(tool.parameters)}
    return item_hash({"name": tool.title, **definition})


# -- guardrails and the final output ----------------------------------------------------------------


def _guardrail_name(run: Run, index: int) -> str | None:
    """Return the guardrail's name; None for an index that a terminal run no longer has."""
    guardrails = (
        run.current_agent.output_guardrails
        if run.phase is Phase.CHECKING_OUTPUT
        else run.current_agent.input_guardrails
    )
    return guardrails[index].name if index < len(guardrails) else None


def _check_guardrails(run: Run, open_guardrails: Iterable[Mapping[str, Any]]) -> None:
    """Raise InvalidRunState if an open guardrail has moved or is gone."""
    for guardrail in open_guardrails:
        if run.phase not in TERMINAL_PHASES and _guardrail_name(run, guardrail["place"]) != guardrail["name"]:
            path = f"$.guards[{guardrail['place']}]"
            raise InvalidRunState(
                path, f"is guardrail {guardrail['name']!r}, which no longer exists", hint=CHANGED_CODE_HINT
            )


def _output_to_json(run: Run) -> dict[str, Json]:
    """Return the output as JSON; a value that JSON cannot represent is parsed from the final text again."""
    if _is_json(run.output):
        return {"value": run.output}
    if run.current_agent.output is None or run.text is None:
        raise NotCanonical(f"the output of agent {run.agent!r} is not JSON: {type(run.output).__name__}")
    return {"read": True}


def _parse_output(document: Mapping[str, Any], graph: Graph, agent: str, text: str | None) -> Json:
    if "value" in document:
        return document["value"]
    schema = graph[agent].output
    try:
        if schema is not None and text is not None:
            return schema.value(text)
    except Mismatch as error:
        raise InvalidRunState(
            "$.text", f"does not match the output schema of agent {agent!r}: {error}", hint=CHANGED_CODE_HINT
        ) from error
    raise InvalidRunState(
        "$.output", f"needs the output schema that agent {agent!r} no longer has", hint=CHANGED_CODE_HINT
    )


def _is_json(value: Json) -> bool:
    if isinstance(value, list):
        return all(_is_json(element) for element in value)
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(element) for key, element in value.items())
    return value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))


def apply_call_log(run: Run, started_call_ids: Container[str], results: Mapping[str, Json]) -> Run:
    """Return `run` with the calls that started or completed since it was stored; the call log is newer than the run.

    results:  outputs of completed calls, by call id
    """

    def apply_log(call: ToolCall) -> ToolCall:
        if call.stage in (Stage.READY, Stage.RUNNING) and call.id in results:
            return complete_call(call, results[call.id])
        has_started = call.stage is Stage.READY and call.id in started_call_ids
        return replace(call, stage=Stage.RUNNING) if has_started else call

    return replace(run, calls=tuple(map(apply_log, run.calls))) if run.phase is Phase.RUNNING_TOOLS else run


def pause_interrupted_run(run: Run, results: Mapping[str, Json]) -> Run:
    """Return `run` in a form that can be stored while no process runs it: `recover_run` without starting a call.

    results:  stored outputs of calls that had started, by call id
    """
    if run.phase is not Phase.RUNNING_TOOLS:
        return run
    return replace(_end_running_calls(run, results), phase=Phase.PAUSED)


def recover_run(run: Run, results: Mapping[str, Json]) -> StepResult:
    """Return `run` after its process ended, and the effects to perform again.

    results:  stored outputs of calls that had started, by call id
    """
    if run.phase is Phase.RUNNING_TOOLS:
        return run_ready_calls(_end_running_calls(run, results))
    build_effects = REPEATABLE_EFFECTS.get(run.phase)
    return run, build_effects(run) if build_effects else ()


def _end_running_calls(run: Run, results: Mapping[str, Json]) -> Run:
    """Return `run` with every started call done, or with an unknown outcome if it has no output."""
    for call in run.calls_at(Stage.RUNNING):
        has_output = call.id in results
        run = run.replace_call(
            complete_call(call, results[call.id]) if has_output else replace(call, stage=Stage.OUTCOME_UNKNOWN)
        )
    return run


def _repeat_model_call(run: Run) -> tuple[RunEffect, ...]:
    checks = tuple(CheckInputGuardrail(run.agent, index) for index in sorted(run.open_guardrails))
    return checks if run.has_response else (*checks, build_model_call(run))


REPEATABLE_EFFECTS: dict[Phase, Callable[[Run], tuple[RunEffect, ...]]] = {
    Phase.CHECKING_INPUT: lambda run: tuple(
        CheckInputGuardrail(run.agent, index) for index in sorted(run.open_guardrails)
    ),
    Phase.CALLING_MODEL: _repeat_model_call,
    Phase.CHECKING_APPROVALS: lambda run: tuple(map(EvaluateApproval, run.calls_at(Stage.CHECKING_APPROVAL))),
    Phase.PAUSED: lambda run: (PauseRun(run.pending),),
    Phase.HANDING_OFF: lambda run: tuple(PrepareHandoff(call, run.agent, str(call.target)) for call in run.calls),
    Phase.CHECKING_OUTPUT: lambda run: tuple(
        CheckOutputGuardrail(run.agent, index, run.output) for index in sorted(run.open_guardrails)
    ),
}
