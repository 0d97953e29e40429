"""The running requests of servers that share a database: each sends its own to the others, whose pages list them.

A request is sent when it has run for `SHARE_AFTER_S` seconds, at the first byte of its response, at its end, and every
`REPEAT_S` seconds: those of a server that was killed are removed after `FORGET_S` seconds. A message has the figures of
rows and the title, no other content.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict
from typing import TypeVar

from convo.errors import StoreFault
from convo.history.items import Json
from convo.stores.base import MessageChannel
from convo.stores.unstored_requests import UnstoredRequest, decode_unstored_requests

SHARE_AFTER_S = 0.1
"""Shorter requests are not sent: a message costs a transaction."""

REPEAT_S, FORGET_S = 3.0, 10.0

RECONNECT_S = 5.0
"""Seconds until a broken connection for messages is opened again."""

MAX_MESSAGE_BYTES = 7_900
"""A notification of PostgreSQL has at most 7,999."""


RowT = TypeVar("RowT")


class Received(dict[str, tuple[RowT, float]]):
    """Rows of other servers, by the id of the request, each with the time of its last message; they expire."""

    def put(self, request_id: str, row: RowT, now: float, max_age_s: float) -> None:
        """Add a row as the newest, and remove the expired ones: a page that nobody reads must not keep them."""
        self.pop(request_id, None)
        self[request_id] = row, now
        while self[oldest := next(iter(self))][1] < now - max_age_s:
            del self[oldest]

    def rows(self, now: float, max_age_s: float) -> list[RowT]:
        """Return the rows that have not expired, oldest first."""
        return [row for row, received_at in self.values() if received_at > now - max_age_s]


class Replicas:
    """What this server sends to the others, and what it received from them.

    server_id:     distinguishes its own messages
    list_running:  returns the tenant and the row of each request that runs here, with the seconds since its start
    notify:        called with the tenant of a request that began, changed or ended on another server
    """

    def __init__(
        self,
        messages: MessageChannel,
        server_id: str,
        list_running: Callable[[], Iterable[tuple[str, Mapping[str, Json], float]]],
        notify: Callable[[str], None],
    ) -> None:
        self._messages, self._server_id = messages, server_id
        self._list_running, self._notify = list_running, notify
        self._sent: dict[str, tuple[Mapping[str, Json], float]] = {}
        self._ended: list[tuple[str, str, UnstoredRequest | None]] = []
        self._running: dict[str, Received[Mapping[str, Json]]] = {}
        self._recent: dict[str, Received[UnstoredRequest]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._now = asyncio.get_running_loop().time
        self._start(self._receive_forever())

    # -- what the page reads ----------------------------------------------------------------------

    def running(self, tenant: str) -> list[Mapping[str, Json]]:
        """Return the rows of requests that run on other servers, oldest first."""
        return self._running.get(tenant, Received()).rows(self._now(), FORGET_S)

    def recent(self, tenant: str) -> list[UnstoredRequest]:
        """Return rows that another server has not written yet, or has just written."""
        return self._recent.get(tenant, Received()).rows(self._now(), REPEAT_S)

    # -- sending ----------------------------------------------------------------------------------

    def touch(self) -> None:
        """Send soon what has changed."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SHARE_AFTER_S, self._send_changes)

    def end(self, tenant: str, request_id: str, row: UnstoredRequest | None) -> None:
        """Send the end of a request, with the row that it leaves."""
        if row is not None or request_id in self._sent:
            self._ended.append((tenant, request_id, row))
            self.touch()

    def _send_changes(self) -> None:
        self._timer, now, entries = None, self._now(), list[Json]()
        running = list(self._list_running())
        for tenant, row, age_s in running:
            sent_row, sent_at = self._sent.get(row["request_id"], (None, 0.0))
            if age_s >= SHARE_AFTER_S and (row != sent_row or now - sent_at > REPEAT_S):
                self._sent[row["request_id"]] = row, now
                entries.append({"tenant": tenant, "running": row})
        for tenant, request_id, ended_row in self._ended:
            self._sent.pop(request_id, None)
            entries.append({"tenant": tenant, "ended": request_id, "row": ended_row and asdict(ended_row)})
        self._ended.clear()
        if entries:
            self._start(self._send(entries))
        if running:
            self.touch()

    async def _send(self, entries: Iterable[Json]) -> None:
        with suppress(StoreFault):  # the requests that need the store report it
            for message in pack_messages(self._server_id, entries):
                await self._messages.send(message)

    # -- receiving --------------------------------------------------------------------------------

    async def _receive_forever(self) -> None:
        while True:
            with suppress(StoreFault):
                async with aclosing(self._messages.receive()) as messages:
                    async for message in messages:
                        self._take(message)
            await asyncio.sleep(RECONNECT_S)

    def _take(self, message: str) -> None:
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # of another version of convo
            document = json.loads(message)
            for entry in document["entries"] if document["server"] != self._server_id else ():
                tenant, now = entry["tenant"], self._now()
                if row := entry.get("running"):
                    self._running.setdefault(tenant, Received()).put(row["request_id"], row, now, FORGET_S)
                else:
                    self._running.get(tenant, Received()).pop(entry["ended"], None)
                    for ended in decode_unstored_requests([json.dumps(entry["row"])] if entry["row"] else ()):
                        self._recent.setdefault(tenant, Received()).put(ended.id, ended, now, REPEAT_S)
                self._notify(tenant)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def pack_messages(server_id: str, entries: Iterable[Json]) -> Iterator[str]:
    """Yield messages that contain these entries, each of at most `MAX_MESSAGE_BYTES` bytes."""
    start, end = f'{{"server": {json.dumps(server_id)}, "entries": [', "]}"
    parts, size = list[str](), len(start) + len(end)
    for entry in entries:
        part = json.dumps(entry)
        if parts and size + len(part) + 2 > MAX_MESSAGE_BYTES:
            yield f"{start}{', '.join(parts)}{end}"
            parts, size = [], len(start) + len(end)
        parts.append(part)
        size += len(part) + 2
    if parts:
        yield f"{start}{', '.join(parts)}{end}"
