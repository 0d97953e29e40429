"""The running requests of servers that share a database: each tells the others, so that every page shows all of them.

A request is told when it has run for `SHARE_AFTER_S` seconds, at the first byte of its response, at its end, and every
`REPEAT_S` seconds: those of a server that was killed are forgotten after `FORGET_S` seconds. A message has the figures
of rows and the title, no other content.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass

from convo.errors import StoreFault
from convo.history.items import Json
from convo.stores.base import MessageChannel
from convo.stores.unstored_requests import UnstoredRequest, decode_unstored_requests

SHARE_AFTER_S = 0.1
"""Shorter requests are not told: a message costs a transaction."""

REPEAT_S, FORGET_S = 3.0, 10.0

RECONNECT_S = 5.0
"""Seconds until a broken connection for messages is opened again."""

MAX_MESSAGE_BYTES = 7_900
"""A notification of PostgreSQL has at most 7,999."""


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """A row of another server's running request: the members of `LiveRequest.to_row`, and when it was told last."""

    row: Mapping[str, Json]
    told_at: float


class Replicas:
    """What this server tells the others, and what they told it.

    server_id:     tells its own messages apart
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
        self._told: dict[str, tuple[Mapping[str, Json], float]] = {}
        self._ended: list[tuple[str, str, UnstoredRequest | None]] = []
        self._remote: dict[str, dict[str, RemoteRequest]] = {}
        self._remote_ended: dict[str, dict[str, tuple[UnstoredRequest, float]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._now = asyncio.get_running_loop().time
        self._start(self._receive_forever())

    # -- what the page reads ----------------------------------------------------------------------

    def running(self, tenant: str) -> list[Mapping[str, Json]]:
        """Return the rows of requests that run on other servers, oldest first."""
        oldest = self._now() - FORGET_S
        known = {key: each for key, each in self._remote.get(tenant, {}).items() if each.told_at > oldest}
        self._remote[tenant] = known
        return [each.row for each in known.values()]

    def recent(self, tenant: str) -> list[UnstoredRequest]:
        """Return rows that another server has not written yet, or has just written."""
        oldest = self._now() - REPEAT_S
        known = {key: each for key, each in self._remote_ended.get(tenant, {}).items() if each[1] > oldest}
        self._remote_ended[tenant] = known
        return [row for row, _ in known.values()]

    # -- telling ----------------------------------------------------------------------------------

    def touch(self) -> None:
        """Tell soon what has changed."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SHARE_AFTER_S, self._tell_changes)

    def end(self, tenant: str, request_id: str, row: UnstoredRequest | None) -> None:
        """Tell the end of a request, with the row that it leaves."""
        if row is not None or request_id in self._told:
            self._ended.append((tenant, request_id, row))
            self.touch()

    def _tell_changes(self) -> None:
        self._timer, now, entries = None, self._now(), list[Json]()
        running = list(self._list_running())
        for tenant, row, age_s in running:
            told_row, told_at = self._told.get(row["request_id"], (None, 0.0))
            if age_s >= SHARE_AFTER_S and (row != told_row or now - told_at > REPEAT_S):
                self._told[row["request_id"]] = row, now
                entries.append({"tenant": tenant, "running": row})
        for tenant, request_id, ended_row in self._ended:
            self._told.pop(request_id, None)
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

    # -- being told -------------------------------------------------------------------------------

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
                    self._remote.setdefault(tenant, {})[row["request_id"]] = RemoteRequest(row, now)
                else:
                    self._remote.get(tenant, {}).pop(entry["ended"], None)
                    for ended in decode_unstored_requests([json.dumps(entry["row"])] if entry["row"] else ()):
                        self._remote_ended.setdefault(tenant, {})[ended.id] = ended, now
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
