"""Recording of requests that the service does not store: `[serve] record`.

These are requests with store=false, and those that are passed through with a conversation in them: chat completions
and Anthropic's Messages, but not embeddings and token counts.

Exchanges wait in a bounded queue and are written by one task, so recording neither delays nor fails a response. When
the queue is full, or the store fails, exchanges are dropped and counted. Another task deletes recordings after the TTL.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass

from convo.config.settings import ServeSettings
from convo.errors import ConvoError, StoreFault
from convo.history.accumulator import START_EVENTS, TERMINAL_EVENTS, ResponseAccumulator
from convo.history.items import Json, StreamEvent
from convo.history.records import EMBEDDED_URL
from convo.history.request_body import VERSION_HEADERS
from convo.models.pass_through import PassThroughApi
from convo.recording.client import RECORDED_HEADERS
from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Protocol
from convo.recording.recorder import StoreRecorder, open_recorder
from convo.runtime import Clock
from convo.server.http import HttpExchange
from convo.server.pass_through import PassedExchange
from convo.stores.base import Store

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Bytes of all bodies that wait to be written."""

MAX_WAITING = 2000
"""Requests and responses that wait to be written."""

PASSED_PROTOCOLS: Mapping[PassThroughApi, Protocol] = {
    PassThroughApi.CHAT_COMPLETIONS: "chat_completions",
    PassThroughApi.MESSAGES: "messages",
}
"""The APIs that are passed through and recorded."""

DRAIN_TIMEOUT_S = 10.0
"""Seconds in which the waiting exchanges are written at shutdown."""


@dataclass(frozen=True, slots=True)
class WaitingExchange:
    """A request, or with `response` its response, that waits to be written."""

    tenant: str
    request: ExchangeRequest
    response: ExchangeResponse | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.request.body) if self.response is None else len(self.response.body)


