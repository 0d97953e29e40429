"""A server of chat completions where Ollama's would be: it keeps nothing, and counts what it is shown.

It answers every question with the next of its replies, so an answer tells how much history came with it.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.listening import any_port, running
from tests.models.chat_server import begin, event, piece

Sent = dict[str, Any]


@contextmanager
def answering(replies: list[str]) -> Iterator[str]:
    """The server's address, without a path, while the block runs; `replies` is the JSON of one script."""
    texts = [reply["text"] for script in replies for reply in json.loads(script)] or ["Yes."]

    async def application(scope: Sent, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        messages = json.loads(body or b"{}").get("messages", [])
        asked = sum(one["role"] == "user" for one in messages)
        text = texts[min(asked, len(texts)) - 1]
        words = sum(len(str(one.get("content")).split()) for one in messages)
        used = {"prompt_tokens": words, "completion_tokens": len(text.split()), "total_tokens": words}
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
        chunks: tuple[Sent, ...] = ({"choices": [choice]}, {"choices": [], "usage": used})
        await begin(send, 200, "text/event-stream")
        for chunk in chunks:
            await piece(send, event(chunk))
        await piece(send, b"data: [DONE]\n\n", more=False)

    place, url = any_port()
    with running(application, place, asyncio.new_event_loop()):
        yield url.removesuffix("/v1")
