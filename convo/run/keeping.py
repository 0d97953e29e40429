"""A run as JSON and back, for a store that outlives the process.

Everything that a run knows is kept, except what a person wrote: agents go by their identity, tools
by their name in layers and a fingerprint of what the model was shown of them. Whoever takes the run
up again brings the graph. A graph that is not the one of before is refused rather than guessed at:
an approval was given for the tool as it was then.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from convo.agents import AgentTool, Graph
from convo.errors import BadState, NotCanonical, NotFound, UnknownSchema
from convo.items import Json, hash_of
from convo.run.state import ENDED, Call, Failure, Inner, Limits, Phase, Run, Stage
from convo.tools import Lookup, Mismatch, Tool, toolbox

VERSION = 1
KNOWN = ("1",)

PHASE_WORDS: Mapping[Phase, str] = {
    Phase.NEW: "NEW",
    Phase.GUARDING: "GUARDING",
    Phase.ASKING: "ASKING",
    Phase.CLEARING: "CLEARING",
    Phase.WORKING: "WORKING",
    Phase.PAUSED: "PAUSED",
    Phase.HANDING: "HANDING",
    Phase.CHECKING: "CHECKING",
    Phase.DONE: "DONE",
    Phase.FAILED: "FAILED",
    Phase.STOPPED: "STOPPED",
}
"""The stored word of each phase. Stored words never change, also where a name in Python does."""

STAGE_WORDS: Mapping[Stage, str] = {
    Stage.JUDGING: "JUDGING",
    Stage.WAITING: "WAITING",
    Stage.READY: "READY",
    Stage.STARTED: "STARTED",
    Stage.UNKNOWN: "UNKNOWN",
    Stage.INSIDE: "INSIDE",
    Stage.DONE: "DONE",
    Stage.HANDOFF: "HANDOFF",
}
"""The stored word of each stage."""

STAGES: Mapping[str, Stage] = {word: stage for stage, word in STAGE_WORDS.items()}
PHASES: Mapping[str, Phase] = {word: phase for phase, word in PHASE_WORDS.items()}

CHANGED = "go on with the code that the run was kept with, or begin a new run"


def kept(run: Run) -> dict[str, Json]:
    """`run` without its graph, as JSON. raises: NotCanonical  its output is nothing that JSON could say"""
    return {
        "version": VERSION,
        "agent": run.agent,
        "limits": {"max_turns": run.limits.max_turns, "parallel": run.limits.parallel},
        "phase": PHASE_WORDS[run.phase],
        "turn": run.turn,
        "batch": [_call(call) for call in run.batch],
        "guards": [{"place": place, "name": _guard(run, place)} for place in sorted(run.guards)],
        "answered": run.answered,
        "text": run.text,
        "used": {agent: list(names) for agent, names in run.used.items()},
        "always": [_lasting(run, *key) for key in run.always],
        "staged": [dict(item) for item in run.staged],
        "output": _output(run),
        "failure": {"code": run.failure.code, "message": run.failure.message} if run.failure else None,
    }


def taken(document: Json, graph: Graph) -> Run:
    """The run that `document` keeps, among the agents of `graph`.

    raises:  UnknownSchema  another version of convo kept it
             NotFound       an agent or tool that the graph does not have
             BadState       a tool, guardrail or output schema is not what it was, or the document is no kept run
    """
    if not isinstance(document, dict) or document.get("version") != VERSION:
        said = document.get("version") if isinstance(document, dict) else document
        raise UnknownSchema("$.version", repr(said)[:20], KNOWN)
    try:
        return _run(document, graph)
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise BadState("$", f"is no run that was kept whole ({wrong!r})", hint=CHANGED) from wrong


def _run(document: Mapping[str, Any], graph: Graph) -> Run:
    agent, failure = document["agent"], document["failure"]
    for identity in (agent, *document["used"]):
        graph[identity]
    run = Run(
        graph,
        agent,
        _limits(document["limits"]),
        PHASES[document["phase"]],
        document["turn"],
        tuple(_called(one, graph, agent, f"$.batch[{at}]") for at, one in enumerate(document["batch"])),
        frozenset(guard["place"] for guard in document["guards"]),
        document["answered"],
        document["text"],
        {identity: tuple(names) for identity, names in document["used"].items()},
        dict(_decided(one, graph, f"$.always[{at}]") for at, one in enumerate(document["always"])),
        {
            (one["agent"], tuple(one["lookup"])): one["message"]
            for one in document["always"]
            if isinstance(one.get("message"), str)
        },
        tuple(document["staged"]),
        _value(document["output"], graph, agent, document["text"]),
        _failure(failure) if failure else None,
    )
    _check_guards(run, document["guards"])
    return run


def _limits(said: Mapping[str, Any]) -> Limits:
    """Read limits; one that is missing has its default. raises: TypeError  one is unknown"""
    _check_known(said, ("max_turns", "parallel"))
    default = Limits()
    return Limits(
        max_turns=said.get("max_turns", default.max_turns),
        parallel=said.get("parallel", default.parallel),
    )


def _failure(said: Mapping[str, Any]) -> Failure:
    """Read a failure. raises: KeyError, TypeError"""
    _check_known(said, ("code", "message"))
    return Failure(code=said["code"], message=said["message"])


def _check_known(said: Mapping[str, Any], known: Collection[str]) -> None:
    """raises: TypeError  a member that is not among `known`"""
    unknown = [word for word in said if word not in known]
    if unknown:
        raise TypeError(f"unknown member {unknown[0]!r}")


# -- calls and tools ------------------------------------------------------------------------------


def _call(call: Call) -> dict[str, Json]:
    return {
        "item": dict(call.item),
        "id": call.id,
        "stage": STAGE_WORDS[call.stage],
        "lookup": list(call.lookup),
        "tool": _fingerprint(call.tool),
        "to": call.to,
        "arguments": call.arguments,
        "output": None if call.output is None else dict(call.output),
        "ran": call.ran,
        "inner": _inner(call),
        **({} if call.verdict is None else {"verdict": call.verdict}),
    }


def _inner(call: Call) -> Json:
    inner = call.inner
    return {"run": kept(inner.run), "items": [dict(item) for item in inner.items]} if inner else None


def _called(said: Mapping[str, Any], graph: Graph, agent: str, where: str) -> Call:
    lookup = tuple(said["lookup"])
    if said["to"] is not None:
        graph[said["to"]]
    tool = _tool(graph, agent, lookup, said["tool"], where)
    return Call(
        said["item"],
        said["id"],
        STAGES[said["stage"]],
        lookup,
        tool,
        said["to"],
        said["arguments"],
        said["output"],
        said["ran"],
        _inside(tool, said.get("inner"), where),
        said.get("verdict"),
    )


def _inside(tool: Tool | None, said: Mapping[str, Any] | None, where: str) -> Inner | None:
    if said is None:
        return None
    if not isinstance(tool, AgentTool):
        raise BadState(where, "holds a run of an agent, and its tool is none any more", hint=CHANGED)
    return Inner(taken(said["run"], tool.inside), tuple(said["items"]))


def _lasting(run: Run, agent: str, lookup: Lookup) -> dict[str, Json]:
    holder = run.graph.agents.get(agent)
    tool = _find(holder.functions, lookup) if holder else None
    approve, words = run.always[agent, lookup], run.reasons.get((agent, lookup))
    said = {"agent": agent, "lookup": list(lookup), "tool": _fingerprint(tool), "approve": approve}
    return said if words is None else {**said, "message": words}


def _decided(said: Mapping[str, Any], graph: Graph, where: str) -> tuple[tuple[str, Lookup], bool]:
    agent, lookup = said["agent"], tuple(said["lookup"])
    _tool(graph, agent, lookup, said["tool"], where)
    return (agent, lookup), said["approve"]


def _tool(graph: Graph, agent: str, lookup: Lookup, fingerprint: str | None, where: str) -> Tool | None:
    """The agent's tool of that name, as long as it is what it was; None where there was none."""
    holder = graph[agent]
    if fingerprint is None:
        return None
    tool = _find(holder.functions, lookup)
    if tool is None:
        raise NotFound("tool", ".".join(lookup[1:]), hint=f"agent {agent!r} had it when the run was kept")
    if _fingerprint(tool) != fingerprint:
        raise BadState(where, f"is of tool {tool.title!r}, whose schema has changed since", hint=CHANGED)
    return tool


