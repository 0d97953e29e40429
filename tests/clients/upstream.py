"""A model behind the gateway that answers every request and records it.

It implements chat completions; of the Messages API, the answers in `calls` and a fixed text. The request alone
determines the answer: if the last message is from the user and there are tools, the model calls the first one, with a
value for every required argument. After a tool output, and without tools, it answers with the number of messages and
the text of the last one, so an answer shows whether the history was sent. If `calls` is set, it makes those first.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.models import messages_events
from tests.models.chat_server import delta, event, finish, send_head, send_piece, tool

Call = tuple[str, str, Mapping[str, Any]]

WORD = "x"
SAMPLE: Mapping[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


@dataclass
class Upstream:
    """The running model, an ASGI application.

    requests:  the bodies of the requests, oldest first
    word:      the value of every text argument of a call
    calls:     the calls of the next answers, in order: each a list of (id, name, arguments)
    """

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    word: str = WORD
    calls: list[list[Call]] = field(default_factory=list)

    def reset(self) -> None:
        self.requests.clear()
        self.calls.clear()
        self.word = WORD

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        request = json.loads(body)
        self.requests.append(request)
        await send_head(send, 200, "text/event-stream")
        if scope["path"].endswith("/messages"):
            await send_piece(send, b"".join(claude_events(self.calls.pop(0) if self.calls else ())), more=False)
            return
        chunks = call_chunks(self.calls.pop(0)) if self.calls else answer(request, self.word)
        for chunk in chunks:
            await send_piece(send, event(chunk))
        await send_piece(send, b"data: [DONE]\n\n", more=False)

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages of the last request."""
        messages: Sequence[Mapping[str, Any]] = self.requests[-1]["messages"]
        return messages


def answer(request: Mapping[str, Any], word: str) -> Iterator[dict[str, Any]]:
    usage = {"prompt_tokens": 10 * len(request["messages"]), "completion_tokens": 5}
    function = function_to_call(request)
    if function is None:
        for word in summary_text(request["messages"]).split(" "):
            yield delta(content=f"{word} ")
        yield finish("stop", usage)
        return
    yield tool(0, call_id=f"call_{len(request['messages'])}", name=function["name"])
    yield tool(0, arguments=json.dumps(arguments(function.get("parameters") or {}, word)))
    yield finish("tool_calls", usage)


def call_chunks(calls: Sequence[Call]) -> Iterator[dict[str, Any]]:
    for number, (call_id, name, call_arguments) in enumerate(calls):
        yield tool(number, call_id=call_id, name=name)
        yield tool(number, arguments=json.dumps(call_arguments))
    yield finish("tool_calls", {"prompt_tokens": 10, "completion_tokens": 5})


def claude_events(calls: Sequence[Call]) -> list[bytes]:
    """The events of an answer with these calls; without calls, of a text."""
    if not calls:
        return messages_events.message_events(messages_events.text(0, "All done."))
    blocks = (
        messages_events.tool(number, call_id, name, json.dumps(call_arguments))
        for number, (call_id, name, call_arguments) in enumerate(calls)
    )
    return messages_events.message_events(*blocks, reason="tool_use")


def function_to_call(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The function that the answer calls, or None."""
    functions = [tool["function"] for tool in request.get("tools") or () if tool["type"] == "function"]
    is_user_turn = request["messages"][-1]["role"] == "user" and request.get("tool_choice") != "none"
    return functions[0] if functions and is_user_turn else None


def arguments(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    """Arguments that are valid for `schema`; every text is `word`."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    return {name: SAMPLE.get(str(properties[name].get("type")), word) for name in schema.get("required") or ()}


def summary_text(messages: Sequence[Mapping[str, Any]]) -> str:
    return f"{len(messages)} messages, the last one: {content_text(messages[-1]['content'])}"


def content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", part["type"])) for part in content)


@contextmanager
def run_upstream() -> Iterator[Upstream]:
    """Run the model in a thread. Its socket listens before the thread starts, so callers need not wait."""
    listener, url = listen_on_free_port()
    upstream = Upstream(url)
    with serve_in_thread(upstream, listener, asyncio.new_event_loop()):
        yield upstream
