"""A file that says in which form the answer should come.

The API takes `strict` only of a schema whose objects are closed and require all that they name.
Whether this one is such is found out here, so that nobody has to say it.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from convo.engine.named_file import text_of
from convo.errors import Unreadable
from convo.items import Json

NOT_STRICT = frozenset({"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"})
"""Keywords that the API refuses in a strict schema."""

NAMED_PARTS = ("properties", "$defs", "definitions")
"""Keywords whose value holds a schema for each name."""

VALUES = ("enum", "const", "default", "examples", "required", "type")
"""Keywords whose value is no schema."""


def text_format(place: str) -> dict[str, Json]:
    """The `text` parameter that asks for this JSON schema. raises: Unreadable

    Strict where the schema allows it: the API takes `strict` only of schemas that are an object,
    close every object and require every property.
    """
    path = Path(os.path.expanduser(place))
    schema = _read(path)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or path.stem))[:64] or "answer"
    return {
        "format": {
            "type": "json_schema",
            "name": name,
            "schema": schema,
            "strict": _is_object(schema) and strict(schema),
        }
    }


def strict(schema: Json) -> bool:
    """Whether every object in `schema` is closed and requires all it names."""
    if not isinstance(schema, dict):
        return True
    if NOT_STRICT & schema.keys() or (_is_object(schema) and not _closed(schema)):
        return False
    return all(map(strict, _parts(schema)))


def _read(path: Path) -> dict[str, Json]:
    text = text_of(str(path))
    try:
        schema = json.loads(text, parse_constant=_no_number)
        strict(schema)
    except ValueError as wrong:
        raise Unreadable(f"{path} is not JSON: {wrong}") from wrong
    except RecursionError as wrong:
        raise Unreadable(f"{path} is nested too deeply") from wrong
    if not isinstance(schema, dict):
        raise Unreadable(f"{path} is not a JSON schema: it is not an object")
    return schema


def _no_number(word: str) -> Json:
    raise ValueError(f"{word} is no JSON number")


def _is_object(schema: dict[str, Json]) -> bool:
    return "object" in (schema.get("type"), *_each(schema.get("type"))) or "properties" in schema


def _closed(schema: dict[str, Json]) -> bool:
    named, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list):
        return False
    return schema.get("additionalProperties") is False and sorted(named) == sorted(map(str, required))


def _parts(schema: dict[str, Json]) -> Iterator[Json]:
    """The schemas inside of one."""
    for keyword, value in schema.items():
        if keyword in NAMED_PARTS and isinstance(value, dict):
            yield from value.values()
        elif keyword not in VALUES:
            yield from _each(value) if isinstance(value, list) else (value,)


def _each(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
