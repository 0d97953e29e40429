"""Convert agents of an installed Agents SDK (openai-agents) to agents of convo.

The SDK is imported only when one of its objects is given. Its functions keep their signature and receive the
SDK's own context classes. Every public field of its classes is listed as honoured or unsupported; an unsupported or
unknown field with a value other than its default raises Unsupported.
"""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, TypeAlias

from convo.agents.agent import (
    AfterTools,
    Agent,
    CustomModel,
    Guardrail,
    Handoff,
    HookEvent,
    Hooks,
    Output,
    collect_tool_names,
)
from convo.agents.graph import AgentTool, Graph, agent_tool, assign_identities, graph
from convo.agents.handoff_history import HandoffTranscript, to_sdk_form
from convo.agents.handoffs import format_handoff_output
from convo.agents.sdk_internals import (
    find_executor,
    get_handoff_agent,
    get_mcp_binding,
    get_namespace,
    is_agent_tool,
    read_agent_tool_settings,
)
from convo.agents.sdk_model import convert_model
from convo.agents.sdk_run import SDK_PACKAGE, UNSUPPORTED_HINT, SdkRun, is_unset
from convo.errors import InputFault, RunFailed, Unsupported, UnsupportedParameter
from convo.history.items import MCP_APPROVAL_RESPONSE, Item, Json, is_user_message
from convo.secrets import redact_server_address
from convo.tools.schema import Mismatch
from convo.tools.tool import NO_VALUES, NOT_APPROVED, Context, Hosted, Namespace, ServerTool, Tool

FUNCTION_TOOL_TYPES = ("function", "namespace")
"""Types of function tools in the `tools` of a request."""


FieldSupport: TypeAlias = Mapping[str, str | None]


class Enclosing(NamedTuple):
    """The agents and the run that contain a graph.

    agents:  the agents whose tools contain the graph, outermost first
    run:     the arguments of the run
    """

    agents: tuple[Any, ...] = ()
    run: SdkRun = SdkRun()


def from_object(start: object, run: SdkRun | None = None) -> Graph:
    """Build the graph that starts at `start`: an `Agent`, or an agent of an installed Agents SDK.

    run:  arguments of the SDK's `Runner.run`, for its agents

    Raises InputFault if it is not an agent or if the SDK rejects it, and Unsupported for a feature that convo does not
    run.
    """
    if isinstance(start, Agent):
        return graph(start)
    if not _is_sdk_agent(start):
        raise InputFault(f"{type(start).__name__} is not an agent", hint="name an Agent as file.py:name")
    return _convert_graph(start, Enclosing(run=run or SdkRun()))


def _is_sdk_agent(value: object) -> bool:
    """Return whether `value` is an agent of the SDK, of a class that convo runs or of another.

    Checks the package too: another package can have the import name of the SDK.
    """
    is_agent_class = any(kind.__name__ in ("Agent", "AgentBase") for kind in iter_sdk_classes(value))
    return is_agent_class and hasattr(import_module(SDK_PACKAGE), "RunContextWrapper")


def _check_agent_class(agent: Any) -> None:
    """Raise Unsupported for an agent of another class, and for a subclass that overrides a public method."""
    sdk_class = find_sdk_class(agent)
    assert sdk_class is not None
    if sdk_class.__name__ != "Agent":
        raise Unsupported("convo", f"the class {sdk_class.__name__} (agent {agent.name!r})", hint="use an Agent")
    for kind in type(agent).__mro__[: type(agent).__mro__.index(sdk_class)]:
        for name, value in vars(kind).items():
            if not name.startswith("_") and callable(value) and hasattr(sdk_class, name):
                raise Unsupported("convo", f"an overridden method {name} (agent {agent.name!r})", hint=UNSUPPORTED_HINT)


def _convert_graph(start: Any, outer: Enclosing) -> Graph:
    """Build the graph that starts at `start`."""
    agents = _list_reachable_agents(start)
    identities = assign_identities([agent.name for agent in agents])
    identity_by_object = {id(agent): identity for agent, identity in zip(agents, identities, strict=True)}
    enclosing = outer._replace(agents=(*outer.agents, start))
    return Graph(
        identities[0],
        {identity_by_object[id(agent)]: _convert_agent(agent, identity_by_object, enclosing) for agent in agents},
    )


def _list_reachable_agents(start: Any) -> list[Any]:
    """List the SDK agents that `start` can reach by handoffs, `start` first."""
    agents, seen_ids = [start], {id(start)}
    for agent in agents:
        _check_agent_class(agent)
        for handoff in agent.handoffs:
            target = _resolve_handoff_target(agent, handoff)
            if id(target) not in seen_ids:
                seen_ids.add(id(target))
                agents.append(target)
    return agents


def foreign_agents(start: object) -> dict[str, Any]:
    """Return the SDK's agents by their identity in the graph of `start`; none if it is not an SDK agent."""
    if isinstance(start, Agent) or not _is_sdk_agent(start):
        return {}
    agents = _list_reachable_agents(start)
    return dict(zip(assign_identities([agent.name for agent in agents]), agents, strict=True))


def _resolve_handoff_target(agent: Any, handoff: Any) -> Any:
    """Return the target agent of a handoff, which may be the agent itself."""
    if _is_sdk_agent(handoff):
        return handoff
    target = get_handoff_agent(handoff)
    if target is None:
        raise InputFault(
            f"a handoff of agent {agent.name!r} does not have its agent", hint="use the Agent object as the handoff"
        )
    return target


