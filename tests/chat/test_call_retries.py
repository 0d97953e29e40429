"""Retries of a request and their delays. Only sleeping advances the clock."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from convo.chat.turn import MAX_RETRY_AFTER_S, MAX_TRIES, StartedStream, open_with_retry
from convo.errors import NO_CONNECTION, ConvoError, RequestRefused, StreamBroken, TryLater, Unreachable
from convo.history.items import StreamEvent
from convo.history.records import Strategy
from tests.clock import FixedClock

CREATED: StreamEvent = {"type": "response.created"}
ITEM_ADDED: StreamEvent = {"type": "response.output_item.added"}
DELTA: StreamEvent = {"type": "response.output_text.delta"}

DOWN = TryLater("The server is overloaded", status=503)
LIMITED = TryLater("Rate limit reached", status=429)
LOCKED = TryLater("Another process is at it", code="conversation_locked", status=400)
CUT = Unreachable("the connection broke")


@dataclass
class ScriptedCalls:
    """The results of the attempts, in order: an error before the first event, a list of events, or None."""

    attempts: list[ConvoError | list[StreamEvent | ConvoError] | None]
    clock: FixedClock = field(default_factory=FixedClock)
    notes: list[str] = field(default_factory=list)
    tail_checks: int = 0
    tries: int = 0
    closed: int = 0

    async def call(self, strategy: Strategy = Strategy.SESSION) -> StartedStream | None:
        return await open_with_retry(
            self.open, strategy, self.clock, check_tail=self.check_tail, notify=self.notes.append
        )

    async def open(self) -> AsyncGenerator[StreamEvent, None] | None:
        self.tries += 1
        attempt = self.attempts.pop(0)
        if isinstance(attempt, ConvoError):
            raise attempt
        return None if attempt is None else self.stream(attempt)

    async def stream(self, events: list[StreamEvent | ConvoError]) -> AsyncGenerator[StreamEvent, None]:
        try:
            for event in events:
                if isinstance(event, ConvoError):
                    raise event
                yield event
        finally:
            self.closed += 1

    def check_tail(self) -> None:
        self.tail_checks += 1


async def test_a_response_is_returned_with_its_first_delta() -> None:
    calls = ScriptedCalls([[CREATED, ITEM_ADDED, DELTA]])
    started = await calls.call()
    assert started
    assert started.first_events == [CREATED, ITEM_ADDED]
    assert [event async for event in started.stream] == [DELTA]
    assert (calls.tries, calls.clock.sleeps_s, calls.notes) == (1, [], [])


async def test_retry_delays_grow_from_one_second_and_differ_between_clients() -> None:
    """Clients that fail at the same time must not retry at the same time."""
    delays = []
    for _ in range(20):
        calls = ScriptedCalls([DOWN, DOWN, DOWN, [ITEM_ADDED]])
        assert await calls.call()
        delays.append(calls.clock.sleeps_s)
    for base, column in zip((1, 2, 4), zip(*delays, strict=True), strict=True):
        assert base <= min(column) < max(column) <= base + 0.25
        assert len(set(column)) > 10
    assert calls.notes == [
        f"The server is overloaded; retry {number} of 3 in {base} s: nothing was stored, so it is safe to retry"
        for number, base in ((1, 1), (2, 2), (3, 4))
    ]


async def test_after_four_attempts_the_last_error_is_raised() -> None:
    last = TryLater("still overloaded", status=503)
    calls = ScriptedCalls([DOWN, DOWN, DOWN, last, [ITEM_ADDED]])
    with pytest.raises(TryLater, match="still overloaded"):
        await calls.call()
    assert (calls.tries, len(calls.clock.sleeps_s)) == (MAX_TRIES, MAX_TRIES - 1)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 20.0, MAX_RETRY_AFTER_S])
async def test_a_retry_after_time_of_the_endpoint_is_kept_exactly(seconds: float) -> None:
    calls = ScriptedCalls([TryLater("Rate limit reached", status=429, retry_after_s=seconds), [ITEM_ADDED]])
    assert await calls.call()
    assert calls.clock.sleeps_s == [seconds]


async def test_a_long_retry_after_time_raises_the_error_without_a_retry() -> None:
    calls = ScriptedCalls([TryLater("Come back tomorrow", status=429, retry_after_s=86_400.0), [ITEM_ADDED]])
    with pytest.raises(TryLater, match="Come back tomorrow"):
        await calls.call()
    assert (calls.tries, calls.clock.sleeps_s) == (1, [])


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", [LIMITED, LOCKED])
async def test_a_rejected_request_needs_no_check_before_a_retry(strategy: Strategy, failure: ConvoError) -> None:
    calls = ScriptedCalls([failure, [ITEM_ADDED]])
    assert await calls.call(strategy)
    assert calls.tail_checks == 0


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", [DOWN, CUT])
async def test_only_a_conversation_is_read_before_a_retry_with_unknown_outcome(
    strategy: Strategy, failure: ConvoError
) -> None:
    calls = ScriptedCalls([failure, failure, [ITEM_ADDED]])
    assert await calls.call(strategy)
    assert calls.tail_checks == (2 if strategy is Strategy.CONVERSATION else 0)


async def test_a_request_that_the_conversation_has_answered_is_not_retried() -> None:
    calls = ScriptedCalls([CUT, None])
    assert await calls.call(Strategy.CONVERSATION) is None
    assert (calls.tries, calls.tail_checks) == (2, 1)


@pytest.mark.parametrize(
    "failure", [RequestRefused("no"), StreamBroken("cut"), Unreachable("no such host", code=NO_CONNECTION)]
)
async def test_a_permanent_error_is_raised_without_a_retry(failure: ConvoError) -> None:
    calls = ScriptedCalls([failure, [ITEM_ADDED]])
    with pytest.raises(type(failure)):
        await calls.call()
    assert (calls.tries, calls.clock.sleeps_s, calls.notes) == (1, [], [])


@pytest.mark.parametrize("events", [[], [CREATED]])
async def test_a_stream_that_ends_before_an_answer_is_an_error(events: list[StreamEvent | ConvoError]) -> None:
    calls = ScriptedCalls([events, [ITEM_ADDED]])
    with pytest.raises(StreamBroken, match="ended before a response began"):
        await calls.call()
    assert calls.tries == 1


async def test_a_stream_that_fails_before_its_first_delta_is_closed_and_retried() -> None:
    calls = ScriptedCalls([[CREATED, DOWN], [CREATED, ITEM_ADDED]])
    assert await calls.call()
    assert (calls.tries, calls.closed) == (2, 1)


async def test_an_error_after_the_first_delta_is_raised_to_the_reader() -> None:
    calls = ScriptedCalls([[ITEM_ADDED, DOWN], [ITEM_ADDED]])
    started = await calls.call()
    assert started
    with pytest.raises(TryLater):
        [event async for event in started.stream]
    assert calls.tries == 1


async def test_a_stream_of_start_events_only_is_closed() -> None:
    calls = ScriptedCalls([[CREATED] * 2000])
    with pytest.raises(StreamBroken) as caught:
        await calls.call()
    assert (calls.closed, caught.value.message) == (1, "the endpoint sent only start events, and too many of them")
