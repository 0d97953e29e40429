"""Identify the tool call that a decision is about: record keys, scope digest and fingerprint.

From label 1.15 on a decision counts only if the ledger binds the call's id to two SHA-256 digests: the scope
(the tool) and the fingerprint (the tool and its arguments). Readers recompute both, so they must match to the byte:
sorted JSON without spaces, not ASCII-escaped, UTF-8.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TypeAlias

from convo.history.items import Item, Json

LookupKey: TypeAlias = tuple[str, ...]
"""A function tool's name in layers: ("bare", name), ("namespaced", space, name), ("deferred_top_level", name)."""

ARGUMENT_FIELDS = {
    "function_call": "arguments",
    "mcp_approval_request": "arguments",
    "custom_tool_call": "input",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
"""The calls that can be decided on, and the field of each that says what it would do."""

FINGERPRINT_FIELDS = {
    *("type", "name", "namespace", "server_label", "arguments", "input", "action", "actions"),
    *("pending_safety_checks", "operation", "operations", "environment", "caller"),
}
"""Fields that say what a call would do; a function's name stands in its scope already."""

HANDOFF_ROLE = "handoff"


@dataclass(frozen=True, slots=True)
class CallBinding:
    """What the ledger says of a call: two digests, each 64 hex digits."""

    scope: str
    fingerprint: str


@dataclass(frozen=True)
class StateCall:
    """One call as an approval item, an action or a history shows it.

    raw:     the call itself, a hosted request unwrapped
    name:    the tool's name, where the call or whoever shows it says one
    lookup:  a function tool's name in layers, where one was said
    space:   the namespace that was said beside it
    alias:   whether a decision is kept under the bare name as well
    agent:   who made the call, `{"name": ..., "identity"?: ...}`
    """

    raw: Item
    name: str | None = None
    lookup: LookupKey | None = None
    space: str | None = None
    alias: bool = False
    agent: Mapping[str, Json] | None = None

    @property
    def type(self) -> str:
        return str(self.raw.get("type"))

    @property
    def is_function(self) -> bool:
        return self.type == "function_call"

    @property
    def is_hosted(self) -> bool:
        """Whether a provider's own tool asks; the provider runs it, not the client."""
        return self.type == "mcp_approval_request"

    @property
    def id(self) -> str | None:
        """The provider's string; None where there is none, or something else than a string."""
        found = self.raw.get("id") if self.is_hosted else self.raw.get("call_id")
        return found if isinstance(found, str) and found else None

    @property
    def arguments(self) -> Json:
        """What it would do: a function's arguments as the raw string, a shell call's action as it is."""
        field = ARGUMENT_FIELDS.get(self.type, "arguments")
        return self.raw.get(field, self.raw.get("operations") if field == "operation" else None)

    @property
    def tool(self) -> str:
        """The name that a person knows the tool by."""
        return self.name or self.type

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys that a decision on this call is kept under, its own the last."""
        bare = (self.tool,) if self.alias else ()
        return tuple(dict.fromkeys((*bare, self._key())))

    def kept_under(self, *, always: bool) -> tuple[str, ...]:
        """The keys that take a decision; one that is for good never goes by another name."""
        return self.keys[-1:] if always else self.keys

    def _key(self) -> str:
        match self.lookup or make_lookup_key(self.name, self.space):
            case ("namespaced", space, name):
                return f"{space}.{name}"
            case ("deferred_top_level", name) if self.lookup:
                return f"deferred_top_level:{name}"
            case ("deferred_top_level", name):
                return f"{name}.{name}"
        return self.tool

    def scope(self, role: str | None = None) -> str | None:
        """The digest that names the tool; None where the call does not say which."""
        if self.is_function:
            lookup = self.lookup or make_lookup_key(
                _non_empty_string(self.raw.get("name")), _non_empty_string(self.raw.get("namespace"))
            )
            return _scope_digest(self.type, role, lookup) if lookup else None
        if self.is_hosted:
            name, server = _non_empty_string(self.raw.get("name")), _non_empty_string(self.raw.get("server_label"))
            return _scope_digest(self.type, role, None, name, server) if name and server else None
        return _scope_digest(self.type, role, None, self.name)

    def binding(self, role: str | None = None) -> CallBinding | None:
        """What the ledger has to say of this call; None where the call does not say enough.

        raises:  ValueError  its arguments hold a lone surrogate, or are nested too deep to be read
        """
        scope = self.scope(role)
        if self.type not in ARGUMENT_FIELDS or self.arguments is None or self.id is None or scope is None:
            return None
        meaning: dict[str, Json] = {"approval_scope": scope}
        said_by_scope = ("name", "namespace") if self.is_function else ()
        for field, value in self.raw.items():
            if field in FINGERPRINT_FIELDS and value is not None and field not in said_by_scope:
                meaning[field] = _parse_arguments(value) if field == "arguments" else _drop_nulls(value)
        return CallBinding(scope, _hash_json(meaning))


@lru_cache(maxsize=256)
def _scope_digest(
    kind: str, role: str | None, lookup: LookupKey | None, name: str | None = None, server: str | None = None
) -> str:
    """The digest that names a tool; a long run calls few tools many times."""
    named = {"type": kind, "invocation_role": role, "name": name, "server_label": server}
    said: dict[str, Json] = {key: value for key, value in named.items() if value}
    return _hash_json({**said, "tool_lookup_key": list(lookup)} if lookup else said)


def parse_state_call(raw: Json, shown: Mapping[str, Json] | None = None) -> StateCall | None:
    """The call in `raw`, with what the approval item or run item `shown` says around it; None when it is none."""
    raw = _unwrap_hosted_call(raw)
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or raw["type"] not in ARGUMENT_FIELDS:
        return None
    shown = shown or {}
    name = _non_empty_string(shown.get("tool_name")) or _non_empty_string(raw.get("name"))
    space = _non_empty_string(shown.get("tool_namespace")) or _non_empty_string(raw.get("namespace"))
    agent = shown.get("agent")
    return StateCall(
        raw=raw,
        name=name,
        lookup=_parse_lookup_key(shown.get("tool_lookup_key")) or _implied_lookup_key(raw, name, space),
        space=space,
        alias=shown.get("allow_bare_name_alias") is True,
        agent=agent if isinstance(agent, dict) else None,
    )


def make_lookup_key(name: str | None, space: str | None) -> LookupKey | None:
    """A function tool's name in layers; a namespace of the tool's own name stands for a deferred tool."""
    if not name:
        return None
    if space == name:
        return ("deferred_top_level", name)
    return ("namespaced", space, name) if space else ("bare", name)


def _implied_lookup_key(raw: Item, name: str | None, space: str | None) -> LookupKey | None:
    """The layers of a function whose approval item does not spell them out."""
    return make_lookup_key(name, space) if raw.get("type") == "function_call" and space != name else None


def _parse_lookup_key(said: Json) -> LookupKey | None:
    if not isinstance(said, dict):
        return None
    kind, name, space = (_non_empty_string(said.get(key)) for key in ("kind", "name", "namespace"))
    if name and kind in ("bare", "deferred_top_level"):
        return (kind, name)
    return (kind, space, name) if name and kind == "namespaced" and space else None


def _unwrap_hosted_call(raw: Json) -> Json:
    """A hosted tool's request for approval, which some providers wrap in a call of their own."""
    if not isinstance(raw, dict) or raw.get("type") != "hosted_tool_call":
        return raw
    inner = raw.get("provider_data")
    if not isinstance(inner, dict) or inner.get("type") != "mcp_approval_request":
        return raw
    named = {"name": inner.get("name") or raw.get("name"), "id": inner.get("id", raw.get("call_id") or raw.get("id"))}
    return {**raw, **inner, **named}


def _non_empty_string(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _parse_arguments(arguments: Json) -> Json:
    """What a string of arguments says; the string itself where it is not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return _STRICT_DECODER.decode(arguments)
    except RecursionError as wrong:
        raise ValueError("its arguments are nested too deep") from wrong
    except ValueError:
        return arguments


def _reject_constant(constant: str) -> Json:
    raise ValueError(constant)


_STRICT_DECODER = json.JSONDecoder(parse_constant=_reject_constant)
_CANONICAL_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _drop_nulls(value: Json) -> Json:
    """`value` without its nulls."""
    if isinstance(value, dict):
        return {key: _drop_nulls(below) for key, below in value.items() if below is not None}
    return [_drop_nulls(below) for below in value] if isinstance(value, list) else value


def _hash_json(value: Json) -> str:
    try:
        exact = _CANONICAL_ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError as wrong:
        raise ValueError("its arguments hold half a character (a lone surrogate)") from wrong
    except RecursionError as wrong:
        raise ValueError("its arguments are nested too deep") from wrong
    return sha256(exact).hexdigest()
