"""Stored records: `Session` (a chat), `Link` (one model call), `AgentRun` with its calls and decisions.

A link does not copy its input: `input_head` and `head` name the nodes at which input and output end, and `sent_count`
is how many of the last input items were in the request. Items after a session's `confirmed_head` are unconfirmed.
Secrets of hosted tools (headers, tokens, URLs) are stripped from parameters before anything is stored.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, NotRequired, TypeAlias, TypedDict, get_args

from convo.history.items import Item, Json
from convo.history.tree import Key
from convo.secrets import strip_secret_fields


class Strategy(StrEnum):
    """The name of an owner, on the command line and in every record."""

    REPLAY = "replay"
    SESSION = "session"
    CONVERSATION = "conversation"
    CHAIN = "chain"


EMBEDDED_URL = "embedded"
"""The URL of the endpoint over this store."""


class Scope(NamedTuple):
    """The endpoint and account in which a handle is valid: the same id elsewhere is another conversation.

    url:  the base URL, or "embedded" for convo's own endpoint over this store
    """

    url: str = EMBEDDED_URL
    organisation: str | None = None
    project: str | None = None

    def __str__(self) -> str:
        details = [part for part in (self.organisation, self.project) if part]
        return self.url + (f" ({', '.join(details)})" if details else "")


EMBEDDED_SCOPE = Scope()
"""Convo's own endpoint over this store."""


SCRATCH_PREFIX = "@"
"""Prefix of the names of temporary sessions, which last as long as one command; not allowed in other names."""


RECORDED_SESSION_PREFIX = "ses_recorded_"
"""Prefix of the ids of sessions that were recorded from other clients; no command continues them by itself."""


IMPORT_USE_ORDER = -1
"""The use order of a session that was imported and not continued since: every used session comes before it."""


@dataclass(frozen=True, slots=True)
class Session:
    """One chat's record.

    id:              "ses_..." and unique; `name` is unique too and may be changed
    scope:           the endpoint that its handle belongs to
    model:           "provider/model" of the last turn
    head:            the last node of the local path
    confirmed_head:  the last node that the owner confirmed
    link_id:         the last confirmed link, the parent of the next
    handle:          absolute path of the replay file, `conv_...`, or the `resp_...` that a chain
                     continues; None before there is one, and always for a session
    file_head:       replay only: the head when the file was last written
    instructions:    of the option -s, sent with every turn
    created_at, used_at:  seconds since 1970
    use_order:       its position in the order of use, counted by the store; None where unknown. Storing the record
                     with a new `used_at` and without a position counts as a use: it becomes the last one
    """

    id: str
    name: str
    strategy: Strategy
    model: str
    head: Key
    confirmed_head: Key
    created_at: float
    used_at: float
    scope: Scope = EMBEDDED_SCOPE
    link_id: str | None = None
    handle: str | None = None
    file_head: Key | None = None
    instructions: str | None = None
    use_order: int | None = field(default=None, compare=False)

    @property
    def replay_file(self) -> str | None:
        """The absolute path of the replay file; None under another strategy."""
        return self.handle if self.strategy is Strategy.REPLAY else None

    @property
    def conversation_id(self) -> str | None:
        """The `conv_...` at the endpoint; None under another strategy, and before the first request."""
        return self.handle if self.strategy is Strategy.CONVERSATION else None


LinkStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
LINK_STATUSES: tuple[LinkStatus, ...] = get_args(LinkStatus)

ANSWERED_STATUSES: tuple[LinkStatus, ...] = ("completed", "incomplete")
"""Statuses of links that have a response."""

UNFINISHED_STATUSES: tuple[LinkStatus, ...] = ("queued", "in_progress")
"""Statuses of links that may still be replaced."""


@dataclass(frozen=True, slots=True)
class Link:
    """One model call.

    id:               the endpoint's `resp_...`, or `try_...` for an attempt without one
    parent_id:        the link that this one continues, under every strategy
    session_id:       the session that made it; None for calls by other clients of the endpoint
    model:            "provider/model"
    input_head:       the last node of the model's input
    sent_count:       items of that input that were in the request
    head:             the last node of its output; `input_head` when there is none
    created_at:       seconds since 1970
    duration_s:       seconds from the request to the end of the response
    first_token_s:    seconds from the request to the first output event
    parameters:       the request without model, input and state: instructions, tools, ...
    usage:            as the endpoint reported it, in tokens
    error:            {"code", "message"} of a call that did not succeed
    is_stored:        whether the endpoint stores the response, so that a chain can continue it
    reported:         fields of the response that only its provider can know; see `REPORTED_FIELDS`
    body_head:        the last node of the request's body as its client sent it, in the form of
                      `convo.history.request_body`; recorded requests only
    title:            `request_title` of its input, and
    tools:            `called_tools` of its output: only for the lists of a store, which does not return them. Without a
                      title the store computes both before it lists requests
    """

    id: str
    input_head: Key
    head: Key
    sent_count: int
    model: str
    strategy: Strategy
    status: LinkStatus
    created_at: float
    parent_id: str | None = None
    session_id: str | None = None
    scope: Scope = EMBEDDED_SCOPE
    conversation_id: str | None = None
    previous_response_id: str | None = None
    duration_s: float | None = None
    first_token_s: float | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, Json] | None = None
    is_stored: bool = True
    reported: Mapping[str, Json] = field(default_factory=dict)
    body_head: Key | None = None
    title: str | None = field(default=None, compare=False)
    tools: Sequence[str] = field(default=(), compare=False)

    @property
    def ended_at(self) -> float:
        """Seconds since 1970 at the end of the response."""
        return self.created_at + (self.duration_s or 0.0)

    @property
    def service_tier(self) -> str | None:
        """The tier at which the provider says that it served the call; None for the default one."""
        tier = self.reported.get(SERVICE_TIER)
        return tier if isinstance(tier, str) else None


