"""The next request of a conversation, and requests that were sent, rebuilt.

Both are built by the strategy exactly as a turn builds them; nothing is sent or stored. Requests
are not stored: a link has the input's head, the number of items sent and the parameters.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, TypeAlias

from convo.chat.turn import RequestOptions
from convo.config.sections import ContextLimits
from convo.endpoints.base import INPUT_TOKENS_FIELDS, Endpoint, HttpRequest
from convo.errors import ConvoError, ItemDeleted, NotFound
from convo.history.items import Item, Json, get_call_id, item_type
from convo.history.pairing import call_index_by_output
from convo.history.records import (
    COMPARED_PARAMETER,
    COMPARISON_FIELD,
    EMBEDDED_SCOPE,
    INTERNAL_PARAMETERS,
    Link,
    Strategy,
    client_parameters,
    describe_translation,
)
from convo.history.tree import Node, Path, Prefix, root_key
from convo.inspect.context_window import (
    ContextUsage,
    ContextUsageReport,
    build_context_usage_report,
    category_parts,
    request_parts,
    sum_context_usage,
)
from convo.inspect.diff import SentRequest
from convo.inspect.tree import find_branch_links
from convo.inspect.view import ConversationView, PathIndex
from convo.prompt_cache.forecast import PrefixForecast
from convo.prompt_cache.next_usage import NextForecast, forecast_usage
from convo.report import FLAT, OMITTED, OPTIONAL, Wire
from convo.strategies.instructions import choose_field, drop_instruction_messages, omit_repeated_message
from convo.strategies.requests import add_cache_options, build_open_call_outputs, build_request_body
from convo.strategies.strategy import STRATEGIES, ConversationState, RequestInput
from convo.usage.cost import Usage
from convo.usage.model_info import (
    NO_WINDOW_SETTINGS,
    appends_instructions,
    find_model_window,
    has_encrypted_reasoning,
)

NON_REPEATED_FIELDS = INTERNAL_PARAMETERS | {"instructions", "generate", "background"}
"""Fields of a request that the next request does not simply repeat."""


@dataclass(frozen=True, repr=False)  # asyncio's debug output formats results, and this repr would be long
class NextRequest:
    """The next request.

    handle:           the name of the conversation
    owner_handle:     the handle that the owner continues from; None if the server prepends nothing
    prepended_nodes:  the nodes that the owner prepends
    model:            "provider/model"
    url:              target of the POST; None if the request stays in this process
    body:             the request as it is sent
    headers:          without secrets; `{key}` is written for the key
    key_env:          the variable that holds the key; None if none is needed
    prefix:           what the request loses; None if it only appends, or if no earlier request is known
    """

    handle: str
    strategy: Strategy
    owner_handle: str | None
    prepended_nodes: tuple[Node, ...]
    model: str
    url: str | None
    body: Mapping[str, Json]
    context_usage: ContextUsage
    headers: Mapping[str, str]
    key_env: str | None = None
    prefix: PrefixForecast | None = None
    forecast: NextForecast | None = None


class PrependedReport(NamedTuple):
    """Context that the owner prepends to the request.

    owner:  handle that the request continues
    """

    owner: str | None
    items: Sequence[Item]


class NextRequestReport(NamedTuple):
    """The next request.

    strategy:  the owner of the state
    model:     provider/model
    url:       null if the request stays in this process
    body:      the body of the request
    prefix:    what the request loses because it changes the prefix of the one before; null if it only appends
    forecast:  with --forecast: its usage and its cost
    """

    handle: str
    strategy: Strategy
    model: str
    method: Literal["POST"]
    url: str | None
    prepended: Annotated[PrependedReport, Wire("before")]
    body: Mapping[str, Json]
    context_usage: Annotated[ContextUsageReport, FLAT]
    prefix: Annotated[PrefixForecast | None, OPTIONAL]
    forecast: Annotated[NextForecast | None, OMITTED]


def build_next_request_report(request: NextRequest) -> NextRequestReport:
    return NextRequestReport(
        request.handle,
        request.strategy,
        request.model,
        "POST",
        request.url,
        PrependedReport(request.owner_handle, [node.item for node in request.prepended_nodes]),
        request.body,
        build_context_usage_report(request.context_usage),
        request.prefix,
        request.forecast,
    )


def make_continuation_state(view: ConversationView) -> ConversationState:
    """Return the state that the next request continues. Raises ItemDeleted when an item of the history was deleted."""
    if view.unreadable_head:
        raise ItemDeleted(view.unreadable_head)
    session, link = view.session, find_current_link(view)
    if session:
        return ConversationState(session.strategy, view.path, view.confirmed_head, session.handle)
    if link is None:
        handle = view.handle if STRATEGIES[view.strategy].is_server_side else None
        return ConversationState(view.strategy, view.path, view.confirmed_head, handle)
    if not link.is_stored:
        owner = Strategy.SESSION if STRATEGIES[link.strategy].is_server_side else link.strategy
        return ConversationState(owner, view.path, view.path.head)
    if view.handle == link.conversation_id:
        return ConversationState(Strategy.CONVERSATION, view.path, view.confirmed_head, view.handle)
    is_answered = view.confirmed_head == view.path.head
    return ConversationState(
        Strategy.CHAIN, view.path, view.confirmed_head, link.id if is_answered else link.previous_response_id
    )


ITEM_PLACE = r"(?:\$|input)\[(\d+)\]"
"""The path of an item, as `convo lint` and `convo why` name it."""

MIN_KEY_DIGITS = 8


def leave_out_items(state: ConversationState, names: Sequence[str]) -> ConversationState:
    """Return a state without some items: a call goes with its output and the reasoning before it.

    names:  a number, from 1, as `convo inspect --items` shows it; a path; an id; or the start of a key
    A server cannot leave out an item of its history: a new chain begins with the others.

    Raises NotFound.
    """
    items = state.path.items
    dropped = {_find_item(state.path, name) for name in names}
    for output, call in call_index_by_output(items).items():
        if {call, output} & dropped and call >= 0:
            dropped |= {call, output}
    for index in range(len(items) - 2, -1, -1):
        if item_type(items[index]) == "reasoning" and index + 1 in dropped:
            dropped.add(index)
    if not dropped:
        return state
    kept = [item for index, item in enumerate(items) if index not in dropped]
    confirmed = state.path.depth(state.confirmed_head)
    confirmed -= sum(index < confirmed for index in dropped)
    owner = Strategy.CHAIN if state.is_server_side else state.strategy
    path = Path(state.path.root).append(kept)
    return STRATEGIES[owner].replace_path(replace(state, strategy=owner), path, confirmed)


def _find_item(path: Path, name: str) -> int:
    place = re.fullmatch(ITEM_PLACE, name)
    index = int(place[1]) if place else int(name) - 1 if name.isdecimal() else None
    if index is not None and 0 <= index < len(path):
        return index
    for index, node in enumerate(path.nodes):
        is_key = len(name) >= MIN_KEY_DIGITS and node.key.startswith(name)
        if is_key or name in (node.item.get("id"), get_call_id(node.item)):
            return index
    raise NotFound("item", name, hint="convo inspect --items shows the items with their numbers")


def find_current_link(view: ConversationView) -> Link | None:
    """Return the link of the response that the handle names."""
    return next((link for link in view.links if link.id == view.current_link_id), None)


def get_repeated_parameters(view: ConversationView) -> dict[str, Json]:
    """Return the parameters that a client would repeat from the last request: tools, temperature and so on.

    Empty for a session: each of its requests states its parameters.
    """
    link = None if view.session else find_current_link(view)
    return {name: value for name, value in link.parameters.items() if name not in NON_REPEATED_FIELDS} if link else {}


def get_instructions(view: ConversationView) -> str | None:
    """Return the instructions of every turn of this conversation."""
    if view.session:
        return view.session.instructions
    link = find_current_link(view)
    instructions = link.parameters.get("instructions") if link else None
    return instructions if isinstance(instructions, str) else None


MAX_COUNTED_ITEMS = 1_000
"""The most items of a request that an endpoint is asked to count: the user waits for the count."""

RequestTokenCounter: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[int | None]]
"""Returns the exact input tokens of a request; None: the tokens are counted locally."""


async def skip_remote_count(body: Mapping[str, Json]) -> None:
    """Return None: no request is sent."""


def make_endpoint_counter(endpoint: Endpoint) -> RequestTokenCounter:
    """Return a counter that asks the endpoint when that is quick; its errors count as None."""

    async def count(body: Mapping[str, Json]) -> int | None:
        if len(body.get("input") or ()) > MAX_COUNTED_ITEMS:
            return None
        try:
            return await endpoint.count_input_tokens(body)
        except ConvoError:
            return None

    return count


async def build_next_request(
    handle: str,
    state: ConversationState,
    items: Sequence[Item],
    options: RequestOptions,
    endpoint: Endpoint,
    count_tokens: RequestTokenCounter,
    *,
    key_env: str | None = None,
    windows: Mapping[str, ContextLimits] = NO_WINDOW_SETTINGS,
    request_input: RequestInput | None = None,
    previous_instructions: str | None = None,
    cache_options: Mapping[str, Json] = MappingProxyType({}),
    input_path: Path | None = None,
    last_link: Link | None = None,
    earlier: ConversationView | None = None,
    planned_at: float = 0.0,
    has_forecast: bool = False,
) -> NextRequest:
    """Build the request that would send `items` next.

    windows:                context windows from the settings
    request_input:          the input, where the agents decide on it; None: the items that the owner lacks
    previous_instructions:  those of the turn before
    cache_options:          those that ask for diagnostics of the cache
    input_path:             the path of `request_input`
    last_link:              the response whose prefix is kept; None: none is
    earlier:                the requests that it continues, for the forecast of what it loses
    planned_at:             seconds since 1970
    has_forecast:           whether its usage and cost are forecast
    Raises Conflict when the path does not contain the confirmed head, PrefixChanged if the prefix guard is strict, and
    the errors of `count_tokens`.
    """
    prepended_nodes = state.prepended_nodes
    prepended_items = [node.item for node in prepended_nodes]
    outputs = build_open_call_outputs(state, items) if items else ()
    answered = replace(state, path=state.path.append(outputs))
    answered = options.append_input(answered, items, previous_instructions, last_link)
    options = options.with_kept_prefix(input_path or answered.path, last_link)
    plain_body = options.build_body(request_input or options.build_input(answered), prepended_items)
    body = add_cache_options(plain_body, cache_options)
    token_count = await count_tokens(_select_counted_fields(body))
    prefix, forecast, window = None, None, find_model_window(options.model, windows)
    if options.prefix_guard and earlier:
        path, prices = input_path or answered.path, options.prefix_guard.prices
        planned = options.plan_link(plain_body, path, state.strategy, endpoint.scope, planned_at)
        prefix = options.prefix_guard.forecast_next(earlier, planned, path)
        if has_forecast:
            links, index = find_branch_links(earlier), earlier.path_index
            forecast = NextForecast(forecast_usage(links, planned, index, prices, window, prefix, token_count))
    http_request = endpoint.build_http_request(body) or HttpRequest("", body, {})
    parts = request_parts(
        prepended_items, f"held by {state.handle}", _name_instructions(http_request.body, options.instructions), window
    )
    return NextRequest(
        handle=handle,
        strategy=state.strategy,
        owner_handle=state.handle if prepended_nodes else None,
        prepended_nodes=prepended_nodes,
        model=options.model,
        url=http_request.url or None,
        body=http_request.body,
        context_usage=sum_context_usage(parts, window, token_count),
        headers=http_request.headers,
        key_env=key_env,
        prefix=prefix,
        forecast=forecast,
    )


async def measure_context_window(
    state: ConversationState,
    options: RequestOptions,
    count_tokens: RequestTokenCounter,
    windows: Mapping[str, ContextLimits] = NO_WINDOW_SETTINGS,
    *,
    request_input: RequestInput | None = None,
) -> ContextUsage:
    """Return the usage of the model's context window if the conversation continues as it is.

    windows, request_input:  as for `build_next_request`
    Raises the errors of `count_tokens`.
    """
    prepended_items = [node.item for node in state.prepended_nodes]
    body = options.build_body(request_input or options.build_input(state), prepended_items)
    window = find_model_window(options.model, windows)
    named = _name_instructions({**body, "input": [*prepended_items, *body["input"]]}, options.instructions)
    parts = category_parts(named["input"], named, window)
    token_count = await count_tokens(_select_counted_fields(body)) if state.path else None
    return sum_context_usage(parts, window, token_count)


def _name_instructions(body: Mapping[str, Json], instructions: str | None) -> Mapping[str, Json]:
    """Return a request with the instructions in their field, where they are a message of its input."""
    remaining = drop_instruction_messages(body["input"], (instructions,))
    return body if len(remaining) == len(body["input"]) else {**body, "instructions": instructions, "input": remaining}


def _select_counted_fields(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a request that its tokens depend on."""
    return {name: body[name] for name in body if name in INPUT_TOKENS_FIELDS}


