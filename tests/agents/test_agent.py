"""An agent is made of what an agent is made of; anything else is refused where it is written."""

import math
from datetime import date
from typing import Any

import pytest

from convo.agents.agent import Agent, Guardrail, Handoff
from convo.errors import InputFault
from convo.tools.tool import Namespace, tool

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


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"instructions": 5}, "agent 'desk' has instructions of type int"),
        ({"model": ["m"]}, "agent 'desk' has model of type list"),
        ({"settings": [1]}, "agent 'desk' has settings of type list"),
        ({"output": dict}, "agent 'desk' has output of type type"),
        ({"after_tools": True}, "agent 'desk' has after_tools of type bool"),
        ({"after_tools": "some day"}, "agent 'desk' has after_tools 'some day'"),
        ({"tools": len}, "agent 'desk' has tools of type builtin_function_or_method"),
        ({"tools": (len,)}, "agent 'desk' has a tool of type builtin_function_or_method"),
        ({"handoffs": (OTHER, 5)}, "agent 'desk' has a handoff of type int"),
        ({"handoffs": (Handoff(5),)}, "agent 'desk' has a handoff of type int"),  # type: ignore[arg-type]
        ({"input_guardrails": (len,)}, "agent 'desk' has a guardrail of type builtin_function_or_method"),
        ({"output_guardrails": ("no",)}, "agent 'desk' has a guardrail of type str"),
        ({"tools": (spaced,)}, "agent 'desk' has a tool called 'look up'"),
        ({"tools": ({"type": ""},)}, "agent 'desk' has a hosted tool of the type ''"),
        ({"tools": ({"x": 1},)}, "agent 'desk' has a hosted tool of the type None"),
        ({"after_tools": frozenset({"look"})}, "agent 'desk' stops after 'look', which is not one of its tools"),
        (
            {"after_tools": frozenset({1}), "tools": (look,)},
            "agent 'desk' stops after 1, which is not one of its tools",
        ),
    ],
)
def test_a_field_of_another_type_is_refused_with_the_expected_type(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(InputFault) as told:
        Agent("desk", **parts)
    assert told.value.message == words
    assert told.value.hint


@pytest.mark.parametrize("part", ["tool_name", "description", "parameters"])
def test_the_fields_of_a_handoff_are_validated_too(part: str) -> None:
    with pytest.raises(InputFault, match=f"a handoff has {part} of type int"):
        Handoff(OTHER, **{part: 5})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "x y é", "a.b", "n" * 129, "pay\n"])
def test_a_name_that_no_server_accepts_is_refused(name: str) -> None:
    with pytest.raises(InputFault) as told:
        Handoff(OTHER, tool_name=name)
    assert told.value.message == f"a handoff has tool_name {name!r}"
    assert told.value.hint == "use 1 to 128 characters of a-z, A-Z, 0-9, _ and -"
    assert Handoff(OTHER, tool_name="To-billing_2").tool_name == "To-billing_2"


@pytest.mark.parametrize("value", [date(2020, 1, 1), math.nan, {"deep": [object()]}])
def test_an_unsendable_hosted_tool_is_refused_with_its_field(value: object) -> None:
    with pytest.raises(InputFault) as told:
        Agent("desk", tools=({"type": "web_search", "size": "high", "since": value},))
    assert told.value.message.startswith("agent 'desk' has a tool 'web_search' whose 'since' is not JSON: ")
    assert told.value.hint == "use only JSON values: it becomes a field of a request"


def test_an_agent_stops_after_its_own_tools_by_either_name() -> None:
    made = Agent("desk", tools=(look, find), after_tools=frozenset({"look", "crm.find"}))
    assert made.after_tools == frozenset({"look", "crm.find"})
    with pytest.raises(InputFault, match="stops after 'nope'") as told:
        Agent("desk", tools=(look, find), after_tools=frozenset({"nope"}))
    assert told.value.hint == "use one of crm.find, find, look"


def test_a_tool_name_is_text() -> None:
    with pytest.raises(InputFault, match="an agent's name must be a string, not int"):
        Agent(5)  # type: ignore[arg-type]


def test_valid_fields_are_accepted_in_every_form() -> None:
    guard = Guardrail("g", lambda context, said: None)
    made = Agent("desk", lambda context: "Help.", handoffs=[OTHER, "other", Handoff("other")], input_guardrails=[guard])  # type: ignore[arg-type]
    assert [way.to for way in made.ways] == [OTHER, "other", "other"]
