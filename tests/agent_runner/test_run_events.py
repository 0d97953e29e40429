"""The events of a run with all their fields, and the context that its functions receive."""

from typing import Any

import pytest

from convo.agent_runner.config import RunConfig
from convo.agent_runner.persistence import load_run_row
from convo.agents.agent import Agent, Guardrail, Handoff
from convo.errors import NotFound, RunFailed, StateFault
from convo.history.items import StreamEvent, user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided
from convo.tools.tool import Context, Namespace, tool
from tests.chat.agent_runs import item_lines, open_runner, read_events, scripted_model, send_message, tool_calls
from tests.chat.conftest import ChatHarness
from tests.chat.tool_log import ToolLog


def run_events(events: list[StreamEvent]) -> list[StreamEvent]:
    return [event for event in events if event["type"].startswith("convo.")]


async def read_until_failure(one: Any, text: str) -> list[StreamEvent]:
    """Collect the events of a run that fails."""
    events: list[StreamEvent] = []

    async def collect() -> None:
        async for event in one.start([user_message(text)]):
            events.append(event)  # noqa: PERF401  (keeps the events before the failure)

    with pytest.raises(RunFailed):
        await collect()
    return run_events(events)


async def test_each_event_of_a_run_has_its_fields(harness: ChatHarness, tool_log: ToolLog) -> None:
    look = tool_log.tool("look", namespace=Namespace("crm", "customers"))
    call = {"type": "function_call", "call_id": "c1", "name": "look", "namespace": "crm", "arguments": "{}"}
    harness.model = scripted_model(harness.folder, {"output": [call]}, {"text": "Done."})
    one = await open_runner(harness, Agent("desk", tools=(look,)))
    events = run_events(await send_message(one, "hello"))
    assert one.run_row
    fields = {"call_id": "c1", "tool": "crm.look", "agent": "desk"}
    assert events == [
        {"type": "convo.started", "run": one.run_row.id, "agent": "desk"},
        {"type": "convo.tool_started", **fields, "arguments": "{}"},
        {"type": "convo.tool_output", **fields, "output": "look done"},
        {"type": "convo.finished", "run": one.run_row.id, "agent": "desk", "output": "Done."},
    ]


async def test_the_event_of_a_handoff_names_both_agents(harness: ChatHarness) -> None:
    harness.model = scripted_model(harness.folder, tool_calls(("c1", "transfer_to_billing")), {"text": "Here."})
    one = await open_runner(harness, Agent("triage", handoffs=(Handoff(Agent("billing")),)))
    handoff = {"type": "convo.handoff", "call_id": "c1", "source": "triage", "target": "billing"}
    assert handoff in await send_message(one, "hello")


@pytest.mark.parametrize("side", ["input", "output"])
async def test_the_event_of_a_guardrail_names_the_input_or_output_side(harness: ChatHarness, side: str) -> None:
    passes = Guardrail("mild", lambda context, value: None, parallel=False)
    strict = Guardrail("strict", lambda context, value: "not here", parallel=False)
    guardrails = (passes, strict)
    agent = (
        Agent("desk", input_guardrails=guardrails) if side == "input" else Agent("desk", output_guardrails=guardrails)
    )
    harness.model = scripted_model(harness.folder, {"text": "Hello."})
    one = await open_runner(harness, agent)
    events = await read_until_failure(one, "hello")
    assert one.run_row
    assert events[-2:] == [
        {"type": "convo.guardrail", "side": side, "name": "strict", "reason": "not here"},
        {
            "type": "convo.failed",
            "run": one.run_row.id,
            "code": f"{side}_guardrail",
            "message": "Guardrail strict tripped: not here",
        },
    ]


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN])
async def test_a_tool_receives_its_call_and_the_usage_of_every_request(
    harness: ChatHarness, strategy: Strategy, is_resumed: bool
) -> None:
    contexts: list[Context] = []

    @tool(needs_approval=is_resumed)
    def look(context: Context) -> str:
        contexts.append(context)
        return "seen"

    harness.model = scripted_model(
        harness.folder, tool_calls(("c1", "look")), tool_calls(("c2", "look")), {"text": "Done."}
    )
    agent, config = Agent("desk", tools=(look,)), RunConfig(values={"who": "Kim"})
    one = await open_runner(harness, agent, config, strategy=strategy)
    await send_message(one, "hello")
    while one.pending_calls:
        one = await open_runner(harness, agent, config)
        await one.apply_decisions(ApprovalDecided(one.pending_calls[0].id, approve=True))
        await read_events(one.resume())

    assert [(found.agent, found.tool, found.call_id) for found in contexts] == [
        ("desk", "look", "c1"),
        ("desk", "look", "c2"),
    ]
    assert [found.call["call_id"] for found in contexts if found.call] == ["c1", "c2"]
    assert [len(found.usages) for found in contexts] == [1, 2]
    assert [item_lines(found.input) for found in contexts] == [["user: hello"]] * 2
    assert [found.values for found in contexts] == [{"who": "Kim"}] * 2


async def test_a_run_that_is_not_open_cannot_be_resumed(harness: ChatHarness) -> None:
    one = await open_runner(harness, Agent("desk"))
    with pytest.raises(StateFault, match=r"^no run is open$") as error:
        await read_events(one.resume())
    assert error.value.hint == "send a message to start one"
    await send_message(one, "hello")
    with pytest.raises(StateFault, match=r"^no run is open$"):
        await read_events(one.resume())


async def test_new_input_is_refused_while_calls_have_no_output(harness: ChatHarness, tool_log: ToolLog) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("pay"))
    one = await open_runner(harness, Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),)))
    await send_message(one, "hello")
    assert one.run_row
    for read_on in (send_message(one, "well?"), one.preview_request([user_message("well?")])):
        with pytest.raises(StateFault) as error:
            await read_on
        assert error.value.message == f"{one.run_row.id} is paused, and its calls have no output yet"
        assert error.value.hint == "approve or reject them (convo approvals) and resume the run, or cancel it"


async def test_a_session_without_runs_has_none_to_load(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    assert [event async for event in chat.send([user_message("hello")])]
    with pytest.raises(NotFound, match=r"^no run 'mine': this session has no agent run$") as error:
        await load_run_row(harness.store, "mine")
    assert error.value.hint == "convo chat --from mine"
