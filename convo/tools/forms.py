"""Which types a JSON schema can say, and how their values are read back.

A type stands here with both halves at once: the schema that a model sees, and the reader that
makes a Python value of what the model wrote. So what is promised and what is accepted cannot
drift apart. A strict schema, as the Responses API wants it, says every field and allows no other;
what it cannot say is refused when the tool is defined, by name, and not when it is first called.

    str int float bool None     themselves; an integer may be written 3.0
    Literal, Enum               one of their values
    list tuple[T, ...] set      an array
    A | B, Optional             the first that fits
    dataclass, TypedDict        an object with these fields
    dict[str, T], Any           only where the schema is not strict
"""

import dataclasses
import json
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from convo.errors import InputFault
from convo.items import Json
from convo.tools.doc import told

Schema = dict[str, Json]
Reader = Callable[[Json, str], object]
"""Makes a value of what was written; the text is the place, for the words of a Mismatch."""


class Mismatch(ValueError):
    """What was written at a place is not what its schema says; the words are for the model."""


@dataclass(frozen=True, slots=True)
class Form:
    """A type, as a schema says it and as its values are read."""

    schema: Schema
    read: Reader


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `default` is a function, where there is one, and makes a new value each time."""

    name: str
    form: Form
    default: Callable[[], object] | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Named fields, as one object."""

    fields: tuple[Field, ...]
    strict: bool = True

    @property
    def schema(self) -> Schema:
        needed = [field.name for field in self.fields if self.strict or field.default is None]
        properties = {field.name: self._property(field) for field in self.fields}
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}

    def read(self, value: Json, place: str) -> dict[str, object]:
        """The fields' values by name; every field that does not fit is told of, not only the first.

        raises:  Mismatch
        """
        if not isinstance(value, dict):
            raise Mismatch(_wanted(place, "an object", value))
        wrong = [f"{_at(place, name)}: there is no such field" for name in value if name not in self._names]
        values: dict[str, object] = {}
        for field in self.fields:
            try:
                values[field.name] = self._value(field, value, place)
            except Mismatch as found:
                wrong.append(str(found))
        if wrong:
            raise Mismatch("; ".join(wrong))
        return values

    @property
    def _names(self) -> set[str]:
        return {field.name for field in self.fields}

    def _value(self, field: Field, written: Mapping[str, Json], place: str) -> object:
        if field.name in written:
            return field.form.read(written[field.name], _at(place, field.name))
        if field.default is None:
            raise Mismatch(f"{_at(place, field.name)}: is missing")
        return field.default()

    def _property(self, field: Field) -> Schema:
        """A strict schema has no defaults: the API refuses them, so they are told in words."""
        schema, words = dict(field.form.schema), field.description or field.form.schema.get("description")
        default = field.default() if field.default else None
        default = default.value if isinstance(default, Enum) else default
        if isinstance(default, str | int | float):
            if self.strict:
                words = " ".join(part for part in (words, f"Default: {json.dumps(default)}.") if part)
            else:
                schema["default"] = default
        return {**schema, "description": words} if words else schema


def form(kind: Any, where: str, *, strict: bool = True, inside: tuple[type, ...] = ()) -> Form:
    """The form of a type.

    where:   what is being defined, for the words of a refusal: "parameter 'x' of tool 'y'"
    inside:  the records that `kind` stands in
    raises:  InputFault  a schema cannot say it
    """
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        plain = form(parts[0], where, strict=strict, inside=inside)
        words = next((part for part in parts[1:] if isinstance(part, str)), None)
        return Form({**plain.schema, "description": words}, plain.read) if words else plain
    if kind in PLAIN:
        return PLAIN[kind]
    if origin is Literal:
        return _choice(parts)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enumerated(kind)
    if origin in (Union, UnionType):
        return _either([form(part, where, strict=strict, inside=inside) for part in parts])
    if origin in ARRAYS:
        return _array(origin, form(_element(kind, parts, where), where, strict=strict, inside=inside))
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return _record(kind, where, strict, inside)
    if not strict and (kind is Any or origin in (dict, abc.Mapping)):
        return _open(origin, parts, where)
    raise InputFault(f"{where} is {_name(kind)}, which {_cannot(strict)}", hint=_instead(origin, strict))


# -- leaves ---------------------------------------------------------------------------------------


def _leaf(name: str, words: str, fits: Callable[[Json], bool], make: Callable[[Json], object]) -> Form:
    def read(value: Json, place: str) -> object:
        if not fits(value):
            raise Mismatch(_wanted(place, words, value))
        return make(value)

    return Form({"type": name}, read)


def _same(value: Json) -> object:
    return value


def _whole(value: Json) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


PLAIN: dict[Any, Form] = {
    str: _leaf("string", "a string", lambda value: isinstance(value, str), _same),
    bool: _leaf("boolean", "true or false", lambda value: isinstance(value, bool), _same),
    int: _leaf("integer", "an integer", _whole, int),
    float: _leaf("number", "a number", lambda value: type(value) in (int, float), _same),
    None: _leaf("null", "null", lambda value: value is None, _same),
    NoneType: _leaf("null", "null", lambda value: value is None, _same),
}

