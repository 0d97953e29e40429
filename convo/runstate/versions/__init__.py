"""The schema versions of RunState, one module each, oldest first.

`v1_6` has what version 1.6 added. A published version is never changed: files of it exist. 1.3, 1.7, 1.8, 1.14, 1.19
and 1.20 were never published.
"""

from convo.history.items import Json
from convo.runstate.format import RecordSlots, Version
from convo.runstate.identity import StateCall
from convo.runstate.versions import (
    v1_0,
    v1_1,
    v1_2,
    v1_4,
    v1_5,
    v1_6,
    v1_9,
    v1_10,
    v1_11,
    v1_12,
    v1_13,
    v1_15,
    v1_16,
    v1_17,
    v1_18,
    v1_21,
)

VERSIONS: tuple[Version, ...] = tuple(
    module.VERSION
    for module in (
        *(v1_0, v1_1, v1_2, v1_4, v1_5, v1_6, v1_9, v1_10),
        *(v1_11, v1_12, v1_13, v1_15, v1_16, v1_17, v1_18, v1_21),
    )
)

NEWEST_VERSION = VERSIONS[-1]
LABELS = tuple(version.label for version in VERSIONS)
VERSION_BY_LABEL = {version.label: version for version in VERSIONS}

LEDGER_SINCE = VERSION_BY_LABEL["1.15"]
"""The first label in which a decision counts only with its ledger entry."""

REJECTION_MESSAGE_SINCE = VERSION_BY_LABEL["1.6"]
"""The first label in which a rejection can have a message for the model."""

NESTED_STATE_SINCE = VERSION_BY_LABEL["1.1"]
"""The first label that stores the state of an agent used as a tool."""

UNLIMITED_TURNS_SINCE = VERSION_BY_LABEL["1.10"]
"""The first label in which a run can have no limit of turns."""


def list_versions_up_to(version: Version) -> tuple[Version, ...]:
    """Return `version` and all older ones, newest first."""
    return tuple(one for one in reversed(VERSIONS) if one.number <= version.number)


def list_versions_after(version: Version) -> tuple[Version, ...]:
    """Return the versions newer than `version`, oldest first."""
    return tuple(one for one in VERSIONS if one.number > version.number)


def find_record_slots(version: Version, document: Json, call: StateCall, *, always: bool) -> RecordSlots:
    """Return the places of a decision on `call` in this label, by the newest version with a rule for such calls."""
    found = (one.room(document, call, always) for one in list_versions_up_to(version))
    return next(answer for answer in found if answer is not None)
