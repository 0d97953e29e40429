"""Lint values: the view that rules check, the issues they report, and the changes of a repair.

`LintView` says who owns the items and which of them the next request sends; a rule reports only what and where.
Severity, code and fix are in the table of rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from convo.history.items import Item, Json, item_type, to_resendable, to_sendable
from convo.history.pairing import OUTPUT_BY_CALL, RESPONSE_BY_APPROVAL_REQUEST, output_index_by_call, pair_id
from convo.history.records import STRATEGY_INFO, Link, Scope, Strategy
from convo.inspect.view import ConversationView


class Severity(StrEnum):
    """An error will be refused, or answered with a part of the history missing; a warning may be."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class LintIssue:
    """One thing that is wrong.

    message:  one sentence without a final stop
    at:       the item, as how many stand before it; None where it is no item's
    field:    where in the item, as JSON path: ".arguments"
    link:     the response that it is about
    also:     other items that it is about
    mild:     a warning, although its rule's faults are errors
    """

    message: str
    at: int | None = None
    field: str = ""
    link: str | None = None
    also: tuple[int, ...] = ()
    mild: bool = False


def item_issues(faults: Iterable[LintIssue]) -> list[tuple[int, LintIssue]]:
    """The faults that items have, with the items' places."""
    return [(fault.at, fault) for fault in faults if fault.at is not None]


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A fault, and the code of the rule that found it."""

    code: str
    severity: Severity
    fault: LintIssue


@dataclass(frozen=True, slots=True)
class RepairChange:
    """One thing that a repair did.

    code:  the rule that it satisfies
    what:  "dropped", "replaced" or "added" for items; "anchor", "owner" or "instructions" for the record
    at:    the item of the source that it is about, as how many stand before it; None for the record
    why:   one sentence without a final stop
    """

    code: str
    what: str
    why: str
    at: int | None = None


ANSWERED_STATUSES = ("completed", "incomplete")


class OutputSpan(NamedTuple):
    """An answered link on the path: its output begins and ends behind so many items."""

    link: Link
    begins: int
    ends: int


@dataclass(frozen=True)
class LintView:
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
    steps: tuple[OutputSpan, ...] = ()
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
        return STRATEGY_INFO[self.strategy].remembers

    @property
    def raw(self) -> bool:
        """Whether another program may send the items, exactly as they stand."""
        return self.strategy is Strategy.REPLAY or self.partial

    @cached_property
    def travels(self) -> tuple[bool, ...]:
        """For each item, whether the next request carries it."""
        if self.raw:
            return (True,) * len(self.items)
        sent = [at >= self.owned and to_sendable(item) is not None for at, item in enumerate(self.items)]
        if self.remembers:
            return tuple(sent)
        return tuple(goes and to_resendable(item) is not None for goes, item in zip(sent, self.items, strict=True))

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
            found.setdefault(item_type(item), []).append(at)
        return found

    def of_kind(self, *kinds: str) -> list[tuple[int, Item]]:
        """The items of these kinds, with their places, in order."""
        places = sorted(at for one in kinds for at in self.by_kind.get(one, ()))
        return [(at, self.items[at]) for at in places]

    @cached_property
    def halves(self) -> Sequence[tuple[int, Item, str]]:
        """Calls and outputs that an id ties, with their places and that id."""
        found = self.of_kind(*COUNTERPART_TYPES, *COUNTERPART_TYPES.values())
        return [(at, item, name) for at, item in found if (name := counterpart_id(item)) is not None]

    @cached_property
    def answers(self) -> Mapping[int, int]:
        """The place of each call's output by that of the call."""
        return output_index_by_call(self.items, COUNTERPART_TYPES)


COUNTERPART_TYPES: Mapping[str, str] = {**OUTPUT_BY_CALL, **RESPONSE_BY_APPROVAL_REQUEST}
"""Calls and requests for approval, and the kind of what answers each."""


