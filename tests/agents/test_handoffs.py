"""A handoff is a tool for the model; the history is rewritten only if the server does not store it."""

from dataclasses import replace
from typing import Any

import agents as sdk
import pytest
from agents.models.openai_responses import Converter

from convo.agents.agent import Agent, Handoff
from convo.agents.graph import graph
from convo.agents.handoff_history import HandoffTranscript, build_handoff_input
from convo.agents.handoffs import (
    HandoffDefaults,
    HandoffPlan,
    build_handoff_tools,
    format_handoff_output,
    plan_handoff,
)
from convo.agents.sdk import from_object
from convo.errors import InputFault, WrongOwner
from convo.tools.tool import Namespace, tool


@pytest.mark.parametrize("name", ["billing", "Billing agent", "Zürich/2", "a-b", ""])
def test_a_handoff_has_the_name_of_the_agents_sdk(name: str) -> None:
    target = sdk.Agent(name=name)
    (handoff_tool,) = build_handoff_tools(from_object(sdk.Agent(name="a", handoffs=[target])), "a")
    assert handoff_tool.name == sdk.Handoff.default_tool_name(target)


def test_a_handoff_is_sent_as_the_agents_sdk_sends_it() -> None:
    target = sdk.Agent(name="Billing agent", handoff_description="Pays.")
    ways = [sdk.handoff(target)]
    found = from_object(sdk.Agent(name="a", handoffs=[*ways]))
    (handoff_tool,) = build_handoff_tools(found, "a")
    (sdk_definition,) = Converter.convert_tools([], ways).tools
    assert handoff_tool.definition == sdk_definition
    assert handoff_tool.target == "Billing agent"


def test_a_handoff_to_an_agent_is_offered_as_in_the_agents_sdk() -> None:
    target = sdk.Agent(name="b", handoff_description="Pays.")
    (handoff_tool,) = build_handoff_tools(graph(Agent("a", handoffs=(Agent("b", description="Pays."),))), "a")
    assert [handoff_tool.definition] == Converter.convert_tools([], [sdk.handoff(target)]).tools


def test_when_a_handoff_happens_its_output_is_json_with_the_agents_name() -> None:
    assert format_handoff_output("B") == '{"assistant": "B"}'
    assert format_handoff_output("Ä") == sdk.handoff(sdk.Agent(name="Ä")).get_transfer_message(sdk.Agent(name="Ä"))


def test_a_disabled_agent_is_not_offered() -> None:
    found = graph(Agent("a", handoffs=(Agent("b"), Agent("c"))))
    assert [handoff_tool.target for handoff_tool in build_handoff_tools(found, "a", disabled={"b"})] == ["c"]


@tool
def transfer_to_b() -> None:
    """Not a handoff."""


@pytest.mark.parametrize(
    "agent",
    [
        Agent("a", handoffs=(Agent("b", "one"), Agent("b", "two"))),
        Agent("a", tools=(transfer_to_b,), handoffs=(Agent("b"),)),
        Agent("a", handoffs=(Agent("b c"), Agent("b_c"))),
    ],
)
def test_two_tools_of_one_name_are_refused(agent: Agent) -> None:
    with pytest.raises(InputFault, match=r"^agent 'a' has two tools named 'transfer_to_b") as error:
        build_handoff_tools(graph(agent), "a")
    assert error.value.hint == "set tool_name on one of the handoffs"


def test_a_tool_in_a_namespace_has_another_name_than_a_handoff() -> None:
    spaced = replace(transfer_to_b, namespace=Namespace("crm", ""))
    (handoff_tool,) = build_handoff_tools(graph(Agent("a", tools=(spaced,), handoffs=(Agent("b"),))), "a")
    assert handoff_tool.name == "transfer_to_b"


def test_a_handoff_has_the_tool_that_it_describes() -> None:
    parameters = {"type": "object", "properties": {"why": {"type": "string"}}}
    way = Handoff(Agent("b"), tool_name="pay", description="To b.", parameters=parameters, strict=False)
    (handoff_tool,) = build_handoff_tools(graph(Agent("a", handoffs=(way,))), "a")
    assert handoff_tool.definition == {
        "type": "function",
        "name": "pay",
        "description": "To b.",
        "parameters": parameters,
        "strict": False,
    }


def filter_all(transcript: HandoffTranscript) -> HandoffTranscript:
    return replace(transcript, input=())


def filter_none(transcript: HandoffTranscript) -> HandoffTranscript:
    return transcript


def plan(handoff: Handoff, defaults: HandoffDefaults, *, is_stored: bool = False) -> HandoffPlan:
    return plan_handoff(handoff, defaults, is_server_history=is_stored, agent_names=("a", "b"))


def test_when_nothing_is_configured_nesting_is_off_and_the_raw_transcript_is_passed_on() -> None:
    assert plan(Handoff("b"), HandoffDefaults()) == HandoffPlan()
    one, two, three = ({"role": "user", "content": text} for text in "123")
    assert build_handoff_input(HandoffTranscript((one,), (two,), (three,))) == (one, two, three)


def test_a_setting_of_the_handoff_overrides_that_of_the_run() -> None:
    both = HandoffDefaults(nest=True, filter=filter_all)
    assert plan(Handoff("b", filter=filter_none), both).filter is filter_none
    assert plan(Handoff("b"), both).filter is filter_all
    assert plan(Handoff("b", nest=False), HandoffDefaults(nest=True)) == HandoffPlan()
    assert plan(Handoff("b", nest=True), HandoffDefaults()) == HandoffPlan(nest=True)


def test_a_filter_alone_decides_the_input_of_the_next_agent() -> None:
    assert not plan(Handoff("b", filter=filter_none, nest=True), HandoffDefaults()).nest
    item = {"role": "user", "content": "x"}
    assert build_handoff_input(filter_all(HandoffTranscript((item,), (), (item,)))) == (item,)


@pytest.mark.parametrize("returned", [None, [], "text"])
def test_a_filter_that_returns_another_type_is_refused(returned: Any) -> None:
    with pytest.raises(InputFault, match=f"^an input filter returned {type(returned).__name__}$") as error:
        build_handoff_input(returned)
    assert error.value.hint == "return a HandoffTranscript"


def test_when_nesting_is_on_and_the_server_owns_the_history_it_is_disabled_with_a_warning() -> None:
    got = plan(Handoff("b"), HandoffDefaults(nest=True), is_stored=True)
    assert (got.nest, got.filter) == (False, None)
    assert got.warning == "the handoff a -> b continues without a summary: the endpoint stores the history"
    assert plan(Handoff("b", nest=False), HandoffDefaults(nest=True), is_stored=True) == HandoffPlan()
    assert plan(Handoff("b"), HandoffDefaults(), is_stored=True).warning is None


@pytest.mark.parametrize(
    ("way", "habits"),
    [(Handoff("b", filter=filter_none), HandoffDefaults()), (Handoff("b"), HandoffDefaults(filter=filter_none))],
)
def test_when_a_handoff_input_filter_is_set_and_the_server_owns_the_history_it_is_refused(
    way: Handoff, habits: HandoffDefaults
) -> None:
    with pytest.raises(WrongOwner) as error:
        plan(way, habits, is_stored=True)
    assert error.value.message == "the handoff a -> b has an input filter, but the endpoint stores the history"
    assert error.value.hint == "remove the filter, or keep the history locally with --session or --replay"
