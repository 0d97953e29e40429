"""A response is measured event by event and closed at the limit."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from contextvars import Context
from typing import Any, TypeVarTuple

import pytest

from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import LimitReached
from convo.history.items import Item, StreamEvent, user_message
from convo.models.base import Model, ModelRequest
from convo.models.limits import apply_idle_limit, limit_response_events
from convo.models.provider_model import ProviderModel
from tests.models.model_calls import collect_events


def delta(text: Any, index: Any = 0) -> StreamEvent:
    return {"type": "response.output_text.delta", "output_index": index, "delta": text}


def item(kind: str, value: Any, index: int = 0) -> StreamEvent:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": value}


def ending(output: Any, kind: str = "completed") -> StreamEvent:
    return {"type": f"response.{kind}", "response": {"output": output}}


PART: StreamEvent = {"type": "response.content_part.added", "output_index": 0, "part": {"text": "abc"}}

SIZES: list[tuple[list[StreamEvent], int]] = [
    ([], 0),
    ([delta("abc"), delta("de")], 5),
    ([delta("abc", None), delta("de", 1)], 5),
    ([delta({"audio": "abc"})], 64 + 5 + 3),
    ([PART], 64 + 4 + 3),
    ([item("added", {"a": "b"})], 64 + 2),
    ([item("added", {"a": "b"}), delta("xyz"), item("done", {"a": "bxyz"})], 64 + 5),
    ([item("added", {"a": "b"}), item("added", {"a": "b"}, 1), item("done", {"a": "b"}, 1)], 2 * 66),
    ([delta("abc"), ending([{"a": "b"}])], 64 + 66),
    ([delta("x" * 300), ending([{"a": "b"}])], 300),
    ([ending([{"a": "b"}], "incomplete")], 64 + 66),
    ([{"type": "response.failed", "response": None}], 0),
    ([{"type": "response.output_text.done", "text": "abc"}], 0),
    ([item("added", None)], 0),
    ([item("added", 7)], 0),
    ([item("added", "größe")], 5),
    ([item("added", ["a", ["b"]])], 130),
    ([item("added", {"ab": {"c": True}})], 131),
]


Arguments = TypeVarTuple("Arguments")


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock changes only by `advance`."""

    now_s = 0.0
    timer_count = 0

    def time(self) -> float:
        return self.now_s

    def call_at(
        self, when: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.timer_count += 1
        return super().call_at(when, callback, *args, context=context)

    async def advance(self, seconds: float) -> None:
        """Add `seconds` to the time and run the timers that are due."""
        self.now_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)


