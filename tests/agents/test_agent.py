"""The fields of an agent are validated when it is defined."""

import math
from dataclasses import FrozenInstanceError, dataclass, fields
from datetime import date
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from convo.agents.agent import Agent, Guardrail, Handoff, Output, plain_json
from convo.agents.graph import AgentTool, Graph
from convo.errors import InputFault
from convo.tools.tool import Context, InvalidArguments, Namespace, Tool, Toolbox, tool

OTHER = Agent("other")


@tool
def look() -> str:
    """Look."""
    return "seen"


@tool(namespace=Namespace("crm", "customers"))
def find() -> str:
    """Find."""
    return "found"


@tool(name="look up")
def spaced() -> str:
    """Look."""
    return "seen"


TEXT, MODEL, SETTINGS = (
    "use text, or a function that returns text",
    'model="provider/model"',
    'settings={"temperature": 0.2}',
)
AFTER = '"ask again", "first output", or frozenset({"a_tool"})'
GUARDRAIL, NAME = 'Guardrail("a name", a_function)', "use 1 to 128 characters of a-z, A-Z, 0-9, _ and -"


@pytest.mark.parametrize(
    ("parts", "text", "hint"),
    [
        ({"instructions": 5}, "instructions of type int", TEXT),
        ({"model": ["m"]}, "model of type list", MODEL),
        ({"settings": [1]}, "settings of type list", SETTINGS),
        ({"output": dict}, "output of type type", "create one with output(TYPE)"),
        ({"after_tools": True}, "after_tools of type bool", AFTER),
        ({"after_tools": "some day"}, "after_tools 'some day'", AFTER),
        ({"tools": len}, "tools of type builtin_function_or_method", "tools=(...,)"),
        ({"handoffs": 5}, "handoffs of type int", "handoffs=(...,)"),
        ({"input_guardrails": 5}, "input_guardrails of type int", "input_guardrails=(...,)"),
        ({"output_guardrails": 5}, "output_guardrails of type int", "output_guardrails=(...,)"),
        ({"tools": (len,)}, "a tool of type builtin_function_or_method", "create one from a function with @tool"),
        ({"handoffs": (OTHER, 5)}, "a handoff of type int", "use an Agent, or its name"),
        ({"handoffs": (Handoff(5),)}, "a handoff of type int", "use an Agent, or its name"),  # type: ignore[arg-type]
        ({"input_guardrails": (len,)}, "a guardrail of type builtin_function_or_method", GUARDRAIL),
        ({"output_guardrails": ("no",)}, "a guardrail of type str", GUARDRAIL),
        ({"tools": (spaced,)}, "a tool called 'look up'", NAME),
        ({"tools": ({"type": ""},)}, "a hosted tool of the type ''", '{"type": "web_search"}'),
        ({"tools": ({"type": 1},)}, "a hosted tool of the type 1", '{"type": "web_search"}'),
        ({"tools": ({"x": 1},)}, "a hosted tool of the type None", '{"type": "web_search"}'),
    ],
)
def test_a_field_of_another_type_is_refused_with_the_expected_type(parts: dict[str, Any], text: str, hint: str) -> None:
    with pytest.raises(InputFault) as error:
        Agent("desk", **parts)
    assert (error.value.message, error.value.hint) == (f"agent 'desk' has {text}", hint)


@pytest.mark.parametrize(
    ("names", "tools", "first", "hint"),
    [
        ({"look"}, (), "'look'", "add it to its tools"),
        ({"look"}, ({"type": "web_search"},), "'look'", "add it to its tools"),
        ({1, "look"}, (look,), "1", "use one of look"),
        ({"b", "a", "look"}, (look, find), "'a'", "use one of crm.find, find, look"),
    ],
)
def test_an_agent_cannot_stop_after_a_tool_that_it_does_not_have(
    names: set[Any], tools: tuple[Any, ...], first: str, hint: str
) -> None:
    with pytest.raises(InputFault) as error:
        Agent("desk", tools=tools, after_tools=frozenset(names))
    assert error.value.message == f"agent 'desk' stops after {first}, which is not one of its tools"
    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ("tool_name", 'tool_name="pay"'),
        ("description", "use text for the model"),
        ("parameters", 'parameters={"type": "object", ...}'),
    ],
)
def test_the_fields_of_a_handoff_are_validated_too(part: str, hint: str) -> None:
    with pytest.raises(InputFault, match=f"a handoff has {part} of type int") as error:
        Handoff(OTHER, **{part: 5})  # type: ignore[arg-type]
    assert error.value.hint == hint


