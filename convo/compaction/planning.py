"""How one history is to be made smaller, decided before anybody is asked.

    in place    a conversation's endpoint does it in its own list, and the handle stays
    previous    the endpoint that holds a chain is asked by the response's id, and sent nothing
    input       an endpoint with a compaction of its own is sent what is to be folded
    summary     any model is asked for a summary in plain words, which stands in the history to be read

Whoever owns the history goes on owning it. What the client owns is folded from the client's items; a
chain by its id as long as its endpoint can look it up, and that is not the case for what was sent with
`store=false`. A remote endpoint may have a compaction of its own. Convo's own endpoint has models of
any make behind it, so there a summary is written that any of them can read, unless something sealed has
to be opened first. Nothing is folded while a call waits for its output: whoever answers it later would
answer something that is no longer there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from convo.compaction.cutting import APPROVAL, APPROVED, turns
from convo.compaction.folding import fold
from convo.compaction.summary import stands_for
from convo.errors import StateFault, Usage
from convo.history import Key, Path, Strategy
from convo.items import Item, call_id, is_call, is_output, is_user, kind


class Mode(StrEnum):
    """What is compacted: as it was asked for."""

    AUTO = "auto"
    PREVIOUS = "previous_response_id"
    INPUT = "input"


class Way(StrEnum):
    """How it is done."""

    IN_PLACE = "in place"
    PREVIOUS = "previous_response_id"
    INPUT = "input"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks for.

    focus:  what a summary looks at most closely
    keep:   how many of the last turns stay as they were said
    """

    mode: Mode = Mode.AUTO
    focus: str | None = None
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """The history as it stands.

    path:    all that its owner has confirmed
    here:    its endpoint is convo's own
    stored:  the responses that an endpoint can look up, by the place at which each of them ended
    """

    strategy: Strategy
    path: Path
    here: bool
    stored: Mapping[Key, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    folded:    what the result takes the place of, oldest first
    kept:      the turns that stay behind it
    previous:  the response whose whole context is folded
    """

    way: Way
    folded: tuple[Item, ...]
    kept: tuple[Item, ...] = ()
    previous: str | None = None
    focus: str | None = None


def plan(standing: Standing, wish: Wish) -> Plan:
    """Decide how.

    raises:  StateFault  a call waits for its output
             Usage       there is nothing to fold, or it cannot be done as it was asked for
    """
    items = standing.path.items
    _check_settled(items)
    cut = _cut(items, wish.keep)
    if not any(map(_foldable, items[:cut])):
        raise Usage("there is nothing to compact: nothing was answered before the turns that stay", hint=_fewer(wish))
    previous = standing.stored.get(standing.path.first(cut).head)
    way = _way(standing, wish, items[:cut], previous)
    return Plan(way, items[:cut], items[cut:], previous if way is Way.PREVIOUS else None, wish.focus)


def instead(made: Plan, *, here: bool) -> Plan:
    """The same by the client's own items, for an endpoint that can no longer look the chain up."""
    way = Way.SUMMARY if here and not _sealed(made.folded) else Way.INPUT
    return Plan(way, made.folded, made.kept, None, made.focus)


def windows(made: Plan, sizes: Sequence[int], summary: str) -> tuple[tuple[Item, ...], ...]:
    """What may stand in place of the history once it is summed up, the fuller one first.

    sizes:  tokens of each item that is folded
    """
    parts = fold(made.folded, sizes)
    saids = (parts.said, ()) if parts.said else ((),)
    return tuple((*parts.standing, *said, stands_for(summary), *made.kept) for said in saids)


def _check_settled(items: Sequence[Item]) -> None:
    answered = {call_id(item) for item in items if is_output(item)}
    answered |= {item.get("approval_request_id") for item in items if kind(item) == APPROVED}
    for item in items:
        if kind(item) == APPROVAL and item.get("id") not in answered:
            raise StateFault(
                f"the request {item.get('id')} of {item.get('name')} waits for a decision",
                hint="decide on it first; compact afterwards",
            )
        if is_call(item) and item.get("status") in (None, "completed") and call_id(item) not in answered:
            raise StateFault(
                f"the call {call_id(item)} of {item.get('name') or kind(item)} waits for its output",
                hint="answer it first, or convo repair; compact afterwards",
            )


def _cut(items: Sequence[Item], keep: int) -> int:
    """How many items are folded, so that `keep` whole turns stay."""
    begun = turns(items)
    if not keep:
        return len(items)
    return begun[-keep] if keep < len(begun) else 0


def _foldable(item: Item) -> bool:
    """Whether a fold of this would say less: an earlier compaction alone is as short as it gets."""
    return kind(item) != "compaction" and not is_user(item) and item.get("role") not in ("system", "developer")


def _way(standing: Standing, wish: Wish, folded: Sequence[Item], previous: str | None) -> Way:
    if wish.mode is Mode.PREVIOUS:
        _check_previous(standing, wish, previous)
        return Way.PREVIOUS
    if wish.focus:
        if _sealed(folded):
            raise Usage("what was compacted before is sealed, so nobody can look at it closely", hint="without --focus")
        return Way.SUMMARY
    if wish.mode is Mode.AUTO and standing.strategy is Strategy.CONVERSATION and not wish.keep:
        return Way.IN_PLACE
    if wish.mode is Mode.AUTO and standing.strategy is Strategy.CHAIN and previous:
        return Way.PREVIOUS
    return Way.SUMMARY if standing.here and not _sealed(folded) else Way.INPUT


def _check_previous(standing: Standing, wish: Wish, previous: str | None) -> None:
    if wish.focus:
        raise Usage("--focus is for a summary of the items", hint="--mode input")
    if standing.strategy is Strategy.CONVERSATION:
        raise Usage("a conversation is compacted in its list, not by a response", hint="--mode auto")
    if previous is None:
        raise Usage(
            "no endpoint can look this history up: what stands at its end was edited, or sent with store=false",
            hint="--mode input",
        )


def _sealed(items: Sequence[Item]) -> bool:
    return any(kind(item) == "compaction" for item in items)


def _fewer(wish: Wish) -> str:
    return "a smaller --keep-last" if wish.keep else "go on talking"
