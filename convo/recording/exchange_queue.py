"""The queue between a server that copies exchanges and the recorders that write them.

One task writes requests and responses in the order in which they began and ended, so a failing recorder fails no
request: its exchanges are dropped and counted. A process that is killed loses the entries that wait. So a server calls
`wait_for_room` before it passes a response on: then at most `MAX_UNWRITTEN` entries wait, and those of the requests
that are held back meanwhile. Another task writes the text of responses as it arrives.
"""

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple

from convo.errors import ConvoError
from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Recorder

MAX_WAITING = 10_000
"""Requests and responses that wait to be written; when so many wait, new requests are not recorded."""

# Without this bound a kill lost 58 of 189 exchanges.
MAX_UNWRITTEN, RESUMED_UNWRITTEN = 32, 8
"""Waiting entries above which responses are held back, and at which they are passed on again."""

MAX_HELD_BACK_S = 2.0
"""Seconds that a response is held back; if nothing was written meanwhile, no other one is until something is."""

TEXT_INTERVAL_S = 0.4
"""Seconds between two writes of the text of one response in progress."""

TOO_SLOW_REASON = "the recorder is too slow, so some requests are not recorded"


class QueuedExchange:
    """One exchange that a server copies for a recorder; a subclass has the copies.

    request:  as it was written; None until then, and after the response was written
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.request: ExchangeRequest | None = None

    @property
    def request_bytes(self) -> int:
        """The bytes of the request that count towards the limit of the queue."""
        return 0

    @property
    def response_bytes(self) -> int:
        """The bytes of the response that count towards the limit of the queue."""
        return 0

    async def load_request(self) -> ExchangeRequest:
        raise NotImplementedError

    async def load_response(self) -> ExchangeResponse:
        raise NotImplementedError

    def take_text(self) -> str:
        """Return the text of the response that arrived since the last call, as far as it is known."""
        return ""

    def release(self) -> None:
        """Free the copies of an exchange that was recorded, or will not be. Later calls have no effect."""


class _Entry(NamedTuple):
    exchange: QueuedExchange
    part: Literal["request", "response"]
    size_bytes: int


class RecordingQueue:
    """Writes exchanges in order, in a task of its own, which starts with the first one.

    recorded:  exchanges that were written
    dropped:   exchanges that were not, because the recorder was too slow or failed, or at the end
    report:    called with the reason of the first one that is dropped
    """

    def __init__(
        self, *, report: Callable[[str], None], report_error: Callable[[BaseException], None],
        max_waiting: int = MAX_WAITING, max_waiting_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.recorded = self.dropped = 0
        self._report, self._report_error = report, report_error
        self._max_waiting, self._max_waiting_bytes = max_waiting, max_waiting_bytes
        self._entries: asyncio.Queue[_Entry | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._current: QueuedExchange | None = None
        self._running: dict[int, QueuedExchange] = {}
        self._has_room = asyncio.Event()
        self._is_stuck = False
        self._written_count = 0

    def begin(self, exchange: QueuedExchange) -> bool:
        """Queue a request; return whether it will be recorded. `finish` must follow then."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._write_entries()), asyncio.create_task(self._write_texts())]
        size_bytes = exchange.request_bytes
        is_full = self._max_waiting_bytes is not None and self._waiting_bytes + size_bytes > self._max_waiting_bytes
        if self._tasks[0].done() or is_full or self._entries.qsize() >= self._max_waiting:
            self._drop(TOO_SLOW_REASON)
            return False
        self._put(_Entry(exchange, "request", size_bytes))
        return True

    def finish(self, exchange: QueuedExchange) -> None:
        """Queue the response of a queued request."""
        self._running.pop(id(exchange), None)
        self._put(_Entry(exchange, "response", exchange.response_bytes))

    def _put(self, entry: _Entry) -> None:
        self._waiting_bytes += entry.size_bytes
        self._entries.put_nowait(entry)

    async def wait_for_room(self) -> None:
        """Wait while too many entries are not written, for a bounded time."""
        if self._entries.qsize() <= MAX_UNWRITTEN or self._is_stuck:
            return
        self._has_room.clear()
        written_count = self._written_count
        try:
            async with asyncio.timeout(MAX_HELD_BACK_S):
                await self._has_room.wait()
        except TimeoutError:
            self._is_stuck = self._written_count == written_count

    async def aclose(self, timeout_s: float) -> None:
        """Write the waiting entries, for at most `timeout_s` seconds; the others are counted as dropped."""
        if not self._tasks:
            return
        writer, texts = self._tasks
        texts.cancel()
        self._entries.put_nowait(None)
        await asyncio.wait({writer}, timeout=timeout_s)
        writer.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()):
                self._report_error(error)
        lost = {id(self._current): self._current} if self._current else {}
        while not self._entries.empty():
            entry = self._entries.get_nowait()
            if entry is not None and (entry.part == "request" or entry.exchange.request is not None):
                lost[id(entry.exchange)] = entry.exchange
        for exchange in lost.values():
            exchange.release()
            self._drop(TOO_SLOW_REASON)

    async def _write_entries(self) -> None:
        while (entry := await self._entries.get()) is not None:
            self._waiting_bytes -= entry.size_bytes
            self._current = entry.exchange
            try:
                await (self._write_request if entry.part == "request" else self._write_response)(entry.exchange)
            except ConvoError as error:
                self._drop(f"requests are not recorded: {error.message}")
            self._current, self._is_stuck = None, False
            self._written_count += 1
            if self._entries.qsize() <= RESUMED_UNWRITTEN:
                self._has_room.set()

    async def _write_request(self, exchange: QueuedExchange) -> None:
        self._running[id(exchange)] = exchange
        request = await exchange.load_request()
        await exchange.recorder.begin(request)
        exchange.request = request

    async def _write_response(self, exchange: QueuedExchange) -> None:
        self._running.pop(id(exchange), None)
        if exchange.request is None:  # `begin` failed and was counted
            exchange.release()
            return
        response = await exchange.load_response()
        request, exchange.request = exchange.request, None
        try:
            await exchange.recorder.finish(request, response)
        finally:
            exchange.release()
        self.recorded += 1

    async def _write_texts(self) -> None:
        """Write the text of the responses in progress as it arrives; a failure has no effect on the recording."""
        while True:
            await asyncio.sleep(TEXT_INTERVAL_S)
            for key, exchange in list(self._running.items()):
                if exchange.request is None or not (text := exchange.take_text()):
                    continue
                try:
                    await exchange.recorder.add_text(exchange.request, text)
                except ConvoError:
                    self._running.pop(key, None)

    def _drop(self, reason: str) -> None:
        if not self.dropped:
            self._report(reason)
        self.dropped += 1
