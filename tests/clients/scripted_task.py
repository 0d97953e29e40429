"""A scripted model that plays one task, over chat completions, Anthropic's Messages and the Responses API.

The request alone determines the answer. The model makes the calls of the task one after the other: a request with the
outputs of the first three gets the fourth call, a request with all outputs the final text. A request that offers none
of the tools (a title, a summary) gets a short text. Whatever differs from the task is recorded in `problems`: an
output without its expected text, a tool that is not offered, a tool in another form than the API's own.
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

FINAL_TEXT = "The task is done: 4417."
OTHER_TEXT = "A short text."


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the model, and a text that its output must contain.

    input:  arguments; for a tool of the type `custom` its text, which functions get as their only argument `input`
    """

    tool: str
    input: Mapping[str, Any] | str
    expected: str

    @property
    def arguments(self) -> str:
        return json.dumps({"input": self.input} if isinstance(self.input, str) else self.input)


@dataclass
class TaskModel:
    """The running model, an ASGI application.

    steps:     the calls of the task; without steps the model answers with the final text at once
    requests:  paths and bodies of the requests that belong to the task, oldest first
    others:    paths of all other requests, and bodies of those without the tools of the task
    problems:  differences from the task
    """

    url: str
    steps: Sequence[Step] = ()
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    others: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def play(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        for recorded in (self.requests, self.others, self.problems):
            recorded.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        path = scope["path"].removeprefix("/v1")
        request = json.loads(body or b"{}")
        if path == "/messages/count_tokens":
            await send_json(send, {"input_tokens": 12})
        elif path == "/chat/completions":
            step = self._next_step(path, request, chat_tools(request), chat_outputs(request))
            if request.get("stream"):
                await send_events(send, b"".join(map(event, chat_chunks(step))) + b"data: [DONE]\n\n")
            else:
                await send_json(send, chat_completion(step))
        elif path == "/messages":
            step = self._next_step(path, request, claude_tools(request), claude_outputs(request))
            if request.get("stream"):
                await send_events(send, b"".join(claude_events(step)))
            else:
                await send_json(send, claude_message(step))
        elif path == "/responses":
            tools = response_tools(request)
            step = self._next_step(path, request, tools, response_outputs(request))
            await send_events(send, b"".join(response_events(step, tools)))
        else:
            self.others.append((path, request))
            await send_json(send, {"error": {"message": f"{path} is not scripted", "type": "x", "code": "x"}}, 404)

    def _next_step(
        self, path: str, request: dict[str, Any], tools: Mapping[str, Any], outputs: Mapping[str, str]
    ) -> tuple[int, Step] | str:
        """The number and the step that answer this request, or a text."""
        if self.steps and not any(step.tool in tools for step in self.steps):
            self.others.append((path, request))
            return OTHER_TEXT
        self.requests.append((path, request))
        done = [name for name in map(call_id, range(len(self.steps))) if name in outputs]
        if len(done) != len(outputs):
            self.problems.append(f"outputs of other calls: {sorted(outputs)}")
        for number, step in enumerate(self.steps[: len(done)]):
            output = outputs.get(call_id(number))
            if output is None or step.expected not in output:
                self.problems.append(f"output {number} of {step.tool}: {output!r}")
        if len(done) == len(self.steps):
            return FINAL_TEXT
        step = self.steps[len(done)]
        if step.tool not in tools:
            self.problems.append(f"{step.tool} is not among {sorted(tools)}")
        return len(done), step


def call_id(number: int) -> str:
    """In the form that all three APIs and their clients accept."""
    return f"call_0{number}abcdef"


async def send_json(send: Send, body: Any, status: int = 200) -> None:
    await send_head(send, status, "application/json")
    await send_piece(send, json.dumps(body).encode(), more=False)


async def send_events(send: Send, body: bytes) -> None:
    await send_head(send, 200, "text/event-stream")
    await send_piece(send, body, more=False)


def output_text(content: Any) -> str:
    """The text of a tool output: a string, or a list of parts."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


# -- chat completions -----------------------------------------------------------------------------

CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def chat_tools(request: Mapping[str, Any]) -> dict[str, Any]:
    return {tool["function"]["name"]: tool for tool in request.get("tools") or ()}


def chat_outputs(request: Mapping[str, Any]) -> dict[str, str]:
    messages = (message for message in request["messages"] if message["role"] == "tool")
    return {message["tool_call_id"]: output_text(message["content"]) for message in messages}


def chat_chunks(step: tuple[int, Step] | str) -> Iterator[dict[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
    if isinstance(step, str):
        yield {**head, **delta(role="assistant", content=step)}
        yield {**head, **finish("stop", CHAT_USAGE)}
        return
    yield {**head, **delta(role="assistant")}
    yield {**head, **tool(0, call_id=call_id(step[0]), name=step[1].tool)}
    yield {**head, **tool(0, arguments=step[1].arguments)}
    yield {**head, **finish("tool_calls", CHAT_USAGE)}


def chat_completion(step: tuple[int, Step] | str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step if isinstance(step, str) else None}
    if not isinstance(step, str):
        function = {"name": step[1].tool, "arguments": step[1].arguments}
        message["tool_calls"] = [{"id": call_id(step[0]), "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m-2026"}
    return {**head, "choices": [choice], "usage": CHAT_USAGE}


# -- Anthropic's Messages -------------------------------------------------------------------------


def claude_tools(request: Mapping[str, Any]) -> dict[str, Any]:
    return {tool["name"]: tool for tool in request.get("tools") or ()}


def claude_outputs(request: Mapping[str, Any]) -> dict[str, str]:
    contents = (message["content"] for message in request["messages"] if isinstance(message["content"], list))
    blocks = (block for content in contents for block in content)
    return {b["tool_use_id"]: output_text(b.get("content") or "") for b in blocks if b["type"] == "tool_result"}


def claude_events(step: tuple[int, Step] | str) -> list[bytes]:
    if isinstance(step, str):
        return messages_events.message_events(messages_events.text(0, step))
    call = messages_events.tool(0, call_id(step[0]), step[1].tool, step[1].arguments)
    return messages_events.message_events(call, reason="tool_use")


def claude_message(step: tuple[int, Step] | str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": step}
    if not isinstance(step, str):
        arguments = json.loads(step[1].arguments)
        block = {"type": "tool_use", "id": call_id(step[0]), "name": step[1].tool, "input": arguments}
    head = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-opus-5-20260701"}
    reason = "end_turn" if isinstance(step, str) else "tool_use"
    usage = {"input_tokens": 12, "output_tokens": 7}
    return {**head, "content": [block], "stop_reason": reason, "stop_sequence": None, "usage": usage}


# -- the Responses API ----------------------------------------------------------------------------

RESPONSE_USAGE = {
    "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
}  # fmt: skip


def response_tools(request: Mapping[str, Any]) -> dict[str, Any]:
    """Tools with a name; those of a namespace as (namespace, tool) under their own name."""
    named: dict[str, Any] = {}
    for offered in request.get("tools") or ():
        if offered["type"] == "namespace":
            named |= {inner["name"]: {**inner, "namespace": offered["name"]} for inner in offered["tools"]}
        elif "name" in offered:
            named[offered["name"]] = offered
    return named


def response_outputs(request: Mapping[str, Any]) -> dict[str, str]:
    items = request["input"] if isinstance(request["input"], list) else []
    kinds = ("function_call_output", "custom_tool_call_output")
    outputs = (item for item in items if item.get("type") in kinds and item.get("call_id") is not None)
    return {item["call_id"]: output_text(item["output"]) for item in outputs}


def response_item(step: tuple[int, Step] | str, tools: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(step, str):
        part = {"type": "output_text", "text": step, "annotations": [], "logprobs": []}
        return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    number, call = step
    offered = tools.get(call.tool, {"type": "function"})
    common = {"call_id": call_id(number), "name": call.tool, "status": "completed"}
    if offered["type"] == "custom":
        return {"type": "custom_tool_call", "id": f"ctc_{number}", **common, "input": call.input}
    namespace = {"namespace": offered["namespace"]} if "namespace" in offered else {}
    return {"type": "function_call", "id": f"fc_{number}", **common, **namespace, "arguments": call.arguments}


def response_events(step: tuple[int, Step] | str, tools: Mapping[str, Any]) -> Iterator[bytes]:
    """The events of a response with one item."""
    item = response_item(step, tools)
    position = {"item_id": item["id"], "output_index": 0}
    opened = {**item, "status": "in_progress", **({"content": []} if item["type"] == "message" else {})}
    body = {
        "id": f"resp_{item['id']}", "object": "response", "created_at": 1, "model": "m-2026", "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "store": False,
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**body, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": opened},
    ]
    if item["type"] == "message":
        text, content = item["content"][0]["text"], {**position, "content_index": 0}
        events += [
            {"type": "response.content_part.added", **content, "part": {**item["content"][0], "text": ""}},
            {"type": "response.output_text.delta", **content, "delta": text, "logprobs": []},
            {"type": "response.output_text.done", **content, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **content, "part": item["content"][0]},
        ]
    elif item["type"] == "custom_tool_call":
        opened["input"] = ""
        events += [
            {"type": "response.custom_tool_call_input.delta", **position, "delta": item["input"]},
            {"type": "response.custom_tool_call_input.done", **position, "input": item["input"]},
        ]
    else:
        opened["arguments"] = ""
        events += [
            {"type": "response.function_call_arguments.delta", **position, "delta": item["arguments"]},
            {
                "type": "response.function_call_arguments.done", **position,
                "name": item["name"], "arguments": item["arguments"],
            },
        ]  # fmt: skip
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**body, "status": "completed", "output": [item], "usage": RESPONSE_USAGE},
        },
    ]
    for number, one in enumerate(events):
        yield messages_events.sse({**one, "sequence_number": number})


@contextmanager
def run_task_model() -> Iterator[TaskModel]:
    """Run the model in a thread. Its socket listens before the thread starts, so callers need not wait."""
    listener, url = listen_on_free_port()
    model = TaskModel(url)
    with serve_in_thread(model, listener, asyncio.new_event_loop()):
        yield model
