"""Everything outside that this endpoint touches, and how it behaves towards its readers.

A chat in a terminal and a server differ in little. The one stops an answer when nobody reads it any
more and tells a full disk to the person; the other finishes what it was asked to store, and tells
its clients in the events of the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from convo.clock import Clock
from convo.endpoints.embedded.fitting import Windows
from convo.endpoints.embedded.runs import Runs
from convo.endpoints.embedded.sealing import Sealing
from convo.ids import NewId
from convo.models.contract import Model
from convo.stores.contract import Store
from convo.tokens import window_of


class Models(Protocol):
    """Opens models by name. Whoever made it closes what it opened with `aclose`."""

    def __call__(self, name: str) -> tuple[Model, str]:
        """The model for "provider/model", and the provider's own name for it.

        raises:  ConvoError  there is no such provider or model, or its key is missing
        """
        ...

    async def aclose(self) -> None: ...


SPECIFIED: Final[Mapping[str, str]] = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
"""Events that the openai package and the specification call differently, by the package's names."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How the endpoint behaves.

    outlasts:   a stored answer goes on when its reader leaves, and a store that fails at its end is told as
                `response.failed`; else the reader's leaving stops it, and the fault is raised
    stateless:  it keeps nothing, and what would need state is refused by its name
    renamed:    what events are called instead of their usual names
    strict:     it refuses what the real API refuses, also where its models would take it
    """

    outlasts: bool = False
    stateless: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Edges:
    """Everything outside that a turn touches.

    sealing:  opens and seals compaction items for the store's tenant
    runs:     what goes on here without a reader
    windows:  how much each model has room for
    """

    store: Store
    models: Models
    clock: Clock
    new_id: NewId
    sealing: Sealing
    runs: Runs = field(default_factory=Runs)
    manner: Manner = field(default_factory=Manner)
    windows: Windows = window_of
