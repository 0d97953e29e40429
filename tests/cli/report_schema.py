"""JSON Schemas of reports, generated from their types (`convo.report`).

Records are written once, below `$defs`. `python -m tests.cli.schema_files` writes the files in `convo/schemas`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

from convo.report import FLAT, OMITTED, OPTIONAL, Keywords, is_report, report_fields
from convo.tools.schema import JSON_TYPE_NAMES, JsonSchema, parse_docstring


def report_schema(kind: Any, name: str, title: str, version: int) -> JsonSchema:
    """Return the JSON Schema of a report, or of another type that `to_json` converts.

    name, version:  for `$id`; the version grows when a key is removed or changes its meaning

    Raises TypeError for a type without a schema.
    """
    definitions: dict[str, JsonSchema] = {}
    schema = _type_schema(kind, definitions)
    if "$ref" in schema:
        schema = {**definitions.pop(schema["$ref"].rpartition("/")[2]), **schema}
        del schema["$ref"]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:convo-state:schema:{name}:{version}",
        "title": title,
    }
    return {**head, **schema, **({"$defs": definitions} if definitions else {})}


def _type_schema(kind: Any, definitions: dict[str, JsonSchema]) -> JsonSchema:
    kind = getattr(kind, "__supertype__", kind)
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        return _annotated_schema(parts[0], parts[1:], definitions)
    if kind is Any or kind is object:
        return {}
    if kind in JSON_TYPE_NAMES:
        return {"type": JSON_TYPE_NAMES[kind]}
    if origin is Literal:
        return {"enum": list(parts)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"enum": [member.value for member in kind]}
    if origin in (Union, UnionType):
        return _union_schema([_type_schema(part, definitions) for part in parts])
    if is_typeddict(kind) or (isinstance(kind, type) and is_report(kind)):
        return _record_schema(kind, definitions)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        members = _type_schema(parts[1], definitions)
        return {"type": "object", **({"additionalProperties": members} if members else {})}
    if origin is tuple and parts[-1:] != (...,):
        items = _type_schema(parts[0], definitions)
        return {"type": "array", "items": items, "minItems": len(parts), "maxItems": len(parts)}
    if isinstance(origin, type) and issubclass(origin, Iterable) and parts:
        items = _type_schema(parts[0], definitions)
        return {"type": "array", **({"items": items} if items else {})}
    raise TypeError(f"{kind} has no JSON Schema")


def _annotated_schema(kind: Any, marks: Collection[Any], definitions: dict[str, JsonSchema]) -> JsonSchema:
    if OMITTED in marks and NoneType in get_args(kind):
        kind = Union[tuple(part for part in get_args(kind) if part is not NoneType)]  # noqa: UP007  known when it runs
    schema = _type_schema(kind, definitions)
    for mark in marks:
        schema |= mark.keywords if isinstance(mark, Keywords) else _describe(mark) if isinstance(mark, str) else {}
    return schema


def _union_schema(options: list[JsonSchema]) -> JsonSchema:
    """Return one schema for scalars of several types, or one with null as another value."""
    options = [option for index, option in enumerate(options) if option not in options[:index]]
    if all(option.keys() == {"type"} for option in options):
        types = [option["type"] for option in options]
        return {"type": types if len(types) > 1 else types[0]}
    if len(options) == 2 and options[1] == {"type": "null"}:
        option = options[0]
        if "enum" in option:
            return {**option, "enum": [*option["enum"], None]}
        if "type" in option:
            return {**option, "type": [option["type"], "null"]}
    return {"anyOf": options}


def _record_schema(kind: Any, definitions: dict[str, JsonSchema]) -> JsonSchema:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Report")).lower()
    if name not in definitions:
        definitions[name] = {}  # keeps its place before the records that its fields name
        properties, required = _record_properties(kind, definitions)
        definitions[name] = {
            **_describe(parse_docstring(kind).description.partition("\n\n")[0]),
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _record_properties(kind: Any, definitions: dict[str, JsonSchema]) -> tuple[dict[str, JsonSchema], list[str]]:
    """Return the properties of a record, and the keys that are always there."""
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    fields = report_fields(kind)
    descriptions = parse_docstring(kind, [field.name for field in fields]).fields
    for field in fields:
        if FLAT in field.marks:
            record, *others = get_args(get_args(field.type)[0]) or get_args(field.type)[:1]
            inner_properties, inner_required = _record_properties(record, definitions)
            properties |= inner_properties
            required += [] if others else inner_required
            continue
        properties[field.key] = _type_schema(field.type, definitions) | _describe(descriptions.get(field.name))
        if not field.marks & {OMITTED, OPTIONAL}:
            required.append(field.key)
    return properties, required


def _describe(text: str | None) -> JsonSchema:
    return {"description": " ".join(text.split())} if text else {}
