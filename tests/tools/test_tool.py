"""A function becomes a tool: its types the schema, its docstring the descriptions, its defaults the defaults."""

import dataclasses
from typing import Annotated, Any, Literal, TypedDict

import pytest
from agents import function_tool

from convo.errors import InputFault
from convo.tools.tool import Context, InvalidArguments, Namespace, Tool, read_arguments, tool


class Stop(TypedDict):
    city: str
    days: int


def schema(function: Any) -> Any:
    return tool(function).parameters


def test_a_function_defines_the_name_description_and_parameters() -> None:
    @tool
    def weather(city: str, days: int) -> str:
        """Tell the weather.

        Args:
            city: where,
                in plain words
            days: how many
        """
        return ""

    assert (weather.name, weather.description, weather.strict) == ("weather", "Tell the weather.", True)
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where, in plain words"},
            "days": {"type": "integer", "description": "how many"},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    }


def sphinx(city: str, days: int = 1) -> str:
    """Tell it.

    :param city: where
    :param int days: how many
    :returns: words
    """
    return ""


def numpy(city: str, days: int = 1) -> str:
    """Tell it.

    Parameters
    ----------
    city : str
        where
    days : int
        how many

    Returns
    -------
    str
        words
    """
    return ""


def plain(city: str, days: int = 1) -> str:
    """Tell it.

    city:  where
    days:  how many
    """
    return ""


def google(city: str, days: int = 1) -> str:
    """Tell it.

    Args:
        city (str): where
        days (int): how many

    Returns:
        words
    """
    return ""


@pytest.mark.parametrize("function", [sphinx, numpy, plain, google], ids=lambda one: one.__name__)
def test_a_docstring_may_have_four_formats(function: Any) -> None:
    definition = tool(function)
    properties = definition.parameters["properties"]
    assert definition.description == "Tell it."
    assert properties["city"]["description"] == "where"
    assert properties["days"]["description"] == "how many Default: 1."


def test_text_in_an_annotation_is_the_description_of_the_field() -> None:
    def find(q: Annotated[str, "what to look for"]) -> str:
        return q

    assert schema(find)["properties"]["q"] == {"type": "string", "description": "what to look for"}


def test_a_schema_equals_that_of_the_agents_sdk_except_for_titles() -> None:
    def take(a: float, b: bool, c: str | None, d: list[int], e: Literal["x", "y"], f: set[str] | list[int]) -> None:
        """Take it.

        Args:
            a: the first
        """

    sdk_schema = untitled(function_tool(take).params_json_schema)
    del sdk_schema["properties"]["f"]["anyOf"][0]["uniqueItems"]
    assert schema(take) == sdk_schema


def untitled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: untitled(below) for key, below in value.items() if key != "title"}
    return [untitled(below) for below in value] if isinstance(value, list) else value


def test_a_default_is_used_when_the_model_omits_the_field() -> None:
    assert read_arguments(tool(plain), '{"city": "Bath"}') == {"city": "Bath", "days": 1}