def _convert_agent(agent: Any, identities: Mapping[int, str], enclosing: Enclosing) -> Agent:
    run = enclosing.run
    check_sdk_fields(f"agent {agent.name!r}", agent, SDK_AGENT_FIELDS)
    enabled_handoffs = [handoff for handoff in agent.handoffs if getattr(handoff, "is_enabled", True) is not False]
    handoffs = tuple(
        _convert_handoff(handoff, identities[id(_resolve_handoff_target(agent, handoff))], agent, run)
        for handoff in enabled_handoffs
    )
    enabled_tools = [tool for tool in agent.tools if getattr(tool, "is_enabled", True) is not False]
    class_names = {id(tool): _check_tool_class(tool) for tool in enabled_tools}
    settings, model = agent.model_settings.resolve(run.get("model_settings")), convert_model(agent, run)
    hosted_tools, include, tool_choice = _convert_request_tools(agent, settings, enabled_tools, enabled_handoffs)
    tools = tuple(
        _convert_function_tool(tool, agent, enclosing)
        if class_names[id(tool)] == "FunctionTool"
        else _convert_other_tool(tool, next(hosted_tools), agent, run)
        for tool in enabled_tools
    )
    return Agent(
        name=agent.name,
        instructions=_convert_instructions(agent),
        description=getattr(agent, "handoff_description", None) or "",
        model=model,
        settings=convert_model_settings(settings, include, tool_choice, is_custom_model=isinstance(model, CustomModel)),
        model_defaults=convert_default_settings(agent, include, run.get("model_settings")),
        follows_sdk=True,
        tools=tools,
        handoffs=handoffs,
        output=_convert_output(agent),
        input_guardrails=tuple(
            _convert_guardrail(guardrail, agent, SDK_INPUT_GUARDRAIL_FIELDS, to_guardrail_input)
            for guardrail in (*agent.input_guardrails, *(run.get("input_guardrails") or ()))
        ),
        output_guardrails=tuple(
            _convert_guardrail(guardrail, agent, SDK_OUTPUT_GUARDRAIL_FIELDS)
            for guardrail in (*agent.output_guardrails, *(run.get("output_guardrails") or ()))
        ),
        after_tools=_convert_after_tools(agent, tools),
        servers=_convert_servers(agent, run),
        reset_tool_choice=getattr(agent, "reset_tool_choice", True),
        hooks=_convert_hooks(agent, run, identities),
    )


def _convert_instructions(agent: Any) -> Any:
    instructions = agent.instructions
    if not callable(instructions):
        return instructions
    if len(inspect.signature(instructions).parameters) != 2:
        raise InputFault(
            f"the instructions of agent {agent.name!r} must accept two arguments",
            hint="define them as def instructions(context, agent)",
        )
    return lambda context: instructions(make_run_context(context), agent)


def _convert_after_tools(agent: Any, tools: tuple[Tool | Hosted, ...]) -> AfterTools:
    """Convert `tool_use_behavior`, without the names of tools that the agent does not have, such as disabled ones."""
    behavior = getattr(agent, "tool_use_behavior", "run_llm_again")
    if behavior == "run_llm_again":
        return "ask again"
    if behavior == "stop_on_first_tool":
        return "first output"
    if isinstance(behavior, Mapping):
        names = frozenset(behavior["stop_at_tool_names"])
        return names if agent.mcp_servers else names & collect_tool_names(tools)
    raise Unsupported(
        "convo",
        f"the tool_use_behavior of agent {agent.name!r}",
        hint="use 'run_llm_again', 'stop_on_first_tool' or stop_at_tool_names",
    )


def _convert_output(agent: Any) -> Output | None:
    """Convert the output type; as in the SDK, its schema is strict unless the agent sets otherwise."""
    output_type: Any = getattr(agent, "output_type", None)
    if output_type is None or output_type is str:
        return None
    if not hasattr(output_type, "validate_json"):
        sdk = import_module(SDK_PACKAGE)
        try:
            output_type = sdk.AgentOutputSchema(output_type)
        except sdk.UserError as error:
            raise InputFault(f"the output_type of agent {agent.name!r}: {error}", hint=NOT_STRICT_HINT) from error
    if output_type.is_plain_text():
        return None
    if getattr(agent, "tool_use_behavior", "run_llm_again") != "run_llm_again":
        raise Unsupported(
            "convo",
            f"an output_type together with a tool's output as the final answer (agent {agent.name!r})",
            hint=UNSUPPORTED_HINT,
        )
    return Output(
        output_type.json_schema(), _wrap_output_parser(output_type.validate_json), output_type.is_strict_json_schema()
    )


NOT_STRICT_HINT = "output_type=AgentOutputSchema(TYPE, strict_json_schema=False)"


def _wrap_output_parser(read: Callable[[str], object]) -> Callable[[str], object]:
    def parse(text: str) -> object:
        try:
            return read(text)
        except ValueError as error:  # such as pydantic's ValidationError
            raise Mismatch(str(error)) from error

    return parse


def _check_tool_class(tool: Any) -> str:
    """Return the name of a tool's SDK class. Raises Unsupported for a tool or a setting that convo cannot perform."""
    sdk_class = find_sdk_class(tool)
    class_name = type(tool).__name__ if sdk_class is None else sdk_class.__name__
    if class_name in UNSUPPORTED_TOOLS:
        raise Unsupported("convo", f"{UNSUPPORTED_TOOLS[class_name]} ({class_name})", hint="wrap it in a function tool")
    if class_name not in SDK_TOOL_FIELDS:
        raise Unsupported("convo", f"a tool of class {class_name}", hint="wrap it in a function tool")
    check_sdk_fields(f"tool {getattr(tool, 'name', class_name)!r}", tool, SDK_TOOL_FIELDS[class_name])
    if class_name == "ToolSearchTool" and getattr(tool, "execution", None) == "client":
        raise Unsupported("convo", "a tool search that the client executes (tool 'tool_search')", hint=UNSUPPORTED_HINT)
    return class_name


