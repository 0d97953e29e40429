"""One compaction item in place of what was folded, whoever makes it.

Whoever made the model knows best what it needs to remember, so a provider that has a compaction of
its own is asked for it. Every other model is asked for a summary; a history too long for one is made
into two, and the second begins with the first. What a summary would not make smaller is sealed as it
was: exactly one item comes of every compaction, and no model ever reads more than before.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from convo.compaction import (
    Fold,
    Open,
    Sealed,
    covered,
    cuts,
    fold,
    last_compaction,
    opened,
    stands_for,
    summariser,
    summary_in,
)
from convo.endpoints.embedded import ending, refusals
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.fitting import too_long
from convo.endpoints.embedded.resource import together
from convo.errors import ConvoError, Refused, StreamBroken
from convo.items import Event, Item, Json, is_user, kind
from convo.models.contract import Ask, Model
from convo.tokens import count_each

KEPT, SAID = 2, 4
"""One part in so many of a threshold stays: of the turn to be answered, and of what the user said before."""

SPLITS = 6
"""How often a history that is too long for one summary is made into two."""

PASSED_ON = ("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "user")
"""What holds for whoever pays, and so for a summary as well."""


@dataclass(frozen=True)
class Asking:
    """One ask on its way to a model.

    history:  all there is, as it is stored; what of it is shown is `ask.input`
    who:      the model as it was asked for
    """

    model: Model
    ask: Ask
    history: Sequence[Item]
    who: str
    edges: Edges


@dataclass(frozen=True)
class Smaller:
    """What a compaction came to.

    item:    stands for what was folded
    shown:   what a model sees in place of all of it
    beside:  words of the user that stand outside the item
    usage:   of making it; None where nobody said
    """

    item: Item
    shown: tuple[Item, ...]
    beside: tuple[Item, ...] = ()
    usage: Mapping[str, Json] | None = None


async def window(asking: Asking) -> tuple[Sequence[Item], Mapping[str, Json] | None]:
    """The next input in place of all that is asked, and the usage of making it.

    It is the provider's own, or the user's words and one compaction item.
    """
    theirs = await _theirs(asking, asking.ask.input)
    if theirs is None:
        made = await _summarised(asking, fold(asking.ask.input, count_each(asking.ask.input)), outside=True)
        return (*made.beside, made.item), made.usage
    if [kind(item) for item in theirs].count("compaction") == 1:
        return theirs, None
    return [(await _made(asking, before=tuple(theirs))).item], None


async def folded(asking: Asking, threshold: int | None = None) -> Smaller | None:
    """One compaction item for what is asked.

    threshold:  in tokens, to get below, with the turn that is to be answered left as it is; None: all of it
    returns:    None where there is nothing that was not folded before
    """
    sizes = count_each(asking.ask.input)
    if threshold is None:
        parts = fold(asking.ask.input, sizes)
    else:
        parts = fold(asking.ask.input, sizes, keep=threshold // KEPT, said=threshold // SAID)
        if all(is_user(item) or kind(item) == "compaction" for item in parts.folded):
            return None  # what stayed of an earlier fold: nobody answered since
    theirs = await _theirs(asking, parts.folded)
    if theirs is None:
        return await _summarised(asking, parts, outside=False)
    return await _made(asking, before=(*parts.standing, *theirs), after=parts.kept)


async def _theirs(asking: Asking, items: Sequence[Item]) -> Sequence[Item] | None:
    """The provider's own window for `items`; None where it has none, or has none for this model."""
    try:
        return await asking.model.compact(replace(asking.ask, input=items)) if items else None
    except Refused:
        return None


async def _summarised(asking: Asking, parts: Fold, *, outside: bool) -> Smaller:
    """A compaction by summary; `outside` leaves the words of the user beside the item."""
    if not parts.folded:
        return await _made(asking, after=asking.ask.input)
    summary, usage = await _summary(asking, parts.folded, SPLITS)
    need = sum(count_each(asking.ask.input))
    for said in (parts.said, ()) if summary else ():
        left = (*parts.standing, *said, stands_for(summary), *parts.kept)
        if sum(count_each(left)) < need:
            before = parts.standing if outside else (*parts.standing, *said)
            beside = said if outside else ()
            return await _made(asking, before=before, summary=summary, after=parts.kept, beside=beside, usage=usage)
    return replace(await _made(asking, after=asking.ask.input, usage=usage), beside=parts.said if outside else ())


async def _made(
    asking: Asking,
    *,
    before: tuple[Item, ...] = (),
    summary: str | None = None,
    after: Sequence[Item] = (),
    beside: tuple[Item, ...] = (),
    usage: Mapping[str, Json] | None = None,
) -> Smaller:
    """The item that holds all this sealed; `beside` is not in it and stays visible."""
    edges, open_ = asking.edges, await opener(asking.history, asking.edges)
    covers = covered(asking.history, open_, beside=beside)
    sealed = Sealed(edges.store.tenant, before, summary, tuple(after), covers)
    item = {
        "id": edges.new_id("cmp"),
        "type": "compaction",
        "encrypted_content": await edges.sealing.seal(sealed),
    }
    return Smaller(item, (*beside, *opened(sealed)), beside, usage)


async def opener(history: Sequence[Item], edges: Edges) -> Open:
    """Opens what is sealed in `history`; no key is fetched where nothing is."""
    if last_compaction(history) is None:
        return lambda item: None
    return await edges.sealing.opener()


# -- asking for a summary -------------------------------------------------------------------------


async def _summary(asking: Asking, folded: Sequence[Item], splits: int) -> tuple[str, Mapping[str, Json] | None]:
    """The model's summary of `folded`, and its usage."""
    foreign = next((item for item in folded if kind(item) == "compaction"), None)
    if foreign is not None:
        raise refusals.not_verified(foreign)
    try:
        return await _asked_for(asking, folded)
    except ConvoError as wrong:
        half = _half(folded)
        if not too_long(wrong) or half is None or not splits:
            raise
    first, used = await _summary(asking, folded[:half], splits - 1)
    whole, more = await _summary(asking, (stands_for(first), *folded[half:]), splits - 1)
    return whole, together(used, more)


async def _asked_for(asking: Asking, folded: Sequence[Item]) -> tuple[str, Mapping[str, Json] | None]:
    ask = asking.ask
    request = summariser(folded, context=ask.instructions)
    passed_on = {name: value for name, value in ask.parameters.items() if name in PASSED_ON}
    last: Event | None = None
    async with aclosing(asking.model.respond(Ask(ask.model, request.items, request.instructions, passed_on))) as events:
        async for event in events:
            last = event
    if last is None or not str(last["type"]).startswith("response.") or "response" not in last:
        raise StreamBroken("the model's summary ended before it was whole")
    end = ending.ended(last)
    if end.status == "failed":
        raise StreamBroken(f"the model made no summary: {(end.error or {}).get('message')}")
    return summary_in(end.output), end.usage


def _half(items: Sequence[Item]) -> int | None:
    """The middle one of the places where `items` can be cut."""
    places = [place for place in cuts(items) if 0 < place < len(items)]
    return places[len(places) // 2] if places else None