def test_a_non_strict_schema_has_defaults_and_open_objects() -> None:
    @tool(strict=False)
    def keep(what: dict[str, int], any_thing: Any, times: int = 2) -> None: ...

    assert keep.parameters["required"] == ["what", "any_thing"]
    assert keep.parameters["properties"]["times"] == {"type": "integer", "default": 2}
    assert keep.parameters["properties"]["what"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    got = read_arguments(keep, '{"what": {"a": 1}, "any_thing": [null]}')
    assert got == {"what": {"a": 1}, "any_thing": [None], "times": 2}


class Tree(TypedDict):
    below: "list[Tree]"


def no_type(a) -> None: ...  # type: ignore[no-untyped-def]
def open_object(a: dict[str, int]) -> None: ...
def anything(a: Any) -> None: ...
def many(*a: int) -> None: ...
def named(**a: int) -> None: ...
def nameless(a: int, /) -> None: ...
def raw_bytes(a: bytes) -> None: ...
def bare_list(a: list) -> None: ...  # type: ignore[type-arg]
def fixed(a: tuple[int, str]) -> None: ...
def itself(a: Tree) -> None: ...
def late_context(b: int, a: Context) -> None: ...


TYPES, ELEMENTS = (
    "use str, int, float, bool, Literal, Enum, list, a dataclass or a TypedDict",
    "use list[...] or tuple[..., ...]",
)
NO_NAME = "has no name that a model could use"


@pytest.mark.parametrize(
    ("function", "message", "hint"),
    [
        (no_type, "has no type", "add a type annotation: the schema is built from the types"),
        (
            open_object,
            "is dict[str, int], which a strict schema cannot express",
            "name its fields in a dataclass, or define the tool with strict=False",
        ),
        (
            anything,
            "is Any, which a strict schema cannot express",
            "name its fields in a dataclass, or define the tool with strict=False",
        ),
        (many, NO_NAME, "use a list, or a named parameter for each value"),
        (named, NO_NAME, "use a list, or a named parameter for each value"),
        (nameless, NO_NAME, "use a list, or a named parameter for each value"),
        (raw_bytes, "is bytes, which a strict schema cannot express", TYPES),
        (bare_list, "is list, which does not define its elements", ELEMENTS),
        (fixed, "is tuple[int, str], which does not define its elements", ELEMENTS),
        (late_context, "is the Context, but not the first parameter", "move it to the first position"),
    ],
)
def test_a_type_that_a_strict_schema_cannot_express_is_refused_by_name_at_definition(
    function: Any, message: str, hint: str
) -> None:
    with pytest.raises(InputFault) as error:
        tool(function)
    assert error.value.message == f"parameter 'a' of tool {function.__name__!r} {message}"
    assert error.value.hint == hint


def test_a_recursive_parameter_type_is_refused_with_its_field() -> None:
    with pytest.raises(InputFault) as error:
        tool(itself)
    assert error.value.message == ("field 'below' of parameter 'a' of tool 'itself' is Tree, which contains itself")


def test_a_first_parameter_of_type_context_is_not_in_the_schema() -> None:
    def who(context: Context, name: str) -> str:
        return name

    definition = tool(who)
    assert definition.takes_context
    assert list(definition.parameters["properties"]) == ["name"]
    assert not tool(plain).takes_context


def test_a_decorator_may_set_every_field() -> None:
    settings: dict[str, Any] = {
        "needs_approval": True,
        "namespace": Namespace("crm", "customers"),
        "deferred": True,
        "timeout_s": 2.0,
        "on_timeout": "fail",
        "failure": str,
        "enabled": False,
    }
    definition = tool(name="find", description="", strict=False, **settings)(plain)
    assert {field: getattr(definition, field) for field in settings} == settings
    assert (definition.name, definition.title, definition.description, definition.strict, definition.run) == (
        "find",
        "crm.find",
        "",
        False,
        plain,
    )
    assert definition.parameters["required"] == ["city"]


def test_a_tool_has_the_defaults_of_the_agents_sdk() -> None:
    definition, sdk_tool = tool(plain), function_tool(plain)
    assert (definition.strict, definition.needs_approval, definition.deferred) == (
        sdk_tool.strict_json_schema,
        sdk_tool.needs_approval,
        sdk_tool.defer_loading,
    )
    assert (definition.timeout_s, definition.enabled, definition.namespace, definition.serialize) == (
        sdk_tool.timeout_seconds,
        True,
        None,
        None,
    )
    assert definition.on_timeout == "tell"
    assert definition.failure is not None
    assert definition.failure(ValueError("x")) == "An error occurred while running the tool. Please try again."


def test_an_invalid_timeout_is_refused() -> None:
    with pytest.raises(InputFault, match=r"^tool 'plain' has a timeout of 0 seconds$") as error:
        tool(timeout_s=0)(plain)
    assert error.value.hint == "set timeout_s to more than 0"
    with pytest.raises(InputFault, match=r"^tool 'slow' has a timeout of -1 seconds$"):
        tool(name="slow", timeout_s=-1)(plain)
    assert tool(timeout_s=0.5)(plain).timeout_s == 0.5


@tool
def book(city: str, nights: int, smoking: bool = False) -> str:
    """Book a room."""
    return city


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"nights": "3"}', "city: is missing; nights: must be an integer, not '3'"),
        ('{"city": "B", "nights": true}', "nights: must be an integer, not True"),
        ('{"city": "B", "nights": 1, "nigths": 2}', "nigths: there is no such field"),
        ('{"city": "B", "nights": NaN}', "they are not JSON (NaN is not a JSON number)"),
        ("[1]", "they must be one JSON object"),
        ("", "city: is missing; nights: is missing"),
        (" ", "city: is missing; nights: is missing"),
        ('{"city": ' + "[" * 100_000, "they are not JSON (nested too deep)"),
    ],
)
def test_the_model_gets_every_invalid_argument_with_its_expected_type(arguments: str, expected: str) -> None:
    assert read_arguments(book, arguments) == InvalidArguments(
        f"Invalid arguments for tool book: {expected}. Call it again with arguments that fit its schema."
    )


def test_the_model_gets_the_position_at_which_its_arguments_are_not_json() -> None:
    got = read_arguments(book, '{"city": "B", "nights"')
    assert isinstance(got, InvalidArguments)
    assert got.message.startswith("Invalid arguments for tool book: they are not JSON (Expecting ':' delimiter: line 1")


def test_an_error_names_the_path_of_a_nested_value() -> None:
    def go(stops: list[Stop]) -> None: ...

    got = read_arguments(tool(go), '{"stops": [{"city": "B", "days": 1}, {"city": 2, "days": 1}]}')
    assert isinstance(got, InvalidArguments)
    assert "stops[1].city: must be a string, not 2" in got.message


def test_a_tool_that_parses_its_own_arguments_gets_them_unchanged() -> None:
    foreign = Tool("t", "", {"type": "object"}, run=lambda context, written: written)
    assert read_arguments(foreign, '{"x": 1}') == {"x": 1}


class Refused(Exception):
    """An error that the constructor of a user-defined class raises."""


@dataclasses.dataclass
class Many:
    cents: int

    def __post_init__(self) -> None:
        if self.cents < 0:
            raise Refused("no debts")


def test_the_message_of_a_user_class_that_rejects_a_value_is_sent_to_the_model() -> None:
    def pay(sums: list[Many]) -> None: ...

    found = read_arguments(tool(pay), '{"sums": [{"cents": 1}, {"cents": -1}]}')
    assert isinstance(found, InvalidArguments)
    assert "sums[1]: Refused('no debts'). Call it again" in found.message
    assert read_arguments(tool(pay), '{"sums": [{"cents": 1}]}') == {"sums": [Many(1)]}
