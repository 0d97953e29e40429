"""A history as the rules see it: its items, who owns them, and where they are going.

What is right depends on that. An item that its owner holds does not travel again, so what only a
request can get wrong does not count there; a file may be sent by any program, so nothing is put
right on its way. Where an item came from is known by the link that made it, or not at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from convo.history import OWNERS, Link, Scope, Strategy
from convo.inspection.known import Known
from convo.inspection.linting.finding import Change, Fault, of_items
from convo.items import Item, Json, kind, plain, resendable
from convo.items.pairing import APPROVALS, PAIRS, outputs_by_call, pair_id

ANSWERED = ("completed", "incomplete")


class Step(NamedTuple):
    """An answered link on the path: its output begins and ends behind so many items."""

    link: Link
    begins: int
    ends: int


@dataclass(frozen=True)
class View:
    """One history, frozen.

    items:         the path, oldest first
    strategy:      who owns it
    owned:         how many of the first items the endpoint holds itself; 0 for owners at the client
    partial:       the endpoint holds items before these, which nobody read here
    scope, model:  where the next turn goes, as far as that is known
    steps:         the answered links on the path, oldest first
    handle:        the response that a chain goes on from; None before there is one
    anchor:        its link, where that is known
    instructions:  what the record sends with every turn
    waiting:       the ids of calls on which a person has yet to decide
    now:           seconds since 1970
    sources:       for each item, its place in the history that was read; an added one has its call's
    exposed:       secrets in the RunState that was read: a JSON path and a kind in words each
    """

    items: tuple[Item, ...]
    strategy: Strategy
    owned: int = 0
    partial: bool = False
    scope: Scope | None = None
    model: str | None = None
    steps: tuple[Step, ...] = ()
    handle: str | None = None
    anchor: Link | None = None
    instructions: str | None = None
    waiting: frozenset[str] = frozenset()
    now: float | None = None
    sources: tuple[int, ...] = ()
    exposed: tuple[tuple[str, str], ...] = ()

    @property
    def remembers(self) -> bool:
        """Whether the owner holds the history itself."""
        return OWNERS[self.strategy].remembers

    @property
    def raw(self) -> bool:
        """Whether another program may send the items, exactly as they stand."""
        return self.strategy is Strategy.REPLAY or self.partial

    @cached_property
    def travels(self) -> tuple[bool, ...]:
        """For each item, whether the next request carries it."""
        if self.raw:
            return (True,) * len(self.items)
        sent = [at >= self.owned and plain(item) is not None for at, item in enumerate(self.items)]
        if self.remembers:
            return tuple(sent)
        return tuple(goes and resendable(item) is not None for goes, item in zip(sent, self.items, strict=True))

    @cached_property
    def origins(self) -> tuple[Link | None, ...]:
        """For each item, the link that made it."""
        found: list[Link | None] = [None] * len(self.items)
        for link, begins, ends in self.steps:
            for at in range(begins, ends):
                found[at] = found[at] or link
        return tuple(found)

    @cached_property
    def by_kind(self) -> Mapping[str, Sequence[int]]:
        """Where the items of each kind stand."""
        found: dict[str, list[int]] = {}
        for at, item in enumerate(self.items):
            found.setdefault(kind(item), []).append(at)
        return found

    def of_kind(self, *kinds: str) -> list[tuple[int, Item]]:
        """The items of these kinds, with their places, in order."""
        places = sorted(at for one in kinds for at in self.by_kind.get(one, ()))
        return [(at, self.items[at]) for at in places]

    @cached_property
    def halves(self) -> Sequence[tuple[int, Item, str]]:
        """Calls and outputs that an id ties, with their places and that id."""
        found = self.of_kind(*PAIRED, *PAIRED.values())
        return [(at, item, name) for at, item in found if (name := named(item)) is not None]

    @cached_property
    def answers(self) -> Mapping[int, int]:
        """The place of each call's output by that of the call."""
        return outputs_by_call(self.items, PAIRED)


PAIRED: Mapping[str, str] = {**PAIRS, **APPROVALS}
"""Calls and requests for approval, and the kind of what answers each."""


