"""One record of decisions on one tool: some calls by id, or all of them for good.

`{"approved": [ids] or true, "rejected": [ids] or true}`, with the words for the model beside it.
Every label keeps this form; what changed from label to label is only where it stands and what a
reader wants to see beside it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from convo.items import Json
from convo.runstate.paths import Steps

Record: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Kept:
    """A record where it stands.

    steps:   its place in the document
    key:     the tool it is about, as decisions name tools
    agent:   whose tool, where the label says so
    hosted:  whether a provider's own tool is meant
    echo:    whether it repeats another record for those who ask by name
    """

    steps: Steps
    key: str
    record: Record
    agent: Json = None
    hosted: bool = False
    echo: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person says of a call: `always` is for the tool and for good; `message` is what the model is told."""

    approve: bool
    message: str | None = None
    always: bool = False


def ids(record: Record, side: str) -> list[str]:
    """The calls that `record` decides by id; `side` is "approved" or "rejected"."""
    said = record.get(side)
    return [call for call in said if isinstance(call, str)] if isinstance(said, list) else []


def for_good(record: Record) -> bool | None:
    """True or False where every call of the tool is approved or rejected, None where each is asked."""
    if record.get("approved") is True:
        return True
    return False if record.get("rejected") is True else None


def message(record: Record, call: str | None) -> str | None:
    """The words for the model when this call is rejected; None for the usual ones."""
    by_call = record.get("rejection_messages")
    words = by_call.get(call) if isinstance(by_call, dict) and call is not None else None
    if words is None and for_good(record) is False:
        words = record.get("sticky_rejection_message")
    return words if isinstance(words, str) else None


def noted(record: Record, calls: Collection[str], verdict: Verdict, scope: str | None) -> Record:
    """`record` with one more decision on each of `calls`; an earlier one on the same call gives way."""
    meant = dict.fromkeys(calls)
    if verdict.always:
        return _for_good(record, meant, verdict, scope)
    side, other = ("approved", "rejected") if verdict.approve else ("rejected", "approved")
    changed = {**record, "approved": record.get("approved", []), "rejected": record.get("rejected", [])}
    if isinstance(changed[other], list):
        changed[other] = [one for one in changed[other] if one not in meant]
    if changed[side] is not True:
        earlier = changed[side] if isinstance(changed[side], list) else []
        changed[side] = [*[one for one in earlier if one not in meant], *meant]
    return _worded(changed, meant, None if verdict.approve else verdict.message)


def merged(one: Record, other: Record) -> Record:
    """Two records on the same tool in one; where they differ, a rejection wins."""
    both = {**one, **other}
    for side in ("approved", "rejected"):
        sides = (one.get(side), other.get(side))
        both[side] = True if True in sides else list(dict.fromkeys([*ids(one, side), *ids(other, side)]))
    if both["rejected"] is True and both["approved"] is True:
        both["approved"] = list(dict.fromkeys([*ids(one, "approved"), *ids(other, "approved")]))
    words = {**(one.get("rejection_messages") or {}), **(other.get("rejection_messages") or {})}
    return {**both, "rejection_messages": words} if words else both


def _for_good(record: Record, calls: Collection[str], verdict: Verdict, scope: str | None) -> Record:
    changed: dict[str, Json] = {
        **record,
        "approved": verdict.approve,
        "rejected": [] if verdict.approve else True,
        **({"sticky_scope": scope} if scope else {}),
    }
    changed.pop("sticky_rejection_message", None)
    if verdict.approve:
        changed.pop("rejection_messages", None)
    elif verdict.message is not None:
        changed["sticky_rejection_message"] = verdict.message
    return changed if verdict.approve else _worded(changed, calls, verdict.message)


def _worded(record: dict[str, Json], calls: Collection[str], words: str | None) -> Record:
    by_call = {one: said for one, said in (record.get("rejection_messages") or {}).items() if one not in calls}
    if words is not None:
        by_call |= dict.fromkeys(calls, words)
    rest = {key: value for key, value in record.items() if key != "rejection_messages"}
    return {**rest, "rejection_messages": by_call} if by_call else rest
