"""Agents made with an installed Agents SDK, as agents of convo.

An object is taken by its class: an `Agent` of the SDK with its function tools, hosted tools, handoffs
and guardrails. Its functions keep their own signature, so each is wrapped once here and receives the
SDK's own run context (`foreign_context`). What would change a run and cannot be honoured (hooks, MCP
servers, prompts, guardrails of single tools, input filters, subclasses such as SandboxAgent) is refused
by name before anything is asked: `foreign_fields` has the tables.

The SDK is imported only when an object of it is given, so convo runs without it.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from convo.agents.agent import AfterTools, Agent, Guardrail, Handoff, names_of
from convo.agents.agent_tool import AgentTool, agent_tool
from convo.agents.foreign_behind import behind
from convo.agents.foreign_context import guardrail_input, refusal_of, run_context, tool_context
from convo.agents.foreign_fields import (
    AGENT,
    HANDOFF,
    HINT,
    INPUT_GUARDRAIL,
    NOT_PERFORMED,
    OUTPUT_GUARDRAIL,
    PACKAGE,
    TOOLS,
    check_fields,
    sdk_class,
    sdk_classes,
)
from convo.agents.foreign_settings import defaults_of, settings_of
from convo.agents.graph import Graph, graph, identities_of
from convo.agents.output import Output
from convo.errors import InputFault, Unsupported
from convo.items import Json
from convo.tools import Context, Hosted, Mismatch, Namespace, Tool

HANDOFF_SHAPE = ("tool_name", "input_json_schema", "on_invoke_handoff")

FUNCTIONS = ("function", "namespace")
"""Types in a request's `tools` that stand for function tools."""


def from_object(found: object) -> Graph:
    """The graph that starts at `found`: our own `Agent`, or one of an installed Agents SDK.

    raises:  InputFault   it is no agent, or the SDK itself refuses it
             Unsupported  it carries what convo does not run
    """
    if isinstance(found, Agent):
        return graph(found)
    if not _is_agent(found):
        raise InputFault(f"{type(found).__name__} is no agent", hint="name an Agent, as file.py:name")
    return _graph(found, ())


def _is_agent(found: object) -> bool:
    """Whether `found` is an agent of the SDK, of a class that convo runs or of another.

    Some other package may have the SDK's import name.
    """
    named = any(kind.__name__ in ("Agent", "AgentBase") for kind in sdk_classes(found))
    return named and hasattr(import_module(PACKAGE), "RunContextWrapper")


def _check_class(agent: Any) -> None:
    """Refuse an agent of another class, and one that changes how the SDK's own class works."""
    own = sdk_class(agent)
    assert own is not None
    if own.__name__ != "Agent":
        raise Unsupported("convo", f"a {own.__name__} (agent {agent.name!r})", hint="use an Agent")
    for kind in type(agent).__mro__[: type(agent).__mro__.index(own)]:
        for name, value in vars(kind).items():
            if not name.startswith("_") and callable(value) and hasattr(own, name):
                raise Unsupported("convo", f"a method {name} of its own (agent {agent.name!r})", hint=HINT)


def _graph(found: Any, outer: tuple[Any, ...]) -> Graph:
    """The graph that starts at `found`; `outer`: those behind whose tools this one stands start at them."""
    reached = _reached(found)
    identities = identities_of([agent.name for agent in reached])
    by_object = {id(agent): identity for agent, identity in zip(reached, identities, strict=True)}
    around = (*outer, found)
    return Graph(identities[0], {by_object[id(agent)]: _agent(agent, by_object, around) for agent in reached})


def _reached(found: Any) -> list[Any]:
    """The SDK's agents that `found` hands over to, itself first."""
    reached, known = [found], {id(found)}
    for agent in reached:
        _check_class(agent)
        for way in agent.handoffs:
            target = _target(agent, way)
            if id(target) not in known:
                known.add(id(target))
                reached.append(target)
    return reached


def foreign_agents(found: object) -> dict[str, Any]:
    """The SDK's own agents by their identity in the graph of `found`; none where it is no agent of the SDK."""
    if isinstance(found, Agent) or not _is_agent(found):
        return {}
    reached = _reached(found)
    return dict(zip(identities_of([agent.name for agent in reached]), reached, strict=True))


def _target(agent: Any, way: Any) -> Any:
    """The agent that a handoff leads to, which the SDK's own value holds only weakly."""
    if _is_agent(way):
        return way
    held = getattr(way, "_agent_ref", None) if all(hasattr(way, name) for name in HANDOFF_SHAPE) else None
    target = held() if callable(held) else None
    if target is None:
        raise InputFault(
            f"a handoff of agent {agent.name!r} does not say its agent", hint="hand over to the agent itself"
        )
    return target


