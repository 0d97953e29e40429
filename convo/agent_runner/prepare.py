"""Prepare one model call of a run: agent settings, tools, handoffs, and the input.

Everything is evaluated again before each call: instructions may be a function, a tool may be
disabled. A client-owned history may be sent in another form than it is stored. Under an owner
that stores the history, an input filter sees only the unconfirmed items and must keep every tool output.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from convo.agent_runner.config import ModelInput, ModelRoute, RunConfig
from convo.agent_runner.persistence import ModelView, RunCheckpoint, RunRepository, make_model_view
from convo.agent_runner.user_code import call_user_code, call_user_predicate
from convo.agents.agent import Agent, Handoff
from convo.agents.graph import Graph
from convo.agents.handoff_history import HandoffTranscript, build_handoff_input, nest_handoff_history
from convo.agents.handoffs import HandoffDefaults, HandoffPlan, HandoffTool, build_handoff_tools, plan_handoff
from convo.agents.sdk import ForeignInputFilter
from convo.chat.turn import InputOverride, RequestOptions
from convo.endpoints.base import Endpoint
from convo.errors import InputFault, NotFound, RunFailed, WrongOwner
from convo.history.items import Item, Json, get_call_id, is_client_output, item_type
from convo.history.records import Link
from convo.history.tree import Path
from convo.runs.state import CallModel, ModelResponded, PrepareHandoff, Run
from convo.strategies.requests import drop_superseded_outputs, newest_sendable_items
from convo.strategies.state import ConversationState, RequestInput
from convo.tools.tool import Context, Hosted, Tool, Toolbox, definitions, toolbox


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One model call of a run: the options, the endpoint, and the tools and handoffs that it offers."""

    asking: RequestOptions
    endpoint: Endpoint
    tools: Toolbox
    handoffs: Mapping[str, str]

    def answered(self, output: tuple[Any, ...]) -> ModelResponded:
        """Return the event for a response to this request."""
        return ModelResponded(output, self.tools, self.handoffs)


async def build_agent_request(
    graph: Graph, ask: CallModel, base: ModelRoute, conduct: RunConfig, context: Context, session: str | None = None
) -> AgentRequest:
    """Build the request of the model call `effect`.

    base_route:  the route of the chat
    context:     for the agent's functions
    session_id:  None when nothing is sent
    Raises RunFailed when a function of the agent raised, and InputFault for two tools of one name.
    """
    agent = graph[ask.agent]
    tools = [one for one in agent.tools if await _is_enabled(one, context)]
    ways = [offer for offer in build_handoff_tools(graph, ask.agent) if await _is_enabled(offer.way, context)]
    route = _select_route(agent, base, conduct)
    settings = agent.settings_for(route.asking.wire_model)
    parameters = _build_parameters(agent, settings, ask, route.asking.parameters, tools, ways)
    if agent.cache_key and session and _is_openai_url(route.endpoint.scope.url):
        parameters.setdefault("prompt_cache_key", make_session_cache_key(session))
    asking = replace(
        route.asking,
        instructions=await _resolve_instructions(agent, context, base.asking),
        parameters=parameters,
        store=bool(settings.get("store", route.asking.store)),
    )
    functions = toolbox(one for one in tools if isinstance(one, Tool))
    return AgentRequest(asking, route.endpoint, functions, {offer.name: offer.to for offer in ways})


def make_session_cache_key(session: str) -> str:
    """Return the `prompt_cache_key` that the Agents SDK generates for the requests of a session."""
    return f"agents-sdk:session:{sha256(session.encode()).hexdigest()[:32]}"


def _is_openai_url(url: str) -> bool:
    """Return whether the Agents SDK treats a base URL as OpenAI's own."""
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.hostname == "api.openai.com"


def _select_route(agent: Agent, base: ModelRoute, conduct: RunConfig) -> ModelRoute:
    if agent.model is None or conduct.route is None or agent.model in (base.asking.model, base.asking.wire_model):
        return base
    return conduct.route(agent.model)


async def _is_enabled(one: Any, context: Context) -> bool:
    """Return whether a tool or handoff is offered in this call; a hosted tool always is."""
    enabled = getattr(one, "enabled", True)
    if not callable(enabled):
        return bool(enabled)
    return await call_user_predicate("what says whether a tool is on", "tool_failed", enabled, context)


async def _resolve_instructions(agent: Agent, context: Context, asking: RequestOptions) -> str | None:
    """Return the agent's instructions; without any, those of the chat."""
    said = agent.instructions
    if callable(said):
        said = await call_user_code(f"the instructions of agent {agent.name!r}", "instructions", said, context)
        if not isinstance(said, str | None):
            raise RunFailed(f"the instructions of agent {agent.name!r} are no text", code="instructions")
    return said if said is not None else asking.instructions


