"""A run changes hands through a file: convo pauses and the Agents SDK finishes, and the other way round."""

import asyncio
import json
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from agents import Agent, Runner, RunState, function_tool

from tests.cli.agenting import BACK, REFUND, SDK, agents, runs
from tests.cli.chatting import kept, scripted
from tests.running import Convo
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


def test_convo_pauses_and_the_sdk_finishes(convo: Convo, home: Path) -> None:
    got = convo("chat", *agents("desk", SDK), *scripted(REFUND, BACK), "--state", "state.json", "pay A1 back")
    assert got.exit == 3
    model, written = Script([[]], at=1), Path("state.json").read_text()

    async def finished() -> Any:
        agent = desk(model)
        state = await RunState.from_string(agent, written)
        for waits in state.get_interruptions():
            state.approve(waits)
        return (await Runner.run(agent, state)).final_output

    assert "paid 500 cents back for A1" in asyncio.run(finished())
    sent = model.requests[0]["input"]
    assert [one.get("type", "message") for one in sent] == ["message", "function_call", "function_call_output"]


def test_the_sdk_pauses_and_convo_finishes(convo: Convo, home: Path) -> None:
    async def paused() -> str:
        result = await Runner.run(desk(Script([[CALL]], at=0)), "pay A1 back")
        assert result.interruptions
        return result.to_state().to_string()

    Path("state.json").write_text(asyncio.run(paused()))
    model = scripted(REFUND, BACK)
    got = convo("resume", "state.json", *agents("desk", SDK), *model, "--approve", "c1")
    assert (got.exit, got.out) == (0, "Paid back.\n"), got.err
    items, _ = kept(home, runs(home)[0].session)
    assert [item.get("type", "message") for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    again = convo("resume", "state.json", *agents("desk", SDK), *model, "--approve", "c1")
    assert (again.exit, "has ended here" in again.err) == (1, True)


def test_the_sdk_pauses_twice_with_convo_in_between(convo: Convo, home: Path) -> None:
    second = {**CALL, "id": "fc_2", "call_id": "c2"}

    async def paused() -> str:
        result = await Runner.run(desk(Script([[CALL]], at=0)), "pay A1 back")
        return result.to_state().to_string()

    Path("state.json").write_text(asyncio.run(paused()))
    model = scripted(REFUND, {"output": [second]}, BACK)
    got = convo("resume", "state.json", *agents("desk", SDK), *model, "--approve", "c1", "-o", "next.json")
    assert got.exit == 3, got.err
    document = json.loads(Path("next.json").read_text())
    assert [one["raw_item"]["call_id"] for one in document["current_step"]["data"]["interruptions"]] == ["c2"]
    script = Script([[]], at=1)

    async def finished() -> Any:
        agent = desk(script)
        state = await RunState.from_json(agent, document)
        for waits in state.get_interruptions():
            state.reject(waits)
        return (await Runner.run(agent, state)).final_output

    asyncio.run(finished())
    sent = script.requests[0]["input"]
    outputs = [one["output"] for one in sent if one.get("type") == "function_call_output"]
    assert outputs[0] == "paid 500 cents back for A1"
    assert len(outputs) == 2
