"""Every label that a release ever wrote, the oldest first.

Read one file to know what came with a label: `v1_6` for 1.6. A released label's file is only ever
added to: states with that label lie on people's disks. 1.3, 1.7, 1.8, 1.14, 1.19 and 1.20 were
steps between two releases; no release ever wrote them, so a state that carries one was not written
by a release.
"""

from convo.items import Json
from convo.runstate.identity import Call
from convo.runstate.version import Room, Version
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

NEWEST = VERSIONS[-1]
LABELS = tuple(version.label for version in VERSIONS)
BY_LABEL = {version.label: version for version in VERSIONS}

BOUND = BY_LABEL["1.15"]
"""From this label on a decision counts only with its entry in the ledger."""

WORDED = BY_LABEL["1.6"]
"""From this label on a rejection can carry words for the model."""

NESTED = BY_LABEL["1.1"]
"""From this label on the state of an agent used as a tool is kept."""

LIMITLESS = BY_LABEL["1.10"]
"""From this label on a run may have no limit of turns."""


def upto(version: Version) -> tuple[Version, ...]:
    """`version` and every label before it, the newest first."""
    return tuple(one for one in reversed(VERSIONS) if one.number <= version.number)


def after(version: Version) -> tuple[Version, ...]:
    """The labels that came after `version`, the oldest first."""
    return tuple(one for one in VERSIONS if one.number > version.number)


def room(version: Version, document: Json, call: Call, *, always: bool) -> Room:
    """Where this label keeps a decision on `call`; the newest rule that speaks of such calls wins."""
    found = (one.room(document, call, always) for one in upto(version))
    return next(answer for answer in found if answer is not None)
