"""Concurrent tasks of one run: tools, guardrails, and parallel guardrails during the model's stream.

Each task ends with an event for the state machine. An error of user code is such an event too
(`EffectFailed`); an error of the endpoint or the store is raised.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from convo.chat.turn import ChatTurn
from convo.errors import ConvoError, InputFault, NotFound, RunFailed, WrongOwner
from convo.history.items import StreamEvent
from convo.runs.state import EffectFailed, GuardrailPassed, RunEvent

USER_CODE_ERRORS = (RunFailed, InputFault, NotFound, WrongOwner)
"""Errors of the agents, not of the endpoint or the store: they end the run."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """An event for the state machine; `cause` is the original error."""

    event: RunEvent
    cause: ConvoError | None = None


class RunTasks:
    """Tasks of one run.

    rejection:  the first parallel guardrail that tripped or failed
    """

    def __init__(self, on_guardrail_passed: Callable[[GuardrailPassed], None]) -> None:
        """Prepare the tasks; `on_guardrail_passed` is called for each parallel guardrail that passes."""
        self.rejection: TaskResult | None = None
        self._on_guardrail_passed, self._is_response_complete = on_guardrail_passed, False
        self._tasks: set[asyncio.Task[TaskResult]] = set()
        self._guardrail_tasks: set[asyncio.Task[TaskResult]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, coroutine: Coroutine[Any, Any, RunEvent], *, is_guardrail: bool = False) -> None:
        """Start `coroutine` as a task; the response of the model counts only after those with `is_guardrail`."""

        async def run() -> TaskResult:
            try:
                return TaskResult(await coroutine)
            except USER_CODE_ERRORS as error:
                return TaskResult(EffectFailed(error.code, error.message), error)

        task = asyncio.ensure_future(run())
        (self._guardrail_tasks if is_guardrail else self._tasks).add(task)

    async def wait_any(self) -> list[TaskResult]:
        """Wait until a task is done; return the results, those that end the run last, so that no output is lost."""
        done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return sorted((task.result() for task in done), key=lambda result: isinstance(result.event, EffectFailed))

    async def cancel_all(self) -> list[TaskResult]:
        """Cancel the running tasks; return the results of those that were done."""
        tasks = self._tasks | self._guardrail_tasks
        self._tasks, self._guardrail_tasks = set(), set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return [task.result() for task in tasks if not task.cancelled()]

    # -- parallel guardrails --------------------------------------------------------------------------

    async def guardrails_passed(self) -> bool:
        """Wait until all parallel guardrails are done or one rejects; return whether all passed.

        Called when the response is complete; a guardrail that rejects does not cancel it any more.
        """
        self._is_response_complete = True
        while self._guardrail_tasks and self.rejection is None:
            await asyncio.wait(self._guardrail_tasks, return_when=asyncio.FIRST_COMPLETED)
            self._collect_guardrails()
        return self.rejection is None

    async def stream_guarded(self, turn: ChatTurn) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a turn until a parallel guardrail rejects; then nothing of its response is stored."""
        async with aclosing(turn.events()) as events, aclosing(self._stream_while_guarded(turn, events)) as guarded:
            async for event in guarded:
                yield event
            if not turn.is_rejected:
                async for event in events:
                    yield event

    async def _stream_while_guarded(
        self, turn: ChatTurn, events: AsyncGenerator[StreamEvent, None]
    ) -> AsyncGenerator[StreamEvent, None]:
        next_event: asyncio.Task[StreamEvent | None] | None = None
        try:
            while (self._guardrail_tasks or next_event) and not turn.is_rejected:
                # Kept when a guardrail ends first: a cancelled `anext` would end the stream.
                next_event = next_event or asyncio.ensure_future(_next_event(events))
                waiting: set[asyncio.Task[Any]] = {next_event, *self._guardrail_tasks}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._collect_guardrails()
                turn.is_rejected = self.rejection is not None and not self._is_response_complete
                if next_event.done() and not turn.is_rejected:
                    event, next_event = next_event.result(), None
                    if event is None:
                        return
                    yield event
        finally:
            if next_event is not None:
                # Waited for: a generator cannot be closed while it runs.
                next_event.cancel()
                await asyncio.wait([next_event])

    def _collect_guardrails(self) -> None:
        for task in [task for task in self._guardrail_tasks if task.done()]:
            self._guardrail_tasks.discard(task)
            result = task.result()
            if isinstance(result.event, GuardrailPassed):
                self._on_guardrail_passed(result.event)
            else:
                self.rejection = self.rejection or result


async def _next_event(events: AsyncGenerator[StreamEvent, None]) -> StreamEvent | None:
    return await anext(events, None)
