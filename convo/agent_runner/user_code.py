"""Call user code: tools, guardrails, instructions, filters.

It may be sync or async and may raise anything, so the outcome is returned as a value and the
caller interprets it. Sync code that can take long runs on daemon threads that nothing waits
for: a tool that never returns keeps its thread, and does not delay the exit of the process.
`IN_USER_CODE` is set while it runs.
"""

import asyncio
import copy
import inspect
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

from convo.agents.agent import Guardrail
from convo.errors import ConvoError, NotCanonical, RunFailed
from convo.history.canonical import item_hash
from convo.history.items import Json
from convo.runs.state import GuardrailPassed, GuardrailTripped, ToolCall
from convo.tools.tool import Context, Tool, Wrong, output_text, read_arguments, timed_out

IN_USER_CODE: Final[ContextVar[bool]] = ContextVar("in_user_code", default=False)
"""True while user code runs."""


@contextmanager
def user_code_scope() -> Iterator[None]:
    """Mark the code of the block as user code."""
    before = IN_USER_CODE.set(True)
    try:
        yield
    finally:
        IN_USER_CODE.reset(before)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The return value of a function, or the exception that it raised."""

    value: Any = None
    exception: BaseException | None = None


async def capture_async(function: Callable[..., Any], *args: Any, in_thread: bool = False) -> CallOutcome:
    """Call a function and await its result if it is awaitable; a cancellation ends the wait.

    Named arguments come in a `functools.partial`, because any name may be one of the function's.

    in_thread:  run a plain function on a thread
    """
    if in_thread and not inspect.iscoroutinefunction(function):
        came = await capture_on_thread(function, *args)
        return await _capture_awaitable(came.value) if inspect.isawaitable(came.value) else came

    async def work() -> Any:
        value = function(*args)
        return await value if inspect.isawaitable(value) else value

    return await _capture_awaitable(work())


async def _capture_awaitable(work: Awaitable[Any]) -> CallOutcome:
    """Return the outcome of `work`; a cancellation of `work` itself is an outcome too."""
    task = asyncio.ensure_future(_capture_system_exit(work))
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    if task.cancelled():
        return CallOutcome(exception=asyncio.CancelledError())
    raised = task.exception()
    return CallOutcome(exception=raised) if raised else task.result()


async def _capture_system_exit(work: Awaitable[Any]) -> CallOutcome:
    """Await `work`; SystemExit is an outcome, so it does not end the event loop."""
    try:
        with user_code_scope():
            return CallOutcome(await work)
    except SystemExit as left:
        return CallOutcome(exception=left)


async def call_user_code(
    description: str, code: str, function: Callable[..., Any], *args: Any, in_thread: bool = False
) -> Any:
    """Return the result of a function. Raises its own ConvoError, and RunFailed for any other exception."""
    came = await capture_async(function, *args, in_thread=in_thread)
    if isinstance(came.exception, ConvoError):
        raise came.exception
    if came.exception is not None:
        raise RunFailed(f"{description} raised {format_exception(came.exception)}", code=code) from came.exception
    return came.value


async def call_user_predicate(description: str, code: str, function: Callable[..., Any], *args: Any) -> bool:
    """Return the result of a function as a bool.

    Raises the errors of `call_user_code`, and RunFailed for a result that has no truth value.
    """
    came = capture(bool, await call_user_code(description, code, function, *args))
    if came.exception is not None:
        raise RunFailed(f"{description} raised {format_exception(came.exception)}", code=code) from came.exception
    return bool(came.value)


def format_exception(error: BaseException) -> str:
    """Format an exception with its type, and its message unless formatting that raises."""
    words = capture(str, error).value
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def capture(function: Callable[..., Any], *args: Any) -> CallOutcome:
    """Call a plain function on this thread."""
    try:
        with user_code_scope():
            return CallOutcome(function(*args))
    except BaseException as raised:  # noqa: BLE001 - any exception is an outcome
        return CallOutcome(exception=raised)


def capture_on_thread(function: Callable[..., Any], *args: Any) -> Awaitable[CallOutcome]:
    """Call a plain function on a daemon thread, which the exit of the process does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[CallOutcome] = loop.create_future()
    context = copy_context()

    def work() -> CallOutcome:
        return context.run(capture, function, *args)

    def told(came: CallOutcome) -> None:
        with suppress(RuntimeError):  # the event loop has been closed
            loop.call_soon_threadsafe(settle, came)

    def settle(came: CallOutcome) -> None:
        if not future.done():
            future.set_result(came)

    submit_to_thread(work, told)
    return future


