"""Agents made with an installed Agents SDK, taken by their shape. That package is never imported.

An object with a name, instructions, tools and handoffs is an agent; one with `on_invoke_tool` is a
function tool; one with `tool_config`, or a hosted tool's name, runs at the provider. Its functions
keep their own signature, so each is wrapped once here and looks like ours from then on. What would
change a run and cannot be taken over (hooks, MCP servers, prompts, guardrails of single tools, input
filters) is refused by name: leaving it out would run something else than what was written.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from convo.agents.agent import AfterTools, Agent, Guardrail, Handoff, names_of
from convo.agents.agent_tool import AgentTool, agent_tool
from convo.agents.foreign_behind import behind
from convo.agents.foreign_settings import settings_of
from convo.agents.graph import Graph, graph, identities_of
from convo.agents.output import Output, output
from convo.errors import InputFault, Unsupported
from convo.items import Json
from convo.tools import Context, Hosted, Mismatch, Namespace, Tool

AGENT_SHAPE = ("name", "instructions", "tools", "handoffs", "model_settings")
TOOL_SHAPE = ("name", "params_json_schema", "on_invoke_tool")
HANDOFF_SHAPE = ("tool_name", "input_json_schema", "on_invoke_handoff")

NOT_TAKEN = {
    "hooks": "lifecycle hooks",
    "mcp_servers": "MCP servers",
    "prompt": "a stored prompt",
}
"""Fields of an agent that would change a run."""

TOOL_NOT_TAKEN = {
    "tool_input_guardrails": "guardrails of its own",
    "tool_output_guardrails": "guardrails of its own",
    "custom_data_extractor": "custom data",
}

HANDOFF_NOT_TAKEN = {"input_filter": "an input filter"}
"""It looks for the SDK's own classes among the items, would find none and let everything pass."""

HOSTED_FIELDS = {
    "web_search": ("user_location", "filters", "search_context_size", "external_web_access", "search_content_types"),
    "file_search": ("vector_store_ids", "max_num_results", "ranking_options", "filters"),
    "tool_search": ("description", "execution", "parameters"),
    "local_shell": (),
}
"""Hosted tools that say what they want in fields of their own, and not in a `tool_config`."""


UNSAID = ("usage", "run_config", "agent", "tool_call", "tool_namespace", "tool_input", "_function_tool_arguments")
"""What else they look for, and do without."""


def from_object(found: object) -> Graph:
    """The graph that starts at `found`: our own `Agent`, or one of an installed Agents SDK.

    raises:  InputFault   it is no agent
             Unsupported  it carries what convo does not run
    """
    if isinstance(found, Agent):
        return graph(found)
    if not _looks(found, AGENT_SHAPE):
        raise InputFault(f"{type(found).__name__} is no agent", hint="name an Agent, as file.py:name")
    return _graph(found, ())


def _graph(found: Any, outer: tuple[Any, ...]) -> Graph:
    """The graph that starts at `found`; `outer`: those behind whose tools this one stands start at them."""
    reached: list[Any] = [found]
    known = {id(found)}
    for agent in reached:
        for way in agent.handoffs:
            target = _target(agent, way)
            if id(target) not in known:
                known.add(id(target))
                reached.append(target)
    identities = identities_of([agent.name for agent in reached])
    by_object = {id(agent): identity for agent, identity in zip(reached, identities, strict=True)}
    around = (*outer, found)
    return Graph(identities[0], {by_object[id(agent)]: _agent(agent, by_object, around) for agent in reached})


def _looks(found: object, shape: tuple[str, ...]) -> bool:
    return not isinstance(found, type) and all(hasattr(found, name) for name in shape)


def _target(agent: Any, way: Any) -> Any:
    """The agent that a handoff leads to, which the SDK's own value holds only weakly."""
    if _looks(way, AGENT_SHAPE):
        return way
    held = getattr(way, "_agent_ref", None) if _looks(way, HANDOFF_SHAPE) else None
    target = held() if callable(held) else None
    if target is None:
        raise InputFault(
            f"a handoff of agent {agent.name!r} does not say its agent", hint="hand over to the agent itself"
        )
    return target


