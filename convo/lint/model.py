"""Lint values: the view that rules check, the issues they report, and the changes of a repair.

`LintView` has the owner of the items and the items that the next request sends; a rule reports only the problem and
its location. Severity, code and fix are in the table of rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from convo.history.items import (
    Item,
    Json,
    item_type,
    to_resendable,
    to_sendable,
)
from convo.history.pairing import call_index_by_output
from convo.history.records import ANSWERED_STATUSES, Link, Scope, Strategy
from convo.inspect.view import ConversationView
from convo.strategies.strategy import STRATEGIES


class Severity(StrEnum):
    """A server rejects an error, or answers without part of the history; for a warning it may do so."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class LintIssue:
    """One problem that a rule found.

    message:          one sentence without a full stop
    item_index:       index of the item; None if the issue is about no item
    field:            JSON path within the item: ".arguments"
    link_id:          the response that it is about
    related_indexes:  indexes of other items that it is about
    is_warning:       a warning, although the rule's severity is error
    """

    message: str
    item_index: int | None = None
    field: str = ""
    link_id: str | None = None
    related_indexes: tuple[int, ...] = ()
    is_warning: bool = False


def item_issues(issues: Iterable[LintIssue]) -> list[tuple[int, LintIssue]]:
    """Return the issues that are about an item, each with the item's index."""
    return [(issue.item_index, issue) for issue in issues if issue.item_index is not None]


@dataclass(frozen=True, slots=True)
class LintFinding:
    """An issue with the code of its rule and its severity."""

    code: str
    severity: Severity
    issue: LintIssue


KEPT = "kept"


@dataclass(frozen=True, slots=True)
class RepairChange:
    """One change that a repair made.

    code:          the rule that it satisfies
    action:        "dropped", "replaced", "moved" or "added" for items, "kept" for one whose warning has no fix;
                   "anchor", "owner" or "instructions" for the record
    source_index:  index of the item in the source; None for the record
    reason:        one sentence without a full stop
    """

    code: str
    action: str
    reason: str
    source_index: int | None = None


class OutputSpan(NamedTuple):
    """The output of an answered link on the path: `items[start:end]`."""

    link: Link
    start: int
    end: int


@dataclass(frozen=True)
class LintView:
    """One history, read-only.

    items:             the path, oldest first
    strategy:          the owner of the state
    server_count:      number of leading items that the endpoint stores; 0 if the client owns the state
    has_unread_items:  the endpoint stores earlier items that were not read
    scope, model:      target of the next turn, as far as known
    output_spans:      the answered links on the path, oldest first
    handle:            the response that a chain continues from; None before the first
    anchor:            the link of `handle`, if known
    instructions:      the instructions that the record sends with every turn
    pending_call_ids:  the ids of calls that wait for approval
    now:               seconds since 1970
    source_indexes:    each item's index in the history that was read; an added item has its call's
    exposed_secrets:   secrets in the RunState that was read: JSON path and description of each
    changed_prefixes:  for reasoning that was made with another prefix, by source index: a sentence, and its response
    """

    items: tuple[Item, ...]
    strategy: Strategy
    server_count: int = 0
    has_unread_items: bool = False
    scope: Scope | None = None
    model: str | None = None
    output_spans: tuple[OutputSpan, ...] = ()
    handle: str | None = None
    anchor: Link | None = None
    instructions: str | None = None
    pending_call_ids: frozenset[str] = frozenset()
    now: float | None = None
    source_indexes: tuple[int, ...] = ()
    exposed_secrets: tuple[tuple[str, str], ...] = ()
    changed_prefixes: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def is_server_side(self) -> bool:
        """Whether the server stores the history."""
        return STRATEGIES[self.strategy].is_server_side

    @property
    def is_chain(self) -> bool:
        """Whether each request continues from a response."""
        return STRATEGIES[self.strategy].uses_response

    @property
    def is_sent_verbatim(self) -> bool:
        """Whether another program may send the items exactly as they are."""
        return STRATEGIES[self.strategy].uses_file or self.has_unread_items

    @cached_property
    def sent_flags(self) -> tuple[bool, ...]:
        """Whether the next request sends an item, for each item."""
        if self.is_sent_verbatim:
            return (True,) * len(self.items)
        sent = [index >= self.server_count and to_sendable(item) is not None for index, item in enumerate(self.items)]
        if self.is_server_side:
            return tuple(sent)
        return tuple(
            is_sent and to_resendable(item) is not None for is_sent, item in zip(sent, self.items, strict=True)
        )

    @cached_property
    def origin_links(self) -> tuple[Link | None, ...]:
        """The link that produced each item."""
        links: list[Link | None] = [None] * len(self.items)
        for link, start, end in self.output_spans:
            for index in range(start, end):
                links[index] = links[index] or link
        return tuple(links)

    @cached_property
    def indexes_by_type(self) -> Mapping[str, Sequence[int]]:
        """The indexes of the items of each type."""
        indexes: dict[str, list[int]] = {}
        for index, item in enumerate(self.items):
            indexes.setdefault(item_type(item), []).append(index)
        return indexes

    def items_of_type(self, *kinds: str) -> list[tuple[int, Item]]:
        """Return the items of these types with their indexes, in order."""
        indexes = sorted(index for kind in kinds for index in self.indexes_by_type.get(kind, ()))
        return [(index, self.items[index]) for index in indexes]

    @cached_property
    def call_indexes(self) -> Mapping[int, int]:
        """The index of each output's call, by the index of the output, as `call_index_by_output`."""
        return call_index_by_output(self.items)

    @cached_property
    def output_indexes(self) -> Mapping[int, int]:
        """The index of each call's last output, by the index of the call."""
        return {call_index: index for index, call_index in self.call_indexes.items()}


