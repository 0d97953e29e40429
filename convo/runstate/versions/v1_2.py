"""1.2: whether reasoning items are sent again with their ids (first written by 0.9.2)."""

from convo.runstate.format import Version

VERSION = Version(
    "1.2",
    "0.9.2",
    "says whether reasoning items are sent again with their ids",
    keys=("reasoning_item_id_policy",),
)
