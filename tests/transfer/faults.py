"""Proxies for a store and an endpoint that fail at one chosen step.

    before    the call is not performed
    after     the call is performed, and its result is lost

The steps of both are counted together, in the order in which they happen. `make_error` returns the error
that a store or an endpoint would raise, or ends this process.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from convo.history.items import Json, StreamEvent

When = Literal["before", "after"]

STEPS = frozenset(
    {
        *("commit", "remove_session", "remove_link", "compact", "create_conversation", "add_conversation_items"),
        *("delete_conversation", "conversation", "conversation_items"),
    }
)
"""The methods that count as steps: the writes, and the reads between them."""


@dataclass
class StepFault:
    """The step that fails and its error; `at` None: no step fails. `steps` are the names of the steps so far."""

    make_error: Callable[[], BaseException]
    at: int | None = None
    when: When = "before"
    steps: list[str] = field(default_factory=list)
    armed: bool = False

    def enter(self, name: str) -> int | None:
        """Record a step and return its number, None if not armed. Raises the error of `make_error` at step `at`."""
        if not self.armed:
            return None
        self.steps.append(name)
        number = len(self.steps) - 1
        if number == self.at and self.when == "before":
            raise self.make_error()
        return number

    def leave(self, number: int | None) -> None:
        if number is not None and number == self.at and self.when == "after":
            raise self.make_error()


class FaultyProxy:
    """Delegates to a target and fails at the step that its StepFault names."""

    def __init__(self, target: Any, step_fault: StepFault) -> None:
        self._target, self._fault = target, step_fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name not in STEPS:
            return found

        async def step(*args: Any, **more: Any) -> Any:
            number = self._fault.enter(name)
            result = await found(*args, **more)
            self._fault.leave(number)
            return result

        return step

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        number = self._fault.enter("create")
        async with aclosing(self._target.create(body)) as events:
            async for event in events:
                yield event
        self._fault.leave(number)
