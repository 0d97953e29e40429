"""Agents in TOML equal the same agents in Python."""

import tomllib

import pytest

from convo.agents.agent import Agent, Guardrail, Handoff, output
from convo.agents.graph import Graph, graph
from convo.agents.toml import from_tables
from convo.errors import InvalidSettings, NotFound
from convo.tools.tool import Tool, tool


@tool
def refund(order: str) -> str:
    """Pay it back."""
    return order


def no_insults(context: object, value: object) -> None: ...


STRICT = Guardrail("very strict", no_insults, parallel=False)
OBJECTS = {
    "desk.py:refund": refund,
    "desk.py:no_insults": no_insults,
    "desk.py:strict": STRICT,
    "desk.py:Paid": output({"type": "object"}),
}


def read(text: str) -> Graph:
    return from_tables(tomllib.loads(text), OBJECTS.__getitem__)


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
        output=OBJECTS["desk.py:Paid"],  # type: ignore[arg-type]
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
    output_type = found["a"].output
    assert output_type is not None
    assert output_type.read('{"ok": true}') == {"ok": True}


AGENT_KEYS = (
    "instructions, description, model, settings, tools, handoffs, output, input_guardrails, output_guardrails, "
    "after_tools, reset_tool_choice"
)
REFERENCE, TARGET = "write it as file.py:name", 'set one: {to = "NAME"}'
FUNCTION, AFTER = "name a function as file.py:name", 'use "ask again", "first output", or a list of tool names'


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "the file has no [agents.NAME] table", "add one for each agent"),
        ("agent = 1", "the file has an unknown key 'agent'", "use start, agents"),
        ("start = 1", "start is 1", "use a string"),
        ("[agents.a]\nhandofs = []", "agents.a has an unknown key 'handofs'", f"use {AGENT_KEYS}"),
        ("[agents.a]\ntools = 1", "agents.a.tools is 1", "use an array"),
        ("[agents.a]\nhandoffs = 'b'", "agents.a.handoffs is 'b'", "use an array"),
        ("[agents.a]\ninput_guardrails = 1", "agents.a.input_guardrails is 1", "use an array"),
        ("[agents.a]\noutput_guardrails = 1", "agents.a.output_guardrails is 1", "use an array"),
        ("[agents.a]\ninstructions = 1", "agents.a.instructions is 1", "use a string"),
        ("[agents.a]\nmodel = 1", "agents.a.model is 1", "use a string"),
        ("[agents.a]\nsettings = 1", "agents.a.settings is 1", "use a table"),
        ("[agents.a]\ndescription = []", "agents.a.description is []", "use a string"),
        ("[agents.a]\noutput = 1", "agents.a.output is 1", "use a table or a string"),
        ("[agents.a]\nafter_tools = 1", "agents.a.after_tools is 1", "use a string or an array"),
        ("[agents.a]\nreset_tool_choice = 1", "agents.a.reset_tool_choice is 1", "use a boolean"),
        ("[agents.a]\ntools = [1]", "agents.a.tools: 1 is not a Python reference", REFERENCE),
        ("[agents.a]\ninput_guardrails = [1]", "agents.a.input_guardrails: 1 is not a Python reference", REFERENCE),
        ("[agents.a]\noutput_guardrails = [1]", "agents.a.output_guardrails: 1 is not a Python reference", REFERENCE),
        (
            "[agents.a]\ntools = ['desk.py:no_insults']",
            "agents.a.tools: 'desk.py:no_insults' is not a tool",
            "decorate the function with @tool",
        ),
        ("[agents.a]\nhandoffs = [{tool_name = 'b'}]", "agents.a.handoffs: an entry has no target agent", TARGET),
        (
            "[agents.a]\nhandoffs = [{to = 'a', too = 1}]",
            "agents.a.handoffs has an unknown key 'too'",
            "use to, tool_name, description, nest, filter",
        ),
        ("[agents.a]\nhandoffs = [{to = 1}]", "agents.a.handoffs.to is 1", "use a string"),
        ("[agents.a]\nhandoffs = [{to = 'a', nest = 1}]", "agents.a.handoffs.nest is 1", "use a boolean"),
        ("[agents.a]\nhandoffs = [{to = 'a', tool_name = 1}]", "agents.a.handoffs.tool_name is 1", "use a string"),
        ("[agents.a]\nhandoffs = [{to = 'a', description = 1}]", "agents.a.handoffs.description is 1", "use a string"),
        ("[agents.a]\nhandoffs = [{to = 'a', filter = 1}]", "agents.a.handoffs.filter is 1", "use a string"),
        (
            "[agents.a]\nhandoffs = [{to = 'a', filter = 'desk.py:Paid'}]",
            "agents.a.handoffs: 'desk.py:Paid' is not a function",
            FUNCTION,
        ),
        (
            "[agents.a]\ninput_guardrails = ['desk.py:Paid']",
            "agents.a.input_guardrails: 'desk.py:Paid' is not a function",
            FUNCTION,
        ),
        ("[agents.a]\nafter_tools = 'stop'", "agents.a.after_tools is 'stop'", AFTER),
        ("start = 'b'\n[agents.a]\n[agents.c]", "start is 'b', which is not an agent", "choose one of a, c"),
        ("agents = {a = 1}", "agents.a is not a table", f"use a table with {AGENT_KEYS}"),
        ("agents = []", "agents is []", "use a table"),
        ("[agents.a]\nafter_tools = [['x']]", "agents.a.after_tools is [['x']]", AFTER),
        ("[agents.a]\nafter_tools = [1]", "agents.a.after_tools is [1]", AFTER),
        (
            "[agents.a]\nafter_tools = ['nope']",
            "agent 'a' stops after 'nope', which is not one of its tools",
            "add it to its tools",
        ),
        (
            "[agents.a]\nhandoffs = [1]",
            "agents.a.handoffs: 1 is not the name of an agent",
            'use "NAME", or {to = "NAME"}',
        ),
        (
            "[agents.a]\nhandoffs = [{to = 'a', tool_name = ''}]",
            "agents.a.handoffs: a handoff has tool_name ''",
            "use 1 to 128 characters of a-z, A-Z, 0-9, _ and -",
        ),
        (
            "[agents.a]\ntools = [{x = 1}]",
            "agents.a.tools: a table has no type",
            'set one: {type = "web_search"}',
        ),
        (
            "[agents.a]\ntools = [{type = 'function'}]",
            "agents.a.tools: a table defines a hosted tool, not a function",
            'name a function as "FILE.py:NAME"',
        ),
        ("[agents.a]\ntools = [{type = ''}]", "agent 'a' has a hosted tool of the type ''", '{"type": "web_search"}'),
        (
            "[agents.a]\ntools = [{type = 'web_search', x = 2020-01-01}]",
            "agent 'a' has a tool 'web_search' whose 'x' is not JSON: Object of type date is not JSON serializable",
            "use only JSON values: it becomes a field of a request",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_its_location(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        read(text)
    assert (error.value.message, error.value.hint) == (message, hint)


def test_a_handoff_to_an_unknown_agent_is_refused() -> None:
    with pytest.raises(NotFound, match=r"^no agent 'b'$"):
        read("[agents.a]\nhandoffs = ['b']")


def test_an_agent_has_every_part_that_its_table_has() -> None:
    found = read("""
        [agents.a]
        output_guardrails = ["desk.py:strict", "desk.py:no_insults"]
        after_tools = "first output"
        handoffs = [{to = "b", description = "To b.", filter = "desk.py:no_insults"}]
        [agents.b]
    """)
    assert found["a"].output_guardrails == (STRICT, Guardrail("no_insults", no_insults))
    assert (found["a"].after_tools, found["a"].reset_tool_choice, found["a"].description) == ("first output", True, "")
    assert found["a"].ways == (Handoff("b", description="To b.", filter=no_insults),)
    assert found["b"] == Agent("b")


def test_tools_of_a_file_are_loaded() -> None:
    assert [one for one in read("[agents.a]\ntools=['desk.py:refund']")["a"].functions if isinstance(one, Tool)]
