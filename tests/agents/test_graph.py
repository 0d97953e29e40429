"""A run knows the agents that it can reach, and tells two of one name apart."""

import pytest

from convo.agents import Agent, Graph, Handoff, graph
from convo.errors import InputFault, NotFound


def ways(found: Graph) -> dict[str, list[object]]:
    return {identity: [way.to for way in agent.ways] for identity, agent in found.agents.items()}


def test_agents_are_reached_by_value_and_by_name_and_may_lead_back() -> None:
    billing = Agent("billing", handoffs=("triage",))
    returns = Agent("returns", handoffs=(Handoff("billing", tool_name="pay"),))
    triage = Agent("triage", handoffs=(billing, "returns"))
    found = graph(triage, returns, Agent("alone"))
    assert found.start == "triage"
    assert ways(found) == {"triage": ["billing", "returns"], "billing": ["triage"], "returns": ["billing"]}
    assert found["returns"].ways[0].tool_name == "pay"


def test_two_agents_of_one_name_are_two() -> None:
    deep = Agent("desk", "the second")
    start = Agent("desk", "the first", handoffs=(deep, Agent("desk", "the third", handoffs=(deep,))))
    found = graph(start)
    assert ways(found) == {"desk": ["desk#2", "desk#3"], "desk#2": [], "desk#3": ["desk#2"]}
    assert found["desk#3"].instructions == "the third"
    assert found.duplicates == ("desk",)


def test_an_agent_that_is_really_called_with_a_number_keeps_it() -> None:
    start = Agent("a", handoffs=(Agent("a#2"), Agent("a", "other")))
    assert list(graph(start).agents) == ["a", "a#2", "a#3"]


def test_the_same_agent_twice_is_one() -> None:
    assert list(graph(Agent("a", handoffs=(Agent("b"), Agent("b")))).agents) == ["a", "b"]


def test_a_handoff_to_nobody_is_refused_with_those_who_are_there() -> None:
    with pytest.raises(NotFound, match="no agent 'lost'") as refused:
        graph(Agent("a", handoffs=("lost",)))
    assert "there are a" in refused.value.hint


def test_a_name_that_several_agents_have_says_none_of_them() -> None:
    with pytest.raises(InputFault, match="2 agents are called so"):
        graph(Agent("a", handoffs=("b",)), Agent("b"), Agent("b", "other"))


def test_an_unknown_identity_is_not_found() -> None:
    with pytest.raises(NotFound, match="no agent 'b'"):
        graph(Agent("a"))["b"]
