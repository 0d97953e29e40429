"""Endless answers in the format of each provider API."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from tests.hostile_server import OK, PIECE, STREAM, HostileServer, endless_error, gzip_of_size, repeat_piece, sse_event

TEXT = "endless "


def chat_pieces(*, arguments: bool = False) -> tuple[bytes, bytes]:
    """Return the start of a chat completions answer, and the piece that repeats without end."""

    def chunk(**delta: Any) -> bytes:
        return sse_event({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    if not arguments:
        return chunk(role="assistant", content="begun "), chunk(content=TEXT)
    call = {"index": 0, "id": "call_1", "function": {"name": "pay", "arguments": '{"to": "'}}
    return chunk(content="begun ") + chunk(tool_calls=[call]), chunk(
        tool_calls=[{"index": 0, "function": {"arguments": TEXT}}]
    )


def responses_pieces(*, arguments: bool = False) -> tuple[bytes, bytes]:
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    position = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    head = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.content_part.added", **position, "part": part},
        {"type": "response.output_text.delta", **position, "delta": "begun "},
    ]
    if not arguments:
        return b"".join(map(sse_event, head)), sse_event(
            {"type": "response.output_text.delta", **position, "delta": TEXT}
        )
    done_item = {**message, "status": "completed", "content": [{**part, "text": "begun "}]}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "pay", "arguments": ""}
    head += [
        {"type": "response.output_item.done", "output_index": 0, "item": done_item},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
    ]
    piece = {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": TEXT}
    return b"".join(map(sse_event, head)), sse_event(piece)


def anthropic_pieces(*, arguments: bool = False) -> tuple[bytes, bytes]:
    def sse(kind: str, **fields: Any) -> bytes:
        return sse_event({"type": kind, **fields}, kind)

    def text_delta(text: str) -> bytes:
        return sse("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    head = sse("message_start", message={"model": "m", "usage": {"input_tokens": 3}})
    head += sse("content_block_start", index=0, content_block={"type": "text", "text": ""}) + text_delta("begun ")
    if not arguments:
        return head, text_delta(TEXT)
    call = {"type": "tool_use", "id": "call_1", "name": "pay", "input": {}}
    head += sse("content_block_stop", index=0) + sse("content_block_start", index=1, content_block=call)
    return head, sse("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": TEXT})


FORMS: dict[str, Callable[..., tuple[bytes, bytes]]] = {
    "chat": chat_pieces,
    "responses": responses_pieces,
    "anthropic": anthropic_pieces,
}


def endless_deltas(api: str, *, arguments: bool = False) -> Iterator[bytes]:
    head, piece = FORMS[api](arguments=arguments)
    return repeat_piece(piece, head=STREAM + head)


def started_then(api: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield STREAM + FORMS[api]()[0]
    yield from pieces


def slow_drip(server: HostileServer, api: str, every_s: float = 0.02) -> Iterator[bytes]:
    """Send an event without end, one byte every `every_s` seconds."""
    yield STREAM + FORMS[api]()[0] + b"data: "
    while True:
        server.wait(every_s)
        yield b"x"


def close_connection() -> Iterator[bytes]:
    """Close the connection without an answer, also when the client retries. Raises ConnectionAbortedError."""
    raise ConnectionAbortedError


@cache
def gzip_bomb() -> bytes:
    return gzip_of_size(256)


def endless_answers(server: HostileServer, api: str) -> dict[str, Callable[[], Iterator[bytes]]]:
    """Return the ways in which a server can send without end, by name."""
    gzip = OK + b"content-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
    return {
        "header": lambda: repeat_piece(b"x-endless: endless\r\n", head=OK),
        "line": lambda: repeat_piece(b"x" * 1024, head=STREAM + b"data: "),
        "body": lambda: repeat_piece(b"<p>endless</p>\n", head=OK + b"content-type: text/html\r\n\r\n"),
        "error body": lambda: endless_error(400, b"endless "),
        "gzip bomb": lambda: repeat_piece(gzip_bomb(), head=gzip),
        "comments": lambda: started_then(api, repeat_piece(b": still here\n\n")),
        "deltas": lambda: endless_deltas(api),
        "arguments": lambda: endless_deltas(api, arguments=True),
        "slow drip": lambda: slow_drip(server, api),
        "reconnects": close_connection,
    }


__all__ = ["FORMS", "PIECE", "endless_answers", "endless_deltas", "slow_drip", "started_then"]
