"""A minimal model server, so that the measured time is that of the server in front of it.

    python -m tests.bench.upstream PORT

It supports chat completions and Responses, streaming and not, and returns the same eight words to every
request: immediately, or after the number of milliseconds that the input requests ("think for 100 ms").
"""

import asyncio
import json
import re
import sys

import uvicorn
from starlette.types import Receive, Scope, Send

WORDS = ("All ", "of ", "this ", "was ", "said ", "many ", "times ", "before.")
TEXT = "".join(WORDS)
USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 8,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 28,
}
CHAT_USAGE = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}],
}


def response(status: str, *output: object) -> dict[str, object]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "m",
        "output": output,
        "usage": USAGE if output else None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "text": {"format": {"type": "text"}},
        "previous_response_id": None,
        "store": False,
    }


def response_events() -> list[dict[str, object]]:
    position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    open_item = {**MESSAGE, "status": "in_progress", "content": []}
    return [
        {"type": "response.created", "response": response("in_progress")},
        {"type": "response.in_progress", "response": response("in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": open_item},
        {"type": "response.content_part.added", **position, "part": part},
        *({"type": "response.output_text.delta", **position, "delta": word, "logprobs": []} for word in WORDS),
        {"type": "response.output_text.done", **position, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **position, "part": {**part, "text": TEXT}},
        {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
        {"type": "response.completed", "response": response("completed", MESSAGE)},
    ]


def chunk(delta: object, finish: str | None = None, usage: object = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def chat_chunks() -> list[dict[str, object]]:
    return [*(chunk({"role": "assistant", "content": word}) for word in WORDS), chunk({}, "stop", CHAT_USAGE)]


def completion() -> dict[str, object]:
    message = {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": CHAT_USAGE,
    }


def streamed() -> bytes:
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(response_events())]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered)


ANSWERS = {
    ("/v1/responses", True): streamed(),
    ("/v1/responses", False): json.dumps(response("completed", MESSAGE)).encode(),
    ("/v1/chat/completions", True): b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chat_chunks())
    + b"data: [DONE]\n\n",
    ("/v1/chat/completions", False): json.dumps(completion()).encode(),
}
"""The response body by path and by whether it is streamed."""


THINK = re.compile(rb"think for (\d+) ms")


async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    stream = bool(json.loads(body or b"{}").get("stream"))
    if match := THINK.search(body):
        await asyncio.sleep(int(match[1]) / 1e3)
    form = b"text/event-stream" if stream else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", form)]})
    await send({"type": "http.response.body", "body": ANSWERS[scope["path"], stream]})


if __name__ == "__main__":
    uvicorn.run(serve, port=int(sys.argv[1]), lifespan="off", ws="none", log_level="error", access_log=False)
