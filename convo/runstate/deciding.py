"""What a person says of pending calls, as a patch on the document.

A decision is written where the readers of the document's own label look for it, so that the
release that paused the run can go on with it: by tool and call at first, with the ledger's entry
beside it from 1.15 on, under the agent from 1.18 on. Everything else stays as it was. What the
label has no words for is refused before anything is written.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from convo.errors import BadState, NotFound, Usage
from convo.items import Json
from convo.runstate.paths import Steps, at, path, replaced
from convo.runstate.records import Verdict, for_good, noted
from convo.runstate.state import Pending, State
from convo.runstate.version import Slot, Version
from convo.runstate.versions import BY_LABEL, WORDED, room
from convo.runstate.versions.v1_15 import LEDGER, entry

OVERRULES = BY_LABEL["1.16"]
"""From this label on approving one call wins over rejecting its tool for good."""

ALL = "all"


def decided(state: State, calls: Iterable[Pending], verdict: Verdict) -> State:
    """`state` with one verdict on each of `calls`, which are pending in it.

    raises:  Usage     the label has no place for such a decision
             BadState  a call cannot be bound to what it would do
    """
    document = state.document
    asked = defaultdict[Steps, list[Pending]](list)
    for one in calls:
        for holder in dict.fromkeys((one.holder,) if state.is_bound else ((), one.holder)):
            asked[holder].append(one)  # before 1.15 the outermost state speaks for those in it as well
    for holder, its in asked.items():
        document = replaced(document, holder, _inside(state, at(document, holder), its, verdict))
    return State(document, state.version)


def named(state: State, words: str) -> tuple[Pending, ...]:
    """The pending calls that `words` names.

    A call's id names that call, decided or not. A tool's name and "all" name undecided calls only, so that
    neither overturns an earlier decision.

    raises:  NotFound  no pending call has this id or tool
    """
    by_id = tuple(one for one in state.pending if one.id == words)
    if by_id:
        return by_id
    if words == ALL:
        return state.undecided()
    of_tool = tuple(one for one in state.pending if words in (one.call.tool, *one.call.keys))
    found = tuple(one for one in of_tool if one.id not in state.verdicts)
    if not of_tool:
        waiting = ", ".join(one.id for one in state.pending)
        raise NotFound("pending call", words, hint=f"one of {waiting}" if waiting else "nothing waits in this state")
    return found


def _inside(state: State, kept: Json, calls: Sequence[Pending], verdict: Verdict) -> Json:
    """The document with a verdict on the calls that it asks for: one change for each record, however many they are."""
    if state.is_bound:
        kept = _bound(kept, calls)
    noting = defaultdict[Slot, list[Pending]](list)
    for one in calls:
        kept, slots = room(state.version, kept, one.call, always=verdict.always)
        if verdict.always and one.call.is_hosted and not (one.call.name and one.call.raw.get("server_label")):
            raise Usage(f"{one.id} does not say whose tool it is, so nothing can be decided for good")
        for slot in slots:
            noting[slot].append(one)
    for slot, its in noting.items():
        record = at(kept, slot.steps) or {}
        _check_words(state.version, its[0], record, verdict)
        lasting = Verdict(verdict.approve, verdict.message, verdict.always and slot.for_good)
        scope = its[-1].call.scope() if state.is_bound else None
        kept = replaced(kept, slot.steps, noted(record, [one.id for one in its], lasting, scope))
    return kept


def _bound(document: Json, calls: Sequence[Pending]) -> Json:
    """The document with the ledger's entries of calls."""
    ledger = at(document, LEDGER) or {}
    fresh = {one.id: _entry(one) for one in calls if one.id not in ledger}
    return replaced(document, LEDGER, {**ledger, **fresh}) if fresh else document


def _entry(one: Pending) -> Json:
    where: Steps = (*one.way, "raw_item")
    try:
        bound = entry(one.call)
    except ValueError as wrong:
        raise BadState(path(where), f"cannot be decided on: {wrong}") from wrong
    if bound is None:
        raise BadState(path(where), "does not say what it would do, so nothing can be decided on it")
    return bound


def _check_words(version: Version, one: Pending, record: Json, verdict: Verdict) -> None:
    """raises: Usage  the readers of this label would not see the decision as it is meant"""
    if verdict.message is not None and version.number < WORDED.number:
        raise Usage(
            f"a state of {version.label} has no place for the reason of a rejection",
            hint=f"leave the reason out, or write a newer label with --schema {WORDED.label}",
        )
    overruled = verdict.approve and not verdict.always and for_good(record) is False
    if overruled and version.number < OVERRULES.number:
        raise Usage(
            f"{one.call.tool} was rejected for good, and readers of {version.label} let that stand over {one.id}",
            hint=f"approve it with --always, or write a newer label with --schema {OVERRULES.label}",
        )
