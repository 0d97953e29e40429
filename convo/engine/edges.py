"""Everything outside that a conversation touches, handed in together."""

from dataclasses import dataclass

from convo.clock import Clock
from convo.endpoints.contract import Endpoint
from convo.ids import NewId
from convo.stores.contract import Store


@dataclass(frozen=True, slots=True)
class Edges:
    """The store, the endpoint, the time and the source of ids of one conversation."""

    store: Store
    endpoint: Endpoint
    clock: Clock
    new_id: NewId
