"""What a model is shown of a history, and making that smaller on the way to an answer.

    shown      compaction items that were sealed here are open
    smaller    where the request asks for it, or counts more tokens than it allows: the item comes first
    answer     to what is left and fits, unless the item was all that was asked for

A request that has nothing of all this goes straight to its model.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace

from convo.compaction import last_compaction, seen
from convo.endpoints.embedded import fitting, refusals
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.listing import own_id, prefix
from convo.endpoints.embedded.listing import shown as listed
from convo.endpoints.embedded.pairs import for_the_model
from convo.endpoints.embedded.requests import Request
from convo.endpoints.embedded.resource import together
from convo.endpoints.embedded.summarising import Asking, Smaller, folded, opener
from convo.endpoints.embedded.summarising import window as smaller_window
from convo.errors import Unsupported
from convo.items import Event, Item, Json
from convo.models.contract import Ask
from convo.tokens import at_most, count

NO_TOKENS = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
"""The usage of a compaction that nobody had to be asked for, or whose maker does not say."""


def answered(request: Request, history: Sequence[Item], edges: Edges) -> AsyncGenerator[Event, None]:
    """The events of the model that `request` names. raises: as `Models`, WindowExceeded"""
    model, name = edges.models(request.model)
    asking = Asking(model, asked(request, for_the_model(history), name), history, request.model, edges)
    plain = last_compaction(history) is None and not request.compact_now and request.compact_at is None
    return _fitted(asking, request) if plain else _compacting(asking, request)


def asked(request: Request, items: tuple[Item, ...], name: str) -> Ask:
    """What the model is asked; `name` is its provider's own name for it. What does not fit is seen to here."""
    parameters = {key: value for key, value in request.for_the_model.items() if key != "truncation"}
    return Ask(name, items, request.instructions, parameters)


async def shown(history: Sequence[Item], edges: Edges) -> tuple[Item, ...]:
    """What a model sees of `history`. raises: Refused  what was sealed in it does not open here"""
    return for_the_model(seen(history, await opener(history, edges)))


async def window(
    request: Request, history: Sequence[Item], edges: Edges
) -> tuple[Sequence[Item], Mapping[str, Json] | None]:
    """The input that takes the place of `history`, with ids, and what making it used. raises: as `Models`, Refused"""
    model, name = edges.models(request.model)
    ask = asked(request, await shown(history, edges), name)
    made, used = await smaller_window(Asking(model, ask, history, request.model, edges))
    return [listed(item, own_id(item) or edges.new_id(prefix(item))) for item in made], used


async def _compacting(asking: Asking, request: Request) -> AsyncGenerator[Event, None]:
    asking = replace(asking, ask=replace(asking.ask, input=await shown(asking.history, asking.edges)))
    made = await _smaller(asking, request)
    if made is not None and request.compact_now:
        for event in (*_announced(made, asked_for=True), _nothing_else(made)):
            yield event
        return
    if made is not None:
        asking = replace(asking, ask=replace(asking.ask, input=made.shown))
    with _not_to_be_opened(asking.ask):
        async with aclosing(_fitted(asking, request)) as answer, aclosing(_joined(made, answer)) as events:
            async for event in events:
                yield event


async def _joined(made: Smaller | None, answer: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """The events of `answer`, those of the compaction in front: once it has begun, so that it can still be refused."""
    first = await anext(answer, None)
    for event in _announced(made, asked_for=False) if made else ():
        yield event
    if first is not None:
        yield _behind(first, made)
    async for event in answer:
        yield _behind(event, made)


@contextmanager
def _not_to_be_opened(ask: Ask) -> Iterator[None]:
    """Names what nobody sealed here, where its model says that it cannot open it either."""
    try:
        yield
    except Unsupported as wrong:
        at = last_compaction(ask.input)
        if at is None or wrong.param != "input":
            raise
        raise refusals.not_verified(ask.input[at], hint=wrong.hint) from wrong


async def _smaller(asking: Asking, request: Request) -> Smaller | None:
    """A compaction, where `request` wants one now and there is something to fold."""
    if request.compact_now:
        return await folded(asking)
    if request.compact_at is not None and await asyncio.to_thread(_counts_more, asking.ask, request.compact_at):
        return await folded(asking, request.compact_at)
    return None


def _counts_more(ask: Ask, threshold: int) -> bool:
    told = ask.input, ask.instructions, ask.parameters.get("tools")
    return at_most(*told) > threshold and count(*told).tokens > threshold


def _fitted(asking: Asking, request: Request) -> AsyncGenerator[Event, None]:
    known = asking.edges.windows(asking.ask.model)
    auto = request.parameters.get("truncation") == "auto"
    return fitting.answer(asking.model, asking.ask, asking.who, known, auto=auto)


def _announced(made: Smaller, *, asked_for: bool) -> Iterator[Event]:
    """The events of the item; `asked_for`: by a trigger, and not by a threshold."""
    yield {"type": "response.output_item.added", "output_index": 0, "item": made.item}
    if asked_for:
        yield {"type": "response.compaction.compacting", "output_index": 0, "item_id": made.item["id"]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": made.item}


def _nothing_else(made: Smaller) -> Event:
    return {"type": "response.completed", "response": {"output": [made.item], "usage": made.usage or NO_TOKENS}}


def _behind(event: Event, made: Smaller | None) -> Event:
    """An event of an answer whose first item is the compaction, if there was one."""
    if made is None:
        return event
    if "output_index" in event:
        return {**event, "output_index": event["output_index"] + 1}
    response = event.get("response")
    if not isinstance(response, Mapping):
        return event
    output = [made.item, *(response.get("output") or ())]
    return {**event, "response": {**response, "output": output, "usage": together(made.usage, response.get("usage"))}}