def _build_parameters(
    agent: Agent,
    settings: Mapping[str, Json],
    ask: CallModel,
    parameters: Mapping[str, Json],
    tools: list[Tool | Hosted],
    ways: list[HandoffTool],
) -> dict[str, Json]:
    """Return the fields of the request: the chat's, overridden by the agent's."""
    settings = {name: value for name, value in settings.items() if name != "store"}
    if ask.free:
        settings.pop("tool_choice", None)
    fields = {**parameters, **settings}
    offered = [*definitions(tools), *(offer.definition for offer in ways)]
    if offered:
        fields["tools"] = offered
    else:
        fields.pop("parallel_tool_calls", None)  # servers refuse it without tools
    if agent.output is not None:
        fields["text"] = {**(fields.get("text") or {}), "format": agent.output.format}
    return fields


INPUT_FILTER_CODE = "input_filter"


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request of a run before it is sent; `request_input` is the part of the conversation in it."""

    asking: RequestOptions
    endpoint: Endpoint
    sent: RequestInput


@dataclass(frozen=True, slots=True)
class RunInput:
    """New input: the items to store, and the model's input in place of the whole conversation."""

    said: tuple[Item, ...]
    seen: tuple[Item, ...] | None = None

    def view(self, path: Path) -> ModelView | None:
        """Return the view of the model's input, if it differs. Raises the errors of `make_model_view`."""
        return None if self.seen is None else make_model_view(self.seen, path)


async def build_run_input(held: ConversationState, items: Sequence[Item], conduct: RunConfig) -> RunInput:
    """Build the input of a new run, by the session limit and the input callback.

    Raises RunFailed when the callback raised, and InputFault when it did not return a list of items.
    """
    if held.remembers:
        return RunInput(tuple(items))
    known = held.path.items
    older = newest_sendable_items(known, conduct.session_limit)
    if conduct.session_input is None:
        changed = len(older) != len(known)
        return RunInput(tuple(items), (*older, *items) if changed else None)
    given = copy.deepcopy((older, list(items)))
    made = await call_user_code("the session's input callback", "session_input", conduct.session_input, *given)
    if not _is_item_list(made):
        raise InputFault("a session's input callback did not return a list of items", hint="return a list of items")
    return RunInput(tuple(_select_new_items(made, older, given[1])), tuple(made))


async def prepare_agent_request(
    ask: CallModel, run: Run, keeper: RunRepository, base: ModelRoute, conduct: RunConfig, context: Context
) -> tuple[AgentRequest, InputOverride | None]:
    """Prepare the model call `effect`: its request, and the model's input if it replaces the conversation.

    context:  for the agent's functions
    Raises RunFailed, InputFault and WrongOwner when user code raised or its result may not be sent.
    """
    how = await build_agent_request(run.graph, ask, base, conduct, context, keeper.chat.record.session.id)
    held = keeper.chat.held
    view = _drop_foreign_reasoning(how, held, keeper.view, keeper.chat.record.last)
    if view is not keeper.view:
        keeper.standing = replace(keeper.standing, view=view)
    seen = _make_input_override(how, held, view)
    if conduct.input_filter is None:
        return how, seen
    if keeper.standing.filtered and keeper.standing.filtered[0] == held.path.head:
        return _set_instructions(how, keeper.standing.filtered[1]), seen
    sent = seen.sent if seen else how.asking.sent(held)
    how, made = await _apply_input_filter(how, sent, held, conduct.input_filter, context)
    if made is sent:
        return how, seen
    if not held.remembers:
        return how, InputOverride(Path(held.path.root).grow(made.items), made)
    path = held.path.upto(held.mark).grow(made.items)
    stands = replace(keeper.standing, turn=path.head, filtered=(path.head, how.asking.instructions))
    await keeper.keep(run, standing=stands, held=replace(held, path=path))
    return how, seen


async def preview_agent_request(
    graph: Graph,
    ask: CallModel,
    held: ConversationState,
    view: ModelView | None,
    last: Link | None,
    base: ModelRoute,
    conduct: RunConfig,
    session: str,
) -> PreparedRequest:
    """Return the request of the model call `effect` without storing anything.

    last_link:  the link that the owner confirmed last
    Raises the errors of `prepare_agent_request`.
    """
    context = Context(ask.agent, "", "", conduct.values, input=held.path.items)
    how = await build_agent_request(graph, ask, base, conduct, context, session)
    seen = _make_input_override(how, held, _drop_foreign_reasoning(how, held, view, last))
    sent = seen.sent if seen else how.asking.sent(held)
    if conduct.input_filter is not None:
        how, sent = await _apply_input_filter(how, sent, held, conduct.input_filter, context)
    return PreparedRequest(how.asking, how.endpoint, sent)


def _drop_foreign_reasoning(
    how: AgentRequest, held: ConversationState, view: ModelView | None, last: Link | None
) -> ModelView | None:
    """Return the view without reasoning items when the model changed: only the model that wrote them accepts them."""
    if held.remembers or last is None or last.model == how.asking.model:
        return view
    items = view.path.items if view else held.path.items
    left = [item for item in items if item_type(item) != "reasoning"]
    return make_model_view(left, held.path) if len(left) < len(items) else view