KINDS = {str: "string", int: "integer", bool: "boolean", float: "number", NoneType: "null"}


def _choice(values: Iterable[Json], make: Callable[[Json], object] = _same) -> Form:
    allowed = list(values)
    kinds = {KINDS.get(type(value)) for value in allowed}

    def read(value: Json, place: str) -> object:
        if not any(type(value) is type(one) and value == one for one in allowed):
            raise Mismatch(_wanted(place, " or ".join(repr(one) for one in allowed), value))
        return make(value)

    single = next(iter(kinds)) if len(kinds) == 1 else None
    return Form({"type": single, "enum": allowed} if single else {"enum": allowed}, read)


def _enumerated(kind: type[Enum]) -> Form:
    return _choice([one.value for one in kind], kind)


# -- what is made of others -----------------------------------------------------------------------

ARRAYS: dict[Any, Callable[[list[object]], object]] = {
    list: list,
    abc.Sequence: list,
    abc.Iterable: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


def _element(kind: Any, parts: tuple[Any, ...], where: str) -> Any:
    """What an array holds. A tuple of a fixed length cannot be said."""
    if len(parts) == 1 and get_origin(kind) is not tuple:
        return parts[0]
    if len(parts) == 2 and parts[1] is Ellipsis:
        return parts[0]
    raise InputFault(
        f"{where} is {_name(kind)}, which says nothing of its elements", hint="list[...] or tuple[..., ...]"
    )


def _array(origin: Any, element: Form) -> Form:
    def read(value: Json, place: str) -> object:
        if not isinstance(value, list):
            raise Mismatch(_wanted(place, "an array", value))
        return ARRAYS[origin]([element.read(one, f"{place}[{at}]") for at, one in enumerate(value)])

    return Form({"type": "array", "items": element.schema}, read)


def _either(forms: list[Form]) -> Form:
    def read(value: Json, place: str) -> object:
        wrong: list[str] = []
        for one in forms:
            try:
                return one.read(value, place)
            except Mismatch as found:
                wrong.append(str(found))
        raise Mismatch(" or ".join(dict.fromkeys(wrong)))

    return Form({"anyOf": [one.schema for one in forms]}, read)


def _record(kind: Any, where: str, strict: bool, inside: tuple[type, ...]) -> Form:
    if kind in inside:
        raise InputFault(f"{where} is {_name(kind)}, which holds itself", hint="take a list of flat records instead")
    words = told(kind).fields if kind.__doc__ else {}
    hints = get_type_hints(kind, include_extras=True)
    defaults = _defaults(kind)
    fields = tuple(
        Field(
            name,
            form(hint, f"field {name!r} of {where}", strict=strict, inside=(*inside, kind)),
            defaults.get(name),
            words.get(name),
        )
        for name, hint in hints.items()
    )
    record = Record(fields, strict)
    if is_typeddict(kind):
        return Form(record.schema, record.read)
    return Form(record.schema, lambda value, place: made_by(kind, place, **record.read(value, place)))


def made_by(make: Callable[..., object], place: str, /, *given: object, **named: object) -> object:
    """What somebody's own class or function makes. raises: Mismatch  it refused, whatever it raised"""
    try:
        return make(*given, **named)
    except Mismatch:
        raise
    except Exception as refused:
        raise Mismatch(f"{place or 'it'}: {refused!r}") from refused


def _defaults(kind: Any) -> dict[str, Callable[[], object]]:
    """The defaults of a dataclass, each as a function."""
    if not dataclasses.is_dataclass(kind):
        return {}
    found: dict[str, Callable[[], object]] = {}
    for one in dataclasses.fields(kind):
        if one.default is not dataclasses.MISSING:
            found[one.name] = lambda value=one.default: value  # type: ignore[misc]
        elif one.default_factory is not dataclasses.MISSING:
            found[one.name] = one.default_factory
    return found


def _open(origin: Any, parts: tuple[Any, ...], where: str) -> Form:
    """What only a schema that is not strict can say: any value, or an object with any names."""
    if origin is Any:
        return Form({}, lambda value, place: value)
    values = form(parts[1], where, strict=False) if len(parts) == 2 else Form({}, lambda value, place: value)

    def read(value: Json, place: str) -> object:
        if not isinstance(value, dict):
            raise Mismatch(_wanted(place, "an object", value))
        return {name: values.read(one, _at(place, name)) for name, one in value.items()}

    return Form({"type": "object", "additionalProperties": values.schema or True}, read)


# -- words ----------------------------------------------------------------------------------------


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _wanted(place: str, words: str, value: Json) -> str:
    shown = repr(value)
    return f"{place or 'it'}: must be {words}, not {shown if len(shown) <= 40 else shown[:39] + '…'}"


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _cannot(strict: bool) -> str:
    return f"a {'strict ' if strict else ''}schema cannot say"


def _instead(origin: Any, strict: bool) -> str:
    if strict and (origin is Any or origin in (dict, abc.Mapping)):
        return "name its fields in a dataclass, or define the tool with strict=False"
    return "use str, int, float, bool, Literal, Enum, list, a dataclass or a TypedDict"
