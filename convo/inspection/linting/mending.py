"""A valid history out of a broken one, a rule at a time.

Each round asks all rules, takes the first in their order that found something and makes its mend. A
mend drops, closes or completes; none of them makes what one above it has to look after again, so the
rounds end, and what they end with no rule has anything against. What an endpoint owns cannot be
edited: there the history goes back to before the first bad item, or gets another owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convo.errors import Unmendable
from convo.history import Strategy
from convo.inspection.linting.finding import Change, Fault, Finding, of_items
from convo.inspection.linting.owners import back
from convo.inspection.linting.rules import RULES, Rule, lint
from convo.inspection.linting.view import View, bare, own_here


@dataclass(frozen=True)
class Mended:
    """A history that no rule has anything against, and what was done for it, in order."""

    view: View
    changes: tuple[Change, ...] = ()


def mended(view: View) -> Mended:
    """`view` without what `lint` has against it.

    raises:  Unmendable  something is wrong that cannot be put right by leaving out or completing
    """
    changes: list[Change] = []
    while found := lint(view):
        new, made = _round(view, found)
        if not made or new == view:  # a mend that changes nothing would be made for ever
            raise Unmendable([(one.code, one.fault.message) for one in found])
        view, changes = new, changes + made
    return Mended(view, tuple(changes))


def for_a_session(view: View) -> Mended:
    """`view` mended for a record of its own. A chain stays one, as far as it is good; no other owner has two heads."""
    view = replace(view, waiting=frozenset())  # whoever waits for these goes on where the history was read
    if view.strategy in (Strategy.CHAIN, Strategy.SESSION):
        return mended(view)
    why = f"{STAYS[view.strategy]} stays as it is: the local store holds the mended history"
    here = mended(own_here(view))
    return Mended(here.view, (Change("", "owner", why), *here.changes))


STAYS = {Strategy.REPLAY: "the file", Strategy.CONVERSATION: "the conversation at its endpoint"}


def for_a_file(view: View) -> Mended:
    """`view` mended as a list that any program may send: whatever is known of its makers is lost there."""
    view = replace(view, waiting=frozenset())
    if view.partial:
        return mended(view)
    first = mended(own_here(view, Strategy.REPLAY))
    second = mended(replace(bare(first.view.items), sources=first.view.sources))
    return Mended(second.view, first.changes + second.changes)


def _round(view: View, found: Sequence[Finding]) -> tuple[View, list[Change]]:
    """The mend of the first rule that can make one; no changes: none can."""
    for rule in RULES:
        faults = [one.fault for one in found if one.code == rule.code]
        new, made = _carried_out(rule, view, faults) if faults else (view, [])
        if made:
            return new, made
    return view, []


def _carried_out(rule: Rule, view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """What `rule` mends; what an endpoint owns is stepped back from."""
    owned = [(at, fault) for at, fault in of_items(faults) if at < view.owned]
    if not owned or rule.beyond:
        return rule.mend(view, faults)
    (at, first), *_ = owned
    return back(view, at, rule.code, first.message)
