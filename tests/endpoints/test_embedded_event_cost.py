"""Fair scheduling: other tasks run while a response stream is read."""

import asyncio
from collections.abc import AsyncGenerator

from convo.history.items import StreamEvent
from convo.responses_api.turn import EVENTS_PER_LOOP_PASS, ResponseStream

EVENTS = 50 * EVENTS_PER_LOOP_PASS


async def test_other_tasks_run_between_the_events_of_an_immediate_answer() -> None:
    async def immediate_events() -> AsyncGenerator[StreamEvent, None]:
        for number in range(EVENTS):
            yield {"type": "response.output_text.delta", "delta": str(number)}

    turns: list[int] = []

    async def count_turns() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    task, stream = asyncio.create_task(count_turns()), ResponseStream(immediate_events())
    event = await stream.read_first()
    for _ in range(EVENTS - 1):
        event = await stream.read_next(event)
    task.cancel()

    assert event["delta"] == str(EVENTS - 1)
    assert len(turns) >= 40
