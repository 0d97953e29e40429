"""Everything outside that this endpoint touches, and how it behaves towards its readers.

A chat in a terminal and a server differ in little. Both cancel an answer whose reader leaves. The chat
keeps the partial answer itself and sends it with its next turn, and it raises a full disk to the person; a
server appends the partial answer to the conversation, and reports faults to its clients in the events of the API.
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

    for_clients: the reader is a client behind a connection. An event counts as sent once the next one is asked for.
                A client that disconnects leaves its input and the partial answer in its conversation. A store that
                fails at the end is reported as `response.failed`, not raised
    stateless:  it keeps nothing, and what would need state is refused by its name
    renamed:    what events are called instead of their usual names
    strict:     it refuses what the real API refuses, also where its models would take it
    estimates:  a request for input tokens is answered by the offline tokenizer where the model has no counter
    """

    for_clients: bool = False
    stateless: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    estimates: bool = False


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