def _convert_function_tool(tool: Any, agent: Any, enclosing: Enclosing) -> Tool:
    if is_agent_tool(tool):
        return _convert_agent_tool(tool, agent, enclosing)
    namespace_name, namespace_description = get_namespace(tool)
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=tool.params_json_schema,
        run=_wrap_tool_function(tool, agent, enclosing.run),
        strict=tool.strict_json_schema,
        takes_context=True,
        needs_approval=_convert_approval(tool),
        namespace=Namespace(namespace_name, namespace_description) if namespace_name else None,
        deferred=getattr(tool, "defer_loading", False),
        timeout_s=None if _has_own_timeout(tool) else getattr(tool, "timeout_seconds", None),
        on_timeout="fail" if getattr(tool, "timeout_behavior", "") == "raise_exception" else "tell",
        # The SDK's wrapper of the function has turned failures into text already, or raises on purpose.
        failure=None,
        enabled=_convert_enabled(tool, agent),
        serialize=_serialize_tool_output,
    )


def _convert_other_tool(tool: Any, definition: Hosted, agent: Any, sdk_run: SdkRun) -> Tool | Hosted:
    """Convert a tool that is no function: a hosted one to its definition, one with code of the agent to a Tool.

    Raises Unsupported for an approval rule that is a function.
    """
    sdk, executor = import_module(SDK_PACKAGE), find_executor(tool)
    decide: Any = getattr(tool, "on_approval_request", None)  # of a hosted MCP server
    approves = getattr(tool, "on_approval", None) is not None
    needs_approval = getattr(tool, "needs_approval", False)
    if callable(needs_approval) and executor and not approves:
        raise Unsupported("convo", f"an approval rule (tool {tool.name!r})", hint="use True, or on_approval")

    async def answer_request(context: Context, arguments: str) -> Json:
        request = sdk.MCPToolApprovalRequest(ctx_wrapper=make_run_context(context), data=parse_call(context))
        result = decide(request)
        result = await result if inspect.isawaitable(result) else result
        reason = {"reason": result["reason"]} if not result["approve"] and "reason" in result else {}
        response = {"type": MCP_APPROVAL_RESPONSE, "approval_request_id": context.call_id}
        return {**response, "approve": result["approve"], **reason}

    async def execute(context: Context, arguments: str) -> Json:
        assert executor
        sdk_context = make_run_context(context)
        del sdk_context.approve_tool, sdk_context.reject_tool  # the tool's own approval function decides on this call
        approved = tool if approves or not needs_approval else dataclasses.replace(tool, needs_approval=False)
        with sdk.trace("convo", disabled=True):
            item = await executor.action.execute(
                agent=agent,
                call=executor.make_call(parse_call(context), approved),
                hooks=sdk_run.hooks or sdk.RunHooks(),
                context_wrapper=sdk_context,
                config=sdk_run.config or sdk.RunConfig(tracing_disabled=True),
            )
        return _to_json(item.to_input_item())

    def parse_call(context: Context) -> Any:
        return _parse_output_item(context.call or {})

    if decide is None and executor is None:
        return definition
    return Tool(
        name=tool.name if executor else f"mcp_{definition['server_label']}",
        description=getattr(tool, "description", ""),
        parameters=definition,
        run=execute if executor else answer_request,
        needs_approval=bool(needs_approval) and not approves,
        failure=None,
        serialize=_to_json,
        definition=definition,
    )


def _convert_servers(agent: Any, run: SdkRun) -> "SdkServers | None":
    for server in agent.mcp_servers:
        if getattr(server, "custom_data_extractor", None) is not None:
            raise Unsupported("convo", f"custom data (MCP server {server.name!r})", hint=UNSUPPORTED_HINT)
    return SdkServers(agent, run) if agent.mcp_servers else None


class SdkServers:
    """The MCP servers of an agent; the SDK connects to them, filters and converts their tools, and calls them."""

    def __init__(self, agent: Any, run: SdkRun) -> None:
        self._agent, self._run = agent, run
        self._manager: Any = None

    async def list_tools(self, context: Context) -> Sequence[Tool]:
        """Return the tools as the SDK offers them. Raises the SDK's errors, and Unsupported for a tool's setting."""
        if self._manager is None:
            # A server of several agents, and one that a function of the user has connected, is connected once.
            servers = [server for server in self._agent.mcp_servers if getattr(server, "session", None) is None]
            # With a task for each server: the one that connected must disconnect.
            self._manager = import_module(f"{SDK_PACKAGE}.mcp").MCPServerManager(
                servers, connect_timeout_seconds=None, strict=True, connect_in_parallel=True
            )
            await self._manager.connect_all()
        sdk = import_module(SDK_PACKAGE)
        # Its spans need a trace.
        with nullcontext() if sdk.get_current_trace() else sdk.trace("convo", disabled=True):
            tools = await self._agent.get_mcp_tools(make_run_context(context))
        for tool in tools:
            _check_tool_class(tool)
        return [
            replace(
                _convert_function_tool(tool, self._agent, Enclosing(run=self._run)),
                origin=ServerTool(*get_mcp_binding(tool)),
            )
            for tool in tools
        ]

    def states(self) -> Mapping[str, str]:
        """Return for each server whether it is connected."""
        return {
            redact_server_address(server.name.partition("?")[0]): (
                "connected" if getattr(server, "session", None) else "not connected"
            )
            for server in self._agent.mcp_servers
        }

    async def aclose(self) -> None:
        if self._manager is not None:
            await self._manager.cleanup_all()


def _convert_agent_tool(tool: Any, agent: Any, enclosing: Enclosing) -> AgentTool:
    settings = read_agent_tool_settings(tool)
    if any(settings.agent is outer for outer in enclosing.agents):
        raise Unsupported("convo", f"agent {settings.agent.name!r} as a tool of itself", hint="use a handoff instead")
    converted = agent_tool(
        _convert_graph(settings.agent, enclosing._replace(run=enclosing.run._replace(hooks=settings.hooks))),
        tool.name,
        tool.description,
        needs_approval=_convert_approval(tool),
        max_turns=settings.max_turns,
    )
    failure = converted.failure if settings.reports_failures else None
    enabled = _convert_enabled(tool, agent)
    return replace(
        converted,
        parameters=tool.params_json_schema,
        failure=failure,
        enabled=enabled,
        serialize=_serialize_tool_output,
        record=None if settings.read_input else converted.record,
        read_input=settings.read_input,
    )


