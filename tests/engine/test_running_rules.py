"""What guardrails, handoffs, filters and limits do to a run, under each owner."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from convo.agents import Agent, Guardrail, Handoff
from convo.endpoints.contract import Endpoint
from convo.engine.running import Conduct, ModelInput, Route
from convo.engine.turn import Asking
from convo.errors import InputFault, RunFailed, Usage, WrongOwner
from convo.handoffs import Habits, Markers, Transcript
from convo.history import Strategy
from convo.items import Event, Item, Json, text, user
from convo.run import Decided
from convo.stores.contract import Store
from convo.tools import Context
from tests.embedding import embedded
from tests.engine.agents import Ledger, calls, history, inputs, own, read, running, say, scripted, words
from tests.engine.conftest import Bench
from tests.engine.recorded import Recorded

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


# -- guardrails ---------------------------------------------------------------------------------------


def refuses(context: Context, said: Any) -> str:
    return "not here"


def passes(context: Context, said: Any) -> None:
    return None


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_input_guardrail_before_the_model_keeps_it_from_being_asked(bench: Bench, strategy: Strategy) -> None:
    agent = Agent("desk", input_guardrails=(Guardrail("mild", passes, False), Guardrail("strict", refuses, False)))
    one = await running(bench, agent, strategy=strategy)
    with pytest.raises(RunFailed, match="Guardrail strict tripped: not here") as failed:
        await say(one, "hello")
    assert (failed.value.code, bench.bodies) == ("input_guardrail", [])
    assert words(await history(bench)) == ([] if strategy in SERVERS else ["user: hello"])


class Finishing(Recorded):
    """Lets it be known that an answer is whole, before anybody is handed its end."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.asked, self.finished = asyncio.Event(), asyncio.Event()

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        self.asked.set()
        async with aclosing(super().create(body)) as events:
            async for event in events:
                if event["type"] == "response.completed":
                    self.finished.set()
                yield event


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("strategy", Strategy)
async def test_when_an_input_guardrail_trips_the_users_input_is_saved_but_no_assistant_message(
    store: Store, tmp_path: Path, ledger: Ledger, strategy: Strategy
) -> None:
    """The guardrail speaks when the whole answer is there; under an endpoint's owner that is the endpoint's to keep."""

    bench = Bench(store, Finishing(embedded(store)), tmp_path)

    async def late(context: Context, said: Any) -> str:
        assert isinstance(bench.endpoint, Finishing)
        await bench.endpoint.finished.wait()
        return "too late"

    bench.model = scripted(bench.folder, calls("look"), {"text": "Fine."})
    agent = Agent("desk", tools=(ledger.tool("look"),), input_guardrails=(Guardrail("strict", late),))
    one = await running(bench, agent, strategy=strategy)
    with pytest.raises(RunFailed, match="too late"):
        await say(one, "hello")
    assert ledger.ran == []
    kept = words(await history(bench))
    if strategy is Strategy.CONVERSATION:
        assert kept == ["user: hello", "call look", "call_1: The run ended before this tool was called."]
    else:
        assert kept == ([] if strategy is Strategy.CHAIN else ["user: hello"])


async def test_a_guardrail_beside_the_model_stops_an_answer_that_has_begun(bench: Bench) -> None:
    stopped = asyncio.Event()

    async def on_the_first_piece(context: Context, said: Any) -> str:
        await stopped.wait()
        return "stop"

    bench.model = scripted(bench.folder, {"text": "A long answer that comes in many pieces, " * 40})
    one = await running(bench, Agent("desk", input_guardrails=(Guardrail("strict", on_the_first_piece),)))
    seen = []

    async def read_on() -> None:
        async for event in one.say([user("hello")]):
            seen.append(event)
            if event["type"].endswith(".delta"):
                stopped.set()

    with pytest.raises(RunFailed):
        await read_on()
    assert own(seen) == ["started", "guardrail", "failed"]
    assert "response.completed" not in [event["type"] for event in seen]
    assert words(await history(bench)) == ["user: hello"]


async def test_no_tool_runs_before_every_input_guardrail_has_spoken(
    store: Store, tmp_path: Path, ledger: Ledger
) -> None:
    bench = Bench(store, Finishing(embedded(store)), tmp_path)
    order: list[str] = []

    async def slow(context: Context, said: Any) -> None:
        assert isinstance(bench.endpoint, Finishing)
        await bench.endpoint.finished.wait()
        order.append(f"guardrail, {len(ledger.ran)} ran")

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", tools=(ledger.tool("look"),), input_guardrails=(Guardrail("slow", slow),))
    events = await say(await running(bench, agent), "hello")
    assert (order, ledger.ran, own(events)[-1]) == (["guardrail, 0 ran"], ["look"], "finished")


