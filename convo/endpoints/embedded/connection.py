"""One connection of one client, over which turns follow one another.

It remembers the last response itself, so that a chain of `store=false` goes on without a store, and
forgets it when a request that goes on from it fails: the client then says everything again.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from convo.endpoints.embedded import requests
from convo.endpoints.embedded.context import Before
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.stateless import without_state
from convo.endpoints.embedded.turn import Turn
from convo.errors import ConvoError
from convo.items import Event, Json


class Connection:
    """See `convo.endpoints.contract.Connection`."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._last: Before | None = None

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        self._edges.runs.check_open()
        last = self._last if self._goes_on(body) else None
        try:
            turn = Turn(requests.read_connected(self._allowed(body, last)), self._edges, _unstored(last))
            async with aclosing(turn.events()) as events:
                async for event in events:
                    self._note(event, turn, last)
                    yield event
        except ConvoError:
            self._let_go(last)
            raise

    def _goes_on(self, body: Mapping[str, Json]) -> bool:
        """Whether `body` names the response that this connection holds."""
        last = self._last.previous if self._last else None
        return last is not None and body.get("previous_response_id") == last.id

    def _allowed(self, body: Mapping[str, Json], last: Before | None) -> Mapping[str, Json]:
        """`body` as it may be asked here. raises: Refused"""
        if not self._edges.manner.stateless:
            return body
        if last is None:
            return without_state(body)
        rest = {name: value for name, value in body.items() if name != "previous_response_id"}
        return {**without_state(rest), "previous_response_id": body["previous_response_id"]}

    def _note(self, event: Event, turn: Turn, last: Before | None) -> None:
        """Hold what ended well, and let go of what was gone on from in vain."""
        if event["type"] == "response.failed":
            self._let_go(last)
        elif event["type"] in ("response.completed", "response.incomplete"):
            self._last = turn.left()

    def _let_go(self, last: Before | None) -> None:
        if last is not None and self._last is last:
            self._last = None


def _unstored(last: Before | None) -> Before | None:
    """`last` where only the connection knows it; what the store has may have been deleted since."""
    return last if last is not None and last.previous is not None and not last.previous.stored else None
