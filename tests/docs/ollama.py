"""A chat completions server in place of Ollama: it stores nothing and counts the words of each request.

The number of user messages in the request selects the reply, so an answer shows how much history the
request contained.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.models.chat_server import event, send_head, send_piece

Sent = dict[str, Any]


@contextmanager
def run_ollama(replies: list[str]) -> Iterator[str]:
    """Yield the address of the server, without a path; each of `replies` is the JSON of one script."""
    texts = [reply["text"] for script in replies for reply in json.loads(script)] or ["Yes."]

    async def application(scope: Sent, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["method"] == "GET":
            await send_head(send, 200, "application/json")
            await send_piece(send, json.dumps({"object": "list", "data": [{"id": "llama3.2"}]}).encode(), more=False)
            return
        messages = json.loads(body or b"{}").get("messages", [])
        user_count = sum(one["role"] == "user" for one in messages)
        text = texts[min(user_count, len(texts)) - 1]
        word_count = sum(len(str(one.get("content")).split()) for one in messages)
        usage = {"prompt_tokens": word_count, "completion_tokens": len(text.split()), "total_tokens": word_count}
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
        chunks: tuple[Sent, ...] = ({"choices": [choice]}, {"choices": [], "usage": usage})
        await send_head(send, 200, "text/event-stream")
        for chunk in chunks:
            await send_piece(send, event(chunk))
        await send_piece(send, b"data: [DONE]\n\n", more=False)

    listener, url = listen_on_free_port()
    with serve_in_thread(application, listener, asyncio.new_event_loop()):
        yield url.removesuffix("/v1")
