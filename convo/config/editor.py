"""Edit one value of a settings file; comments, order and other values stay.

Text in, text out: the caller writes the file. A value is parsed by the type of its key, so `8788` is
a number for a port and a string for a name.
"""

import tomllib
from collections.abc import Mapping, MutableMapping
from shlex import quote
from typing import Any, cast

from convo.config.request_settings import MODELS_TABLE, check_parameter_value
from convo.config.schema import SETTINGS_SCHEMA, get_schema, iter_settings
from convo.config.values import (
    AtomicTable,
    InvalidValue,
    KeyedTable,
    SettingKey,
    SettingRow,
    SettingSchema,
    format_setting_key,
)
from convo.errors import InvalidSettings, InvalidUsage

_EXAMPLE_NAMES = {"prices": "provider/model", "windows": "provider/model", "keys": "alice"}
"""Example of a name in each table with free names whose values are tables, by the table's own name."""


_MAX_SETTING_NAME_CHARS = 1000
"""A longer name is refused: parsing one with thousands of parts takes minutes."""


def parse_setting_key(raw_key: str) -> SettingKey:
    """Parse a dotted TOML key. Raises InvalidUsage."""
    parsed: Any = _parse_toml(f"{raw_key} = 0") if len(raw_key) <= _MAX_SETTING_NAME_CHARS else None
    key: list[str] = []
    while isinstance(parsed, dict) and len(parsed) == 1:
        name, parsed = next(iter(parsed.items()))
        key.append(name)
    if not key or parsed != 0:
        raise InvalidUsage(f"{raw_key!r} is not the name of a setting", hint=_quoted_key_hint(raw_key))
    return tuple(key)


def parse_setting_value(raw_value: str, key: SettingKey, location: str) -> object:
    """Parse and check the value of the setting at `key`.

    location:  the file or option that an error names

    Raises InvalidSettings for an unknown setting or an invalid value, InvalidUsage if `key` is a table of several
    settings.
    """
    schema = get_schema(key, location)
    if isinstance(schema, KeyedTable | Mapping):
        raise InvalidUsage(
            f"'{format_setting_key(key)}' is a table of several settings", hint=suggest_setting_command(key, schema)
        )
    as_value = (_parse_toml(f"value = {raw_value}") or {}).get("value")
    try:
        value = _check_text_or_value(schema, raw_value, as_value)
        if isinstance(schema, AtomicTable):
            _check_table_fields(schema, key, value, location)
        return value
    except InvalidValue as error:
        hint = error.hint or f"convo config list {quote(format_setting_key(key))}"
        raise InvalidSettings(f"{location}: '{format_setting_key(key)}' {error}", hint=hint) from error


def _check_table_fields(schema: AtomicTable, key: SettingKey, value: object, location: str) -> None:
    """Raise InvalidSettings, with an example of the table, for a table with an invalid field."""
    document: Any = value
    for name in reversed(key):
        document = {name: document}
    try:
        for _ in iter_settings(document, location):
            pass
    except InvalidSettings as error:
        if error.hint == InvalidSettings.hint:
            error.replace_hint(f"convo config set {quote(format_setting_key(key))} '{schema.example}'")
        raise


def suggest_setting_command(key: SettingKey, schema: SettingSchema) -> str:
    """Return the command that sets the value at `key`, or one value in the table at `key`."""
    name = format_setting_key(key)
    if isinstance(schema, SettingRow):
        return f"convo config set {quote(name)} VALUE"
    if isinstance(schema, Mapping):
        first = format_setting_key((*key, next(iter(schema))))
        return f"convo config set {quote(first)} VALUE, or another of its settings"
    below = schema.schema if isinstance(schema, KeyedTable) else schema
    if isinstance(below, AtomicTable):
        example_key = (*key, _EXAMPLE_NAMES.get(key[-1], "NAME")) if isinstance(schema, KeyedTable) else key
        return f"convo config set {quote(format_setting_key(example_key))} '{below.example}'"
    field = (next(iter(below)),) if isinstance(below, Mapping) else ()
    return f"convo config set {quote(format_setting_key((*key, 'NAME', *field)))} VALUE"