def _convert_request_tools(
    agent: Any, settings: Any, tools: list[Any], enabled_handoffs: list[Any]
) -> tuple[Iterator[Hosted], list[str], Json]:
    """Return the hosted tools among `tools` as the SDK sends them, in order, and their `include` and `tool_choice`.

    Raises InputFault if the SDK rejects the combination of tools, or a `tool_choice` that names none of them.
    """
    sdk, converter = import_module(SDK_PACKAGE), import_module(f"{SDK_PACKAGE}.models.openai_responses").Converter
    handoffs = [sdk.handoff(handoff) if _is_sdk_agent(handoff) else handoff for handoff in enabled_handoffs]
    convert_choice = converter.convert_tool_choice
    try:
        converted = converter.convert_tools(tools, handoffs)
        tool_choice = convert_choice(
            settings.tool_choice, **_supported_arguments(convert_choice, tools=tools, handoffs=handoffs)
        )
    except sdk.UserError as error:
        raise InputFault(f"agent {agent.name!r}: {error}", hint="correct the definition of the agent") from error
    hosted = (_to_json(tool) for tool in converted.tools if tool["type"] not in FUNCTION_TOOL_TYPES)
    return hosted, list(converted.includes), tool_choice


def _supported_arguments(function: Callable[..., object], **arguments: object) -> dict[str, object]:
    """Return the arguments that `function` accepts in the installed release."""
    return {name: value for name, value in arguments.items() if name in inspect.signature(function).parameters}


def _to_json(value: Any) -> Json:
    """Convert `value` to JSON as it is sent, with pydantic models as objects."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _to_json(member) for key, member in value.items()}
    return [_to_json(member) for member in value] if isinstance(value, list | tuple) else value


def _convert_handoff(handoff: Any, identity: str, agent: Any, run: SdkRun) -> Handoff:
    target, default_filter = _resolve_handoff_target(agent, handoff), run.get("handoff_input_filter")
    input_filter = getattr(handoff, "input_filter", None) or default_filter
    converted_filter = input_filter and ForeignHandoffFilter(
        input_filter, agent, target, getattr(handoff, "tool_name", "")
    )
    if _is_sdk_agent(handoff):
        return Handoff(identity, filter=converted_filter)
    check_sdk_fields(f"handoff {handoff.tool_name!r} of agent {agent.name!r}", handoff, SDK_HANDOFF_FIELDS)
    return Handoff(
        identity,
        tool_name=handoff.tool_name,
        description=handoff.tool_description,
        parameters=handoff.input_json_schema,
        taken=lambda context, arguments: handoff.on_invoke_handoff(make_run_context(context), arguments),
        filter=converted_filter,
        nest=getattr(handoff, "nest_handoff_history", None),
        strict=getattr(handoff, "strict_json_schema", True),
        enabled=_convert_enabled(handoff, agent),
    )


# -- functions of the SDK, wrapped with the signatures of convo -----------------------------------


def _convert_approval(tool: Any) -> Any:
    """Convert the approval rule; arguments that the SDK would change before its rule sees them need approval."""
    rule = tool.needs_approval
    if not callable(rule):
        return bool(rule)

    def needs_approval(context: Context, arguments: Mapping[str, Json]) -> object:
        prepare = getattr(tool.on_invoke_tool, "prepare_arguments", None)
        raw_arguments = (context.call or {}).get("arguments")
        if prepare is not None and isinstance(raw_arguments, str):
            prepared = prepare(raw_arguments, tool.name)
            if prepared is not None and not prepared.unchanged:
                return True
        return rule(make_run_context(context), dict(arguments), context.call_id)

    return needs_approval


def _has_own_timeout(tool: Any) -> bool:
    return getattr(tool, "timeout_error_function", None) is not None


def _wrap_tool_function(tool: Any, agent: Any, sdk_run: SdkRun) -> Callable[[Context, str], Awaitable[object]]:
    """Return the tool as the SDK runs it: its guardrails, and the hooks of the run and of the agent."""

    async def run(context: Context, arguments: str) -> object:
        tool_context = make_tool_context(context, arguments, agent, sdk_run)
        guardrails, data = import_module(f"{SDK_PACKAGE}.tool_guardrails"), {"context": tool_context, "agent": agent}
        for guardrail in getattr(tool, "tool_input_guardrails", None) or ():
            result = await guardrail.run(guardrails.ToolInputGuardrailData(**data))
            if (message := _read_tool_guardrail(guardrail, result)) is not None:
                return message
        await _call_sdk_hooks("tool_start", agent, sdk_run, tool_context, tool)
        sdk = import_module(SDK_PACKAGE)
        # Without a span, the SDK logs each failure of a tool as "No active span".
        with sdk.trace("convo", disabled=True), sdk.function_span(tool.name, disabled=True):
            if _has_own_timeout(tool):
                invoke = import_module(f"{SDK_PACKAGE}.tool").invoke_function_tool
                output = await invoke(function_tool=tool, context=tool_context, arguments=arguments)
            else:
                output = await tool.on_invoke_tool(tool_context, arguments)
        # The SDK turns an exception of a tool into text for the model.
        if (refusal := get_refusal(tool_context)) is not None:
            raise refusal
        returned = output
        for guardrail in getattr(tool, "tool_output_guardrails", None) or ():
            result = await guardrail.run(guardrails.ToolOutputGuardrailData(**data, output=returned))
            if (message := _read_tool_guardrail(guardrail, result)) is not None:
                output = message
                break
        await _call_sdk_hooks("tool_end", agent, sdk_run, tool_context, tool, output)
        return output

    return run


def _read_tool_guardrail(guardrail: Any, result: Any) -> str | None:
    """Return the text in place of a tool's output. Raises RunFailed if the guardrail ends the run."""
    behavior = result.behavior
    if behavior["type"] == "raise_exception":
        reason = f"Guardrail {guardrail.get_name()} tripped: {result.output_info or 'no reason was given'}"
        raise RunFailed(reason, code="tool_guardrail")
    return behavior["message"] if behavior["type"] == "reject_content" else None


