"""1.21: session writes may be held back until guardrails passed (first written by 0.24.0)."""

from convo.items import Json
from convo.runstate.paths import at, without
from convo.runstate.version import Change, Loss, Version

WRITE = ("pending_session_write",)


def _older(document: Json) -> Change:
    """Without a write that is held back: an older reader would settle it at once."""
    if at(document, (*WRITE, "held")) is not True:
        return document, ()
    count = len(at(document, (*WRITE, "items")) or [])
    loss = Loss("$.pending_session_write", f"{count} held items", "labels before 1.21 would write them unguarded")
    return without(document, WRITE), (loss,)


VERSION = Version(
    "1.21",
    "0.24.0",
    "session writes may be held until guardrails passed; output guardrails know their response (1.19 to 1.21)",
    keys=(
        "pending_session_write.held",
        "pending_session_write.reasoning_item_id_policy",
        "pending_session_write.current_response",
        "last_processed_response.tool_output_guardrail_result_start",
    ),
    older=_older,
)
