"""The schema of a settings file, and validation against it.

`SETTINGS_SCHEMA` has the row of every setting: those of the fields of `Settings`, and those without a field. Validation
flattens a document into (key, value) pairs, so that layers can be merged value by value. It stops at the first error,
which names the file and the key. `filter_untrusted` returns the part of an untrusted file that may be used.
"""

import re
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import NamedTuple, cast

from convo.config.request_settings import (
    MAX_TEMPERATURE,
    MODELS_TABLE,
    PARAM_TABLE,
    REASONING_EFFORTS,
    REQUEST_TABLE,
    check_parameter_name,
    check_parameter_value,
)
from convo.config.sections import KNOWN_PROVIDERS, PROVIDER_VARIABLES, check_model_name
from convo.config.settings import Settings
from convo.config.storage import STORAGE_ROWS, parse_storage_table
from convo.config.values import (
    SECTION_SCHEMAS,
    AtomicTable,
    IntegerCheck,
    InvalidValue,
    KeyedTable,
    NumberCheck,
    Setting,
    SettingKey,
    SettingRow,
    SettingSchema,
    SettingSource,
    ValueCheck,
    check_folders,
    check_patterns,
    check_text,
    find_closest_word,
    format_setting_key,
    toml_type_name,
)
from convo.errors import InvalidSettings


def check_profile_name(name: str) -> None:
    if not name or name != name.strip():
        raise InvalidValue("is not a profile name: use one word")


_NOT_SENT = "not sent: the model's own"
_EFFORTS = ", ".join(f"`{effort}`" for effort in REASONING_EFFORTS)

_REQUEST_ROWS: dict[str, SettingSchema] = {
    "temperature": SettingRow(None, NumberCheck(0, MAX_TEMPERATURE), "Sampling temperature.", "1", _NOT_SENT),
    "top_p": SettingRow(None, NumberCheck(0, 1), "Share of the probability to sample from.", "1", _NOT_SENT),
    "max_output_tokens": SettingRow(
        None, IntegerCheck(1), "Maximum number of output tokens of a response.", "16000", _NOT_SENT
    ),
    "reasoning_effort": SettingRow(
        None,
        check_text,
        f"Reasoning effort: {_EFFORTS}. Not sent to a model that is known to have none, such as the built-in one; a"
        " line on stderr says so.",
        "low",
        _NOT_SENT,
    ),
    "verbosity": SettingRow(None, check_text, "Length of the text: `low`, `medium` or `high`.", "low", _NOT_SENT),
    PARAM_TABLE: KeyedTable(
        check_parameter_name,
        SettingRow(
            None,
            check_parameter_value,
            "Any other field of a request. A name with a dot, in quotation marks, is a member of an object.",
            "auto",
            _NOT_SENT,
        ),
    ),
}

_PROFILE_SCHEMA: dict[str, SettingSchema] = {
    **SECTION_SCHEMAS[Settings],
    "state_storage": AtomicTable(
        STORAGE_ROWS, parse_storage_table, '{ type = "sqlite", connection_string = "convo.db" }'
    ),
    REQUEST_TABLE: _REQUEST_ROWS,
    MODELS_TABLE: KeyedTable(check_model_name, _REQUEST_ROWS),
}

SETTINGS_SCHEMA: dict[str, SettingSchema] = {
    **_PROFILE_SCHEMA,
    "trusted": SettingRow(
        None,
        check_folders,
        "Folders whose `.convo.toml` files are trusted. Only in your own settings file.",
        '["~/work"]',
        "none",
    ),
    "profile": SettingRow(
        None, check_text, "The profile to use without `--profile`.", variable="CONVO_PROFILE", flag="--profile"
    ),
    "profiles": KeyedTable(check_profile_name, _PROFILE_SCHEMA),
}


def _list_rows(key: SettingKey, schema: SettingSchema) -> list[tuple[SettingKey, SettingRow]]:
    """List the rows without free names in their keys; those of a table that is one value have the key of the table."""
    rows: list[tuple[SettingKey, SettingRow]] = []
    if isinstance(schema, AtomicTable):
        return [(key, row) for row in schema.schema.values()]
    if isinstance(schema, Mapping):
        for name, inner in schema.items():
            rows += [((*key, name), inner)] if isinstance(inner, SettingRow) else _list_rows((*key, name), inner)
    return rows


_ROWS = _list_rows((), SETTINGS_SCHEMA)

DEFAULT_SETTINGS: Mapping[SettingKey, object] = {
    key: row.default for key, row in _ROWS if row.default is not None and not row.default_text
} | {("providers", name, field): value for name, fields in KNOWN_PROVIDERS.items() for field, value in fields.items()}
"""The values of the lowest layer."""

VARIABLE_SETTINGS: Mapping[str, SettingKey] = {
    row.variable: key for key, row in _ROWS if row.variable
} | PROVIDER_VARIABLES
"""The variables that are settings, named as by convo and the providers' own programs."""

FLAG_SETTINGS: Mapping[str, SettingKey] = {row.flag: key for key, row in _ROWS if row.flag}
"""The setting of each flag."""

UNTRUSTED_SETTINGS = ("model", "editing", "answers")
"""The settings that the file of a project may set before the user trusts it: of `model` the models of
`_WELL_KNOWN_MODEL`. Any other could send conversations and keys to another server (providers, aliases, mcp,
state_storage, request), run a program (mcp), open the store (serve, tenant, profile), keep secrets in an export
(redact), cost money (compact_at, cache_diagnostics), refuse or change requests (strict_prefix, keep_prefix) or show
wrong costs and truncate histories (prices, windows)."""

