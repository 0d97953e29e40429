"""Events of a Messages API stream, in the form of its documentation.

`ChatServer.stream(*message_events(...), end=b"")` answers with them.
"""

import json
from typing import Any


def sse(event: dict[str, Any]) -> bytes:
    """Serialize an event; its name is in the `event` line and in the data."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def start(model: str = "claude-opus-5-20260701", **counts: int) -> bytes:
    usage = {"input_tokens": 12, "output_tokens": 1, **counts}
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    return sse({"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}})


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """Return the events of one content block, from its start to its stop."""
    return [
        sse({"type": "content_block_start", "index": index, "content_block": start}),
        *(sse({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        sse({"type": "content_block_stop", "index": index}),
    ]


def text(index: int, *parts: str) -> list[bytes]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": word} for word in parts))


def thinking(index: int, *parts: str, signature: str) -> list[bytes]:
    deltas = [{"type": "thinking_delta", "thinking": word} for word in parts]
    signed = {"type": "signature_delta", "signature": signature}
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, signed)


def redacted(index: int, data: str) -> list[bytes]:
    return block(index, {"type": "redacted_thinking", "data": data})


def tool(index: int, call_id: str, name: str, *pieces: str) -> list[bytes]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, *deltas)


def stop(reason: str = "end_turn", details: dict[str, Any] | None = None, **counts: Any) -> list[bytes]:
    delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    usage = {"output_tokens": 7, **counts}
    return [sse({"type": "message_delta", "delta": delta, "usage": usage}), sse({"type": "message_stop"})]


def message_events(*blocks: list[bytes], reason: str = "end_turn", **usage: Any) -> list[bytes]:
    """Return all events of an answer, including a ping."""
    ping = sse({"type": "ping"})
    return [start(), ping, *(event for one in blocks for event in one), *stop(reason, **usage)]


def error(kind: str, message: str) -> bytes:
    return sse({"type": "error", "error": {"type": kind, "message": message}})
