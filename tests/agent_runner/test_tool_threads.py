"""Threads for tools: used again, never waited for, and told of what the caller knows."""

import asyncio
import contextvars
import subprocess
import sys
from threading import Event, current_thread, get_ident
from typing import Any

import pytest

from convo.agent_runner import user_code
from convo.agent_runner.user_code import CallOutcome, capture_async, capture_on_thread
from tests.command_runner import ROOT

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who")

STUCK = """
import asyncio, os, threading
from convo.agent_runner.user_code import capture_on_thread

async def two():
    return (await capture_on_thread(threading.get_ident)).value != threading.get_ident()

assert asyncio.run(two())
child = os.fork()
if not child:
    os._exit(0 if asyncio.run(two()) else 1)
assert os.waitpid(child, 0)[1] == 0

async def stuck():
    try:
        await asyncio.wait_for(capture_on_thread(threading.Event().wait), 0.01)
    except TimeoutError:
        return await two()

assert asyncio.run(stuck())
print("left")
"""


async def test_a_thread_that_is_done_takes_the_next_call() -> None:
    idents = [(await capture_on_thread(get_ident)).value for _ in range(20)]
    assert len(set(idents)) == 1
    assert idents[0] != get_ident()


async def test_calls_at_once_have_a_thread_each_and_few_of_them_stay() -> None:
    go, together = Event(), 3 * user_code.MAX_IDLE_THREADS

    def wait() -> int:
        go.wait()
        return get_ident()

    calls = [capture_on_thread(wait) for _ in range(together)]
    go.set()
    came = await asyncio.gather(*calls)
    assert len({one.value for one in came}) == together
    assert len(user_code._idle_queues) <= user_code.MAX_IDLE_THREADS


async def test_a_call_knows_what_its_caller_knew_and_changes_nothing_of_it() -> None:
    WHO.set("Ada")

    def renamed() -> str:
        before = WHO.get()
        WHO.set("somebody")
        return before

    assert [(await capture_on_thread(renamed)).value for _ in range(2)] == ["Ada", "Ada"]
    assert WHO.get() == "Ada"


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_a_call_raises_is_what_came_of_it_and_its_thread_goes_on(raised: BaseException) -> None:
    def fails() -> Any:
        raise raised

    assert (await capture_on_thread(fails)).exception is raised
    assert (await capture_on_thread(lambda: "on")).value == "on"


async def test_a_call_that_is_not_waited_for_any_more_stands_in_nobodys_way() -> None:
    go, done = Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def late() -> str:
        go.wait()
        loop.call_soon_threadsafe(done.set)
        return current_thread().name

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await capture_async(late, in_thread=True)
    assert await capture_async(lambda: "next", in_thread=True) == CallOutcome("next")
    go.set()
    await done.wait()


def test_a_call_that_never_returns_keeps_nobody_from_leaving_and_a_forked_child_has_threads_of_its_own() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", STUCK]  # Python 3.12 warns of such a fork
    got = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (got.stdout, got.stderr, got.returncode) == ("left\n", "", 0)
