"""Changes to the input of a model: input filters, session limits and session input callbacks."""

import pytest

from convo.agent_runner.config import ModelInput, RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.errors import InputFault, InvalidUsage, RunFailed, WrongOwner
from convo.history.items import Item, item_text, user_message
from convo.history.records import Strategy
from tests.chat.agent_runs import (
    item_lines,
    open_runner,
    request_inputs,
    scripted_model,
    send_message,
    stored_items,
    tool_calls,
)
from tests.chat.conftest import ChatHarness
from tests.chat.tool_log import ToolLog
from tests.strategy_owners import CLIENT_OWNED, SERVER_OWNED


@pytest.mark.usefixtures("read_mode")
@pytest.mark.parametrize("strategy", Strategy)
async def test_when_the_filter_returns_model_input_exactly_its_list_and_instructions_go_to_the_model(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    received: list[list[str]] = []

    async def loud(data: ModelInput) -> ModelInput:
        received.append(item_lines(data.items))
        data.items.append(user_message("in place only"))
        items = [
            user_message(item_text(item).upper()) if item.get("role") == "user" else item for item in data.items[:-1]
        ]
        return ModelInput(items, f"{data.instructions} Loudly.")

    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    agent = Agent("desk", "Answer.", tools=(tool_log.tool("look"),))
    await send_message(await open_runner(harness, agent, RunConfig(input_filter=loud), strategy=strategy), "hello")

    assert [body["instructions"] for body in harness.bodies] == ["Answer. Loudly."] * 2
    sent = [["user: HELLO"], ["call_1: look done"]]
    expected = [["user: HELLO"], ["user: HELLO", "call look", "call_1: look done"]]
    assert request_inputs(harness) == (sent if strategy in SERVER_OWNED else expected)
    assert received[1] == (["call_1: look done"] if strategy in SERVER_OWNED else ["user: hello", *expected[1][1:]])
    first_line = "user: HELLO" if strategy in SERVER_OWNED else "user: hello"
    assert item_lines(await stored_items(harness)) == [first_line, "call look", "call_1: look done", "assistant: Done."]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_filter_that_drops_an_output_that_the_server_needs_is_refused_before_it_is_sent(
    harness: ChatHarness, tool_log: ToolLog, strategy: Strategy
) -> None:
    def drops(data: ModelInput) -> ModelInput:
        items = [item for item in data.items if item.get("type") in (None, "message")]
        return ModelInput(items or [user_message("instead")], data.instructions)

    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."}, {"text": "Well."})
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    one = await open_runner(harness, agent, RunConfig(input_filter=drops), strategy=strategy)
    if strategy in CLIENT_OWNED:
        harness.model = scripted_model(harness.folder, {"text": "Done."}, name="other.json")
        with pytest.raises(RunFailed, match="Max turns"):  # without the output it calls again
            await send_message(one, "hello")
        return
    with pytest.raises(RunFailed, match="removes the output of call call_1, which the endpoint needs"):
        await send_message(one, "hello")
    assert len(harness.bodies) == 1
    await send_message(await open_runner(harness, agent), "well?")
    assert request_inputs(harness)[1] == ["call_1: look done", "user: well?"]


async def test_a_filter_must_return_model_input_with_one_output_per_call(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    def doubled(data: ModelInput) -> ModelInput:
        late = {"type": "function_call_output", "call_id": "call_1", "output": "later"}
        return ModelInput([*data.items, late] if len(data.items) > 1 else data.items)

    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    await send_message(await open_runner(harness, agent, RunConfig(input_filter=doubled)), "hello")
    assert request_inputs(harness)[1] == ["user: hello", "call look", "call_1: later"]

    with pytest.raises(RunFailed, match="did not return a ModelInput"):
        await send_message(
            await open_runner(harness, agent, RunConfig(input_filter=lambda data: data.items), name="b"), "hello"
        )

    def broken(data: ModelInput) -> ModelInput:
        raise ValueError("no")

    before = len(harness.bodies)
    with pytest.raises(RunFailed, match="the input filter raised ValueError: no"):
        await send_message(await open_runner(harness, agent, RunConfig(input_filter=broken), name="c"), "hello")
    assert len(harness.bodies) == before


async def two_turns(harness: ChatHarness, config: RunConfig, *texts: str) -> list[list[str]]:
    one = await open_runner(harness, Agent("desk"), config)
    for text in texts or ("one", "two"):
        await send_message(one, text)
    return request_inputs(harness)


@pytest.mark.usefixtures("read_mode")
@pytest.mark.parametrize(
    ("limit", "second"), [(None, ["user: one", "assistant: one", "user: two"]), (1, ["assistant: one", "user: two"])]
)
async def test_when_a_session_has_a_limit_only_the_newest_items_precede_the_new_input(
    harness: ChatHarness, limit: int | None, second: list[str]
) -> None:
    assert (await two_turns(harness, RunConfig(session_limit=limit)))[1] == second
    assert len(await stored_items(harness)) == 4


@pytest.mark.usefixtures("read_mode")
async def test_a_session_limit_of_zero_sends_only_the_new_input(harness: ChatHarness) -> None:
    assert (await two_turns(harness, RunConfig(session_limit=0)))[1] == ["user: two"]


async def test_when_a_limit_separates_a_call_from_its_output_the_output_is_omitted(
    harness: ChatHarness, tool_log: ToolLog
) -> None:
    harness.model = scripted_model(harness.folder, tool_calls("look"), {"text": "Done."}, {"text": "Bye."})
    agent = Agent("desk", tools=(tool_log.tool("look"),))
    one = await open_runner(harness, agent, RunConfig(session_limit=2))
    await send_message(one, "hello")
    harness.model = scripted_model(harness.folder, {"text": "Bye."}, name="bye.json")
    await send_message(await open_runner(harness, agent, RunConfig(session_limit=2)), "well?")
    assert request_inputs(harness)[-1] == ["assistant: Done.", "user: well?"]


@pytest.mark.usefixtures("read_mode")
async def test_when_the_callback_reorders_drops_and_adds_its_list_is_the_input_and_only_new_items_are_stored(
    harness: ChatHarness,
) -> None:
    async def callback(older: list[Item], new: list[Item]) -> list[Item]:
        return [user_message(f"Be brief, {len(older)}."), *new, *older[-1:]]

    sent = await two_turns(harness, RunConfig(session_input_callback=callback), "one", "one")
    assert sent == [["user: Be brief, 0.", "user: one"], ["user: Be brief, 3.", "user: one", "assistant: one"]]
    expected = [
        "user: Be brief, 0.",
        "user: one",
        "assistant: one",
        "user: Be brief, 3.",
        "user: one",
        "assistant: one",
    ]
    assert item_lines(await stored_items(harness)) == expected


@pytest.mark.usefixtures("read_mode")
async def test_a_callback_must_return_a_list_of_items(harness: ChatHarness) -> None:
    one = await open_runner(harness, Agent("desk"), RunConfig(session_input_callback=lambda older, new: "all"))
    with pytest.raises(InputFault, match="did not return a list of items"):
        await send_message(one, "hello")
    with pytest.raises(InvalidUsage, match="must be a function"):
        await open_runner(harness, Agent("desk"), RunConfig(session_input_callback="all"))  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", SERVER_OWNED)
@pytest.mark.parametrize(
    "config", [RunConfig(session_limit=3), RunConfig(session_input_callback=lambda older, new: new)]
)
async def test_a_server_owner_accepts_no_session_limit_and_no_callback(
    harness: ChatHarness, strategy: Strategy, config: RunConfig
) -> None:
    with pytest.raises(WrongOwner, match="a session limit or session input callback") as error:
        await open_runner(harness, Agent("desk"), config, strategy=strategy)
    assert error.value.hint == "remove it, or keep the history locally with --session or --replay"


async def test_the_error_for_an_existing_conversation_names_the_command_to_convert_it(harness: ChatHarness) -> None:
    one = await open_runner(harness, Agent("desk"), strategy=Strategy.CHAIN)
    await send_message(one, "hello")
    with pytest.raises(WrongOwner) as error:
        await AgentRunner.open(one.chat, one.run.graph, RunConfig(session_limit=3))
    assert error.value.hint == f"convo convert {one.chat.session.name or one.chat.session.id} --to session"
