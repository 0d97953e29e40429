"""The rules, as a table; and linting, which is asking each of them.

A code never changes its meaning: people write it into their CI. The order is the order of repair:
first who owns the history and from where it goes on, then items by themselves, then what must stand
together. What a mend of an item leaves behind, a row below it looks after.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from convo.inspection.linting import arguments, compactions, exposed, ids, owners, pairs, seals, shapes, thoughts
from convo.inspection.linting.finding import Change, Fault, Finding, Severity
from convo.inspection.linting.view import View, drop

Check: TypeAlias = Callable[[View], Iterator[Fault]]

Mend: TypeAlias = Callable[[View, Sequence[Fault]], tuple[View, list[Change]]]
"""Makes a view without these faults, as far as it can, and says what it did; no changes: it cannot."""


class Rule(NamedTuple):
    """One thing that can be wrong.

    code:     stable; its page for `--explain` is `pages/CODE.md`
    summary:  what it finds, in a few words
    beyond:   the mend does not touch the items that an endpoint owns, so it needs no step back from them
    """

    code: str
    severity: Severity
    summary: str
    check: Check
    mend: Mend
    beyond: bool = False


ERROR, WARNING = Severity.ERROR, Severity.WARNING

RULES: tuple[Rule, ...] = (
    Rule(
        "store-false-in-chain",
        ERROR,
        "a response of a chain that its endpoint did not keep",
        owners.store_false_in_chain,
        owners.go_back,
        beyond=True,
    ),
    Rule(
        "anchor-expired",
        ERROR,
        "a chain that goes on from a response older than thirty days",
        owners.anchor_expired,
        partial(owners.leave, "anchor-expired"),
        beyond=True,
    ),
    Rule(
        "anchor-expires-soon",
        WARNING,
        "a chain that goes on from a response that may be gone in three days",
        owners.anchor_expires_soon,
        partial(owners.leave, "anchor-expires-soon"),
        beyond=True,
    ),
    Rule(
        "instructions-absent",
        WARNING,
        "a turn without the instructions that one before it had",
        owners.instructions_absent,
        owners.send_again,
        beyond=True,
    ),
    Rule(
        "malformed-item",
        ERROR,
        "an item that lacks what its kind cannot do without",
        shapes.malformed_item,
        partial(drop, "malformed-item"),
    ),
    Rule(
        "duplicate-item-id",
        ERROR,
        "an item whose id another one has",
        ids.duplicate_item_id,
        ids.drop_copies,
    ),
    Rule(
        "misplaced-compaction",
        ERROR,
        "a compaction item where it cannot be",
        compactions.misplaced_compaction,
        compactions.make_room,
    ),
    Rule(
        "sealed-elsewhere",
        ERROR,
        "encrypted content of another model, organisation or base URL",
        seals.sealed_elsewhere,
        seals.drop_sealed,
    ),
    Rule(
        "reasoning-id-replayed",
        ERROR,
        "reasoning that is only an id, sent where nobody kept it",
        thoughts.reasoning_id_replayed,
        partial(thoughts.drop_thoughts, "reasoning-id-replayed"),
    ),
    Rule(
        "invalid-arguments",
        ERROR,
        "a function call whose arguments are no JSON object",
        arguments.invalid_arguments,
        arguments.close_arguments,
    ),
    Rule(
        "output-without-call",
        ERROR,
        "an output whose call does not stand before it",
        pairs.output_without_call,
        partial(drop, "output-without-call"),
    ),
    Rule(
        "call-without-output",
        ERROR,
        "a call that nothing answers",
        pairs.call_without_output,
        pairs.close_calls,
        beyond=True,
    ),
    Rule(
        "reasoning-without-follower",
        ERROR,
        "reasoning without what it led to",
        thoughts.reasoning_without_follower,
        partial(thoughts.drop_thoughts, "reasoning-without-follower"),
    ),
    Rule(
        "missing-summary",
        ERROR,
        "reasoning without its summary, which may be empty and must be there",
        thoughts.missing_summary,
        thoughts.add_summary,
    ),
    Rule(
        "missing-phase",
        WARNING,
        "an answer without the phase that others have",
        thoughts.missing_phase,
        thoughts.add_phase,
    ),
    Rule(
        "secret-in-state",
        WARNING,
        "a RunState that seems to contain a key, a token or a password",
        exposed.secret_in_state,
        exposed.leave_in_state,
        beyond=True,
    ),
)

BY_CODE = {rule.code: rule for rule in RULES}

LEFT_OPEN: tuple[tuple[str, Callable[[View], str]], ...] = (
    ("sealed-elsewhere", seals.unknown_makers),
    ("anchor-expired", owners.unknown_age),
)
"""What a rule cannot judge where too little is known, in words; "" where it can."""


def lint(view: View) -> tuple[Finding, ...]:
    """Everything that is wrong, in the order of the items; what is about no item comes last."""
    found = [
        Finding(rule.code, Severity.WARNING if fault.mild else rule.severity, fault)
        for rule in RULES
        for fault in rule.check(view)
    ]
    return tuple(sorted(found, key=lambda one: len(view.items) if one.fault.at is None else one.fault.at))


def unjudged(view: View) -> tuple[tuple[str, str], ...]:
    """The rules that could not judge everything, by code, and why."""
    return tuple((code, why) for code, open_ in LEFT_OPEN if (why := open_(view)))
