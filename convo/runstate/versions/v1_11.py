"""1.11: a tool's output can have data that the model never receives (first written by 0.17.6)."""

from convo.runstate.format import Version, expand_item_keys

VERSION = Version(
    "1.11", "0.17.6", "a tool's output keeps data that the model never sees", keys=expand_item_keys("custom_data")
)
