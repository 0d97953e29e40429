"""A server with scripted answers that refuses what the real APIs refuse: chat completions, Messages and Responses.

    server = StrictServer("chat")
    with run_hostile_server(server) as listener: ...
    server.answers.append(Answer("Hello.", calls=(("c1", "look_up", '{"order": "A1"}'),), end="length"))
    server.refusals                               # the reasons of all refused requests

A request without a prepared answer gets a plain one. The Responses server also stores responses and conversations.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import Any

from convo.history.items import OUTPUT_BY_CLIENT_CALL, item_type
from tests.hostile_server import JSON, STREAM, sse_event
from tests.models import messages_events as claude

Json = Any


class RefusedByServer(Exception):
    """A request that the real API refuses."""


def require(condition: object, reason: str, *details: object) -> None:
    if not condition:
        raise RefusedByServer(" ".join([reason, *map(str, details)]))


@dataclass(frozen=True)
class Answer:
    """One answer.

    calls:      the id, the name and the arguments of each
    end:        "complete", "length" or "content_filter"
    is_odd:     it has an item, an event or a field that no client knows
    sent_part:  the fraction of its bytes after which the connection ends
    is_stored:  the server stores the response although the connection ended
    status:     of a refusal, in place of the answer
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    end: str = "complete"
    is_odd: bool = False
    sent_part: float = 1.0
    is_stored: bool = False
    status: int = 200


