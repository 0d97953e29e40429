"""Stored records: `Session` (a chat), `Link` (one model call), `Strategy` and `Scope`.

A link does not copy its input: `input_head` and `head` name the nodes at which input and output end, and `sent_count`
says how many of the last input items were in the request. Items after a session's `confirmed_head` are unconfirmed.
Secrets of hosted tools (headers, tokens, URLs) are stripped from parameters before anything is stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from convo.history.items import Json
from convo.history.tree import Key


class Strategy(StrEnum):
    """The owner's name on the command line and in every record."""

    REPLAY = "replay"
    SESSION = "session"
    CONVERSATION = "conversation"
    CHAIN = "chain"


class StrategyInfo(NamedTuple):
    """What one owner is.

    words:    who it is, for people
    handle:   what names the conversation there
    prefix:   how a handle of the endpoint begins; "" for owners at the client
    remembers:  whether the endpoint holds the history, so that a turn sends only what is new
    """

    words: str
    handle: str
    prefix: str = ""
    remembers: bool = False


STRATEGY_INFO: dict[Strategy, StrategyInfo] = {
    Strategy.REPLAY: StrategyInfo("the application: a JSON file", "a file"),
    Strategy.SESSION: StrategyInfo("the local store", "a session's name or id"),
    Strategy.CONVERSATION: StrategyInfo("the endpoint's Conversations API", "conv_...", "conv_", remembers=True),
    Strategy.CHAIN: StrategyInfo("the endpoint's Responses API", "resp_...", "resp_", remembers=True),
}


EMBEDDED_URL = "embedded"
"""The URL of the endpoint that lives in this store."""


class Scope(NamedTuple):
    """Where a handle means something: the same id elsewhere is another conversation.

    url:  the base URL, or "embedded" for convo's own endpoint over this store
    """

    url: str = EMBEDDED_URL
    organisation: str | None = None
    project: str | None = None

    def __str__(self) -> str:
        more = [part for part in (self.organisation, self.project) if part]
        return self.url + (f" ({', '.join(more)})" if more else "")


EMBEDDED_SCOPE = Scope()
"""Convo's own endpoint over this store."""


SCRATCH_PREFIX = "@"
"""Start of the names of temporary sessions, which last as long as one command; other names cannot begin so."""


@dataclass(frozen=True, slots=True)
class Session:
    """One chat's record.

    id:            "ses_..." and unique; `name` is unique too and may be changed
    scope:         the endpoint that its handle belongs to
    model:         "provider/model" of the last turn
    head:          the last node of the local path
    mark:          the last node that the owner confirmed
    link:          the last confirmed link, the parent of the next
    handle:        absolute path of the replay file, `conv_...`, or the `resp_...` that a chain
                   goes on from; None before there is one, and always for a session
    written:       replay only: the head as it last stood in the file
    instructions:  what -s said, sent with every turn
    created_at, used_at:  seconds since 1970
    use:           its place among the last used, as the store counts; None where it is not known. A record that is
                   stored with another `used_at` and without a place is a use: it goes behind all others
    """

    id: str
    name: str
    strategy: Strategy
    model: str
    head: Key
    mark: Key
    created_at: float
    used_at: float
    scope: Scope = EMBEDDED_SCOPE
    link: str | None = None
    handle: str | None = None
    written: Key | None = None
    instructions: str | None = None
    use: int | None = field(default=None, compare=False)


LinkStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Link:
    """One call of a model.

    id:               the endpoint's `resp_...`, or `try_...` for an attempt that never got one
    parent:           the link that this one goes on from, under every strategy
    session:          the session that made it; None for calls by other clients of the endpoint
    model:            "provider/model"
    saw:              the last node of the model's input
    sent:             how many items of that input travelled in the request
    head:             the last node of its output; `saw` when there is none
    created_at:       seconds since 1970
    seconds:          from request to the end of the answer
    first_token_s:    seconds from the request to the first piece of the answer
    parameters:       the request without model, input and state: instructions, tools, ...
    usage:            as the endpoint gave it, in tokens
    error:            {"code", "message"} of a call that did not end well
    stored:           whether the endpoint keeps the response, so that a chain may go on from it
    """

    id: str
    saw: Key
    head: Key
    sent: int
    model: str
    strategy: Strategy
    status: LinkStatus
    created_at: float
    parent: str | None = None
    session: str | None = None
    scope: Scope = EMBEDDED_SCOPE
    conversation_id: str | None = None
    previous_response_id: str | None = None
    seconds: float | None = None
    first_token_s: float | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, Json] | None = None
    stored: bool = True


SECRET_TOOL_FIELDS = frozenset({"authorization", "headers", "api_key", "access_token", "password", "domain_secrets"})
"""Fields of a tool that no store, log or answer may hold."""


IGNORED_PARAMETER = "ignored"
"""Where a link's parameters keep the names of the fields that its model was not sent."""

PROVIDER_PARAMETER = "convo.provider"
"""Where a link's parameters keep the provider of its model, if the model's name does not begin with it."""

INTERNAL_PARAMETERS = frozenset({IGNORED_PARAMETER, PROVIDER_PARAMETER})
"""Parameters of a link that no client sent."""


def client_parameters(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """A link's parameters as the client sent them."""
    return {name: value for name, value in parameters.items() if name not in INTERNAL_PARAMETERS}


def effective_parameters(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """A link's parameters without those that were ignored, as a response shows them."""
    ignored = parameters.get(IGNORED_PARAMETER, ())
    left = {name: value for name, value in client_parameters(parameters).items() if name not in ignored}
    inner = [name.partition(".")[2] for name in ignored if name.startswith("reasoning.")]
    if inner and isinstance(left.get("reasoning"), Mapping):
        left["reasoning"] = {name: value for name, value in left["reasoning"].items() if name not in inner}
    return left


def strip_tool_secrets(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """`parameters` as they may be kept and shown: without what a tool needs to log in somewhere."""
    kept = dict(parameters)
    if isinstance(kept.get("tools"), list):
        kept["tools"] = [_strip_tool(tool) for tool in kept["tools"]]
    if "tool_choice" in kept:
        kept["tool_choice"] = _strip_secret_fields(kept["tool_choice"])
    return kept


def _strip_tool(tool: Json) -> Json:
    """A schema may have a property of any name, so what a person wrote as one is left alone."""
    own = isinstance(tool, Mapping) and tool.get("type") in ("function", "custom")
    return tool if own else _strip_secret_fields(tool)


def _strip_secret_fields(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {
            key: _strip_server_url(inner) if key == "server_url" else _strip_secret_fields(inner)
            for key, inner in value.items()
            if key not in SECRET_TOOL_FIELDS
        }
    return [_strip_secret_fields(inner) for inner in value] if isinstance(value, list) else value


def _strip_server_url(url: Json) -> Json:
    """Where a tool's server is, as the real API shows it: its path or its query may be what lets one in."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        return None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", "")) or None
