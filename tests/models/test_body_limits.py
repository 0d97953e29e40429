"""Response bodies of servers are read up to a limit, with every library and transport."""

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from time import monotonic, thread_time
from typing import Any

import pytest

from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.endpoints.remote import RemoteEndpoint
from convo.errors import ConvoError, EndpointFault, LimitReached, RequestRefused, StreamBroken, TryLater
from convo.history.items import user_message
from convo.models import http
from convo.models.anthropic import AnthropicModel
from convo.models.base import ModelRequest
from convo.models.chat_completions import ChatModel
from convo.models.errors import ErrorContext, fault_from_status
from convo.models.http import MAX_ERROR_BYTES, OpenAIClientOptions
from convo.models.responses import ResponsesModel
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.combinations import rotated_combinations
from tests.hostile_server import (
    JSON,
    OK,
    PIECE,
    HostileServer,
    endless_error,
    gzip_of_size,
    repeat_piece,
    run_hostile_server,
)

REQUEST = ModelRequest("m", [user_message("hi")])
BODY = {"model": "m", "input": "hi"}
KEY = Secret("sk-test")
MAX_SENT_BYTES = 16 * 2**20
"""Bytes that the socket buffers of both sides may hold before the server notices that the client closed."""


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with run_hostile_server() as server:
        yield server


async def test_a_connection_that_was_closed_at_an_invalid_chunk_breaks_the_response(server: HostileServer) -> None:
    """aiohttp raises RuntimeError then, which was an internal error of the gateway."""
    may_continue = threading.Event()

    def answer(_: str) -> Iterator[bytes]:
        event = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
        yield OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        yield b"%x\r\n%b\r\n" % (len(event), event)
        may_continue.wait(60)
        yield b"zzz\r\n"
        yield from repeat_piece(b"x" * PIECE)

    async def read_slowly() -> None:
        async for event in model.respond(REQUEST):
            if event["type"] == "response.output_text.delta":
                may_continue.set()
                while not server.closed.is_set():  # noqa: ASYNC110 - the event of a thread
                    await asyncio.sleep(0.01)

    server.answers = answer
    model = chat(server.url, DEFAULT_RESPONSE_LIMITS)
    with pytest.raises(StreamBroken, match="not valid HTTP"):
        await read_slowly()
    await model.aclose()


async def call_model(way: str, url: str, limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS) -> None:
    """Send one kind of request to the server at `url` and close the client."""
    make, call = CALLS[way]
    server = make(url, limits)
    try:
        found = call(server)
        if isinstance(found, AsyncIterator):
            async for _ in found:
                pass
        else:
            await found
    finally:
        await server.aclose()


def chat(url: str, limits: ResponseLimits) -> ChatModel:
    return ChatModel("mine", url, counting_ids(), limits=limits, is_served=True)


def unserved_chat(url: str, limits: ResponseLimits) -> ChatModel:
    return ChatModel("mine", url, counting_ids(), limits=limits)


def responses(url: str, limits: ResponseLimits) -> ResponsesModel:
    return ResponsesModel(OpenAIClientOptions("mine", url, KEY), counting_ids(), limits=limits, is_served=True)


def claude(url: str, limits: ResponseLimits) -> AnthropicModel:
    return AnthropicModel("mine", url, counting_ids(), key=KEY, limits=limits, is_served=True)


def remote(url: str, limits: ResponseLimits) -> RemoteEndpoint:
    return RemoteEndpoint(OpenAIClientOptions("mine", url, KEY), limits=limits)


def azure(url: str, limits: ResponseLimits) -> RemoteEndpoint:
    return RemoteEndpoint(
        OpenAIClientOptions("mine", url, KEY, is_azure=True, api_version="2025-04-01-preview"), limits=limits
    )


CALLS: dict[str, tuple[Callable[[str, ResponseLimits], Any], Callable[[Any], Any]]] = {
    "chat completions": (chat, lambda model: model.respond(REQUEST)),
    "chat completions, of a command": (unserved_chat, lambda model: model.respond(REQUEST)),
    "responses": (responses, lambda model: model.respond(REQUEST)),
    "anthropic": (claude, lambda model: model.respond(REQUEST)),
    "azure": (azure, lambda there: there.create(BODY)),
    "create": (remote, lambda there: there.create(BODY)),
    "follow": (remote, lambda there: there.follow("resp_1")),
    "retrieve": (remote, lambda there: there.retrieve("resp_1")),
    "delete": (remote, lambda there: there.delete("resp_1")),
    "cancel": (remote, lambda there: there.cancel("resp_1")),
    "compact": (remote, lambda there: there.compact(BODY)),
    "count": (remote, lambda there: there.count_input_tokens(BODY)),
    "items": (remote, lambda there: there.list_conversation_items("conv_1")),
    "models": (remote, lambda there: there.list_models()),
    "chat completions' models": (chat, lambda model: model.list_models()),
    "claude's models": (claude, lambda model: model.list_models()),
}


SAME_READER = ("azure", "follow", "delete", "cancel", "count", "compact", "chat completions' models", "claude's models")
"""Calls whose bodies are read by the client of another call; they run with -m full."""

