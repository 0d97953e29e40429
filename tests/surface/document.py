"""A surface: sections of named entries, as one JSON document.

An entry is either one string, which must not change, or a list of words, of which none may be removed. A JSON
document or a JSON Schema is converted to one entry per path.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tests.surface.masks import Masks

SurfaceEntry: TypeAlias = str | list[str]

Surface: TypeAlias = dict[str, dict[str, SurfaceEntry]]
"""Entries by section and name."""

PROSE = frozenset({"description", "title", "summary", "examples", "$comment"})
"""Keywords of a schema whose values are texts for people."""

NAMES = frozenset({"properties", "patternProperties", "$defs", "schemas", "paths", "securitySchemes", "responses"})
"""Keywords of a schema below which the keys are names, not keywords."""


class Collection:
    """A surface that is being collected."""

    def __init__(self, masks: Masks) -> None:
        self.masks = masks
        self._entries: Surface = {}

    @property
    def surface(self) -> Surface:
        return {
            section: {
                name: sorted(entry) if isinstance(entry, list) else entry for name, entry in sorted(names.items())
            }
            for section, names in sorted(self._entries.items())
        }

    def add_value(self, section: str, name: str, value: object) -> None:
        """Set an entry that must not change."""
        self._entries.setdefault(section, {})[name] = str(value)

    def add_words(self, section: str, name: str, words: Iterable[object]) -> None:
        """Add words to an entry to which later revisions may add words."""
        entry = self._entries.setdefault(section, {}).setdefault(name, [])
        assert isinstance(entry, list), (section, name)
        entry += [word for word in dict.fromkeys(map(str, words)) if word not in entry]

    def add_names(self, section: str, names: Iterable[str]) -> None:
        """Set entries of which only the name is compared."""
        for name in names:
            self.add_value(section, name, "present")

    def add_document(self, section: str, name: str, document: object) -> None:
        """Add the paths of a JSON document, each with the patterns of its values."""
        kind = document.get("type") if isinstance(document, dict) else None
        for path, value in paths_of(document, f"${kind}" if isinstance(kind, str) else "$"):
            self.add_words(section, f"{name} {self.masks.masked(path)}", [self.masks.pattern(path, value)])

    def add_schema(self, section: str, name: str, schema: object) -> None:
        """Add the paths of a JSON Schema or OpenAPI document without its texts for people."""
        for path, value in schema_paths(schema):
            if isinstance(value, list):
                self.add_words(section, f"{name} {path}", value)
            else:
                self.add_value(section, f"{name} {path}", value)


def paths_of(document: object, path: str = "$") -> Iterator[tuple[str, object]]:
    """Yield each leaf of a document with its path. The elements of a list share one path per `type`."""
    if isinstance(document, dict) and document:
        for key, value in document.items():
            yield from paths_of(value, f"{path}.{key}")
    elif isinstance(document, list) and document:
        for value in document:
            kind = value.get("type") if isinstance(value, dict) else None
            yield from paths_of(value, f"{path}[{kind if isinstance(kind, str) else ''}]")
    else:
        yield path, document


def schema_paths(schema: object, path: str = "$", *, named: bool = False) -> Iterator[tuple[str, object]]:
    """Yield each leaf of a schema with its path; a list of scalars is a leaf. `named`: the keys are not keywords."""
    if isinstance(schema, dict):
        if not schema:
            yield path, "{}"
        for key, value in schema.items():
            if named or key not in PROSE:
                yield from schema_paths(value, f"{path}.{key}", named=not named and key in NAMES)
    elif not isinstance(schema, list):
        yield path, json.dumps(schema)
    elif path.endswith(".required") and not named:
        yield path, ", ".join(sorted(map(str, schema)))
    elif any(isinstance(one, dict | list) for one in schema):
        for index, one in enumerate(schema):
            yield from schema_paths(one, f"{path}[{_key(one, index)}]")
    else:
        yield path, [json.dumps(one) for one in schema]


TYPE_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"pattern"},
    "integer": {"minimum"},
    "number": {"minimum"},
}
"""The keywords of a schema that apply to one type only."""

TYPES_OF_VALUES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def expand_schema(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """Return a schema without references, with one schema for each type of a value.

    Schemas with the same meaning, but other references and alternatives, have the same form.
    """
    named: dict[str, Any] = {}
    options = _schemas_by_type(schema, schema.get("$defs", {}) if definitions is None else definitions)
    for option in sorted(options, key=json.dumps):
        name = option.get("type", "any")
        named[name if name not in named else f"{name}{len(named)}"] = option
    return {"anyOf": named}


def _schemas_by_type(schema: Any, definitions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the alternatives of a schema, each of which allows values of one type."""
    if "$ref" in schema:
        yield from _schemas_by_type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return
    if "anyOf" in schema:
        for option in schema["anyOf"]:
            yield from _schemas_by_type(option, definitions)
        return
    parts = {key: value for key, value in schema.items() if key not in (*PROSE, "$defs")}
    if "properties" in parts:
        parts["properties"] = {name: expand_schema(one, definitions) for name, one in parts["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(parts.get(key), dict):
            parts[key] = expand_schema(parts[key], definitions)
    values = [parts.pop("const")] if "const" in parts else parts.pop("enum", None)
    types = parts.pop("type", None)
    if values is not None:
        types = list(dict.fromkeys(TYPES_OF_VALUES[type(value)] for value in values))
    if types is None:
        yield parts
    for name in [types] if isinstance(types, str) else types or ():
        own = TYPE_KEYWORDS.get(name, set())
        option = {"type": name, **{key: parts[key] for key in sorted(parts) if key in own}}
        if values is not None and name != "null":
            option["enum"] = sorted(value for value in values if TYPES_OF_VALUES[type(value)] == name)
        yield option


def _key(one: object, index: int) -> str:
    """The name or reference of an alternative or parameter, or else its index."""
    if isinstance(one, Mapping):
        for key in ("$ref", "name"):
            if isinstance(one.get(key), str):
                return str(one[key])
    return str(index)


def loads(text: str) -> Any:
    """Parse JSON; None if `text` is not valid JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
