"""The next request of a conversation whose answers come from agents.

An agent says how it is asked, so its instructions, tools and settings stand in the request, and what
an input filter makes of the conversation. Their functions are asked as a turn would ask them. No
tool runs, and nothing is kept: the conversation is opened beside its record, and not for writing.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from convo.cli.conduct import Cast
from convo.cli.wiring import asking_of, endpoint_of
from convo.clock import SystemClock
from convo.config import Settings, choose
from convo.endpoints.contract import Endpoint
from convo.engine.chat import Chat
from convo.engine.coming import link_at, stands
from convo.engine.conduct import Route
from convo.engine.edges import Edges
from convo.engine.preparing import Foreseen
from convo.engine.record import Record, last_link
from convo.engine.running import Running
from convo.engine.turn import Asking
from convo.history import Session
from convo.ids import random_id
from convo.inspection import Known
from convo.items import Item
from convo.stores.contract import Store


@dataclass(frozen=True, slots=True)
class ByAgents:
    """Who would answer, and what reaches those that have a model of their own."""

    cast: Cast
    settings: Settings
    store: Store
    open_things: AsyncExitStack

    async def foreseen(
        self, known: Known, said: Sequence[Item], asking: Asking, endpoint: Endpoint, *, alike: bool
    ) -> Foreseen:
        """How they would be asked next.

        alike:   somebody said which model answers
        raises:  as `Running.open` and `Running.foreseen`;  ItemDeleted
        """
        edges = Edges(self.store, endpoint, SystemClock(), random_id)
        cast = self.cast.asked_alike() if alike else self.cast.routed(self._route)
        running = await Running.open(await _opened(known, asking, edges), cast.graph, cast.conduct)
        return await running.foreseen(said)

    def _route(self, model: str) -> Route:
        choice = choose(self.settings, model, where="an agent's model")
        endpoint = endpoint_of(choice, self.settings, self.store)
        self.open_things.push_async_callback(endpoint.aclose)
        return Route(asking_of(choice, instructions=None, parameters={}), endpoint)


async def _opened(known: Known, asking: Asking, edges: Edges) -> Chat:
    """The conversation as its owner would go on with it, whether it has a record or not."""
    held, scope = stands(known), edges.endpoint.scope
    path = held.path
    new = Session("", known.handle, held.strategy, asking.model, path.head, held.mark, 0.0, 0.0, scope)
    session = replace(known.session or new, handle=held.handle)
    last = await last_link(edges.store, known.session) if known.session else link_at(known)
    record = Record(session, path, last, edges, saved=bool(known.session))
    record.held = held
    return Chat(record, asking, edges)
