"""What a model is, to everything above it.

A model is asked with everything it is to see, answers once, and remembers nothing: whoever holds
the history stands above it. So a server of any kind can stand below it, also one that keeps state
of its own, and every owner works with every model.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from convo.items import Event, Item, Json


@dataclass(frozen=True, slots=True)
class Ask:
    """Everything a model needs to answer once. Nothing is remembered from earlier asks.

    model:         the provider's own name for the model, without the provider in front
    input:         the whole history as items, oldest first; no item_reference is left in it
    instructions:  the system's words for this ask alone
    parameters:    the other fields of the Responses request as they travelled:
                   temperature, top_p, max_output_tokens, text, tools, tool_choice, reasoning, ...
    """

    model: str
    input: Sequence[Item]
    instructions: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)

    @property
    def wants_summary(self) -> bool:
        """Whether it asks for a summary of the reasoning."""
        reasoning = self.parameters.get("reasoning") or {}
        return bool(reasoning.get("summary") or reasoning.get("generate_summary"))


class Model(Protocol):
    """Answers asks.

    A model promises: events in the Responses API's order, each item added before its parts and
    done after them, ids on every output item, no `sequence_number` (whoever owns the response
    counts), and one terminal event at the end: `response.completed`, `response.incomplete` or
    `response.failed`, whose `response` holds only `output`, `usage`, `incomplete_details`,
    `error` and `model`. It refuses what it cannot honour with `Unsupported` before it asks
    anybody, and translates every foreign error into `convo.errors`. Closing the generator stops
    the work at once. A caller promises: to read to the end, or to close.
    """

    def respond(self, ask: Ask) -> AsyncGenerator[Event, None]: ...

    async def warm(self, model: str) -> None:
        """Do now what the first ask of `model` would have to wait for; nothing is sent.

        raises:  what that first ask would raise
        """
        ...

    async def check_request(self, ask: Ask) -> None:
        """Refuse now what answering would refuse, as far as that is known without an answer; nothing is billed.

        It is known whether the request can be translated, and whether the server answers and takes the key. It is
        not known whether the server has the model, room for the input, or any quota left.

        raises:  Unsupported, ModelMissing, Unreadable, Unreachable, KeyRefused, Refused
        """
        ...

    async def count(self, ask: Ask) -> int | None:
        """Exact input tokens of `ask`, or None where the model cannot tell before it answers."""
        ...

    async def compact(self, ask: Ask) -> Sequence[Item] | None:
        """The window that the provider itself makes of `ask.input`; None where it has no compaction.

        It is for the same model: what was sealed only that one can open; usage is not reported here.

        raises:  Refused  it has none for this model; whoever asks may summarise instead
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and processes. The model is not used afterwards."""
        ...


@runtime_checkable
class ReportsIgnored(Protocol):
    """A model that can say what it leaves out of a request."""

    def ignored(self, ask: Ask) -> tuple[str, ...]:
        """Names as in `convo.models.ignored`, each once."""
        ...


@runtime_checkable
class NamesProvider(Protocol):
    """A model that knows the name of its provider in the settings."""

    @property
    def provider(self) -> str: ...


def provider_of(model: object) -> str | None:
    """The name of `model`'s provider, where it is known."""
    return model.provider if isinstance(model, NamesProvider) else None


def ignored_by(model: object, ask: Ask) -> tuple[str, ...]:
    """What `model` leaves out of `ask`; nothing where it sends everything."""
    return model.ignored(ask) if isinstance(model, ReportsIgnored) else ()