@pytest.mark.parametrize("name", ["", "x y é", "a.b", "n" * 129, "pay\n"])
def test_a_name_that_no_server_accepts_is_refused(name: str) -> None:
    with pytest.raises(InputFault) as error:
        Handoff(OTHER, tool_name=name)
    assert error.value.message == f"a handoff has tool_name {name!r}"
    assert error.value.hint == "use 1 to 128 characters of a-z, A-Z, 0-9, _ and -"
    assert Handoff(OTHER, tool_name="To-billing_2").tool_name == "To-billing_2"
    assert Handoff(OTHER, tool_name="n" * 128).tool_name == "n" * 128


@pytest.mark.parametrize("value", [date(2020, 1, 1), math.nan, {"deep": [object()]}])
def test_an_unsendable_hosted_tool_is_refused_with_its_field(value: object) -> None:
    with pytest.raises(InputFault) as error:
        Agent("desk", tools=({"type": "web_search", "size": "high", "since": value},))
    assert error.value.message.startswith("agent 'desk' has a tool 'web_search' whose 'since' is not JSON: ")
    assert error.value.hint == "use only JSON values: it becomes a field of a request"


def test_an_agent_stops_after_its_own_tools_by_either_name() -> None:
    agent = Agent("desk", tools=(look, find), after_tools=frozenset({"look", "crm.find"}))
    assert agent.after_tools == frozenset({"look", "crm.find"})


def test_a_tool_name_is_text() -> None:
    with pytest.raises(InputFault, match=r"^an agent's name must be a string, not int$") as error:
        Agent(5)  # type: ignore[arg-type]
    assert error.value.hint == 'Agent("desk", ...)'


@pytest.mark.parametrize(
    "kind", [Agent, Handoff, Guardrail, Output, Graph, AgentTool, Tool, Context, Namespace, Toolbox, InvalidArguments]
)
def test_a_definition_cannot_change(kind: type[Any]) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(object.__new__(kind), fields(kind)[0].name, None)


def test_valid_fields_are_accepted_in_every_form() -> None:
    guard = Guardrail("g", lambda context, value: None)
    handoffs: Any = [OTHER, "other", Handoff("other")]
    guardrails: Any = [guard]
    agent = Agent("desk", lambda context: "Help.", handoffs=handoffs, input_guardrails=guardrails)
    assert [way.to for way in agent.ways] == [OTHER, "other", "other"]


def test_the_defaults_for_a_model_replace_the_settings_of_an_agent_without_a_model() -> None:
    def defaults(model: str) -> dict[str, str]:
        return {"for": model}

    assert Agent("desk", settings={"temperature": 0}).settings_for("gpt-5") == {"temperature": 0}
    assert Agent("desk", settings={"temperature": 0}, model_defaults=defaults).settings_for("gpt-5") == {"for": "gpt-5"}
    own = Agent("desk", model="a/b", settings={"temperature": 0}, model_defaults=defaults)
    assert own.settings_for("b") == {"temperature": 0}


class Unit(Enum):
    C = "celsius"


@dataclass
class Paid:
    cents: int
    units: tuple[Unit, ...] = (Unit.C,)


class Model(BaseModel):
    when: date
    paid: bool = True


@pytest.mark.parametrize(
    ("value", "json"),
    [
        ({"a": [1, None, "x"]}, {"a": [1, None, "x"]}),
        (Paid(3), {"cents": 3, "units": ["celsius"]}),
        ([Model(when=date(2020, 1, 2))], [{"when": "2020-01-02", "paid": True}]),
        ({1}, [1]),
        (frozenset({1}), [1]),
        (Unit.C, "celsius"),
        (date(2020, 1, 2), "2020-01-02"),
        (Paid, str(Paid)),
        (Model, str(Model)),
    ],
    ids=str,
)
def test_a_value_is_json_by_its_content_or_its_text(value: object, json: object) -> None:
    assert plain_json(value) == json