async def _call_sdk_hooks(event: str, agent: Any, run: SdkRun, context: Any, *details: Any) -> None:
    """Call the hooks of the run and of an agent: `on_agent_start` and `on_start` for "agent_start"."""
    if run.hooks is not None:
        await getattr(run.hooks, f"on_{event}")(context, agent, *details)
    if agent.hooks is not None:
        await getattr(agent.hooks, f"on_{event.removeprefix('agent_')}")(context, agent, *details)


def _convert_hooks(agent: Any, run: SdkRun, identities: Mapping[int, str]) -> Hooks | None:
    """Convert the hooks of an agent and of the run; those of function tools are called where the tools run."""
    targets = {
        identities[id(target)]: target for target in (_resolve_handoff_target(agent, one) for one in agent.handoffs)
    }
    if run.hooks is None and not any(one.hooks is not None for one in (agent, *targets.values())):
        return None
    tools = {tool.name: tool for tool in agent.tools if is_agent_tool(tool)}

    async def call(event: HookEvent, context: Context, *details: Any) -> None:
        sdk_context = make_run_context(context)
        if event in ("agent_start", "agent_end"):
            hook_context = import_module(f"{SDK_PACKAGE}.run_context").AgentHookContext
            sdk_context = _make_context(hook_context, _run_context_fields(context))
        if event in ("tool_start", "tool_end"):
            arguments = str((context.call or {}).get("arguments"))
            sdk_context = make_tool_context(context, arguments, agent, run)
            details = (tools[context.tool], *details)
        elif event == "llm_start":
            instructions, items = details
            details = (instructions, [to_sdk_form(item) for item in items])
        elif event == "llm_end":
            details = (_make_model_response(details[0]),)
        elif event == "handoff":
            target = targets[details[0]]
            if run.hooks is not None:
                await run.hooks.on_handoff(sdk_context, agent, target)
            if target.hooks is not None:
                await target.hooks.on_handoff(sdk_context, target, agent)
            return
        await _call_sdk_hooks(event, agent, run, sdk_context, *details)

    return call


def _make_model_response(response: Mapping[str, Json]) -> Any:
    sdk = import_module(SDK_PACKAGE)
    output = [_parse_output_item(item) for item in response.get("output") or ()]
    return sdk.ModelResponse(
        output=output, usage=_make_request_usage(response.get("usage") or {}), response_id=response.get("id")
    )


def _parse_output_item(item: Item) -> Any:
    """Return an item as the class that the `openai` package has for it; a dict for one of another kind."""
    from openai.types.responses import ResponseOutputItem
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(ResponseOutputItem).validate_python(dict(item))
    except ValidationError:
        return dict(item)


def _convert_enabled(definition: Any, agent: Any) -> Any:
    rule = getattr(definition, "is_enabled", True)
    return (lambda context: rule(make_run_context(context), agent)) if callable(rule) else bool(rule)


def _serialize_tool_output(output: Any) -> Json:
    """Convert a tool's output as the SDK does: structured outputs to content parts, anything else to text."""
    call = SimpleNamespace(call_id="", caller=None)
    return import_module(SDK_PACKAGE).ItemHelpers.tool_call_output_item(call, output)["output"]


def _convert_guardrail(
    guardrail: Any, agent: Any, field_support: FieldSupport, convert: Callable[[Any], Any] = lambda output: output
) -> Guardrail:
    name = guardrail.get_name()
    check_sdk_fields(f"guardrail {name!r}", guardrail, field_support)

    def check(context: Context, value: Json) -> str | Awaitable[str | None] | None:
        result = guardrail.guardrail_function(make_run_context(context), agent, convert(value))
        return _await_tripwire_reason(result) if inspect.isawaitable(result) else _tripwire_reason(result)

    return Guardrail(name, check, getattr(guardrail, "run_in_parallel", True))


async def _await_tripwire_reason(pending_result: Awaitable[Any]) -> str | None:
    return _tripwire_reason(await pending_result)


def _tripwire_reason(result: Any) -> str | None:
    """Return the reason of a guardrail that tripped; None if it passed."""
    return str(result.output_info or "no reason was given") if result.tripwire_triggered else None


SHARED_SETTINGS = (
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "parallel_tool_calls", "truncation"),
    *("metadata", "store", "top_logprobs", "prompt_cache_retention", "prompt_cache_options", "context_management"),
)
REQUEST_FIELDS = {
    **{name: name for name in SHARED_SETTINGS},
    "max_tokens": "max_output_tokens",
    "response_include": "include",
}
IGNORED_SETTINGS = {"include_usage", "preserve_raw_usage", "retry"}
"""Settings without an effect: convo always requests the usage of a response and stores it unchanged.

`retry` is reported (`list_ignored_settings`).
"""
HTTP_SETTINGS = {"extra_headers", "extra_query"}
"""Settings of requests that only a model of the SDK's own can have."""

LOGPROBS_INCLUDE = "message.output_text.logprobs"
"""The `include` value that the SDK adds for `top_logprobs`."""


