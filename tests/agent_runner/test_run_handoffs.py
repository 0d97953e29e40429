"""Handoffs in a run: the input of the next agent, the stored items, and the limits of server owners."""

from typing import Any

import pytest

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agents.agent import Agent, Handoff
from convo.agents.handoff_history import HandoffTranscript, HistoryMarkers
from convo.agents.handoffs import HandoffDefaults
from convo.chat.turn import RequestOptions
from convo.errors import InvalidUsage, RunFailed, WrongOwner
from convo.history.items import Item, user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided
from tests.chat.agent_runs import (
    item_lines,
    open_runner,
    own_event_types,
    read_events,
    request_inputs,
    scripted_model,
    send_message,
    stored_items,
    tool_calls,
)
from tests.chat.conftest import ChatHarness
from tests.chat.tool_log import ToolLog
from tests.strategy_owners import CLIENT_OWNED, SERVER_OWNED


def make_triage_agent(*handoffs: Any) -> Agent:
    return Agent("triage", "Send them on.", handoffs=handoffs or (Agent("billing", "Bill."),))


def make_billing_agent(
    harness: ChatHarness, *replies: dict[str, Any], name: str = "billing.json", **fields: Any
) -> Agent:
    """The target agent of a handoff, with a script of its own."""
    return Agent("billing", model=scripted_model(harness.folder, *replies, name=name), **fields)


def make_run_config(harness: ChatHarness, **defaults: Any) -> RunConfig:
    """A configuration with these handoff defaults, in which every agent may have its own model."""
    return RunConfig(
        handoff_defaults=HandoffDefaults(**defaults),
        resolve_model=lambda model: ModelRoute(RequestOptions(str(model), str(model)), harness.endpoint),
    )


TRANSFER = tool_calls("transfer_to_billing")

HANDOFF_OUTPUT = 'call_1: {"assistant": "billing"}'


@pytest.mark.usefixtures("read_mode")
@pytest.mark.parametrize("strategy", Strategy)
async def test_without_configuration_the_next_agent_gets_the_raw_transcript(
    harness: ChatHarness, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, TRANSFER, {"text": "Here is your bill."})
    one = await open_runner(harness, make_triage_agent(), strategy=strategy)
    events = await send_message(one, "hello")
    assert own_event_types(events) == ["started", "handoff", "finished"]
    assert (events[-1]["agent"], one.output) == ("billing", "Here is your bill.")
    assert [body["instructions"] for body in harness.bodies] == ["Send them on.", "Bill."]
    assert request_inputs(harness)[1] == (
        [HANDOFF_OUTPUT] if strategy in SERVER_OWNED else ["user: hello", "call transfer_to_billing", HANDOFF_OUTPUT]
    )


