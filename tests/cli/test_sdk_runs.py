"""State files between convo and the Agents SDK: either one resumes a run that the other one paused."""

import asyncio
import json
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from agents import Agent, Runner, RunState, UserError, function_tool

from tests.cli.agent_files import PAID_BACK, REFUND, SDK, agent_flags, stored_runs
from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.command_runner import Convo, Launch
from tests.runstate.sdk import Script

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "refund",
    "arguments": '{"order": "A1", "cents": 500}',
    "status": "completed",
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    sdk.set_tracing_disabled(True)


def desk(model: Script) -> Agent[Any]:
    @function_tool(needs_approval=True)
    def refund(order: str, cents: int) -> str:
        return f"paid {cents} cents back for {order}"

    return Agent(name="desk", instructions="Help.", tools=[refund], model=model)


def test_convo_pauses_and_the_sdk_resumes(convo: Convo, home: Path) -> None:
    got = convo(
        "chat", *agent_flags("desk", SDK), *scripted_flags(REFUND, PAID_BACK), "--state", "state.json", "pay A1 back"
    )
    assert got.exit == 3
    model, text = Script([[]], at=1), Path("state.json").read_text()

    async def resume() -> Any:
        agent = desk(model)
        state = await RunState.from_string(agent, text)
        for interruption in state.get_interruptions():
            state.approve(interruption)
        return (await Runner.run(agent, state)).final_output

    assert "paid 500 cents back for A1" in asyncio.run(resume())
    items = model.requests[0]["input"]
    assert [one.get("type", "message") for one in items] == ["message", "function_call", "function_call_output"]


