"""Concurrent tasks of one run: tools, guardrails, and guardrails beside the model's stream.

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
"""What is wrong with the agents, and not with the endpoint or the store: it ends the run."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What the machine is told; `cause` is the error behind it."""

    event: RunEvent
    cause: ConvoError | None = None


class RunTasks:
    """Tasks of one run.

    against:  the first guardrail beside the model that said no, or could not say
    """

    def __init__(self, passed: Callable[[GuardrailPassed], None]) -> None:
        """Prepare for tasks; `passed` is told of each guardrail beside the model that lets its input pass."""
        self.against: TaskResult | None = None
        self._passed, self._ending = passed, False
        self._tasks: set[asyncio.Task[TaskResult]] = set()
        self._guards: set[asyncio.Task[TaskResult]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def begin(self, work: Coroutine[Any, Any, RunEvent], *, guard: bool = False) -> None:
        """Perform `work`; `guard`: it stands beside the model's answer, which does not count before it has spoken."""

        async def heard() -> TaskResult:
            try:
                return TaskResult(await work)
            except USER_CODE_ERRORS as wrong:
                return TaskResult(EffectFailed(wrong.code, wrong.message), wrong)

        task = asyncio.ensure_future(heard())
        (self._guards if guard else self._tasks).add(task)

    async def came(self) -> list[TaskResult]:
        """What is done, once something is; what ends the run comes last, so that no result is lost for it."""
        done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return sorted((task.result() for task in done), key=lambda heard: isinstance(heard.event, EffectFailed))

    async def drop(self) -> list[TaskResult]:
        """Stop what still runs; returns what had come by then."""
        tasks = self._tasks | self._guards
        self._tasks, self._guards = set(), set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return [task.result() for task in tasks if not task.cancelled()]

    # -- guardrails beside the model ------------------------------------------------------------------

    async def spoken(self) -> bool:
        """Whether every guardrail beside the model lets its input pass, once all have spoken or one said no.

        Asked when the answer is whole: it is no longer cut off then, whatever they say.
        """
        self._ending = True
        while self._guards and self.against is None:
            await asyncio.wait(self._guards, return_when=asyncio.FIRST_COMPLETED)
            self._listen()
        return self.against is None

    async def beside(self, turn: ChatTurn) -> AsyncGenerator[StreamEvent, None]:
        """The events of a turn, as long as no guardrail beside it says no; then nothing of its answer is kept."""
        async with aclosing(turn.events()) as events, aclosing(self._while_guarded(turn, events)) as guarded:
            async for event in guarded:
                yield event
            if not turn.unwanted:
                async for event in events:
                    yield event

    async def _while_guarded(
        self, turn: ChatTurn, events: AsyncGenerator[StreamEvent, None]
    ) -> AsyncGenerator[StreamEvent, None]:
        coming: asyncio.Task[StreamEvent | None] | None = None
        try:
            while (self._guards or coming) and not turn.unwanted:
                coming = coming or asyncio.ensure_future(_next_event(events))
                waiting: set[asyncio.Task[Any]] = {coming, *self._guards}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._listen()
                turn.unwanted = self.against is not None and not self._ending
                if coming.done() and not turn.unwanted:
                    event, coming = coming.result(), None
                    if event is None:
                        return
                    yield event
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait([coming])

    def _listen(self) -> None:
        for task in [task for task in self._guards if task.done()]:
            self._guards.discard(task)
            heard = task.result()
            if isinstance(heard.event, GuardrailPassed):
                self._passed(heard.event)
            else:
                self.against = self.against or heard


async def _next_event(events: AsyncGenerator[StreamEvent, None]) -> StreamEvent | None:
    return await anext(events, None)