def lint_view_of_conversation(view: ConversationView, now: float) -> LintView:
    """Build the lint view of a conversation. `now`: seconds since 1970"""
    is_server_side = STRATEGIES[view.strategy].is_server_side
    handle, anchor = _find_anchor(view) if STRATEGIES[view.strategy].uses_response else (None, None)
    return LintView(
        items=tuple(view.path.items),
        strategy=view.strategy,
        server_count=view.path.depth(view.confirmed_head) if is_server_side else 0,
        scope=view.scope,
        model=view.model,
        output_spans=_find_output_spans(view),
        handle=handle,
        anchor=anchor,
        instructions=view.session.instructions if view.session else None,
        now=now,
        source_indexes=tuple(range(len(view.path))),
    )


def lint_view_of_file(items: Sequence[Item], request: Mapping[str, Json] | None = None) -> LintView:
    """Build the lint view of a file, which has no record.

    request:  the other fields of the request, if the items are its input
    """
    fields = request or {}
    has_previous_response = fields.get("previous_response_id") is not None
    is_server_side = has_previous_response or fields.get("conversation") is not None
    owner = Strategy.CHAIN if has_previous_response else Strategy.CONVERSATION
    strategy = owner if is_server_side else Strategy.REPLAY
    return LintView(
        tuple(items),
        strategy,
        has_unread_items=is_server_side,
        model=str(fields.get("model") or "") or None,
        source_indexes=tuple(range(len(items))),
    )


def with_client_owner(view: LintView, strategy: Strategy = Strategy.SESSION) -> LintView:
    """Return the view with the client as owner of the state, so that the next request sends all items."""
    return replace(view, strategy=strategy, server_count=0, has_unread_items=False, handle=None, anchor=None)


def without_id(item: Item) -> Item:
    return {key: value for key, value in item.items() if key != "id"}


def _find_anchor(view: ConversationView) -> tuple[str | None, Link | None]:
    """Return the response that a chain continues from; a response without an answer yields its previous one."""
    links = {link.id: link for link in view.links}
    handle = view.session.handle if view.session else view.handle
    link = links.get(handle or "")
    if link and link.status not in ANSWERED_STATUSES:
        handle = link.previous_response_id
    return handle, links.get(handle or "")


def _find_output_spans(view: ConversationView) -> tuple[OutputSpan, ...]:
    index_by_key = {key: index for index, key in enumerate(view.path.keys, 1)}
    index_by_key[view.path.root] = 0
    spans = [
        OutputSpan(link, index_by_key[link.input_head], index_by_key[link.head])
        for link in view.links
        if link.status in ANSWERED_STATUSES and link.input_head in index_by_key and link.head in index_by_key
    ]
    return tuple(sorted(spans, key=lambda span: span.end))


@dataclass(frozen=True)
class ItemEdits:
    """Edits of a view's items, by index: a replacement (None drops the item), and items to insert after it."""

    replacements: Mapping[int, Item | None] = field(default_factory=dict)
    insertions: Mapping[int, Sequence[Item]] = field(default_factory=dict)


def drop_items(code: str, view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop the items that have these issues."""
    changes = [
        RepairChange(code, "dropped", issue.message, view.source_indexes[index]) for index, issue in item_issues(issues)
    ]
    return apply_edits(view, ItemEdits(dict.fromkeys(index for index, _ in item_issues(issues)))), changes


def apply_edits(view: LintView, edits: ItemEdits) -> LintView:
    """Apply `edits` to the view. Items inserted after the last server-owned item are not the server's."""
    items: list[Item] = []
    sources: list[int] = []
    starts, ends = [0], [0]  # new position of each old one: after the items inserted there, and before them
    for index, item in enumerate(view.items):
        edited = edits.replacements.get(index, item)
        remaining = [] if edited is None else [edited]
        new = [*remaining, *edits.insertions.get(index, ())]
        ends.append(len(items) + len(remaining))
        items += new
        sources += [view.source_indexes[index]] * len(new)
        starts.append(len(items))
    spans = tuple(OutputSpan(link, starts[start], ends[end]) for link, start, end in view.output_spans)
    return replace(
        view,
        items=tuple(items),
        source_indexes=tuple(sources),
        server_count=ends[view.server_count],
        output_spans=spans,
    )
