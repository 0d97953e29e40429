"""A store and an endpoint that fail at one step, whichever it is.

    before    the call is not carried out
    after     it is, and nobody hears of it

The steps of both are counted together, in the order in which they happen. `make_error` is what happens
there: an error that a store or an endpoint would raise, or the end of this process.
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
"""What counts as a step: whatever writes, and what is asked on the way."""


@dataclass
class StepFault:
    """Which step fails, and how; `steps` are the names of the steps so far. None: none fails."""

    make_error: Callable[[], BaseException]
    at: int | None = None
    when: When = "before"
    steps: list[str] = field(default_factory=list)
    armed: bool = False

    def enter(self, name: str) -> int | None:
        """The number of the step that is about to be taken. raises: what `make_error` gives"""
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
    """Delegates to `target`, and strikes."""

    def __init__(self, target: Any, strikes: StepFault) -> None:
        self._target, self._fault = target, strikes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name not in STEPS:
            return found

        async def step(*args: Any, **more: Any) -> Any:
            number = self._fault.enter(name)
            done = await found(*args, **more)
            self._fault.leave(number)
            return done

        return step

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        number = self._fault.enter("create")
        async with aclosing(self._target.create(body)) as events:
            async for event in events:
                yield event
        self._fault.leave(number)
