"""A chain of `store=false` at a server that is asked over HTTP.

Nobody there remembers it, so whoever holds the connection does: the last window is sent again in
front of the next input. The response says what it goes on from, as over the server's own WebSocket.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from convo.errors import ConvoError, Refused
from convo.items import Event, Item, Json, user

Create = Callable[[Mapping[str, Json]], AsyncGenerator[Event, None]]

WENT_WELL = ("response.completed", "response.incomplete")


@dataclass(frozen=True)
class Last:
    """The last response, which the server does not keep: its id, and all that was said up to its end."""

    id: str
    window: Sequence[Item]


class ResendingConnection:
    """See `convo.endpoints.contract.Connection`; `create` asks the server."""

    def __init__(self, create: Create) -> None:
        self._create = create
        self._last: Last | None = None

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        """raises: Refused  with `generate: false`, which only the server itself could do"""
        if body.get("generate") is False:
            raise Refused("Unsupported parameter: 'generate': this server is asked over HTTP", param="generate")
        last = self._last if self._last and body.get("previous_response_id") == self._last.id else None
        window = [*(last.window if last else ()), *_items(body.get("input"))]
        try:
            async with aclosing(self._create(_sent(body, last, window))) as events:
                async for event in events:
                    told = _as_continued(event, last)
                    self._note(told, body, last, window)
                    yield told
        except ConvoError:
            self._last = None if self._last is last else self._last
            raise

    def _note(self, event: Event, body: Mapping[str, Json], last: Last | None, window: Sequence[Item]) -> None:
        """Hold what ended well and is kept nowhere else; let go of what was gone on from in vain."""
        if event["type"] in WENT_WELL and body.get("store") is False:
            self._last = Last(event["response"]["id"], [*window, *event["response"]["output"]])
        elif event["type"] in (*WENT_WELL, "response.failed") and self._last is last:
            self._last = None


def _sent(body: Mapping[str, Json], last: Last | None, window: Sequence[Item]) -> Mapping[str, Json]:
    if last is None:
        return body
    return {**{name: value for name, value in body.items() if name != "previous_response_id"}, "input": list(window)}


def _as_continued(event: Event, last: Last | None) -> Event:
    response = event.get("response")
    if last is None or not isinstance(response, Mapping):
        return event
    return {**event, "response": {**response, "previous_response_id": last.id}}


def _items(said: Json) -> Sequence[Item]:
    return [user(said)] if isinstance(said, str) else list(said or ())
