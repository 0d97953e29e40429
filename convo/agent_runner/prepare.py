"""Prepare one model call of a run: agent settings, tools, handoffs, and the input.

Everything is evaluated again before each call: instructions may be a function, a tool may be
disabled. A client-owned history may be sent in another form than it is stored. Under an owner
that stores the history, an input filter sees only the unconfirmed items and must keep every tool output.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from convo.agent_runner.config import ModelInput, ModelRoute, RunConfig
from convo.agent_runner.persistence import ModelView, RunCheckpoint, RunRepository, make_model_view
from convo.agent_runner.user_code import call_user_code, call_user_predicate
from convo.agents.agent import Agent, Handoff
from convo.agents.graph import AgentTool, Graph
from convo.agents.handoff_history import HandoffTranscript, build_handoff_input, nest_handoff_history, to_sdk_form
from convo.agents.handoffs import HandoffDefaults, HandoffPlan, HandoffTool, build_handoff_tools, plan_handoff
from convo.agents.sdk import ForeignHandoffFilter, ForeignInputFilter
from convo.chat.turn import InputOverride, RequestOptions
from convo.config.request_settings import get_request_field
from convo.endpoints.base import Endpoint
from convo.errors import InputFault, NotFound, RunFailed, WrongOwner
from convo.history.items import Item, Json, get_call_id, is_client_output, item_type
from convo.history.records import EMBEDDED_SCOPE, Link
from convo.history.tree import Path
from convo.runs.state import CallModel, ModelResponded, PrepareHandoff, Run
from convo.strategies.requests import drop_superseded_outputs, newest_sendable_items
from convo.strategies.strategy import ConversationState, RequestInput
from convo.tools.tool import Context, Hosted, Tool, Toolbox, tool_definitions, toolbox


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One model call of a run: the options, the endpoint, and the tools and handoffs that it offers."""

    options: RequestOptions
    endpoint: Endpoint
    tools: Toolbox
    handoffs: Mapping[str, str]

    def make_response_event(self, output: tuple[Any, ...]) -> ModelResponded:
        """Return the event for a response to this request."""
        return ModelResponded(output, self.tools, self.handoffs)


async def build_agent_request(
    graph: Graph,
    effect: CallModel,
    base_route: ModelRoute,
    config: RunConfig,
    context: Context,
    session_id: str | None = None,
) -> AgentRequest:
    """Build the request of the model call `effect`.

    base_route:  the route of the chat
    context:     for the agent's functions
    session_id:  None when nothing is sent
    Raises RunFailed when a function of the agent raised, and InputFault for two tools of one name.
    """
    agent = graph[effect.agent]
    tools: list[Tool | Hosted] = [*await list_server_tools(agent, context)]  # first, as in the Agents SDK
    tools += [tool for tool in agent.tools if await _is_enabled(tool, context)]
    handoff_tools = [
        offer for offer in build_handoff_tools(graph, effect.agent) if await _is_enabled(offer.handoff, context)
    ]
    route = _select_route(agent, base_route, config)
    settings = agent.settings_for(route.options.wire_model)
    instructions = await _resolve_instructions(agent, context, base_route.options)
    is_responses_request_of_sdk = agent.follows_sdk and route.endpoint.scope != EMBEDDED_SCOPE
    if is_responses_request_of_sdk:
        settings = {name: value for name, value in settings.items() if name not in CHAT_MODEL_SETTINGS}
    parameters = _build_parameters(agent, settings, effect, route.options.parameters, tools, handoff_tools)
    if is_responses_request_of_sdk and instructions == "":
        parameters["instructions"] = ""
    if agent.follows_sdk and session_id and _is_openai_url(route.endpoint.scope.url):
        parameters.setdefault("prompt_cache_key", make_session_cache_key(session_id))
    guard, has_one_agent = route.options.prefix_guard, len(graph.agents) == 1
    options = replace(
        route.options,
        # The SDK does not ask for diagnostics.
        cache_diagnostics=None if is_responses_request_of_sdk else route.options.cache_diagnostics,
        prefix_guard=guard and guard._replace(has_hint=has_one_agent),
        appendable=route.options.appendable if has_one_agent else (),
        field_sources={
            field: source
            for field, source in route.options.field_sources.items()
            if get_request_field(parameters, field) == get_request_field(route.options.parameters, field)
        },
        instructions=instructions,
        parameters=parameters,
        store=bool(settings.get("store", route.options.store)),
    )
    functions = toolbox(tool for tool in tools if isinstance(tool, Tool))
    return AgentRequest(options, route.endpoint, functions, {offer.name: offer.target for offer in handoff_tools})