def _make_input_override(how: AgentRequest, held: ConversationState, view: ModelView | None) -> InputOverride | None:
    if view is None:
        return None
    return InputOverride(view.path, how.asking.sent(replace(held, path=view.path, mark=view.path.root)))


async def _apply_input_filter(
    how: AgentRequest, sent: RequestInput, held: ConversationState, function: Any, context: Context
) -> tuple[AgentRequest, RequestInput]:
    """Apply the input filter; returns `request_input` itself when the filter leaves the items unchanged."""
    given = ModelInput(copy.deepcopy(list(sent.items)), how.asking.instructions)
    if isinstance(function, ForeignInputFilter):
        parts = given.items, given.instructions, context
        made = ModelInput(*await call_user_code("the input filter", INPUT_FILTER_CODE, function, *parts))
    else:
        made = await call_user_code("the input filter", INPUT_FILTER_CODE, function, given)
    if not isinstance(made, ModelInput) or not _is_item_list(made.items):
        raise InputFault("the input filter did not return a ModelInput", hint="return ModelInput(items, instructions)")
    how, items = _set_instructions(how, made.instructions), tuple(drop_superseded_outputs(made.items))
    if held.remembers:
        _check_outputs_present(sent.items, items)
    return how, sent if items == sent.items else RequestInput(items, len(items), sent.state)


def _check_outputs_present(wanted: Sequence[Item], items: Sequence[Item]) -> None:
    """Raise WrongOwner when the filter removed a tool output that the owner needs."""
    left = {get_call_id(item) for item in items if is_client_output(item)}
    for item in wanted:
        if is_client_output(item) and get_call_id(item) not in left:
            raise WrongOwner(
                f"the input filter drops the output of call {get_call_id(item)}, and the endpoint waits for it",
                hint="let outputs pass, or own the history with --session or --replay",
            )


def _set_instructions(how: AgentRequest, instructions: str | None) -> AgentRequest:
    return replace(how, asking=replace(how.asking, instructions=instructions))


def _is_item_list(made: object) -> bool:
    return isinstance(made, list) and all(isinstance(item, dict) for item in made)


def _select_new_items(made: Sequence[Item], older: Sequence[Item], new: Sequence[Item]) -> list[Item]:
    """Return the new items in a callback's result: the input itself, and items that equal no stored one."""
    left, kept = list(older), []
    for item in made:
        if not any(item is one for one in new) and item in left:
            left.remove(item)
        else:
            kept.append(item)
    return kept


def resolve_handoff(graph: Graph, effect: PrepareHandoff) -> Handoff:
    """Return the handoff that a call requests. Raises NotFound."""
    name = effect.call.lookup[-1]
    for offer in build_handoff_tools(graph, effect.source):
        if (offer.name, offer.to) == (name, effect.target):
            return offer.way
    raise NotFound("handoff", name, hint=f"agent {effect.source!r} had it when the run was kept")


def plan_handoff_input(
    graph: Graph, effect: PrepareHandoff, habits: HandoffDefaults, *, remembers: bool
) -> HandoffPlan:
    """Return the plan of a handoff. Raises WrongOwner for a filter with a server-side history."""
    names = graph[effect.source].name, graph[effect.target].name
    return plan_handoff(resolve_handoff(graph, effect), habits, remembers=remembers, names=names)


async def call_on_handoff(way: Handoff, effect: PrepareHandoff, context: Context) -> None:
    """Call the handoff's own function with the arguments of the call. Raises RunFailed."""
    if way.taken is not None:
        what = f"the handoff to {effect.target!r}"
        await call_user_code(what, "handoff", way.taken, context, effect.call.arguments, thread=True)


async def build_handoff_view(
    todo: HandoffPlan, habits: HandoffDefaults, standing: RunCheckpoint, path: Path
) -> ModelView | None:
    """Return the next agent's input in place of the conversation at `path`; None: the conversation itself.

    Raises RunFailed when a filter or mapper raised, and InputFault for an invalid result.
    """
    if todo.filter is None and not todo.nest:
        return standing.view
    transcript = _build_transcript(standing, path)
    if todo.filter is not None:
        made = await call_user_code("a handoff's input filter", "handoff", todo.filter, transcript, thread=True)
        return make_model_view(build_handoff_input(made), path)
    mapper = habits.mapper
    if mapper is None:
        return make_model_view(nest_handoff_history(transcript, markers=habits.markers), path)
    items = await call_user_code(
        "the history mapper", "handoff", nest_handoff_history, transcript, mapper, habits.markers, thread=True
    )
    return make_model_view(items, path)


def _build_transcript(standing: RunCheckpoint, path: Path) -> HandoffTranscript:
    """Return a copy of the conversation in three parts; a copy, since user code may change its arguments."""
    new = len(path) - path.place(standing.turn)
    seen, begun = path.items, path.place(standing.begun)
    if standing.view:
        view = standing.view.behind(path)
        seen, begun = view.path.items, view.history
    split = max(len(seen) - new, begun)
    return HandoffTranscript(*copy.deepcopy((seen[:begun], seen[begun:split], seen[split:])))
