"""The schema of a settings file, and validation against it.

`SETTINGS_SCHEMA` lists every setting with its check. Validation flattens a document into (key, value)
pairs, so that layers can be merged value by value. It stops at the first error, which names the file
and the key.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from shlex import quote
from typing import Any, NamedTuple, TypeAlias, cast

from convo.config.request_settings import (
    MAX_TEMPERATURE,
    MODELS_TABLE,
    PARAM_TABLE,
    REQUEST_TABLE,
    check_parameter_name,
    check_parameter_value,
)
from convo.config.sections import (
    CONFIGURABLE_APIS,
    CUSTOM_TOOLS,
    HOSTED_TOOLS,
    PREFIX_MISMATCH_BEHAVIORS,
    PROVIDER_EXTRA_FIELDS,
    STATE_OWNERS,
    ContextLimits,
    KeyLimits,
    McpServer,
    Price,
)
from convo.config.storage import STORAGE_TYPES, parse_storage_table
from convo.config.values import (
    ChoiceCheck,
    ChoicesCheck,
    IntegerCheck,
    InvalidValue,
    NumberCheck,
    SettingKey,
    ValueCheck,
    check_base_url,
    check_boolean,
    check_folders,
    check_fraction_or_tokens,
    check_networks,
    check_origins,
    check_patterns,
    check_port,
    check_price,
    check_seconds,
    check_tenant,
    check_tenants,
    check_text,
    check_texts,
    check_variable_name,
    find_closest_word,
    format_setting_key,
    parse_duration,
    parse_durations,
    toml_type_name,
)
from convo.errors import InvalidSettings


class KeyedTable(NamedTuple):
    """A table with free names; `check_name` validates a name."""

    check_name: Callable[[str], None]
    schema: "SettingSchema"


class AtomicTable(NamedTuple):
    """A table that is one value: layers override it as a whole."""

    schema: "SettingSchema"
    parse: Callable[[Mapping[str, object]], object]


SettingSchema: TypeAlias = ValueCheck | Mapping[str, "SettingSchema"] | KeyedTable | AtomicTable


def check_provider_name(name: str) -> None:
    if not name or "/" in name or name != name.strip():
        raise InvalidValue("is not a provider name: use one word without '/'")


def check_alias_name(name: str) -> None:
    """Check a name that requests may use: it may be the full name of a model, to redirect requests for it."""
    if not name or name != name.strip() or "" in name.split("/"):
        raise InvalidValue("is not an alias: use one word, or a name like provider/model")


def check_profile_name(name: str) -> None:
    if not name or name != name.strip():
        raise InvalidValue("is not a profile name: use one word")


def check_model_name(name: str) -> None:
    provider, slash, model = name.partition("/")
    if not (provider and slash and model):
        raise InvalidValue("is not a full model name, provider/model", hint='quote the whole name: "provider/model"')


def parse_price_table(table: Mapping[str, object]) -> Price:
    prices = cast(Mapping[str, float], table)
    if missing := [name for name in ("input", "output") if name not in prices]:
        raise InvalidValue(
            f"needs {' and '.join(missing)}, in USD per million tokens",
            hint=f"add {' and '.join(f'{name} = 0.25' for name in missing)}, or the prices of the model",
        )
    input_price = prices["input"]
    return Price(
        input_price,
        prices["output"],
        prices.get("cached", input_price),
        prices.get("written", input_price),
        written_1h=prices.get("written_1h"),
    )


def parse_context_limits_table(table: Mapping[str, object]) -> ContextLimits:
    limits = cast(Mapping[str, int], table)
    if "context" not in limits:
        raise InvalidValue("needs context, in tokens", hint="add context = 128000, or the limit of the model")
    return ContextLimits(limits["context"], limits.get("output"))


_MCP_NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def check_mcp_name(name: str) -> None:
    if not _MCP_NAME_PATTERN.fullmatch(name):
        raise InvalidValue("is not a name of an MCP server: use a letter, then letters, digits, _ or -")


def parse_mcp_table(table: Mapping[str, object]) -> McpServer:
    server = McpServer(**cast(Mapping[str, Any], table))
    if (server.url is None) == (not server.command):
        raise InvalidValue("needs either url or command", hint='add url = "https://.../mcp" or command = ["program"]')
    if server.keyring and server.key_env is None:
        raise InvalidValue("needs key_env: it names the key in the keyring", hint='add key_env = "NAME"')
    return server


_PROVIDER_SCHEMA: dict[str, SettingSchema] = {
    "api": ChoiceCheck(*CONFIGURABLE_APIS),
    "base_url": check_base_url,
    "key_env": check_variable_name,
    "token_env": check_variable_name,
    "owner": ChoiceCheck(*STATE_OWNERS),
    "organisation": check_text,
    "project": check_text,
    "api_version": check_text,
    "deployment": check_text,
    "key_file": check_text,
    "keyring": check_boolean,
    "extra_fields": ChoicesCheck(*PROVIDER_EXTRA_FIELDS),
    "hosted_tools": ChoiceCheck(*HOSTED_TOOLS),
    "custom_tools": ChoiceCheck(*CUSTOM_TOOLS),
    "resend_fields": check_boolean,
    "prefix_mismatch_behavior": ChoiceCheck(*PREFIX_MISMATCH_BEHAVIORS),
}


def parse_key_limits_table(table: Mapping[str, object]) -> KeyLimits:
    limits = cast(Mapping[str, int], table)
    return KeyLimits(concurrent=limits.get("concurrent"), per_minute=limits.get("per_minute"))


def check_key_name(name: str) -> None:
    check_tenant(name)


_RATE_CHECK = IntegerCheck(0, maximum=100_000)

_KEY_LIMITS_SCHEMA: dict[str, SettingSchema] = {"concurrent": _RATE_CHECK, "per_minute": _RATE_CHECK}

MAX_FILE_BYTES = 512 * 1024 * 1024
"""The largest file that a setting may allow: a file is in memory while it is stored and sent."""

_SERVE_SCHEMA: dict[str, SettingSchema] = {
    "host": check_text,
    "port": check_port,
    "keys_file": check_text,
    "seal_key_env": check_variable_name,
    "cors_origins": check_origins,
    "blocked_networks": check_networks,
    "max_body_bytes": IntegerCheck(1024),
    "max_header_bytes": IntegerCheck(1024),
    "max_depth": IntegerCheck(10, maximum=500),
    "max_items": IntegerCheck(1),
    "max_requests": IntegerCheck(1),
    "read_s": check_seconds,
    "write_s": check_seconds,
    "keepalive_s": check_seconds,
    "grace_s": check_seconds,
    "mcp_urls": check_boolean,
    "reasoning_events": ChoiceCheck("openai", "specification"),
    "record": check_boolean,
    "record_keys": check_tenants,
    "record_ttl_s": IntegerCheck(60),
    "limits": {
        **_KEY_LIMITS_SCHEMA,
        "process_per_minute": _RATE_CHECK,
        "process_body_bytes": IntegerCheck(0),
        "keys": KeyedTable(check_key_name, AtomicTable(_KEY_LIMITS_SCHEMA, parse_key_limits_table)),
    },
    "files": {
        "max_file_bytes": IntegerCheck(1024, maximum=MAX_FILE_BYTES),
        "max_files": IntegerCheck(0),
        "max_total_bytes": IntegerCheck(0),
        "fetch_urls": check_boolean,
        "fetch_s": check_seconds,
    },
}

_MCP_SCHEMA: dict[str, SettingSchema] = {
    "url": check_base_url,
    "command": check_texts,
    "key_env": check_variable_name,
    "keyring": check_boolean,
    "allowed_tools": check_texts,
    "timeout_s": check_seconds,
}

_LIMITS_SCHEMA: dict[str, SettingSchema] = {
    "answer_bytes": IntegerCheck(1024),
    "answer_events": IntegerCheck(10),
    "answer_s": check_seconds,
    "idle_s": check_seconds,
    "event_bytes": IntegerCheck(1024),
    "output_bytes": IntegerCheck(1024),
    "body_bytes": IntegerCheck(1024),
}

_STORAGE_SCHEMA: dict[str, SettingSchema] = {
    "type": ChoiceCheck(*STORAGE_TYPES),
    "connection_string": check_text,
    "ttl": parse_duration,
    "ttls": parse_durations,
}

_PRICE_SCHEMA: dict[str, SettingSchema] = {
    "input": check_price,
    "cached": check_price,
    "written": check_price,
    "written_1h": check_price,
    "output": check_price,
}

_REQUEST_SCHEMA: dict[str, SettingSchema] = {
    "temperature": NumberCheck(0, MAX_TEMPERATURE),
    "top_p": NumberCheck(0, 1),
    "max_output_tokens": IntegerCheck(1),
    "reasoning_effort": check_text,
    "verbosity": check_text,
    PARAM_TABLE: KeyedTable(check_parameter_name, check_parameter_value),
}

_PROFILE_SCHEMA: dict[str, SettingSchema] = {
    "model": check_text,
    "tenant": check_tenant,
    "compact_at": check_fraction_or_tokens,
    "editing": ChoiceCheck("emacs", "vi", "plain"),
    "answers": ChoiceCheck("markdown", "plain"),
    "cache_diagnostics": check_boolean,
    "redact": check_patterns,
    "providers": KeyedTable(check_provider_name, _PROVIDER_SCHEMA),
    "aliases": KeyedTable(check_alias_name, check_text),
    "state_storage": AtomicTable(_STORAGE_SCHEMA, parse_storage_table),
    "serve": _SERVE_SCHEMA,
    "mcp": KeyedTable(check_mcp_name, AtomicTable(_MCP_SCHEMA, parse_mcp_table)),
    "limits": _LIMITS_SCHEMA,
    REQUEST_TABLE: _REQUEST_SCHEMA,
    MODELS_TABLE: KeyedTable(check_model_name, _REQUEST_SCHEMA),
    "prices": KeyedTable(check_model_name, AtomicTable(_PRICE_SCHEMA, parse_price_table)),
    "windows": KeyedTable(
        check_model_name,
        AtomicTable({"context": IntegerCheck(1), "output": IntegerCheck(1)}, parse_context_limits_table),
    ),
}

SETTINGS_SCHEMA: dict[str, SettingSchema] = {
    **_PROFILE_SCHEMA,
    "trusted": check_folders,
    "profile": check_text,
    "profiles": KeyedTable(check_profile_name, _PROFILE_SCHEMA),
}

_COMMON_MISTAKES = {
    "api_key": "key_env",
    "key": "key_env",
    "token": "token_env",
    "organization": "organisation",
    "url": "base_url",
    "connection": "connection_string",
    "max_tokens": "max_output_tokens",
    "effort": "reasoning_effort",
    "params": "param",
    "parameters": "param",
}
"""Frequent wrong names and the names that are meant."""

_KEY_NAMES = ("api_key", "key", "token")
"""Names for a key itself, which is not a setting."""


def iter_settings(document: Mapping[str, object], location: str) -> Iterator[tuple[SettingKey, object]]:
    """Yield every value of a parsed file with its key, checked.

    location:  the file's path, for errors

    Raises InvalidSettings for an unknown key, a wrong type or a value out of range.
    """
    return _iter_checked_settings((), document, SETTINGS_SCHEMA, location)


def iter_untrusted_settings(key: SettingKey, value: object) -> Iterator[tuple[SettingKey, object]]:
    """Yield every value at and below `key` of an untrusted file, each with its key. Never raises.

    A value is None if it is invalid or no setting, since it may be a secret in the wrong place, and for regular
    expressions, since a match can take forever.
    """
    schema: SettingSchema | None = SETTINGS_SCHEMA
    for name in key:
        schema = _find_child_schema(name, schema)
    yield from _iter_valid_settings(key, value, schema)


def _iter_valid_settings(
    key: SettingKey, value: object, schema: SettingSchema | None
) -> Iterator[tuple[SettingKey, object]]:
    if isinstance(schema, KeyedTable | Mapping) and isinstance(value, dict):
        for name, member in value.items():
            yield from _iter_valid_settings((*key, name), member, _find_child_schema(name, schema))
        return
    if schema is None or schema is check_patterns:
        yield key, None
        return
    try:
        yield from _iter_checked_settings(key, value, schema, "")
    except InvalidSettings:
        yield key, None


def _find_child_schema(name: str, schema: SettingSchema | None) -> SettingSchema | None:
    """Return the schema of `name` in a table; None if the table has no such setting."""
    if isinstance(schema, KeyedTable):
        try:
            schema.check_name(name)
        except InvalidValue:
            return None
        return schema.schema
    return schema.get(name) if isinstance(schema, Mapping) else None


def run_check(key: SettingKey, value: object, check: ValueCheck, location: str) -> object:
    """Return `value` as `check` converts it. Raises InvalidSettings with the location and the key."""
    try:
        return check(value)
    except InvalidValue as error:
        raise InvalidSettings(f"{location}: '{format_setting_key(key)}' {error}", hint=error.hint) from error


def get_check(key: SettingKey) -> ValueCheck:
    """Return the check of the value at `key`, which must be in `SETTINGS_SCHEMA`."""
    schema: SettingSchema = SETTINGS_SCHEMA
    for name in key:
        schema = schema.schema if isinstance(schema, KeyedTable) else cast(Mapping[str, SettingSchema], schema)[name]
    assert callable(schema)
    return schema


def get_schema(key: SettingKey, location: str) -> SettingSchema:
    """Return the schema at `key`. Raises InvalidSettings for an unknown setting."""
    schema: SettingSchema = SETTINGS_SCHEMA
    for depth in range(1, len(key) + 1):
        while isinstance(schema, AtomicTable):
            schema = schema.schema
        if callable(schema):
            raise InvalidSettings(f"{location}: '{format_setting_key(key[: depth - 1])}' is one value, not a table")
        schema = _require_child_schema(key[:depth], schema, location, hint=_set_command_hint(key[:depth], schema))
    return schema


def find_similar_setting(key: SettingKey) -> SettingKey | None:
    """Return the key with the most similar known name in place of its first unknown one; None without one."""
    for depth in range(1, len(key) + 1):
        try:
            get_schema(key[:depth], "")
        except InvalidSettings:
            parent: SettingSchema = get_schema(key[: depth - 1], "")
            while isinstance(parent, AtomicTable):
                parent = parent.schema
            similar = _guess_setting_name(key[depth - 1], parent) if isinstance(parent, Mapping) else None
            return (*key[: depth - 1], similar, *key[depth:]) if similar else None
    return None


def _iter_checked_settings(
    key: SettingKey, value: object, schema: SettingSchema, location: str
) -> Iterator[tuple[SettingKey, object]]:
    if callable(schema):
        yield key, run_check(key, value, schema, location)
        return
    if not isinstance(value, dict):
        raise InvalidSettings(f"{location}: '{format_setting_key(key)}' must be a table, not {toml_type_name(value)}")
    if isinstance(schema, AtomicTable):
        inner = {key[-1]: checked for key, checked in _iter_checked_settings(key, value, schema.schema, location)}
        yield key, run_check(key, inner, cast(ValueCheck, schema.parse), location)
        return
    for name, member in value.items():
        yield from _iter_checked_settings(
            (*key, name), member, _require_child_schema((*key, name), schema, location), location
        )


def _require_child_schema(
    key: SettingKey, schema: Mapping[str, SettingSchema] | KeyedTable, location: str, *, hint: str | None = None
) -> SettingSchema:
    """Return the schema at `key`, in a table of `schema`. An error for an unknown name gets `hint`."""
    if isinstance(schema, KeyedTable):
        run_check(key, key[-1], cast(ValueCheck, schema.check_name), location)
        return schema.schema
    if key[-1] not in schema:
        raise InvalidSettings(
            f"{location}: no setting '{format_setting_key(key)}'; {_format_suggestion(key[-1], schema)}", hint=hint
        )
    return schema[key[-1]]


def _format_suggestion(name: str, known_settings: Mapping[str, SettingSchema]) -> str:
    suggestion = _guess_setting_name(name, known_settings)
    return f"did you mean '{suggestion}'?" if suggestion else f"known settings: {', '.join(known_settings)}"


def _set_command_hint(key: SettingKey, schema: Mapping[str, SettingSchema] | KeyedTable) -> str | None:
    """Suggest the command for the closest name, or for the first name; None in a table with free names."""
    if isinstance(schema, KeyedTable):
        return None
    if key[-1] in _KEY_NAMES:
        return f"convo config key set {key[-2] if 'providers' in key[:-2] else 'PROVIDER'}"
    suggestion = _guess_setting_name(key[-1], schema)
    name = format_setting_key((*key[:-1], suggestion or next(iter(schema))))
    command = f"convo config set {quote(name)} VALUE"
    return command if suggestion else f"{command}, or another of these settings"


def _guess_setting_name(name: str, known_settings: Mapping[str, SettingSchema]) -> str | None:
    intended = _COMMON_MISTAKES.get(name)
    return intended if intended in known_settings else find_closest_word(name, known_settings)
