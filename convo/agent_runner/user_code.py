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
from convo.tools.tool import NO_VALUES, Context, InvalidArguments, Tool, output_text, read_arguments, timeout_message

IN_USER_CODE: Final[ContextVar[bool]] = ContextVar("in_user_code", default=False)
"""True while user code runs."""


@contextmanager
def user_code_scope() -> Iterator[None]:
    """Mark the code of the block as user code."""
    token = IN_USER_CODE.set(True)
    try:
        yield
    finally:
        IN_USER_CODE.reset(token)


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
        outcome = await capture_on_thread(function, *args)
        return await _capture_awaitable(outcome.value) if inspect.isawaitable(outcome.value) else outcome

    async def work() -> Any:
        value = function(*args)
        return await value if inspect.isawaitable(value) else value

    return await _capture_awaitable(work())


async def _capture_awaitable(awaitable: Awaitable[Any]) -> CallOutcome:
    """Return the outcome of `awaitable`; a cancellation of `awaitable` itself is an outcome too."""
    task = asyncio.ensure_future(_capture_system_exit(awaitable))
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    if task.cancelled():
        return CallOutcome(exception=asyncio.CancelledError())
    error = task.exception()
    return CallOutcome(exception=error) if error else task.result()


async def _capture_system_exit(awaitable: Awaitable[Any]) -> CallOutcome:
    """Await `awaitable`; SystemExit is an outcome, so it does not end the event loop."""
    try:
        with user_code_scope():
            return CallOutcome(await awaitable)
    except SystemExit as error:
        return CallOutcome(exception=error)


async def call_user_code(
    description: str, code: str, function: Callable[..., Any], *args: Any, in_thread: bool = False
) -> Any:
    """Return the result of a function. Raises its own ConvoError, and RunFailed for any other exception."""
    outcome = await capture_async(function, *args, in_thread=in_thread)
    if isinstance(outcome.exception, ConvoError):
        raise outcome.exception
    if outcome.exception is not None:
        message = format_exception(outcome.exception)
        lacks_context = any(isinstance(arg, Context) and arg.values is NO_VALUES for arg in args)
        hint = "name the context with --context" if lacks_context and "'NoneType' object" in message else None
        raise RunFailed(f"{description} raised {message}", code=code, hint=hint) from outcome.exception
    return outcome.value


async def call_user_predicate(description: str, code: str, function: Callable[..., Any], *args: Any) -> bool:
    """Return the result of a function as a bool.

    Raises the errors of `call_user_code`, and RunFailed for a result that has no truth value.
    """
    outcome = capture(bool, await call_user_code(description, code, function, *args))
    if outcome.exception is not None:
        raise RunFailed(f"{description} raised {format_exception(outcome.exception)}", code=code) from outcome.exception
    return bool(outcome.value)


def format_exception(error: BaseException) -> str:
    """Format an exception with its type, and its message unless formatting that raises."""
    message = capture(str, error).value
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def capture(function: Callable[..., Any], *args: Any) -> CallOutcome:
    """Call a plain function on this thread."""
    try:
        with user_code_scope():
            return CallOutcome(function(*args))
    except BaseException as error:  # noqa: BLE001 - any exception is an outcome
        return CallOutcome(exception=error)


