"""One owner a run, and what each request sends to it: everything, or only what it lacks."""

from collections.abc import Sequence
from typing import Any

import pytest

from convo.agent_runner.config import ModelInput, RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.errors import RequestRefused, RunFailed, TryLater
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, InputAdded
from tests.chat.agents import calls, history, inputs, read, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger
from tests.chat.recorded import Fault

pytestmark = pytest.mark.usefixtures("both_ways")

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]

OUTPUT = "call_1: look done"


async def two_calls(bench: Bench, ledger: Ledger, strategy: Strategy) -> None:
    """The model calls a tool twice, and answers."""
    bench.model = scripted(bench.folder, calls("look"), calls(("call_2", "look")), {"text": "Done."})
    await say(await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy), "hello")


def owners(bench: Bench) -> list[dict[str, Any]]:
    """What each request says of the owner of its history."""
    return [
        {name: body[name] for name in ("conversation", "previous_response_id") if name in body} for body in bench.bodies
    ]


async def responses(bench: Bench, name: str = "mine") -> list[str]:
    session = await bench.store.session(name)
    assert session
    return [link.id for link in await bench.store.links(session.id)]


async def paused(bench: Bench, ledger: Ledger, strategy: Strategy, *then: dict[str, Any]) -> AgentRunner:
    """One call has run and one waits for a person."""
    bench.model = scripted(bench.folder, calls(("c1", "pay"), ("c2", "look")), *then or ({"text": "Paid."},))
    one = await running(bench, cashier(ledger), strategy=strategy)
    await say(one, "hello")
    return one


def cashier(ledger: Ledger) -> Agent:
    return Agent("desk", tools=(ledger.tool("look"), ledger.tool("pay", needs_approval=True)))


