"""The report of a conversation, which `convo inspect --json` prints.

A long path is written as {"through": key}; `parents` then allows to rebuild it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

from convo.history.accumulator import STREAMED_TEXT_DIFFERS
from convo.history.items import Item, Json
from convo.history.records import (
    IGNORED_PARAMETER,
    RECORDING_PARAMETER,
    Link,
    Recording,
    Strategy,
    get_link_provider,
    is_compaction_link,
)
from convo.history.tree import Key
from convo.inspect.run_timeline import RunTimeline
from convo.inspect.tree import children_by_parent, split_branch_links
from convo.inspect.view import (
    ConversationView,
    PathIndex,
    UsageTotals,
    count_resent_tokens,
    link_cost_usd,
    sum_link_usage,
)
from convo.report import OMITTED, OPTIONAL, Wire

MAX_INLINE_PATH_KEYS = 100
"""Maximum number of keys of a path from the first item that is written in full for each link."""


class PathEnd(NamedTuple):
    """A path from the first item, by the key of its last node."""

    through: Key


PathKeys: TypeAlias = Annotated[Sequence[Key] | PathEnd, "keys of nodes, in order"]


class LinkReport(NamedTuple):
    """One model call.

    provider:               name of the provider in the settings; null if unknown
    created_at:             seconds since 1970
    sent:                   the items that were sent
    input:                  the items that the model received
    output:                 keys of the output items
    usage:                  tokens as reported by the endpoint; null if it reported none
    resent_tokens:          part of the input tokens that an earlier request on the same branch was already billed for;
                            after a compaction an estimate. Null if it is unknown or there is no earlier request
    cost_usd:               null if the price of a part is unknown
    reported:               fields that the provider added to its response: prompt_cache_diagnostics,
                            input_transformations, tool_usage, service_tier (unless it is the default); and
                            upstream_response_id, its own id of the response
    ignored:                fields of the request that were not sent to the model
    recording:              only of a request that was recorded from another client
    children:               responses that continue from this one; null if the endpoint cannot list them
    compaction:             true if this is a compaction and not a response; absent otherwise
    limit:                  the limit that ended it
    streamed_text_differs:  true if the final text differs from the streamed text; otherwise omitted
    """

    response_id: str
    previous_response_id: str | None
    conversation_id: str | None
    model: str | None
    provider: Annotated[str | None, OPTIONAL]
    status: str
    created_at: float | None
    sent: PathKeys
    input: Annotated[PathKeys, Wire("saw")]
    output: Sequence[Key]
    usage: Mapping[str, Json] | None
    resent_tokens: Annotated[int | None, OPTIONAL]
    cost_usd: float | None
    reported: Annotated[Mapping[str, Json], OMITTED]
    ignored: Annotated[Sequence[str], OMITTED]
    recording: Annotated[Recording | None, OMITTED]
    children: Sequence[str] | None
    compaction: Annotated[bool, OMITTED]
    limit: Annotated[str | None, OMITTED]
    streamed_text_differs: Annotated[bool, OMITTED]


class ConversationReport(NamedTuple):
    """A conversation.

    endpoint:        endpoint that the handle belongs to; null if unknown
    head:            key of the head: the node of the last item
    items:           items by the key of their node, as they are stored
    links:           oldest first
    total:           figures of the requests on the branch that leads to the handle; null if none reported its usage
    other_requests:  the same figures of all other requests: those of forks, later ones, and attempts that failed
    agent:           present if the handle names a session with agents: the one that answered last
    parents:         present if a path is written as through: the parent of each node
    run:             present if the handle names an agent run with tool calls, handoffs or guardrails: its time line
    wrong_forecast:  how the reasoning that the provider removed from the last request differs from the forecast
    """

    handle: str
    strategy: Strategy
    endpoint: str | None
    head: Key
    items: Mapping[Key, Item]
    links: Sequence[LinkReport]
    total: Annotated[UsageTotals | None, OPTIONAL]
    other_requests: Annotated[UsageTotals | None, OPTIONAL]
    agent: Annotated[str | None, OMITTED]
    parents: Annotated[Mapping[Key, Key | None], OMITTED]
    run: Annotated[RunTimeline | None, OMITTED]
    wrong_forecast: Annotated[str | None, OMITTED] = None


def build_conversation_report(view: ConversationView) -> ConversationReport:
    """Build the report of a conversation."""
    path_index, children = view.path_index, children_by_parent(view.links)
    resent_tokens = count_resent_tokens(view.links, path_index)
    links = [
        _build_link_report(
            link, view, children.get(link.id, []) if view.has_all_forks else None, resent_tokens.get(link.id)
        )
        for link in view.links
    ]
    branch_links, other_links = split_branch_links(view)
    has_long_path = any(isinstance(link.input, PathEnd) for link in links)
    return ConversationReport(
        view.handle,
        view.strategy,
        str(view.scope) if view.scope else None,
        view.head,
        {key: node.item for key, node in path_index},
        links,
        sum_link_usage(branch_links, view.prices, path_index=path_index),
        sum_link_usage(other_links, view.prices, other_links=branch_links, path_index=path_index),
        view.agent,
        list_parents(path_index) if has_long_path else {},
        view.run_timeline,
    )


def list_parents(path_index: PathIndex) -> dict[Key, Key | None]:
    """Return the parent of each node; None for the first of a path."""
    return {key: node.parent if node.depth > 1 else None for key, node in path_index}


def _build_link_report(
    link: Link, view: ConversationView, children: Sequence[Link] | None, resent_tokens: int | None
) -> LinkReport:
    path_index, error = view.path_index, link.error or {}
    return LinkReport(
        link.id,
        link.previous_response_id,
        link.conversation_id,
        link.model,
        get_link_provider(link),
        link.status,
        link.created_at,
        _path_keys(link.input_head, link.sent_count, path_index),
        _path_keys(link.input_head, None, path_index),
        _output_keys(link, path_index),
        link.usage,
        resent_tokens,
        link_cost_usd(link, view.prices),
        link.reported,
        link.parameters.get(IGNORED_PARAMETER, ()),
        link.parameters.get(RECORDING_PARAMETER),
        None if children is None else [child.id for child in children],
        is_compaction_link(link),
        error.get("limit"),
        STREAMED_TEXT_DIFFERS in error,
    )


def _path_keys(key: Key, count: int | None, path_index: PathIndex) -> Sequence[Key] | PathEnd:
    """Return the last `count` keys of the path to `key`; all of them for None."""
    if key not in path_index:
        return PathEnd(key)
    depth = path_index.depth(key)
    if depth > MAX_INLINE_PATH_KEYS and (count is None or count >= depth):
        return PathEnd(key)
    return path_index.last_keys(key, depth if count is None else count)


def _output_keys(link: Link, path_index: PathIndex) -> list[Key]:
    if link.head not in path_index or link.input_head not in path_index:
        return []
    return path_index.keys_after(link.head, path_index.depth(link.input_head))