def _find(tools: Iterable[Tool], lookup: Lookup) -> Tool | None:
    return toolbox(tools).tools.get(lookup)


def _fingerprint(tool: Tool | None) -> str | None:
    """The name of what a model was shown of a tool: what it is called and what it takes."""
    return hash_of({"name": tool.title, "parameters": dict(tool.parameters)}) if tool else None


# -- guardrails and the final output ----------------------------------------------------------------


def _guard(run: Run, place: int) -> str | None:
    """The guardrail's name; None for a place that a stopped run no longer asks about."""
    guards = run.current.output_guardrails if run.phase is Phase.CHECKING else run.current.input_guardrails
    return guards[place].name if place < len(guards) else None


def _check_guards(run: Run, said: Iterable[Mapping[str, Any]]) -> None:
    """raises: BadState  a guardrail that is still to speak is not where it was"""
    for guard in said:
        if run.phase not in ENDED and _guard(run, guard["place"]) != guard["name"]:
            where = f"$.guards[{guard['place']}]"
            raise BadState(where, f"is guardrail {guard['name']!r}, which is not there any more", hint=CHANGED)


def _output(run: Run) -> dict[str, Json]:
    """The value itself; what only Python can hold is read from the answer's words again."""
    if _is_json(run.output):
        return {"value": run.output}
    if run.current.output is None or run.text is None:
        raise NotCanonical(f"the output of agent {run.agent!r} is no JSON: {type(run.output).__name__}")
    return {"read": True}


def _value(said: Mapping[str, Any], graph: Graph, agent: str, words: str | None) -> Json:
    if "value" in said:
        return said["value"]
    schema = graph[agent].output
    try:
        if schema is not None and words is not None:
            return schema.value(words)
    except Mismatch as wrong:
        raise BadState("$.text", f"does not fit the output schema of agent {agent!r}: {wrong}", hint=CHANGED) from wrong
    raise BadState("$.output", f"was read by a schema that agent {agent!r} no longer has", hint=CHANGED)


def _is_json(value: Json) -> bool:
    if isinstance(value, list):
        return all(_is_json(one) for one in value)
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    return value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))
