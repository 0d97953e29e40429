"""What a model gets in place of the conversation: an input filter, a session's limit, an input callback."""

import pytest

from convo.agent_runner.config import ModelInput, RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.errors import InputFault, InvalidUsage, RunFailed, WrongOwner
from convo.history.items import Item, item_text, user_message
from convo.history.records import Strategy
from tests.chat.agents import calls, history, inputs, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]

SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("strategy", Strategy)
async def test_when_the_filter_returns_model_input_exactly_its_list_and_instructions_go_to_the_model(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    given: list[list[str]] = []

    async def loud(data: ModelInput) -> ModelInput:
        given.append(words(data.items))
        data.items.append(user_message("in place only"))
        items = [
            user_message(item_text(item).upper()) if item.get("role") == "user" else item for item in data.items[:-1]
        ]
        return ModelInput(items, f"{data.instructions} Loudly.")

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", "Answer.", tools=(ledger.tool("look"),))
    await say(await running(bench, agent, RunConfig(input_filter=loud), strategy=strategy), "hello")

    assert [body["instructions"] for body in bench.bodies] == ["Answer. Loudly."] * 2
    sent = [["user: HELLO"], ["call_1: look done"]]
    whole = [["user: HELLO"], ["user: HELLO", "call look", "call_1: look done"]]
    assert inputs(bench) == (sent if strategy in SERVERS else whole)
    assert given[1] == (["call_1: look done"] if strategy in SERVERS else ["user: hello", *whole[1][1:]])
    kept = "user: HELLO" if strategy in SERVERS else "user: hello"
    assert words(await history(bench)) == [kept, "call look", "call_1: look done", "assistant: Done."]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_filter_that_drops_an_output_that_a_server_owner_waits_for_is_refused_before_it_is_sent(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    def drops(data: ModelInput) -> ModelInput:
        kept = [item for item in data.items if item.get("type") in (None, "message")]
        return ModelInput(kept or [user_message("instead")], data.instructions)

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."}, {"text": "Well."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    one = await running(bench, agent, RunConfig(input_filter=drops), strategy=strategy)
    if strategy in CLIENTS:
        bench.model = scripted(bench.folder, {"text": "Done."}, name="other.json")
        with pytest.raises(RunFailed, match="Max turns"):  # it never sees its output, so it asks again
            await say(one, "hello")
        return
    with pytest.raises(RunFailed, match="removes the output of call call_1, which the endpoint needs"):
        await say(one, "hello")
    assert len(bench.bodies) == 1
    await say(await running(bench, agent), "well?")
    assert inputs(bench)[1] == ["call_1: look done", "user: well?"]


async def test_a_filter_has_to_return_model_input_and_one_output_a_call(bench: Bench, ledger: Ledger) -> None:
    def doubled(data: ModelInput) -> ModelInput:
        late = {"type": "function_call_output", "call_id": "call_1", "output": "later"}
        return ModelInput([*data.items, late] if len(data.items) > 1 else data.items)

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    await say(await running(bench, agent, RunConfig(input_filter=doubled)), "hello")
    assert inputs(bench)[1] == ["user: hello", "call look", "call_1: later"]

    with pytest.raises(RunFailed, match="did not return a ModelInput"):
        await say(await running(bench, agent, RunConfig(input_filter=lambda data: data.items), name="b"), "hello")

    def broken(data: ModelInput) -> ModelInput:
        raise ValueError("no")

    before = len(bench.bodies)
    with pytest.raises(RunFailed, match="the input filter raised ValueError: no"):
        await say(await running(bench, agent, RunConfig(input_filter=broken), name="c"), "hello")
    assert len(bench.bodies) == before


async def two_turns(bench: Bench, conduct: RunConfig, *said_then: str) -> list[list[str]]:
    one = await running(bench, Agent("desk"), conduct)
    for said in said_then or ("one", "two"):
        await say(one, said)
    return inputs(bench)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("limit", "second"), [(None, ["user: one", "assistant: one", "user: two"]), (1, ["assistant: one", "user: two"])]
)
async def test_when_a_session_has_a_limit_only_the_newest_items_precede_the_new_input(
    bench: Bench, limit: int | None, second: list[str]
) -> None:
    assert (await two_turns(bench, RunConfig(session_limit=limit)))[1] == second
    assert len(await history(bench)) == 4


@pytest.mark.usefixtures("both_ways")
async def test_a_limit_of_none_at_all_sends_the_new_input_alone(bench: Bench) -> None:
    assert (await two_turns(bench, RunConfig(session_limit=0)))[1] == ["user: two"]


async def test_when_a_limit_cuts_between_a_call_and_its_output_the_output_is_left_out(
    bench: Bench, ledger: Ledger
) -> None:
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."}, {"text": "Bye."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    one = await running(bench, agent, RunConfig(session_limit=2))
    await say(one, "hello")
    bench.model = scripted(bench.folder, {"text": "Bye."}, name="bye.json")
    await say(await running(bench, agent, RunConfig(session_limit=2)), "well?")
    assert inputs(bench)[-1] == ["assistant: Done.", "user: well?"]


@pytest.mark.usefixtures("both_ways")
async def test_when_the_callback_reorders_drops_and_adds_its_list_is_the_input_and_only_what_is_new_is_kept(
    bench: Bench,
) -> None:
    async def callback(older: list[Item], new: list[Item]) -> list[Item]:
        return [user_message(f"Be brief, {len(older)}."), *new, *older[-1:]]

    sent = await two_turns(bench, RunConfig(session_input_callback=callback), "one", "one")
    assert sent == [["user: Be brief, 0.", "user: one"], ["user: Be brief, 3.", "user: one", "assistant: one"]]
    kept = ["user: Be brief, 0.", "user: one", "assistant: one", "user: Be brief, 3.", "user: one", "assistant: one"]
    assert words(await history(bench)) == kept


@pytest.mark.usefixtures("both_ways")
async def test_a_callback_has_to_return_a_list_of_items(bench: Bench) -> None:
    one = await running(bench, Agent("desk"), RunConfig(session_input_callback=lambda older, new: "all"))
    with pytest.raises(InputFault, match="did not return a list of items"):
        await say(one, "hello")
    with pytest.raises(InvalidUsage, match="must be a function"):
        await running(bench, Agent("desk"), RunConfig(session_input_callback="all"))  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", SERVERS)
@pytest.mark.parametrize(
    "conduct", [RunConfig(session_limit=3), RunConfig(session_input_callback=lambda older, new: new)]
)
async def test_a_server_owner_takes_no_limit_and_no_callback(
    bench: Bench, strategy: Strategy, conduct: RunConfig
) -> None:
    with pytest.raises(WrongOwner, match="a session limit or session input callback") as refused:
        await running(bench, Agent("desk"), conduct, strategy=strategy)
    assert refused.value.hint == "remove it, or keep the history locally with --session or --replay"


async def test_who_has_said_something_is_told_how_to_own_it(bench: Bench) -> None:
    one = await running(bench, Agent("desk"), strategy=Strategy.CHAIN)
    await say(one, "hello")
    with pytest.raises(WrongOwner) as refused:
        await AgentRunner.open(one.chat, one.run.graph, RunConfig(session_limit=3))
    assert refused.value.hint == f"convo convert {one.chat.session.name or one.chat.session.id} --to session"
