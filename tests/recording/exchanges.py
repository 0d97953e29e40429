"""Exchanges for the recorder: captured ones of real clients, and conversations in the forms of these clients.

The files in `exchanges/` are requests of the released programs and libraries to a scripted server: Codex 0.169, Claude
Code 2.1, opencode 1.18, openai and anthropic for Python. Long texts are shortened, credentials are left out.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Protocol

FOLDER = Path(__file__).with_name("exchanges")
CAPTURED_CLIENTS = ("codex", "claude-code", "opencode", "openai-python", "anthropic-python")

HOST = "https://models.example"
PATHS: Mapping[Protocol, str] = {
    "responses": "/v1/responses",
    "chat_completions": "/v1/chat/completions",
    "messages": "/v1/messages",
}


def make_request(
    body: Any, *, protocol: Protocol = "responses", id: str = "exch_1", headers: Mapping[str, str] | None = None,  # noqa: A002
    url: str | None = None, at: float = 1_700_000_000.0, is_truncated: bool = False,
) -> ExchangeRequest:  # fmt: skip
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ExchangeRequest(id, protocol, url or HOST + PATHS[protocol], headers or {}, raw, at, is_truncated)


def make_response(
    body: Any, *, status: int | None = 200, error: str | None = None, is_truncated: bool = False
) -> ExchangeResponse:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ExchangeResponse(status, {}, raw, 0.25, 1.5, is_truncated, error)


def captured_exchanges(client: str) -> list[tuple[ExchangeRequest, ExchangeResponse]]:
    """Return the captured exchanges of a client, oldest first."""
    document = json.loads((FOLDER / f"{client}.json").read_text("utf-8"))
    return [
        (
            make_request(
                exchange["body"], protocol=document["protocol"], id=f"{client}_{number}", headers=exchange["headers"],
                url=HOST + exchange["path"],
            ),
            make_response(exchange["response"].encode()),
        )
        for number, exchange in enumerate(document["exchanges"])
    ]  # fmt: skip


def sse(*events: Mapping[str, Any]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
    )


@dataclass
class ClientConversation:
    """A conversation as one client sends it: each turn has the whole history, in the client's form.

    session_key:  the client's own id of the conversation, in its header; None for a client without one
    """

    protocol: Protocol
    number: int
    headers: Mapping[str, str]
    history: list[Any] = field(default_factory=list)
    turn: int = 0

    def next_exchange(self, words: str) -> tuple[ExchangeRequest, ExchangeResponse]:
        """Return the next request, which says `words`, and its response; every second answer calls a tool."""
        self.turn += 1
        name, calls_tool = f"{self.protocol}_{self.number}_{self.turn}", self.turn % 2 == 1
        exchange = {
            "responses": self._responses, "chat_completions": self._chat, "messages": self._messages,
        }[self.protocol](name, words, calls_tool=calls_tool)  # fmt: skip
        request, response = exchange
        return make_request(request, protocol=self.protocol, id=name, headers=self.headers), make_response(response)

    def _responses(self, name: str, words: str, *, calls_tool: bool) -> tuple[Any, Any]:
        if self.turn == 1:
            self.history.append({"role": "user", "content": words})
        elif calls_tool:
            self.history.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]})
        else:
            self.history.append(
                {"type": "function_call_output", "call_id": self.history[-1]["call_id"], "output": words}
            )
        body = {
            "model": "m",
            "store": False,
            "input": list(self.history),
            "tools": [{"type": "function", "name": "run"}],
        }
        item = (
            {"type": "function_call", "id": f"fc_{name}", "call_id": f"call_{name}", "name": "run",
             "status": "completed", "arguments": '{"a":1}'}
            if calls_tool
            else {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed",
                  "content": [{"type": "output_text", "text": f"Answer {name}", "annotations": [], "logprobs": []}]}
        )  # fmt: skip
        reasoning = {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": f"sealed {name}"}
        response = {"id": f"resp_{name}", "object": "response", "status": "completed", "model": "m",
                    "output": [reasoning, item]}  # fmt: skip
        self.history += [reasoning, {key: value for key, value in item.items() if key not in ("id", "status")}]
        events = [
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.completed", "response": response},
        ]
        return {**body, "stream": True}, sse(*events)

    def _chat(self, name: str, words: str, *, calls_tool: bool) -> tuple[Any, Any]:
        if self.turn == 1:
            self.history.append({"role": "system", "content": "Be brief."})
        if calls_tool:
            self.history.append({"role": "user", "content": words})
        else:
            call_id = self.history[-1]["tool_calls"][0]["id"]
            self.history.append({"role": "tool", "tool_call_id": call_id, "content": words})
        body = {"model": "m", "messages": list(self.history), "stream": True}
        call = {"id": f"call_{name}", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
        pieces = (
            [{"reasoning_content": "Hm."}, {"tool_calls": [{"index": 0, **call}]}]
            if calls_tool
            else [{"content": "Answer "}, {"content": name}]
        )
        chunks = [
            {"id": f"chatcmpl-{name}", "model": "m", "choices": [{"index": 0, "delta": piece}]} for piece in pieces
        ]
        chunks.append({"id": f"chatcmpl-{name}", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        message = {"content": "", "tool_calls": [call]} if calls_tool else {"content": f"Answer {name}"}
        self.history.append({"role": "assistant", **message})
        return body, b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"

    def _messages(self, name: str, words: str, *, calls_tool: bool) -> tuple[Any, Any]:
        cached = {"cache_control": {"type": "ephemeral"}}
        if calls_tool:
            self.history.append({"role": "user", "content": [{"type": "text", "text": words, **cached}]})
        else:
            use_id = self.history[-1]["content"][-1]["id"]
            result = {"type": "tool_result", "tool_use_id": use_id, "content": words, **cached}
            self.history.append({"role": "user", "content": [result]})
        tools = [{"name": "run", "input_schema": {"type": "object"}}]
        body = {"model": "m", "max_tokens": 10, "system": "Be brief.", "messages": json.loads(json.dumps(self.history)),
                "tools": tools}  # fmt: skip
        for part in self.history[-1]["content"]:
            part.pop("cache_control")  # the breakpoint moves to the last message
        thinking = {"type": "thinking", "thinking": "Hm.", "signature": f"signed {name}"}
        block = (
            {"type": "tool_use", "id": f"toolu_{name}", "name": "run", "input": {"a": 1}}
            if calls_tool
            else {"type": "text", "text": f"Answer {name}"}
        )
        response = {
            "id": f"msg_{name}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [thinking, block],
            "stop_reason": "tool_use" if calls_tool else "end_turn",
            "usage": {"input_tokens": 3},
        }
        self.history.append({"role": "assistant", "content": [thinking, block]})
        return body, response


def interleaved_conversations(
    requests_per_client: int, turns: int, seed: int
) -> Iterator[tuple[ClientConversation, ExchangeRequest, ExchangeResponse]]:
    """Yield the exchanges of four clients in random order; all conversations begin with the same words.

    Codex and Claude Code send the id of the conversation; opencode and a script with the openai package do not.
    """
    conversations: list[ClientConversation] = []
    clients: Sequence[tuple[Protocol, str, str | None]] = (
        ("responses", "codex_exec/0.169.0 (Debian 12.0.0; x86_64)", "session-id"),
        ("messages", "claude-cli/2.1.330 (external, cli)", "x-claude-code-session-id"),
        ("chat_completions", "opencode/1.18.33 ai-sdk/provider-utils/4.0.23", None),
        ("responses", "OpenAI/Python 3.54.0", None),
    )
    for protocol, agent, header in clients:
        for _ in range(requests_per_client // turns):
            number = len(conversations)
            headers = {"user-agent": agent, **({header: f"key-{number}"} if header else {})}
            conversations.append(ClientConversation(protocol, number, headers))
    chooser, waiting = random.Random(seed), list(conversations)
    while waiting:
        conversation = chooser.choice(waiting)
        words = "Do it." if conversation.turn % 2 == 0 else "done"
        yield conversation, *conversation.next_exchange(words)
        if conversation.turn == turns:
            waiting.remove(conversation)
