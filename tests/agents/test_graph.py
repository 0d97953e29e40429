"""A graph has all agents that a run can reach, and different identities for agents with the same name."""

from typing import Any

import agents as sdk
import pytest

from convo.agents.agent import Agent, Handoff
from convo.agents.graph import Graph, agent_tool, assign_identities, graph
from convo.agents.sdk import from_object
from convo.errors import InputFault, NotFound
from tests.call_count import CallCount


def ways(found: Graph) -> dict[str, list[object]]:
    return {identity: [way.to for way in agent.ways] for identity, agent in found.agents.items()}


def test_agents_are_found_by_value_and_by_name_and_may_form_a_cycle() -> None:
    billing = Agent("billing", handoffs=("triage",))
    returns = Agent("returns", handoffs=(Handoff("billing", tool_name="pay"),))
    triage = Agent("triage", handoffs=(billing, "returns"))
    found = graph(triage, returns, Agent("alone"))
    assert found.start == "triage"
    assert ways(found) == {"triage": ["billing", "returns"], "billing": ["triage"], "returns": ["billing"]}
    assert found["returns"].ways[0].tool_name == "pay"


def test_two_agents_of_one_name_are_distinct() -> None:
    deep = Agent("desk", "the second")
    start = Agent("desk", "the first", handoffs=(deep, Agent("desk", "the third", handoffs=(deep,))))
    found = graph(start)
    assert ways(found) == {"desk": ["desk#2", "desk#3"], "desk#2": [], "desk#3": ["desk#2"]}
    assert found["desk#3"].instructions == "the third"
    assert found.duplicates == ("desk",)


def test_an_agent_with_a_number_in_its_name_keeps_it() -> None:
    start = Agent("a", handoffs=(Agent("a#2"), Agent("a", "other")))
    assert list(graph(start).agents) == ["a", "a#2", "a#3"]


def test_a_repeated_agent_is_one_node() -> None:
    assert list(graph(Agent("a", handoffs=(Agent("b"), Agent("b")))).agents) == ["a", "b"]


def test_a_handoff_to_an_unknown_agent_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match="no agent 'lost'") as error:
        graph(Agent("a", handoffs=("lost",)))
    assert error.value.hint == "add it, or correct the handoff of agent 'a'; known agents: a"


def test_an_ambiguous_name_finds_no_agent() -> None:
    with pytest.raises(InputFault, match=r"^agent 'a' has a handoff to 'b', which is the name of 2 agents$") as error:
        graph(Agent("a", handoffs=("b",)), Agent("b"), Agent("b", "other"))
    assert error.value.hint == "use the Agent object instead of its name, or rename one agent"


def test_an_unknown_identity_is_not_found() -> None:
    with pytest.raises(NotFound, match="no agent 'b'") as error:
        graph(Agent("a", handoffs=(Agent("c"),)))["b"]
    assert error.value.hint == "choose one of a, c"


@pytest.mark.parametrize(
    ("names", "identities"),
    [
        (["a", "a", "b", "a"], ["a", "a#2", "b", "a#3"]),
        (["a", "a", "a#2"], ["a", "a#3", "a#2"]),
        (["a#2", "a", "a", "a"], ["a#2", "a", "a#3", "a#4"]),
        (["a#2", "a#2", "a"], ["a#2", "a#2#2", "a"]),
        ([], []),
    ],
)
def test_each_name_gets_an_identity_of_its_own(names: list[str], identities: list[str]) -> None:
    assert assign_identities(names) == identities


@pytest.mark.parametrize(
    ("fields", "name", "description"),
    [
        ({}, "tax_clerk__2_", "Knows taxes."),
        ({"name": "ask"}, "ask", "Knows taxes."),
        ({"description": ""}, "tax_clerk__2_", ""),
        ({"description": "Ask."}, "tax_clerk__2_", "Ask."),
    ],
)
def test_an_agent_is_a_tool_that_takes_text(fields: dict[str, Any], name: str, description: str) -> None:
    clerk = Agent("Tax clerk (2)", description="Knows taxes.")
    tool = agent_tool(graph(clerk, Agent("other")), **fields)
    assert (tool.name, tool.description, tool.graph.start, tool.max_turns) == (name, description, clerk.name, 10)
    assert tool.parameters == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
    assert (tool.strict, tool.needs_approval) == (True, False)
    assert tool.failure is not None
    assert tool.failure(ValueError()) == "An error occurred while running the tool. Please try again."


def test_an_agent_as_a_tool_has_the_settings_of_a_tool() -> None:
    tool = agent_tool(Agent("clerk"), needs_approval=True, max_turns=None, failure=None)
    assert (tool.needs_approval, tool.max_turns, tool.failure) == (True, None, None)


@pytest.mark.parametrize("kind", ["by name", "by value", "foreign"])
def test_finding_agents_takes_linear_time(kind: str) -> None:
    def steps(count: int) -> int:
        with CallCount() as counter:
            found = from_object(make_circle(count)) if kind == "foreign" else make_graph(kind, count)
        assert len(found.agents) == count
        return counter.total

    few, more = steps(40), steps(160)
    assert more < 5 * few


def make_graph(kind: str, count: int) -> Graph:
    """Return `count` agents: each hands off to the next, or the first to all the others."""
    if kind == "by name":
        first, *rest = [Agent(f"a{n}", handoffs=(f"a{(n + 1) % count}",)) for n in range(count)]
        return graph(first, *rest)
    return graph(Agent("first", handoffs=tuple(Agent(f"a{n}") for n in range(count - 1))))


def make_circle(count: int) -> object:
    """Return agents of the Agents SDK, each of which hands off to the next."""
    agents: list[sdk.Agent[None]] = [sdk.Agent(name=f"a{n}") for n in range(count)]
    for n, one in enumerate(agents):
        one.handoffs.append(agents[(n + 1) % count])
    return agents[0]
