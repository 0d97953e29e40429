"""JSON schemas of Python types, readers of their values, and descriptions from docstrings.

A `TypeSchema` has both halves, so the schema that the model sees and the values accepted cannot differ. A strict schema
lists every field and allows no other; a type it cannot express raises InputFault when the tool is defined.
Docstrings may use Google, Sphinx or NumPy style, or plain `name:  description` lines.
"""

import dataclasses
import inspect
import json
import re
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from convo.errors import InputFault
from convo.history.items import Json

JsonSchema = dict[str, Json]
ValueReader = Callable[[Json, str], object]
"""Convert a JSON value to a Python value; the second argument is the JSON path for the message of a Mismatch."""


class Mismatch(ValueError):
    """A value does not fit its schema; the message is for the model and starts with the JSON path."""


@dataclass(frozen=True, slots=True)
class TypeSchema:
    """The JSON schema of a type, and the function that reads its values."""

    schema: JsonSchema
    read: ValueReader


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record.

    default:  called for each missing value, so a mutable default is not shared; None: required
    """

    name: str
    type: TypeSchema
    default: Callable[[], object] | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectSchema:
    """Named fields, as one JSON object."""

    fields: tuple[Field, ...]
    strict: bool = True

    @property
    def schema(self) -> JsonSchema:
        required = [field.name for field in self.fields if self.strict or field.default is None]
        properties = {field.name: self._build_property(field) for field in self.fields}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def read(self, value: Json, path: str) -> dict[str, object]:
        """Return the values of the fields, by name.

        Raises Mismatch that names every field that does not fit, not only the first.
        """
        if not isinstance(value, dict):
            raise Mismatch(_mismatch_message(path, "an object", value))
        errors = [
            f"{_join_place(path, name)}: there is no such field" for name in value if name not in self._field_names
        ]
        values: dict[str, object] = {}
        for field in self.fields:
            try:
                values[field.name] = self._read_field(field, value, path)
            except Mismatch as error:
                errors.append(str(error))
        if errors:
            raise Mismatch("; ".join(errors))
        return values

    @property
    def _field_names(self) -> set[str]:
        return {field.name for field in self.fields}

    def _read_field(self, field: Field, values: Mapping[str, Json], path: str) -> object:
        if field.name in values:
            return field.type.read(values[field.name], _join_place(path, field.name))
        if field.default is None:
            raise Mismatch(f"{_join_place(path, field.name)}: is missing")
        return field.default()

    def _build_property(self, field: Field) -> JsonSchema:
        """Build the schema of a field; if strict, the default is in the description, as the API rejects `default`."""
        schema, description = dict(field.type.schema), field.description or field.type.schema.get("description")
        default = field.default() if field.default else None
        default = default.value if isinstance(default, Enum) else default
        if isinstance(default, str | int | float):
            if self.strict:
                description = " ".join(part for part in (description, f"Default: {json.dumps(default)}.") if part)
            else:
                schema["default"] = default
        return {**schema, "description": description} if description else schema


def type_schema(kind: Any, subject: str, *, strict: bool = True, enclosing_types: tuple[type, ...] = ()) -> TypeSchema:
    """Return the JSON schema of a type and the function that reads its values.

    subject:          the definition that an error names: "parameter 'x' of tool 'y'"
    enclosing_types:  the record types that contain `kind`; a type that contains itself is rejected

    Raises InputFault for a type that a schema cannot express.
    """
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        inner = type_schema(parts[0], subject, strict=strict, enclosing_types=enclosing_types)
        description = next((part for part in parts[1:] if isinstance(part, str)), None)
        return TypeSchema({**inner.schema, "description": description}, inner.read) if description else inner
    if kind in SCALAR_SCHEMAS:
        return SCALAR_SCHEMAS[kind]
    if origin is Literal:
        for value in parts:
            if not isinstance(value, str | int | None) or isinstance(value, Enum):
                raise InputFault(
                    f"{subject} is a Literal of {value!r}, which has no JSON form",
                    hint="use strings, numbers, booleans or None; for the members of an Enum, use the Enum itself",
                )
        return _make_choice_schema(parts)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _make_enum_schema(kind)
    if origin in (Union, UnionType):
        return _make_union_schema(
            [type_schema(part, subject, strict=strict, enclosing_types=enclosing_types) for part in parts]
        )
    if origin in ARRAY_TYPES:
        return _make_array_schema(
            origin,
            type_schema(_element_type(kind, parts, subject), subject, strict=strict, enclosing_types=enclosing_types),
        )
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return _make_object_schema(kind, subject, strict, enclosing_types)
    if not strict and (kind is Any or origin in (dict, abc.Mapping)):
        return _make_open_schema(origin, parts, subject)
    raise InputFault(
        f"{subject} is {_format_type(kind)}, which {_unsupported_reason(strict)}",
        hint=_unsupported_hint(origin, strict),
    )


# -- scalars --------------------------------------------------------------------------------------


def _make_scalar_schema(
    name: str, expectation: str, is_valid: Callable[[Json], bool], convert: Callable[[Json], object]
) -> TypeSchema:
    def read(value: Json, path: str) -> object:
        if not is_valid(value):
            raise Mismatch(_mismatch_message(path, expectation, value))
        return convert(value)

    return TypeSchema({"type": name}, read)


def _return_value(value: Json) -> object:
    return value


def _is_whole_number(value: Json) -> bool:
    # JSON Schema counts 3.0 as an integer; True is an int in Python only.
    return type(value) is int or (type(value) is float and value.is_integer())


SCALAR_SCHEMAS: dict[Any, TypeSchema] = {
    str: _make_scalar_schema("string", "a string", lambda value: isinstance(value, str), _return_value),
    bool: _make_scalar_schema("boolean", "true or false", lambda value: isinstance(value, bool), _return_value),
    int: _make_scalar_schema("integer", "an integer", _is_whole_number, int),
    float: _make_scalar_schema("number", "a number", lambda value: type(value) in (int, float), _return_value),
    None: _make_scalar_schema("null", "null", lambda value: value is None, _return_value),
    NoneType: _make_scalar_schema("null", "null", lambda value: value is None, _return_value),
}

JSON_TYPE_NAMES = {str: "string", int: "integer", bool: "boolean", float: "number", NoneType: "null"}


def _make_choice_schema(values: Iterable[Json], convert: Callable[[Json], object] = _return_value) -> TypeSchema:
    allowed = list(values)
    json_types = {JSON_TYPE_NAMES.get(type(value)) for value in allowed}

    def read(value: Json, path: str) -> object:
        # In Python True == 1.
        if not any(type(value) is type(choice) and value == choice for choice in allowed):
            raise Mismatch(_mismatch_message(path, " or ".join(repr(choice) for choice in allowed), value))
        return convert(value)

    json_type = next(iter(json_types)) if len(json_types) == 1 else None
    return TypeSchema({"type": json_type, "enum": allowed} if json_type else {"enum": allowed}, read)


def _make_enum_schema(kind: type[Enum]) -> TypeSchema:
    return _make_choice_schema([member.value for member in kind], kind)


# -- arrays, unions and records --------------------------------------------------------------------

ARRAY_TYPES: dict[Any, Callable[[list[object]], object]] = {
    list: list,
    abc.Sequence: list,
    abc.Iterable: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


def _element_type(kind: Any, parts: tuple[Any, ...], subject: str) -> Any:
    """Return the element type of an array. Raises InputFault if it has none and for a tuple of fixed length."""
    if len(parts) == 1 and get_origin(kind) is not tuple:
        return parts[0]
    if len(parts) == 2 and parts[1] is Ellipsis:
        return parts[0]
    raise InputFault(
        f"{subject} is {_format_type(kind)}, which does not define its elements",
        hint="use list[...] or tuple[..., ...]",
    )


def _make_array_schema(origin: Any, element: TypeSchema) -> TypeSchema:
    def read(value: Json, path: str) -> object:
        if not isinstance(value, list):
            raise Mismatch(_mismatch_message(path, "an array", value))
        return ARRAY_TYPES[origin]([element.read(item, f"{path}[{index}]") for index, item in enumerate(value)])

    return TypeSchema({"type": "array", "items": element.schema}, read)


def _make_union_schema(schemas: list[TypeSchema]) -> TypeSchema:
    def read(value: Json, path: str) -> object:
        errors: list[str] = []
        for option in schemas:
            try:
                return option.read(value, path)
            except Mismatch as error:
                errors.append(str(error))
        raise Mismatch(" or ".join(dict.fromkeys(errors)))

    return TypeSchema({"anyOf": [option.schema for option in schemas]}, read)


def _make_object_schema(kind: Any, subject: str, strict: bool, enclosing_types: tuple[type, ...]) -> TypeSchema:
    if kind in enclosing_types:
        raise InputFault(
            f"{subject} is {_format_type(kind)}, which contains itself", hint="use a list of flat records instead"
        )
    descriptions = parse_docstring(kind).fields if kind.__doc__ else {}
    hints = get_type_hints(kind, include_extras=True)
    defaults = _default_factories(kind)
    fields = tuple(
        Field(
            name,
            type_schema(hint, f"field {name!r} of {subject}", strict=strict, enclosing_types=(*enclosing_types, kind)),
            defaults.get(name),
            descriptions.get(name),
        )
        for name, hint in hints.items()
    )
    record = ObjectSchema(fields, strict)
    if is_typeddict(kind):
        return TypeSchema(record.schema, record.read)
    return TypeSchema(record.schema, lambda value, path: call_converter(kind, path, **record.read(value, path)))


def call_converter(function: Callable[..., object], path: str, /, *args: object, **kwargs: object) -> object:
    """Call a class or function of the user. Any exception it raises becomes a Mismatch."""
    try:
        return function(*args, **kwargs)
    except Mismatch:
        raise
    except Exception as error:
        raise Mismatch(f"{path or 'it'}: {error!r}") from error


def _default_factories(kind: Any) -> dict[str, Callable[[], object]]:
    if not dataclasses.is_dataclass(kind):
        return {}
    factories: dict[str, Callable[[], object]] = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            factories[field.name] = lambda value=field.default: value  # type: ignore[misc]
        elif field.default_factory is not dataclasses.MISSING:
            factories[field.name] = field.default_factory
    return factories


def _make_open_schema(origin: Any, parts: tuple[Any, ...], subject: str) -> TypeSchema:
    """Build a schema that only a non-strict schema has: any value, or an object with any keys."""
    if origin is Any:
        return TypeSchema({}, lambda value, path: value)
    values = (
        type_schema(parts[1], subject, strict=False) if len(parts) == 2 else TypeSchema({}, lambda value, path: value)
    )

    def read(value: Json, path: str) -> object:
        if not isinstance(value, dict):
            raise Mismatch(_mismatch_message(path, "an object", value))
        return {name: values.read(member, _join_place(path, name)) for name, member in value.items()}

    return TypeSchema({"type": "object", "additionalProperties": values.schema or True}, read)


# -- messages -------------------------------------------------------------------------------------


def _join_place(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _mismatch_message(path: str, expectation: str, value: Json) -> str:
    shown = repr(value)
    return f"{path or 'it'}: must be {expectation}, not {shown if len(shown) <= 40 else shown[:39] + '…'}"


def _format_type(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def _unsupported_reason(strict: bool) -> str:
    return f"a {'strict ' if strict else ''}schema cannot express"


def _unsupported_hint(origin: Any, strict: bool) -> str:
    if strict and (origin is Any or origin in (dict, abc.Mapping)):
        return "name its fields in a dataclass, or define the tool with strict=False"
    return "use str, int, float, bool, Literal, Enum, list, a dataclass or a TypedDict"


SPHINX_PARAM = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)$")
SPHINX_FIELD = re.compile(r"^:\w+.*?:")
FIELDS_HEADING = re.compile(r"^(Args|Arguments|Params|Parameters|Attributes):\s*$", re.IGNORECASE)
OTHER_HEADING = re.compile(r"^(Returns?|Raises|Yields|Examples?|Notes?|Warnings?):?\s*", re.IGNORECASE)
GOOGLE_FIELD = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
NUMPY_FIELD = re.compile(r"^\*{0,2}(\w+)\s*(?::.*)?$")
UNDERLINE = re.compile(r"^-{3,}\s*$")
NUMPY_FIELD_SECTIONS = {"parameters", "other parameters", "attributes", "arguments", "args", "params"}


@dataclass(frozen=True, slots=True)
class ParsedDocstring:
    """A parsed docstring: its description before any list of fields, and the description of each field by name."""

    description: str = ""
    fields: dict[str, str] = dataclasses.field(default_factory=dict)


def parse_docstring(obj: object, names: Collection[str] = ()) -> ParsedDocstring:
    """Parse the docstring of `obj`.

    names:  known fields; a plain `name:  words` counts as a field only for one of these
    """
    lines = (inspect.getdoc(obj) or "").splitlines()
    if inspect.isclass(obj) and _is_generated_docstring(obj, lines):
        return ParsedDocstring()
    start = next((index for index, line in enumerate(lines) if _ends_description(lines, index, names)), len(lines))
    return ParsedDocstring("\n".join(lines[:start]).strip(), _parse_field_descriptions(lines[start:], names))


def _is_generated_docstring(kind: type, lines: list[str]) -> bool:
    """Return whether the docstring is the signature that `dataclass` generates for a class without one."""
    return len(lines) == 1 and lines[0].startswith(f"{kind.__name__}(")


def _ends_description(lines: list[str], index: int, names: Collection[str]) -> bool:
    line = lines[index]
    is_underlined = _is_underlined(lines, index) and bool(line.strip())
    match = GOOGLE_FIELD.match(line)
    is_known_field = match is not None and match.group(1) in names
    return bool(
        is_underlined
        or is_known_field
        or SPHINX_FIELD.match(line)
        or FIELDS_HEADING.match(line)
        or OTHER_HEADING.fullmatch(line)
    )


def _parse_field_descriptions(lines: list[str], names: Collection[str]) -> dict[str, str]:
    """Return the description of each field; indented continuation lines are joined to one line."""
    lines_by_field: dict[str, list[str]] = {}
    current: str | None = None
    block = ""
    for index, line in enumerate(lines):
        if _is_heading(lines, index):
            if not UNDERLINE.match(line):
                block, current = _heading_style(lines, index), None
            continue
        field_start = _parse_field_start(line, block, names)
        if field_start:
            current = field_start[0]
            lines_by_field[current] = [field_start[1]]
        elif line.strip() and current and line.startswith((" ", "\t")):
            lines_by_field[current].append(line.strip())
        elif line.strip() or not block:
            current = None
    return {name: " ".join(part for part in parts if part) for name, parts in lines_by_field.items() if any(parts)}


def _is_underlined(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and bool(UNDERLINE.match(lines[index + 1]))


def _is_heading(lines: list[str], index: int) -> bool:
    line = lines[index]
    return bool(
        _is_underlined(lines, index)
        or UNDERLINE.match(line)
        or FIELDS_HEADING.match(line)
        or OTHER_HEADING.fullmatch(line)
    )


def _heading_style(lines: list[str], index: int) -> str:
    line = lines[index]
    if _is_underlined(lines, index):
        # An entry below Returns replaced the description of the parameter of that name.
        return "numpy" if line.strip().rstrip(":").lower() in NUMPY_FIELD_SECTIONS else "other"
    return "google" if FIELDS_HEADING.match(line) else "other"


def _parse_field_start(line: str, block: str, names: Collection[str]) -> tuple[str, str] | None:
    """Return the name and the first line of the description if a field starts on this line."""
    if sphinx := SPHINX_PARAM.match(line):
        return sphinx.group(1), sphinx.group(2).strip()
    if block == "google" and line.startswith((" ", "\t")) and (google := GOOGLE_FIELD.match(line.strip())):
        is_continuation = len(line) - len(line.lstrip()) > 4 and google.group(1) not in names
        return None if is_continuation else (google.group(1), google.group(2).strip())
    if block == "numpy" and (numpy := NUMPY_FIELD.match(line)):
        return numpy.group(1), ""
    match = GOOGLE_FIELD.match(line)
    if not block and match and match.group(1) in names:
        return match.group(1), match.group(2).strip()
    return None
