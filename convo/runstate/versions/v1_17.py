"""1.17: pending session writes, and which items the current response owns (first written by 0.22.1)."""

from convo.runstate.format import Version

VERSION = Version(
    "1.17",
    "0.22.1",
    "what a session still has to be told; which items the current response owns; a run that cannot be resumed",
    keys=("current_response_generated_item_ownership", "pending_session_write", "terminal_unrecoverable"),
)
