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

from convo.history.canonical import refuse_json_constant
from convo.history.items import MCP_APPROVAL_REQUEST, Item, Json

LookupKey: TypeAlias = tuple[str, ...]
"""The lookup of a function tool: ("bare", name), ("namespaced", space, name), ("deferred_top_level", name)."""

ARGUMENT_FIELDS = {
    "function_call": "arguments",
    MCP_APPROVAL_REQUEST: "arguments",
    "custom_tool_call": "input",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
"""Types of calls that need a decision -> the field with the arguments or action."""

FINGERPRINT_FIELDS = {
    *("type", "name", "namespace", "server_label", "arguments", "input", "action", "actions"),
    *("pending_safety_checks", "operation", "operations", "environment", "caller"),
}
"""Fields that determine the effect of a call; the name of a function is in its scope already."""

HANDOFF_ROLE = "handoff"


@dataclass(frozen=True, slots=True)
class CallBinding:
    """The digests of a call in the ledger, each 64 hex digits."""

    scope: str
    fingerprint: str


@dataclass(frozen=True)
class StateCall:
    """A call as an approval item, an action or a history contains it.

    raw:                  the call itself; a hosted request is unwrapped
    name:                 the tool's name, if the call or its run item has one
    lookup:               the lookup of a function tool, if present
    namespace:            the namespace of the call or its run item
    has_bare_name_alias:  a decision is stored under the bare name too
    agent:                the agent that made the call, `{"name": ..., "identity"?: ...}`
    """

    raw: Item
    name: str | None = None
    lookup: LookupKey | None = None
    namespace: str | None = None
    has_bare_name_alias: bool = False
    agent: Mapping[str, Json] | None = None

    @property
    def type(self) -> str:
        return str(self.raw.get("type"))

    @property
    def is_function(self) -> bool:
        return self.type == "function_call"

    @property
    def is_hosted(self) -> bool:
        """Whether the provider, not the client, runs the tool."""
        return self.type == MCP_APPROVAL_REQUEST

    @property
    def id(self) -> str | None:
        """The provider's string; None for a missing id or one that is not a string."""
        call_id = self.raw.get("id") if self.is_hosted else self.raw.get("call_id")
        return call_id if isinstance(call_id, str) and call_id else None

    @property
    def arguments(self) -> Json:
        """The arguments: of a function as the raw string, of a shell call as its action."""
        field = ARGUMENT_FIELDS.get(self.type, "arguments")
        return self.raw.get(field, self.raw.get("operations") if field == "operation" else None)

    @property
    def tool_name(self) -> str:
        """The name shown to a person."""
        return self.name or self.type

    @cached_property
    def record_keys(self) -> tuple[str, ...]:
        """The keys under which a decision on this call is stored, its own key last."""
        bare = (self.tool_name,) if self.has_bare_name_alias else ()
        return tuple(dict.fromkeys((*bare, self._own_record_key())))

    def record_keys_for(self, *, always: bool) -> tuple[str, ...]:
        """Return the keys for a decision; a sticky one is stored under the tool's own key only."""
        return self.record_keys[-1:] if always else self.record_keys

    def _own_record_key(self) -> str:
        match self.lookup or make_lookup_key(self.name, self.namespace):
            case ("namespaced", namespace, name):
                return f"{namespace}.{name}"
            case ("deferred_top_level", name) if self.lookup:
                return f"deferred_top_level:{name}"
            case ("deferred_top_level", name):
                return f"{name}.{name}"
        return self.tool_name

    def scope_digest(self, role: str | None = None) -> str | None:
        """Return the digest of the tool; None if the call does not name its tool."""
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
        """Return the digests for the ledger; None if the call lacks data.

        Raises ValueError for arguments with a lone surrogate and for arguments nested too deeply.
        """
        scope = self.scope_digest(role)
        if self.type not in ARGUMENT_FIELDS or self.arguments is None or self.id is None or scope is None:
            return None
        meaning: dict[str, Json] = {"approval_scope": scope}
        scope_fields = ("name", "namespace") if self.is_function else ()
        for field, value in self.raw.items():
            if field in FINGERPRINT_FIELDS and value is not None and field not in scope_fields:
                meaning[field] = _parse_arguments(value) if field == "arguments" else _drop_nulls(value)
        return CallBinding(scope, _hash_json(meaning))


@lru_cache(maxsize=256)
def _scope_digest(
    kind: str, role: str | None, lookup: LookupKey | None, name: str | None = None, server: str | None = None
) -> str:
    """Return the digest of a tool; cached, because a long run calls few tools many times."""
    fields = {"type": kind, "invocation_role": role, "name": name, "server_label": server}
    set_fields: dict[str, Json] = {key: value for key, value in fields.items() if value}
    return _hash_json({**set_fields, "tool_lookup_key": list(lookup)} if lookup else set_fields)


def parse_state_call(raw: Json, run_item: Mapping[str, Json] | None = None) -> StateCall | None:
    """Parse the call in `raw` with the tool's fields of `run_item`; None if it is not a call that needs decisions."""
    raw = _unwrap_hosted_call(raw)
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or raw["type"] not in ARGUMENT_FIELDS:
        return None
    run_item = run_item or {}
    name = _non_empty_string(run_item.get("tool_name")) or _non_empty_string(raw.get("name"))
    namespace = _non_empty_string(run_item.get("tool_namespace")) or _non_empty_string(raw.get("namespace"))
    agent = run_item.get("agent")
    return StateCall(
        raw=raw,
        name=name,
        lookup=_parse_lookup_key(run_item.get("tool_lookup_key")) or _implied_lookup_key(raw, name, namespace),
        namespace=namespace,
        has_bare_name_alias=run_item.get("allow_bare_name_alias") is True,
        agent=agent if isinstance(agent, dict) else None,
    )


def make_lookup_key(name: str | None, namespace: str | None) -> LookupKey | None:
    """Return the lookup of a function tool; a namespace equal to the tool's name means a deferred tool."""
    if not name:
        return None
    if namespace == name:
        return ("deferred_top_level", name)
    return ("namespaced", namespace, name) if namespace else ("bare", name)


def _implied_lookup_key(raw: Item, name: str | None, namespace: str | None) -> LookupKey | None:
    """Return the lookup of a function whose approval item has none."""
    return make_lookup_key(name, namespace) if raw.get("type") == "function_call" and namespace != name else None


def _parse_lookup_key(value: Json) -> LookupKey | None:
    if not isinstance(value, dict):
        return None
    kind, name, namespace = (_non_empty_string(value.get(key)) for key in ("kind", "name", "namespace"))
    if name and kind in ("bare", "deferred_top_level"):
        return (kind, name)
    return (kind, namespace, name) if name and kind == "namespaced" and namespace else None


def _unwrap_hosted_call(raw: Json) -> Json:
    """Unwrap an MCP approval request, which some providers wrap in a call of their own."""
    if not isinstance(raw, dict) or raw.get("type") != "hosted_tool_call":
        return raw
    inner = raw.get("provider_data")
    if not isinstance(inner, dict) or inner.get("type") != MCP_APPROVAL_REQUEST:
        return raw
    fields = {"name": inner.get("name") or raw.get("name"), "id": inner.get("id", raw.get("call_id") or raw.get("id"))}
    return {**raw, **inner, **fields}


def _non_empty_string(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _parse_arguments(arguments: Json) -> Json:
    """Parse arguments as JSON; return the string itself if it is not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return _STRICT_DECODER.decode(arguments)
    except RecursionError as error:
        raise ValueError("its arguments are nested too deep") from error
    except ValueError:
        return arguments


_STRICT_DECODER = json.JSONDecoder(parse_constant=refuse_json_constant)
_CANONICAL_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _drop_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _drop_nulls(member) for key, member in value.items() if member is not None}
    return [_drop_nulls(member) for member in value] if isinstance(value, list) else value


def _hash_json(value: Json) -> str:
    try:
        encoded = _CANONICAL_ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("its arguments contain a lone surrogate (half a character)") from error
    except RecursionError as error:
        raise ValueError("its arguments are nested too deep") from error
    return sha256(encoded).hexdigest()