async def test_a_guardrail_gets_a_copy_of_what_the_model_gets(bench: Bench) -> None:
    seen: list[str] = []

    def looks(context: Context, said: Any) -> None:
        seen.extend(words(said))
        said.clear()

    agent = Agent("desk", input_guardrails=(Guardrail("looks", looks, parallel=False),))
    one = await running(bench, agent)
    await say(one, "one")
    await say(one, "two")
    assert seen == ["user: one", "user: one", "assistant: one", "user: two"]
    assert inputs(bench)[1] == seen[1:]


async def test_a_guardrail_that_raises_fails_the_run(bench: Bench) -> None:
    def broken(context: Context, said: Any) -> str:
        raise OSError("gone")

    one = await running(bench, Agent("desk", input_guardrails=(Guardrail("strict", broken, False),)))
    with pytest.raises(RunFailed, match="guardrail 'strict' raised OSError: gone"):
        await say(one, "hello")


async def test_an_output_guardrail_keeps_an_answer_from_being_the_answer(bench: Bench) -> None:
    def no_secrets(context: Context, said: Any) -> str | None:
        return "a secret" if "secret" in said else None

    bench.model = scripted(bench.folder, {"text": "The secret is 4."}, {"text": "I cannot say."})
    agent = Agent("desk", output_guardrails=(Guardrail("no secrets", no_secrets),))
    one = await running(bench, agent)
    with pytest.raises(RunFailed, match="Guardrail no secrets tripped: a secret"):
        await say(one, "hello")
    assert words(await history(bench)) == ["user: hello"]


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_an_agent_with_output_guardrails_runs_under_a_server_owner_it_is_refused(
    bench: Bench, strategy: Strategy
) -> None:
    with pytest.raises(WrongOwner, match="an output guardrail"):
        await running(bench, Agent("desk", output_guardrails=(Guardrail("strict", refuses),)), strategy=strategy)


# -- handoffs -------------------------------------------------------------------------------------------


def desks(*ways: Any) -> Agent:
    return Agent("triage", "Send them on.", handoffs=ways or (Agent("billing", "Bill."),))


def answering(bench: Bench, *replies: dict[str, Any], name: str = "billing.json", **fields: Any) -> Agent:
    """The agent that is handed over to, with a model of its own: it is asked anew, about a summary."""
    return Agent("billing", model=scripted(bench.folder, *replies, name=name), **fields)


def routed(bench: Bench, **habits: Any) -> Conduct:
    """Hands over with these habits, and lets every agent have its own model."""
    return Conduct(habits=Habits(**habits), route=lambda model: Route(Asking(model, model), bench.endpoint))


