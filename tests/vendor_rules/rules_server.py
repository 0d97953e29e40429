"""Parts of both enforcing servers: tokens, digests, refusals, cache entries, and the HTTP server around a model.

The models (`OpenAIRules`, `AnthropicRules`) are written from the vendors' published rules alone. They import nothing
of convo, so that a forecast can be compared with them. They have no clock: each request says its time.
"""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from starlette.types import Receive, Scope, Send

from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.models.chat_server import send_head, send_piece

Json = dict[str, Any]
Tokenizer = Callable[[Any], int]

MILLION = Decimal(1_000_000)


class Refusal(Exception):
    """The server refuses a request. `error` is the error object of the body."""

    def __init__(self, message: str, *, status: int = 400, **error: Any) -> None:
        super().__init__(message)
        self.status = status
        self.error: Json = {"type": "invalid_request_error", "message": message, **error}


canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def count_tokens(value: Any) -> int:
    """A token for each four bytes of JSON: simple, and the same each time."""
    return len(_compact(value).encode()) // 4


def extend_digest(digest: str, key: str) -> str:
    """The digest of a prefix after one more piece."""
    return hashlib.sha256(f"{digest}\n{key}".encode()).hexdigest()


def without(value: Mapping[str, Any], *names: str) -> Json:
    return {name: member for name, member in value.items() if name not in names}


@dataclass
class CacheEntry:
    readable_from: float
    written: float
    expires: float
    life_s: float


class PromptCache:
    """Prefixes by scope and digest. Times are seconds. A read refreshes the life of an entry."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, ...], CacheEntry] = {}

    def find(self, key: tuple[str, ...], at: float) -> CacheEntry | None:
        """The entry, if it can be read at this time."""
        entry = self._entries.get(key)
        return entry if entry and entry.readable_from <= at < entry.expires else None

    def touch(self, key: tuple[str, ...], at: float, max_age_s: float = float("inf")) -> None:
        """Refresh the life of an entry that can be read. It ends `max_age_s` after the write at the latest."""
        if entry := self.find(key, at):
            entry.expires = min(max(entry.expires, at + entry.life_s), entry.written + max_age_s)

    def write(self, key: tuple[str, ...], at: float, life_s: float, readable_after_s: float = 0.0) -> None:
        """Write an entry. A parallel request that writes it again does not delay it."""
        known = self._entries.get(key)
        readable_from = known.readable_from if known and at < known.expires else at + readable_after_s
        self._entries[key] = CacheEntry(readable_from, at, at + life_s, life_s)


# -- HTTP -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received:
    """One request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    json: Any


@dataclass
class RulesServer:
    """An HTTP server on loopback around a pure model.

    handle:    answers a request at a time: a JSON object, or the events of a stream; raises Refusal
    now:       the server's time in seconds; each request advances it by `step_s`. A test may set it
    replies:   the output of the next responses, oldest first; without one the model gives its usual answer
    requests:  all received requests, oldest first
    answers:   what the model returned, oldest first, with the bill of each request
    """

    url: str
    handle: Callable[["RulesServer", Received, float], Json | Sequence[Json]]
    now: float
    step_s: float = 10.0
    replies: deque[list[Json]] = field(default_factory=deque)
    requests: list[Received] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        request = Received(scope["method"], scope["path"], headers, json.loads(body or b"null"))
        self.requests.append(request)
        at = self.now
        self.now += self.step_s
        try:
            answer = self.handle(self, request, at)
        except Refusal as refusal:
            await send_head(send, refusal.status, "application/json")
            await send_piece(send, json.dumps({"type": "error", "error": refusal.error}).encode(), more=False)
            return
        if isinstance(answer, dict):
            await send_head(send, 200, "application/json")
            await send_piece(send, json.dumps(answer).encode(), more=False)
            return
        await send_head(send, 200, "text/event-stream")
        for event in answer:
            await send_piece(send, f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await send_piece(send, b"", more=False)

    def next_reply(self) -> list[Json] | None:
        return self.replies.popleft() if self.replies else None


@contextmanager
def run_rules_server(
    handle: Callable[[RulesServer, Received, float], Json | Sequence[Json]], now: float
) -> Iterator[RulesServer]:
    """Run a server in a thread. Its socket listens before the thread starts, so callers need not wait."""
    listener, url = listen_on_free_port()
    server = RulesServer(url, handle, now)
    with serve_in_thread(server, listener, asyncio.new_event_loop()):
        yield server
