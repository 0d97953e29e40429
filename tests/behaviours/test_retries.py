"""What is asked again by itself, and what is not, in runs with tools."""

import asyncio
from typing import Any

import pytest

from convo.agents.agent import Agent
from convo.errors import RequestRefused, TryLater, Unreachable
from convo.history.records import Session, Strategy
from tests.chat.agents import calls, history, inputs, running, say, scripted, words
from tests.chat.conftest import Bench
from tests.chat.ledger import Ledger
from tests.chat.recorded import Fault

pytestmark = pytest.mark.usefixtures("both_ways")

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]

LOCKED = TryLater("locked", code="conversation_locked", status=400)
DOWN = TryLater("down", status=503)
CUT = Unreachable("the connection broke")
OUTPUT = "call_1: look done"


async def session(bench: Bench) -> Session:
    found = await bench.store.session("mine")
    assert found
    return found


async def faulty(bench: Bench, ledger: Ledger, strategy: Strategy, *faults: Fault) -> None:
    """A run with one call of a tool, whose requests meet `faults`, the first ones first."""
    bench.model = scripted(bench.folder, calls("look"), {"text": "It is all done, and here is what came of it."})
    bench.endpoint.faults = list(faults)
    await say(await running(bench, Agent("desk", tools=(ledger.tool("look"),)), strategy=strategy), "hello")


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_an_ordinary_error_comes_it_is_raised_after_one_attempt(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    with pytest.raises(RequestRefused):
        await faulty(bench, ledger, strategy, Fault(RequestRefused("no", status=400)))
    assert (len(bench.bodies), bench.clock.sleeps_s) == (1, [])


async def test_when_a_conversation_is_locked_the_same_is_tried_three_times_more_with_growing_waits(
    bench: Bench, ledger: Ledger
) -> None:
    await faulty(bench, ledger, Strategy.CONVERSATION, *[Fault(LOCKED)] * 3)
    assert bench.bodies[0] == bench.bodies[1] == bench.bodies[2] == bench.bodies[3]
    assert [int(seconds) for seconds in bench.clock.sleeps_s] == [1, 2, 4]
    assert inputs(bench)[4:] == [[OUTPUT]]


async def test_when_a_conversation_stays_locked_the_last_failure_is_raised(bench: Bench, ledger: Ledger) -> None:
    with pytest.raises(TryLater, match="locked"):
        await faulty(bench, ledger, Strategy.CONVERSATION, *[Fault(LOCKED)] * 5)
    assert len(bench.bodies) == 4


@pytest.mark.parametrize("strategy", CLIENTS)
@pytest.mark.parametrize("failure", [DOWN, CUT])
async def test_when_a_request_that_nobody_keeps_fails_the_identical_input_goes_out_again(
    bench: Bench, ledger: Ledger, strategy: Strategy, failure: Any
) -> None:
    await faulty(bench, ledger, strategy, Fault(failure), Fault(failure))
    assert bench.bodies[0] == bench.bodies[1] == bench.bodies[2]
    assert inputs(bench)[3] == ["user: hello", "call look", OUTPUT]


@pytest.mark.parametrize("strategy", SERVERS)
async def test_when_an_answer_was_lost_a_conversation_is_read_instead_of_asked_and_a_chain_forks(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await faulty(bench, ledger, strategy, Fault(CUT, after=None), Fault(CUT, after=None))
    if strategy is Strategy.CONVERSATION:
        assert inputs(bench) == [["user: hello"], [OUTPUT]]
    else:
        assert inputs(bench) == [*[["user: hello"]] * 3, [OUTPUT]]
        first, *_ = await bench.store.links((await session(bench)).id)
        assert [body.get("previous_response_id") for body in bench.bodies] == [None, None, None, first.id]
    said = "assistant: It is all done, and here is what came of it."
    assert words(await history(bench)) == ["user: hello", "call look", OUTPUT, said]
    assert ledger.ran == ["look"]


@pytest.mark.parametrize("strategy", SERVERS)
@pytest.mark.parametrize("failure", [LOCKED, TryLater("slow down", status=429)])
async def test_when_a_failure_is_known_to_be_safe_the_same_goes_out_again_and_the_next_turn_sends_only_what_is_new(
    bench: Bench, ledger: Ledger, strategy: Strategy, failure: Any
) -> None:
    await faulty(bench, ledger, strategy, Fault(failure))
    assert bench.bodies[0] == bench.bodies[1]
    assert inputs(bench) == [["user: hello"], ["user: hello"], [OUTPUT]]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_piece_of_the_answer_has_come_nothing_is_asked_again(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    """The first answer is a call in five events; the second breaks off behind its first words."""
    with pytest.raises(Unreachable):
        await faulty(bench, ledger, strategy, Fault(CUT, after=4))
    assert (len(bench.bodies), ledger.ran) == (1, [])


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_an_answer_has_only_been_announced_the_same_goes_out_again(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await faulty(bench, ledger, strategy, Fault(TryLater("slow down", status=429), after=2))
    assert (bench.bodies[0] == bench.bodies[1], len(bench.bodies), ledger.ran) == (True, 3, ["look"])


@pytest.mark.parametrize("strategy", CLIENTS)
async def test_when_a_request_is_tried_again_the_input_that_is_kept_stays_and_stands_there_once(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await faulty(bench, ledger, strategy, Fault(DOWN), Fault(DOWN))
    said = "assistant: It is all done, and here is what came of it."
    assert words(await history(bench)) == ["user: hello", "call look", OUTPUT, said]


@pytest.mark.parametrize("strategy", Strategy)
async def test_when_a_request_is_cancelled_it_is_never_tried_again(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    with pytest.raises(asyncio.CancelledError):
        await faulty(bench, ledger, strategy, Fault(asyncio.CancelledError()))
    assert (len(bench.bodies), bench.clock.sleeps_s) == (1, [])


@pytest.mark.parametrize("strategy", CLIENTS)
async def test_when_attempts_failed_each_answer_is_counted_and_no_attempt(
    bench: Bench, ledger: Ledger, strategy: Strategy
) -> None:
    await faulty(bench, ledger, strategy, Fault(DOWN), Fault(DOWN))
    session = await bench.store.session("mine")
    assert session
    links = await bench.store.links(session.id)
    assert (len(bench.bodies), [link.status for link in links]) == (4, ["completed", "completed"])
    assert all(link.usage and link.usage["total_tokens"] for link in links)