def _agent(agent: Any, identities: Mapping[int, str], around: tuple[Any, ...]) -> Agent:
    check_fields(f"agent {agent.name!r}", agent, AGENT)
    ways = [way for way in agent.handoffs if getattr(way, "is_enabled", True) is not False]
    handoffs = tuple(_handoff(way, identities[id(_target(agent, way))], agent) for way in ways)
    on = [one for one in agent.tools if getattr(one, "is_enabled", True) is not False]
    kinds = {id(one): _kind(one) for one in on}
    hosted, include, choice = _sent(agent, on, ways)
    tools = tuple(_function(one, agent, around) if kinds[id(one)] == "FunctionTool" else next(hosted) for one in on)
    return Agent(
        name=agent.name,
        instructions=_instructions(agent),
        description=getattr(agent, "handoff_description", None) or "",
        model=_model(agent),
        settings=settings_of(agent.model_settings, include, choice),
        model_defaults=defaults_of(agent, include),
        cache_key=True,
        tools=tools,
        handoffs=handoffs,
        output=_output(agent),
        input_guardrails=tuple(_input_guardrail(one, agent) for one in getattr(agent, "input_guardrails", ())),
        output_guardrails=tuple(_output_guardrail(one, agent) for one in getattr(agent, "output_guardrails", ())),
        after_tools=_after_tools(agent, tools),
        reset_tool_choice=getattr(agent, "reset_tool_choice", True),
    )


def _instructions(agent: Any) -> Any:
    said = agent.instructions
    if not callable(said):
        return said
    if len(inspect.signature(said).parameters) != 2:
        raise InputFault(
            f"the instructions of agent {agent.name!r} do not take two arguments",
            hint="def instructions(context, agent)",
        )
    return lambda context: said(run_context(context), agent)


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
    """Its output type as the SDK asks for it: in a strict schema, unless the agent says otherwise."""
    kind: Any = getattr(agent, "output_type", None)
    if kind is None or kind is str:
        return None
    if not hasattr(kind, "validate_json"):
        sdk = import_module(PACKAGE)
        try:
            kind = sdk.AgentOutputSchema(kind)
        except sdk.UserError as wrong:
            raise InputFault(f"the output_type of agent {agent.name!r}: {wrong}", hint=NOT_STRICT) from wrong
    if kind.is_plain_text():
        return None
    if getattr(agent, "tool_use_behavior", "run_llm_again") != "run_llm_again":
        raise Unsupported(
            "convo",
            f"an output_type together with a tool's output as the final answer (agent {agent.name!r})",
            hint=HINT,
        )
    return Output(kind.json_schema(), _translated(kind.validate_json), kind.is_strict_json_schema())


NOT_STRICT = "output_type=AgentOutputSchema(TYPE, strict_json_schema=False)"


def _translated(read: Callable[[str], object]) -> Callable[[str], object]:
    def checked(words: str) -> object:
        try:
            return read(words)
        except ValueError as wrong:  # pydantic's is one
            raise Mismatch(str(wrong)) from wrong

    return checked


def _kind(found: Any) -> str:
    """The SDK's class of a tool. raises: Unsupported  convo does not perform such a tool, or not as it is set"""
    own = sdk_class(found)
    kind = type(found).__name__ if own is None else own.__name__
    if kind in NOT_PERFORMED:
        raise Unsupported("convo", f"{NOT_PERFORMED[kind]} ({kind})", hint="wrap it in a function tool")
    if kind not in TOOLS:
        raise Unsupported("convo", f"a tool of the kind {kind}", hint="wrap it in a function tool")
    check_fields(f"tool {getattr(found, 'name', kind)!r}", found, TOOLS[kind])
    if kind == "ToolSearchTool" and getattr(found, "execution", None) == "client":
        raise Unsupported("convo", "a tool search that the client executes (tool 'tool_search')", hint=HINT)
    return kind


def _function(found: Any, agent: Any, around: tuple[Any, ...]) -> Tool:
    if getattr(found, "_is_agent_tool", False):
        return _agent_tool(found, agent, around)
    space = getattr(found, "_tool_namespace", None)
    words = getattr(found, "_tool_namespace_description", None) or ""
    return Tool(
        name=found.name,
        description=found.description,
        parameters=found.params_json_schema,
        run=_invoke(found, agent),
        strict=found.strict_json_schema,
        takes_context=True,
        needs_approval=_approval(found),
        namespace=Namespace(space, words) if space else None,
        deferred=getattr(found, "defer_loading", False),
        timeout_s=getattr(found, "timeout_seconds", None),
        on_timeout="fail" if getattr(found, "timeout_behavior", "") == "raise_exception" else "tell",
        failure=None,
        enabled=_enabled(found, agent),
        serialize=_serialize,
    )


def _agent_tool(found: Any, agent: Any, around: tuple[Any, ...]) -> AgentTool:
    there = behind(found)
    if any(there.agent is one for one in around):
        raise Unsupported(
            "convo", f"agent {there.agent.name!r} behind a tool of its own", hint="hand over to it instead"
        )
    made = agent_tool(
        _graph(there.agent, around),
        found.name,
        found.description,
        needs_approval=_approval(found),
        max_turns=there.max_turns,
    )
    failure = made.failure if there.worded else None
    enabled = _enabled(found, agent)
    return replace(made, parameters=found.params_json_schema, failure=failure, enabled=enabled, serialize=_serialize)


