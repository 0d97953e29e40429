"""Limits on responses: size of the output items, number of events, duration.

A response that exceeds a limit is closed, and its connection too; `LimitReached` names the limit.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import TypeVar

from convo.config.settings import ResponseLimits
from convo.errors import LimitReached
from convo.history.accumulator import ITEM_EVENTS, START_EVENTS, TERMINAL_EVENTS
from convo.history.call_ids import CallIdRenamer
from convo.history.items import Json, StreamEvent
from convo.models.http import JSON_VALUE_OVERHEAD_BYTES, TimeSlice

_T = TypeVar("_T")


async def apply_idle_limit(response: Awaitable[_T], limits: ResponseLimits) -> _T:
    """Await a response that is not streamed. Raises LimitReached after the idle limit of a stream."""
    timeout = asyncio.timeout(limits.idle_s)
    try:
        async with timeout:
            return await response
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise LimitReached("idle_s", limits.idle_s) from error


async def limit_response_events(
    events: AsyncGenerator[StreamEvent, None], limits: ResponseLimits, renamer: CallIdRenamer | None = None
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of one response as long as they stay within `limits`; close them at the end.

    renamer:  gives the calls the ids that clients see

    Raises LimitReached.
    """
    loop, size, count = asyncio.get_running_loop(), OutputSize(), 0
    clock = loop.time
    timer = _ReadTimer(clock() + limits.answer_s, clock() + limits.idle_s)
    try:
        while True:
            task = timer.task = asyncio.current_task(loop)
            assert task is not None
            if timer.handle is None:
                timer.start()
            cancellations = task.cancelling()
            try:
                event = await anext(events, None)
            except BaseException as error:
                if timer.limit and task.uncancel() <= cancellations and isinstance(error, asyncio.CancelledError):
                    raise LimitReached(timer.limit, getattr(limits, timer.limit)) from error
                raise
            timer.task = None
            if timer.limit:  # the event came before the cancellation
                task.uncancel()
                timer.limit = None
            if event is None:
                return
            count += 1
            if count > limits.answer_events:
                raise LimitReached("answer_events", limits.answer_events)
            kind = event["type"]
            if kind.startswith("response.") and kind not in START_EVENTS:
                timer.idle_deadline = clock() + limits.idle_s
                delta = event.get("delta")
                if type(delta) is str and kind.endswith(".delta"):  # the commonest events
                    index = event.get("output_index")
                    size.item_bytes[index if type(index) is int else -1] += len(delta)
                    size.size_bytes += len(delta)
                elif kind in _SIZED_EVENTS or kind.endswith(".delta"):
                    await size.add_event(event)
                if size.size_bytes > limits.output_bytes:
                    raise LimitReached("output_bytes", limits.output_bytes)
            if renamer is not None and ("item" in event or "response" in event):
                event = renamer.rename_event(event)
            yield event
    finally:
        if timer.handle is not None:
            timer.handle.cancel()
        await events.aclose()


class _ReadTimer:
    """Cancels the task that reads an event at the deadlines of its stream, in seconds on the loop's clock.

    One timer serves all events: if a deadline has moved when it fires, it is set again.

    task:   the reader; None while an event is being used, which takes no time of the limits
    limit:  the limit for which the reader was cancelled
    """

    def __init__(self, deadline: float, idle_deadline: float) -> None:
        self._deadline, self.idle_deadline = deadline, idle_deadline
        self.task: asyncio.Task[object] | None = None
        self.handle: asyncio.TimerHandle | None = None
        self.limit: str | None = None

    def start(self) -> None:
        self.handle = asyncio.get_running_loop().call_at(min(self._deadline, self.idle_deadline), self._fire)

    def _fire(self) -> None:
        self.handle = None
        if self.task is None:
            return  # the next read starts it
        if asyncio.get_running_loop().time() < min(self._deadline, self.idle_deadline):
            self.start()
        else:
            self.limit = "answer_s" if self._deadline <= self.idle_deadline else "idle_s"
            self.task.cancel()


_PART_ADDED = "response.content_part.added"

_SIZED_EVENTS = ITEM_EVENTS | TERMINAL_EVENTS | {_PART_ADDED}


class OutputSize:
    """Measures the size of a response's items: one byte a character, plus an overhead for each value.

    item_bytes: by `output_index`; events without a valid one are of the item -1
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self.item_bytes: defaultdict[int, int] = defaultdict(int)

    async def add_event(self, event: StreamEvent) -> None:
        """Add a delta, or one of `_SIZED_EVENTS`."""
        event_type, index = event["type"], event.get("output_index")
        index = index if isinstance(index, int) else -1
        if event_type.endswith(".delta"):
            added_bytes = await measure_json_bytes(event.get("delta"))
        elif event_type in ITEM_EVENTS:
            added_bytes = await measure_json_bytes(event.get("item")) - self.item_bytes[index]
        elif event_type == _PART_ADDED:
            added_bytes = await measure_json_bytes(event.get("part"))
        else:
            response = event.get("response")
            output = response.get("output") if isinstance(response, Mapping) else None
            self.size_bytes = max(self.size_bytes, await measure_json_bytes(output))
            return
        self.item_bytes[index] += added_bytes
        self.size_bytes += added_bytes


async def measure_json_bytes(value: Json) -> int:
    """Measure the size of `value` in bytes. The loop yields to other tasks."""
    size, count, pending = 0, 0, [value]
    time_slice: TimeSlice | None = None
    while pending:
        entry = pending.pop()
        if isinstance(entry, str):
            size += len(entry)
        elif isinstance(entry, dict):
            size += JSON_VALUE_OVERHEAD_BYTES + sum(map(len, entry))
            pending.extend(entry.values())
        elif isinstance(entry, list | tuple):
            size += JSON_VALUE_OVERHEAD_BYTES
            pending.extend(entry)
        count += 1
        if count % 256 == 0:
            time_slice = time_slice or TimeSlice()
            await time_slice.checkpoint()
    return size
