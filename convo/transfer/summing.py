"""A shorter history from whoever can make one: an endpoint's own compaction, or any model's summary.

Nothing is kept anywhere by asking: what is sent goes with `store=false`. A history too long for one
summary is made into two, and the second begins with the first.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from convo.compaction import Plan, Way, cuts, instead, stands_for, summariser, summary_in, windows
from convo.endpoints.contract import Endpoint
from convo.engine.turn import Asking, cut_short, failure_in
from convo.errors import ConvoError, EndpointFault, Refused, StreamBroken, WindowExceeded
from convo.history import HERE, Strategy
from convo.items import Item, Json, Response, kind
from convo.items.partial import ENDS
from convo.strategies import fresh
from convo.tokens import count_each

UNKNOWN_PATH = (404, 405, 501)
"""What a server answers that has no compaction."""

NOT_COMPACTED = "not_compacted"

GONE = "previous_response_not_found"

SPLITS = 6
"""How often a history that is too long for one summary is made into two."""


class Shorter(NamedTuple):
    """What came of asking.

    plan:     how it was done in the end
    windows:  what may stand in place of the history, the fuller one first
    usage:    of every call that it took; None where nobody said
    notes:    what a person should know, in words
    """

    plan: Plan
    windows: tuple[tuple[Item, ...], ...]
    usage: Mapping[str, Json] | None
    notes: tuple[str, ...] = ()


async def shorter(made: Plan, asking: Asking, endpoint: Endpoint, *, auto: bool) -> Shorter:
    """Ask for what `made` plans.

    auto:    another way may be taken, where the endpoint does not have the one that was planned
    raises:  what the endpoint answers
    """
    if made.way is Way.SUMMARY:
        words, usage, notes = await _summary(made, made.folded, asking, endpoint, SPLITS)
        return Shorter(made, windows(made, count_each(made.folded), words), usage, notes)
    try:
        answer = await endpoint.compact(_body(made, asking))
        check_compacted(answer)
    except EndpointFault as fault:
        other = _other(made, fault, here=endpoint.scope == HERE) if auto else None
        if other is None:
            raise
        found = await shorter(other, asking, endpoint, auto=True)
        return found._replace(notes=(f"{fault.message}; compacted by {other.way} instead", *found.notes))
    return Shorter(made, ((*answer["output"], *made.kept),), answer.get("usage"))


def check_compacted(answer: Mapping[str, Json]) -> None:
    """Raises EndpointFault when an endpoint's answer has no compaction item: it did something else."""
    output = answer.get("output")
    if not isinstance(output, list) or not any(kind(item) == "compaction" for item in output):
        raise EndpointFault("the endpoint answered without a compaction item", code=NOT_COMPACTED)


def _body(made: Plan, asking: Asking) -> dict[str, Json]:
    said = {"instructions": asking.instructions} if asking.instructions else {}
    if made.way is Way.PREVIOUS:
        return {"model": asking.wire_model, **said, "previous_response_id": made.previous}
    return {"model": asking.wire_model, **said, "input": list(fresh(made.folded, Strategy.CHAIN))}


def _other(made: Plan, fault: EndpointFault, *, here: bool) -> Plan | None:
    """Another way, where the endpoint's answer is that it does not have this one."""
    if made.way is Way.PREVIOUS and fault.code == GONE:
        return instead(made, here=here)
    if fault.code == NOT_COMPACTED and not here:
        return Plan(Way.SUMMARY, made.folded, made.kept, None, made.focus)
    if made.way is Way.INPUT and fault.status in UNKNOWN_PATH and not here:
        return Plan(Way.SUMMARY, made.folded, made.kept, None, made.focus)
    if made.way is Way.PREVIOUS and fault.status in UNKNOWN_PATH:
        return Plan(Way.SUMMARY, made.folded, made.kept, None, made.focus)
    return None


class Summed(NamedTuple):
    """A model's summary; `usage` and `notes` as they are in `Shorter`."""

    words: str
    usage: Mapping[str, Json] | None
    notes: tuple[str, ...] = ()


async def _summary(made: Plan, folded: Sequence[Item], asking: Asking, endpoint: Endpoint, splits: int) -> Summed:
    """The model's summary of `folded`."""
    request = summariser(folded, focus=made.focus, context=asking.instructions)
    body = {"model": asking.wire_model, "instructions": request.instructions, "input": list(request.items)}
    try:
        return _summed(await collected(endpoint, {**body, "store": False}))
    except (EndpointFault, WindowExceeded) as wrong:
        half = _half(folded)
        if not splits or half is None or not _too_long(wrong):
            raise
    first = await _summary(made, folded[:half], asking, endpoint, splits - 1)
    whole = await _summary(made, (stands_for(first.words), *folded[half:]), asking, endpoint, splits - 1)
    return Summed(whole.words, _together(first.usage, whole.usage), tuple(dict.fromkeys(first.notes + whole.notes)))


async def collected(endpoint: Endpoint, body: Mapping[str, Json]) -> Response:
    """The response to `body`, once it is whole. raises: what the endpoint answers; EndpointFault  it failed"""
    last: Response | None = None
    async with aclosing(endpoint.create(body)) as events:
        async for event in events:
            last = event["response"] if event["type"] in ENDS else last
    if last is None:
        raise StreamBroken("the endpoint's stream ended before the answer was whole")
    if last.get("status") == "failed":
        raise failure_in(last)
    return last


def _summed(response: Response) -> Summed:
    words = summary_in(response.get("output") or ())
    if not words:
        raise StreamBroken("the model summed up nothing")
    cut = cut_short(response)
    notes = (f"the summary was cut short ({cut['code']}): what would stand at its end is missing",) if cut else ()
    return Summed(words, response.get("usage"), notes)


def _too_long(wrong: ConvoError) -> bool:
    return isinstance(wrong, WindowExceeded) or (isinstance(wrong, Refused) and wrong.code == WindowExceeded.code)


def _half(items: Sequence[Item]) -> int | None:
    """The middle one of the places where `items` can be cut."""
    places = [place for place in cuts(items) if 0 < place < len(items)]
    return places[len(places) // 2] if places else None


def _together(one: Mapping[str, Json] | None, other: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """The tokens of two calls; their details are left out."""
    if not one or not other:
        return one or other
    return {name: (one.get(name) or 0) + (other.get(name) or 0) for name in ("input_tokens", "output_tokens")}