SERVICE_TIER, DEFAULT_SERVICE_TIER = "service_tier", "default"

REMOVED_FIELD = "input_transformations"
"""The field of a response with the reasoning items of its input that the model did not receive."""

REPORTED_FIELDS = ("prompt_cache_diagnostics", REMOVED_FIELD, "tool_usage", SERVICE_TIER)
"""Fields of a response that are kept as its provider reported them; the service tier only if it is not the default."""

NOTICES = "convo_notices"
"""Sentences on the parts of a server's answer that convo did not understand, kept with the reported fields."""

UPSTREAM_ID = "upstream_response_id"
"""The provider's own id of the response, which is kept with them; it is no field of the response resource."""

COMPARISON_FIELD = "comparison_response_id"
"""The member of `prompt_cache_options` with the response to compare with, for diagnostics; null names none."""

MAX_REPORTED_BYTES = 64 * 1024
"""Bytes of one of them; of a larger one only its size is kept."""


def pick_reported_fields(response: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a response that only its provider can know, as far as it reported them."""
    names = (*REPORTED_FIELDS, NOTICES, UPSTREAM_ID)
    reported = {name: response[name] for name in names if response.get(name) is not None}
    if reported.get(SERVICE_TIER) == DEFAULT_SERVICE_TIER:
        del reported[SERVICE_TIER]
    sizes = {name: len(json.dumps(value)) for name, value in reported.items()}
    return {
        name: value if sizes[name] <= MAX_REPORTED_BYTES else {"omitted_bytes": sizes[name]}
        for name, value in reported.items()
    }


IGNORED_PARAMETER = "ignored"
"""The member of a link's parameters with the names of the fields that were not sent to its model."""

PROVIDER_PARAMETER = "convo.provider"
"""The member of a link's parameters with the provider of its model, if the model's name does not begin with it."""

RECORDING_PARAMETER = "convo.recording"
"""The member of a link's parameters that describes a recorded request of another client: a `Recording`."""


class Recording(TypedDict):
    """A recorded request of another client; an empty member is left out.

    client:    name of the client; null if unknown
    version:   version of the client; null if unknown
    protocol:  API of the request
    notes:     reasons why parts of the request or the response are missing
    path:      path behind the base URL, with the query; left out if it is the usual one
    headers:   headers that select a version of the API
    """

    client: str | None
    version: str | None
    protocol: Literal["responses", "chat_completions", "messages"]
    notes: NotRequired[list[str]]
    path: NotRequired[str]
    headers: NotRequired[Mapping[str, str]]


COMPARED_PARAMETER = "convo.compared"
"""The member of a link's parameters that says that a chat asked for diagnostics of the cache.

True: the request was compared with the response before, the link's parent; False: it named none. The id is not part of
the parameters, which are stored once for all requests that have the same.
"""

INTERNAL_PARAMETERS = frozenset({IGNORED_PARAMETER, PROVIDER_PARAMETER, RECORDING_PARAMETER, COMPARED_PARAMETER})
"""Parameters of a link that no client sent."""


def get_link_provider(link: Link) -> str | None:
    """Return the provider that received the request, if known."""
    provider, slash, _ = link.model.partition("/")
    return link.parameters.get(PROVIDER_PARAMETER) or (provider if slash else None)


def describe_client(parameters: Mapping[str, Json]) -> str | None:
    """Return the client of a recorded request with its version: "codex 0.169.0"; None for convo's own requests."""
    recording = parameters.get(RECORDING_PARAMETER)
    if not isinstance(recording, Mapping):
        return None
    return " ".join(filter(None, (recording.get("client"), recording.get("version")))) or "unknown client"


def is_recording_in_progress(link: Link) -> bool:
    """Return whether a recorded request of another client runs; its text so far is in the event log."""
    return link.status in UNFINISHED_STATUSES and RECORDING_PARAMETER in link.parameters


OTHER_API_NAMES = {"chat_completions": "Chat Completions", "messages": "Anthropic Messages"}
"""The APIs of recorded requests besides the Responses API, by the name in their record."""


def describe_translation(parameters: Mapping[str, Json]) -> str | None:
    """Return a note about a recorded request of another API than the Responses API; None for all others."""
    recording = parameters.get(RECORDING_PARAMETER)
    api = OTHER_API_NAMES.get(str(recording.get("protocol"))) if isinstance(recording, Mapping) else None
    return api and f"sent to {api}; shown in the form of the Responses API"


def client_parameters(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """Return a link's parameters as the client sent them."""
    return {name: value for name, value in parameters.items() if name not in INTERNAL_PARAMETERS}


def effective_parameters(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """Return a link's parameters without the ignored ones, for a response."""
    effective = client_parameters(parameters)
    ignored = parameters.get(IGNORED_PARAMETER, ())
    if not ignored:
        return effective
    effective = {name: value for name, value in effective.items() if name not in ignored}
    for parameter in ("reasoning", "text"):
        if isinstance(effective.get(parameter), Mapping):
            effective[parameter] = {
                name: value for name, value in effective[parameter].items() if f"{parameter}.{name}" not in ignored
            }
    return effective


def strip_tool_secrets(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """Return `parameters` in a form that may be stored and shown: without the credentials of tools."""
    stripped = dict(parameters)
    if isinstance(stripped.get("tools"), list):
        stripped["tools"] = [_strip_tool(tool) for tool in stripped["tools"]]
    if "tool_choice" in stripped:
        stripped["tool_choice"] = strip_secret_fields(stripped["tool_choice"])
    return stripped


def strip_item_secrets(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return `items` in a form that may be stored and shown: without the credentials of the tools that they list.

    The items that list tools are `additional_tools` and `tool_search_output`; another item is returned itself.
    """
    return tuple(strip_tool_secrets(item) if item.get("type") in TOOL_LIST_ITEM_TYPES else item for item in items)


TOOL_LIST_ITEM_TYPES = ("additional_tools", "tool_search_output")
"""Types of input items whose member `tools` has the tools of a request."""

CLIENT_TOOL_TYPES = ("function", "custom", "namespace", "tool_search")
"""Types of tools whose definition has no credentials; its schemas may have properties of any name."""


def _strip_tool(tool: Json) -> Json:
    is_client_tool = isinstance(tool, Mapping) and tool.get("type") in CLIENT_TOOL_TYPES
    return tool if is_client_tool else strip_secret_fields(tool)


COMPACTION_CONTEXT_MANAGEMENT: Sequence[Json] = [{"type": "compaction"}]
"""Value of `context_management` in the link of a compaction."""


def is_compaction_link(link: Link) -> bool:
    """Whether a link is a compaction and not a response."""
    return link.parameters.get("context_management") == COMPACTION_CONTEXT_MANAGEMENT


AgentRunStatus: TypeAlias = Literal["running", "paused", "done", "failed", "stopped"]
AGENT_RUN_STATUSES: tuple[AgentRunStatus, ...] = get_args(AgentRunStatus)


class AgentRun(NamedTuple):
    """The stored state of an agent run, between two effects.

    id:          "run_...", unique
    session_id:  the session whose conversation it works on; it is deleted with that session
    revision:    1 when first written, one more with each write
    status:      "running" also when no process performs it any more; "paused" needs a person
    document:    the state of the run; only the run machine reads it. A transaction with `UNCHANGED_DOCUMENT` of
                 `stores.base` in its place keeps the stored one
    source_state_hash:  the content hash of the RunState that it was resumed from; None if it started here
    created_at, changed_at:  seconds since 1970
    """

    id: str
    session_id: str
    revision: int
    status: AgentRunStatus
    document: Mapping[str, Json]
    created_at: float
    changed_at: float
    source_state_hash: str | None = None


class AgentCall(NamedTuple):
    """One tool call of an agent run, as stored.

    has_ended:  it has an output; a call without one is running, or its process died
    output:     the tool output for the model, once the call has ended
    """

    run_id: str
    call_id: str
    started_at: float
    has_ended: bool = False
    output: Json = None


class ApprovalDecision(NamedTuple):
    """One decision on a tool call of an agent run, as logged. The log is append-only; it is deleted with the run.

    agent:       the identity of the agent that made the call
    tool:        the name shown to a person: `refund`, `crm.refund`
    arguments:   as decided: as the model wrote them, or as they were edited
    is_sticky:   the decision holds for every later call of the tool in the run, too
    reason:      of a rejection, for the model
    decided_at:  seconds since 1970
    decided_by:  the name of the API key that decided; None: a process with access to the store
    source:      "page": the inspector page; "command": `convo approvals`; "run": the process of the run, such as a chat
    """

    run_id: str
    call_id: str
    agent: str
    tool: str
    arguments: str
    approved: bool
    decided_at: float
    decided_by: str | None = None
    source: str = "command"
    is_sticky: bool = False
    reason: str | None = None