def test_the_sdk_pauses_and_convo_resumes(convo: Convo, home: Path) -> None:
    async def pause() -> str:
        result = await Runner.run(desk(Script([[CALL]], at=0)), "pay A1 back")
        assert result.interruptions
        return result.to_state().to_string()

    Path("state.json").write_text(asyncio.run(pause()))
    model = scripted_flags(REFUND, PAID_BACK)
    got = convo("resume", "state.json", *agent_flags("desk", SDK), *model, "--approve", "c1")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    items, _ = stored_conversation(home, stored_runs(home)[0].session_id)
    assert [item.get("type", "message") for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    again = convo("resume", "state.json", *agent_flags("desk", SDK), *model, "--approve", "c1")
    assert (again.exit, "has already ended" in again.err) == (1, True)


def test_the_sdk_resumes_a_second_pause_of_its_run_after_convo_resumed_the_first(convo: Convo, home: Path) -> None:
    second = {**CALL, "id": "fc_2", "call_id": "c2"}

    async def pause() -> str:
        result = await Runner.run(desk(Script([[CALL]], at=0)), "pay A1 back")
        return result.to_state().to_string()

    Path("state.json").write_text(asyncio.run(pause()))
    model = scripted_flags(REFUND, {"output": [second]}, PAID_BACK)
    got = convo("resume", "state.json", *agent_flags("desk", SDK), *model, "--approve", "c1", "-o", "next.json")
    assert got.exit == 3, got.err
    document = json.loads(Path("next.json").read_text())
    assert [one["raw_item"]["call_id"] for one in document["current_step"]["data"]["interruptions"]] == ["c2"]
    script = Script([[]], at=1)

    async def resume() -> Any:
        agent = desk(script)
        state = await RunState.from_json(agent, document)
        for interruption in state.get_interruptions():
            state.reject(interruption)
        return (await Runner.run(agent, state)).final_output

    asyncio.run(resume())
    items = script.requests[0]["input"]
    outputs = [one["output"] for one in items if one.get("type") == "function_call_output"]
    assert outputs[0] == "paid 500 cents back for A1"
    assert len(outputs) == 2


FILTERS = """
from agents.run import CallModelData, ModelInputData

def annotated(data: "CallModelData[dict]") -> ModelInputData:
    assert (type(data).__name__, data.agent.name, data.context) == ("CallModelData", "desk", {"customer": "A1"})
    assert data.model_data.input[0] == {"content": "hi", "role": "user"}
    return ModelInputData(input=data.model_data.input[-1:], instructions=data.model_data.instructions + " Shout.")

async def plain(data):
    data.model_data.instructions += " Whisper."
    return data.model_data

def wrong(data):
    return [data.model_data]
"""


@pytest.mark.parametrize(
    ("name", "instructions", "items"),
    [("annotated", "Help. Shout.", ["and?"]), ("plain", "Help. Whisper.", ["hi", "and?"])],
)
def test_an_input_filter_of_the_sdk_gets_the_data_types_of_the_sdk(
    name: str, instructions: str, items: list[str], convo: Convo, home: Path
) -> None:
    Path("who.json").write_text('{"customer": "A1"}')
    flags = (*agent_flags("desk", SDK + FILTERS), *scripted_flags(PAID_BACK))
    assert convo("chat", *flags, "-n", "mine", "hi").exit == 0
    got = convo("next", "mine", *flags, "--context", "who.json", "--input-filter", f"bot.py:{name}", "--json", "and?")
    assert got.exit == 0, got.err
    body = got.json()["body"]
    assert body["instructions"] == instructions
    assert [item["content"][0]["text"] for item in body["input"] if item.get("role") == "user"] == items


def test_an_input_filter_of_the_sdk_that_returns_an_invalid_value_is_named(convo: Convo, home: Path) -> None:
    flags = (*agent_flags("desk", SDK + FILTERS), *scripted_flags(PAID_BACK))
    got = convo("chat", *flags, "--input-filter", "bot.py:wrong", "hi")
    assert got.exit != 0
    assert "the input filter did not return a ModelInputData" in got.err


SHARED = """
from convo.agents import Agent, Handoff
from convo.tools import tool

@tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    return f"paid {cents} cents back for {order}"

second = Agent("desk", instructions="The second desk.", tools=(refund,))
first = Agent("desk", instructions="The first desk.", tools=(refund,), handoffs=(Handoff(second, tool_name="pass_on"),))
"""


@pytest.mark.parametrize("case", ["here", "elsewhere", "decided"])
def test_a_run_of_agents_with_one_name_pauses_into_a_state_that_convo_resumes(
    case: str, convo: Convo, launch: Launch, home: Path
) -> None:
    handoff = {"call": {"name": "pass_on", "call_id": "h0"}}
    model = scripted_flags(handoff, REFUND, PAID_BACK)
    got = convo("chat", *agent_flags("first", SHARED), *model, "--state", "state.json", "-n", "mine", "pay A1 back")
    assert got.exit == 3
    assert "several agents are named 'desk': convo can resume this state, the Agents SDK cannot" in got.err
    env = {"CONVO_HOME": "elsewhere"} if case != "here" else {}
    if case == "decided":
        assert convo("resume", "state.json", "--decide-only", "-o", "state.json", "--approve", "all").exit == 0
    flags = () if case == "decided" else ("--approve", "all")
    resumed = launch("resume", "state.json", "--agent", "bot.py:first", *model, *flags, "-o", "next.json", env=env)
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err
    assert json.loads(Path("state.json").read_text())["current_agent"]["identity"] == "convo:desk#2"


def test_the_sdk_refuses_a_state_with_agents_of_one_name(convo: Convo, home: Path) -> None:
    convo("chat", *agent_flags("first", SHARED), *scripted_flags(REFUND), "--state", "state.json", "pay A1 back")
    text = Path("state.json").read_text()

    async def read() -> Any:
        return await RunState.from_string(desk(Script([[]], at=1)), text)

    with pytest.raises(UserError, match="agent identity"):
        asyncio.run(read())


def test_the_sdk_resumes_the_state_file_of_a_failed_run_without_running_a_tool_again(convo: Convo, home: Path) -> None:
    rejection = {"error": {"message": "broken", "status": 400}}
    flags = (*agent_flags("desk", SDK), *scripted_flags(REFUND, rejection))
    assert convo("chat", *flags, "--state", "state.json", "pay A1 back").exit == 3
    assert convo("resume", "state.json", "--approve", "all", "-o", "state.json").exit == 1
    model, text = Script([[]], at=1), Path("state.json").read_text()

    async def resume() -> Any:
        agent = desk(model)
        return (await Runner.run(agent, await RunState.from_string(agent, text))).final_output

    assert asyncio.run(resume()) == 'FINAL<Help.>[["c1","paid 500 cents back for A1"]]'


CONTEXTS = """
from dataclasses import dataclass

@dataclass
class Shop:
    name: str
    visits: int = 0

class Clerk:
    def __init__(self, name, visits=0):
        self.name, self.visits = name, visits

def shop(described):
    return Shop(**described) if described else Shop("north")

clerk = Clerk("Ada")
south = Shop("south")
"""

SERIALIZERS = """
def context_serializer(context):
    return vars(context)

def context_deserializer(values):
    return Clerk(**values)
"""

CONTEXT_AGENT = """
from agents import Agent, RunContextWrapper, function_tool

@function_tool(needs_approval=True)
def visit(ctx: RunContextWrapper) -> str:
    ctx.context.visits += 1
    return f"{type(ctx.context).__name__} {ctx.context.name} {ctx.context.visits}"

desk = Agent(name="desk", tools=[visit], tool_use_behavior="stop_on_first_tool")
"""

VISIT = {"call": {"name": "visit", "call_id": "v1"}}


@pytest.mark.parametrize(
    ("option", "text", "stored", "is_restored"),
    [
        ("context.py:shop", CONTEXTS, {"name": "north", "visits": 1}, True),
        ("context.py:clerk", CONTEXTS + SERIALIZERS, {"name": "Ada", "visits": 1}, True),
        ("context.py:clerk", CONTEXTS, {}, False),
        ("context.py:south", CONTEXTS, {"name": "south", "visits": 1}, False),
    ],
)
def test_an_object_of_the_application_is_the_context_and_is_restored_or_replaced_by_its_file(
    option: str, text: str, stored: dict[str, Any], is_restored: bool, convo: Convo, home: Path
) -> None:
    Path("context.py").write_text(text)
    Path("bot.py").write_text(CONTEXT_AGENT + "desk.tool_use_behavior = 'run_llm_again'\n")
    model = scripted_flags(VISIT, {"call": {"name": "visit", "call_id": "v2"}}, {"text": "Bye."})
    flags = ("--agent", "bot.py:desk", *model)
    first = convo("chat", *flags, "--context", option, "-n", "mine", "hello")
    assert (f"--context {option}" in first.err) is not is_restored, first.err
    second = convo("resume", "mine", *flags, "--context", option, "--approve", "all", "-o", "state.json")
    assert "visit returned" in second.err, second.err
    assert json.loads(Path("state.json").read_text())["context"]["context"] == stored
    last = convo("resume", "mine", *flags, "--approve", "all")
    kind, name = ("Clerk", "Ada") if option.endswith("clerk") else ("Shop", stored["name"])
    assert f"visit returned {kind} {name} 2" in last.err
    is_replaced = "replaces the context values that the run had" in last.err
    assert is_replaced is (bool(stored) and not is_restored), last.err


def test_a_run_whose_context_was_not_saved_is_not_resumed_without_it(convo: Convo, home: Path) -> None:
    Path("context.py").write_text("def make(described): return {'lock': object()}\n")
    Path("bot.py").write_text(CONTEXT_AGENT)
    flags = ("--agent", "bot.py:desk", *scripted_flags(VISIT))
    paused = convo("chat", *flags, "--context", "context.py:make", "-n", "mine", "hello")
    assert "no state file was written: the context's 'lock' is not JSON" in paused.err
    refused = convo("resume", "mine", *flags, "--approve", "all")
    assert (refused.exit, "the context of this run, a dict, was not saved" in refused.err) == (2, True), refused.err
    aborted = convo("resume", "mine", *flags, "--abort")
    assert (aborted.exit, "the run is aborted" in aborted.err) == (0, True), aborted.err
