"""Recording of requests that the service does not store: `[serve] record`.

These are requests with store=false, and those that are passed through with a conversation in them: chat completions
and Anthropic's Messages, but not embeddings and token counts.

Exchanges are written by the queue of `convo.recording.exchange_queue`. Another task deletes recordings after the TTL.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress

from convo.config.settings import ServeSettings
from convo.errors import ConvoError, StoreFault
from convo.history.accumulator import START_EVENTS, TERMINAL_EVENTS, ResponseAccumulator
from convo.history.items import Json, StreamEvent
from convo.history.records import EMBEDDED_URL
from convo.history.request_body import VERSION_HEADERS
from convo.models.pass_through import PassThroughApi
from convo.recording.client import RECORDED_HEADERS
from convo.recording.decoder import StreamedText
from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Protocol, Recorder
from convo.recording.exchange_queue import QueuedExchange, RecordingQueue
from convo.recording.recorder import StoreRecorder, open_recorder
from convo.runtime import Clock
from convo.server.http import HttpExchange
from convo.server.pass_through import PassedExchange
from convo.server.request_log import LiveRequest
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


class GatewayExchange(QueuedExchange):
    """One exchange of the server.

    get_text:  returns the text of the response that arrived since its last call
    """

    def __init__(self, recorder: Recorder, request: ExchangeRequest, get_text: Callable[[], str]) -> None:
        super().__init__(recorder)
        self.response: ExchangeResponse | None = None
        self._request, self._get_text = request, get_text

    @property
    def request_bytes(self) -> int:
        return len(self._request.body)

    @property
    def response_bytes(self) -> int:
        return len(self.response.body) if self.response else 0

    async def load_request(self) -> ExchangeRequest:
        return self._request

    async def load_response(self) -> ExchangeResponse:
        assert self.response
        return self.response

    def take_text(self) -> str:
        return self._get_text()


class GatewayRecording:
    """Records exchanges of the tenants whose keys the settings name.

    report:  called with a line about exchanges that were not recorded: at the first one, and at the end with their
             number
    """

    def __init__(self, store: Store, serve: ServeSettings, clock: Clock, report: Callable[[str], None]) -> None:
        self.queue = RecordingQueue(
            report=report, report_error=self._report_error, max_waiting=MAX_WAITING, max_waiting_bytes=MAX_WAITING_BYTES
        )
        self._store, self._serve, self._clock, self._report = store, serve, clock, report
        self._recorders: dict[str, StoreRecorder] = {}
        self._prune_task: asyncio.Task[None] | None = None

    def is_recorded(self, tenant: str) -> bool:
        """Return whether the requests of this key are recorded."""
        return self._serve.record and (not self._serve.record_keys or tenant in self._serve.record_keys)

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header of a recorded response, with the seconds for which it is kept."""
        return (b"x-convo-recorded", b"ttl=%d" % self._serve.record_ttl_s)

    def start(self) -> None:
        """Start to delete expired recordings; later calls have no effect."""
        if self._prune_task is None:
            self._prune_task = asyncio.create_task(self._prune_forever())

    def _begin(
        self, tenant: str, request: ExchangeRequest, get_text: Callable[[], str] = lambda: ""
    ) -> GatewayExchange | None:
        """Queue a request; return its exchange, whose response must be queued later, if it will be recorded."""
        self.start()
        exchange = GatewayExchange(self._recorder_for(tenant), request, get_text)
        return exchange if self.queue.begin(exchange) else None

    def _finish(self, exchange: GatewayExchange, response: ExchangeResponse) -> None:
        exchange.response = response
        self.queue.finish(exchange)

    async def track(
        self,
        live_request: LiveRequest,
        headers: Mapping[bytes, bytes],
        body: Mapping[str, Json],
        events: AsyncGenerator[StreamEvent, None],
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a response and record it, also if its client disconnects."""
        started_s, received_at = self._clock.monotonic(), self._clock.now()
        recorded: GatewayExchange | None = None
        accumulator, deltas = ResponseAccumulator(), list[str]()
        response_id = ""

        def take_text() -> str:
            text = "".join(deltas)
            deltas.clear()
            return text

        first_s: float | None = None
        last_event: StreamEvent | None = None
        try:
            async with aclosing(events):
                async for event in events:
                    if not response_id and event["type"] in START_EVENTS:
                        response_id, raw = event["response"]["id"], json.dumps(body).encode()
                        request = _make_request(response_id, "responses", headers, raw, received_at)
                        recorded = self._begin(live_request.tenant, request, take_text)
                        live_request.is_recorded = recorded is not None
                        # A kill loses what waits to be written, 58 of 189 exchanges in one run: a long queue holds
                        # responses back.
                        await self.queue.wait_for_room()
                    elif event["type"] in TERMINAL_EVENTS:
                        last_event = event
                    elif event["type"] not in START_EVENTS:
                        first_s = self._clock.monotonic() - started_s if first_s is None else first_s
                        accumulator.add(event)
                        if recorded is not None and event["type"] == "response.output_text.delta":
                            deltas.append(event["delta"])
                    yield event
        finally:
            if recorded is not None:
                duration_s = self._clock.monotonic() - started_s
                final = last_event or {
                    "type": "response.incomplete",
                    "response": {
                        "id": response_id,
                        "output": accumulator.incomplete_output,
                        "incomplete_details": {"reason": "client_disconnected"},
                    },
                }
                raw = json.dumps(final).encode()
                self._finish(recorded, ExchangeResponse(200, {}, raw, first_s, duration_s, False, None))

    @contextmanager
    def track_passed(self, exchange: HttpExchange, passed_exchange: PassedExchange) -> Iterator[None]:
        """Record a request that is passed through while the block runs, and its response at the end of the block.

        The response has the recording header, also with an error status: errors are recorded, too.
        """
        protocol = PASSED_PROTOCOLS.get(passed_exchange.api)
        if protocol is None or not self.is_recorded(exchange.tenant):
            yield
            return
        received_at = self._clock.now() - exchange.duration_s
        request = _make_request(exchange.id, protocol, exchange.headers, passed_exchange.request_body, received_at)
        text, taken_bytes = StreamedText(protocol), 0

        def take_text() -> str:
            nonlocal taken_bytes
            piece = bytes(passed_exchange.response_body[taken_bytes:])
            taken_bytes += len(piece)
            return text.add(piece)

        recorded = self._begin(exchange.tenant, request, take_text)
        if recorded is None:
            yield
            return
        passed_exchange.keeps_response = exchange.records_errors = True
        passed_exchange.before_response = self.queue.wait_for_room
        exchange.recording_header = self.header
        try:
            yield
        except ConvoError as error:
            passed_exchange.error = error.message
            if not passed_exchange.response_status:  # the server's own error, as the client gets it
                passed_exchange.response_status = error.status
                passed_exchange.response_body += json.dumps(exchange.build_error_body(error)).encode()
            raise
        finally:
            reason = None if passed_exchange.is_complete else passed_exchange.error or "the client disconnected"
            response = ExchangeResponse(
                status=passed_exchange.response_status or None,
                headers=passed_exchange.response_headers,
                body=bytes(passed_exchange.response_body),
                first_byte_s=passed_exchange.first_byte_s,
                duration_s=exchange.duration_s,
                is_truncated=passed_exchange.response_bytes > len(passed_exchange.response_body),
                error=reason,
            )
            self._finish(recorded, response)

    async def aclose(self) -> None:
        """Write the waiting exchanges, for at most `DRAIN_TIMEOUT_S` seconds, and close the recorders."""
        if self._prune_task is None:
            return
        self._prune_task.cancel()
        await self.queue.aclose(DRAIN_TIMEOUT_S)
        await asyncio.gather(self._prune_task, return_exceptions=True)
        for recorder in self._recorders.values():
            with suppress(StoreFault):
                await recorder.aclose()
        if self.queue.dropped:
            self._report(f"requests that were not recorded: {self.queue.dropped:,}")

    def _report_error(self, error: BaseException) -> None:
        self._report(f"the recording ended early: {type(error).__name__}")

    def _recorder_for(self, tenant: str) -> StoreRecorder:
        if tenant not in self._recorders:
            store = self._store.for_tenant(tenant)
            self._recorders[tenant] = open_recorder(store, ttl_s=self._serve.record_ttl_s, clock=self._clock)
        return self._recorders[tenant]

    async def _prune_forever(self) -> None:
        """Close interrupted recordings and delete expired ones, also of tenants without requests since the start."""
        while True:
            with suppress(StoreFault):
                for tenant in await self._store.admin.tenant_names():
                    recorder = self._recorder_for(tenant)
                    await recorder.close_abandoned()
                    await recorder.prune()
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
