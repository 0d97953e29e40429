"""1.21: session writes can be delayed until guardrails passed (first written by 0.24.0)."""

from convo.history.items import Json
from convo.runstate.document import get_path, remove_path
from convo.runstate.format import RelabelLoss, RelabelResult, Version

SESSION_WRITE_PATH = ("pending_session_write",)


def _to_older(document: Json) -> RelabelResult:
    """Remove a delayed write: an older reader would perform it at once."""
    if get_path(document, (*SESSION_WRITE_PATH, "held")) is not True:
        return document, ()
    count = len(get_path(document, (*SESSION_WRITE_PATH, "items")) or [])
    loss = RelabelLoss(
        "$.pending_session_write",
        f"{count} delayed {'item' if count == 1 else 'items'}",
        "labels before 1.21 would write them before the guardrails pass",
    )
    return remove_path(document, SESSION_WRITE_PATH), (loss,)


VERSION = Version(
    "1.21",
    "0.24.0",
    "session writes can be delayed until guardrails passed; output guardrails have their response (1.19 to 1.21)",
    keys=(
        "pending_session_write.held",
        "pending_session_write.reasoning_item_id_policy",
        "pending_session_write.current_response",
        "last_processed_response.tool_output_guardrail_result_start",
    ),
    to_older=_to_older,
)