ThreadJob: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]
"""A function to call and a callback for its result; neither may raise."""

MAX_IDLE_THREADS = 8
"""Threads that are kept without work."""

_idle_queues: deque[SimpleQueue[ThreadJob]] = deque()
"""The queue of each idle thread, the one that became idle last at the end."""

os.register_at_fork(after_in_child=_idle_queues.clear)


def submit_to_thread(work: Callable[[], Any], on_done: Callable[[Any], None]) -> None:
    """Run `work` on a thread, and call `on_done` on that thread with its result."""
    try:
        listening = _idle_queues.pop()
    except IndexError:
        listening = SimpleQueue()
        Thread(target=_run_worker, args=(listening,), daemon=True, name="convo-worker").start()
    listening.put((work, on_done))


def _run_worker(queue: SimpleQueue[ThreadJob]) -> None:
    """Run one job after the other. `on_done` may submit the next job at once, so the thread becomes idle before it."""
    staying = True
    while staying:
        work, told = queue.get()
        came = work()
        staying = len(_idle_queues) < MAX_IDLE_THREADS
        if staying:
            _idle_queues.append(queue)
        told(came)
        del work, told, came


TOOL_FAILED_CODE = "tool_failed"
TOOL_TIMEOUT_CODE = "tool_timeout"


async def run_tool_call(call: ToolCall, context: Context) -> Json:
    """Run the tool of `call` and return the output for the model.

    Raises RunFailed for a failure without a message of the tool.
    """
    tool = call.tool
    assert tool
    arguments = read_arguments(tool, call.arguments)
    if tool.record is None:
        given: dict[str, Any] = {}
        first: tuple[Any, ...] = (context, call.arguments)
    elif isinstance(arguments, Wrong):
        return arguments.words
    else:
        given, first = arguments, (context,) if tool.takes_context else ()
    try:
        async with asyncio.timeout(tool.timeout_s):
            came = await capture_async(partial(tool.run, *first, **given), in_thread=True)
    except TimeoutError:
        return _make_timeout_output(tool)
    if came.exception is None:
        came = capture(tool.serialize or output_text, came.value)  # str() of a user's object may raise
    if came.exception is not None:
        return make_failure_output(tool, came.exception)
    return _ensure_json_output(tool, came.value)


def _make_timeout_output(tool: Tool) -> Json:
    assert tool.timeout_s is not None
    words = timed_out(tool.title, tool.timeout_s)
    if tool.on_timeout == "fail":
        raise RunFailed(words.rstrip("."), code=TOOL_TIMEOUT_CODE)
    return words


def make_failure_output(tool: Tool, error: BaseException) -> Json:
    """Return the tool's own message for a failure. Raises RunFailed when it has none or making it raised."""
    failed = f"tool {tool.title!r} raised {format_exception(error)}"
    words = tool.failure
    if words is None or not isinstance(error, Exception):
        raise RunFailed(failed, code=TOOL_FAILED_CODE) from error
    came = capture(lambda: output_text(words(error)))
    if came.exception is not None:
        raise RunFailed(
            f"{failed}, and its failure function raised {format_exception(came.exception)}", code=TOOL_FAILED_CODE
        ) from came.exception
    return came.value


def _ensure_json_output(tool: Tool, output: Json) -> Json:
    try:
        item_hash({"output": output})
    except NotCanonical as wrong:
        return make_failure_output(tool, wrong)
    return output


GUARDRAIL_FAILED_CODE = "guardrail_failed"


async def run_guardrail(
    guardrail: Guardrail, index: int, context: Context, value: Json
) -> GuardrailPassed | GuardrailTripped:
    """Run a guardrail on `value`. Raises RunFailed when it raised."""
    what = f"guardrail {guardrail.name!r}"
    reason = await call_user_code(
        what, GUARDRAIL_FAILED_CODE, guardrail.check, context, copy.deepcopy(value), in_thread=True
    )
    return GuardrailPassed(index) if reason is None else GuardrailTripped(index, str(reason))