def viewed(known: Known, now: float) -> View:
    """What is known of a conversation, for the rules. `now`: seconds since 1970"""
    remembers = OWNERS[known.strategy].remembers
    handle, anchor = _anchor(known) if known.strategy is Strategy.CHAIN else (None, None)
    return View(
        items=known.path.items,
        strategy=known.strategy,
        owned=known.path.place(known.mark) if remembers else 0,
        scope=known.scope,
        model=known.model,
        steps=_steps(known),
        handle=handle,
        anchor=anchor,
        instructions=known.session.instructions if known.session else None,
        now=now,
        sources=tuple(range(len(known.path))),
    )


def bare(items: Sequence[Item], request: Mapping[str, Json] | None = None) -> View:
    """A file that no record knows.

    request:  the other fields of a request that the items are the input of
    """
    told = request or {}
    chained = told.get("previous_response_id") is not None
    goes_on = chained or told.get("conversation") is not None
    remembering = Strategy.CHAIN if chained else Strategy.CONVERSATION
    strategy = remembering if goes_on else Strategy.REPLAY
    return View(tuple(items), strategy, partial=goes_on, sources=tuple(range(len(items))))


def own_here(view: View, strategy: Strategy = Strategy.SESSION) -> View:
    """The same items with the client as their owner, so that all of them travel."""
    return replace(view, strategy=strategy, owned=0, partial=False, handle=None, anchor=None)


def cut_off(item: Item) -> bool:
    """Whether an answer ended in the middle of it."""
    return item.get("status") not in (None, "completed")


def named(item: Item) -> str | None:
    """What ties a call and its output."""
    return pair_id(item)


def is_models(item: Item) -> bool:
    """Whether a model says such an item."""
    if kind(item) == "message":
        return item.get("role") == "assistant"
    return kind(item) not in NOT_THE_MODELS and not kind(item).endswith("_output")


NOT_THE_MODELS = frozenset({"compaction", "compaction_trigger", "mcp_approval_response", "unknown"})


def _anchor(known: Known) -> tuple[str | None, Link | None]:
    """What a chain goes on from: from a response without an answer, that is the one before it."""
    links = {link.id: link for link in known.links}
    handle = known.session.handle if known.session else known.handle
    link = links.get(handle or "")
    if link and link.status not in ANSWERED:
        handle = link.previous_response_id
    return handle, links.get(handle or "")


def _steps(known: Known) -> tuple[Step, ...]:
    places = {key: at for at, key in enumerate(known.path.keys, 1)}
    places[known.path.root] = 0
    found = [
        Step(link, places[link.saw], places[link.head])
        for link in known.links
        if link.status in ANSWERED and link.saw in places and link.head in places
    ]
    return tuple(sorted(found, key=lambda step: step.ends))


@dataclass(frozen=True)
class Edits:
    """What changes in the items of a view, by place: None drops one, `behind` puts others after one."""

    replaced: Mapping[int, Item | None] = field(default_factory=dict)
    behind: Mapping[int, Sequence[Item]] = field(default_factory=dict)


def drop(code: str, view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """Leave out the items that have these faults."""
    changes = [Change(code, "dropped", fault.message, view.sources[at]) for at, fault in of_items(faults)]
    return edited(view, Edits(dict.fromkeys(at for at, _ in of_items(faults)))), changes


def edited(view: View, edits: Edits) -> View:
    """`view` with `edits` made; what stands behind the last owned item is not the owner's."""
    items: list[Item] = []
    sources: list[int] = []
    stands, ends = [0], [0]  # for each place of the view, where it is now: behind what was added there, and before it
    for at, item in enumerate(view.items):
        whole = edits.replaced.get(at, item)
        kept = [] if whole is None else [whole]
        new = [*kept, *edits.behind.get(at, ())]
        ends.append(len(items) + len(kept))
        items += new
        sources += [view.sources[at]] * len(new)
        stands.append(len(items))
    steps = tuple(Step(link, stands[begins], ends[end]) for link, begins, end in view.steps)
    return replace(view, items=tuple(items), sources=tuple(sources), owned=ends[view.owned], steps=steps)