def convert_model_settings(
    settings: Any, include: Iterable[str] = (), tool_choice: Json = None, *, is_custom_model: bool = False
) -> dict[str, Json]:
    """Convert model settings of the SDK to fields of a request, without settings that are None.

    include:      the `include` values that the agent's tools need
    tool_choice:  the `tool_choice` that the SDK builds from the one in `settings` and the agent's tools
    is_custom_model: the SDK makes the requests, so HTTP_SETTINGS apply

    Raises Unsupported for a setting without a field.
    """
    values = {name: value for name, value in vars(settings).items() if value is not None and not name.startswith("_")}
    fields: dict[str, Json] = {}
    for name, value in values.items():
        if name in REQUEST_FIELDS:
            fields[REQUEST_FIELDS[name]] = value
        elif name == "tool_choice":
            fields[name] = tool_choice
        elif name in SETTING_CONVERTERS:
            _merge_fields(fields, SETTING_CONVERTERS[name](value))
        elif name not in (IGNORED_SETTINGS | HTTP_SETTINGS if is_custom_model else IGNORED_SETTINGS):
            raise UnsupportedParameter("convo", f"the model setting {name}", param=name, hint=UNSUPPORTED_HINT)
    included = {
        *include,
        *(values.get("response_include") or ()),
        *((LOGPROBS_INCLUDE,) if "top_logprobs" in values else ()),
    }
    return {**fields, "include": sorted(included)} if included else fields


def convert_default_settings(
    agent: Any, include: Iterable[str], run_settings: Any = None
) -> Callable[[str], Mapping[str, Json]] | None:
    """Return the settings of an agent without its own, as a function of the requested model's name.

    The SDK gives such an agent the default settings for the model's name. Returns None if the agent has its own.

    run_settings:  those of the run, which replace the defaults
    """
    get_defaults = import_module(f"{SDK_PACKAGE}.models").get_default_model_settings
    model = getattr(agent, "model", None)
    is_named = model is None or isinstance(model, str)
    if not is_named or agent.model_settings != (get_defaults() if model is None else get_defaults(model)):
        return None
    return lambda wire_model: convert_model_settings(get_defaults(wire_model).resolve(run_settings), include)


def _convert_reasoning(reasoning: Any) -> dict[str, Json]:
    return {
        "reasoning": reasoning.model_dump(exclude_none=True) if hasattr(reasoning, "model_dump") else dict(reasoning)
    }


SETTING_CONVERTERS = {
    "reasoning": _convert_reasoning,
    "verbosity": lambda value: {"text": {"verbosity": value}},
    "extra_args": dict,
    "extra_body": dict,
}


def _merge_fields(fields: dict[str, Json], new_fields: Mapping[str, Json]) -> None:
    for name, value in new_fields.items():
        are_objects = isinstance(value, dict) and isinstance(fields.get(name), dict)
        fields[name] = {**fields[name], **value} if are_objects else value


SDK_TOKEN_FIELDS = ("input_tokens", "output_tokens", "total_tokens")
SDK_TOKEN_DETAILS = {
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}


def make_run_context(context: Context) -> Any:
    """Build the SDK's RunContextWrapper of a run."""
    return _make_context(import_module(SDK_PACKAGE).RunContextWrapper, _run_context_fields(context))


def make_tool_context(context: Context, arguments: str, agent: Any, run: SdkRun) -> Any:
    """Build the SDK's ToolContext of one call.

    arguments:  the arguments as the model wrote them
    agent:      the SDK agent that made the call
    """
    from openai.types.responses import ResponseFunctionToolCall

    item = dict(context.call or {"type": "function_call", "call_id": context.call_id, "name": context.tool})
    fields = {
        "tool_name": item.get("name"),
        "tool_call_id": context.call_id,
        "tool_arguments": arguments,
        "tool_call": ResponseFunctionToolCall.model_construct(**{**item, "arguments": arguments}),
        "agent": agent,
        "run_config": run.config or import_module(SDK_PACKAGE).RunConfig(),
    }
    return _make_context(
        import_module(f"{SDK_PACKAGE}.tool_context").ToolContext, {**_run_context_fields(context), **fields}
    )


def to_guardrail_input(items: list[Item]) -> str | list[Item]:
    """Convert the input of a run for an input guardrail: a string if it is a single text message of the user."""
    easy = [to_sdk_form(item) for item in items]
    if len(easy) == 1 and is_user_message(easy[0]) and isinstance(easy[0].get("content"), str):
        return str(easy[0]["content"])
    return easy