class GatewayRecording:
    """Records exchanges of the tenants whose keys the settings name.

    dropped_count:  exchanges that were not recorded, because the queue was full or the store failed
    report:         called with the reason of the first of them
    """

    def __init__(self, store: Store, serve: ServeSettings, clock: Clock, report: Callable[[str], None]) -> None:
        self.dropped_count = 0
        self._store, self._serve, self._clock, self._report = store, serve, clock, report
        self._recorders: dict[str, StoreRecorder] = {}
        self._queue: asyncio.Queue[WaitingExchange | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._tasks: list[asyncio.Task[None]] = []

    def is_recorded(self, tenant: str) -> bool:
        """Return whether the requests of this key are recorded."""
        return self._serve.record and (not self._serve.record_keys or tenant in self._serve.record_keys)

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header of a recorded response, with the seconds for which it is kept."""
        return (b"x-convo-recorded", b"ttl=%d" % self._serve.record_ttl_s)

    def start(self) -> None:
        """Start the tasks; later calls have no effect."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._write_forever()), asyncio.create_task(self._prune_forever())]

    def begin(self, tenant: str, request: ExchangeRequest) -> bool:
        """Queue a request; return whether it will be recorded. `finish` must follow then."""
        self.start()
        if self._tasks[0].done():
            self._drop("the task that writes them has ended")
            return False
        if self._queue.qsize() >= MAX_WAITING or self._waiting_bytes + len(request.body) > MAX_WAITING_BYTES:
            self._drop("too many requests wait to be recorded")
            return False
        self._put(WaitingExchange(tenant, request))
        return True

    def finish(self, tenant: str, request: ExchangeRequest, response: ExchangeResponse) -> None:
        """Queue the response to a request that `begin` has queued."""
        self._put(WaitingExchange(tenant, request, response))

    async def track(
        self,
        tenant: str,
        headers: Mapping[bytes, bytes],
        body: Mapping[str, Json],
        events: AsyncGenerator[StreamEvent, None],
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a response and record it, also if its client disconnects."""
        started_s, received_at = self._clock.monotonic(), self._clock.now()
        request: ExchangeRequest | None = None
        accumulator = ResponseAccumulator()
        first_s: float | None = None
        last_event: StreamEvent | None = None
        try:
            async with aclosing(events):
                async for event in events:
                    if request is None and event["type"] in START_EVENTS:
                        raw = json.dumps(body).encode()
                        candidate = _make_request(event["response"]["id"], "responses", headers, raw, received_at)
                        request = candidate if self.begin(tenant, candidate) else None
                    elif event["type"] in TERMINAL_EVENTS:
                        last_event = event
                    elif event["type"] not in START_EVENTS:
                        first_s = self._clock.monotonic() - started_s if first_s is None else first_s
                        accumulator.add(event)
                    yield event
        finally:
            if request is not None:
                duration_s = self._clock.monotonic() - started_s
                final = last_event or {
                    "type": "response.incomplete",
                    "response": {
                        "id": request.id,
                        "output": accumulator.incomplete_output,
                        "incomplete_details": {"reason": "client_disconnected"},
                    },
                }
                raw = json.dumps(final).encode()
                self.finish(tenant, request, ExchangeResponse(200, {}, raw, first_s, duration_s, False, None))

    @contextmanager
    def track_passed(self, exchange: HttpExchange, passed: PassedExchange) -> Iterator[None]:
        """Record a request that is passed through while the block runs, and its response at the end of the block.

        The response has the recording header, also with an error status: errors are recorded, too.
        """
        protocol = PASSED_PROTOCOLS.get(passed.api)
        if protocol is None or not self.is_recorded(exchange.tenant):
            yield
            return
        received_at = self._clock.now() - exchange.duration_s
        request = _make_request(exchange.id, protocol, exchange.headers, passed.request_body, received_at)
        if not self.begin(exchange.tenant, request):
            yield
            return
        passed.keeps_response = exchange.records_errors = True
        exchange.recording_header = self.header
        try:
            yield
        except ConvoError as error:
            passed.error = error.message
            raise
        finally:
            reason = None if passed.is_complete else passed.error or "the client disconnected"
            response = ExchangeResponse(
                status=passed.response_status or None,
                headers=passed.response_headers,
                body=bytes(passed.response_body),
                first_byte_s=passed.first_byte_s,
                duration_s=exchange.duration_s,
                is_truncated=passed.response_bytes > len(passed.response_body),
                error=reason,
            )
            self.finish(exchange.tenant, request, response)

    async def aclose(self) -> None:
        """Write the waiting exchanges, for at most `DRAIN_TIMEOUT_S` seconds, and close the recorders."""
        if not self._tasks:
            return
        self._queue.put_nowait(None)
        writer, pruner = self._tasks
        pruner.cancel()
        await asyncio.wait({writer}, timeout=DRAIN_TIMEOUT_S)
        writer.cancel()
        outcome, _ = await asyncio.gather(writer, pruner, return_exceptions=True)
        if isinstance(outcome, Exception):
            self._report(f"the recording ended early: {type(outcome).__name__}")
        for recorder in self._recorders.values():
            with suppress(StoreFault):
                await recorder.aclose()

    def _put(self, exchange: WaitingExchange) -> None:
        self._waiting_bytes += exchange.size_bytes
        self._queue.put_nowait(exchange)

    def _drop(self, reason: str) -> None:
        self.dropped_count += 1
        if self.dropped_count == 1:
            self._report(f"some requests are not recorded: {reason}")

    def _recorder_for(self, tenant: str) -> StoreRecorder:
        if tenant not in self._recorders:
            store = self._store.for_tenant(tenant)
            self._recorders[tenant] = open_recorder(store, ttl_s=self._serve.record_ttl_s, clock=self._clock)
        return self._recorders[tenant]

    async def _write_forever(self) -> None:
        while (exchange := await self._queue.get()) is not None:
            self._waiting_bytes -= exchange.size_bytes
            recorder = self._recorder_for(exchange.tenant)
            try:
                if exchange.response is None:
                    await recorder.begin(exchange.request)
                else:
                    await recorder.finish(exchange.request, exchange.response)
            except ConvoError as error:
                self._drop(error.message)

    async def _prune_forever(self) -> None:
        """Delete expired recordings of all tenants, also of those without requests since the start."""
        while True:
            with suppress(StoreFault):
                for tenant in await self._store.admin.tenant_names():
                    await self._recorder_for(tenant).prune()
            await self._clock.sleep(self._recorder_for(self._store.tenant).prune_interval_s())


def _make_request(
    exchange_id: str,
    protocol: Protocol,
    headers: Mapping[bytes, bytes],
    body: bytes,
    received_at: float,
) -> ExchangeRequest:
    """Return the exchange of a request, with those headers that identify its client."""
    names = [name for name in (*RECORDED_HEADERS, *VERSION_HEADERS) if name.encode() in headers]
    kept = {name: headers[name.encode()].decode("latin-1") for name in names}
    return ExchangeRequest(exchange_id, protocol, EMBEDDED_URL, kept, body, received_at, is_truncated=False)
