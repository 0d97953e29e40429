"""A model that a test holds at a gate, so that something can happen in the middle of an answer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from convo.clock import FixedClock
from convo.endpoints.embedded import Embedded, Manner
from convo.errors import ConvoError
from convo.ids import NewId, counting_ids
from convo.items import Event, Item
from convo.models.contract import Ask, Model
from convo.models.stream import Answer, usage
from convo.stores.contract import Store


class Slow:
    """A model that says a word, and the rest when it is told to.

    first:   an item that is whole before the first word
    fails:   what breaks it off behind the gate
    silent:  it waits at the gate before its first event
    """

    def __init__(self, *, first: Item | None = None, fails: ConvoError | None = None, silent: bool = False) -> None:
        self.go_on, self.closed, self.asked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.asks: list[Ask] = []
        self._first, self._fails, self._silent = first, fails, silent

    def __call__(self, name: str) -> tuple[Model, str]:
        return self, name

    async def respond(self, ask: Ask) -> AsyncGenerator[Event, None]:
        answer = Answer(counting_ids(), ask.model)
        self.asks.append(ask)
        self.asked.set()
        try:
            if self._silent:
                await self.go_on.wait()
            for event in answer.whole(self._first) if self._first else ():
                yield event
            for event in answer.text("one "):
                yield event
            await self.go_on.wait()
            if self._fails:
                raise self._fails
            for event in (*answer.text("two"), *answer.completed(usage(1, 2))):
                yield event
        finally:
            self.closed.set()

    async def warm(self, model: str) -> None: ...

    async def count(self, ask: Ask) -> int | None:
        return None

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        return None

    async def aclose(self) -> None: ...


def ready() -> Slow:
    """A model that says everything at once."""
    model = Slow()
    model.go_on.set()
    return model


def over(store: Store, models: Slow, *, new_id: NewId | None = None, manner: Manner | None = None) -> Embedded:
    """An endpoint whose time stands still and whose ids count."""
    return Embedded(store, models, FixedClock(), new_id or counting_ids(), manner=manner)
