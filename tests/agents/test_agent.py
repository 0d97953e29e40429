"""An agent is made of what an agent is made of; anything else is refused where it is written."""

from typing import Any

import pytest

from convo.agents import Agent, Guardrail, Handoff
from convo.errors import InputFault

OTHER = Agent("other")


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
    ],
)
def test_a_part_of_another_kind_is_refused_with_what_belongs_there(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(InputFault) as told:
        Agent("desk", **parts)
    assert told.value.message == words
    assert told.value.hint


@pytest.mark.parametrize("part", ["tool_name", "description", "parameters"])
def test_a_handoffs_parts_are_looked_at_too(part: str) -> None:
    with pytest.raises(InputFault, match=f"a handoff has {part} of type int"):
        Handoff(OTHER, **{part: 5})  # type: ignore[arg-type]


def test_a_name_is_words() -> None:
    with pytest.raises(InputFault, match="an agent's name is of type int"):
        Agent(5)  # type: ignore[arg-type]


def test_what_belongs_there_is_taken_in_every_form() -> None:
    guard = Guardrail("g", lambda context, said: None)
    made = Agent("desk", lambda context: "Help.", handoffs=[OTHER, "other", Handoff("other")], input_guardrails=[guard])  # type: ignore[arg-type]
    assert [way.to for way in made.ways] == [OTHER, "other", "other"]
