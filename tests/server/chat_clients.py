"""Clients that chat continuously with alternating replicas and record their confirmed turns.

A turn is confirmed when its last event has arrived. A client that lost an answer retries as the owner of
the state allows: a chain from the same response as before, a conversation only after the client has read the
conversation's items. A duplicate or missing turn is therefore an error of the server.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx2

UNKNOWN_RESPONSE = "unheard"
"""Response id of a turn that a conversation contains, but whose response the client did not receive."""

RETRY_S = 0.05
"""Seconds that a client waits before it tries another replica."""


class LostAnswer(Exception):
    """No answer, or an incomplete one."""


@dataclass
class ConfirmedTurns:
    """The confirmed turns of one client, oldest first, each as its text and response id.

    locked_s:  the longest time in seconds for which its conversation was refused as locked
    """

    name: str
    conversation: str | None = None
    confirmed: list[tuple[str, str]] = field(default_factory=list)
    faults: int = 0
    locked_s: float = 0.0

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.confirmed]

    @property
    def last(self) -> str | None:
        return self.confirmed[-1][1] if self.confirmed else None


class ChatClient:
    """A client; `on_confirmed` is called after each confirmed turn."""

    def __init__(self, record: ConfirmedTurns, urls: Sequence[str], on_confirmed: Callable[[], None]) -> None:
        self.turns, self._urls, self._on_confirmed = record, urls, on_confirmed
        self._replica_index = 0

    async def chat_until(self, done: asyncio.Event) -> None:
        """Chat until `done` is set and the running turn is confirmed."""
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            if self.turns.conversation is not None:
                self.turns.conversation = await self._conversation(http)
            for turn in count():
                if done.is_set():
                    return
                await self._turn(http, f"{self.turns.name} says {turn}")

    async def _conversation(self, http: httpx2.AsyncClient) -> str:
        while True:
            try:
                response = await http.post(f"{self._url()}/v1/conversations", json={})
                return str(response.json()["id"])
            except httpx2.TransportError:
                await self._next_replica()

    async def _turn(self, http: httpx2.AsyncClient, text: str) -> None:
        locked_at: float | None = None
        while True:
            try:
                response_id = await self._send(http, text)
            except (httpx2.TransportError, LostAnswer) as fault:
                self.turns.faults += 1
                if "conversation_locked" in str(fault):
                    locked_at = locked_at or time.monotonic()
                    self.turns.locked_s = max(self.turns.locked_s, time.monotonic() - locked_at)
                await self._next_replica()
                if not await self._is_stored(http, text):
                    continue
                response_id = UNKNOWN_RESPONSE
            self.turns.confirmed.append((text, response_id))
            self._on_confirmed()
            self._replica_index += 1
            return

    async def _send(self, http: httpx2.AsyncClient, text: str) -> str:
        body: dict[str, Any] = {"model": "slow", "input": text, "stream": True}
        if self.turns.conversation is not None:
            body["conversation"] = self.turns.conversation
        elif self.turns.last is not None:
            body["previous_response_id"] = self.turns.last
        async with http.stream("POST", f"{self._url()}/v1/responses", json=body) as response:
            if response.status_code != 200:
                raise LostAnswer((await response.aread()).decode())
            async for event in events(response.aiter_lines()):
                if event["type"] == "response.completed":
                    return str(event["response"]["id"])
        raise LostAnswer("no last event")

    async def _is_stored(self, http: httpx2.AsyncClient, text: str) -> bool:
        """Return whether the conversation contains the turn although the client received no confirmation."""
        if self.turns.conversation is None:
            return False
        while True:
            try:
                items = await conversation_items(http, self._url(), self.turns.conversation)
                return text in user_messages(items)
            except (httpx2.TransportError, LostAnswer):
                await self._next_replica()

    async def _next_replica(self) -> None:
        """Select the next replica and wait `RETRY_S` seconds."""
        self._replica_index += 1
        await asyncio.sleep(RETRY_S)

    def _url(self) -> str:
        return self._urls[self._replica_index % len(self._urls)]


async def events(lines: AsyncIterator[str]) -> AsyncIterator[Any]:
    async for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


async def conversation_items(http: httpx2.AsyncClient, url: str, conversation: str) -> list[Any]:
    """Return all items of a conversation, oldest first. Raises LostAnswer."""
    return await list_all(http, f"{url}/v1/conversations/{conversation}/items")


async def list_all(http: httpx2.AsyncClient, url: str) -> list[Any]:
    items: list[Any] = []
    after: dict[str, str] = {}
    while True:
        response = await http.get(url, params={"order": "asc", "limit": "100", **after})
        if response.status_code != 200:
            raise LostAnswer(response.text)
        page = response.json()
        items += page["data"]
        if not page["has_more"]:
            return items
        after = {"after": page["last_id"]}


def user_messages(items: Sequence[Any]) -> list[str]:
    """Return the texts of the user messages."""
    return [item["content"][0]["text"] for item in items if item.get("role") == "user"]
