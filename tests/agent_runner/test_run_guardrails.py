"""Guardrails in a run: before the model and beside it, and over what comes out."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from convo.agents.agent import Agent, Guardrail
from convo.endpoints.base import Endpoint
from convo.errors import RunFailed, WrongOwner
from convo.history.items import Json, StreamEvent, user_message
from convo.history.records import Strategy
from convo.stores.base import Store
from convo.tools.tool import Context
from tests.chat.agents import calls, history, inputs, own, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger
from tests.chat.recorded import Recorded
from tests.embedding import embedded

SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]


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

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
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
        async for event in one.start([user_message("hello")]):
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
