"""Event streams as the server writes them: headers, comments, events of the API, live responses."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from convo.history.items import StreamEvent
from convo.server import http, sse
from convo.server.http import ClientDisconnected, HttpExchange
from convo.server.sse import EventsResult, SSEWriter, relay_events
from tests.clock import FixedClock

CREATED: StreamEvent = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}}
USAGE = {"input_tokens": 1, "output_tokens": 2}
COMPLETED: StreamEvent = {
    "type": "response.completed",
    "sequence_number": 1,
    "response": {"id": "resp_1", "status": "completed", "usage": USAGE},
}


class Recorder:
    """Records the metrics and messages of one exchange."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.metrics: list[tuple[Any, ...]] = []
        self.clock = FixedClock()
        self.exchange = HttpExchange(
            {"type": "http", "method": "POST", "headers": []},
            self._receive,
            self._send,  # type: ignore[arg-type]  # plain dicts instead of ASGI messages
            request_id="req_1",
            clock=self.clock,
        )
        self.exchange.route = "/v1/responses"
        self.writer = SSEWriter(self.exchange, self)

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def record_first_event(self, route: str, after_s: float) -> None:
        self.metrics.append(("first", route, after_s))

    def record_response(self, response: Any) -> None:
        self.metrics.append(("response", response["id"]))

    def add_open_streams(self, delta: int) -> None:
        self.metrics.append(("open", delta))

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


# -- one event ------------------------------------------------------------------------------------


def test_fields_that_the_api_does_not_know_are_not_sent() -> None:
    assert sse.to_api_event(CREATED) is CREATED
    for extra in ({"limit": {"name": "x"}}, {"streamed_text_differs": True}):
        assert sse.to_api_event({**CREATED, **extra}) == CREATED


def test_ignored_fields_move_from_the_first_event_to_the_header() -> None:
    exchange = Recorder().exchange
    assert sse.record_ignored_fields({**CREATED, "ignored": ["seed", "a,b", "ü\nx", "ü"]}, exchange) == CREATED
    assert exchange.ignored_fields == ("seed", "ab", "x")
    plain = Recorder().exchange
    assert sse.record_ignored_fields(CREATED, plain) == CREATED
    assert plain.ignored_fields == ()


@pytest.mark.parametrize(("length", "field_count"), [(2046, 1), (2047, 0)])
def test_ignored_fields_fill_a_header_of_two_kilobytes(length: int, field_count: int) -> None:
    exchange = Recorder().exchange
    sse.record_ignored_fields({**CREATED, "ignored": ["x" * length]}, exchange)
    assert len(exchange.ignored_fields) == field_count
    sse.record_ignored_fields({**CREATED, "ignored": ["x" * 1022, "y" * 1022, "z"]}, exchange)
    assert exchange.ignored_fields == ("x" * 1022, "y" * 1022)


# -- a stream -------------------------------------------------------------------------------------


async def test_a_stream_starts_with_its_first_event_and_ends_with_done() -> None:
    recorder = Recorder()
    recorder.clock.advance(0.5)
    await recorder.writer.write_event({**CREATED, "ignored": ["seed"]})
    recorder.clock.advance(1)
    await recorder.writer.write_event(COMPLETED)
    await recorder.writer.end(may_be_empty=False)
    assert recorder.sent[0]["status"] == 200
    assert recorder.headers == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache, no-transform",
        b"x-accel-buffering": b"no",
        b"x-convo-ignored": b"seed",
        b"x-request-id": b"req_1",
        b"openai-processing-ms": b"500",
    }
    assert recorder.body == sse.encode_sse_event(CREATED) + sse.encode_sse_event(COMPLETED) + b"data: [DONE]\n\n"
    assert [message["more_body"] for message in recorder.sent[1:]] == [True, True, False]
    assert recorder.metrics == [("first", "/v1/responses", 0.5), ("response", "resp_1")]


async def test_a_quiet_stream_gets_a_comment_and_a_busy_one_does_not() -> None:
    recorder = Recorder()
    await recorder.writer.write_keepalive()
    assert recorder.body == b": still here\n\n"
    await recorder.writer.write_event(CREATED)
    await recorder.writer.write_keepalive()
    assert recorder.body.count(b": still here") == 1
    await recorder.writer.write_keepalive()
    assert recorder.body.count(b": still here") == 2
    assert [message["type"] for message in recorder.sent].count("http.response.start") == 1
    assert recorder.metrics == [("first", "/v1/responses", 0.0)]


async def test_a_client_that_is_gone_gets_no_further_event() -> None:
    recorder = Recorder()
    await recorder.writer.write_event(CREATED)
    recorder.exchange.connection.close()
    with pytest.raises(ClientDisconnected):
        await recorder.writer.write_event(COMPLETED)
    assert recorder.body == sse.encode_sse_event(CREATED)


async def test_keepalives_end_with_the_block() -> None:
    sent = asyncio.Event()

    async def send_keepalive() -> None:
        sent.set()

    async with sse.CancelOnDisconnect(Recorder().exchange, send_keepalive, 0.001), asyncio.timeout(60):
        await sent.wait()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_client_that_disconnects_before_its_response_is_logged_as_gone() -> None:
    recorder = Recorder()

    async def delayed_events() -> AsyncGenerator[StreamEvent, None]:
        await asyncio.sleep(60)
        yield COMPLETED

    recorder.exchange.connection.close()
    await relay_events(recorder.exchange, EventsResult(delayed_events(), stream=False), recorder, keepalive_s=0)
    assert (recorder.exchange.status, recorder.sent) == (http.CLIENT_CLOSED_STATUS, [])
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
