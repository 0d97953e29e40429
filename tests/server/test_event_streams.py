"""Event streams as the server writes them: headers, comments, events of the API, live responses."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from convo.errors import StreamBroken, TryLater
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


async def events_of(*events: StreamEvent, error: Exception | None = None) -> AsyncGenerator[StreamEvent, None]:
    for event in events:
        yield event
    if error:
        raise error


# -- one event ------------------------------------------------------------------------------------


def test_an_event_is_written_with_its_type_and_its_json() -> None:
    assert sse.encode_sse_event(CREATED) == (
        b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1"}}\n\n'
    )


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


async def test_the_limit_that_ended_a_response_is_a_comment_before_its_last_event() -> None:
    recorder = Recorder()
    await recorder.writer.write_event(CREATED)
    await recorder.writer.write_event({**COMPLETED, "limit": {"name": "limits.answer_s", "message": "slow"}})
    chunks = [message["body"] for message in recorder.sent[1:]]
    assert chunks[1:] == [b": x-convo-limit limits.answer_s\n\n", sse.encode_sse_event(COMPLETED)]


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


async def test_a_stream_without_events_is_an_error_unless_it_may_be_empty() -> None:
    recorder = Recorder()
    with pytest.raises(StreamBroken, match="The response ended before its first event"):
        await recorder.writer.end(may_be_empty=False)
    assert recorder.sent == []
    await recorder.writer.end(may_be_empty=True)
    assert (recorder.sent[0]["status"], recorder.body) == (200, b"data: [DONE]\n\n")


async def test_an_error_after_the_first_event_has_the_next_number() -> None:
    recorder = Recorder()
    result = EventsResult(events_of({**CREATED, "sequence_number": 4}, error=StreamBroken("It broke")), stream=True)
    await relay_events(recorder.exchange, result, recorder, keepalive_s=0)
    error = json.loads(recorder.body.split(b"\n\n")[1].partition(b"data: ")[2])
    assert (error["type"], error["sequence_number"], error["message"]) == ("error", 5, "It broke.")
    assert recorder.body.endswith(b"\n\ndata: [DONE]\n\n")
    assert [delta for kind, delta, *_ in recorder.metrics if kind == "open"] == [1, -1]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_before_the_first_event_is_raised(stream: bool) -> None:
    recorder = Recorder()
    with pytest.raises(TryLater):
        await relay_events(
            recorder.exchange, EventsResult(events_of(error=TryLater("Busy")), stream), recorder, keepalive_s=0
        )
    assert recorder.sent == []
    assert recorder.metrics == ([("open", 1), ("open", -1)] if stream else [])


async def test_a_client_that_is_gone_gets_no_further_event() -> None:
    recorder = Recorder()
    await recorder.writer.write_event(CREATED)
    recorder.exchange.connection.close()
    with pytest.raises(ClientDisconnected):
        await recorder.writer.write_event(COMPLETED)
    assert recorder.body == sse.encode_sse_event(CREATED)


async def test_without_a_stream_the_last_response_is_sent_with_its_headers() -> None:
    recorder = Recorder()
    recorder.clock.advance(2)
    last = {**COMPLETED, "limit": {"name": "limits.answer_s", "message": "slow"}}
    result = EventsResult(events_of({**CREATED, "ignored": ["seed"]}, last), stream=False)
    await relay_events(recorder.exchange, result, recorder, keepalive_s=0)
    assert json.loads(recorder.body) == COMPLETED["response"]
    assert recorder.headers[b"x-convo-limit"] == b"limits.answer_s"
    assert recorder.headers[b"x-convo-ignored"] == b"seed"
    assert recorder.metrics == [("first", "/v1/responses", 2.0), ("response", "resp_1")]


async def test_a_background_response_is_sent_with_its_first_event() -> None:
    recorder = Recorder()
    result = EventsResult(events_of(CREATED, COMPLETED), stream=False, is_first_event_final=True)
    await relay_events(recorder.exchange, result, recorder, keepalive_s=0)
    assert json.loads(recorder.body) == CREATED["response"]
    assert recorder.metrics == [("first", "/v1/responses", 0.0)]


async def test_a_response_without_events_is_an_error() -> None:
    recorder = Recorder()
    with pytest.raises(StreamBroken):
        await relay_events(recorder.exchange, EventsResult(events_of(), stream=False), recorder, keepalive_s=0)


async def test_a_client_that_disconnects_ends_the_stream_without_an_error() -> None:
    recorder = Recorder()

    async def events_then_disconnect() -> AsyncGenerator[StreamEvent, None]:
        yield CREATED
        recorder.exchange.connection.close()
        yield COMPLETED

    await relay_events(recorder.exchange, EventsResult(events_then_disconnect(), stream=True), recorder, keepalive_s=0)
    assert recorder.body == sse.encode_sse_event(CREATED)
    assert recorder.exchange.status == 200


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


# -- responses in progress ------------------------------------------------------------------------

DELTA: StreamEvent = {
    "type": "response.output_text.delta",
    "sequence_number": 2,
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": "Hel",
}
ADDED: StreamEvent = {
    "type": "response.output_item.added",
    "sequence_number": 1,
    "output_index": 0,
    "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "status": "in_progress"},
}


@pytest.mark.parametrize("interval_s", [None, 0.01])
async def test_keepalives_are_sent_until_the_block_ends_and_never_after_it(interval_s: float | None) -> None:
    count = 0

    async def send_keepalive() -> None:
        nonlocal count
        count += 1

    exchange = Recorder().exchange
    for is_long in (False, True):
        async with sse.CancelOnDisconnect(exchange, send_keepalive, interval_s), asyncio.timeout(60):
            while is_long and interval_s is not None and count < 2:  # noqa: ASYNC110 - a timer of the block counts
                await asyncio.sleep(0.001)
            if is_long and interval_s is None:
                await asyncio.sleep(0.035)
            during = count
        await asyncio.sleep(0.03)
        assert count == during
        assert (during >= 2) == (is_long and interval_s is not None)
    assert exchange.status == 0
