"""Build the response resource, its events, and the link that is stored.

The resource is built from the link and the output alone, so the last streamed event, the stored
response and a later retrieve cannot differ. `TurnResult` says how a response ended; one
transaction makes it durable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convo.endpoints.base import LIMIT_FIELD
from convo.errors import ConvoError, LimitReached
from convo.history.accumulator import STREAMED_TEXT_DIFFERS, STREAMED_TEXT_DIFFERS_MESSAGE
from convo.history.items import Item, Json, Response, StreamEvent, is_client_call
from convo.history.records import (
    IGNORED_PARAMETER,
    PROVIDER_PARAMETER,
    Link,
    LinkStatus,
    Strategy,
    effective_parameters,
    strip_tool_secrets,
)
from convo.history.tree import Path
from convo.responses_api.conversations import build_append_transaction
from convo.responses_api.history import LoadedHistory
from convo.responses_api.validation import ResponseRequest
from convo.runtime import NewId
from convo.stores.base import AppendItems, Transaction

DEFAULT_FIELD_VALUES: Mapping[str, Json] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "metadata": {},
}
"""Fields that show what was asked, and what they show when nothing was."""

OPTIONAL_FIELDS = (
    "access_programs",
    "image",
    "moderation",
    "prompt",
    "prompt_cache_options",
    "prompt_cache_retention",
    "user",
)
"""Fields that are not there when nobody asked for them."""

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
"""The codes with which a response may fail: typed clients take no others."""


def build_response(link: Link, output: Sequence[Item]) -> Response:
    """The response that `link` stands for.

    output:  its items, as they were streamed
    """
    asked = effective_parameters(link.parameters)
    ended = link.created_at + link.seconds if link.seconds is not None else link.created_at
    return {
        "id": link.id,
        "object": "response",
        "created_at": int(link.created_at),
        "completed_at": int(ended) if link.status == "completed" else None,
        "status": link.status,
        "background": bool(asked.get("background")),
        "error": _error_field(link),
        "incomplete_details": _incomplete_details_field(link),
        "model": link.model,
        "output": list(output),
        "previous_response_id": link.previous_response_id,
        "conversation": {"id": link.conversation_id} if link.conversation_id else None,
        "store": link.stored,
        "service_tier": "default",
        "reasoning": {"effort": None, "summary": None, **asked.get("reasoning", {})},
        "text": _text_field(asked.get("text", {})),
        "tools": [_tool_field(tool) for tool in asked.get("tools", ())],
        "usage": _usage_field(link.usage),
        **{name: asked.get(name, otherwise) for name, otherwise in DEFAULT_FIELD_VALUES.items()},
        **{name: asked[name] for name in OPTIONAL_FIELDS if name in asked},
    }


def build_created_event(link: Link) -> StreamEvent:
    """The event that begins a response, without its number.

    Where fields of the request were ignored, `ignored` beside the response names them.
    """
    ignored = link.parameters.get(IGNORED_PARAMETER)
    return {
        "type": "response.created",
        "response": build_response(link, ()),
        **({IGNORED_PARAMETER: ignored} if ignored else {}),
    }


def build_terminal_event(link: Link, output: Sequence[Item]) -> StreamEvent:
    """The event that ends the stream of a response, without its number.

    The API has no event of its own for one that was cancelled: its `status` says so. Nor has it a field for
    the limit that ended an answer: it stands beside the response, and is sent as a header or a comment.
    """
    kind = "incomplete" if link.status == "cancelled" else link.status
    event: StreamEvent = {"type": f"response.{kind}", "response": build_response(link, output)}
    if link.error and STREAMED_TEXT_DIFFERS in link.error:
        return {**event, STREAMED_TEXT_DIFFERS: True}
    if link.error and "limit" in link.error:
        return {**event, LIMIT_FIELD: {"name": link.error["limit"], "message": link.error["message"]}}
    return event


def build_compaction_resource(
    response_id: str, made_at: float, window: Sequence[Item], used: Mapping[str, Json] | None
) -> Response:
    """A compacted window as the API shows it.

    used:  None where nobody said; the API has no word for that, so it shows nothing used
    """
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": int(made_at),
        "output": list(window),
        "usage": _usage_field(used or {"total_tokens": 0}),
    }


def add_usage(one: Mapping[str, Json] | None, other: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """The usage of two answers as that of one; None where it is known of neither."""
    if not one or not other:
        return one or other or None
    return {name: _add_values(one.get(name), other.get(name)) for name in {**one, **other}}


def _add_values(one: Json, other: Json) -> Json:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return add_usage(one, other)
    return one + other if _is_number(one) and _is_number(other) else one


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _error_field(link: Link) -> Json:
    """Why it failed, under a code that clients know; the link keeps the code that it really was."""
    if not link.error or link.status != "failed":
        return None
    shown = {name: value for name, value in link.error.items() if name != "limit"}
    return {**shown, "code": link.error["code"] if link.error["code"] in RESPONSE_ERROR_CODES else "server_error"}


def _incomplete_details_field(link: Link) -> Json:
    """A link keeps why its answer is incomplete where it keeps its errors."""
    return {"reason": link.error["code"]} if link.error and link.status == "incomplete" else None


def _text_field(asked: Mapping[str, Json]) -> Json:
    form = asked.get("format") or {"type": "text"}
    if form["type"] == "json_schema":
        form = {**JSON_SCHEMA_FORMAT_DEFAULTS, **form}
    return {**asked, "format": form}


def _tool_field(tool: Mapping[str, Json]) -> Json:
    return (
        {"type": tool["type"], "name": tool["name"], **FUNCTION_TOOL_DEFAULTS, **tool}
        if tool["type"] == "function"
        else tool
    )


def _usage_field(usage: Mapping[str, Json] | None) -> Json:
    """`usage` with both details; servers and older clients leave some figures out."""
    if not usage:
        return None
    into, out = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    return {
        "input_tokens": into,
        "output_tokens": out,
        "total_tokens": into + out,
        **usage,
        "input_tokens_details": {
            "cached_tokens": 0,
            "cache_write_tokens": 0,
            **(usage.get("input_tokens_details") or {}),
        },
        "output_tokens_details": {"reasoning_tokens": 0, **(usage.get("output_tokens_details") or {})},
    }


CANCELLED_ERROR: Mapping[str, Json] = {"code": "cancelled", "message": "The answer was stopped."}

NOT_STORED_ERROR: Mapping[str, Json] = {"code": "server_error", "message": "The server could not keep this answer."}

ABANDONED_ERROR: Mapping[str, Json] = {
    "code": "server_error",
    "message": "The server that ran this response went away.",
}

MODEL_FAILED_ERROR: dict[str, Json] = {"code": "server_error", "message": "The model failed."}

INCOMPLETE_MESSAGES: Mapping[str, str] = {
    "max_output_tokens": "The answer was cut off at its limit of tokens.",
    "content_filter": "The answer was cut off by a content filter.",
}


@dataclass(frozen=True)
class TurnResult:
    """How a model's answer ended.

    error:  {"code", "message"}; of an incomplete answer the reason and its words; "limit" where one ended it
    sent:   the output of a cancelled answer is what its client had been sent, and joins the conversation
    """

    status: LinkStatus
    output: tuple[Item, ...] = ()
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, Json] | None = None
    sent: bool = False

    @property
    def acknowledged(self) -> bool:
        """Whether the answer ended by itself, and not by a fault."""
        return self.status in ("completed", "incomplete")

    @property
    def joins(self) -> bool:
        """Whether the turn is appended to its conversation."""
        return self.acknowledged or self.sent


def result_from_event(event: StreamEvent) -> TurnResult:
    """How a terminal event ends an answer."""
    response: Response = event["response"]
    output, used = tuple(response.get("output") or ()), response.get("usage")
    if event["type"] == "response.completed":
        return TurnResult("completed", output, used)
    if event["type"] == "response.incomplete":
        if "limit" in (response.get("error") or {}):
            return TurnResult("incomplete", output, used, response["error"])
        reason = (response.get("incomplete_details") or {}).get("reason") or "max_output_tokens"
        words = INCOMPLETE_MESSAGES.get(reason, "The answer was cut off.")
        return TurnResult("incomplete", output, used, {"code": reason, "message": words})
    return TurnResult("failed", output, used, MODEL_FAILED_ERROR | (response.get("error") or {}))


def cancelled_result(output: Sequence[Item]) -> TurnResult:
    """An answer that its reader stopped; `output` is what had come of it."""
    return TurnResult("cancelled", tuple(output), error=CANCELLED_ERROR)


def disconnected_result(output: Sequence[Item]) -> TurnResult:
    """An answer whose client disconnected; `output` is what it had been sent.

    A whole call is marked incomplete: the client may still answer it, and a next turn without its output is accepted.
    """
    kept = tuple({**item, "status": "incomplete"} if is_client_call(item) else item for item in output)
    return TurnResult("cancelled", kept, error=CANCELLED_ERROR, sent=True)


def not_stored_result(output: Sequence[Item]) -> TurnResult:
    """An answer that no store took."""
    return TurnResult("failed", tuple(output), error=NOT_STORED_ERROR)


def abandoned_result(output: Sequence[Item]) -> TurnResult:
    """An answer that nobody carries out any more; `output` is what had come of it."""
    return TurnResult("failed", tuple(output), error=ABANDONED_ERROR)


def build_failed_event(fault: ConvoError, output: Sequence[Item]) -> StreamEvent:
    """The terminal event of an answer that `fault` ended; `output` is what had been finished of it."""
    error = {"code": fault.code, "message": fault.message}
    return {"type": "response.failed", "response": {"output": list(output), "error": error}}


def build_limit_event(reached: LimitReached, output: Sequence[Item]) -> StreamEvent:
    """The terminal event of an answer that reached a limit: of time it failed, of size it is incomplete.

    output:  as much as there is of it; the link keeps the limit's name beside its error
    """
    status, code = ("failed", "server_error") if reached.timed else ("incomplete", "max_output_tokens")
    error = {"code": code, "message": reached.message, "limit": reached.limit}
    return {"type": f"response.{status}", "response": {"output": list(output), "error": error}}


TEXT_DIFFERS_ERROR: Mapping[str, Json] = {"code": "text_differs", "message": STREAMED_TEXT_DIFFERS_MESSAGE}


def with_text_differs_error(end: TurnResult) -> TurnResult:
    """`end` of an answer whose final text is not the text that was streamed: the link says so in its error."""
    return (
        replace(end, error={**TEXT_DIFFERS_ERROR, **(end.error or {}), STREAMED_TEXT_DIFFERS: True})
        if end.acknowledged
        else end
    )


def build_turn_link(
    request: ResponseRequest,
    before: LoadedHistory,
    saw: Path,
    *,
    response_id: str,
    created_at: float,
    first_token_s: float | None,
    ignored: Sequence[str] = (),
    provider: str | None = None,
) -> Link:
    """The link of an answer that has begun.

    saw:       ends where the model's input ends
    ignored:   what the model was not sent, see `convo.models.base`
    provider:  the model's, where the model's name does not begin with it
    """
    ours: dict[str, Json] = {IGNORED_PARAMETER: list(ignored)} if ignored else {}
    if provider:
        ours[PROVIDER_PARAMETER] = provider
    return Link(
        id=response_id,
        saw=saw.head,
        head=saw.head,
        sent=len(saw) - len(before.path),
        model=request.model,
        strategy=Strategy.CONVERSATION if request.conversation else Strategy.CHAIN,
        status="in_progress",
        created_at=created_at,
        parent=request.previous,
        conversation_id=request.conversation,
        previous_response_id=request.previous,
        first_token_s=first_token_s,
        parameters=strip_tool_secrets(request.parameters) | ours,
        stored=request.store,
    )


def finish_turn_link(link: Link, saw: Path, end: TurnResult, seconds: float) -> Link:
    return replace(
        link,
        head=saw.grow(end.output).head,
        status=end.status,
        usage=end.usage,
        error=end.error,
        seconds=seconds,
    )


def build_turn_transaction(before: LoadedHistory, saw: Path, end: TurnResult, link: Link, new_id: NewId) -> Transaction:
    """The one change after which the answer is durable."""
    said = (*saw.items[len(before.path) :], *end.output)
    grow = (AppendItems(before.path.head, said),) if said else ()
    if before.conversation is None or not end.joins:
        return Transaction(grow=grow, links=(link,))
    return replace(build_append_transaction(before.conversation, before.path, said, new_id), links=(link,))


def rebase_turn_transaction(change: Transaction, saw: Path, end: TurnResult) -> Transaction:
    """`change` without leaning on a place that somebody deleted meanwhile: the whole path grows from the root."""
    return replace(change, grow=(AppendItems(saw.root, (*saw.items, *end.output)),))
