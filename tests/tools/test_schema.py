"""The JSON schema of each type, the values that it accepts, and the message for a value that it refuses."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest

from convo.errors import InputFault
from convo.tools.schema import Mismatch, ObjectSchema, call_converter, type_schema
from convo.tools.tool import tool


class Level(enum.Enum):
    LOW = 0.5
    HIGH = 1.5


class Mixed(enum.Enum):
    ONE = 1
    ALL = "all"


@dataclasses.dataclass
class Town:
    """A town.

    Attributes:
        name: as on a map
    """

    name: str
    country: Annotated[str, "two letters"] = "GB"
    streets: list[str] = dataclasses.field(default_factory=list)


class Stop(TypedDict):
    town: Town
    days: int


class Tree(TypedDict):
    below: "list[Tree]"


ARRAY = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (None, {"type": "null"}),
        (NoneType, {"type": "null"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal[True], {"type": "boolean", "enum": [True]}),
        (Literal[None], {"type": "null", "enum": [None]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Level, {"type": "number", "enum": [0.5, 1.5]}),
        (Mixed, {"enum": [1, "all"]}),
        (list[int], ARRAY),
        (Sequence[int], ARRAY),
        (Iterable[int], ARRAY),
        (tuple[int, ...], ARRAY),
        (set[int], ARRAY),
        (frozenset[int], ARRAY),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (Annotated[int, 5, "in cents", "not this"], {"type": "integer", "description": "in cents"}),
        (Annotated[int, 5], {"type": "integer"}),
        (
            Town,
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "as on a map"},
                    "country": {"type": "string", "description": 'two letters Default: "GB".'},
                    "streets": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["name", "country", "streets"],
                "additionalProperties": False,
            },
        ),
    ],
    ids=str,
)
def test_a_type_has_a_strict_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert type_schema(kind, "the value").schema == schema


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Any, {}),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[dict[str, int] | None], {"type": "array", "items": {"anyOf": [
            {"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "null"}]}}),
        (Annotated[Any, "free"], {"description": "free"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_schema_that_is_not_strict_allows_any_value_and_any_key(kind: Any, schema: dict[str, Any]) -> None:
    assert type_schema(kind, "the value", strict=False).schema == schema


def test_a_record_that_is_not_strict_requires_only_fields_without_a_default() -> None:
    schema = type_schema(Town, "the value", strict=False).schema
    assert schema["required"] == ["name"]
    assert schema["properties"]["country"] == {"type": "string", "description": "two letters", "default": "GB"}


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        (float, 1, 1),
        (float, 1.5, 1.5),
        (Literal["a", 1], 1, 1),
        (Level, 1.5, Level.HIGH),
        (Sequence[int], [1, 2], [1, 2]),
        (Iterable[int], [1, 2], [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[int], [1, 1], {1}),
        (frozenset[int], [1, 1], frozenset({1})),
        (int | str, "a", "a"),
        (Town, {"name": "Rye"}, Town("Rye", "GB", [])),
        (Town, {"name": "Rye", "country": "IE", "streets": ["x"]}, Town("Rye", "IE", ["x"])),
        (Stop, {"town": {"name": "Rye"}, "days": 1}, {"town": Town("Rye"), "days": 1}),
    ],
    ids=str,
)
def test_a_value_of_a_type_is_parsed(kind: Any, value: Any, result: Any) -> None:
    assert type_schema(kind, "the value").read(value, "x") == result


def test_a_float_without_a_fraction_is_an_integer() -> None:
    assert repr(type_schema(int, "the value").read(2.0, "x")) == "2"


@pytest.mark.parametrize(
    ("kind", "value"), [(Any, [None]), (dict, {"a": [1]}), (dict[str, int], {"a": 1}), (dict[str, Any], {"a": None})]
)
def test_a_value_of_a_non_strict_type_is_parsed(kind: Any, value: Any) -> None:
    assert type_schema(kind, "the value", strict=False).read(value, "x") == value


def test_a_mutable_default_is_not_shared() -> None:
    read = type_schema(Town, "the value").read
    first, second = read({"name": "Rye"}, "x"), read({"name": "Rye"}, "x")
    first.streets.append("High Street")  # type: ignore[attr-defined]
    assert second == Town("Rye")


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (str, 1, "x: must be a string, not 1"),
        (bool, 1, "x: must be true or false, not 1"),
        (int, 1.5, "x: must be an integer, not 1.5"),
        (int, True, "x: must be an integer, not True"),
        (float, "1", "x: must be a number, not '1'"),
        (float, True, "x: must be a number, not True"),
        (None, 0, "x: must be null, not 0"),
        (NoneType, 0, "x: must be null, not 0"),
        (Literal["a", 1], True, "x: must be 'a' or 1, not True"),
        (Literal["a", 1], "1", "x: must be 'a' or 1, not '1'"),
        (Level, "HIGH", "x: must be 0.5 or 1.5, not 'HIGH'"),
        (list[int], "ab", "x: must be an array, not 'ab'"),
        (list[int], [1, "b"], "x[1]: must be an integer, not 'b'"),
        (Town, [], "x: must be an object, not []"),
        (Town, {"town": 1}, "x.town: there is no such field; x.name: is missing"),
        (Stop, {"town": {"name": 1}, "days": 1}, "x.town.name: must be a string, not 1"),
        (int | str, None, "x: must be an integer, not None or x: must be a string, not None"),
        (list[int] | list[str], 1, "x: must be an array, not 1"),
        (str, 10**39, f"x: must be a string, not 1{'0' * 39}"),
        (str, 10**40, f"x: must be a string, not 1{'0' * 38}…"),
    ],
    ids=str,
)
def test_a_value_that_does_not_match_is_refused_with_its_path(kind: Any, value: Any, message: str) -> None:
    with pytest.raises(Mismatch) as error:
        type_schema(kind, "the value").read(value, "x")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [([], "x: must be an object, not []"), ({"a": {"b": "c"}}, "x.a.b: must be an integer, not 'c'")],
)
def test_a_value_in_a_non_strict_object_has_its_path(value: Any, message: str) -> None:
    with pytest.raises(Mismatch) as error:
        type_schema(dict[str, dict[str, int]], "the value", strict=False).read(value, "x")
    assert str(error.value) == message


def test_a_value_at_the_top_level_is_called_it() -> None:
    with pytest.raises(Mismatch, match=r"^it: must be an object, not 1$"):
        ObjectSchema(()).read(1, "")


FLAT = "use str, int, float, bool, Literal, Enum, list, a dataclass or a TypedDict"
NAMED = "name its fields in a dataclass, or define the tool with strict=False"
ELEMENTS = "use list[...] or tuple[..., ...]"
LITERAL = "use strings, numbers, booleans or None; for the members of an Enum, use the Enum itself"


@pytest.mark.parametrize(
    ("kind", "strict", "message", "hint"),
    [
        (bytes, True, "the value is bytes, which a strict schema cannot express", FLAT),
        (bytes, False, "the value is bytes, which a schema cannot express", FLAT),
        (dict[str, bytes], False, "the value is bytes, which a schema cannot express", FLAT),
        (list[bytes], True, "the value is bytes, which a strict schema cannot express", FLAT),
        (dict[str, int], True, "the value is dict[str, int], which a strict schema cannot express", NAMED),
        (
            Mapping[str, int],
            True,
            "the value is collections.abc.Mapping[str, int], which a strict schema cannot express",
            NAMED,
        ),
        (Any, True, "the value is Any, which a strict schema cannot express", NAMED),
        (list, True, "the value is list, which does not define its elements", ELEMENTS),
        (tuple[int], True, "the value is tuple[int], which does not define its elements", ELEMENTS),
        (tuple[int, str], True, "the value is tuple[int, str], which does not define its elements", ELEMENTS),
        (Literal[b"x"], True, "the value is a Literal of b'x', which has no JSON form", LITERAL),
        (Literal["a", Level.LOW], True, f"the value is a Literal of {Level.LOW!r}, which has no JSON form", LITERAL),
        (
            Tree,
            True,
            "field 'below' of the value is Tree, which contains itself",
            "use a list of flat records instead",
        ),
        (
            Annotated[list[Tree], "trees"],
            False,
            "field 'below' of the value is Tree, which contains itself",
            "use a list of flat records instead",
        ),
    ],
    ids=str,
)
def test_a_type_that_no_schema_can_express_is_refused(kind: Any, strict: bool, message: str, hint: str) -> None:
    with pytest.raises(InputFault) as error:
        type_schema(kind, "the value", strict=strict)
    assert (error.value.message, error.value.hint) == (message, hint)


def test_a_default_is_part_of_the_description_of_a_strict_schema() -> None:
    @tool
    def search(
        a: bool = True, b: Level = Level.LOW, c: str | None = None, d: float = 1.5, e: Annotated[int, "how many"] = 1
    ) -> None:
        """Search.

        a:  at once
        """

    properties = search.parameters["properties"]
    assert {name: field.get("description") for name, field in properties.items()} == {
        "a": "at once Default: true.",
        "b": "Default: 0.5.",
        "c": None,
        "d": "Default: 1.5.",
        "e": "how many Default: 1.",
    }


def test_a_docstring_replaces_the_description_of_an_annotation() -> None:
    @tool
    def search(q: Annotated[str, "the annotation"]) -> None:
        """Search.

        q:  the docstring
        """

    assert search.parameters["properties"]["q"]["description"] == "the docstring"


def test_an_error_raised_by_a_class_names_the_path_of_its_value() -> None:
    with pytest.raises(Mismatch, match=r"^x: ZeroDivisionError\('no'\)$"):
        call_converter(_raise, "x", ZeroDivisionError("no"))
    with pytest.raises(Mismatch, match=r"^it: ZeroDivisionError\('no'\)$"):
        call_converter(_raise, "", ZeroDivisionError("no"))
    with pytest.raises(Mismatch, match=r"^as it is$"):
        call_converter(_raise, "x", Mismatch("as it is"))


def _raise(error: Exception) -> None:
    raise error
