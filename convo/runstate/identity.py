"""Which call a decision is about: its tool, and a fingerprint of what it would do.

From 1.15 on a decision counts only together with an entry of the ledger, which binds the call's id
to two digests. The scope names the tool; the fingerprint names the tool and everything that the
call would do. Readers compute both again and ask once more when they differ, so they have to be
right to the byte: SHA-256 over sorted JSON without spaces, characters as they are, in UTF-8.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TypeAlias

from convo.items import Item, Json

Lookup: TypeAlias = tuple[str, ...]
"""A function tool's name in layers: ("bare", name), ("namespaced", space, name), ("deferred_top_level", name)."""

ARGUMENTS = {
    "function_call": "arguments",
    "mcp_approval_request": "arguments",
    "custom_tool_call": "input",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
"""The calls that can be decided on, and the field of each that says what it would do."""

MEANING = {
    *("type", "name", "namespace", "server_label", "arguments", "input", "action", "actions"),
    *("pending_safety_checks", "operation", "operations", "environment", "caller"),
}
"""Fields that say what a call would do; a function's name stands in its scope already."""

HANDOFF = "handoff"


@dataclass(frozen=True, slots=True)
class Binding:
    """What the ledger says of a call: two digests, each 64 hex digits."""

    scope: str
    fingerprint: str


@dataclass(frozen=True)
class Call:
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
    lookup: Lookup | None = None
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
        field = ARGUMENTS.get(self.type, "arguments")
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
        match self.lookup or layers(self.name, self.space):
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
            lookup = self.lookup or layers(_text(self.raw.get("name")), _text(self.raw.get("namespace")))
            return _scope(self.type, role, lookup) if lookup else None
        if self.is_hosted:
            name, server = _text(self.raw.get("name")), _text(self.raw.get("server_label"))
            return _scope(self.type, role, None, name, server) if name and server else None
        return _scope(self.type, role, None, self.name)

    def binding(self, role: str | None = None) -> Binding | None:
        """What the ledger has to say of this call; None where the call does not say enough.

        raises:  ValueError  its arguments hold a lone surrogate, or are nested too deep to be read
        """
        scope = self.scope(role)
        if self.type not in ARGUMENTS or self.arguments is None or self.id is None or scope is None:
            return None
        meaning: dict[str, Json] = {"approval_scope": scope}
        said_by_scope = ("name", "namespace") if self.is_function else ()
        for field, value in self.raw.items():
            if field in MEANING and value is not None and field not in said_by_scope:
                meaning[field] = _parsed(value) if field == "arguments" else _dense(value)
        return Binding(scope, _digest(meaning))


@lru_cache(maxsize=256)
def _scope(
    kind: str, role: str | None, lookup: Lookup | None, name: str | None = None, server: str | None = None
) -> str:
    """The digest that names a tool; a long run calls few tools many times."""
    named = {"type": kind, "invocation_role": role, "name": name, "server_label": server}
    said: dict[str, Json] = {key: value for key, value in named.items() if value}
    return _digest({**said, "tool_lookup_key": list(lookup)} if lookup else said)


def call_of(raw: Json, shown: Mapping[str, Json] | None = None) -> Call | None:
    """The call in `raw`, with what the approval item or run item `shown` says around it; None when it is none."""
    raw = _unwrapped(raw)
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or raw["type"] not in ARGUMENTS:
        return None
    shown = shown or {}
    name = _text(shown.get("tool_name")) or _text(raw.get("name"))
    space = _text(shown.get("tool_namespace")) or _text(raw.get("namespace"))
    agent = shown.get("agent")
    return Call(
        raw=raw,
        name=name,
        lookup=_lookup(shown.get("tool_lookup_key")) or _said(raw, name, space),
        space=space,
        alias=shown.get("allow_bare_name_alias") is True,
        agent=agent if isinstance(agent, dict) else None,
    )


def layers(name: str | None, space: str | None) -> Lookup | None:
    """A function tool's name in layers; a namespace of the tool's own name stands for a deferred tool."""
    if not name:
        return None
    if space == name:
        return ("deferred_top_level", name)
    return ("namespaced", space, name) if space else ("bare", name)


def _said(raw: Item, name: str | None, space: str | None) -> Lookup | None:
    """The layers of a function whose approval item does not spell them out."""
    return layers(name, space) if raw.get("type") == "function_call" and space != name else None


def _lookup(said: Json) -> Lookup | None:
    if not isinstance(said, dict):
        return None
    kind, name, space = (_text(said.get(key)) for key in ("kind", "name", "namespace"))
    if name and kind in ("bare", "deferred_top_level"):
        return (kind, name)
    return (kind, space, name) if name and kind == "namespaced" and space else None


def _unwrapped(raw: Json) -> Json:
    """A hosted tool's request for approval, which some providers wrap in a call of their own."""
    if not isinstance(raw, dict) or raw.get("type") != "hosted_tool_call":
        return raw
    inner = raw.get("provider_data")
    if not isinstance(inner, dict) or inner.get("type") != "mcp_approval_request":
        return raw
    named = {"name": inner.get("name") or raw.get("name"), "id": inner.get("id", raw.get("call_id") or raw.get("id"))}
    return {**raw, **inner, **named}


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _parsed(arguments: Json) -> Json:
    """What a string of arguments says; the string itself where it is not JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return PARSER.decode(arguments)
    except RecursionError as wrong:
        raise ValueError("its arguments are nested too deep") from wrong
    except ValueError:
        return arguments


def _refuse(constant: str) -> Json:
    raise ValueError(constant)


PARSER = json.JSONDecoder(parse_constant=_refuse)
EXACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _dense(value: Json) -> Json:
    """`value` without its nulls."""
    if isinstance(value, dict):
        return {key: _dense(below) for key, below in value.items() if below is not None}
    return [_dense(below) for below in value] if isinstance(value, list) else value


def _digest(value: Json) -> str:
    try:
        exact = EXACT.encode(value).encode("utf-8")
    except UnicodeEncodeError as wrong:
        raise ValueError("its arguments hold half a character (a lone surrogate)") from wrong
    except RecursionError as wrong:
        raise ValueError("its arguments are nested too deep") from wrong
    return sha256(exact).hexdigest()
