"""A model's answer while it comes, so that it always ends once, and how its events are told.

What goes wrong before its first event is no answer and is raised. Later it is an answer that
failed: whatever breaks it off becomes its terminal event, with the items that were whole by then. One
that is stopped keeps the words of the item that it was at, too: they have been told already.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from itertools import count

from convo.endpoints.embedded import ending
from convo.errors import ConvoError, LimitReached, StreamBroken
from convo.items import Event, Item
from convo.items.partial import Partial, StreamedText
from convo.items.wellformed import wellformed

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


AT_A_STRETCH = 64
"""Events after which others get their turn: a model that has its whole answer at hand never waits by itself."""


class Listening:
    """The events of one answer; `finished` are the items that were whole so far.

    receipts:  `so_far` counts only the events that `sent` was called with; else every event that arrived
    hidden:    the reader gets the last event alone, so `so_far` is empty until then
    """

    def __init__(self, answer: AsyncGenerator[Event, None], *, receipts: bool = False, hidden: bool = False) -> None:
        self._answer, self._receipts, self._hidden = answer, receipts, hidden
        self.finished: list[Item] = []
        self._partial, self._text = Partial(), StreamedText()
        self._heard = 0

    def so_far(self) -> list[Item]:
        """What was finished, and as incomplete what had words when it was cut off."""
        return [] if self._hidden else self.received()

    def received(self) -> list[Item]:
        """The same, whether or not a reader has seen it."""
        return self._partial.kept

    def sent(self, event: Event) -> None:
        """Count `event` as sent to the reader."""
        gather(self._partial, event)

    async def first(self) -> Event:
        """raises: StreamBroken  there is none; what the model raises"""
        try:
            return self._taken(await anext(self._answer))
        except StopAsyncIteration:
            raise StreamBroken("the model's answer ended before it began") from None

    async def after(self, event: Event) -> Event:
        """The event behind `event`, which is not terminal."""
        if event["type"] == "response.output_item.done":
            self.finished.append(event["item"])
        self._heard += 1
        if self._heard % AT_A_STRETCH == 0:
            await asyncio.sleep(0)
        try:
            return self._taken(await anext(self._answer))
        except StopAsyncIteration:
            return ending.broken_off(StreamBroken("the model's answer ended before it was whole"), self.finished)
        except LimitReached as reached:
            return ending.cut_off_at_limit(reached, self.received())
        except ConvoError as fault:
            return ending.broken_off(fault, self.finished)

    def ended(self, event: Event) -> ending.Ended:
        """How the terminal event `event` ends the answer."""
        end = ending.ended(event)
        whole = "limit" not in (end.error or {})
        return ending.differing(end) if whole and self._text.differs(event) else end

    def _taken(self, event: Event) -> Event:
        self._text.take(event)
        if not self._receipts:
            self.sent(event)
        return event


def gather(partial: Partial, event: Event) -> None:
    """Let `partial` account for `event`; one that nobody could read is passed on, and adds nothing."""
    with suppress(StreamBroken):
        partial.take(wellformed(event))


class Telling:
    """Events as they are told: numbered, under the names that are wanted here."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed, self._numbers = renamed, count()

    def __call__(self, event: Event) -> Event:
        name = self._renamed.get(event["type"], event["type"])
        return {**event, "type": name, "sequence_number": next(self._numbers)}