def lint_view_of_conversation(known: ConversationView, now: float) -> LintView:
    """What is known of a conversation, for the rules. `now`: seconds since 1970"""
    remembers = STRATEGY_INFO[known.strategy].remembers
    handle, anchor = _find_anchor(known) if known.strategy is Strategy.CHAIN else (None, None)
    return LintView(
        items=known.path.items,
        strategy=known.strategy,
        owned=known.path.place(known.mark) if remembers else 0,
        scope=known.scope,
        model=known.model,
        steps=_find_output_spans(known),
        handle=handle,
        anchor=anchor,
        instructions=known.session.instructions if known.session else None,
        now=now,
        sources=tuple(range(len(known.path))),
    )


def lint_view_of_file(items: Sequence[Item], request: Mapping[str, Json] | None = None) -> LintView:
    """A file that no record knows.

    request:  the other fields of a request that the items are the input of
    """
    told = request or {}
    chained = told.get("previous_response_id") is not None
    goes_on = chained or told.get("conversation") is not None
    remembering = Strategy.CHAIN if chained else Strategy.CONVERSATION
    strategy = remembering if goes_on else Strategy.REPLAY
    return LintView(tuple(items), strategy, partial=goes_on, sources=tuple(range(len(items))))


def with_client_owner(view: LintView, strategy: Strategy = Strategy.SESSION) -> LintView:
    """The same items with the client as their owner, so that all of them travel."""
    return replace(view, strategy=strategy, owned=0, partial=False, handle=None, anchor=None)


def is_incomplete_item(item: Item) -> bool:
    """Whether an answer ended in the middle of it."""
    return item.get("status") not in (None, "completed")


def counterpart_id(item: Item) -> str | None:
    """What ties a call and its output."""
    return pair_id(item)


def is_model_item(item: Item) -> bool:
    """Whether a model says such an item."""
    if item_type(item) == "message":
        return item.get("role") == "assistant"
    return item_type(item) not in NON_MODEL_TYPES and not item_type(item).endswith("_output")


NON_MODEL_TYPES = frozenset({"compaction", "compaction_trigger", "mcp_approval_response", "unknown"})


def _find_anchor(known: ConversationView) -> tuple[str | None, Link | None]:
    """What a chain goes on from: from a response without an answer, that is the one before it."""
    links = {link.id: link for link in known.links}
    handle = known.session.handle if known.session else known.handle
    link = links.get(handle or "")
    if link and link.status not in ANSWERED_STATUSES:
        handle = link.previous_response_id
    return handle, links.get(handle or "")


def _find_output_spans(known: ConversationView) -> tuple[OutputSpan, ...]:
    places = {key: at for at, key in enumerate(known.path.keys, 1)}
    places[known.path.root] = 0
    found = [
        OutputSpan(link, places[link.saw], places[link.head])
        for link in known.links
        if link.status in ANSWERED_STATUSES and link.saw in places and link.head in places
    ]
    return tuple(sorted(found, key=lambda step: step.ends))


@dataclass(frozen=True)
class ItemEdits:
    """What changes in the items of a view, by place: None drops one, `behind` puts others after one."""

    replaced: Mapping[int, Item | None] = field(default_factory=dict)
    behind: Mapping[int, Sequence[Item]] = field(default_factory=dict)


def drop_items(code: str, view: LintView, faults: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Leave out the items that have these faults."""
    changes = [RepairChange(code, "dropped", fault.message, view.sources[at]) for at, fault in item_issues(faults)]
    return apply_edits(view, ItemEdits(dict.fromkeys(at for at, _ in item_issues(faults)))), changes


def apply_edits(view: LintView, edits: ItemEdits) -> LintView:
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
    steps = tuple(OutputSpan(link, stands[begins], ends[end]) for link, begins, end in view.steps)
    return replace(view, items=tuple(items), sources=tuple(sources), owned=ends[view.owned], steps=steps)
