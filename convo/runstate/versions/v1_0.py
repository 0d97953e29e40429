"""1.0: a paused run can be written down and gone on with (first written by 0.8.0).

A decision stands under its tool's name in `context.approvals`, for a call's id or for all calls.
"""

from collections.abc import Iterator

from convo.items import Json
from convo.runstate.identity import Call
from convo.runstate.paths import at
from convo.runstate.records import Kept
from convo.runstate.version import Room, Slot, Version

APPROVALS = ("context", "approvals")


def _records(document: Json) -> Iterator[Kept]:
    for key, record in (at(document, APPROVALS) or {}).items():
        yield Kept((*APPROVALS, key), key, record)


def _room(document: Json, call: Call, always: bool) -> Room:
    return document, tuple(Slot((*APPROVALS, key)) for key in call.kept_under(always=always))


VERSION = Version(
    "1.0",
    "0.8.0",
    "a run, its items, and its decisions by tool and call",
    reads=_records,
    room=_room,
)