def _make_context(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Create a context, without the fields that an older release does not have."""
    parameters = inspect.signature(kind).parameters
    sdk_context = kind(**{name: value for name, value in fields.items() if name in parameters})

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        description = "approve_tool and reject_tool of a run context"
        sdk_context.convo_refusal = Unsupported(
            "convo", description, hint="approve or reject with convo resume, or at the prompt"
        )
        raise sdk_context.convo_refusal

    sdk_context.approve_tool = sdk_context.reject_tool = refuse
    return sdk_context


def get_refusal(context: Any) -> Unsupported | None:
    """Return the Unsupported that a function raised through its context, even if the function caught it."""
    refusal = vars(context).get("convo_refusal")
    return refusal if isinstance(refusal, Unsupported) else None


def _run_context_fields(context: Context) -> dict[str, Any]:
    return {
        "context": None if context.values is NO_VALUES else context.values,
        "usage": _make_usage(context),
        "turn_input": [to_sdk_form(item) for item in context.input],
        "tool_input": context.tool_input,
    }


def _make_usage(context: Context) -> Any:
    total = import_module(SDK_PACKAGE).Usage()
    for usage in context.usages:
        total.add(_make_request_usage(usage))
    return total


def _make_request_usage(usage: Mapping[str, Json]) -> Any:
    tokens = {name: usage.get(name) or 0 for name in SDK_TOKEN_FIELDS}
    details = {name: _read_token_details(usage.get(name), fields) for name, fields in SDK_TOKEN_DETAILS.items()}
    return import_module(SDK_PACKAGE).Usage(requests=1, **tokens, **details)


def _read_token_details(details: Json, fields: tuple[str, ...]) -> dict[str, int]:
    return {name: (details or {}).get(name) or 0 for name in fields}


SDK_AGENT_FIELDS: FieldSupport = {
    "name": None,
    "handoff_description": None,
    "tools": None,
    "mcp_servers": None,
    "mcp_config": None,
    "instructions": None,
    "prompt": "a stored prompt: v1/prompts is shut down on 30 November 2026",
    "handoffs": None,
    "model": None,
    "model_settings": None,
    "input_guardrails": None,
    "output_guardrails": None,
    "output_type": None,
    "hooks": None,
    "tool_use_behavior": None,
    "reset_tool_choice": None,
}

SDK_HANDOFF_FIELDS: FieldSupport = {
    "tool_name": None,
    "tool_description": None,
    "input_json_schema": None,
    "on_invoke_handoff": None,
    "agent_name": None,
    "input_filter": None,
    "nest_handoff_history": None,
    "strict_json_schema": None,
    "is_enabled": None,
}

SDK_INPUT_GUARDRAIL_FIELDS: FieldSupport = {"guardrail_function": None, "name": None, "run_in_parallel": None}
SDK_OUTPUT_GUARDRAIL_FIELDS: FieldSupport = {"guardrail_function": None, "name": None}

OTHER_CALLERS = "callers other than the model"

SDK_TOOL_FIELDS: Mapping[str, FieldSupport] = {
    "FunctionTool": {
        "name": None,
        "description": None,
        "params_json_schema": None,
        "on_invoke_tool": None,
        "strict_json_schema": None,
        "is_enabled": None,
        "tool_input_guardrails": None,
        "tool_output_guardrails": None,
        "needs_approval": None,
        "timeout_seconds": None,
        "timeout_behavior": None,
        "timeout_error_function": None,
        "defer_loading": None,
        "custom_data_extractor": "custom data",
        "allowed_callers": OTHER_CALLERS,
        "output_json_schema": "an output schema",
    },
    "FileSearchTool": {
        "vector_store_ids": None,
        "max_num_results": None,
        "include_search_results": None,
        "ranking_options": None,
        "filters": None,
    },
    "WebSearchTool": {
        "user_location": None,
        "filters": None,
        "search_context_size": None,
        "external_web_access": None,
        "search_content_types": None,
        "image_settings": None,
    },
    "HostedMCPTool": {"tool_config": None, "on_approval_request": None},
    "CodeInterpreterTool": {"tool_config": None},
    "ImageGenerationTool": {"tool_config": None},
    "ToolSearchTool": {"description": None, "execution": None, "parameters": None},
    "ShellTool": {
        **dict.fromkeys(("executor", "name", "needs_approval", "on_approval", "environment"), None),
        "allowed_callers": OTHER_CALLERS,
    },
    "LocalShellTool": {"executor": None},
    "ApplyPatchTool": {
        **dict.fromkeys(("editor", "name", "needs_approval", "on_approval"), None),
        "custom_data_extractor": "custom data",
        "allowed_callers": OTHER_CALLERS,
    },
    "CustomTool": {
        **dict.fromkeys(("name", "description", "on_invoke_tool", "format", "needs_approval", "on_approval"), None),
        "defer_loading": "a custom tool that the model searches for",
        "custom_data_extractor": "custom data",
        "allowed_callers": OTHER_CALLERS,
    },
}
"""Tools that a run of convo can offer, by their SDK class."""

UNSUPPORTED_TOOLS: Mapping[str, str] = {
    "ComputerTool": "computer use",
    "ProgrammaticToolCallingTool": "programmatic tool calls",
}
"""Tools whose calls convo cannot perform, so they are not offered."""


def iter_sdk_classes(value: object) -> Iterator[type]:
    """Iterate over the SDK's own classes among the classes of `value`, nearest first."""
    for kind in type(value).__mro__:
        if kind.__module__.partition(".")[0] == SDK_PACKAGE:
            yield kind


def find_sdk_class(value: object) -> type | None:
    """Return the nearest SDK class of `value`; None if there is none."""
    return next(iter_sdk_classes(value), None)


def check_sdk_fields(subject: str, value: Any, field_support: FieldSupport) -> None:
    """Check that a run of convo honours all fields of `value` that are set.

    subject:  names the object in the error: "tool 'refund'"

    Raises Unsupported if an unsupported or unknown field has a value other than its default.
    """
    kind = find_sdk_class(value)
    declared = dataclasses.fields(kind) if kind is not None and dataclasses.is_dataclass(kind) else ()
    for field in declared:
        description = field_support.get(field.name, f"the field {field.name}")
        if description is None or field.name.startswith("_") or not field.init:
            continue
        if not is_unset(getattr(value, field.name, None), field):
            raise UnsupportedParameter("convo", f"{description} ({subject})", param=field.name, hint=UNSUPPORTED_HINT)


FILTER_TYPE_NAMES = ("CallModelData", "ModelInputData")


@dataclass(frozen=True)
class ForeignInputFilter:
    """An input filter of the SDK.

    agents:  the SDK's agents by their identity in the graph
    """

    function: Callable[[Any], Any]
    agents: Mapping[str, Any]

    async def __call__(
        self, items: Sequence[Item], instructions: str | None, context: Context
    ) -> tuple[list[Item], str | None]:
        """Filter the input of a model call. Raises InputFault if the function does not return a ModelInputData."""
        config = import_module(f"{SDK_PACKAGE}.run_config")
        easy = [to_sdk_form(item) for item in items]
        values = None if context.values is NO_VALUES else context.values
        data = config.ModelInputData(input=list(easy), instructions=instructions)
        result = self.function(
            config.CallModelData(model_data=data, agent=self.agents.get(context.agent), context=values)
        )
        result = await result if inspect.isawaitable(result) else result
        if not isinstance(result, config.ModelInputData):
            raise InputFault(
                "the input filter did not return a ModelInputData",
                hint="return data.model_data, or a new ModelInputData",
            )
        return [_restore_item(item, easy, items) for item in result.input], result.instructions


def is_foreign_filter(function: Callable[..., Any], *, foreign_agents: bool) -> bool:
    """Return whether a filter is written for the SDK, by its annotations.

    foreign_agents:  the run has SDK agents, so a filter without annotations counts as one
    """
    annotations = " ".join(str(annotation) for annotation in getattr(function, "__annotations__", {}).values())
    return any(name in annotations for name in FILTER_TYPE_NAMES) or (foreign_agents and not annotations)


def _restore_item(item: Any, short_items: Sequence[Item], items: Sequence[Item]) -> Any:
    """Return the original item if the filter did not change it: the filter receives a user's text in the short form."""
    return next((original for short, original in zip(short_items, items, strict=True) if short == item), item)


@dataclass(frozen=True)
class ForeignHandoffFilter:
    """An input filter of a handoff of the SDK.

    source, target:  the SDK's agents
    tool_name:       of the handoff, if it has a name of its own
    """

    function: Callable[[Any], Any]
    source: Any
    target: Any
    tool_name: str

    async def __call__(self, transcript: HandoffTranscript, context: Context) -> HandoffTranscript:
        """Filter the next agent's input. Raises InputFault if the function does not return a HandoffInputData."""
        handoffs = import_module(f"{SDK_PACKAGE}.handoffs")
        history = to_guardrail_input(list(transcript.history))
        originals = [(self._make_run_item(item), item) for item in (*transcript.before, *transcript.new)]
        before, new = originals[: len(transcript.before)], originals[len(transcript.before) :]
        result = self.function(
            handoffs.HandoffInputData(
                input_history=history if isinstance(history, str) else tuple(history),
                pre_handoff_items=tuple(run_item for run_item, _ in before),
                new_items=tuple(run_item for run_item, _ in new),
                run_context=make_run_context(context),
            )
        )
        result = await result if inspect.isawaitable(result) else result
        if not isinstance(result, handoffs.HandoffInputData):
            raise InputFault(
                "the input filter of a handoff did not return a HandoffInputData", hint="return data.clone(...)"
            )
        history = result.input_history
        items = [{"content": history, "role": "user"}] if isinstance(history, str) else history
        easy = [to_sdk_form(item) for item in transcript.history]
        new_items = result.new_items if result.input_items is None else result.input_items
        return HandoffTranscript(
            tuple(_restore_item(item, easy, transcript.history) for item in items),
            *(
                tuple(_to_input_item(run_item, originals) for run_item in part)
                for part in (result.pre_handoff_items, new_items)
            ),
        )

    def _make_run_item(self, item: Item) -> Any:
        """Return a RunItem for an item; the call and the output of a handoff have classes of their own."""
        items, kind = import_module(f"{SDK_PACKAGE}.items"), str(item.get("type") or "message")
        name, output = str(item.get("name")), format_handoff_output(self.target.name)
        is_handoff = name == self.tool_name or name.startswith("transfer_to_") or item.get("output") == output
        if kind == "function_call_output" and is_handoff:
            return items.HandoffOutputItem(
                agent=self.source, raw_item=dict(item), source_agent=self.source, target_agent=self.target
            )
        if kind.endswith("_output"):
            return items.ToolCallOutputItem(agent=self.source, raw_item=dict(item), output=item.get("output"))
        class_name = "HandoffCallItem" if kind == "function_call" and is_handoff else RUN_ITEM_CLASSES.get(kind)
        return getattr(items, class_name or "ToolCallItem")(agent=self.source, raw_item=_parse_output_item(item))


RUN_ITEM_CLASSES = {
    "message": "MessageOutputItem",
    "reasoning": "ReasoningItem",
    "compaction": "CompactionItem",
    "mcp_list_tools": "MCPListToolsItem",
    "mcp_approval_request": "MCPApprovalRequestItem",
    "mcp_approval_response": "MCPApprovalResponseItem",
    "tool_search_call": "ToolSearchCallItem",
}
"""The SDK's class for an item of a type; ToolCallItem for another one."""


def _to_input_item(run_item: Any, originals: Sequence[tuple[Any, Item]]) -> Item:
    """Return a RunItem as input: the item that it was made from, unless the filter made it."""
    return next((item for one, item in originals if one is run_item), None) or dict(run_item.to_input_item())


async def call_session_input(function: Callable[..., Any], stored: list[Item], new: list[Item]) -> Any:
    """Call a `session_input_callback` of the SDK, with the user's text in its short form."""
    items = [*stored, *new]
    easy = [to_sdk_form(item) for item in items]
    result = function(easy[: len(stored)], easy[len(stored) :])
    result = await result if inspect.isawaitable(result) else result
    return [_restore_item(item, easy, items) for item in result] if isinstance(result, list) else result


def make_rejection_formatter(run: SdkRun) -> Callable[[Any, Context], Awaitable[str | None]] | None:
    """Return the `tool_error_formatter` of a RunConfig for rejected calls; None without one."""
    formatter = run.get("tool_error_formatter")
    if formatter is None:
        return None

    async def format_rejection(call: Any, context: Context) -> str | None:
        arguments = import_module(f"{SDK_PACKAGE}.run_config").ToolErrorFormatterArgs(
            kind="approval_rejected",
            tool_type="function",
            tool_name=call.tool.name,
            call_id=call.id,
            default_message=NOT_APPROVED,
            run_context=make_run_context(context),
        )
        message: str | None = formatter(arguments)
        return await message if inspect.isawaitable(message) else message

    return format_rejection