async def stream(*events: StreamEvent | float) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events; a number is a pause in seconds, in a `SteppedLoop`."""
    for event in events:
        if isinstance(event, float):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SteppedLoop)
            await loop.advance(event)
        else:
            yield event


async def read(limits: ResponseLimits, *events: StreamEvent | float) -> tuple[int, LimitReached | None]:
    """Return the number of events that pass, and the limit that ended them."""
    forwarded = 0
    try:
        async with aclosing(limit_response_events(stream(*events), limits)) as limited_events:
            async for _ in limited_events:
                forwarded += 1
    except LimitReached as limit_error:
        return forwarded, limit_error
    return forwarded, None


@pytest.mark.parametrize(
    ("limits", "events", "forwarded", "limit"),
    [
        (ResponseLimits(answer_events=2), [delta("a")] * 2, 2, None),
        (ResponseLimits(answer_events=2), [delta("a")] * 3, 2, "answer_events"),
        (ResponseLimits(output_bytes=3), [delta("a")] * 3, 3, None),
        (ResponseLimits(output_bytes=3), [delta("a")] * 4, 3, "output_bytes"),
        (ResponseLimits(output_bytes=0), [{"type": "keepalive.delta", "delta": "a"}], 1, None),
        (ResponseLimits(output_bytes=0), [delta("")], 1, None),
    ],
)
async def test_data_up_to_the_limit_passes_and_no_more(
    limits: ResponseLimits, events: list[StreamEvent], forwarded: int, limit: str | None
) -> None:
    read_events, limit_error = await read(limits, *events)

    assert read_events == forwarded
    if limit is None:
        assert limit_error is None
    else:
        assert limit_error is not None
        assert (limit_error.limit, limit_error.maximum) == (f"limits.{limit}", getattr(limits, limit))


@pytest.mark.parametrize(("events", "size"), SIZES)
async def test_each_text_is_counted_once_with_64_bytes_for_each_object_and_list(
    events: list[StreamEvent], size: int
) -> None:
    assert await read(ResponseLimits(output_bytes=size), *events) == (len(events), None)
    if size:
        forwarded, limit_error = await read(ResponseLimits(output_bytes=size - 1), *events)
        assert forwarded < len(events)
        assert limit_error is not None


SILENT: dict[str, list[StreamEvent | float]] = {
    kind: [6.0, {"type": kind}, 6.0, {"type": kind}] for kind in ("keepalive", "response.in_progress")
}


def read_with_stepped_clock(limits: ResponseLimits, *events: StreamEvent | float) -> tuple[int, LimitReached | None]:
    """Like `read`, with a clock that only the pauses change."""
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        return runner.run(read(limits, *events))


@pytest.mark.parametrize("events", SILENT.values(), ids=SILENT)
def test_an_event_without_output_does_not_extend_the_idle_limit(events: list[StreamEvent | float]) -> None:
    forwarded, limit_error = read_with_stepped_clock(ResponseLimits(idle_s=10, answer_s=100), *events)

    assert forwarded == 1
    assert limit_error is not None
    assert (limit_error.limit, limit_error.maximum) == ("limits.idle_s", 10)


def test_output_extends_the_idle_limit() -> None:
    limits = ResponseLimits(idle_s=10, answer_s=100)

    assert read_with_stepped_clock(limits, delta("a"), 6.0, delta("b"), 6.0, delta("c"), 6.0, delta("d")) == (4, None)


def test_the_limit_of_the_whole_response_counts_from_its_start() -> None:
    forwarded, limit_error = read_with_stepped_clock(
        ResponseLimits(answer_s=10), delta("a"), 6.0, delta("b"), 6.0, delta("c")
    )

    assert forwarded == 2
    assert limit_error is not None
    assert (limit_error.limit, limit_error.maximum) == ("limits.answer_s", 10)


def test_all_events_between_two_deadlines_share_one_timer() -> None:
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(read(ResponseLimits(idle_s=10), *(delta("a"), 4.0) * 5))
        loop = runner.get_loop()
    assert isinstance(loop, SteppedLoop)
    assert loop.timer_count == 3  # at 10 s, at 18 s because of the event at 8 s, and at 26 s


@pytest.mark.parametrize(("pause", "is_refused"), [((), False), ((0.0,), True)])
def test_the_time_in_which_an_event_is_used_ends_a_read_only_if_it_waits(
    pause: tuple[float, ...], is_refused: bool
) -> None:
    async def use_slowly() -> list[StreamEvent]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteppedLoop)
        source = stream(delta("a"), *pause, ending([]))
        events = []
        async with aclosing(limit_response_events(source, ResponseLimits(idle_s=10))) as limited_events:
            async for event in limited_events:
                events.append(event)
                await loop.advance(20)
        return events

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        if is_refused:
            with pytest.raises(LimitReached, match=r"limits\.idle_s"):
                runner.run(use_slowly())
        else:
            assert len(runner.run(use_slowly())) == 2


async def test_a_cancellation_from_outside_at_the_limit_stays_one() -> None:
    closed = asyncio.Event()

    async def silent() -> AsyncGenerator[StreamEvent, None]:
        try:
            yield delta("a")
            reader.cancel()
            await asyncio.sleep(30)
        finally:
            closed.set()

    async def read_all() -> None:
        _ = [event async for event in limit_response_events(silent(), ResponseLimits(idle_s=0.0))]

    reader = asyncio.create_task(read_all())
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert closed.is_set()


async def test_a_timeout_of_the_source_is_passed_on_unchanged() -> None:
    async def timed_out() -> AsyncGenerator[StreamEvent, None]:
        yield delta("a")
        raise TimeoutError("its own")

    async def answer() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        _ = [event async for event in limit_response_events(timed_out(), DEFAULT_RESPONSE_LIMITS)]
    with pytest.raises(TimeoutError, match="its own"):
        await apply_idle_limit(answer(), DEFAULT_RESPONSE_LIMITS)


class Silent(Model):
    """A model that waits before every result; `calls` has the calls that reached it."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self._wait_s = wait_s
        self.calls: list[str] = []

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.calls.append("respond")
        yield delta("ab")
        await asyncio.sleep(self._wait_s)
        yield ending([])

    async def warm(self, model: str) -> None:
        self.calls.append(f"warm {model}")

    async def check_request(self, request: ModelRequest) -> None:
        self.calls.append("check")

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return ("seed",)

    async def count(self, request: ModelRequest) -> int | None:
        await asyncio.sleep(self._wait_s)
        return 7

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        await asyncio.sleep(self._wait_s)
        return [user_message("short")]

    async def aclose(self) -> None:
        self.calls.append("close")


REQUEST = ModelRequest("m", [user_message("hi")])


async def test_a_provider_model_is_warmed_once_and_forwards_every_call() -> None:
    model = Silent()
    provider_model = ProviderModel(model, DEFAULT_RESPONSE_LIMITS)
    events: list[StreamEvent] = []

    await collect_events(events, provider_model, REQUEST)
    await collect_events(events, provider_model, REQUEST)
    await provider_model.warm("n")
    await provider_model.check_request(REQUEST)

    assert events == [delta("ab"), ending([])] * 2
    assert (await provider_model.count(REQUEST), await provider_model.compact(REQUEST)) == (7, [user_message("short")])
    assert provider_model.ignored_fields(REQUEST) == ("seed",)
    await provider_model.aclose()
    assert model.calls == ["warm m", "respond", "respond", "warm n", "check", "close"]


async def test_a_provider_model_applies_its_limits_to_every_result() -> None:
    provider_model = ProviderModel(Silent(wait_s=30), ResponseLimits(idle_s=0.01))

    for pending in (
        collect_events([], provider_model, REQUEST),
        provider_model.count(REQUEST),
        provider_model.compact(REQUEST),
    ):
        with pytest.raises(LimitReached) as error:
            await pending
        assert (error.value.limit, error.value.maximum) == ("limits.idle_s", 0.01)
