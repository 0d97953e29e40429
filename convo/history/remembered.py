"""What of a request may be remembered.

A hosted tool logs in somewhere with what stands in the request: headers, a token, an address that
lets one in. The endpoint needs it and nobody else does, so no link has it, whoever made the link.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from convo.items import Json

SECRET = frozenset({"authorization", "headers", "api_key", "access_token", "password", "domain_secrets"})
"""Fields of a tool that no store, log or answer may hold."""


IGNORED = "ignored"
"""Where a link's parameters keep the names of the fields that its model was not sent."""

PROVIDER = "convo.provider"
"""Where a link's parameters keep the provider of its model, if the model's name does not begin with it."""

OURS = frozenset({IGNORED, PROVIDER})
"""Parameters of a link that no client sent."""


def requested(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """A link's parameters as the client sent them."""
    return {name: value for name, value in parameters.items() if name not in OURS}


def honoured(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """A link's parameters without those that were ignored, as a response shows them."""
    ignored = parameters.get(IGNORED, ())
    left = {name: value for name, value in requested(parameters).items() if name not in ignored}
    inner = [name.partition(".")[2] for name in ignored if name.startswith("reasoning.")]
    if inner and isinstance(left.get("reasoning"), Mapping):
        left["reasoning"] = {name: value for name, value in left["reasoning"].items() if name not in inner}
    return left


def storable(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """`parameters` as they may be kept and shown: without what a tool needs to log in somewhere."""
    kept = dict(parameters)
    if isinstance(kept.get("tools"), list):
        kept["tools"] = [_public(tool) for tool in kept["tools"]]
    if "tool_choice" in kept:
        kept["tool_choice"] = _without_secrets(kept["tool_choice"])
    return kept


def _public(tool: Json) -> Json:
    """A schema may have a property of any name, so what a person wrote as one is left alone."""
    own = isinstance(tool, Mapping) and tool.get("type") in ("function", "custom")
    return tool if own else _without_secrets(tool)


def _without_secrets(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {
            key: _server(inner) if key == "server_url" else _without_secrets(inner)
            for key, inner in value.items()
            if key not in SECRET
        }
    return [_without_secrets(inner) for inner in value] if isinstance(value, list) else value


def _server(url: Json) -> Json:
    """Where a tool's server is, as the real API shows it: its path or its query may be what lets one in."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        return None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", "")) or None