CHAT_MODEL_SETTINGS = ("frequency_penalty", "presence_penalty")
"""Settings that the Agents SDK sends to chat models alone."""


async def list_server_tools(agent: Agent, context: Context) -> Sequence[Tool]:
    """List the tools of the agent's MCP servers. Raises EndpointFault, and RunFailed for any other failure."""
    if agent.servers is None:
        return ()
    tools: Sequence[Tool] = await call_user_code(
        f"an MCP server of agent {agent.name!r}", "mcp_server", agent.servers.list_tools, context
    )
    return tools


async def open_tool_servers(graph: Graph, values: Mapping[str, Json], exit_stack: AsyncExitStack) -> Graph:
    """Return the graph with the tools of its MCP servers, which stay connected until `exit_stack` is closed.

    values:  context values of the application

    Raises the errors of `list_server_tools`.
    """
    agents = {}
    for identity, agent in graph.agents.items():
        tools = [
            replace(tool, graph=await open_tool_servers(tool.graph, values, exit_stack))
            if isinstance(tool, AgentTool)
            else tool
            for tool in agent.tools
        ]
        if agent.servers is not None:
            exit_stack.push_async_callback(agent.servers.aclose)
        server_tools = tuple(await list_server_tools(agent, Context(identity, "", "", values)))
        agents[identity] = replace(agent, tools=tuple(tools), server_tools=server_tools)
    return replace(graph, agents=agents)


def make_session_cache_key(session_id: str) -> str:
    """Return the `prompt_cache_key` that the Agents SDK generates for the requests of a session."""
    return f"agents-sdk:session:{sha256(session_id.encode()).hexdigest()[:32]}"


def _is_openai_url(url: str) -> bool:
    """Return whether the Agents SDK treats a base URL as OpenAI's own."""
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.hostname == "api.openai.com"


def _select_route(agent: Agent, base_route: ModelRoute, config: RunConfig) -> ModelRoute:
    if (
        agent.model is None
        or config.resolve_model is None
        or agent.model in (base_route.options.model, base_route.options.wire_model)
    ):
        return base_route
    return config.resolve_model(agent.model)


async def _is_enabled(tool_or_handoff: Any, context: Context) -> bool:
    """Return whether a tool or handoff is offered in this call; a hosted tool always is."""
    enabled = getattr(tool_or_handoff, "enabled", True)
    if not callable(enabled):
        return bool(enabled)
    return await call_user_predicate("the enabled rule of a tool", "tool_failed", enabled, context)


async def _resolve_instructions(agent: Agent, context: Context, options: RequestOptions) -> str | None:
    """Return the agent's instructions; without any, those of the chat."""
    instructions = agent.instructions
    if callable(instructions):
        instructions = await call_user_code(
            f"the instructions of agent {agent.name!r}", "instructions", instructions, context
        )
        if not isinstance(instructions, str | None):
            raise RunFailed(f"the instructions of agent {agent.name!r} are not text", code="instructions")
    return instructions if instructions is not None else options.instructions


def _build_parameters(
    agent: Agent,
    settings: Mapping[str, Json],
    effect: CallModel,
    parameters: Mapping[str, Json],
    tools: list[Tool | Hosted],
    handoff_offers: list[HandoffTool],
) -> dict[str, Json]:
    """Return the fields of the request: the chat's, overridden by the agent's; `tools` contains the tools of both."""
    settings = {name: value for name, value in settings.items() if name != "store"}
    if effect.omit_tool_choice:
        settings.pop("tool_choice", None)
    fields = {**parameters, **settings}
    definitions = [*tool_definitions(tools), *(offer.definition for offer in handoff_offers)]
    if definitions:
        fields["tools"] = [*(fields.get("tools") or ()), *definitions]
    else:
        fields.pop("parallel_tool_calls", None)  # servers refuse it without tools
    if agent.output is not None:
        fields["text"] = {**(fields.get("text") or {}), "format": agent.output.format}
    return fields


