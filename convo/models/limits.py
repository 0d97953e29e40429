"""Limits on responses: size of the output items, number of events, duration.

A response that exceeds a limit is closed, and its connection too; `LimitReached` names the limit.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing
from typing import TypeVar

from convo.config.settings import ResponseLimits
from convo.errors import LimitReached
from convo.history.accumulator import ITEM_EVENTS, START_EVENTS, TERMINAL_EVENTS
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
    events: AsyncGenerator[StreamEvent, None], limits: ResponseLimits
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of one response as long as they stay within `limits`; close them at the end.

    Raises LimitReached.
    """
    clock, size, count = asyncio.get_running_loop().time, OutputSize(), 0
    deadline = clock() + limits.answer_s
    idle_deadline = clock() + limits.idle_s
    async with aclosing(events):
        while True:
            timeout = asyncio.timeout_at(min(deadline, idle_deadline))
            try:
                async with timeout:
                    event = await anext(events, None)
            except TimeoutError as error:
                if not timeout.expired():
                    raise
                limit = "answer_s" if deadline <= idle_deadline else "idle_s"
                raise LimitReached(limit, getattr(limits, limit)) from error
            if event is None:
                return
            count += 1
            if count > limits.answer_events:
                raise LimitReached("answer_events", limits.answer_events)
            if event["type"].startswith("response.") and event["type"] not in START_EVENTS:
                idle_deadline = clock() + limits.idle_s
                await size.add_event(event)
                if size.size_bytes > limits.output_bytes:
                    raise LimitReached("output_bytes", limits.output_bytes)
            yield event


class OutputSize:
    """Measures the size of a response's items: one byte a character, plus an overhead for each value."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._item_sizes: dict[int, int] = {}

    async def add_event(self, event: StreamEvent) -> None:
        event_type, index = event["type"], event.get("output_index")
        index = index if isinstance(index, int) else -1
        if event_type.endswith(".delta"):
            delta = event.get("delta")
            self._add(index, len(delta) if isinstance(delta, str) else await measure_json_bytes(delta))
        elif event_type in ITEM_EVENTS:
            self._add(index, await measure_json_bytes(event.get("item")) - self._item_sizes.get(index, 0))
        elif event_type == "response.content_part.added":
            self._add(index, await measure_json_bytes(event.get("part")))
        elif event_type in TERMINAL_EVENTS:
            response = event.get("response")
            output = response.get("output") if isinstance(response, Mapping) else None
            self.size_bytes = max(self.size_bytes, await measure_json_bytes(output))

    def _add(self, index: int, size: int) -> None:
        self._item_sizes[index] = self._item_sizes.get(index, 0) + size
        self.size_bytes += size


async def measure_json_bytes(value: Json) -> int:
    """Measure the size of `value` in bytes. The loop yields to other tasks."""
    size, count, pending, time_slice = 0, 0, [value], TimeSlice()
    while pending:
        entry = pending.pop()
        if isinstance(entry, str):
            size += len(entry)
        elif isinstance(entry, Mapping):
            size += JSON_VALUE_OVERHEAD_BYTES + sum(map(len, entry))
            pending.extend(entry.values())
        elif isinstance(entry, list | tuple):
            size += JSON_VALUE_OVERHEAD_BYTES
            pending.extend(entry)
        count += 1
        if count % 256 == 0:
            await time_slice.checkpoint()
    return size
