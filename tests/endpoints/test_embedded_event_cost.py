"""Fair scheduling: other tasks run while a response stream is read."""

import asyncio
from collections.abc import AsyncGenerator

from convo.history.items import StreamEvent
from convo.responses_api.turn import EVENTS_PER_LOOP_PASS, ResponseStream

EVENTS = 50 * EVENTS_PER_LOOP_PASS


async def test_other_tasks_run_between_the_events_of_an_immediate_answer() -> None:
    async def all_at_once() -> AsyncGenerator[StreamEvent, None]:
        for number in range(EVENTS):
            yield {"type": "response.output_text.delta", "delta": str(number)}

    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    beside, heard = asyncio.create_task(other()), ResponseStream(all_at_once())
    event = await heard.read_first()
    for _ in range(EVENTS - 1):
        event = await heard.read_next(event)
    beside.cancel()

    assert event["delta"] == str(EVENTS - 1)
    assert len(turns) >= 40
