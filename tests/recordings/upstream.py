"""A server that sends the recorded bodies: the name of the model chooses the recording."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive, Scope, Send

from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.models.chat_server import event, send_head, send_piece
from tests.models.messages_events import sse
from tests.recordings.archive import Recording

FRAMED = "framed-"
"""Prefix of a model's name: the whole body is sent as a stream."""


class RecordedServer:
    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._recordings = recordings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await send_head(send, 200, "application/json")
            return await send_piece(send, b'{"object": "list", "data": []}', more=False)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        model: str = json.loads(body)["model"]
        recording = self._recordings[int(model.rpartition("-")[2])]
        if model.startswith(FRAMED):
            await send_head(send, 200, "text/event-stream")
            return await send_piece(send, b"".join(frame_body(recording)), more=False)
        await send_head(send, recording.status, recording.content_type)
        return await send_piece(send, recording.body.encode(), more=False)


@contextmanager
def run_recorded_server(recordings: Sequence[Recording]) -> Iterator[str]:
    """Yield the base URL, with /v1."""
    listener, url = listen_on_free_port()
    with serve_in_thread(RecordedServer(recordings), listener, asyncio.new_event_loop()):
        yield url


def frame_body(recording: Recording) -> Iterator[bytes]:
    """The events of a whole answer, as few as proxies send that wait for it and then answer with a stream."""
    answer = json.loads(recording.body)
    match recording.api:
        case "chat":
            yield from frame_chat(answer)
        case "anthropic":
            yield from frame_message(answer)
        case _:
            yield from frame_response(answer)


def frame_chat(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """One chunk with everything."""
    choices = []
    for choice in answer["choices"]:
        message = dict(choice["message"])
        if message.get("tool_calls"):
            message["tool_calls"] = [{**call, "index": index} for index, call in enumerate(message["tool_calls"])]
        choices.append({**{name: choice[name] for name in choice if name != "message"}, "delta": message})
    yield event({**answer, "object": "chat.completion.chunk", "choices": choices})
    yield b"data: [DONE]\n\n"


def frame_message(answer: Mapping[str, Any]) -> Iterator[bytes]:
    started = {
        **answer,
        "content": [],
        "stop_reason": None,
        "usage": {**(answer.get("usage") or {}), "output_tokens": 1},
    }
    yield sse({"type": "message_start", "message": started})
    for index, block in enumerate(answer["content"]):
        empty, deltas = split_block(block)
        yield sse({"type": "content_block_start", "index": index, "content_block": {**block, **empty}})
        for delta in deltas:
            yield sse({"type": "content_block_delta", "index": index, "delta": delta})
        yield sse({"type": "content_block_stop", "index": index})
    end = {name: answer.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
    usage = {"output_tokens": (answer.get("usage") or {}).get("output_tokens")}
    yield sse({"type": "message_delta", "delta": end, "usage": usage})
    yield sse({"type": "message_stop"})


def split_block(block: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """The fields that are empty at the start of a block, and its deltas."""
    match block["type"]:
        case "text":
            return {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            signature = block.get("signature") or ""
            return {"thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": signature},
            ]
        case "tool_use":
            return {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input") or {})}]
        case _:
            return {}, []


def frame_response(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """Each item without deltas."""
    started = {**answer, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
    empty: dict[str, dict[str, Any]] = {"message": {"content": []}, "function_call": {"arguments": ""}}
    for index, item in enumerate(answer.get("output") or ()):
        start = {**item, **empty.get(item.get("type"), {})}
        events.append({"type": "response.output_item.added", "output_index": index, "item": start})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    status = answer.get("status")
    end = status if status in ("incomplete", "failed") else "completed"
    events.append({"type": f"response.{end}", "response": answer})
    for number, one in enumerate(events):
        yield sse({**one, "sequence_number": number})