def capture_on_thread(function: Callable[..., Any], *args: Any) -> Awaitable[CallOutcome]:
    """Call a plain function on a daemon thread, which the exit of the process does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[CallOutcome] = loop.create_future()
    context = copy_context()

    def work() -> CallOutcome:
        return context.run(capture, function, *args)

    def deliver(outcome: CallOutcome) -> None:
        with suppress(RuntimeError):  # the event loop has been closed
            loop.call_soon_threadsafe(settle, outcome)

    def settle(outcome: CallOutcome) -> None:
        if not future.done():
            future.set_result(outcome)

    submit_to_thread(work, deliver)
    return future


ThreadJob: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]
"""A function to call and a callback for its result; neither may raise."""

MAX_IDLE_THREADS = 8
"""Threads that are kept without work."""

_idle_queues: deque[SimpleQueue[ThreadJob]] = deque()
"""The queue of each idle thread; the thread that became idle last is at the end."""

# A fork copies no threads: the child would give its job to a worker that does not exist.
os.register_at_fork(after_in_child=_idle_queues.clear)


def submit_to_thread(function: Callable[[], Any], on_done: Callable[[Any], None]) -> None:
    """Run `function` on a thread, and call `on_done` on that thread with its result."""
    try:
        queue = _idle_queues.pop()
    except IndexError:
        queue = SimpleQueue()
        Thread(target=_run_worker, args=(queue,), daemon=True, name="convo-worker").start()
    queue.put((function, on_done))


def _run_worker(queue: SimpleQueue[ThreadJob]) -> None:
    """Run one job after the other. `on_done` may submit the next job at once, so the thread becomes idle before it."""
    is_kept = True
    while is_kept:
        work, on_done = queue.get()
        result = work()
        _idle_queues.append(queue)
        if len(_idle_queues) > MAX_IDLE_THREADS:
            with suppress(ValueError):  # the thread has its next job already
                _idle_queues.remove(queue)
                is_kept = False
        on_done(result)
        # An idle thread would keep the last result in memory.
        del work, on_done, result


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
        named_arguments: dict[str, Any] = {}
        leading_arguments: tuple[Any, ...] = (context, call.arguments)
    elif isinstance(arguments, InvalidArguments):
        return arguments.message
    else:
        named_arguments, leading_arguments = arguments, (context,) if tool.takes_context else ()
    try:
        async with asyncio.timeout(tool.timeout_s):
            outcome = await capture_async(partial(tool.run, *leading_arguments, **named_arguments), in_thread=True)
    except TimeoutError:
        return _make_timeout_output(tool)
    if outcome.exception is None:
        outcome = capture(tool.serialize or output_text, outcome.value)  # str() of a user's object may raise
    if outcome.exception is not None:
        return make_failure_output(tool, outcome.exception)
    return _ensure_json_output(tool, outcome.value)


def _make_timeout_output(tool: Tool) -> Json:
    assert tool.timeout_s is not None
    message = timeout_message(tool.title, tool.timeout_s)
    if tool.on_timeout == "fail":
        raise RunFailed(message.rstrip("."), code=TOOL_TIMEOUT_CODE)
    return message


def make_failure_output(tool: Tool, error: BaseException) -> Json:
    """Return the tool's own message for a failure. Raises RunFailed when it has none or making it raised."""
    message = f"tool {tool.title!r} raised {format_exception(error)}"
    failure_function = tool.failure
    # SystemExit and a cancellation are no failure that a model could correct.
    if failure_function is None or not isinstance(error, Exception):
        raise RunFailed(message, code=TOOL_FAILED_CODE) from error
    outcome = capture(lambda: output_text(failure_function(error)))
    if outcome.exception is not None:
        raise RunFailed(
            f"{message}, and its failure function raised {format_exception(outcome.exception)}", code=TOOL_FAILED_CODE
        ) from outcome.exception
    return outcome.value


def _ensure_json_output(tool: Tool, output: Json) -> Json:
    try:
        item_hash({"output": output})
    except NotCanonical as error:
        return make_failure_output(tool, error)
    return output


GUARDRAIL_FAILED_CODE = "guardrail_failed"


async def run_guardrail(
    guardrail: Guardrail, index: int, context: Context, value: Json
) -> GuardrailPassed | GuardrailTripped:
    """Run a guardrail on `value`. Raises RunFailed when it raised."""
    description = f"guardrail {guardrail.name!r}"
    reason = await call_user_code(
        description, GUARDRAIL_FAILED_CODE, guardrail.check, context, copy.deepcopy(value), in_thread=True
    )
    return GuardrailPassed(index) if reason is None else GuardrailTripped(index, str(reason))