INPUT_FILTER_CODE = "input_filter"


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request of a run before it is sent.

    request_input:  the part of the conversation in it
    input_path:     the path of the model's input
    """

    options: RequestOptions
    endpoint: Endpoint
    request_input: RequestInput
    input_path: Path


@dataclass(frozen=True, slots=True)
class RunInput:
    """New input: the items to store, and the model's input in place of the whole conversation."""

    new_items: tuple[Item, ...]
    model_items: tuple[Item, ...] | None = None

    def make_view(self, path: Path) -> ModelView | None:
        """Return the view of the model's input, if it differs. Raises the errors of `make_model_view`."""
        return None if self.model_items is None else make_model_view(self.model_items, path)


async def build_run_input(state: ConversationState, items: Sequence[Item], config: RunConfig) -> RunInput:
    """Build the input of a new run, by the session limit and the input callback.

    Raises RunFailed when the callback raised, and InputFault when it did not return a list of items.
    """
    if state.is_server_side:
        return RunInput(tuple(items))
    stored_items = state.path.items
    earlier_items = newest_sendable_items(stored_items, config.session_limit)
    if config.session_input_callback is None:
        is_limited = len(earlier_items) != len(stored_items)
        return RunInput(tuple(items), (*earlier_items, *items) if is_limited else None)
    arguments = copy.deepcopy((earlier_items, list(items)))
    result = await call_user_code(
        "the session input callback", "session_input", config.session_input_callback, *arguments
    )
    if not _is_item_list(result):
        raise InputFault("the session input callback did not return a list of items", hint="return a list of items")
    return RunInput(tuple(_select_new_items(result, earlier_items, arguments[1])), tuple(result))


async def prepare_agent_request(
    effect: CallModel, run: Run, repository: RunRepository, base_route: ModelRoute, config: RunConfig, context: Context
) -> tuple[AgentRequest, InputOverride | None]:
    """Prepare the model call `effect`: its request, and the model's input if it replaces the conversation.

    context:  for the agent's functions
    Raises RunFailed, InputFault and WrongOwner when user code raised or its result may not be sent.
    """
    agent_request = await build_agent_request(
        run.graph, effect, base_route, config, context, repository.chat.record.session.id
    )
    record = repository.chat.record
    view = _drop_foreign_reasoning(agent_request, record.state, repository.view, record.last_link)
    if view is not repository.view:
        repository.checkpoint = replace(repository.checkpoint, view=view)
    agent_request, state, view = _append_kept_items(agent_request, record.state, view, record.last_link)
    if state is not record.state:
        await repository.save(run, state=state)
    input_override = _make_input_override(agent_request, state, view)
    if config.input_filter is None:
        return agent_request, input_override
    # The request failed, or the process was killed, after the filter: these items are its output already.
    if repository.checkpoint.filtered_input and repository.checkpoint.filtered_input[0] == state.path.head:
        return _set_instructions(agent_request, repository.checkpoint.filtered_input[1]), input_override
    request_input = input_override.request_input if input_override else agent_request.options.build_input(state)
    agent_request, filtered_input = await _apply_input_filter(
        agent_request, request_input, state, config.input_filter, context
    )
    if filtered_input is request_input:
        return agent_request, input_override
    if not state.is_server_side:
        return agent_request, InputOverride(Path(state.path.root).append(filtered_input.items), filtered_input)
    path = state.path.up_to(state.confirmed_head).append(filtered_input.items)
    checkpoint = replace(
        repository.checkpoint, request_head=path.head, filtered_input=(path.head, agent_request.options.instructions)
    )
    await repository.save(run, checkpoint=checkpoint, state=replace(state, path=path))
    return agent_request, input_override


