"""1.11: a tool's output keeps data that the model never sees (first written by 0.17.6)."""

from convo.runstate.version import Version, on_items

VERSION = Version(
    "1.11", "0.17.6", "a tool's output keeps data that the model never sees", keys=on_items("custom_data")
)
