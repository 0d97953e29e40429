"""Runs of agents over real stores and convo's own endpoint: what is sent, what is kept, what is told."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from convo.agents import Agent, graph, output
from convo.engine.edges import Edges
from convo.engine.running import Conduct, Route, Running, kept_run
from convo.engine.turn import Asking
from convo.errors import Conflict, ConvoError, Refused, RunFailed, StateFault, StoreFull, TryLater, Usage
from convo.history import Strategy
from convo.items import user
from convo.run import Decided, Given, Limits, Said
from convo.stores.contract import Change, Store
from convo.tools import Context, tool
from tests.engine.agents import Ledger, calls, history, inputs, own, read, running, say, scripted, words
from tests.engine.conftest import Bench
from tests.engine.recorded import Fault

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_calls_its_tools_and_answers(bench: Bench, ledger: Ledger, strategy: Strategy) -> None:
    bench.model = scripted(bench.folder, calls("look"), calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy)

    events = await say(one, "hello")

    assert (one.output, ledger.ran) == ("Done.", ["look", "look"])
    assert own(events) == ["started", "tool_started", "tool_output", "tool_started", "tool_output", "finished"]
    new = [["user: hello"], ["call_1: look done"], ["call_1: look done"]]
    whole = ["user: hello", "call look", "call_1: look done", "call look", "call_1: look done"]
    assert inputs(bench) == (new if strategy in SERVERS else [whole[:1], whole[:3], whole])
    assert words(await history(bench)) == [*whole, "assistant: Done."]
    assert one.kept
    kept = await kept_run(bench.store, "mine")
    assert (kept.id, kept.status) == (one.kept.id, "done")


# -- tools ------------------------------------------------------------------------------------------


async def ran(bench: Bench, *tools: Any, reply: dict[str, Any] | None = None) -> list[str]:
    """The outputs that the model got for one batch of calls."""
    bench.model = scripted(bench.folder, reply or calls(*(one.name for one in tools)), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=tuple(tools)))
    await say(one, "hello")
    return [item["output"] for item in bench.bodies[-1]["input"] if item.get("type") == "function_call_output"]


async def test_a_tool_may_be_sync_or_async_and_is_told_who_asks(bench: Bench) -> None:
    @tool
    def plain(context: Context) -> dict[str, str]:
        return {"agent": context.agent, "call": context.call_id}

    @tool
    async def waiting(context: Context) -> str:
        await asyncio.sleep(0)
        return context.tool

    assert await ran(bench, plain, waiting) == ['{"agent": "desk", "call": "call_1"}', "waiting"]


async def test_tools_run_beside_each_other_and_their_outputs_are_sent_in_the_order_of_the_calls(bench: Bench) -> None:
    first, second = asyncio.Event(), asyncio.Event()

    @tool
    async def one() -> str:
        first.set()
        await second.wait()
        return "one"

    @tool
    async def two() -> str:
        await first.wait()
        second.set()
        return "two"

    assert await ran(bench, one, two) == ["one", "two"]


async def test_no_more_tools_run_at_once_than_the_limit_says(bench: Bench) -> None:
    at_once: list[int] = [0, 0]

    @tool
    async def busy() -> str:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0)
        at_once[0] -= 1
        return "done"

    bench.model = scripted(bench.folder, calls(*[(f"c{n}", "busy") for n in range(7)]), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(busy,)), Conduct(Limits(parallel=2)))
    await say(one, "hello")
    assert at_once == [0, 2]


async def test_a_model_is_told_of_a_tool_that_raised_or_took_too_long(bench: Bench) -> None:
    @tool
    def broken() -> str:
        raise ValueError("secret")

    @tool(failure=lambda raised: f"it said {raised}")
    def worded() -> str:
        raise ValueError("sorry")

    @tool(timeout_s=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    @tool
    def strange() -> list[dict[str, object]]:
        return [{"type": "input_text", "text": float("nan")}]

    outputs = await ran(bench, broken, worded, slow, strange)
    assert outputs[0] == outputs[3] == "An error occurred while running the tool. Please try again."
    assert outputs[1:3] == ["it said sorry", "Tool 'slow' timed out after 0.01 seconds."]


async def test_a_run_fails_with_a_tool_that_has_no_words_for_its_failure_and_the_conversation_goes_on(
    bench: Bench, ledger: Ledger
) -> None:
    @tool(failure=None)
    def broken() -> str:
        raise ValueError("sorry")

    bench.model = scripted(bench.folder, calls("broken", ("call_2", "look")), {"text": "Fine."})
    one = await running(bench, Agent("desk", tools=(broken, ledger.tool("look"))), Conduct(Limits(parallel=1)))
    with pytest.raises(RunFailed, match="tool 'broken' raised ValueError: sorry") as failed:
        await say(one, "hello")
    assert (failed.value.code, ledger.ran, type(failed.value.__cause__)) == ("tool_failed", [], RunFailed)
    assert one.kept
    assert one.kept.status == "failed"

    await say(one, "again")
    unknown, not_run = "The tool was started, and its outcome is unknown.", "The run ended before this tool was called."
    assert inputs(bench)[-1][3:] == [f"call_1: {unknown}", f"call_2: {not_run}", "user: again"]


async def test_a_timeout_may_fail_the_run(bench: Bench) -> None:
    @tool(timeout_s=0.01, on_timeout="fail")
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(RunFailed, match=r"Tool 'slow' timed out after 0\.01 seconds"):
        await ran(bench, slow)


async def test_a_tool_or_handoff_that_is_off_is_neither_offered_nor_called(bench: Bench, ledger: Ledger) -> None:
    async def off(context: Context) -> bool:
        return False

    bench.model = scripted(bench.folder, calls("hidden"))
    agent = Agent("desk", tools=(ledger.tool("hidden", enabled=off), ledger.tool("look")))
    one = await running(bench, agent)
    with pytest.raises(RunFailed, match="Tool hidden not found in agent desk") as failed:
        await say(one, "hello")
    assert [found["name"] for found in bench.bodies[0]["tools"]] == ["look"]
    assert (failed.value.code, ledger.ran) == ("model_behavior", [])


# -- how an agent is asked ----------------------------------------------------------------------------


async def test_an_agent_says_how_it_is_asked(bench: Bench, ledger: Ledger) -> None:
    async def told(context: Context) -> str:
        return f"You are {context.agent}, for {context.values['who']}."

    bench.model = scripted(bench.folder, calls("look"), {"text": '{"response": 3}'})
    agent = Agent(
        "desk",
        told,
        tools=(ledger.tool("look"), {"type": "web_search"}),
        settings={"temperature": 0, "tool_choice": "required"},
        output=output(int),
    )
    one = await running(bench, agent, Conduct(values={"who": "Kim"}))
    await say(one, "hello")

    first, second = bench.bodies
    assert (first["instructions"], first["temperature"]) == ("You are desk, for Kim.", 0)
    assert [found.get("name", found["type"]) for found in first["tools"]] == ["look", "web_search"]
    assert first["text"]["format"]["name"] == "final_output"
    assert (first["tool_choice"], "tool_choice" in second) == ("required", False)
    assert one.output == 3


async def test_an_answer_that_does_not_fit_its_schema_fails_the_run(bench: Bench) -> None:
    bench.model = scripted(bench.folder, {"text": "three"})
    with pytest.raises(RunFailed, match="does not fit its schema"):
        await say(await running(bench, Agent("desk", output=output(int))), "hello")


async def test_a_function_of_the_agent_that_raises_fails_the_run_and_nothing_is_asked(bench: Bench) -> None:
    def broken(context: Context) -> str:
        raise KeyError("who")

    with pytest.raises(RunFailed, match="the instructions of agent 'desk' raised KeyError"):
        await say(await running(bench, Agent("desk", broken)), "hello")
    assert bench.bodies == []


async def test_max_turns_end_a_run(bench: Bench, ledger: Ledger) -> None:
    bench.model = scripted(bench.folder, calls("look"))
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), Conduct(Limits(max_turns=2)))
    with pytest.raises(RunFailed, match=r"Max turns \(2\) exceeded") as failed:
        await say(one, "hello")
    assert (failed.value.code, len(bench.bodies), ledger.ran) == ("max_turns", 2, ["look", "look"])


# -- approvals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_paused_run_goes_on_in_another_process_and_sends_both_outputs(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(ledger.tool("look"), ledger.tool("pay", needs_approval=True)))
    bench.model = scripted(bench.folder, calls(("c1", "pay"), ("c2", "look")), {"text": "Paid."})
    one = await running(bench, agent, strategy=strategy)
    events = await say(one, "hello")

    assert own(events) == ["started", "tool_started", "tool_output", "paused"]
    waits = {"call_id": "c1", "tool": "pay", "agent": "desk", "arguments": "{}", "unknown": False}
    assert events[-1]["pending"] == [waits]
    assert one.kept
    assert (one.kept.status, ledger.ran) == ("paused", ["look"])

    other = await running(bench, agent)
    assert [call.id for call in other.pending] == ["c1"]
    await other.decide(Decided("c1", approve=True))
    assert ledger.ran == ["look"]

    third = await running(bench, agent)
    assert own(await read(third.go_on())) == ["started", "tool_started", "tool_output", "finished"]
    assert (third.output, ledger.ran, len(bench.bodies)) == ("Paid.", ["look", "pay"], 2)
    assert inputs(bench)[1][-2:] == ["c1: pay done", "c2: look done"]
    assert len(inputs(bench)[1]) == (2 if strategy in SERVERS else 5)


async def test_without_a_decision_the_same_calls_wait_and_nothing_is_asked(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"))
    one = await running(bench, agent)
    first = (await say(one, "hello"))[-1]
    again = await read((await running(bench, agent)).go_on())
    assert again[-1] == first
    assert (len(bench.bodies), ledger.ran) == (1, [])


async def test_nothing_new_is_said_while_calls_wait(bench: Bench, ledger: Ledger) -> None:
    bench.model = scripted(bench.folder, calls("pay"), {"text": "As you like."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("pay", needs_approval=True),)))
    await say(one, "hello")
    with pytest.raises(StateFault, match="its calls have no output yet"):
        await say(one, "well?")
    await one.stop()
    await say(one, "well?")
    assert inputs(bench)[-1][1:] == ["call pay", "call_1: The run ended before this tool was called.", "user: well?"]
    assert ledger.ran == []


async def test_a_rejection_is_told_to_the_model_and_input_that_was_added_follows_it(
    bench: Bench, ledger: Ledger
) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), {"text": "Well."})
    one = await running(bench, agent)
    await say(one, "hello")
    await one.decide(Said((user("leave it"),)), Decided("call_1", approve=False, message="too dear"))
    await read(one.go_on())
    assert inputs(bench)[-1][-2:] == ["call_1: too dear", "user: leave it"]
    assert ledger.ran == []


async def test_decisions_are_taken_all_or_none(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"))
    one = await running(bench, agent)
    await say(one, "hello")
    with pytest.raises(ConvoError, match="there is no call c9"):
        await one.decide(Decided("call_1", approve=True), Decided("c9", approve=True))
    assert len((await running(bench, agent)).pending) == 1


async def test_an_approval_for_good_holds_for_later_calls_also_in_another_process(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), calls("pay"), {"text": "Paid."})
    await say(await running(bench, agent), "hello")
    one = await running(bench, agent)
    await one.decide(Decided("call_1", approve=True, always=True))
    events = await read((await running(bench, agent)).go_on())
    assert (own(events)[-1], ledger.ran) == ("finished", ["pay", "pay"])


async def test_a_function_says_whether_a_call_needs_approval(bench: Bench) -> None:
    paid: list[int] = []

    async def dear(context: Context, arguments: Any) -> bool:
        return bool(arguments["cents"] > 100)

    @tool(needs_approval=dear)
    def pay(cents: int) -> str:
        paid.append(cents)
        return "paid"

    bench.model = scripted(bench.folder, calls(("c1", "pay", {"cents": 5}), ("c2", "pay", {"cents": 500})))
    one = await running(bench, Agent("desk", tools=(pay,)))
    await say(one, "hello")
    assert ([call.id for call in one.pending], paid) == (["c2"], [5])


async def test_a_run_is_found_by_its_id_and_by_its_session_and_only_there(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"))
    one = await running(bench, agent)
    await say(one, "hello")
    assert one.kept
    assert (await kept_run(bench.store, "mine")).id == (await kept_run(bench.store, one.kept.id)).id == one.kept.id
    other = await bench.open(Strategy.SESSION, name="other")
    with pytest.raises(Usage, match="belongs to another session"):
        await Running.open(other, graph(agent), kept=one.kept)


# -- failures, stops, kills -------------------------------------------------------------------------------


BUSY = TryLater("busy", status=429)


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_request_that_is_safe_to_repeat_goes_out_again_as_it_was(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy)
    bench.endpoint.faults = [Fault(BUSY), Fault(BUSY)]
    assert own(await say(one, "hello"))[-1] == "finished"
    assert bench.bodies[0] == bench.bodies[1] == bench.bodies[2]
    assert (len(bench.bodies), ledger.ran) == (4, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_failed_request_leaves_the_run_open_and_is_asked_again(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(ledger.tool("look"),))
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    one = await running(bench, agent, strategy=strategy)

    async def read_on() -> None:
        async for event in one.say([user("hello")]):
            if event["type"] == "convo.tool_output":
                bench.endpoint.faults = [Fault(Refused("no", status=400))]

    with pytest.raises(Refused):
        await read_on()
    assert (one.unfinished, len(bench.bodies)) == (True, 2)

    other = await running(bench, agent)
    assert own(await read(other.go_on())) == ["started", "finished"]
    assert bench.bodies[1] == bench.bodies[2]
    assert (other.output, other.run.turn, ledger.ran) == ("Done.", 2, ["look"])


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_answer_that_was_stopped_is_asked_for_again_without_what_came_of_it(
    bench: Bench, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, {"text": "A long answer that comes in several pieces."})
    one = await running(bench, Agent("desk"), strategy=strategy)
    async with aclosing(one.say([user("hello")])) as events:
        async for event in events:
            if event["type"].endswith(".delta"):
                break
    assert one.unfinished

    again = await running(bench, Agent("desk"))
    await read(again.go_on())
    assert bench.bodies[0] == bench.bodies[1]
    assert words(await history(bench)) == [
        "user: hello",
        "assistant: A long answer that comes in several pieces.",
    ]


async def test_something_else_may_be_said_after_a_failed_request(bench: Bench) -> None:
    one = await running(bench, Agent("desk"))
    bench.endpoint.faults = [Fault(Refused("no", status=400))]
    with pytest.raises(Refused):
        await say(one, "hello")
    first = one.kept
    await say(one, "well?")
    assert inputs(bench)[-1] == ["user: hello", "user: well?"]
    assert first
    stopped = await bench.store.agent_run(first.id)
    assert stopped
    assert stopped.status == "stopped"


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_that_is_stopped_among_its_tools_keeps_what_came_and_asks_about_the_rest(
    bench: Bench, strategy: Strategy
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @tool
    async def endless() -> str:
        runs.append("endless")
        began.set()
        await ended.wait()
        return "at last"

    @tool
    async def quick() -> str:
        runs.append("quick")
        return "quick done"

    agent = Agent("desk", tools=(quick, endless))
    bench.model = scripted(bench.folder, calls(("c1", "quick"), ("c2", "endless")), {"text": "Done."})
    one = await running(bench, agent, strategy=strategy)
    going = asyncio.ensure_future(say(one, "hello"))
    await began.wait()
    await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going

    other = await running(bench, agent)
    events = await read(other.go_on())
    assert own(events) == ["started", "paused"]
    assert [(call["call_id"], call["unknown"]) for call in events[-1]["pending"]] == [("c2", True)]
    await other.decide(Given("c2", "given"))
    await read((await running(bench, agent)).go_on())
    assert inputs(bench)[-1][-2:] == ["c1: quick done", "c2: given"]
    assert runs == ["quick", "endless"]


async def test_a_call_of_unknown_outcome_may_be_run_again(bench: Bench) -> None:
    runs: list[int] = []
    began = asyncio.Event()

    @tool
    async def once() -> str:
        runs.append(1)
        began.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "done"

    agent = Agent("desk", tools=(once,))
    bench.model = scripted(bench.folder, calls("once"), {"text": "Done."})
    one = await running(bench, agent)
    going = asyncio.ensure_future(say(one, "hello"))
    await began.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await read(one.go_on())
    assert [call.id for call in one.pending] == ["call_1"]
    await one.decide(Decided("call_1", approve=True))
    await read(one.go_on())
    assert (len(runs), one.output) == (2, "Done.")


class Full:
    """A store that takes nothing for a while, once a tool has run."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self.store, self.ledger, self.full = store, ledger, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, change: Change) -> None:
        if self.full and self.ledger.ran:
            raise StoreFull("no room is left")
        await self.store.commit(change)


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_result_cannot_be_stored_another_process_asks_about_it_and_does_not_run_the_tool_again(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    full: Any = Full(bench.store, ledger)
    bench.edges = Edges(full, bench.endpoint, bench.clock, bench.edges.new_id)
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    one = await running(bench, agent, strategy=strategy)
    with pytest.raises(StoreFull):
        await say(one, "hello")

    full.full = False
    assert own(await read((await running(bench, agent)).go_on())) == ["started", "paused"]
    again = await running(bench, agent)
    assert [call.id for call in again.pending] == ["call_1"]
    assert ledger.ran == ["look"]


async def test_when_a_result_could_not_be_stored_the_same_process_still_knows_it(bench: Bench, ledger: Ledger) -> None:
    full: Any = Full(bench.store, ledger)
    bench.edges = Edges(full, bench.endpoint, bench.clock, bench.edges.new_id)
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)))
    with pytest.raises(StoreFull):
        await say(one, "hello")
    full.full = False
    await read(one.go_on())
    assert (one.output, ledger.ran) == ("Done.", ["look"])
    assert inputs(bench)[-1][-1] == "call_1: look done"