_WELL_KNOWN_MODEL = r"(openai|anthropic|azure|deepseek)/[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
"""A model that an untrusted file may choose. No second slash: it is a name and never a path."""

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
    if schema is None or (isinstance(schema, SettingRow) and schema.check is check_patterns):
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
    assert isinstance(schema, SettingRow)
    return schema.check


def get_schema(key: SettingKey, location: str) -> SettingSchema:
    """Return the schema at `key`. Raises InvalidSettings for an unknown setting."""
    schema: SettingSchema = SETTINGS_SCHEMA
    for depth in range(1, len(key) + 1):
        while isinstance(schema, AtomicTable):
            schema = schema.schema
        if isinstance(schema, SettingRow):
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
    if isinstance(schema, SettingRow):
        yield key, run_check(key, value, schema.check, location)
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
            f"{location}: no setting '{format_setting_key(key)}'; {_format_suggestion(key, schema)}", hint=hint
        )
    return schema[key[-1]]


def _format_suggestion(key: SettingKey, known_settings: Mapping[str, SettingSchema]) -> str:
    if suggestion := _guess_setting_key(key, known_settings):
        return f"did you mean '{format_setting_key(suggestion[len(key) - 1 :])}'?"
    return f"known settings: {', '.join(known_settings)}"


def _set_command_hint(key: SettingKey, schema: Mapping[str, SettingSchema] | KeyedTable) -> str | None:
    """Suggest the command for the closest name, or for the first name; None in a table with free names."""
    if isinstance(schema, KeyedTable):
        return None
    if key[-1] in _KEY_NAMES:
        return f"convo config key set {key[-2] if 'providers' in key[:-2] else 'PROVIDER'}"
    suggestion = _guess_setting_key(key, schema)
    name = format_setting_key(suggestion or (*key[:-1], next(iter(schema))))
    command = f"convo config set {quote(name)} VALUE"
    return command if suggestion else f"{command}, or another of these settings"


def _guess_setting_key(key: SettingKey, known_settings: Mapping[str, SettingSchema]) -> SettingKey | None:
    """Return the key of the setting that was probably meant, which may be in a table below; None if there is none."""
    if suggestion := _guess_setting_name(key[-1], known_settings):
        return (*key[:-1], suggestion)
    tables = [(name, rows) for name, rows in known_settings.items() if isinstance(rows, Mapping)]
    intended = _COMMON_MISTAKES.get(key[-1], key[-1])
    return next(((*key[:-1], name, intended) for name, rows in tables if intended in rows), None)


def _guess_setting_name(name: str, known_settings: Mapping[str, SettingSchema]) -> str | None:
    intended = _COMMON_MISTAKES.get(name)
    return intended if intended in known_settings else find_closest_word(name, known_settings)


# -- the file of a project that the user does not trust -----------------------------------------------------


class FilteredDocument(NamedTuple):
    """The allowed part and the ignored settings of an untrusted document."""

    allowed: Mapping[str, object]
    ignored: tuple[Setting, ...]


def filter_untrusted(document: Mapping[str, object], source: SettingSource) -> FilteredDocument:
    """Return the settings that an untrusted file may set. An allowed setting with an invalid value is ignored too."""
    own_names, ignored = _defined_names(document), list[Setting]()

    def filter_table(key: SettingKey, table: Mapping[str, object]) -> dict[str, object]:
        allowed: dict[str, object] = {}
        for name, value in table.items():
            if _is_allowed(name, value, own_names):
                allowed[name] = value
            elif key or name != "profiles":
                ignored.extend(
                    Setting(setting_key, setting_value, source)
                    for setting_key, setting_value in iter_untrusted_settings((*key, name), value)
                )
        return allowed

    allowed = filter_table((), document)
    if "profiles" in document:
        written_profiles = document["profiles"]
        tables = _valid_profiles(document)
        profiles = {name: filter_table(("profiles", name), table) for name, table in tables.items()}
        allowed["profiles"] = {name: table for name, table in profiles.items() if table}
        unusable: list[SettingKey] = [
            ("profiles", name) for name, _ in _table_items(written_profiles) if name not in tables
        ]
        unusable += [] if isinstance(written_profiles, dict) else [("profiles",)]
        ignored.extend(Setting(key, None, source) for key in unusable)
    return FilteredDocument(allowed, tuple(ignored))


def _valid_profiles(document: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return the profiles that have a valid name and are tables."""
    profiles: dict[str, dict[str, object]] = {}
    for name, table in _table_items(document.get("profiles")):
        try:
            check_profile_name(name)
        except InvalidValue:
            continue
        if isinstance(table, dict):
            profiles[name] = table
    return profiles


def _is_allowed(name: str, value: object, own_names: frozenset[str]) -> bool:
    if name not in UNTRUSTED_SETTINGS:
        return False
    try:
        checked = get_check((name,))(value)
    except InvalidValue:
        return False
    return name != "model" or _is_well_known(str(checked), own_names)


def _is_well_known(model: str, own_names: frozenset[str]) -> bool:
    """Whether `model` is a model of a well-known provider that the file itself does not define."""
    match = re.fullmatch(_WELL_KNOWN_MODEL, model)
    return match is not None and match[1] not in own_names and model not in own_names


def _defined_names(document: Mapping[str, object]) -> frozenset[str]:
    """Return the names of all providers and aliases that a document defines."""
    tables = [document, *(table for _, table in _table_items(document.get("profiles")) if isinstance(table, dict))]
    return frozenset(
        name for table in tables for kind in ("providers", "aliases") for name, _ in _table_items(table.get(kind))
    )


def _table_items(value: object) -> Iterator[tuple[str, object]]:
    """Yield the items of a table; nothing for another value."""
    return iter(value.items() if isinstance(value, dict) else ())
