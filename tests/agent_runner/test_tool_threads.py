"""Worker threads for tools: reuse, abandoned calls, exceptions and context variables."""

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

USER: contextvars.ContextVar[str] = contextvars.ContextVar("who")

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


async def test_an_idle_thread_runs_the_next_call() -> None:
    idents = [(await capture_on_thread(get_ident)).value for _ in range(20)]
    assert len(set(idents)) == 1
    assert idents[0] != get_ident()


async def test_concurrent_calls_have_a_thread_each_and_few_threads_remain() -> None:
    release, thread_count = Event(), 3 * user_code.MAX_IDLE_THREADS

    def wait() -> int:
        release.wait()
        return get_ident()

    calls = [capture_on_thread(wait) for _ in range(thread_count)]
    release.set()
    results = await asyncio.gather(*calls)
    assert len({one.value for one in results}) == thread_count
    assert len(user_code._idle_queues) <= user_code.MAX_IDLE_THREADS


async def test_a_call_inherits_the_context_variables_of_its_caller_and_cannot_change_them() -> None:
    USER.set("Ada")

    def renamed() -> str:
        before = USER.get()
        USER.set("somebody")
        return before

    assert [(await capture_on_thread(renamed)).value for _ in range(2)] == ["Ada", "Ada"]
    assert USER.get() == "Ada"


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
async def test_any_exception_of_a_call_is_its_result_and_the_thread_stays_usable(raised: BaseException) -> None:
    def fails() -> Any:
        raise raised

    assert (await capture_on_thread(fails)).exception is raised
    assert (await capture_on_thread(lambda: "on")).value == "on"


async def test_an_abandoned_call_does_not_block_others() -> None:
    release, done = Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def late() -> str:
        release.wait()
        loop.call_soon_threadsafe(done.set)
        return current_thread().name

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await capture_async(late, in_thread=True)
    assert await capture_async(lambda: "next", in_thread=True) == CallOutcome("next")
    release.set()
    await done.wait()


def test_an_endless_call_does_not_prevent_the_exit_and_a_forked_child_has_its_own_threads() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", STUCK]  # Python 3.12 warns about this fork
    got = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (got.stdout, got.stderr, got.returncode) == ("left\n", "", 0)