def _agent(agent: Any, identities: Mapping[int, str], around: tuple[Any, ...]) -> Agent:
    _refuse(f"agent {agent.name!r}", agent, NOT_TAKEN)
    tools = tuple(_tool(one, around) for one in agent.tools if getattr(one, "is_enabled", True) is not False)
    return Agent(
        name=agent.name,
        instructions=_instructions(agent),
        description=getattr(agent, "handoff_description", None) or "",
        model=_model(agent),
        settings=settings_of(agent.model_settings),
        tools=tools,
        handoffs=tuple(
            _handoff(way, identities[id(_target(agent, way))], agent)
            for way in agent.handoffs
            if getattr(way, "is_enabled", True) is not False
        ),
        output=_output(agent),
        input_guardrails=tuple(_guardrail(one, agent) for one in getattr(agent, "input_guardrails", ())),
        output_guardrails=tuple(_guardrail(one, agent) for one in getattr(agent, "output_guardrails", ())),
        after_tools=_after_tools(agent, tools),
        reset_tool_choice=getattr(agent, "reset_tool_choice", True),
    )


def _instructions(agent: Any) -> Any:
    said = agent.instructions
    return (lambda context: said(_wrapper(context), agent)) if callable(said) else said


def _model(agent: Any) -> str | None:
    model = getattr(agent, "model", None)
    if model is None or isinstance(model, str):
        return model
    raise Unsupported(
        "convo", f"the model object of agent {agent.name!r}", hint="name the model: model='provider/model'"
    )


def _after_tools(agent: Any, tools: tuple[Tool | Hosted, ...]) -> AfterTools:
    """What follows its tools; a name in it that none of them has, as of one that is off, never comes up."""
    said = getattr(agent, "tool_use_behavior", "run_llm_again")
    if said == "run_llm_again":
        return "ask again"
    if said == "stop_on_first_tool":
        return "first output"
    if isinstance(said, Mapping):
        return frozenset(said["stop_at_tool_names"]) & names_of(tools)
    raise Unsupported("convo", f"the tool_use_behavior of agent {agent.name!r}", hint="name the tools to stop at")


def _output(agent: Any) -> Output | None:
    """Its output type: a schema object of the SDK, a pydantic model by its shape, or a plain type."""
    kind: Any = getattr(agent, "output_type", None)
    if hasattr(kind, "json_schema") and hasattr(kind, "validate_json"):
        strict = kind.is_strict_json_schema()
        return None if kind.is_plain_text() else Output(kind.json_schema(), _translated(kind.validate_json), strict)
    if hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate_json"):
        return Output(kind.model_json_schema(), _translated(kind.model_validate_json), strict=False)
    return output(kind)


def _translated(read: Callable[[str], object]) -> Callable[[str], object]:
    def checked(words: str) -> object:
        try:
            return read(words)
        except ValueError as wrong:  # pydantic's is one
            raise Mismatch(str(wrong)) from wrong

    return checked


def _tool(found: Any, around: tuple[Any, ...]) -> Tool | Hosted:
    if not _looks(found, TOOL_SHAPE):
        return _hosted(found)
    _refuse(f"tool {found.name!r}", found, TOOL_NOT_TAKEN)
    if getattr(found, "_is_agent_tool", False):
        return _agent_tool(found, around)
    space = getattr(found, "_tool_namespace", None)
    words = getattr(found, "_tool_namespace_description", None) or ""
    return Tool(
        name=found.name,
        description=found.description,
        parameters=found.params_json_schema,
        run=lambda context, written: found.on_invoke_tool(_wrapper(context, written), written),
        strict=found.strict_json_schema,
        takes_context=True,
        needs_approval=_approval(found.needs_approval),
        namespace=Namespace(space, words) if space else None,
        deferred=getattr(found, "defer_loading", False),
        timeout_s=getattr(found, "timeout_seconds", None),
        on_timeout="fail" if getattr(found, "timeout_behavior", "") == "raise_exception" else "tell",
        failure=None,
        enabled=_enabled(found),
    )


