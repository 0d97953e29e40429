"""The lint rules as a table, and `lint_history`, which runs them all.

A code never changes its meaning: users name it in CI. The order is the order of repair: owner and anchor first, then
single items, then pairs. A fix may leave something to a rule below it, never to one above.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from convo.lint import chain, items, reasoning, secrets
from convo.lint.model import LintFinding, LintIssue, LintView, RepairChange, Severity, drop_items

RuleCheck: TypeAlias = Callable[[LintView], Iterator[LintIssue]]

RuleFix: TypeAlias = Callable[[LintView, Sequence[LintIssue]], tuple[LintView, list[RepairChange]]]
"""Fixes the issues as far as possible and returns the changes; without changes it could not fix any."""


class LintRule(NamedTuple):
    """One rule with its check and its fix.

    code:                stable; its page for `--explain` is `pages/CODE.md`
    summary:             its finding, in a few words
    keeps_server_items:  the fix does not edit items that an endpoint owns, so it needs no return to an earlier response
    """

    code: str
    severity: Severity
    summary: str
    check: RuleCheck
    fix: RuleFix
    keeps_server_items: bool = False


ERROR, WARNING = Severity.ERROR, Severity.WARNING

LINT_RULES: tuple[LintRule, ...] = (
    LintRule(
        "store-false-in-chain",
        ERROR,
        "a response of a chain that its endpoint did not keep",
        chain.check_store_false_in_chain,
        chain.fix_store_false_in_chain,
        keeps_server_items=True,
    ),
    LintRule(
        "anchor-expired",
        ERROR,
        "a chain that goes on from a response older than thirty days",
        chain.check_anchor_expired,
        partial(chain.move_to_local_store, "anchor-expired"),
        keeps_server_items=True,
    ),
    LintRule(
        "anchor-expires-soon",
        WARNING,
        "a chain that goes on from a response that may be gone in three days",
        chain.check_anchor_expires_soon,
        partial(chain.move_to_local_store, "anchor-expires-soon"),
        keeps_server_items=True,
    ),
    LintRule(
        "instructions-absent",
        WARNING,
        "a turn without the instructions that one before it had",
        chain.check_instructions_absent,
        chain.fix_instructions_absent,
        keeps_server_items=True,
    ),
    LintRule(
        "malformed-item",
        ERROR,
        "an item that lacks what its kind cannot do without",
        items.check_malformed_item,
        partial(drop_items, "malformed-item"),
    ),
    LintRule(
        "duplicate-item-id",
        ERROR,
        "an item whose id another one has",
        items.check_duplicate_item_id,
        items.fix_duplicate_item_id,
    ),
    LintRule(
        "misplaced-compaction",
        ERROR,
        "a compaction item where it cannot be",
        reasoning.check_misplaced_compaction,
        reasoning.fix_misplaced_compaction,
    ),
    LintRule(
        "sealed-elsewhere",
        ERROR,
        "encrypted content of another model, organisation or base URL",
        reasoning.check_sealed_elsewhere,
        reasoning.fix_sealed_elsewhere,
    ),
    LintRule(
        "reasoning-id-replayed",
        ERROR,
        "reasoning that is only an id, sent where nobody kept it",
        reasoning.check_reasoning_id_replayed,
        partial(reasoning.drop_reasoning, "reasoning-id-replayed"),
    ),
    LintRule(
        "invalid-arguments",
        ERROR,
        "a function call whose arguments are no JSON object",
        items.check_invalid_arguments,
        items.fix_invalid_arguments,
    ),
    LintRule(
        "output-without-call",
        ERROR,
        "an output whose call does not stand before it",
        items.check_output_without_call,
        partial(drop_items, "output-without-call"),
    ),
    LintRule(
        "call-without-output",
        ERROR,
        "a call that nothing answers",
        items.check_call_without_output,
        items.fix_call_without_output,
        keeps_server_items=True,
    ),
    LintRule(
        "reasoning-without-follower",
        ERROR,
        "reasoning without what it led to",
        reasoning.check_reasoning_without_follower,
        partial(reasoning.drop_reasoning, "reasoning-without-follower"),
    ),
    LintRule(
        "missing-summary",
        ERROR,
        "reasoning without its summary, which may be empty and must be there",
        reasoning.check_missing_summary,
        reasoning.fix_missing_summary,
    ),
    LintRule(
        "missing-phase",
        WARNING,
        "an answer without the phase that others have",
        reasoning.check_missing_phase,
        reasoning.fix_missing_phase,
    ),
    LintRule(
        "secret-in-state",
        WARNING,
        "a RunState that seems to contain a key, a token or a password",
        secrets.check_secret_in_state,
        secrets.fix_secret_in_state,
        keeps_server_items=True,
    ),
)

LINT_RULE_BY_CODE = {rule.code: rule for rule in LINT_RULES}

UNCHECKED_REASONS: tuple[tuple[str, Callable[[LintView], str]], ...] = (
    ("sealed-elsewhere", reasoning.explain_unknown_sealers),
    ("anchor-expired", chain.explain_unknown_age),
)
"""By rule: the function that explains what could not be checked; it returns "" if everything could."""


def lint_history(view: LintView) -> tuple[LintFinding, ...]:
    """Return all findings in the order of the items; those about no item come last."""
    found = [
        LintFinding(rule.code, Severity.WARNING if fault.is_warning else rule.severity, fault)
        for rule in LINT_RULES
        for fault in rule.check(view)
    ]
    return tuple(
        sorted(found, key=lambda one: len(view.items) if one.issue.item_index is None else one.issue.item_index)
    )


def list_unchecked_rules(view: LintView) -> tuple[tuple[str, str], ...]:
    """Return the code of each rule that could not check everything, and why."""
    return tuple((code, why) for code, open_ in UNCHECKED_REASONS if (why := open_(view)))
