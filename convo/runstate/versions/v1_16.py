"""1.16: approving one call overrides the sticky rejection of its tool (first written by 0.21.1)."""

from convo.runstate.format import Version

VERSION = Version("1.16", "0.21.1", "approving one call wins over rejecting its tool for good; no new key")