async def preview_agent_request(
    graph: Graph,
    effect: CallModel,
    state: ConversationState,
    view: ModelView | None,
    last_link: Link | None,
    base_route: ModelRoute,
    config: RunConfig,
    session_id: str,
) -> PreparedRequest:
    """Return the request of the model call `effect` without storing anything.

    last_link:  the link that the owner confirmed last
    Raises the errors of `prepare_agent_request`.
    """
    context = Context(effect.agent, "", "", config.values, input=tuple(state.path.items))
    agent_request = await build_agent_request(graph, effect, base_route, config, context, session_id)
    view = _drop_foreign_reasoning(agent_request, state, view, last_link)
    agent_request, state, view = _append_kept_items(agent_request, state, view, last_link)
    input_override = _make_input_override(agent_request, state, view)
    request_input = input_override.request_input if input_override else agent_request.options.build_input(state)
    path = input_override.path if input_override else state.path
    if config.input_filter is not None:
        agent_request, filtered_input = await _apply_input_filter(
            agent_request, request_input, state, config.input_filter, context
        )
        if filtered_input is not request_input:
            kept_path = state.path.up_to(state.confirmed_head) if state.is_server_side else Path(path.root)
            request_input, path = filtered_input, kept_path.append(filtered_input.items)
    return PreparedRequest(agent_request.options, agent_request.endpoint, request_input, path)


def _append_kept_items(
    agent_request: AgentRequest, state: ConversationState, view: ModelView | None, last_link: Link | None
) -> tuple[AgentRequest, ConversationState, ModelView | None]:
    """Append the items that keep the prefix if the agent changed since the last request."""
    options, path = agent_request.options, view.path if view else state.path
    if (kept := options.keep_prefix(path, last_link)) and kept.items:
        state = replace(state, path=state.path.append(kept.items))
        view = view.extend_to(state.path) if view else None
        path = path.append(kept.items)
    return replace(agent_request, options=options.with_kept_prefix(path, last_link)), state, view


def _drop_foreign_reasoning(
    agent_request: AgentRequest, state: ConversationState, view: ModelView | None, last_link: Link | None
) -> ModelView | None:
    """Return the view without reasoning items when the model changed: only the model that wrote them accepts them."""
    if state.is_server_side or last_link is None or last_link.model == agent_request.options.model:
        return view
    items = view.path.items if view else state.path.items
    remaining = [item for item in items if item_type(item) != "reasoning"]
    return make_model_view(remaining, state.path) if len(remaining) < len(items) else view


def _make_input_override(
    agent_request: AgentRequest, state: ConversationState, view: ModelView | None
) -> InputOverride | None:
    if view is None:
        return None
    return InputOverride(
        view.path, agent_request.options.build_input(replace(state, path=view.path, confirmed_head=view.path.root))
    )


async def _apply_input_filter(
    agent_request: AgentRequest, request_input: RequestInput, state: ConversationState, function: Any, context: Context
) -> tuple[AgentRequest, RequestInput]:
    """Apply the input filter; returns `request_input` itself when the filter leaves the items unchanged."""
    model_input = ModelInput(copy.deepcopy(list(request_input.items)), agent_request.options.instructions)
    if isinstance(function, ForeignInputFilter):
        arguments = model_input.items, model_input.instructions, context
        result = ModelInput(*await call_user_code("the input filter", INPUT_FILTER_CODE, function, *arguments))
    else:
        result = await call_user_code("the input filter", INPUT_FILTER_CODE, function, model_input)
    if not isinstance(result, ModelInput) or not _is_item_list(result.items):
        raise InputFault("the input filter did not return a ModelInput", hint="return ModelInput(items, instructions)")
    agent_request, items = (
        _set_instructions(agent_request, result.instructions),
        tuple(drop_superseded_outputs(result.items)),
    )
    if state.is_server_side:
        _check_outputs_present(request_input.items, items)
    return agent_request, request_input if items == request_input.items else RequestInput(
        items, len(items), request_input.state_fields
    )


def _check_outputs_present(sent_items: Sequence[Item], filtered_items: Sequence[Item]) -> None:
    """Raise WrongOwner when the filter removed a tool output that the owner needs."""
    remaining_ids = {get_call_id(item) for item in filtered_items if is_client_output(item)}
    for item in sent_items:
        if is_client_output(item) and get_call_id(item) not in remaining_ids:
            raise WrongOwner(
                f"the input filter removes the output of call {get_call_id(item)}, which the endpoint needs",
                hint="keep tool outputs, or keep the history locally with --session or --replay",
            )