def rebuild_request(view: ConversationView, request_number: int | None) -> SentRequest:
    """Rebuild a request that was sent from its link.

    request_number:  from 1, along the branch that leads to the handle; None for the last one
    Raises NotFound when there are fewer requests or an item of the input was deleted.
    """
    branch_links = find_branch_links(view)
    index = (
        len(branch_links) - 1
        if request_number is None
        else request_number - 1
        if request_number > 0
        else len(branch_links) + request_number
    )
    if not 0 <= index < len(branch_links):
        raise NotFound(
            "request",
            f"{view.handle}@{request_number or 1}",
            hint=_make_request_number_hint(view, len(branch_links)),
        )
    return rebuild_link_request(branch_links[index], view)


def _make_request_number_hint(view: ConversationView, count: int) -> str:
    """Return the hint for a request number that does not exist; the branch has `count` requests."""
    if view.session and view.links and not count:
        return f"none of its requests has a response; convo inspect {quote(view.handle)} shows the failed ones"
    return f"choose a request number up to {count}; a file has none"


def rebuild_link_request(link: Link, view: ConversationView) -> SentRequest:
    """Rebuild the request of `link`. Raises NotFound when an item of its input was deleted."""
    path_index = view.path_index
    if link.input_head not in path_index:
        raise NotFound(
            "complete input of response", link.id, hint="choose another response: an item of this input was deleted"
        )
    keys = path_index.keys_after(link.input_head)
    path = Path(path_index.root, Prefix(Node(key, path_index.item(key) or {}) for key in keys))
    confirmed_path = path.first(len(path) - link.sent_count)
    return SentRequest(
        name=link.id,
        model=link.model,
        body=rebuild_request_body(link, path, confirmed_path),
        prepended_items=confirmed_path.items if STRATEGIES[_get_request_owner(link)[0]].is_server_side else (),
        usage=Usage.from_json(link.usage),
        translation=describe_translation(link.parameters),
    )