@pytest.mark.parametrize("strategy", SERVERS)
async def test_a_server_owner_is_named_by_the_newest_response_or_by_its_conversation(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, calls("look"), calls("look"), {"text": "Done."})
    one = await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy)
    await say(one, "hello")
    links = await bench.store.links(one.chat.session.id)
    named = [(body.get("previous_response_id"), body.get("conversation")) for body in bench.bodies]
    if strategy is Strategy.CHAIN:
        assert named == [(None, None), (links[0].id, None), (links[1].id, None)]
    else:
        assert named == [(None, one.chat.session.handle)] * 3


async def test_a_model_that_uses_an_id_again_gets_each_output_where_it_belongs(bench: Bench, ledger: Ledger) -> None:
    agent = Agent("desk", tools=(ledger.tool("look", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("look"), calls("look"), {"text": "Done."}, {"text": "Bye."})
    one = await running(bench, agent)
    await say(one, "hello")
    for _ in range(2):
        one = await running(bench, agent)
        await one.decide(Decided("call_1", approve=True))
        await read(one.go_on())
    await say(one, "well?")
    pair = ["call look", "call_1: look done"]
    assert inputs(bench)[-1] == ["user: hello", *pair, *pair, "assistant: Done.", "user: well?"]


# -- runs that were written down elsewhere, and calls that the provider runs -----------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_run_that_was_written_down_elsewhere_is_taken_up_with_its_history(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), {"text": "Paid."})
    one = await running(bench, agent, strategy=strategy)
    await say(one, "hello")
    items = await history(bench)

    file = str(bench.folder / "other.json") if strategy is Strategy.REPLAY else None
    chat = await bench.open(strategy, one.chat.session.handle if strategy in SERVERS else file, name="other")
    other = await Running.adopt(chat, one.run, () if strategy in SERVERS else items, state="sha")
    assert other.kept
    assert (other.kept.status, other.kept.state, other.kept.revision) == ("paused", "sha", 1)
    again = await Running.open(chat, graph(agent))
    await again.decide(Decided("call_1", approve=True))
    await read(again.go_on())
    assert (again.output, ledger.ran) == ("Paid.", ["pay"])
    assert inputs(bench)[-1] == (["call_1: pay done"] if strategy in SERVERS else [*words(items), "call_1: pay done"])


async def test_a_hosted_tools_request_for_approval_is_answered_in_its_own_kind(bench: Bench) -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "files", "name": "rm", "arguments": "{}"}
    bench.model = scripted(bench.folder, {"output": [request]})
    one = await running(bench, Agent("desk"))
    events = await say(one, "hello")
    assert [call["tool"] for call in events[-1]["pending"]] == ["files.rm"]

    bench.model = scripted(bench.folder, {"text": "As you like."}, name="then.json")
    other = await running(bench, Agent("desk"))
    await other.decide(Decided("mcpr_1", approve=False, message="no"))
    await read(other.go_on())
    verdict = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"}
    assert bench.bodies[-1]["input"][-1] == verdict
    assert other.output == "As you like."


async def test_an_agent_of_another_model_is_not_sent_reasoning_that_it_could_not_open(
    bench: Bench, ledger: Ledger
) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    transfer = calls(("c2", "transfer_to_billing"))["output"]
    bench.model = scripted(bench.folder, {"output": [thought, *calls("look")["output"]]}, {"output": transfer})
    billing = Agent("billing", model=scripted(bench.folder, {"text": "Here."}, name="billing.json"))
    agent = Agent("desk", tools=(ledger.tool("look"),), handoffs=(billing,))
    route = Conduct(route=lambda model: Route(Asking(model, model), bench.endpoint))
    await say(await running(bench, agent, route), "hello")

    second, third = inputs(bench)[1:]
    assert second == ["user: hello", "reasoning", "call look", "call_1: look done"]
    over = ["call transfer_to_billing", 'c2: {"assistant": "billing"}']
    assert third == ["user: hello", "call look", "call_1: look done", *over]
    assert words(await history(bench)) == [*second, *over, "assistant: Here."]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_tools_output_may_be_the_answer_and_its_owner_is_told_of_it_with_the_next_input(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, calls("look"), {"text": "Bye."}, {"text": "Bye."})
    one = await running(
        bench, Agent("desk", tools=(ledger.tool("look"),), after_tools="first output"), strategy=strategy
    )
    events = await say(one, "hello")
    assert (own(events)[-1], one.output, len(bench.bodies)) == ("finished", "look done", 1)
    await say(one, "well?")
    new = ["call_1: look done", "user: well?"]
    assert inputs(bench)[1] == (new if strategy in SERVERS else ["user: hello", "call look", *new])


async def test_a_second_process_that_goes_on_with_the_same_run_is_refused_and_runs_nothing(
    bench: Bench, ledger: Ledger
) -> None:
    agent = Agent("desk", tools=(ledger.tool("pay", needs_approval=True),))
    bench.model = scripted(bench.folder, calls("pay"), {"text": "Paid."})
    await say(await running(bench, agent), "hello")
    first, second = await running(bench, agent), await running(bench, agent)
    await first.decide(Decided("call_1", approve=True))
    with pytest.raises(Conflict):
        await second.decide(Decided("call_1", approve=True))
    third = await running(bench, agent)
    await read(first.go_on())
    with pytest.raises(Conflict):
        await read(third.go_on())
    assert (ledger.ran, len(bench.bodies)) == (["pay"], 2)
