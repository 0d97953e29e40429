"""A minimal model server, so that the measured time is that of the server in front of it.

    python -m tests.bench.upstream PORT

It supports chat completions and Responses, streaming and not, and returns the same eight words to every
request, at once and with new ids. The last such text in a request changes the answer to it:

    think for 100 ms        wait before the answer
    answer in 40 words      one delta for each word
    answer in 2000 bytes    eight deltas
    5 ms apart              wait before each delta of a stream, and send it by itself
    call the first tool     of a chat completion: if its last message is the user's
"""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from functools import cache, partial
from itertools import count, cycle, islice
from typing import Any

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


def response_events(words: tuple[str, ...] = WORDS) -> list[dict[str, object]]:
    position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    open_item, text = {**MESSAGE, "status": "in_progress", "content": []}, "".join(words)
    message = {**MESSAGE, "content": [{**part, "text": text}]}
    return [
        {"type": "response.created", "response": response("in_progress")},
        {"type": "response.in_progress", "response": response("in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": open_item},
        {"type": "response.content_part.added", **position, "part": part},
        *({"type": "response.output_text.delta", **position, "delta": word, "logprobs": []} for word in words),
        {"type": "response.output_text.done", **position, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **position, "part": {**part, "text": text}},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.completed", "response": response("completed", message)},
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


def completion(words: tuple[str, ...]) -> dict[str, object]:
    message = {"role": "assistant", "content": "".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {**chunk(None), "object": "chat.completion", "choices": [choice], "usage": CHAT_USAGE}


def as_sse(*events: object, name: bool = False) -> list[bytes]:
    return [
        (f"event: {event['type']}\n" if name and isinstance(event, dict) else "").encode()
        + f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
        for event in events
    ]


@cache
def responses_stream(words: tuple[str, ...]) -> list[bytes]:
    return as_sse(*({**event, "sequence_number": at} for at, event in enumerate(response_events(words))), name=True)


@cache
def chat_stream(words: tuple[str, ...]) -> list[bytes]:
    chunks = [chunk({"role": "assistant", "content": word}) for word in words]
    return as_sse(*chunks, chunk({}, "stop", CHAT_USAGE), "[DONE]")


def tool_call_stream(name: str) -> list[bytes]:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    return as_sse(chunk(delta), chunk({}, "tool_calls", CHAT_USAGE), "[DONE]")


THINK, APART = re.compile(r"think for (\d+) ms"), re.compile(r"(\d+) ms apart")
COUNT, LENGTH = re.compile(r"answer in (\d+) words"), re.compile(r"answer in (\d+) bytes")


def asked(text: str, directive: re.Pattern[str]) -> int:
    """Return the number in the last such text; 0 without one."""
    return int((directive.findall(text) or [0])[-1])


def answer(path: str, request: dict[str, Any], text: str) -> list[bytes]:
    """Return the events of a stream, or one body."""
    words, is_chat = tuple(islice(cycle(WORDS), asked(text, COUNT) or len(WORDS))), path.endswith("/chat/completions")
    if length := asked(text, LENGTH) // len(words):
        words = tuple(f"{word:x<{length}}" for word in words)
    if not request.get("stream"):
        whole = completion(words) if is_chat else response_events(words)[-1]["response"]
        return [json.dumps(whole).encode()]
    if is_chat and "call the first tool" in text and request["messages"][-1]["role"] == "user":
        return tool_call_stream(request["tools"][0]["function"]["name"])
    return chat_stream(words) if is_chat else responses_stream(words)


async def serve(
    scope: Scope, receive: Receive, send: Send, before_delta: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Answer one request.

    before_delta:  of a stream: awaited before each delta and before the end; each delta is a write of its own
    """
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    request, text = json.loads(body or b"{}"), body.decode()
    if think_ms := asked(text, THINK):
        await asyncio.sleep(think_ms / 1e3)
    if request.get("stream") and (apart_ms := asked(text, APART)):
        before_delta = partial(asyncio.sleep, apart_ms / 1e3)
    form = b"text/event-stream" if request.get("stream") else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", form)]})
    number = next(NUMBERS)
    events = [ID.sub(rb'"\1_%032d"' % number, event) for event in answer(scope["path"], request, text)]
    piece = b""
    for event in events:
        piece += event
        if before_delta and DELTA.search(event):
            await before_delta()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = b""
    if before_delta:
        await before_delta()
    await send({"type": "http.response.body", "body": piece})


ID, NUMBERS = re.compile(rb'"(msg|resp)_1"'), count()
DELTA = re.compile(rb'"(delta|content)": "')
"""The text in an event of either API."""


if __name__ == "__main__":
    uvicorn.run(serve, port=int(sys.argv[1]), lifespan="off", ws="none", log_level="error", access_log=False)
