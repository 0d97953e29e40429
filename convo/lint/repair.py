"""Repair: apply fixes, one rule at a time, until no rule reports anything.

Each round applies the fix of the first rule in table order that found something. Items that an endpoint owns cannot be
edited: there the history goes back to before the first bad item, or the local store becomes the owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convo.errors import Unrepairable
from convo.history.records import Strategy
from convo.lint.chain import continue_before
from convo.lint.model import (
    LintFinding,
    LintIssue,
    LintView,
    RepairChange,
    item_issues,
    lint_view_of_file,
    with_client_owner,
)
from convo.lint.rules import LINT_RULES, LintRule, lint_history


@dataclass(frozen=True)
class RepairResult:
    """A history that no rule has anything against, and what was done for it, in order."""

    view: LintView
    changes: tuple[RepairChange, ...] = ()


def repair_view(view: LintView) -> RepairResult:
    """`view` without what `lint_history` has against it.

    raises:  Unrepairable  something is wrong that cannot be put right by leaving out or completing
    """
    changes: list[RepairChange] = []
    while found := lint_history(view):
        new, made = _repair_round(view, found)
        if not made or new == view:  # a mend that changes nothing would be made for ever
            raise Unrepairable([(one.code, one.fault.message) for one in found])
        view, changes = new, changes + made
    return RepairResult(view, tuple(changes))


def repair_for_session(view: LintView) -> RepairResult:
    """`view` mended for a record of its own. A chain stays one, as far as it is good; no other owner has two heads."""
    view = replace(view, waiting=frozenset())  # whoever waits for these goes on where the history was read
    if view.strategy in (Strategy.CHAIN, Strategy.SESSION):
        return repair_view(view)
    why = f"{UNCHANGED_SOURCES[view.strategy]} stays as it is: the local store holds the mended history"
    here = repair_view(with_client_owner(view))
    return RepairResult(here.view, (RepairChange("", "owner", why), *here.changes))


UNCHANGED_SOURCES = {Strategy.REPLAY: "the file", Strategy.CONVERSATION: "the conversation at its endpoint"}


def repair_for_file(view: LintView) -> RepairResult:
    """`view` mended as a list that any program may send: whatever is known of its makers is lost there."""
    view = replace(view, waiting=frozenset())
    if view.partial:
        return repair_view(view)
    first = repair_view(with_client_owner(view, Strategy.REPLAY))
    second = repair_view(replace(lint_view_of_file(first.view.items), sources=first.view.sources))
    return RepairResult(second.view, first.changes + second.changes)


def _repair_round(view: LintView, found: Sequence[LintFinding]) -> tuple[LintView, list[RepairChange]]:
    """The mend of the first rule that can make one; no changes: none can."""
    for rule in LINT_RULES:
        faults = [one.fault for one in found if one.code == rule.code]
        new, made = _apply_fix(rule, view, faults) if faults else (view, [])
        if made:
            return new, made
    return view, []


def _apply_fix(rule: LintRule, view: LintView, faults: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """What `rule` mends; what an endpoint owns is stepped back from."""
    owned = [(at, fault) for at, fault in item_issues(faults) if at < view.owned]
    if not owned or rule.beyond:
        return rule.mend(view, faults)
    (at, first), *_ = owned
    return continue_before(view, at, rule.code, first.message)
