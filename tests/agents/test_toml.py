"""Agents written in TOML are the same values as those written in Python."""

import tomllib

import pytest

from convo.agents.agent import Agent, Guardrail, Handoff, output
from convo.agents.graph import Graph, graph
from convo.agents.toml import from_tables
from convo.errors import ConvoError, InvalidSettings, NotFound
from convo.tools.tool import Tool, tool


@tool
def refund(order: str) -> str:
    """Pay it back."""
    return order


def no_insults(context: object, said: object) -> None: ...


NAMED = {"desk.py:refund": refund, "desk.py:no_insults": no_insults, "desk.py:Paid": output({"type": "object"})}


def read(text: str) -> Graph:
    return from_tables(tomllib.loads(text), NAMED.__getitem__)


def test_a_file_of_agents_becomes_their_graph() -> None:
    found = read("""
        start = "triage"

        [agents.billing]
        model = "openai/gpt-5-mini"
        settings = {temperature = 0.2}
        tools = ["desk.py:refund", {type = "web_search"}]
        output = "desk.py:Paid"
        input_guardrails = ["desk.py:no_insults"]
        after_tools = ["refund"]

        [agents.triage]
        instructions = "Send them to the right desk."
        description = "first"
        handoffs = [{to = "billing", tool_name = "pay", nest = true}, "triage"]
        reset_tool_choice = false
    """)
    billing = Agent(
        "billing",
        model="openai/gpt-5-mini",
        settings={"temperature": 0.2},
        tools=(refund, {"type": "web_search"}),
        output=NAMED["desk.py:Paid"],  # type: ignore[arg-type]
        input_guardrails=(Guardrail("no_insults", no_insults),),
        after_tools=frozenset({"refund"}),
    )
    triage = Agent(
        "triage",
        "Send them to the right desk.",
        "first",
        handoffs=(Handoff("billing", tool_name="pay", nest=True), "triage"),
        reset_tool_choice=False,
    )
    assert found == graph(triage, billing)


def test_the_first_agent_starts_by_default_and_a_schema_may_be_in_the_file() -> None:
    found = read("""
        [agents.a]
        output = {type = "object", properties = {ok = {type = "boolean"}}, required = ["ok"]}
        [agents.b]
    """)
    assert found.start == "a"
    made = found["a"].output
    assert made is not None
    assert made.read('{"ok": true}') == {"ok": True}


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", InvalidSettings, "no [agents.NAME] table"),
        ("agent = 1", InvalidSettings, "the file has an unknown key 'agent'"),
        ("[agents.a]\nhandofs = []", InvalidSettings, "agents.a has an unknown key 'handofs'"),
        ("[agents.a]\ntools = 1", InvalidSettings, "agents.a.tools is 1"),
        ("[agents.a]\ntools = [1]", InvalidSettings, "agents.a.tools: 1 is not a Python reference"),
        ("[agents.a]\ntools = ['desk.py:no_insults']", InvalidSettings, "'desk.py:no_insults' is not a tool"),
        ("[agents.a]\nhandoffs = ['b']", NotFound, "no agent 'b'"),
        ("[agents.a]\nhandoffs = [{tool_name = 'b'}]", InvalidSettings, "has no target agent"),
        ("[agents.a]\nhandoffs = [{to = 'a', too = 1}]", InvalidSettings, "agents.a.handoffs has an unknown key 'too'"),
        ("[agents.a]\ninput_guardrails = ['desk.py:Paid']", InvalidSettings, "is not a function"),
        ("[agents.a]\nafter_tools = 'stop'", InvalidSettings, "agents.a.after_tools is 'stop'"),
        ("start = 'b'\n[agents.a]", InvalidSettings, "start is 'b'"),
        ("agents = {a = 1}", InvalidSettings, "agents.a is not a table"),
        ("agents = []", InvalidSettings, "agents is []"),
        ("[agents.a]\nafter_tools = [['x']]", InvalidSettings, "agents.a.after_tools is [['x']]"),
        ("[agents.a]\nafter_tools = [1]", InvalidSettings, "agents.a.after_tools is [1]"),
        ("[agents.a]\nafter_tools = ['nope']", InvalidSettings, "agent 'a' stops after 'nope'"),
        ("[agents.a]\nhandoffs = [1]", InvalidSettings, "agents.a.handoffs: 1 is not the name of an agent"),
        (
            "[agents.a]\nhandoffs = [{to = 'a', tool_name = ''}]",
            InvalidSettings,
            "agents.a.handoffs: a handoff has tool_name",
        ),
        ("[agents.a]\ntools = [{x = 1}]", InvalidSettings, "agents.a.tools: a table has no type"),
        (
            "[agents.a]\ntools = [{type = 'function'}]",
            InvalidSettings,
            "agents.a.tools: a table defines a hosted tool",
        ),
        ("[agents.a]\ntools = [{type = ''}]", InvalidSettings, "agent 'a' has a hosted tool of the type ''"),
        (
            "[agents.a]\ntools = [{type = 'web_search', x = 2020-01-01}]",
            InvalidSettings,
            "agent 'a' has a tool 'web_search' whose 'x' is not JSON",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_its_location(text: str, error: type[ConvoError], words: str) -> None:
    with pytest.raises(error) as refused:
        read(text)
    assert words in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("agents = []", "use a table"),
        ("[agents.a]\ndescription = []", "use a string"),
        ("[agents.a]\noutput = 1", "use a table or a string"),
        ("[agents.a]\nreset_tool_choice = 1", "use a boolean"),
        ("[agents.a]\nafter_tools = [1]", 'use "ask again", "first output", or a list of tool names'),
    ],
)
def test_the_expected_type_is_named_in_terms_of_toml(text: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(text)
    assert refused.value.hint == hint


def test_tools_of_a_file_are_loaded() -> None:
    assert [one for one in read("[agents.a]\ntools=['desk.py:refund']")["a"].functions if isinstance(one, Tool)]
