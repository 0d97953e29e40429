"""A store and an endpoint that fail at one step, whichever it is.

    before    the call is not carried out
    after     it is, and nobody hears of it

The steps of both are counted together, in the order in which they happen. `strike` is what happens
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
class Strikes:
    """Which step fails, and how; `taken` are the names of the steps so far. None: none fails."""

    strike: Callable[[], BaseException]
    at: int | None = None
    when: When = "before"
    taken: list[str] = field(default_factory=list)
    armed: bool = False

    def enter(self, name: str) -> int | None:
        """The number of the step that is about to be taken. raises: what `strike` gives"""
        if not self.armed:
            return None
        self.taken.append(name)
        number = len(self.taken) - 1
        if number == self.at and self.when == "before":
            raise self.strike()
        return number

    def leave(self, number: int | None) -> None:
        if number is not None and number == self.at and self.when == "after":
            raise self.strike()


class Struck:
    """Delegates to `target`, and strikes."""

    def __init__(self, target: Any, strikes: Strikes) -> None:
        self._target, self._strikes = target, strikes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name not in STEPS:
            return found

        async def step(*args: Any, **more: Any) -> Any:
            number = self._strikes.enter(name)
            done = await found(*args, **more)
            self._strikes.leave(number)
            return done

        return step

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        number = self._strikes.enter("create")
        async with aclosing(self._target.create(body)) as events:
            async for event in events:
                yield event
        self._strikes.leave(number)
