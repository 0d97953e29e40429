"""A settings file with one value changed: its comments, its order and its other values stay as they are.

Text goes in and text comes out; whoever called writes it. A value is written as somebody typed it,
so what a key may be decides how the word is read: `8788` is a number where a port stands and a word
where a name does.
"""

import tomllib
from collections.abc import Mapping, MutableMapping
from typing import Any, cast

from convo.config.checks import Unfit
from convo.config.origin import Key, dotted
from convo.config.shape import SHAPE, Named, Shape, Whole, shape_at
from convo.errors import BadSettings, Usage

TABLES = {
    "input": "{ input = 0.25, output = 2 }",
    "context": "{ context = 128000, output = 16000 }",
    "type": '{ type = "sqlite", connection_string = "convo.db" }',
}
"""By the first field of a table that is set as a whole: how such a table looks."""


def key_in(written: str) -> Key:
    """The key that `written` is, as TOML writes it. raises: Usage  it is none"""
    found: Any = _toml(f"{written} = 0")
    key: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        name, found = next(iter(found.items()))
        key.append(name)
    if not key or found != 0:
        raise Usage(f"{written!r} is no setting's name", hint=_quoted(written))
    return tuple(key)


def value_in(written: str, key: Key, place: str) -> object:
    """What `written` means at `key`, checked.

    place:   who is told of what is wrong
    raises:  BadSettings  there is no such setting, or the value does not fit;  Usage  `key` is a table of several
    """
    shape = shape_at(key, place)
    if isinstance(shape, Named | Mapping):
        raise Usage(f"'{dotted(key)}' is a table of several settings", hint="name one of them")
    as_value = (_toml(f"value = {written}") or {}).get("value")
    try:
        return _fitting(shape, written, as_value)
    except Unfit as unfit:
        hint = unfit.hint or f"convo config list {dotted(key)}"
        raise BadSettings(f"{place}: '{dotted(key)}' {unfit}", hint=hint) from unfit


def _quoted(written: str) -> str:
    """How a key is written whose name has other signs than letters."""
    table, _, rest = written.partition(".")
    name = rest.removesuffix(".context") if table == "windows" else rest
    example = (
        f"'{table}.\"{name}\"'" if table in SHAPE and name and '"' not in name else "'prices.\"openai/gpt-5-mini\"'"
    )
    return f"a name with other signs than letters stands in quotes: {example}"


def with_value(text: str, key: Key, value: object, place: str) -> str:
    """`text` with `value` at `key`. raises: BadSettings  a value of the file stands in the way

    What is new stands where it parts nothing from the comment above it: a table at the end, a value
    of no table behind the others of its kind.
    """
    import tomlkit

    document = tomlkit.parse(text)
    if isinstance(value, dict):
        value = tomlkit.inline_table() | value
    table: MutableMapping[str, Any] = document
    for depth, name in enumerate(key[:-1], 1):
        if name not in table:
            new = f"[{dotted(key[:-1])}]\n{tomlkit.dumps({key[-1]: value})}"
            return _at_the_end(text, new) or _inside(text, key, value)
        table = _table(table[name], key[:depth], place)
    if len(key) == 1 and key[0] not in document:
        return _above_tables(text, tomlkit.dumps({key[0]: value})) or _inside(text, key, value)
    table[key[-1]] = value
    return tomlkit.dumps(document)


def _above_tables(text: str, new: str) -> str | None:
    """Before the first table and its comment; None where there is none, or a line only looks like its beginning."""
    lines = text.splitlines(keepends=True)
    at = next((number for number, line in enumerate(lines) if line.startswith("[")), None)
    if at is None:
        return None
    while at and lines[at - 1].startswith("#"):
        at -= 1
    while at and not lines[at - 1].strip():
        at -= 1
    longer = "".join([*lines[:at], new, *([] if at else ["\n"]), *lines[at:]])
    return longer if _toml(longer) == (_toml(text) or {}) | (_toml(new) or {}) else None


def _at_the_end(text: str, new: str) -> str | None:
    """None where the file writes tables in another way, so that this one may not follow."""
    longer = f"{text.rstrip()}\n\n{new}".lstrip()
    return longer if _toml(longer) is not None else None


def _inside(text: str, key: Key, value: object) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    table: MutableMapping[str, Any] = document
    for name in key[:-1]:
        table = cast(MutableMapping[str, Any], table.setdefault(name, {}))
    table[key[-1]] = value
    return tomlkit.dumps(document)


def without(text: str, key: Key, place: str) -> str | None:
    """`text` without what stands at `key`, and without the tables that are empty then; None where nothing stands."""
    import tomlkit

    document = tomlkit.parse(text)
    tables: list[MutableMapping[str, Any]] = [document]
    for depth, name in enumerate(key[:-1], 1):
        if name not in tables[-1]:
            return None
        tables.append(_table(tables[-1][name], key[:depth], place))
    if key[-1] not in tables[-1]:
        return None
    for table, name in zip(reversed(tables), reversed(key), strict=True):
        del table[name]
        if table:
            break
    return tomlkit.dumps(document)


def _table(found: object, key: Key, place: str) -> MutableMapping[str, Any]:
    if not isinstance(found, MutableMapping):
        raise BadSettings(f"{place}: '{dotted(key)}' must be a table", hint=f"convo config unset {dotted(key)}")
    return found


def _fitting(shape: Shape, written: str, as_value: object) -> object:
    """The word itself where that fits, else what TOML reads in it. raises: Unfit"""
    if isinstance(shape, Whole):
        if not isinstance(as_value, dict):
            raise Unfit(
                "is several values at once",
                hint=f"an inline table: '{TABLES[next(iter(cast(Mapping[str, Shape], shape.shape)))]}'",
            )
        return as_value
    check = cast(Any, shape)
    try:
        check(written)
    except Unfit:
        if as_value is None:
            raise
        check(as_value)
        return as_value
    return written


def _toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
