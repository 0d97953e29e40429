"""A response as the API shows it: every field there, whatever was asked.

It is made from the link and its output and from nothing else, so what was streamed last, what is
stored and what is retrieved later cannot differ.
"""

from collections.abc import Mapping, Sequence

from convo.endpoints.contract import LIMIT
from convo.history import IGNORED, Link, honoured
from convo.items import Event, Item, Json, Response
from convo.items.partial import STREAMED

UNLESS_ASKED: Mapping[str, Json] = {
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

ONLY_IF_ASKED = (
    "access_programs",
    "image",
    "moderation",
    "prompt",
    "prompt_cache_options",
    "prompt_cache_retention",
    "user",
)
"""Fields that are not there when nobody asked for them."""

FORMAT_FIELDS: Mapping[str, Json] = {"name": None, "description": None, "schema": None, "strict": False}
FUNCTION_FIELDS: Mapping[str, Json] = {"description": None, "parameters": None, "strict": None}

FAILURES = frozenset(
    {
        *("server_error", "rate_limit_exceeded", "invalid_prompt", "data_residency_mismatch", "bio_policy"),
        *("misalignment_policy_violation", "vector_store_timeout", "invalid_image", "invalid_image_format"),
        *("invalid_base64_image", "invalid_image_url", "image_too_large", "image_too_small", "image_parse_error"),
        *("image_content_policy_violation", "invalid_image_mode", "image_file_too_large", "empty_image_file"),
        *("unsupported_image_media_type", "failed_to_download_image", "image_file_not_found"),
    }
)
"""The codes with which a response may fail: typed clients take no others."""


def resource(link: Link, output: Sequence[Item]) -> Response:
    """The response that `link` stands for.

    output:  its items, as they were streamed
    """
    asked = honoured(link.parameters)
    ended = link.created_at + link.seconds if link.seconds is not None else link.created_at
    return {
        "id": link.id,
        "object": "response",
        "created_at": int(link.created_at),
        "completed_at": int(ended) if link.status == "completed" else None,
        "status": link.status,
        "background": bool(asked.get("background")),
        "error": _error(link),
        "incomplete_details": _incomplete_details(link),
        "model": link.model,
        "output": list(output),
        "previous_response_id": link.previous_response_id,
        "conversation": {"id": link.conversation_id} if link.conversation_id else None,
        "store": link.stored,
        "service_tier": "default",
        "reasoning": {"effort": None, "summary": None, **asked.get("reasoning", {})},
        "text": _text(asked.get("text", {})),
        "tools": [_tool(tool) for tool in asked.get("tools", ())],
        "usage": _usage(link.usage),
        **{name: asked.get(name, otherwise) for name, otherwise in UNLESS_ASKED.items()},
        **{name: asked[name] for name in ONLY_IF_ASKED if name in asked},
    }


def created(link: Link) -> Event:
    """The event that begins a response, without its number.

    Where fields of the request were ignored, `ignored` beside the response names them.
    """
    ignored = link.parameters.get(IGNORED)
    return {"type": "response.created", "response": resource(link, ()), **({IGNORED: ignored} if ignored else {})}


def terminal(link: Link, output: Sequence[Item]) -> Event:
    """The event that ends the stream of a response, without its number.

    The API has no event of its own for one that was cancelled: its `status` says so. Nor has it a field for
    the limit that ended an answer: it stands beside the response, and is sent as a header or a comment.
    """
    kind = "incomplete" if link.status == "cancelled" else link.status
    event: Event = {"type": f"response.{kind}", "response": resource(link, output)}
    if link.error and STREAMED in link.error:
        return {**event, STREAMED: True}
    if link.error and "limit" in link.error:
        return {**event, LIMIT: {"name": link.error["limit"], "message": link.error["message"]}}
    return event


def compaction(response_id: str, made_at: float, window: Sequence[Item], used: Mapping[str, Json] | None) -> Response:
    """A compacted window as the API shows it.

    used:  None where nobody said; the API has no word for that, so it shows nothing used
    """
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": int(made_at),
        "output": list(window),
        "usage": _usage(used or {"total_tokens": 0}),
    }


def together(one: Mapping[str, Json] | None, other: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """The usage of two answers as that of one; None where it is known of neither."""
    if not one or not other:
        return one or other or None
    return {name: _sum(one.get(name), other.get(name)) for name in {**one, **other}}


def _sum(one: Json, other: Json) -> Json:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return together(one, other)
    return one + other if _is_number(one) and _is_number(other) else one


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _error(link: Link) -> Json:
    """Why it failed, under a code that clients know; the link keeps the code that it really was."""
    if not link.error or link.status != "failed":
        return None
    shown = {name: value for name, value in link.error.items() if name != "limit"}
    return {**shown, "code": link.error["code"] if link.error["code"] in FAILURES else "server_error"}


def _incomplete_details(link: Link) -> Json:
    """A link keeps why its answer is incomplete where it keeps its errors."""
    return {"reason": link.error["code"]} if link.error and link.status == "incomplete" else None


def _text(asked: Mapping[str, Json]) -> Json:
    form = asked.get("format") or {"type": "text"}
    if form["type"] == "json_schema":
        form = {**FORMAT_FIELDS, **form}
    return {**asked, "format": form}


def _tool(tool: Mapping[str, Json]) -> Json:
    return (
        {"type": tool["type"], "name": tool["name"], **FUNCTION_FIELDS, **tool} if tool["type"] == "function" else tool
    )


def _usage(usage: Mapping[str, Json] | None) -> Json:
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