@pytest.mark.usefixtures("read_mode")
@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_when_nesting_with_a_session_the_model_gets_the_summary_but_the_store_keeps_the_full_items(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    look = tool_log.tool("look", needs_approval=True)
    nested = make_run_config(harness, nest=True)
    harness.model = scripted_model(harness.folder, TRANSFER)
    await send_message(
        await open_runner(
            harness,
            make_triage_agent(make_billing_agent(harness, tool_calls("look"), tools=(look,))),
            nested,
            strategy=strategy,
        ),
        "hi",
    )
    again = await open_runner(
        harness,
        make_triage_agent(make_billing_agent(harness, {"text": "Here."}, name="two.json", tools=(look,))),
        nested,
    )
    await again.apply_decisions(ApprovalDecided("call_1", approve=True))
    await read_events(again.resume())

    second, third = request_inputs(harness)[1:]
    assert len(second) == 1
    preamble = "assistant: For context, here is the conversation so far between the user and the previous agent:\n"
    record = '2. {"arguments": "{}", "call_id": "call_1", "name": "transfer_to_billing", "type": "function_call"'
    assert second[0].startswith(f"{preamble}<CONVERSATION HISTORY>\n1. user: hi\n{record}")
    assert third == [*second, "call look", "call_1: look done"]
    full = [
        "user: hi",
        "call transfer_to_billing",
        HANDOFF_OUTPUT,
        "call look",
        "call_1: look done",
        "assistant: Here.",
    ]
    assert item_lines(await stored_items(harness)) == full

    session = await harness.store.session("mine")
    assert session
    links = await harness.store.links(session.id)
    assert [item_lines((await harness.store.path(link.input_head)).items) for link in links] == [
        ["user: hi"],
        second,
        third,
    ]


@pytest.mark.usefixtures("read_mode")
async def test_a_custom_history_mapper_makes_the_input_of_the_next_agent(harness: ChatHarness) -> None:
    received: list[list[str]] = []

    def last_only(items: list[Item]) -> list[Item]:
        received.append(item_lines(items))
        return [user_message("All that counts.")]

    harness.model = scripted_model(harness.folder, TRANSFER)
    graph = make_triage_agent(make_billing_agent(harness, {"text": "Here."}))
    await send_message(
        await open_runner(harness, graph, make_run_config(harness, nest=True, mapper=last_only)), "hello"
    )
    assert received == [["user: hello", "call transfer_to_billing", HANDOFF_OUTPUT]]
    assert request_inputs(harness)[1] == ["user: All that counts."]


async def test_the_markers_of_a_summary_are_configurable(harness: ChatHarness) -> None:
    harness.model = scripted_model(harness.folder, TRANSFER)
    graph = make_triage_agent(make_billing_agent(harness, {"text": "Here."}))
    await send_message(
        await open_runner(harness, graph, make_run_config(harness, nest=True, markers=HistoryMarkers("<<", ">>"))),
        "hello",
    )
    assert "\n<<\n1. " in request_inputs(harness)[1][0]


async def test_the_input_filter_of_a_handoff_selects_the_items_for_the_next_agent(harness: ChatHarness) -> None:
    parts: list[list[str]] = []

    def without_calls(transcript: HandoffTranscript) -> HandoffTranscript:
        parts.extend(map(item_lines, (transcript.history, transcript.before, transcript.new)))
        return HandoffTranscript(transcript.history)

    harness.model = scripted_model(harness.folder, TRANSFER)
    graph = make_triage_agent(Handoff(make_billing_agent(harness, {"text": "Here."}), filter=without_calls))
    await send_message(await open_runner(harness, graph, make_run_config(harness)), "hello")
    assert parts == [["user: hello"], [], ["call transfer_to_billing", HANDOFF_OUTPUT]]
    assert request_inputs(harness)[1] == ["user: hello"]


async def test_after_a_handoff_the_next_user_message_goes_to_the_first_agent_with_the_complete_history(
    harness: ChatHarness,
) -> None:
    harness.model = scripted_model(harness.folder, TRANSFER)
    nested = make_run_config(harness, nest=True)
    await send_message(
        await open_runner(harness, make_triage_agent(make_billing_agent(harness, {"text": "Here."})), nested), "hello"
    )
    harness.model = scripted_model(harness.folder, {"text": "Bye."}, name="bye.json")
    await send_message(await open_runner(harness, make_triage_agent(), nested), "thanks")
    assert request_inputs(harness)[-1] == [
        "user: hello",
        "call transfer_to_billing",
        HANDOFF_OUTPUT,
        "assistant: Here.",
        "user: thanks",
    ]


@pytest.mark.usefixtures("read_mode")
@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_when_a_summary_is_requested_under_a_server_owner_there_is_a_warning_and_only_the_delta_is_sent(
    harness: ChatHarness, strategy: Strategy
) -> None:
    harness.model = scripted_model(harness.folder, TRANSFER, {"text": "Here."})
    events = await send_message(
        await open_runner(
            harness, make_triage_agent(), RunConfig(handoff_defaults=HandoffDefaults(nest=True)), strategy=strategy
        ),
        "hello",
    )
    assert own_event_types(events) == ["started", "warning", "handoff", "finished"]
    assert request_inputs(harness)[1] == [HANDOFF_OUTPUT]


@pytest.mark.parametrize("strategy", SERVER_OWNED)
async def test_a_handoff_input_filter_is_refused_under_a_server_owner_before_any_request(
    harness: ChatHarness, strategy: Strategy
) -> None:
    way = Handoff(Agent("billing"), filter=lambda transcript: transcript)
    with pytest.raises(WrongOwner, match="has an input filter"):
        await open_runner(harness, make_triage_agent(way), strategy=strategy)


async def test_a_filter_must_return_a_transcript(harness: ChatHarness) -> None:
    harness.model = scripted_model(harness.folder, TRANSFER, {"text": "Here."})
    one = await open_runner(harness, make_triage_agent(Handoff(Agent("billing"), filter=lambda transcript: [])))
    with pytest.raises(RunFailed, match="an input filter returned list"):
        await send_message(one, "hello")


async def test_a_handoff_calls_its_function_once_with_the_arguments_of_the_model(harness: ChatHarness) -> None:
    calls: list[tuple[str, str]] = []
    way = Handoff(Agent("billing"), taken=lambda context, value: calls.append((context.agent, value)))
    harness.model = scripted_model(harness.folder, TRANSFER, {"text": "Here."})
    await send_message(await open_runner(harness, make_triage_agent(way)), "hello")
    assert calls == [("triage", "{}")]


@pytest.mark.parametrize("field", ["conversation", "previous_response_id"])
async def test_an_agent_that_names_another_owner_is_refused(harness: ChatHarness, field: str) -> None:
    with pytest.raises(WrongOwner, match=f"contain '{field}', which only the run can set"):
        await open_runner(harness, Agent("desk", settings={field: "x"}))


async def test_an_agent_with_its_own_model_needs_a_route_for_it(harness: ChatHarness) -> None:
    with pytest.raises(InvalidUsage, match="uses the model 'other/model', but this run uses only 'scripted/echo'"):
        await open_runner(harness, make_triage_agent(Agent("billing", model="other/model")))