def _set_instructions(agent_request: AgentRequest, instructions: str | None) -> AgentRequest:
    return replace(agent_request, options=replace(agent_request.options, instructions=instructions))


def _is_item_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _select_new_items(
    returned_items: Sequence[Item], stored_items: Sequence[Item], new_items: Sequence[Item]
) -> list[Item]:
    """Return the new items in a callback's result: the input itself, and items that equal no stored one."""
    unmatched, selected = list(stored_items), []
    for item in returned_items:
        # By identity first: a new message may equal a stored one, and is new all the same.
        if not any(item is new_item for new_item in new_items) and item in unmatched:
            unmatched.remove(item)
        else:
            selected.append(item)
    return selected


def resolve_handoff(graph: Graph, effect: PrepareHandoff) -> Handoff:
    """Return the handoff that a call requests. Raises NotFound."""
    name = effect.call.lookup[-1]
    for offer in build_handoff_tools(graph, effect.source):
        if (offer.name, offer.target) == (name, effect.target):
            return offer.handoff
    raise NotFound("handoff", name, hint=f"add it: agent {effect.source!r} had it when the run was stored")


def plan_handoff_input(
    graph: Graph, effect: PrepareHandoff, handoff_defaults: HandoffDefaults, *, is_server_history: bool
) -> HandoffPlan:
    """Return the plan of a handoff. Raises WrongOwner for a filter with a server-side history."""
    names = graph[effect.source].name, graph[effect.target].name
    return plan_handoff(
        resolve_handoff(graph, effect), handoff_defaults, is_server_history=is_server_history, agent_names=names
    )


async def call_on_handoff(handoff: Handoff, effect: PrepareHandoff, context: Context) -> None:
    """Call the handoff's own function with the arguments of the call. Raises RunFailed."""
    if handoff.taken is not None:
        description = f"the handoff to {effect.target!r}"
        await call_user_code(description, "handoff", handoff.taken, context, effect.call.arguments, in_thread=True)


async def build_handoff_view(
    plan: HandoffPlan, handoff_defaults: HandoffDefaults, checkpoint: RunCheckpoint, path: Path, context: Context
) -> ModelView | None:
    """Return the next agent's input in place of the conversation at `path`; None: the conversation itself.

    Raises RunFailed when a filter or mapper raised, and InputFault for an invalid result.
    """
    if plan.filter is None and not plan.nest:
        return checkpoint.view
    transcript = _build_transcript(checkpoint, path)
    if plan.filter is not None:
        arguments = (transcript, context) if isinstance(plan.filter, ForeignHandoffFilter) else (transcript,)
        result = await call_user_code("a handoff's input filter", "handoff", plan.filter, *arguments, in_thread=True)
        return make_model_view(build_handoff_input(result), path)
    parts = (transcript.history, transcript.before, transcript.new)
    transcript = HandoffTranscript(*(tuple(map(to_sdk_form, items)) for items in parts))
    mapper = handoff_defaults.mapper
    if mapper is None:
        return make_model_view(nest_handoff_history(transcript, markers=handoff_defaults.markers), path)
    items = await call_user_code(
        "the history mapper",
        "handoff",
        nest_handoff_history,
        transcript,
        mapper,
        handoff_defaults.markers,
        in_thread=True,
    )
    return make_model_view(items, path)


def _build_transcript(checkpoint: RunCheckpoint, path: Path) -> HandoffTranscript:
    """Return a copy of the conversation in three parts; a copy, since user code may change its arguments."""
    new_count = len(path) - path.depth(checkpoint.request_head)
    items, initial_count = path.items, path.depth(checkpoint.input_head)
    if checkpoint.view:
        view = checkpoint.view.extend_to(path)
        items, initial_count = view.path.items, view.initial_count
    split = max(len(items) - new_count, initial_count)
    return HandoffTranscript(*copy.deepcopy((items[:initial_count], items[initial_count:split], items[split:])))
