"""1.0: a paused run can be stored and resumed (first written by 0.8.0).

A decision is stored under its tool's name in `context.approvals`, for a call's id or for all calls.
"""

from collections.abc import Iterator

from convo.history.items import Json
from convo.runstate.document import get_path
from convo.runstate.format import LocatedRecord, RecordSlot, RecordSlots, Version
from convo.runstate.identity import StateCall

APPROVALS_PATH = ("context", "approvals")


def find_approval_records(document: Json) -> Iterator[LocatedRecord]:
    """Yield the decisions in `context.approvals`."""
    for key, record in (get_path(document, APPROVALS_PATH) or {}).items():
        yield LocatedRecord((*APPROVALS_PATH, key), key, record)


def _find_slots(document: Json, call: StateCall, always: bool) -> RecordSlots:
    return document, tuple(RecordSlot((*APPROVALS_PATH, key)) for key in call.record_keys_for(always=always))


VERSION = Version(
    "1.0",
    "0.8.0",
    "a run, its items, and its decisions by tool and call",
    find_records=find_approval_records,
    find_slots=_find_slots,
)