def as_json_object(text: Json) -> Json:
    """Return the object that `text` is the JSON of; None for any other text."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class StrictServer:
    """Answers requests; one instance serves one API ("chat", "anthropic" or "responses")."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.answers: deque[Answer] = deque()
        self.refusals: list[str] = []
        self._numbers = count(1)
        self._signatures: set[str] = set()
        self._responses: dict[str, list[Json]] = {}
        self._conversations: dict[str, list[Json]] = {}

    def __call__(self, request: str) -> Iterator[bytes]:
        first_line, _, text = request.partition(" HTTP/1.1 ")
        method, target = first_line.split(" ")
        path, _, query = target.partition("?")
        body = json.loads(text or "null")
        try:
            yield from self._respond(method, path.removeprefix("/v1/"), query, body)
        except RefusedByServer as refusal:
            self.refusals.append(f"{refusal}: {json.dumps(body)}")
            yield _error(400, str(refusal))

    def _respond(self, method: str, path: str, query: str, body: Json) -> Iterator[bytes]:
        if self.api == "responses" and (method, path) != ("POST", "responses"):
            yield self._serve_resource(method, path.split("/"), query, body)
            return
        if path not in ("chat/completions", "messages", "responses"):
            yield _json({"input_tokens": 5}) if path.endswith("count_tokens") else _error(404, "no route")
            return
        check = {"chat": check_chat, "anthropic": self._check_messages, "responses": self._check_response}[self.api]
        check(body)
        answer = self.answers.popleft() if self.answers else Answer("Fine.")
        if answer.status != 200:
            yield _error(answer.status, "scripted")
            return
        write = {"chat": self._chat, "anthropic": self._message, "responses": self._response}[self.api]
        stream = b"".join(write(answer, body))
        yield STREAM + stream[: int(len(stream) * answer.sent_part)]

    def _next_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"

    # -- chat completions -------------------------------------------------------------------------

    def _chat(self, answer: Answer, body: Json) -> Iterator[bytes]:
        def chunk(delta: Json, **fields: Json) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": None, **fields}
            return sse_event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        if answer.reasoning:
            yield chunk({"reasoning_content": answer.reasoning})
        if answer.is_odd:
            yield sse_event({"object": "mystery", "choices": []})
        for piece in halves(answer.text):
            yield chunk({"content": piece})
        for index, (call_id, name, arguments) in enumerate(answer.calls):
            yield chunk(
                {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": {"name": name}}]}
            )
            for piece in halves(arguments):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        whole = "tool_calls" if answer.calls else "stop"
        yield chunk({}, finish_reason=whole if answer.end == "complete" else answer.end)
        yield b"data: [DONE]\n\n"

    # -- Messages ---------------------------------------------------------------------------------

    def _message(self, answer: Answer, body: Json) -> Iterator[bytes]:
        blocks: list[list[bytes]] = []
        if answer.reasoning:
            signature = self._next_id("sig")
            self._signatures.add(signature)
            blocks.append(claude.thinking(len(blocks), *halves(answer.reasoning), signature=signature))
        if answer.text:
            blocks.append(claude.text(len(blocks), *halves(answer.text)))
        for call_id, name, arguments in answer.calls:
            blocks.append(claude.tool(len(blocks), call_id, name, *halves(arguments)))
        if answer.is_odd:
            blocks.append([claude.sse({"type": "mystery", "index": 7})])
        whole = "tool_use" if answer.calls else "end_turn"
        reason = {"complete": whole, "length": "max_tokens", "content_filter": "refusal"}[answer.end]
        yield from claude.message_events(*blocks, reason=reason)

    def _check_messages(self, body: Json) -> None:
        messages = body["messages"]
        require(messages and messages[-1]["role"] == "user", "the last message is not the user's")
        for index, message in enumerate(messages):
            require(message["role"] == ("user", "assistant")[index % 2], "the roles do not alternate")
            content = message["content"]
            require(isinstance(content, list) and content, "a message is empty")
            require(all(block.get("text") != "" for block in content), "a text block is empty")
            kinds = [block["type"] for block in content]
            results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
            require(kinds[: len(results)] == ["tool_result"] * len(results), "tool results come first")
            earlier = messages[index - 1]["content"] if index else []
            uses = [block["id"] for block in earlier if block["type"] == "tool_use"]
            require(sorted(uses) == sorted(results) if message["role"] == "user" else True, "unpaired:", uses, results)
            require(len(uses) == len(set(uses)), "tool_use ids must be unique")
            thoughts = [block for block in content if block["type"] == "thinking"]
            require(all(block["signature"] in self._signatures for block in thoughts), "an unknown signature")
            require(message["role"] == "user" or kinds[-1] != "thinking", "the last block is thinking")
            require(all(isinstance(block["input"], dict) for block in content if block["type"] == "tool_use"), "input")

    # -- Responses --------------------------------------------------------------------------------

    def _check_response(self, body: Json) -> None:
        check_items(self._history(body), body["input"])

    def _history(self, body: Json) -> list[Json]:
        previous_id, conversation_id = body.get("previous_response_id"), body.get("conversation")
        require(previous_id is None or previous_id in self._responses, "unknown previous response", previous_id)
        require(conversation_id is None or conversation_id in self._conversations, "unknown", conversation_id)
        if conversation_id:
            return self._conversations[conversation_id]
        return self._responses[previous_id] if previous_id else []

    def _response(self, answer: Answer, body: Json) -> Iterator[bytes]:
        status = "completed" if answer.end == "complete" else "incomplete"
        output: list[dict[str, Json]] = []
        if answer.reasoning:
            encrypted = {"encrypted_content": "sealed"} if "include" in body else {}
            output.append({"type": "reasoning", "id": self._next_id("rs"), "summary": [], **encrypted})
        if answer.is_odd:
            output.append({"type": "mystery_call", "id": self._next_id("my"), "clue": [1, {"a": None}]})
        if answer.text:
            part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
            output.append({"type": "message", "id": self._next_id("msg"), "role": "assistant", "content": [part]})
        for call_id, name, arguments in answer.calls:
            call = {"call_id": call_id, "name": name, "arguments": arguments}
            output.append({"type": "function_call", "id": self._next_id("fc"), **call})
        for item in output:
            if item["type"] in ("message", "function_call"):
                whole = "in_progress" if answer.is_odd and item["type"] == "function_call" else "completed"
                item["status"] = status if item is output[-1] and status == "incomplete" else whole
        response = self._resource(body, "in_progress", [])
        yield sse_event({"type": "response.created", "response": response})
        for index, item in enumerate(output):
            yield from _item_events(index, item)
        if answer.sent_part == 1 or answer.is_stored:
            self._store(body, response["id"], output)
        details = {"reason": "max_output_tokens" if answer.end == "length" else answer.end}
        end = {**response, "status": status, "output": output}
        end["incomplete_details"] = details if status == "incomplete" else None
        end["usage"] = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
        yield sse_event({"type": f"response.{status}", "response": end})

    def _resource(self, body: Json, status: str, output: list[Json]) -> dict[str, Json]:
        conversation = {"id": body["conversation"]} if body.get("conversation") else None
        state = {"previous_response_id": body.get("previous_response_id"), "conversation": conversation}
        return {"id": self._next_id("resp"), "object": "response", "status": status, "output": output, **state}

    def _store(self, body: Json, response_id: str, output: list[Json]) -> None:
        items = [*self._history(body), *self._with_ids(body["input"]), *deepcopy(output)]
        if body.get("conversation"):
            self._conversations[body["conversation"]] = items
        elif body.get("store", True):
            self._responses[response_id] = items

    def _with_ids(self, items: Sequence[Json]) -> list[Json]:
        return [{"id": self._next_id("msg" if item_type(item) == "message" else "item"), **item} for item in items]

    def _serve_resource(self, method: str, path: list[str], query: str, body: Json) -> bytes:
        match method, path:
            case "POST", ["conversations"]:
                conversation_id = self._next_id("conv")
                self._conversations[conversation_id] = self._with_ids(body.get("items") or [])
                return _json({"id": conversation_id, "object": "conversation", "created_at": 1, "metadata": {}})
            case "GET", ["conversations", conversation_id] if conversation_id in self._conversations:
                return _json({"id": conversation_id, "object": "conversation", "created_at": 1, "metadata": {}})
            case "DELETE", ["conversations", conversation_id]:
                self._conversations.pop(conversation_id, None)
                return _json({"id": conversation_id, "deleted": True})
            case "POST", ["conversations", conversation_id, "items"]:
                new_items = self._with_ids(body["items"])
                self._conversations[conversation_id] += new_items
                return _json({"object": "list", "data": new_items, "has_more": False})
            case "GET", ["conversations", conversation_id, "items"] if conversation_id in self._conversations:
                return _json(_page(self._conversations[conversation_id], query))
        return _error(404, f"no route for {method} {'/'.join(path)}")


def halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def _json(value: Json) -> bytes:
    return JSON + json.dumps(value).encode()


def _error(status: int, message: str) -> bytes:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    head = f"HTTP/1.1 {status} Refused\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n"
    return head.encode() + json.dumps({"error": error}).encode()


def _page(items: Sequence[Json], query: str) -> Json:
    fields = dict(pair.split("=") for pair in query.split("&") if pair)
    ordered = list(items) if fields.get("order") == "asc" else list(items)[::-1]
    start = next((index for index, item in enumerate(ordered, 1) if item["id"] == fields.get("after")), 0)
    page = ordered[start : start + int(fields.get("limit", 20))]
    ids = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return {"object": "list", "data": page, "has_more": start + len(page) < len(ordered), **ids}


def _item_events(index: int, item: Mapping[str, Json]) -> Iterator[bytes]:
    def event(name: str, **fields: Json) -> bytes:
        return sse_event({"type": f"response.{name}", "output_index": index, **fields})

    started = {**item, **{name: empty for name, empty in (("content", []), ("arguments", "")) if name in item}}
    yield event("output_item.added", item={**started, "status": "in_progress"} if "status" in item else started)
    if item["type"] == "message":
        (part,) = item["content"]
        yield event("content_part.added", item_id=item["id"], content_index=0, part={**part, "text": ""})
        for piece in halves(part["text"]):
            yield event("output_text.delta", item_id=item["id"], content_index=0, delta=piece)
        yield event("content_part.done", item_id=item["id"], content_index=0, part=part)
    if item["type"] == "function_call":
        for piece in halves(item["arguments"]):
            yield event("function_call_arguments.delta", item_id=item["id"], delta=piece)
    yield event("output_item.done", item=item)


# -- rules ----------------------------------------------------------------------------------------


def check_chat(body: Json) -> None:
    """Check the messages of a chat completions request."""
    open_ids: list[str] = []
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        require(not open_ids or role == "tool", "a call has no tool message:", open_ids)
        if role == "tool":
            require(message["tool_call_id"] in open_ids, "a tool message without a call:", message["tool_call_id"])
            open_ids.remove(message["tool_call_id"])
        calls = message.get("tool_calls") or []
        require(content or calls or role == "tool", "a message has no content")
        open_ids = open_ids if role == "tool" else [call["id"] for call in calls]
        require(len(open_ids) == len(set(open_ids)), "two calls have one id")
        for call in calls:
            arguments = call["function"]["arguments"]
            require(as_json_object(arguments) is not None, "the arguments are not a JSON object:", arguments)
            require(call["function"]["name"], "a call has no name")
    require(not open_ids, "a call has no tool message:", open_ids)


def check_items(history: Sequence[Json], items: Sequence[Json]) -> None:
    """Check the input of a Responses request that continues `history`."""
    ids = [item["id"] for item in (*history, *items) if item.get("id")]
    require(len(ids) == len(set(ids)), "duplicate item id")
    calls: dict[str, bool] = {}
    for item in (*history, *items):
        kind, call_id = item_type(item), item.get("call_id")
        if kind in OUTPUT_BY_CLIENT_CALL:
            require(call_id not in calls, "two calls have the id", call_id)
            calls[call_id] = False
        elif kind in OUTPUT_BY_CLIENT_CALL.values():
            require(calls.get(call_id) is False, "an output without an open call:", call_id)
            calls[call_id] = True
    require(all(calls.values()), "a call without an output:", calls)
    for index, item in enumerate(items):
        kind = item_type(item)
        if kind == "function_call":
            require(as_json_object(item["arguments"]) is not None, "the arguments are not a JSON object")
            require(item.get("status") != "incomplete", "a call is not complete")
        if kind == "reasoning":
            require(item.get("encrypted_content"), "unknown reasoning", item.get("id"))
            follower: Json = next((other for other in items[index:] if item_type(other) != "reasoning"), {})
            is_message = item_type(follower) == "message" and follower["role"] == "assistant"
            has_follower = item_type(follower).endswith("_call") or (
                is_message and ("id" in follower) >= ("id" in item)
            )
            require(has_follower, "reasoning without its following item")
        if kind == "message":
            wanted = ("output_text", "refusal") if item["role"] == "assistant" else ("input_text",)
            parts = item["content"] if isinstance(item["content"], list) else []
            require(all(part["type"] in wanted for part in parts), "a part of the wrong type")
