"""Repair: apply fixes, one rule at a time, until no rule reports anything.

Each round applies the fix of the first rule in table order that found something; each fix is next to its check, in
`calls`, `items`, `chain`, `reasoning` or `secrets`. Items that an endpoint owns cannot be edited: there the history
returns to a response before the first bad item, or the local store becomes the owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convo.errors import Unrepairable
from convo.history.records import Strategy
from convo.lint.chain import continue_before
from convo.lint.model import (
    KEPT,
    LintFinding,
    LintIssue,
    LintView,
    RepairChange,
    Severity,
    item_issues,
    lint_view_of_file,
    with_client_owner,
)
from convo.lint.rules import LINT_RULES, LintRule, lint_history


@dataclass(frozen=True)
class RepairResult:
    """A history without errors, and the changes made to it, in order."""

    view: LintView
    changes: tuple[RepairChange, ...] = ()


def repair_view(view: LintView) -> RepairResult:
    """Fix the findings of `lint_history`; a warning without a fix stays: a server may accept the item.

    Raises Unrepairable if dropping and completing items does not fix all errors.
    """
    changes: list[RepairChange] = []
    while findings := lint_history(view):
        new, new_changes = _repair_round(view, findings)
        if not new_changes or new == view:  # a fix that changes nothing would repeat forever
            if any(finding.severity is Severity.ERROR for finding in findings):
                raise Unrepairable([(finding.code, finding.issue.message) for finding in findings])
            return RepairResult(view, (*changes, *(_keep(finding, view) for finding in findings)))
        view, changes = new, changes + new_changes
    return RepairResult(view, tuple(changes))


def _keep(finding: LintFinding, view: LintView) -> RepairChange:
    index = finding.issue.item_index
    return RepairChange(
        finding.code, KEPT, finding.issue.message, None if index is None else view.source_indexes[index]
    )


def repair_for_session(view: LintView) -> RepairResult:
    """Repair the view for a new session record.

    A chain stays a chain as far as it is valid. A file or a conversation cannot have a second head, so the local store
    becomes the owner.
    """
    view = replace(view, pending_call_ids=frozenset())  # pending calls are resumed in the source, not in the copy
    if view.strategy not in UNCHANGED_SOURCES:
        return repair_view(view)
    reason = f"{UNCHANGED_SOURCES[view.strategy]} does not change: the local store has the repaired history"
    result = repair_view(with_client_owner(view))
    return RepairResult(result.view, (RepairChange("", "owner", reason), *result.changes))


UNCHANGED_SOURCES = {Strategy.REPLAY: "the file", Strategy.CONVERSATION: "the conversation at its endpoint"}


def repair_for_file(view: LintView) -> RepairResult:
    """Repair the view as a list that any program may send: a file does not record which model made its items."""
    view = replace(view, pending_call_ids=frozenset())
    if view.has_unread_items:
        return repair_view(view)
    first = repair_view(with_client_owner(view, Strategy.REPLAY))
    second = repair_view(replace(lint_view_of_file(first.view.items), source_indexes=first.view.source_indexes))
    changes = (change for change in first.changes if change.action != KEPT)
    return RepairResult(second.view, (*changes, *second.changes))


def can_repair(view: LintView, *, to_file: bool) -> bool:
    """Return whether a repair changes something and fixes every error, in a copy in a file or in a new session."""
    try:
        result = (repair_for_file if to_file else repair_for_session)(view)
    except Unrepairable:
        return False
    return any(change.action != KEPT for change in result.changes)


def _repair_round(view: LintView, findings: Sequence[LintFinding]) -> tuple[LintView, list[RepairChange]]:
    """Apply the fix of the first rule that can make one; no changes if none can."""
    for rule in LINT_RULES:
        issues = [finding.issue for finding in findings if finding.code == rule.code]
        new, changes = _apply_fix(rule, view, issues) if issues else (view, [])
        if changes:
            return new, changes
    return view, []


def _apply_fix(rule: LintRule, view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Apply the fix of `rule`; for items that an endpoint owns, return to a response before them."""
    owned = [(index, issue) for index, issue in item_issues(issues) if index < view.server_count]
    if not owned or rule.keeps_server_items:
        return rule.fix(view, issues)
    (index, first), *_ = owned
    return continue_before(view, index, rule.code, first.message)
