"""Build the response resource, its events, and the link that is stored.

The resource is built from the link and the output alone, so the last streamed event, the stored
response and a later retrieve cannot differ. `TurnResult` is the end of a response; one
transaction stores it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from convo.endpoints.base import LIMIT_FIELD, NOT_STORED_ERROR, STEERED_REASON
from convo.errors import ConvoError, LimitReached
from convo.history.accumulator import STREAMED_TEXT_DIFFERS, STREAMED_TEXT_DIFFERS_MESSAGE
from convo.history.items import Item, Json, Response, StreamEvent, called_tools, is_client_call
from convo.history.records import (
    DEFAULT_SERVICE_TIER,
    IGNORED_PARAMETER,
    NOTICES,
    SERVICE_TIER,
    UPSTREAM_ID,
    Link,
    LinkStatus,
    effective_parameters,
    pick_reported_fields,
)
from convo.history.tree import Path
from convo.models.request_fields import IF_GIVEN, REPEATED_FIELDS
from convo.responses_api.conversations import build_append_transaction
from convo.responses_api.history import LoadedHistory
from convo.runtime import NewId
from convo.stores.base import AppendItems, Transaction

JSON_SCHEMA_FORMAT_DEFAULTS: Mapping[str, Json] = {"name": None, "description": None, "schema": None, "strict": False}
FUNCTION_TOOL_DEFAULTS: Mapping[str, Json] = {"description": None, "parameters": None, "strict": None}

RESPONSE_ERROR_CODES = frozenset(
    {
        *("server_error", "rate_limit_exceeded", "invalid_prompt", "data_residency_mismatch", "bio_policy"),
        *("misalignment_policy_violation", "vector_store_timeout", "invalid_image", "invalid_image_format"),
        *("invalid_base64_image", "invalid_image_url", "image_too_large", "image_too_small", "image_parse_error"),
        *("image_content_policy_violation", "invalid_image_mode", "image_file_too_large", "empty_image_file"),
        *("unsupported_image_media_type", "failed_to_download_image", "image_file_not_found"),
    }
)
"""The codes of a failed response; typed clients accept no others."""


def build_response(link: Link, output: Sequence[Item]) -> Response:
    """Build the response resource of `link`.

    output:  its items, as they were streamed
    """
    parameters = effective_parameters(link.parameters)
    ended_at = link.created_at + link.duration_s if link.duration_s is not None else link.created_at
    return {
        "id": link.id,
        "object": "response",
        "created_at": int(link.created_at),
        "completed_at": int(ended_at) if link.status == "completed" else None,
        "status": link.status,
        "background": bool(parameters.get("background")),
        "error": _error_field(link),
        "incomplete_details": _incomplete_details_field(link),
        "model": link.model,
        "output": list(output),
        "previous_response_id": link.previous_response_id,
        "conversation": {"id": link.conversation_id} if link.conversation_id else None,
        "store": link.is_stored,
        SERVICE_TIER: DEFAULT_SERVICE_TIER,
        "reasoning": {"effort": None, "summary": None, **parameters.get("reasoning", {})},
        "text": _text_field(parameters.get("text", {})),
        "tools": [_tool_field(tool) for tool in parameters.get("tools", ())],
        "usage": _usage_field(link.usage),
        **{
            name: parameters.get(name, default)
            for name, default in REPEATED_FIELDS.items()
            if default is not IF_GIVEN or name in parameters
        },
        **{name: value for name, value in link.reported.items() if name != UPSTREAM_ID},
    }


def build_created_event(link: Link) -> StreamEvent:
    """Build the first event of a response, without its number.

    If fields of the request were ignored, `ignored` beside the response lists them.
    """
    ignored = link.parameters.get(IGNORED_PARAMETER)
    return {
        "type": "response.created",
        "response": build_response(link, ()),
        **({IGNORED_PARAMETER: ignored} if ignored else {}),
    }


def build_terminal_event(link: Link, output: Sequence[Item], *, with_upstream_id: bool = False) -> StreamEvent:
    """Build the event that ends the stream of a response, without its number.

    with_upstream_id:  for a chat of this process, which stores the provider's own id; clients of a server do not get it

    The API has no event for a cancelled response: its `status` shows it. Nor has it a field for the limit that
    ended a response: the event has it next to `response`, and it is sent as a header or a comment.
    """
    status = "incomplete" if link.status == "cancelled" else link.status
    event: StreamEvent = {"type": f"response.{status}", "response": build_response(link, output)}
    if with_upstream_id and UPSTREAM_ID in link.reported:
        event["response"][UPSTREAM_ID] = link.reported[UPSTREAM_ID]
    if link.error and STREAMED_TEXT_DIFFERS in link.error:
        return {**event, STREAMED_TEXT_DIFFERS: True}
    if link.error and "limit" in link.error:
        return {**event, LIMIT_FIELD: {"name": link.error["limit"], "message": link.error["message"]}}
    return event


ZERO_USAGE = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
"""The usage of a response without a model request, or of a compaction whose provider does not report it."""


def build_compaction_resource(
    response_id: str, created_at: float, window: Sequence[Item], usage: Mapping[str, Json] | None
) -> Response:
    """Build the API's resource of a compaction.

    usage:  None if the provider did not report it; the API has no value for that, so zero is shown
    """
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": int(created_at),
        "output": list(window),
        "usage": _usage_field(usage or {"total_tokens": 0}),
    }


def add_usage(first: Mapping[str, Json] | None, second: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """Add the usage of two requests; None if neither is known."""
    if not first or not second:
        return first or second or None
    return {name: _add_values(first.get(name), second.get(name)) for name in {**first, **second}}


def _add_values(first: Json, second: Json) -> Json:
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return add_usage(first, second)
    return first + second if _is_number(first) and _is_number(second) else first


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _error_field(link: Link) -> Json:
    """Return the error under a code that clients know; the link keeps the original code."""
    if not link.error or link.status != "failed":
        return None
    error = {name: value for name, value in link.error.items() if name != "limit"}
    return {**error, "code": link.error["code"] if link.error["code"] in RESPONSE_ERROR_CODES else "server_error"}


def _incomplete_details_field(link: Link) -> Json:
    """Return the reason for an incomplete response, which the link stores as its error code."""
    return {"reason": link.error["code"]} if link.error and link.status == "incomplete" else None


def _text_field(text: Mapping[str, Json]) -> Json:
    text_format = text.get("format") or {"type": "text"}
    if text_format["type"] == "json_schema":
        text_format = {**JSON_SCHEMA_FORMAT_DEFAULTS, **text_format}
    return {**text, "format": text_format}


def _tool_field(tool: Mapping[str, Json]) -> Json:
    return (
        {"type": tool["type"], "name": tool["name"], **FUNCTION_TOOL_DEFAULTS, **tool}
        if tool["type"] == "function"
        else tool
    )


def _usage_field(usage: Mapping[str, Json] | None) -> Json:
    """Return `usage` with both details; servers and older clients leave some figures out."""
    if not usage:
        return None
    input_tokens, output_tokens = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        **usage,
        "input_tokens_details": {
            "cached_tokens": 0,
            "cache_write_tokens": 0,
            **(usage.get("input_tokens_details") or {}),
        },
        "output_tokens_details": {"reasoning_tokens": 0, **(usage.get("output_tokens_details") or {})},
    }


CANCELLED_ERROR: Mapping[str, Json] = {"code": "cancelled", "message": "The response was cancelled."}

ABANDONED_ERROR: Mapping[str, Json] = {
    "code": "server_error",
    "message": "The server that ran this response stopped.",
}

MODEL_FAILED_ERROR: dict[str, Json] = {"code": "server_error", "message": "The model failed."}

STREAM_CUT_REASON = "stream_ended"
"""The reason of an incomplete response whose stream ended in the middle."""

INCOMPLETE_MESSAGES: Mapping[str, str] = {
    "max_output_tokens": "The response is incomplete: it reached its limit of output tokens.",
    "content_filter": "The response is incomplete: a content filter stopped it.",
    STEERED_REASON: "The response ended early: the user sent further input for it.",
}


@dataclass(frozen=True)
class TurnResult:
    """The end of a model's response.

    error:    {"code", "message"}; for an incomplete response its reason and a message; "limit" if a limit ended it
    reported: the fields that only the model's provider can know
    is_sent:  the output of a cancelled response is the part sent to its client, and is appended to the conversation
    """

    status: LinkStatus
    output: tuple[Item, ...] = ()
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, Json] | None = None
    is_sent: bool = False
    reported: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_confirmed(self) -> bool:
        """Whether the response ended by itself, without an error."""
        return self.status in ("completed", "incomplete")

    @property
    def is_appended(self) -> bool:
        """Whether the turn is appended to its conversation."""
        return self.is_confirmed or self.is_sent


def result_from_event(event: StreamEvent) -> TurnResult:
    """Return the result that a terminal event carries."""
    return replace(_build_result(event), reported=pick_reported_fields(event["response"]))


def _build_result(event: StreamEvent) -> TurnResult:
    response: Response = event["response"]
    output, usage = tuple(response.get("output") or ()), response.get("usage")
    if event["type"] == "response.completed":
        return TurnResult("completed", output, usage)
    if event["type"] == "response.incomplete":
        if response.get("error"):  # of a limit, or a stream that was cut
            return TurnResult("incomplete", output, usage, response["error"])
        reason = (response.get("incomplete_details") or {}).get("reason") or "max_output_tokens"
        message = INCOMPLETE_MESSAGES.get(reason, "The response is incomplete.")
        return TurnResult("incomplete", output, usage, {"code": reason, "message": message})
    return TurnResult("failed", output, usage, MODEL_FAILED_ERROR | (response.get("error") or {}))


def cancelled_result(output: Sequence[Item]) -> TurnResult:
    """Build the result of a cancelled response; `output` is its partial output."""
    return TurnResult("cancelled", tuple(output), error=CANCELLED_ERROR)


def disconnected_result(output: Sequence[Item]) -> TurnResult:
    """Build the result of a response whose client disconnected; `output` is the part sent to it.

    A complete call is marked incomplete: the client may still send its output, and a next turn without one is accepted.
    """
    sent_items = tuple({**item, "status": "incomplete"} if is_client_call(item) else item for item in output)
    return TurnResult("cancelled", sent_items, error=CANCELLED_ERROR, is_sent=True)


def not_stored_result(output: Sequence[Item]) -> TurnResult:
    """Build the result of a response that the store failed to commit."""
    return TurnResult("failed", tuple(output), error=NOT_STORED_ERROR)


def abandoned_result(output: Sequence[Item]) -> TurnResult:
    """Build the result of a response whose process died; `output` is its partial output."""
    return TurnResult("failed", tuple(output), error=ABANDONED_ERROR)


def build_failed_event(fault: ConvoError, output: Sequence[Item]) -> StreamEvent:
    """Build the terminal event of a response that `fault` ended; `output` is its finished items."""
    error = {"code": fault.code, "message": fault.message}
    return {"type": "response.failed", "response": {"output": list(output), "error": error}}


def build_cut_event(cut: ConvoError, output: Sequence[Item]) -> StreamEvent:
    """Build the terminal event of a response whose stream ended in the middle; `output` is its partial output."""
    error = {"code": STREAM_CUT_REASON, "message": cut.message}
    notices = [f"{cut.message}; the part that arrived is kept"]
    reason = {"incomplete_details": {"reason": STREAM_CUT_REASON}}
    response = {"output": list(output), "error": error, NOTICES: notices, **reason}
    return {"type": "response.incomplete", "response": response}


def build_limit_event(limit_error: LimitReached, output: Sequence[Item]) -> StreamEvent:
    """Build the terminal event of a response that reached a limit: failed for a time limit, else incomplete.

    output:  the partial output; the link stores the limit's name beside its error
    """
    status, code = ("failed", "server_error") if limit_error.is_time_limit else ("incomplete", "max_output_tokens")
    error = {"code": code, "message": limit_error.message, "limit": limit_error.limit}
    return {"type": f"response.{status}", "response": {"output": list(output), "error": error}}


def build_steered_response(terminal: StreamEvent) -> dict[str, Json]:
    """Build the response of a terminal event for a response that ends early because it was steered."""
    return {**(terminal.get("response") or {}), "incomplete_details": {"reason": STEERED_REASON}}


def build_steered_event(output: Sequence[Item]) -> StreamEvent:
    """Build the terminal event of a response that was steered between two output items.

    The model did not report its usage, since it was stopped.
    """
    return {"type": "response.incomplete", "response": build_steered_response({"response": {"output": list(output)}})}


TEXT_DIFFERS_ERROR: Mapping[str, Json] = {"code": "text_differs", "message": STREAMED_TEXT_DIFFERS_MESSAGE}


def with_text_differs_error(result: TurnResult) -> TurnResult:
    """Mark the result in its error if the final text is not the streamed text."""
    return (
        replace(result, error={**TEXT_DIFFERS_ERROR, **(result.error or {}), STREAMED_TEXT_DIFFERS: True})
        if result.is_confirmed
        else result
    )


def finish_turn_link(link: Link, path: Path, result: TurnResult, duration_s: float) -> Link:
    """Return the link of a response that has ended; `path` ends with its output."""
    return replace(
        link,
        head=path.head,
        status=result.status,
        usage=result.usage,
        error=result.error,
        duration_s=duration_s,
        reported=result.reported,
        tools=called_tools(result.output),
    )


def build_turn_transaction(
    history: LoadedHistory, input_path: Path, result: TurnResult, link: Link, new_id: NewId
) -> Transaction:
    """Build the one transaction that stores the response."""
    new_items = (*(node.item for node in input_path.nodes[len(history.path) :]), *result.output)
    appends = (AppendItems(history.path.head, new_items),) if new_items else ()
    if history.conversation is None or not result.is_appended:
        return Transaction(appends=appends, links=(link,))
    return replace(build_append_transaction(history.conversation, history.path, new_items, new_id), links=(link,))


def rebase_turn_transaction(transaction: Transaction, input_path: Path, result: TurnResult) -> Transaction:
    """Rebuild `transaction` so that it appends the whole path from the root: a node that it builds on was deleted."""
    return replace(transaction, appends=(AppendItems(input_path.root, (*input_path.items, *result.output)),))