def rebuild_request_fields(link: Link, path_index: PathIndex) -> dict[str, Json]:
    """Return the fields of the request of `link` without its items, which need not be stored."""
    path = Path(root_key("")).append(path_index.developer_messages(link.input_head))  # no other item changes the fields
    return {name: value for name, value in rebuild_request_body(link, path, path).items() if name != "input"}


def rebuild_request_body(link: Link, path: Path, confirmed_path: Path) -> dict[str, Json]:
    """Rebuild the request of `link`, whose model received `path`; its owner already had `confirmed_path`."""
    strategy, handle = _get_request_owner(link)
    is_remote, wire_model = link.scope != EMBEDDED_SCOPE, link.model.partition("/")[2]
    state = ConversationState(strategy, path, confirmed_path.head, handle)
    instructions, is_appended = link.parameters.get("instructions"), appends_instructions(link.model)
    request_input = STRATEGIES[strategy].build_input(
        state, store=link.is_stored, encrypt_reasoning=is_remote and has_encrypted_reasoning(wire_model)
    )
    body = build_request_body(
        omit_repeated_message(request_input, state, instructions, is_appended=is_appended),
        model=wire_model if is_remote else link.model,
        instructions=choose_field(instructions, path.items, is_appended=is_appended),
        parameters={
            name: value for name, value in client_parameters(link.parameters).items() if name != "instructions"
        },
    )
    if COMPARED_PARAMETER not in link.parameters:
        return body
    compared_id = link.parent_id if link.parameters[COMPARED_PARAMETER] else None
    return {**add_cache_options(body, {COMPARISON_FIELD: compared_id})}


def _get_request_owner(link: Link) -> tuple[Strategy, str | None]:
    """Return the strategy of the request and the handle it named; without a conversation id it continued none."""
    handle = link.conversation_id or link.previous_response_id
    is_first = STRATEGIES[link.strategy].uses_conversation and not handle
    return (Strategy.CHAIN if is_first else link.strategy), handle
