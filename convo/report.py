"""Reports: the records that commands print as JSON.

A report is a NamedTuple or a frozen dataclass, or a TypedDict where the data is JSON already. Its fields are the keys
of a JSON object, unless a mark in `Annotated` says otherwise. `to_json` writes a report, and
`tests.cli.report_schema` describes its type; the docstring of the type describes the fields.

A report has neither secrets nor a layout: no widths, no colors, no "5 min ago".
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cache
from typing import Annotated, Any, NamedTuple, NotRequired, get_args, get_origin, get_type_hints


class Wire(NamedTuple):
    """The key of a field, if it is not the field's name. A key never changes."""

    key: str


class FieldMark(Enum):
    """How a field is written."""

    OMITTED = auto()
    HIDDEN = auto()
    OPTIONAL = auto()
    FLAT = auto()


OMITTED = FieldMark.OMITTED
"""There is no key if the value is None, False or empty."""

HIDDEN = FieldMark.HIDDEN
"""There is no key: only the view for people shows it."""

OPTIONAL = FieldMark.OPTIONAL
"""The schema does not require the key, because an earlier version of the schema has no such key."""

FLAT = FieldMark.FLAT
"""The fields of the value are written instead of it; none for None."""


class Keywords:
    """Further keywords of JSON Schema for a type."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


Count = Annotated[int, Keywords(minimum=0)]


class ReportField(NamedTuple):
    """A field of a report: its name, its key in JSON, its type and its marks."""

    name: str
    key: str
    type: Any
    marks: frozenset[object]


def is_report(kind: type) -> bool:
    """Return whether values of a class are written by their fields."""
    return hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__")


@cache
def report_fields(kind: Any) -> tuple[ReportField, ...]:
    """Return the fields of a report that are written, in order."""
    fields = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        marks = {mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Wire | FieldMark)}
        if get_origin(hint) is NotRequired:
            (hint,), marks = get_args(hint), {OPTIONAL}
        key = next((mark.key for mark in marks if isinstance(mark, Wire)), name)
        if HIDDEN not in marks:
            fields.append(ReportField(name, key, hint, frozenset(marks)))
    return tuple(fields)


def to_json(value: object) -> Any:
    """Convert a report, or lists and mappings of reports, to JSON; an unknown object becomes its text."""
    if value is None or isinstance(value, str | int | float):
        return value
    if is_report(type(value)):
        return dict(_iter_members(value))
    # `map` needs one frame of the stack for a level of an item, a comprehension two.
    if isinstance(value, Mapping):
        return dict(zip(map(str, value), map(to_json, value.values()), strict=True))
    if isinstance(value, Iterable):
        return list(map(to_json, value))
    return str(value)


def _iter_members(report: Any) -> Iterator[tuple[str, Any]]:
    for field in report_fields(report.__class__):
        value = getattr(report, field.name)
        if OMITTED in field.marks and (value is False or (not value and value != 0)):
            continue
        if FLAT in field.marks:
            yield from _iter_members(value) if value is not None else ()
        else:
            yield field.key, to_json(value)
