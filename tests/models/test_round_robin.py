"""Busy streams of one event loop run one after the other."""

import asyncio

from convo.models.http import RoundRobin


class CountedRoundRobin(RoundRobin):
    """Counts the passes of the event loop in which the queue selects a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.pass_count = 0

    def _wake_next(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pass_count += 1
        super()._wake_next(loop)


async def test_one_stream_runs_in_each_pass_and_an_empty_queue_needs_none() -> None:
    queue, order = CountedRoundRobin(), list[tuple[str, int]]()

    async def stream(name: str) -> None:
        for _ in range(2):
            await queue.wait_turn()
            order.append((name, queue.pass_count))

    await asyncio.gather(stream("a"), stream("b"), stream("c"))
    assert [name for name, _ in order] == ["a", "b", "c", "a", "b", "c"]
    assert len({pass_number for _, pass_number in order}) == 6
    passes = queue.pass_count
    for _ in range(5):
        await asyncio.sleep(0)
    assert queue.pass_count == passes


async def test_a_stream_that_was_cancelled_while_it_waited_needs_no_pass() -> None:
    queue = CountedRoundRobin()
    first, second = (asyncio.ensure_future(queue.wait_turn()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    await second
    assert (first.cancelled(), queue.pass_count) == (True, 1)