TRANSFER = calls("transfer_to_billing")
OVER = 'call_1: {"assistant": "billing"}'


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("strategy", Strategy)
async def test_when_nothing_is_configured_the_next_agent_gets_the_raw_transcript(
    bench: Bench, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, TRANSFER, {"text": "Here is your bill."})
    one = await running(bench, desks(), strategy=strategy)
    events = await say(one, "hello")
    assert own(events) == ["started", "handoff", "finished"]
    assert (events[-1]["agent"], one.output) == ("billing", "Here is your bill.")
    assert [body["instructions"] for body in bench.bodies] == ["Send them on.", "Bill."]
    assert inputs(bench)[1] == ([OVER] if strategy in SERVERS else ["user: hello", "call transfer_to_billing", OVER])


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("strategy", CLIENTS)
async def test_when_nesting_with_a_session_the_model_gets_the_summary_but_the_store_keeps_the_full_items(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    look = ledger.tool("look", needs_approval=True)
    nested = routed(bench, nest=True)
    bench.model = scripted(bench.folder, TRANSFER)
    await say(
        await running(bench, desks(answering(bench, calls("look"), tools=(look,))), nested, strategy=strategy), "hi"
    )
    again = await running(bench, desks(answering(bench, {"text": "Here."}, name="two.json", tools=(look,))), nested)
    await again.decide(Decided("call_1", approve=True))
    await read(again.go_on())

    second, third = inputs(bench)[1:]
    assert len(second) == 1
    preamble = "assistant: For context, here is the conversation so far between the user and the previous agent:\n"
    assert second[0].startswith(f"{preamble}<CONVERSATION HISTORY>\n1. ")
    assert third == [*second, "call look", "call_1: look done"]
    full = ["user: hi", "call transfer_to_billing", OVER, "call look", "call_1: look done", "assistant: Here."]
    assert words(await history(bench)) == full

    session = await bench.store.session("mine")
    assert session
    links = await bench.store.links(session.id)
    assert [words((await bench.store.path(link.saw)).items) for link in links] == [["user: hi"], second, third]


@pytest.mark.usefixtures("both_ways")
async def test_a_mapper_of_ones_own_makes_the_next_agents_input(bench: Bench) -> None:
    given: list[list[str]] = []

    def last_only(items: list[Item]) -> list[Item]:
        given.append(words(items))
        return [user("All that counts.")]

    bench.model = scripted(bench.folder, TRANSFER)
    graph = desks(answering(bench, {"text": "Here."}))
    await say(await running(bench, graph, routed(bench, nest=True, mapper=last_only)), "hello")
    assert given == [["user: hello", "call transfer_to_billing", OVER]]
    assert inputs(bench)[1] == ["user: All that counts."]


async def test_the_markers_of_a_summary_may_be_others(bench: Bench) -> None:
    bench.model = scripted(bench.folder, TRANSFER)
    graph = desks(answering(bench, {"text": "Here."}))
    await say(await running(bench, graph, routed(bench, nest=True, markers=Markers("<<", ">>"))), "hello")
    assert "\n<<\n1. " in inputs(bench)[1][0]


async def test_a_handoffs_input_filter_decides_what_the_next_agent_sees(bench: Bench) -> None:
    parts: list[list[str]] = []

    def without_calls(transcript: Transcript) -> Transcript:
        parts.extend(map(words, (transcript.history, transcript.before, transcript.new)))
        return Transcript(transcript.history)

    bench.model = scripted(bench.folder, TRANSFER)
    graph = desks(Handoff(answering(bench, {"text": "Here."}), filter=without_calls))
    await say(await running(bench, graph, routed(bench)), "hello")
    assert parts == [["user: hello"], [], ["call transfer_to_billing", OVER]]
    assert inputs(bench)[1] == ["user: hello"]


async def test_after_a_handoff_the_next_thing_said_goes_to_the_first_agent_with_everything(bench: Bench) -> None:
    bench.model = scripted(bench.folder, TRANSFER)
    nested = routed(bench, nest=True)
    await say(await running(bench, desks(answering(bench, {"text": "Here."})), nested), "hello")
    bench.model = scripted(bench.folder, {"text": "Bye."}, name="bye.json")
    await say(await running(bench, desks(), nested), "thanks")
    assert inputs(bench)[-1] == ["user: hello", "call transfer_to_billing", OVER, "assistant: Here.", "user: thanks"]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_a_summary_is_asked_for_under_a_server_owner_there_is_a_warning_and_only_the_delta_goes(
    bench: Bench, strategy: Strategy
) -> None:
    bench.model = scripted(bench.folder, TRANSFER, {"text": "Here."})
    events = await say(await running(bench, desks(), Conduct(habits=Habits(nest=True)), strategy=strategy), "hello")
    assert own(events) == ["started", "warning", "handoff", "finished"]
    assert inputs(bench)[1] == [OVER]


@pytest.mark.parametrize("strategy", SERVERS)
async def test_a_handoff_input_filter_is_refused_under_a_server_owner_before_anything_is_asked(
    bench: Bench, strategy: Strategy
) -> None:
    way = Handoff(Agent("billing"), filter=lambda transcript: transcript)
    with pytest.raises(WrongOwner, match="has an input filter"):
        await running(bench, desks(way), strategy=strategy)


async def test_what_a_filter_returns_has_to_be_a_transcript(bench: Bench) -> None:
    bench.model = scripted(bench.folder, TRANSFER, {"text": "Here."})
    one = await running(bench, desks(Handoff(Agent("billing"), filter=lambda transcript: [])))
    with pytest.raises(RunFailed, match="an input filter returned list"):
        await say(one, "hello")


async def test_a_handoff_tells_its_function_once_what_the_model_said(bench: Bench) -> None:
    told: list[tuple[str, str]] = []
    way = Handoff(Agent("billing"), taken=lambda context, written: told.append((context.agent, written)))
    bench.model = scripted(bench.folder, TRANSFER, {"text": "Here."})
    await say(await running(bench, desks(way)), "hello")
    assert told == [("triage", "{}")]


# -- input filters --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("strategy", Strategy)
async def test_when_the_filter_returns_model_input_exactly_its_list_and_instructions_go_to_the_model(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    given: list[list[str]] = []

    async def loud(data: ModelInput) -> ModelInput:
        given.append(words(data.items))
        data.items.append(user("in place only"))
        items = [user(text(item).upper()) if item.get("role") == "user" else item for item in data.items[:-1]]
        return ModelInput(items, f"{data.instructions} Loudly.")

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."})
    agent = Agent("desk", "Answer.", tools=(ledger.tool("look"),))
    await say(await running(bench, agent, Conduct(input_filter=loud), strategy=strategy), "hello")

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
        return ModelInput(kept or [user("instead")], data.instructions)

    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."}, {"text": "Well."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    one = await running(bench, agent, Conduct(input_filter=drops), strategy=strategy)
    if strategy in CLIENTS:
        bench.model = scripted(bench.folder, {"text": "Done."}, name="other.json")
        with pytest.raises(RunFailed, match="Max turns"):  # it never sees its output, so it asks again
            await say(one, "hello")
        return
    with pytest.raises(RunFailed, match="drops the output of call call_1, and the endpoint waits for it"):
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
    await say(await running(bench, agent, Conduct(input_filter=doubled)), "hello")
    assert inputs(bench)[1] == ["user: hello", "call look", "call_1: later"]

    with pytest.raises(RunFailed, match="did not return a ModelInput"):
        await say(await running(bench, agent, Conduct(input_filter=lambda data: data.items), name="b"), "hello")

    def broken(data: ModelInput) -> ModelInput:
        raise ValueError("no")

    before = len(bench.bodies)
    with pytest.raises(RunFailed, match="the input filter raised ValueError: no"):
        await say(await running(bench, agent, Conduct(input_filter=broken), name="c"), "hello")
    assert len(bench.bodies) == before


# -- the session's limit and input callback -----------------------------------------------------------------


async def two_turns(bench: Bench, conduct: Conduct, *said_then: str) -> list[list[str]]:
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
    assert (await two_turns(bench, Conduct(session_limit=limit)))[1] == second
    assert len(await history(bench)) == 4


@pytest.mark.usefixtures("both_ways")
async def test_a_limit_of_none_at_all_sends_the_new_input_alone(bench: Bench) -> None:
    assert (await two_turns(bench, Conduct(session_limit=0)))[1] == ["user: two"]


async def test_when_a_limit_cuts_between_a_call_and_its_output_the_output_is_left_out(
    bench: Bench, ledger: Ledger
) -> None:
    bench.model = scripted(bench.folder, calls("look"), {"text": "Done."}, {"text": "Bye."})
    agent = Agent("desk", tools=(ledger.tool("look"),))
    one = await running(bench, agent, Conduct(session_limit=2))
    await say(one, "hello")
    bench.model = scripted(bench.folder, {"text": "Bye."}, name="bye.json")
    await say(await running(bench, agent, Conduct(session_limit=2)), "well?")
    assert inputs(bench)[-1] == ["assistant: Done.", "user: well?"]


@pytest.mark.usefixtures("both_ways")
async def test_when_the_callback_reorders_drops_and_adds_its_list_is_the_input_and_only_what_is_new_is_kept(
    bench: Bench,
) -> None:
    async def callback(older: list[Item], new: list[Item]) -> list[Item]:
        return [user(f"Be brief, {len(older)}."), *new, *older[-1:]]

    sent = await two_turns(bench, Conduct(session_input=callback), "one", "one")
    assert sent == [["user: Be brief, 0.", "user: one"], ["user: Be brief, 3.", "user: one", "assistant: one"]]
    kept = ["user: Be brief, 0.", "user: one", "assistant: one", "user: Be brief, 3.", "user: one", "assistant: one"]
    assert words(await history(bench)) == kept


@pytest.mark.usefixtures("both_ways")
async def test_a_callback_has_to_return_a_list_of_items(bench: Bench) -> None:
    one = await running(bench, Agent("desk"), Conduct(session_input=lambda older, new: "all"))
    with pytest.raises(InputFault, match="did not return a list of items"):
        await say(one, "hello")
    with pytest.raises(Usage, match="is no function"):
        await running(bench, Agent("desk"), Conduct(session_input="all"))  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", SERVERS)
@pytest.mark.parametrize("conduct", [Conduct(session_limit=3), Conduct(session_input=lambda older, new: new)])
async def test_a_server_owner_takes_no_limit_and_no_callback(
    bench: Bench, strategy: Strategy, conduct: Conduct
) -> None:
    with pytest.raises(WrongOwner, match="a session's limit or input callback"):
        await running(bench, Agent("desk"), conduct, strategy=strategy)


# -- refused before anything is asked ---------------------------------------------------------------------


@pytest.mark.parametrize("field", ["conversation", "previous_response_id"])
async def test_an_agent_that_names_another_owner_is_refused(bench: Bench, field: str) -> None:
    with pytest.raises(WrongOwner, match=f"say '{field}', which is the run's to say"):
        await running(bench, Agent("desk", settings={field: "x"}))


async def test_an_agents_own_model_needs_somebody_who_answers_for_it(bench: Bench) -> None:
    with pytest.raises(Usage, match="is asked as 'other/model', and this run asks 'scripted/echo' alone"):
        await running(bench, desks(Agent("billing", model="other/model")))