def _agent_tool(found: Any, around: tuple[Any, ...]) -> AgentTool:
    there = behind(found)
    if any(there.agent is one for one in around):
        raise Unsupported(
            "convo", f"agent {there.agent.name!r} behind a tool of its own", hint="hand over to it instead"
        )
    made = agent_tool(
        _graph(there.agent, around),
        found.name,
        found.description,
        needs_approval=_approval(found.needs_approval),
        max_turns=there.max_turns,
    )
    failure = made.failure if there.worded else None
    return replace(made, parameters=found.params_json_schema, failure=failure, enabled=_enabled(found))


def _hosted(found: Any) -> Hosted:
    config = getattr(found, "tool_config", None)
    if isinstance(config, Mapping):
        return dict(config)
    name = getattr(found, "name", None)
    if name not in HOSTED_FIELDS:
        raise Unsupported("convo", f"a tool of the kind {type(found).__name__}", hint="wrap it in a function tool")
    said = {field: getattr(found, field, None) for field in HOSTED_FIELDS[name]}
    return {"type": name, **{field: _json(value) for field, value in said.items() if value is not None}}


def _json(value: Any) -> Json:
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


def _handoff(way: Any, identity: str, agent: Any) -> Handoff:
    if _looks(way, AGENT_SHAPE):
        return Handoff(identity)
    _refuse(f"handoff {way.tool_name!r} of agent {agent.name!r}", way, HANDOFF_NOT_TAKEN)
    return Handoff(
        identity,
        tool_name=way.tool_name,
        description=way.tool_description,
        parameters=way.input_json_schema,
        taken=lambda context, written: way.on_invoke_handoff(_wrapper(context, written), written),
        nest=getattr(way, "nest_handoff_history", None),
        strict=getattr(way, "strict_json_schema", True),
        enabled=_enabled(way, agent),
    )


# -- functions of the other package, with our own signature ----------------------------------------


def _wrapper(context: Context, written: str = "") -> SimpleNamespace:
    """What the SDK's functions look for in their context, by the names that it gives them."""
    said = {"tool_name": context.tool, "tool_call_id": context.call_id, "tool_arguments": written}
    return SimpleNamespace(context=context.values, **said, **dict.fromkeys(UNSAID), turn_input=[])


def _approval(said: Any) -> Any:
    if not callable(said):
        return bool(said)
    return lambda context, arguments: said(_wrapper(context), dict(arguments), context.call_id)


def _enabled(found: Any, agent: Any = None) -> Any:
    said = getattr(found, "is_enabled", True)
    return (lambda context: said(_wrapper(context), agent)) if callable(said) else bool(said)


def _guardrail(found: Any, agent: Any) -> Guardrail:
    def check(context: Context, said: Json) -> str | Awaitable[str | None] | None:
        got = found.guardrail_function(_wrapper(context), agent, said)
        return _later(got) if inspect.isawaitable(got) else _reason(got)

    return Guardrail(found.get_name(), check, getattr(found, "run_in_parallel", True))


async def _later(got: Awaitable[Any]) -> str | None:
    return _reason(await got)


def _reason(got: Any) -> str | None:
    """Why a guardrail tripped, in its own words where it has some."""
    return str(got.output_info or "it tripped") if got.tripwire_triggered else None


def _refuse(what: str, found: Any, fields: Mapping[str, str]) -> None:
    for field, words in fields.items():
        if getattr(found, field, None):
            raise Unsupported("convo", f"{words} ({what})", hint="leave it out, or run it with the Agents SDK")
