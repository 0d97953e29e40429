"""The lint rules as a table, and `lint_history`, which runs them all.

A code never changes its meaning: users name it in CI. The order is the order of repair: owner and anchor first, then
single items, then calls and outputs. A fix may leave issues to a later rule, never to an earlier one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from convo.lint import calls, chain, items, reasoning, secrets
from convo.lint.model import LintFinding, LintIssue, LintView, RepairChange, Severity, drop_items

RuleCheck: TypeAlias = Callable[[LintView], Iterator[LintIssue]]

RuleFix: TypeAlias = Callable[[LintView, Sequence[LintIssue]], tuple[LintView, list[RepairChange]]]
"""Fixes the issues as far as possible and returns the changes; without changes it could not fix any."""


class LintRule(NamedTuple):
    """One rule with its check and its fix.

    code:                stable; its page for `--explain` is `pages/CODE.md`
    summary:             description of its finding, in a few words
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
        "a chain continues from a response that was not stored (store=false)",
        chain.check_store_false_in_chain,
        chain.fix_store_false_in_chain,
        keeps_server_items=True,
    ),
    LintRule(
        "anchor-expired",
        ERROR,
        "a chain continues from a response older than 30 days",
        chain.check_anchor_expired,
        partial(chain.move_to_local_store, "anchor-expired"),
        keeps_server_items=True,
    ),
    LintRule(
        "anchor-expires-soon",
        WARNING,
        "a chain continues from a response that may expire within 3 days",
        chain.check_anchor_expires_soon,
        partial(chain.move_to_local_store, "anchor-expires-soon"),
        keeps_server_items=True,
    ),
    LintRule(
        "instructions-absent",
        WARNING,
        "a turn without the instructions of an earlier turn",
        chain.check_instructions_absent,
        chain.fix_instructions_absent,
        keeps_server_items=True,
    ),
    LintRule(
        "malformed-item",
        ERROR,
        "an item with a required field missing or invalid",
        items.check_malformed_item,
        partial(drop_items, "malformed-item"),
    ),
    LintRule(
        "duplicate-item-id",
        ERROR,
        "an item with the id of an earlier item",
        items.check_duplicate_item_id,
        items.fix_duplicate_item_id,
    ),
    LintRule(
        "misplaced-compaction",
        ERROR,
        "a compaction item or trigger in an invalid position",
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
        "changed-prefix",
        WARNING,
        "reasoning that was made with another prefix than it has now",
        reasoning.check_changed_prefix,
        reasoning.fix_changed_prefix,
        keeps_server_items=True,
    ),
    LintRule(
        "reasoning-id-replayed",
        ERROR,
        "reasoning that is only an id, sent to a server that did not store it",
        reasoning.check_reasoning_id_replayed,
        reasoning.fix_reasoning_id_replayed,
    ),
    LintRule(
        "invalid-arguments",
        ERROR,
        "a function call whose arguments are not a JSON object",
        items.check_invalid_arguments,
        items.fix_invalid_arguments,
    ),
    LintRule(
        "output-without-call",
        ERROR,
        "an output without an earlier call",
        calls.check_output_without_call,
        partial(drop_items, "output-without-call"),
    ),
    LintRule(
        "call-without-output",
        ERROR,
        "a call without an output",
        calls.check_call_without_output,
        calls.fix_call_without_output,
        keeps_server_items=True,
    ),
    LintRule(
        "reasoning-without-follower",
        ERROR,
        "reasoning without its required following item",
        reasoning.check_reasoning_without_follower,
        reasoning.fix_reasoning_without_follower,
    ),
    LintRule(
        "missing-summary",
        ERROR,
        "reasoning without its required summary list",
        reasoning.check_missing_summary,
        reasoning.fix_missing_summary,
    ),
    LintRule(
        "missing-phase",
        WARNING,
        "an assistant message without a phase, although others have one",
        reasoning.check_missing_phase,
        reasoning.fix_missing_phase,
    ),
    LintRule(
        "foreign-part",
        ERROR,
        "a part, field or item of Chat Completions or Anthropic's Messages",
        items.check_foreign_part,
        items.fix_foreign_part,
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
    findings = [
        LintFinding(rule.code, Severity.WARNING if fault.is_warning else rule.severity, fault)
        for rule in LINT_RULES
        for fault in rule.check(view)
    ]
    return tuple(
        sorted(
            findings,
            key=lambda finding: len(view.items) if finding.issue.item_index is None else finding.issue.item_index,
        )
    )


def list_unchecked_rules(view: LintView) -> tuple[tuple[str, str], ...]:
    """Return the code of each rule that could not check everything, and why."""
    return tuple((code, reason) for code, explain in UNCHECKED_REASONS if (reason := explain(view)))
