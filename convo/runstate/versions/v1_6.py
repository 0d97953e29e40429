"""1.6: a rejection has its message (first written by 0.12.1)."""

from convo.runstate.format import Version

VERSION = Version(
    "1.6",
    "0.12.1",
    "a rejection carries the words that the model is told",
    keys=("context.approvals.*.rejection_messages", "context.approvals.*.sticky_rejection_message"),
)
