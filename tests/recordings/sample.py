"""Recordings of our own, in the form of an archive."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.models import messages_events
from tests.models.chat_server import delta, event, finish, tool

ARGUMENTS = {"city": "Oslo"}
CALL = {"name": "sky", "arguments": json.dumps(ARGUMENTS)}


def recording(name: str, api: str, body: Any, **expected: Any) -> dict[str, Any]:
    """A case of an archive; a body of bytes is a stream."""
    is_stream, status = isinstance(body, bytes), 400 if "error" in expected else 200
    content: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "finish": "completed", "n_a": None}
    return {
        "name": name, "source": "us/ours:sample.py#0", "vendor": api, "api": api, "stream": is_stream, "status": status,
        "request": None, "accepted": status == 200, "body": body.decode() if is_stream else json.dumps(body),
        "content_type": "text/event-stream" if is_stream else "application/json",
        "expected": {**content, "input_tokens": 12, "output_tokens": 7, "cached_tokens": 4, **expected},
    }  # fmt: skip


CHAT_USAGE = {"prompt_tokens": 12, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
CHAT_CHUNKS = (
    delta(reasoning_content="Hm."),
    delta(content="Sun"),
    delta(content="ny."),
    tool(0, call_id="call_1", name="sky", arguments='{"city":'),
    tool(0, arguments=' "Oslo"}'),
    finish("tool_calls", CHAT_USAGE),
)
CHAT_STREAM = b"".join(event({"id": "chatcmpl-1", **chunk}) for chunk in CHAT_CHUNKS) + b"data: [DONE]\n\n"


def chat(reason: str, **message: Any) -> dict[str, Any]:
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}]
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": choices, "usage": CHAT_USAGE}


CLAUDE_STREAM = b"".join(
    messages_events.message_events(
        messages_events.thinking(0, "Hm.", signature="c2ln"), messages_events.text(1, "Sun", "ny."), reason="max_tokens"
    )
)


def claude(content: Mapping[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 8, "cache_read_input_tokens": 4, "output_tokens": 7}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    return {**head, "content": [content], "usage": usage}


TEXT = {"type": "output_text", "text": "Sunny.", "annotations": []}
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
    "output": [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed", **CALL},
    ],
    "usage": {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19, "input_tokens_details": {"cached_tokens": 4}},
}  # fmt: skip

CHAT_CALLS = [{"id": "call_1", "type": "function", "function": CALL}]
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Oslo"}}
CALLS = [["sky", ARGUMENTS]]

RIGHT = (
    recording("chat-stream", "chat", CHAT_STREAM, text="Sunny.", reasoning="Hm.", calls=CALLS),
    recording("chat", "chat", chat("tool_calls", content="Sunny.", tool_calls=CHAT_CALLS), text="Sunny.", calls=CALLS),
    recording("chat-refusal", "chat", chat("stop", content=None, refusal="No."), finish="refused", refusal="No."),
    recording("chat-error", "chat", {"error": {"message": "Too long."}}, finish="failed", error="Too long."),
    recording(
        "claude-stream", "anthropic", CLAUDE_STREAM, text="Sunny.", reasoning="Hm.", finish="incomplete",
        cached_tokens=None,
    ),
    recording("claude", "anthropic", claude({"type": "text", "text": "Sunny."}), text="Sunny."),
    recording(
        "responses", "responses", RESPONSE, text="Sunny.", calls=CALLS, items=["message", "function_call"]
    ),
)  # fmt: skip
REFUSED = recording("claude-search", "anthropic", claude(SEARCH), hosted=["server_tool_use"])
NOT_SENT = recording("ambiguous", "chat", chat("stop", content="Sunny."), n_a="n > 1")

OTHERS: Mapping[str, Any] = {
    "text": "Rainy.", "reasoning": "Ah.", "refusal": "Never.", "calls": [["sea", ARGUMENTS]], "finish": "cancelled",
    "error": "Too short.", "items": ["message"], "input_tokens": 11, "output_tokens": 6, "cached_tokens": 3,
}  # fmt: skip
"""A value that is right for none of these recordings, by member of the expectation."""


def write_archive(file: Path, cases: Sequence[Mapping[str, Any]], *requests: Mapping[str, Any]) -> Path:
    with tarfile.open(file, "w:xz") as archive:
        for name, rows in (("cases.jsonl", cases), ("requests.jsonl", requests)):
            data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
            member = tarfile.TarInfo(f"recordings/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file