WAYS = [pytest.param(way, marks=pytest.mark.full if way in SAME_READER else ()) for way in CALLS]


async def raised_error(call: Any) -> ConvoError:
    with pytest.raises(ConvoError) as error:
        await call
    return error.value


@pytest.mark.parametrize("way", WAYS)
async def test_an_error_body_is_read_up_to_a_limit_and_the_connection_closed(server: HostileServer, way: str) -> None:
    server.answers = lambda _: endless_error(400, b"endless ")

    error = await raised_error(call_model(way, server.url))

    assert isinstance(error, RequestRefused)
    assert error.status == 400
    assert await asyncio.to_thread(server.closed.wait, 60)
    assert server.sent[0] < MAX_SENT_BYTES


@pytest.mark.parametrize("way", WAYS)
async def test_an_error_body_is_not_decompressed_beyond_the_limit(
    server: HostileServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unzipped = []
    read = http.Decompressor.decompress

    def counted_decompress(self: http.Decompressor, piece: bytes) -> Iterator[bytes]:
        for out in read(self, piece):
            unzipped.append(len(out))
            yield out

    monkeypatch.setattr(http.Decompressor, "decompress", counted_decompress)
    bomb = gzip_of_size(64)
    server.answers = lambda _: endless_error(503, bomb, b"content-encoding: gzip")

    error = await raised_error(call_model(way, server.url))

    assert isinstance(error, TryLater)
    assert error.status == 503
    assert sum(unzipped) <= MAX_ERROR_BYTES + PIECE


@pytest.mark.parametrize(
    ("way", "compressed"),
    rotated_combinations(
        ["retrieve", "compact", "count", "items", "models", "chat completions' models", "claude's models"],
        [False, True],
    ),
)
async def test_an_unstreamed_answer_has_a_size_limit(server: HostileServer, way: str, compressed: bool) -> None:
    bomb = gzip_of_size(80, b'"endless" ')
    if compressed:
        head = OK + b"content-type: application/json\r\ncontent-encoding: gzip\r\n\r\n"
        server.answers = lambda _: repeat_piece(bomb, head=head, times=1)
    else:
        server.answers = lambda _: repeat_piece(b'"endless" ', head=JSON)

    error = await raised_error(call_model(way, server.url))

    assert isinstance(error, LimitReached)
    assert error.limit == "limits.body_bytes"
    assert "limits.body_bytes" in error.hint


async def test_a_body_with_too_many_small_values_is_not_parsed(server: HostileServer) -> None:
    server.answers = lambda _: repeat_piece(b"[],", head=JSON + b"[")

    error = await raised_error(call_model("models", server.url, ResponseLimits(body_bytes=2**20)))

    assert isinstance(error, LimitReached)
    assert await asyncio.to_thread(server.closed.wait, 60)


async def test_a_slow_unstreamed_answer_times_out(server: HostileServer) -> None:
    def dripping(_: str) -> Iterator[bytes]:
        yield JSON
        while True:
            server.wait(0.01)
            yield b" "

    server.answers = dripping

    error = await raised_error(call_model("retrieve", server.url, ResponseLimits(idle_s=0.1)))

    assert isinstance(error, LimitReached)
    assert error.limit == "limits.idle_s"


async def test_an_error_with_a_slow_body_is_raised_with_the_received_part(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dripping(_: str) -> Iterator[bytes]:
        yield next(endless_error(429, b" ", b"retry-after: 3"))
        while True:
            yield b" "
            server.wait(0.01)

    monkeypatch.setattr(http, "ERROR_TIMEOUT_S", 0.1)
    server.answers = dripping
    started_at = monotonic()

    error = await raised_error(call_model("retrieve", server.url))

    assert isinstance(error, TryLater)
    assert error.retry_after_s == 3
    assert monotonic() - started_at < 60


async def test_an_answer_in_an_unrequested_compression_is_refused_with_its_name(server: HostileServer) -> None:
    server.answers = lambda _: repeat_piece(b"x", head=OK + b"content-encoding: br\r\n\r\n", times=1)

    error = await raised_error(call_model("retrieve", server.url))

    assert isinstance(error, StreamBroken)
    assert error.message == "the server compressed its response with 'br', which was not requested"


@pytest.mark.parametrize("form", ["gzip", "zlib", "deflate"])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_compressed_bodies_are_read_in_chunks_of_any_size(form: str, size: int) -> None:
    body = b"".join(b"%d," % number for number in range(50_000))
    wbits = {"gzip": 31, "zlib": 15, "deflate": -15}[form]
    packer = zlib.compressobj(wbits=wbits)
    compressed = packer.compress(body) + packer.flush()
    unzip = http.Decompressor()

    pieces = [
        out for index in range(0, len(compressed), size) for out in unzip.decompress(compressed[index : index + size])
    ]

    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= http.DECOMPRESS_CHUNK_BYTES


LONG_MESSAGES = {
    "one word": "x" * MAX_ERROR_BYTES,
    "stars": "*" * MAX_ERROR_BYTES,
    "models": "model " * (MAX_ERROR_BYTES // 6),
    "exceeds": "exceed" * (MAX_ERROR_BYTES // 6),
    "keys": "sk-12345678 " * (MAX_ERROR_BYTES // 12),
}


@pytest.mark.parametrize("text", LONG_MESSAGES.values(), ids=LONG_MESSAGES)
def test_long_error_messages_are_searched_quickly(text: str) -> None:
    started_at = thread_time()

    fault_from_status(400, {"error": {"message": text, "code": text, "type": text}}, ErrorContext("mine", model="m"))

    assert thread_time() - started_at < 0.5


def test_deeply_nested_error_objects_are_read_up_to_a_limit() -> None:
    body: Any = "deep"
    for _ in range(5_000):
        body = {"error": body}

    assert isinstance(fault_from_status(400, body, ErrorContext("mine")), EndpointFault)


async def test_an_error_body_of_nested_brackets_is_an_ordinary_error(server: HostileServer) -> None:
    server.answers = lambda _: endless_error(400, b"[")

    for way in ("chat completions", "retrieve"):
        assert isinstance(await raised_error(call_model(way, server.url)), RequestRefused)


def body_of(content: bytes) -> Callable[[str], Iterator[bytes]]:
    return lambda _: repeat_piece(content, head=JSON, times=1)


async def test_a_body_may_be_as_long_as_the_limit_and_have_a_value_for_every_32_bytes(server: HostileServer) -> None:
    server.answers = body_of(b'{"id":"resp_1","pad":"%s"}' % (b"x" * 200))
    length = len(b'{"id":"resp_1","pad":""}') + 200
    await call_model("retrieve", server.url, ResponseLimits(body_bytes=length))
    assert isinstance(
        await raised_error(call_model("retrieve", server.url, ResponseLimits(body_bytes=length - 1))), LimitReached
    )

    server.answers = body_of(b'{"id":"resp_1","x":[1,{}]}')  # five values: an object, a list, an object, two commas
    await call_model("retrieve", server.url, ResponseLimits(body_bytes=160))
    error = await raised_error(call_model("retrieve", server.url, ResponseLimits(body_bytes=159)))
    assert isinstance(error, LimitReached)
    assert (error.limit, error.maximum) == ("limits.body_bytes", 159)


@pytest.mark.parametrize(("length", "message"), [(65_536, "No"), (65_537, '{"error": {"message": "No"')])
async def test_an_error_is_read_up_to_64_kibibytes(server: HostileServer, length: int, message: str) -> None:
    start, end = b'{"error": {"message": "No", "pad": "', b'"}}'
    head = b"HTTP/1.1 400 Wrong\r\nconnection: close\r\n\r\n"
    server.answers = lambda _: repeat_piece(start + b"x" * (length - len(start + end)) + end, head=head, times=1)

    assert (await raised_error(call_model("retrieve", server.url))).message.startswith(message)


@pytest.mark.parametrize("coding", [b"GZIP ", b"x-gzip", b"deflate", b"identity", b""])
async def test_a_body_is_decompressed_whatever_its_coding_is_called(server: HostileServer, coding: bytes) -> None:
    body = b'{"id": "resp_1"}'
    wbits = {b"deflate": 15}.get(coding, 31)
    packer = zlib.compressobj(wbits=wbits)
    compressed = packer.compress(body) + packer.flush() if coding not in (b"identity", b"") else body
    server.answers = lambda _: repeat_piece(compressed, head=OK + b"content-encoding: " + coding + b"\r\n\r\n", times=1)

    await call_model("retrieve", server.url)


async def test_a_compressed_body_that_is_damaged_is_refused(server: HostileServer) -> None:
    server.answers = lambda _: repeat_piece(b"no gzip", head=OK + b"content-encoding: gzip\r\n\r\n", times=1)

    error = await raised_error(call_model("retrieve", server.url))

    assert isinstance(error, StreamBroken)
    assert error.message == "the server's compressed response cannot be decompressed"


async def test_an_error_in_an_unknown_compression_is_described_by_its_status(server: HostileServer) -> None:
    head = b"HTTP/1.1 503 Wrong\r\nconnection: close\r\ncontent-encoding: br\r\n\r\n"
    server.answers = lambda _: repeat_piece(b"x", head=head, times=1)

    assert (await raised_error(call_model("retrieve", server.url))).message == "mine returned HTTP 503"


async def test_a_stream_may_be_as_long_as_the_limit_and_no_longer(server: HostileServer) -> None:
    body = b'data: {"choices": [{"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    server.answers = lambda _: repeat_piece(body, head=OK + b"content-type: text/event-stream\r\n\r\n", times=1)

    await call_model("chat completions", server.url, ResponseLimits(answer_bytes=len(body)))
    error = await raised_error(call_model("chat completions", server.url, ResponseLimits(answer_bytes=len(body) - 1)))

    assert isinstance(error, LimitReached)
    assert (error.limit, error.maximum) == ("limits.answer_bytes", len(body) - 1)