# -- one owner ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", CLIENTS)
async def test_when_the_client_owns_the_history_every_request_has_all_of_it_and_no_id(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await two_calls(bench, ledger, strategy)
    whole = ["user: hello", "call look", OUTPUT, "call look", "call_2: look done"]
    assert inputs(bench) == [whole[:1], whole[:3], whole]
    assert owners(bench) == [{}, {}, {}]


async def test_when_a_conversation_is_the_owner_each_request_has_only_what_is_new(bench: Bench, ledger: Ledger) -> None:
    await two_calls(bench, ledger, Strategy.CONVERSATION)
    session = await bench.store.session("mine")
    assert session
    assert inputs(bench) == [["user: hello"], [OUTPUT], ["call_2: look done"]]
    assert owners(bench) == [{"conversation": session.handle}] * 3


async def test_when_a_chain_goes_on_each_request_names_the_newest_response_and_has_only_what_is_new(
    bench: Bench, ledger: Ledger
) -> None:
    bench.model = scripted(bench.folder, {"text": "Yes?"}, calls("look"), calls(("call_2", "look")), {"text": "Done."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    await say(await running(bench, agent, strategy=Strategy.CHAIN), "hi")
    await say(await running(bench, agent), "hello")
    assert inputs(bench)[1:] == [["user: hello"], [OUTPUT], ["call_2: look done"]]
    assert owners(bench)[1:] == [{"previous_response_id": one} for one in (await responses(bench))[:3]]


async def test_when_a_chain_begins_its_first_request_names_no_response(bench: Bench, ledger: Ledger) -> None:
    await two_calls(bench, ledger, Strategy.CHAIN)
    first, second, _ = await responses(bench)
    assert owners(bench) == [{}, {"previous_response_id": first}, {"previous_response_id": second}]
    assert inputs(bench)[1] == [OUTPUT]


async def test_when_a_conversation_is_the_owner_no_response_id_is_ever_named(bench: Bench, ledger: Ledger) -> None:
    await two_calls(bench, ledger, Strategy.CONVERSATION)
    assert len(await responses(bench)) == 3
    assert not any("previous_response_id" in body for body in bench.bodies)


# -- what is never sent twice ---------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_an_item_is_known_to_the_server_it_is_left_out_of_every_later_input(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await two_calls(bench, ledger, strategy)
    await say(await running(bench, Agent("desk", tools=(ledger.tool("look"),))), "more")
    assert [sent for one in inputs(bench) for sent in one] == ["user: hello", OUTPUT, "call_2: look done", "user: more"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_items_share_a_placeholder_id_each_is_still_an_item_of_its_own(
    bench: Bench, strategy: Strategy
) -> None:
    def fake(said: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": said, "annotations": []}]
        return {
            "output": [{"type": "message", "id": "__fake_id__", "role": "assistant", "content": content}],
        }

    bench.model = scripted(bench.folder, fake("one"), fake("two"), fake("three"))
    for said in "abc":
        await say(await running(bench, Agent("desk"), strategy=strategy), said)
    whole = ["user: a", "assistant: one", "user: b", "assistant: two", "user: c"]
    assert inputs(bench)[-1] == (whole[-1:] if strategy in SERVERS else whole)
    assert words(await history(bench)) == [*whole, "assistant: three"]


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_an_output_was_sent_it_is_not_sent_again_unless_its_request_failed(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    one = await paused(bench, ledger, strategy, calls(("c3", "look")), {"text": "Paid."})
    await one.apply_decisions(ApprovalDecided("c1", approve=True))
    bench.endpoint.faults = [Fault(RequestRefused("no", status=400))]
    with pytest.raises(RequestRefused):
        await read(one.resume())
    await read((await running(bench, cashier(ledger))).resume())
    outputs = ["c1: pay done", "c2: look done"]
    assert inputs(bench) == [["user: hello"], outputs, outputs, ["c3: look done"]]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_outputs_of_two_calls_are_equal_each_of_them_is_sent(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await two_calls(bench, ledger, strategy)
    sent = [item for item in bench.bodies[-1]["input"] if item.get("type") == "function_call_output"]
    assert [item["call_id"] for item in sent] == (["call_2"] if strategy in SERVERS else ["call_1", "call_2"])
    assert {item["output"] for item in sent} == {"look done"}


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_a_run_is_taken_up_what_was_delivered_is_not_sent_again_and_what_was_not_is(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await paused(bench, ledger, strategy)
    one = await running(bench, cashier(ledger))
    await one.apply_decisions(ApprovalDecided("c1", approve=False, message="no"))
    await read((await running(bench, cashier(ledger))).resume())
    assert inputs(bench) == [["user: hello"], ["c1: no", "c2: look done"]]
    assert ledger.ran == ["look"]


# -- calls without an output ----------------------------------------------------------------------------


async def test_when_a_call_has_no_output_it_gets_one_before_the_next_request(bench: Bench, ledger: Ledger) -> None:
    one = await paused(bench, ledger, Strategy.SESSION)
    await one.stop()
    await say(await running(bench, cashier(ledger)), "well?")
    ended = "The run ended before this tool was called."
    assert inputs(bench)[-1][1:] == ["call pay", "call look", f"c1: {ended}", "c2: look done", "user: well?"]


async def test_when_a_caller_says_a_call_without_an_output_it_is_sent_untouched(bench: Bench, ledger: Ledger) -> None:
    orphan = {"type": "function_call", "call_id": "c9", "name": "look", "arguments": "{}"}
    one = await running(bench, cashier(ledger))
    with pytest.raises(RequestRefused, match="No tool output found for function call c9"):
        await read(one.start([user_message("hello"), orphan, user_message("well?")]))
    assert inputs(bench) == [["user: hello", "call look", "user: well?"]]


@pytest.mark.parametrize("strategy", CLIENTS)
async def test_when_reasoning_is_sent_again_it_has_no_id_and_stands_there_once(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    bench.model = scripted(bench.folder, {"output": [thought, *calls("look")["output"]]}, {"text": "Done."})
    await say(await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy), "hello")
    again = [item for item in bench.bodies[1]["input"] if item.get("type") == "reasoning"]
    assert again == [{"type": "reasoning", "summary": [], "encrypted_content": "sealed"}]
    assert [item.get("id") for item in await history(bench)][1] == "rs_1"


# -- input filters under a server owner -------------------------------------------------------------------


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_a_filter_runs_under_a_server_owner_it_sees_only_what_is_new(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    seen: list[list[str]] = []

    def looks(data: ModelInput) -> ModelInput:
        seen.append(words(data.items))
        return data

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    await say(await running(bench, agent, RunConfig(input_filter=looks), strategy=strategy), "hello")
    assert seen == [["user: hello"], [OUTPUT]]


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_a_filter_drops_an_output_under_a_server_owner_the_run_is_refused_and_the_output_is_kept(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    def drops(data: ModelInput) -> ModelInput:
        return ModelInput([item for item in data.items if "call_id" not in item] or [user_message("instead")])

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    with pytest.raises(RunFailed, match="removes the output of call call_1, which the endpoint needs"):
        await say(await running(bench, agent, RunConfig(input_filter=drops), strategy=strategy), "hello")
    await say(await running(bench, agent), "well?")
    assert inputs(bench) == [["user: hello"], [OUTPUT, "user: well?"]]


# -- input that is added at a pause -------------------------------------------------------------------------


async def added(one: AgentRunner, *said: str) -> None:
    await one.apply_decisions(
        *(InputAdded((user_message(text),)) for text in said), ApprovalDecided("c1", approve=True)
    )


def tail(bench: Bench, strategy: Strategy) -> Sequence[str]:
    """The last request without what the client's own history has before the outputs."""
    return inputs(bench)[-1][0 if strategy in SERVERS else 3 :]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_the_same_words_are_added_twice_both_are_sent_once(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    one = await paused(bench, ledger, strategy)
    await added(one, "now", "now")
    await read((await running(bench, cashier(ledger))).resume())
    assert tail(bench, strategy) == ["c1: pay done", "c2: look done", "user: now", "user: now"]
    assert words(await history(bench)).count("user: now") == 2


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_a_filter_rewrites_added_input_what_it_returns_is_what_was_said(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    def rewrites(data: ModelInput) -> ModelInput:
        return ModelInput([user_message("NOW") if item.get("role") == "user" else item for item in data.items])

    one = await paused(bench, ledger, strategy, {"text": "-"}, calls(("c3", "look")), {"text": "Paid."})
    await added(one, "now")
    await read((await running(bench, cashier(ledger), RunConfig(input_filter=rewrites))).resume())
    assert inputs(bench)[1:] == [["c1: pay done", "c2: look done", "user: NOW"], ["c3: look done"]]
    kept = words(await history(bench))
    assert ("user: NOW" in kept, "user: now" in kept) == (True, False)


@pytest.mark.parametrize("strategy", SERVERS)
@pytest.mark.parametrize("failure", [RequestRefused("no", status=400), TryLater("down", status=503)])
async def test_when_a_request_with_added_input_fails_the_input_waits_until_a_response_has_it(
    bench: Bench, ledger: Ledger, strategy: Strategy, failure: Exception
) -> None:
    one = await paused(bench, ledger, strategy)
    await added(one, "now")
    bench.endpoint.faults = [Fault(failure)] * 4
    with pytest.raises(type(failure)):
        await read(one.resume())
    bench.endpoint.faults = []
    await read((await running(bench, cashier(ledger))).resume())
    assert {tuple(one) for one in inputs(bench)[1:]} == {("c1: pay done", "c2: look done", "user: now")}
    assert words(await history(bench)).count("user: now") == 1


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_items_of_a_search_for_tools_have_no_id_they_are_not_sent_again_and_later_ones_are_kept(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    found: dict[str, Any] = {"type": "tool_search_output", "tools": []}
    search: list[dict[str, Any]] = [{"type": "tool_search_call", "arguments": {"query": "x"}}, found]
    bench.model = scripted(
        bench.folder,
        {"output": [*search, *calls("look")["output"]]},
        {"output": [{**search[0], "id": "ts_2"}, {**found, "id": "to_2"}, *calls(("call_2", "look"))["output"]]},
        {"text": "Done."},
    )
    agent = Agent("desk", tools=(ledger.tool("look"),))
    await say(await running(bench, agent, strategy=strategy), "hello")
    await say(await running(bench, agent), "more")
    assert [sent for one in inputs(bench) for sent in one] == ["user: hello", OUTPUT, "call_2: look done", "user: more"]
    kept = [item for item in await history(bench) if str(item.get("type")).startswith("tool_search")]
    assert len(kept) == 4
