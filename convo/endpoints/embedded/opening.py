"""A request with its history: what it goes on from, what the model will see, and the right to write.

Whatever is wrong is found here, before a model is asked and before anything is kept.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from convo.endpoints.embedded import compacting
from convo.endpoints.embedded.context import Before, added, before, referred, the_conversation
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.lock import writing
from convo.endpoints.embedded.pairs import check_pairs, for_the_model
from convo.endpoints.embedded.requests import Request
from convo.endpoints.embedded.strict import check_strictly
from convo.history import Path
from convo.items import Event
from convo.models.contract import ignored_by, provider_of

NO_TOKENS = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


@dataclass(frozen=True)
class Opened:
    """One request that can be carried out.

    before:  what the endpoint puts before it
    saw:     the whole history that the model is asked about
    """

    request: Request
    before: Before
    saw: Path


async def opened(request: Request, edges: Edges, held: AsyncExitStack, last: Before | None = None) -> Opened:
    """`request` with its history; in a conversation as its only writer, until `held` is left.

    last:    what `request` goes on from, where the store does not know it
    raises:  Refused, NotFound, NotCanonical, TryLater  it may not be asked, or not now
             StoreFault
    """
    if request.store or request.conversation:
        await edges.store.upkeep.check_room()
    if request.conversation:
        await the_conversation(edges.store, request.conversation)
        await edges.runs.wait_until_ended(edges.store.tenant, conversation=request.conversation)
        await held.enter_async_context(writing(edges.store, request.conversation, edges.new_id("hold")))
    if request.previous and last is None:
        await edges.runs.wait_until_ended(edges.store.tenant, response_id=request.previous)
    history = last or await before(request, edges.store)
    saw = history.path.grow(added(request.items, history.ids, await referred(request.items, history.ids, edges.store)))
    check_pairs(saw.items)
    if edges.manner.strict:
        check_strictly(request.items, history.ids, saw.items)
    return Opened(request, history, saw)


def answer(turn: Opened, edges: Edges) -> AsyncGenerator[Event, None]:
    """The events of the model that is asked. raises: as `Models`, WindowExceeded; what it iterates as `Model`"""
    return compacting.answered(turn.request, turn.saw.items, edges) if turn.request.generate else _nothing()


def ignored(turn: Opened, edges: Edges) -> tuple[str, ...]:
    """What the model is not sent of the request and its history, by the names of `convo.models.ignored`."""
    if not turn.request.generate:
        return ()
    model, name = edges.models(turn.request.model)
    named = ignored_by(model, compacting.asked(turn.request, for_the_model(turn.saw.items), name))
    return (*named, *(f"stream_options.{name}" for name in ("include_obfuscation",) if turn.request.padded))


def provider(turn: Opened, edges: Edges) -> str | None:
    """The provider that is asked, where the model's name does not begin with it."""
    if not turn.request.generate:
        return None
    named = provider_of(edges.models(turn.request.model)[0])
    return named if named and not turn.request.model.startswith(f"{named}/") else None


async def _nothing() -> AsyncGenerator[Event, None]:
    """The answer to a request that only prepares the next one."""
    yield {"type": "response.completed", "response": {"output": [], "usage": NO_TOKENS}}