def _quoted_key_hint(raw_key: str) -> str:
    """Show how to quote a name that contains other characters than letters."""
    table, _, name = raw_key.partition(".")
    schema, field = SETTINGS_SCHEMA.get(table), ""
    rows = schema.schema if isinstance(schema, KeyedTable) else None
    if "." in name and (table == MODELS_TABLE or isinstance(rows, AtomicTable)):
        name, _, field = name.rpartition(".")
    if schema is None or not name or '"' in name:
        return "quote a name that has special characters: 'prices.\"openai/gpt-6.1-terra\"'"
    if isinstance(rows, AtomicTable):
        if field not in rows.schema:  # a part of the name, such as llama3.2
            name = f"{name}.{field}" if field else name
        return f"convo config set '{table}.\"{name}\"' '{rows.example}'"
    return f"quote a name that has special characters: '{table}.\"{name}\"{f'.{field}' if field else ''}'"


def set_toml_value(text: str, key: SettingKey, value: object, location: str) -> str:
    """Set the value at `key` in a TOML text. Raises InvalidSettings if a value takes the place of a table.

    New text separates no comment from the line below it: a new table is appended, a new top-level value is inserted
    above the first table.
    """
    import tomlkit

    document = tomlkit.parse(text)
    if isinstance(value, dict):
        value = tomlkit.inline_table() | value
    table: MutableMapping[str, Any] = document
    for depth, name in enumerate(key[:-1], 1):
        if name not in table:
            new = f"[{format_setting_key(key[:-1])}]\n{tomlkit.dumps({key[-1]: value})}"
            return _append_table(text, new) or _set_in_document(text, key, value)
        table = _require_table(table[name], key[:depth], location)
    if len(key) == 1 and key[0] not in document:
        return _insert_above_tables(text, tomlkit.dumps({key[0]: value})) or _set_in_document(text, key, value)
    table[key[-1]] = value
    return tomlkit.dumps(document)


def _insert_above_tables(text: str, new: str) -> str | None:
    """Insert above the first table and its comment; None without a table, or if the line found only looks like one."""
    lines = text.splitlines(keepends=True)
    index = next((number for number, line in enumerate(lines) if line.startswith("[")), None)
    if index is None:
        return None
    while index and lines[index - 1].startswith("#"):
        index -= 1
    while index and not lines[index - 1].strip():
        index -= 1
    updated = "".join([*lines[:index], new, *([] if index else ["\n"]), *lines[index:]])
    return updated if _parse_toml(updated) == (_parse_toml(text) or {}) | (_parse_toml(new) or {}) else None


def _append_table(text: str, new: str) -> str | None:
    """Append a table; None if the file writes its tables in a form that makes the result invalid."""
    updated = f"{text.rstrip()}\n\n{new}".lstrip()
    return updated if _parse_toml(updated) is not None else None


def _set_in_document(text: str, key: SettingKey, value: object) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    table: MutableMapping[str, Any] = document
    for name in key[:-1]:
        table = cast(MutableMapping[str, Any], table.setdefault(name, {}))
    table[key[-1]] = value
    return tomlkit.dumps(document)


def unset_toml_value(text: str, key: SettingKey, location: str) -> str | None:
    """Remove the value at `key` and the tables that become empty; None if there is no value."""
    import tomlkit

    document = tomlkit.parse(text)
    tables: list[MutableMapping[str, Any]] = [document]
    for depth, name in enumerate(key[:-1], 1):
        if name not in tables[-1]:
            return None
        tables.append(_require_table(tables[-1][name], key[:depth], location))
    if key[-1] not in tables[-1]:
        return None
    for table, name in zip(reversed(tables), reversed(key), strict=True):
        del table[name]
        if table:
            break
    return tomlkit.dumps(document)


def _require_table(value: object, key: SettingKey, location: str) -> MutableMapping[str, Any]:
    if not isinstance(value, MutableMapping):
        raise InvalidSettings(
            f"{location}: '{format_setting_key(key)}' must be a table",
            hint=f"convo config unset {format_setting_key(key)}",
        )
    return value


def _check_text_or_value(schema: SettingRow | AtomicTable, raw_value: str, as_value: object) -> object:
    """Return `raw_value` as a string if it is valid, else as the TOML value that it contains. Raises InvalidValue."""
    if isinstance(schema, AtomicTable):
        if not isinstance(as_value, dict):
            raise InvalidValue("has several fields", hint=f"write an inline table: '{schema.example}'")
        return as_value
    check = schema.check
    if check is check_parameter_value and as_value is not None:
        return check(as_value)  # any text is valid, so 5 and false would become strings
    try:
        check(raw_value)
    except InvalidValue:
        if as_value is None:
            raise
        check(as_value)
        return as_value
    return raw_value


def _parse_toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