def _sent(agent: Any, tools: list[Any], ways: list[Any]) -> tuple[Iterator[Hosted], list[str], Json]:
    """The hosted tools among `tools` as the SDK sends them, in order, and the `include` and `tool_choice` with them.

    raises:  InputFault  the SDK refuses these tools together, or a tool_choice that none of them is
    """
    sdk, converter = import_module(PACKAGE), import_module(f"{PACKAGE}.models.openai_responses").Converter
    handoffs = [sdk.handoff(way) if _is_agent(way) else way for way in ways]
    choose = converter.convert_tool_choice
    try:
        made = converter.convert_tools(tools, handoffs)
        choice = choose(agent.model_settings.tool_choice, **_named(choose, tools=tools, handoffs=handoffs))
    except sdk.UserError as wrong:
        raise InputFault(f"agent {agent.name!r}: {wrong}", hint="correct the definition of the agent") from wrong
    hosted = (_json(one) for one in made.tools if one["type"] not in FUNCTIONS)
    return hosted, list(made.includes), choice


def _named(function: Callable[..., object], **given: object) -> dict[str, object]:
    """The arguments that this release of a function takes."""
    return {name: value for name, value in given.items() if name in inspect.signature(function).parameters}


def _json(value: Any) -> Json:
    """`value` as it travels, with models of pydantic below it as objects."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _json(below) for key, below in value.items()}
    return [_json(below) for below in value] if isinstance(value, list | tuple) else value


def _handoff(way: Any, identity: str, agent: Any) -> Handoff:
    if _is_agent(way):
        return Handoff(identity)
    check_fields(f"handoff {way.tool_name!r} of agent {agent.name!r}", way, HANDOFF)
    return Handoff(
        identity,
        tool_name=way.tool_name,
        description=way.tool_description,
        parameters=way.input_json_schema,
        taken=lambda context, written: way.on_invoke_handoff(run_context(context), written),
        nest=getattr(way, "nest_handoff_history", None),
        strict=getattr(way, "strict_json_schema", True),
        enabled=_enabled(way, agent),
    )


# -- functions of the other package, with our own signature ----------------------------------------


def _approval(found: Any) -> Any:
    """Whether a call needs approval; arguments that the SDK would change before its policy sees them need it."""
    said = found.needs_approval
    if not callable(said):
        return bool(said)

    def ask(context: Context, arguments: Mapping[str, Json]) -> object:
        prepare = getattr(found.on_invoke_tool, "prepare_arguments", None)
        written = (context.call or {}).get("arguments")
        if prepare is not None and isinstance(written, str):
            prepared = prepare(written, found.name)
            if prepared is not None and not prepared.unchanged:
                return True
        return said(run_context(context), dict(arguments), context.call_id)

    return ask


def _invoke(found: Any, agent: Any) -> Callable[[Context, str], Awaitable[object]]:
    async def run(context: Context, written: str) -> object:
        given = tool_context(context, written, agent)
        output = await found.on_invoke_tool(given, written)
        if (refused := refusal_of(given)) is not None:  # the SDK makes words for the model of what a tool raises
            raise refused
        return output

    return run


def _enabled(found: Any, agent: Any) -> Any:
    said = getattr(found, "is_enabled", True)
    return (lambda context: said(run_context(context), agent)) if callable(said) else bool(said)


def _serialize(output: Any) -> Json:
    """A tool's output as the SDK sends it: its structured kinds as content parts, all else as text."""
    call = SimpleNamespace(call_id="", caller=None)
    return import_module(PACKAGE).ItemHelpers.tool_call_output_item(call, output)["output"]


def _input_guardrail(found: Any, agent: Any) -> Guardrail:
    name = found.get_name()
    check_fields(f"guardrail {name!r}", found, INPUT_GUARDRAIL)

    def check(context: Context, said: Json) -> str | Awaitable[str | None] | None:
        got = found.guardrail_function(run_context(context), agent, guardrail_input(said))
        return _later(got) if inspect.isawaitable(got) else _reason(got)

    return Guardrail(name, check, getattr(found, "run_in_parallel", True))


def _output_guardrail(found: Any, agent: Any) -> Guardrail:
    name = found.get_name()
    check_fields(f"guardrail {name!r}", found, OUTPUT_GUARDRAIL)

    def check(context: Context, said: Json) -> str | Awaitable[str | None] | None:
        got = found.guardrail_function(run_context(context), agent, said)
        return _later(got) if inspect.isawaitable(got) else _reason(got)

    return Guardrail(name, check)


async def _later(got: Awaitable[Any]) -> str | None:
    return _reason(await got)


def _reason(got: Any) -> str | None:
    """Why a guardrail tripped, in its own words where it has some."""
    return str(got.output_info or "it tripped") if got.tripwire_triggered else None
