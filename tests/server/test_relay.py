"""The relay: bytes and headers of both directions, streaming, limits, failures, credentials."""

import asyncio
import gzip
import json
import random
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import brotli
import pytest

from convo.errors import InvalidSettings, StoreFault
from convo.recording import exchange_queue
from convo.recording.exchange import ExchangeRequest, ExchangeResponse
from convo.recording.exchange_queue import MAX_UNWRITTEN
from convo.secrets import Secret, recordable_headers, recordable_url
from convo.server.relay import Upstream
from convo.server.relay_recording import CopyBudget, decompress_copy
from tests.server.relay_peers import (
    SERVE,
    Answer,
    MemoryRecorder,
    Message,
    RunningRelay,
    encode_chunk,
    encode_head,
    iterate_body,
    read_head,
    run_test_relay,
    run_upstream,
)

zstd: Any = import_module("backports.zstd")

ENCODERS = {
    "": lambda body: body,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
    "gzip, br": lambda body: brotli.compress(gzip.compress(body)),
}

CALL = (
    "/up/v1/responses",
    "/up/v1/chat/completions",
    "/up/v1/messages",
    "/up/v1/files?purpose=x&n=%2F",
    "/up/v1/a%20b/",
)
RECORDED = {"responses", "chat_completions", "messages"}


def up(port: int, **options: Any) -> Upstream:
    return Upstream("up", f"http://127.0.0.1:{port}/v1", **options)


def split(chance: random.Random, body: bytes) -> list[bytes]:
    """Split a body into random pieces."""
    cuts = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(6))) if body else []
    return [piece for piece in (body[i:j] for i, j in zip([0, *cuts], [*cuts, len(body)], strict=True)) if piece]


def random_body(chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return b""
    if kind == 1:
        return chance.randbytes(chance.choice((1, 100, 65_536, 300_000)))
    events = [json.dumps({"type": "response.output_text.delta", "delta": "ä" * chance.randrange(99)}) for _ in range(9)]
    return (
        "".join(f"event: x\ndata: {event}\n\n" for event in events).encode()
        if kind == 2
        else "\r\n".join(events).encode()
    )


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.full)])
async def test_bodies_and_headers_are_identical_in_both_directions(count: int) -> None:
    chance = random.Random(7)
    answers: list[tuple[int, str, bytes, bytes, str]] = []

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        encoding, framing = chance.choice(list(ENCODERS)), chance.choice(("length", "chunked", "end"))
        body = random_body(chance)
        sent = ENCODERS[encoding](body)
        status = chance.choice((200, 200, 200, 400, 429, 500, 529))
        headers = [
            ("Set-Cookie", "a=1; Path=/"),
            ("set-cookie", "b=2"),
            ("X-Request-Id", str(len(answers))),
            ("x-empty", ""),
        ]
        headers += [("Content-Encoding", encoding)] if encoding else []
        headers += {"length": [("Content-Length", str(len(sent)))], "chunked": [("Transfer-Encoding", "chunked")]}.get(
            framing, [("connection", "close")]
        )
        answers.append((status, encoding, body, sent, framing))
        writer.write(encode_head(f"HTTP/1.1 {status} Some Reason", headers))
        for piece in split(chance, sent):
            writer.write(encode_chunk(piece) if framing == "chunked" else piece)
            await writer.drain()
            if chance.randrange(3) == 0:
                await asyncio.sleep(0)
        if framing == "chunked":
            writer.write(b"0\r\n\r\n")
        return framing != "end"

    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port)) as relay:
        client = await relay.open()
        expected_records = []
        for number in range(count):
            encoding, is_chunked = chance.choice(list(ENCODERS)), bool(chance.randrange(2))
            body, target = random_body(chance), chance.choice(CALL)
            sent = ENCODERS[encoding](body)
            headers = [("Accept-Encoding", "gzip, br"), ("X-Number", str(number)), ("X-Twice", "1"), ("x-twice", "2")]
            headers += [("User-Agent", "Test/1"), ("Cookie", "c=d")]
            headers += [("Content-Encoding", encoding)] if encoding else []
            framing = [("Transfer-Encoding", "chunked")] if is_chunked else [("Content-Length", str(len(sent)))]
            await client.write(encode_head(f"POST {target} HTTP/1.1", [*client.host, *headers, *framing]))
            for piece in split(chance, sent):
                await client.write(encode_chunk(piece) if is_chunked else piece)
            if is_chunked:
                await client.write(b"0\r\n\r\n")
            response = await client.read_response()

            request = upstream.requests[-1]
            status, response_encoding, response_body, response_sent, _ = answers[-1]
            assert request.start == f"POST {target.removeprefix('/up')} HTTP/1.1"
            assert request.body == sent
            kept = [pair for pair in request.headers if pair[0] not in ("host", "content-length", "transfer-encoding")]
            assert kept == [(name.lower(), value) for name, value in headers]
            assert request.header("host") == f"127.0.0.1:{upstream.port}"
            assert (response.status, response.body, response.is_complete) == (status, response_sent, True)
            received = [pair for pair in response.headers if pair[0] not in ("content-length", "transfer-encoding")]
            encoded = [("content-encoding", response_encoding)] if response_encoding else []
            assert received == [
                ("set-cookie", "a=1; Path=/"),
                ("set-cookie", "b=2"),
                ("x-request-id", str(number)),
                ("x-empty", ""),
                *encoded,
            ]
            if "/v1/" in target and "/files" not in target and "a%20b" not in target:
                expected_records.append((body, status, response_body))
        await relay.wait_for_records(len(expected_records))
        client.writer.close()
    records = [(request.body, response.status, response.body) for request, response in relay.recorder.finished]
    assert records == expected_records
    assert not any(request.is_truncated or response.is_truncated for request, response in relay.recorder.finished)
    assert {request.protocol for request, _ in relay.recorder.finished} == RECORDED
    assert relay.relay.counts.relayed == count
    assert relay.relay.counts.unrecorded == count - len(records)
    assert relay.recorder.is_closed


# -- streaming ------------------------------------------------------------------------------------

EVENT = b'event: response.created\ndata: {"type": "response.created"}\n\n'
STREAM_HEAD = encode_head("HTTP/1.1 200 OK", [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])


def answer_with(body: bytes = b"{}", status: int = 200, headers: list[tuple[str, str]] | None = None) -> Answer:
    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(encode_head(f"HTTP/1.1 {status} X", [("content-length", str(len(body))), *(headers or [])]) + body)
        return True

    return answer


async def test_the_first_bytes_of_both_directions_pass_before_the_rest_exists() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        pieces = iterate_body(reader, request, until_end=False)
        assert await anext(pieces) == b'{"input": '
        arrived.set()
        assert await anext(pieces) == b'"hi"}'
        writer.write(STREAM_HEAD + encode_chunk(EVENT))
        await go_on.wait()
        writer.write(encode_chunk(EVENT) + b"0\r\n\r\n")
        return False

    async with run_upstream(answer, reads_body=False) as upstream, run_test_relay(up(upstream.port)) as relay:
        async with asyncio.timeout(60), await relay.open() as client:
            head = encode_head("POST /up/v1/responses HTTP/1.1", [*client.host, ("transfer-encoding", "chunked")])
            await client.write(head + encode_chunk(b'{"input": '))
            await arrived.wait()
            await client.write(encode_chunk(b'"hi"}') + b"0\r\n\r\n")
            response = await read_head(client.reader)
            assert response
            pieces = iterate_body(client.reader, response, until_end=True)
            assert await anext(pieces) == EVENT
            assert [request.body for request in relay.recorder.begun] == [b'{"input": "hi"}']
            assert relay.recorder.finished == []
            go_on.set()
            assert await anext(pieces) == EVENT
        await relay.wait_for_records(1)


PIECE = bytes(65_536)
MANY_PIECES = 1024


async def count_until_blocked(write: Callable[[], Any]) -> int:
    """Call `write` until it does not return within a moment; return the number of calls that did."""
    count = 0
    while count < MANY_PIECES:
        try:
            await asyncio.wait_for(write(), 0.3)
        except TimeoutError:
            break
        count += 1
    return count


async def test_a_client_that_does_not_read_stops_the_upstream_and_the_reverse() -> None:
    """Of 64 MB only those are taken in either direction that the kernel's buffers hold."""
    sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    release = asyncio.Event()

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if request.start.startswith("POST"):
            await release.wait()
            return False
        writer.write(encode_head("HTTP/1.1 200 OK", [("content-length", str(MANY_PIECES * len(PIECE)))]))

        async def write() -> None:
            writer.write(PIECE)
            await writer.drain()

        sent.set_result(await count_until_blocked(write))
        writer.transport.abort()
        return False

    async with (
        run_upstream(answer, reads_body=False, has_small_buffers=True) as upstream,
        run_test_relay(up(upstream.port), has_small_buffers=True) as relay,
    ):
        async with await relay.open() as client:
            await client.write(encode_head("GET /up/v1/files/f/content HTTP/1.1", client.host))
            taken_down = await sent
        async with await relay.open() as client:
            length = ("content-length", str(MANY_PIECES * len(PIECE)))
            await client.write(encode_head("POST /up/v1/files HTTP/1.1", [*client.host, length]))
            taken_up = await count_until_blocked(lambda: client.write(PIECE))
            client.writer.transport.abort()
        release.set()
    assert max(taken_down, taken_up) < MANY_PIECES // 2, (taken_down, taken_up)


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_response_that_breaks_off_is_incomplete_for_the_client_and_in_the_record(framing: str) -> None:
    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if framing == "chunked":
            writer.write(STREAM_HEAD + encode_chunk(EVENT))
        else:
            writer.write(encode_head("HTTP/1.1 200 OK", [("content-length", "1000")]) + EVENT)
        return False

    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port)) as relay:
        response = await relay.send("POST /up/v1/responses", body=b"{}")
        assert (response.status, response.body, response.is_complete) == (200, EVENT, False)
        await relay.wait_for_records(1)
    record = relay.recorder.finished[0][1]
    assert (record.status, record.body) == (200, EVENT)
    assert record.error == "the upstream broke off the response: ClientPayloadError"
    assert relay.relay.counts.failed == 1


async def test_an_invalid_chunk_in_the_middle_ends_the_response_for_the_client_and_in_the_record() -> None:
    """aiohttp closes the connection then, and leaves the reader of the body waiting."""
    may_continue = asyncio.Event()

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(encode_head("HTTP/1.1 200 OK", [("Transfer-Encoding", "chunked")]) + encode_chunk(b"first"))
        await may_continue.wait()
        writer.write(b"zzz\r\n")
        await reader.read()
        return False

    async with (
        run_upstream(answer) as upstream,
        run_test_relay(up(upstream.port)) as relay,
        await relay.open() as client,
    ):
        await client.write(encode_head("POST /up/v1/responses HTTP/1.1", [*client.host, ("Content-Length", "0")]))
        response = await read_head(client.reader)
        assert response
        async with asyncio.timeout(10):
            async for piece in iterate_body(client.reader, response, until_end=False):
                assert piece == b"first"
                may_continue.set()
        assert not response.is_complete
        await relay.wait_for_records(1)
    assert str(relay.recorder.finished[0][1].error).startswith("the upstream broke off the response")


async def test_a_client_that_disconnects_ends_its_request_at_the_upstream_and_no_other() -> None:
    ended = asyncio.Event()

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(STREAM_HEAD + encode_chunk(EVENT))
        if request.body == b"stay":
            await ended.wait()
            writer.write(encode_chunk(EVENT) + b"0\r\n\r\n")
        else:
            assert await reader.read() == b""
            ended.set()
        return False

    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port)) as relay, asyncio.timeout(60):
        staying = asyncio.create_task(relay.send("POST /up/v1/responses", body=b"stay"))
        async with await relay.open() as client:
            length = ("content-length", "2")
            await client.write(encode_head("POST /up/v1/responses HTTP/1.1", [*client.host, length]) + b"{}")
            await client.reader.readuntil(b"\n\n")
        await ended.wait()
        assert (await staying).body == EVENT * 2
        await relay.wait_for_records(2)
    errors = {request.body: response.error for request, response in relay.recorder.finished}
    assert errors == {b"stay": None, b"{}": "the client disconnected, or the relay was stopped"}


async def test_an_upstream_without_a_response_is_reported_as_unreachable() -> None:
    async def hang_up(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        return False

    async with (
        run_upstream(hang_up) as upstream,
        run_test_relay(up(upstream.port), Upstream("off", "http://127.0.0.1:9")) as relay,
    ):
        for path in ("/up/v1/responses", "/off/responses"):
            response = await relay.send(f"POST {path}", body=b"{}")
            assert response.status == 502
            assert "convo tap got no response from http://127.0.0.1:" in json.loads(response.body)["error"]["message"]
        assert ":9: connection refused" in json.loads(response.body)["error"]["message"]
        await relay.wait_for_records(2)
    assert [(response.status, response.body) for _, response in relay.recorder.finished] == [(None, b"")] * 2


async def test_large_headers_foreign_hosts_web_pages_and_other_paths_are_refused() -> None:
    async with run_upstream(answer_with()) as upstream, run_test_relay(up(upstream.port)) as relay:
        refusals = {
            "headers_too_large": [("x-large", "x" * 1_000_000)],
            "origin_not_allowed": [("origin", "https://evil.example")],
        }
        for code, headers in refusals.items():
            response = await relay.send("GET /up/v1/models", headers)
            assert json.loads(response.body)["error"]["code"] == code
        site = await relay.send(
            "GET /up/v1/models", [("sec-fetch-site", "cross-site"), ("referer", "https://evil.example/")]
        )
        assert json.loads(site.body)["error"]["code"] == "origin_not_allowed"
        async with await relay.open() as client:
            await client.write(encode_head("GET /up/v1/models HTTP/1.1", [("host", f"evil.example:{relay.port}")]))
            assert json.loads((await client.read_response()).body)["error"]["code"] == "host_not_allowed"
        for name, values in (("host", ("evil.example", "127.0.0.1")), ("sec-fetch-site", ("cross-site", "none"))):
            for pair in (values, values[::-1]):  # of several headers, each is checked
                response = await relay.send("GET /up/v1/models", [(name, value) for value in pair])
                assert response.status == 403, pair
        for path in (
            "/", "/v1/responses", "/up", "/up/v10/models", "/up/v1/../secret", "/up/v1/models/%2E%2e", "/up/v1/./x"
        ):  # fmt: skip
            response = await relay.send(f"GET {path}")
            assert response.status == 404
            assert b"this relay accepts /up/v1" in response.body
        assert upstream.requests == []
        allowed = await relay.send("GET /up/v1/models", [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")])
        assert (allowed.status, allowed.body) == (200, b"{}")


CALL_LINE = b"POST /up/v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
NEXT_REQUEST = b"GET /up/v1/smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

AMBIGUOUS_REQUESTS = {
    "two lengths": CALL_LINE + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "equal lengths": CALL_LINE + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    "list of lengths": CALL_LINE + b"Content-Length: 2, 2\r\n\r\nab",
    "signed length": CALL_LINE + b"Content-Length: +2\r\n\r\nab",
    "space before colon": CALL_LINE + b"Content-Length : 2\r\n\r\nab",
    "length and chunked": CALL_LINE + b"Content-Length: 5\r\n" + CHUNKED + NEXT_REQUEST,
    "chunked and length": CALL_LINE + CHUNKED.replace(b"\r\n\r\n0", b"\r\nContent-Length: 5\r\n\r\n0") + NEXT_REQUEST,
    "chunked twice": CALL_LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked before another": CALL_LINE + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "another before chunked": CALL_LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    "vertical tab": CALL_LINE + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "folded header": CALL_LINE + b"X-A: 1\r\n Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nab",
    "bare CR": CALL_LINE + b"X-A: 1\rContent-Length: 2\r\n\r\nab",
    "bare LF": CALL_LINE.replace(b"\r", b"") + b"Content-Length: 2\n\nab",
    "NUL": CALL_LINE + b"X-A: a\x00b\r\nContent-Length: 2\r\n\r\nab",
    "chunk of negative size": CALL_LINE + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
}  # fmt: skip


async def test_requests_that_two_servers_could_read_differently_are_refused_and_reach_no_upstream() -> None:
    async with run_upstream(answer_with()) as upstream, run_test_relay(up(upstream.port)) as relay:
        for name, request in AMBIGUOUS_REQUESTS.items():
            async with await relay.open() as client:
                await client.write(request)
                response = await client.read_response()
                assert response.status == 400, name
        assert upstream.requests == []
        async with await relay.open() as client:
            await client.write(CALL_LINE + b"Content-Length:\t2\t\r\n\r\nab")  # spaces around a value have no meaning
            assert (await client.read_response()).status == 200


async def test_requests_above_the_maximum_at_once_are_refused() -> None:
    release = asyncio.Event()

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        return await answer_with()(request, reader, writer)

    serve = SERVE._replace(max_requests=2)
    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port), serve=serve) as relay:
        running = [asyncio.create_task(relay.send("GET /up/v1/models")) for _ in range(2)]
        async with asyncio.timeout(60):
            while len(upstream.requests) < 2:  # noqa: ASYNC110 - the upstream has no event for it
                await asyncio.sleep(0)
        refused = await relay.send("GET /up/v1/models")
        release.set()
        assert [(await each).status for each in running] == [200, 200]
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (503, "overloaded")
        assert (await relay.send("GET /up/v1/models")).status == 200


async def test_redirects_and_cookies_are_left_to_the_client() -> None:
    answer = answer_with(status=307, headers=[("location", "/v1/elsewhere"), ("set-cookie", "session=1")])
    async with run_upstream(answer) as upstream:
        named = Upstream("up", f"http://localhost:{upstream.port}/v1")  # cookies of an address are never kept
        async with run_test_relay(named) as relay:
            for _ in range(2):
                response = await relay.send("POST /up/v1/responses", body=b"{}")
                assert (response.status, response.header("location")) == (307, "/v1/elsewhere")
    assert [request.start for request in upstream.requests] == ["POST /v1/responses HTTP/1.1"] * 2
    assert [request.header("cookie") for request in upstream.requests] == [None, None]


async def test_a_client_that_stops_in_the_middle_of_its_body_gets_a_timeout() -> None:
    serve = SERVE._replace(read_s=0.1)
    async with run_upstream(answer_with()) as upstream, run_test_relay(up(upstream.port), serve=serve) as relay:
        async with await relay.open() as client:
            length = ("content-length", "20")
            await client.write(encode_head("POST /up/v1/responses HTTP/1.1", [*client.host, length]) + b"{")
            response = await client.read_response()
        assert (response.status, json.loads(response.body)["error"]["code"]) == (408, "request_timeout")
        await relay.wait_for_records(1)
        assert (await relay.send("POST /up/v1/responses", body=b"{}")).status == 200
    request, record = relay.recorder.finished[0]
    assert (request.body, record.status) == (b"{", None)
    assert "did not arrive within 0.1 seconds" in str(record.error)


async def test_a_request_whose_body_is_incomplete_when_the_relay_stops_is_refused() -> None:
    async with run_upstream(answer_with()) as upstream, run_test_relay(up(upstream.port)) as relay:
        client = await relay.open()
        fields = [*client.host, ("content-length", "20"), ("expect", "100-continue")]
        await client.write(encode_head("POST /up/v1/responses HTTP/1.1", fields) + b"{")
        proceed = await read_head(client.reader)
        assert proceed is not None
        assert proceed.status == 100  # the relay reads the body
    async with client:
        response = await client.read_response()
    assert (response.status, json.loads(response.body)["error"]["code"]) == (503, "server_shutting_down")


async def test_responses_without_a_body_and_headers_of_the_connection_are_relayed_as_http_requires() -> None:
    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        status = 204 if "204" in request.start else 200
        headers = [("connection", "x-hop"), ("x-hop", "1"), ("keep-alive", "timeout=5"), ("x-kept", "1")]
        writer.write(
            encode_head(f"HTTP/1.1 {status} X", [*headers, *([("content-length", "9")] if status == 200 else [])])
        )
        return True

    async with (
        run_upstream(answer) as upstream,
        run_test_relay(up(upstream.port)) as relay,
        await relay.open() as client,
    ):
        hop = [("connection", "x-secret-hop"), ("x-secret-hop", "1"), ("te", "trailers"), ("x-kept", "2")]
        await client.write(encode_head("HEAD /up/v1/models HTTP/1.1", [*client.host, *hop]))
        head = await client.read_response(is_head=True)
        await client.write(encode_head("DELETE /up/v1/files/204 HTTP/1.1", client.host))
        deleted = await client.read_response()
        assert head.headers == [("x-kept", "1"), ("content-length", "9")]
        assert (deleted.status, deleted.headers) == (204, [("x-kept", "1")])
        assert [name for name, _ in upstream.requests[0].headers] == ["host", "x-kept"]


# -- credentials ----------------------------------------------------------------------------------

KEY = "sk-provider-0123456789"
OWN = "sk-client-0123456789"


@pytest.mark.parametrize(
    ("key_header", "sent", "received"),
    [
        ("authorization", [], [("authorization", f"Bearer {KEY}")]),
        ("authorization", [("authorization", "Bearer convo-tap")], [("authorization", f"Bearer {KEY}")]),
        ("authorization", [("authorization", "Bearer ")], [("authorization", f"Bearer {KEY}")]),
        ("authorization", [("authorization", f"Bearer {OWN}")], [("authorization", f"Bearer {OWN}")]),
        ("x-api-key", [("authorization", f"Bearer {OWN}")], [("authorization", f"Bearer {OWN}")]),
        ("x-api-key", [("x-api-key", "dummy"), ("authorization", "Bearer none")], [("x-api-key", KEY)]),
        ("api-key", [("api-key", OWN)], [("api-key", OWN)]),
    ],
)
async def test_a_client_without_a_key_gets_the_key_of_the_provider(
    key_header: Any, sent: list[tuple[str, str]], received: list[tuple[str, str]]
) -> None:
    async with (
        run_upstream(answer_with()) as upstream,
        run_test_relay(up(upstream.port, key=Secret(KEY), key_header=key_header)) as relay,
    ):
        for _ in range(2):
            assert (await relay.send("POST /up/v1/responses", sent, b"{}")).status == 200
        await relay.wait_for_records(2)
    names = ("authorization", "x-api-key", "api-key")
    assert [pair for pair in upstream.requests[0].headers if pair[0] in names] == received
    assert len(relay.notices) == (received != sent)
    assert not any(KEY in line or OWN in line for line in relay.notices)


async def test_a_check_outside_of_the_api_gets_no_key_and_messages_without_a_version_do() -> None:
    async with run_upstream(answer_with()) as upstream:
        claude = Upstream("claude", f"http://127.0.0.1:{upstream.port}", key=Secret(KEY), key_header="x-api-key")
        async with run_test_relay(claude) as relay:
            await relay.send("GET /claude/api/hello")
            await relay.send("POST /claude/messages?beta=true", body=b"{}")
            await relay.wait_for_records(1)
    assert [request.start for request in upstream.requests] == [
        "GET /api/hello HTTP/1.1",
        "POST /v1/messages?beta=true HTTP/1.1",
    ]
    assert [request.header("x-api-key") for request in upstream.requests] == [None, KEY]
    assert relay.recorder.begun[0].protocol == "messages"


async def test_credentials_and_cookies_pass_and_are_not_recorded() -> None:
    secret = "sk-secret-0123456789"
    headers = [
        ("authorization", f"Bearer {secret}"), ("x-api-key", secret), ("cookie", f"s={secret}"),
        ("x-goog-api-key", secret), ("x-custom", f"copy of {secret}"), ("x-auth-thing", secret),
        ("openai-organization", "org-1"),
    ]  # fmt: skip
    answer = answer_with(headers=[("set-cookie", f"s={secret}"), ("x-request-id", "req_1")])
    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port)) as relay:
        await relay.send(f"POST /up/v1/responses?api-version=1&key={secret}&access_token={secret}", headers, b"{}")
        await relay.wait_for_records(1)
    assert [pair for pair in upstream.requests[0].headers if pair in headers] == headers
    assert f"?api-version=1&key={secret}&access_token={secret} " in upstream.requests[0].start
    request, response = relay.recorder.finished[0]
    assert secret not in repr((request, response))
    assert request.url == f"http://127.0.0.1:{upstream.port}/v1/responses?api-version=1"
    assert request.headers["openai-organization"] == "org-1"
    assert response.headers == {"content-length": "2", "x-request-id": "req_1"}


def test_names_of_secrets() -> None:
    kept = ["session-id", "x-session-id", "x-stainless-retry-count", "user-agent", "thread-id", "x-client-request-id"]
    dropped = ["proxy-authorization", "x-amz-security-token", "cf-access-client-secret", "sec-websocket-protocol"]
    assert recordable_headers([(name.encode(), b"1") for name in kept + dropped]) == dict.fromkeys(kept, "1")
    assert recordable_url("https://user:pw@h/p?a=1&sig=2&API_KEY=3#f") == "https://h/p?a=1"


@pytest.mark.parametrize(
    "url", ["ftp://h/v1", "http://", "https://u:p@h/v1", "https://h/v1?key=1", "nonsense", "http://h:x/"]
)
def test_an_upstream_must_be_an_http_url_without_user_and_query(url: str) -> None:
    with pytest.raises(InvalidSettings):
        Upstream("up", url)


# -- copies ---------------------------------------------------------------------------------------


async def test_a_body_above_the_limit_passes_whole_and_its_record_is_truncated() -> None:
    body = random.Random(1).randbytes(500_000)
    serve = SERVE._replace(max_body_bytes=100_000)
    async with run_upstream(answer_with(body)) as upstream, run_test_relay(up(upstream.port), serve=serve) as relay:
        response = await relay.send("POST /up/v1/responses", body=body)
        assert response.body == upstream.requests[0].body == body
        await relay.wait_for_records(1)
    request, record = relay.recorder.finished[0]
    assert (request.body, request.is_truncated) == (body[:100_000], True)
    assert (record.body, record.is_truncated) == (body[:100_000], True)


async def test_all_copies_together_have_a_limit_that_they_give_back() -> None:
    body, budget = bytes(60_000), CopyBudget(100_000)
    async with run_upstream(answer_with(body)) as upstream, run_test_relay(up(upstream.port), budget=budget) as relay:
        for number in range(3):
            await relay.send("POST /up/v1/responses", body=body)
            await relay.wait_for_records(number + 1)
    assert not any(response.is_truncated for _, response in relay.recorder.finished)
    assert budget.free_bytes == 100_000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_thousands_of_empty_compressed_streams_are_decoded_up_to_a_limit(encoding: str) -> None:
    """Each copies the rest of the body: without a limit, 8 MB took minutes."""
    empty, text = ENCODERS[encoding](b""), ENCODERS[encoding](b"text")
    assert decompress_copy(text + 100 * empty + text, encoding, 1000) == (b"texttext", True)
    assert decompress_copy(text + 50_000 * empty, encoding, 1000) == (b"text", False)


def test_a_body_that_is_cut_off_is_decoded_up_to_its_end() -> None:
    text = random.Random(2).randbytes(100_000)
    body, is_complete = decompress_copy(gzip.compress(text)[:-8], "gzip", 101_000)
    assert (len(body), is_complete) == (100_000, False)


async def test_requests_that_wait_for_their_responses_have_a_limit_of_memory() -> None:
    """A compressed request of a few KB may have 32 MB, which are kept until its response has ended."""
    body, may_answer = gzip.compress(bytes(60_000)), asyncio.Event()

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await may_answer.wait()
        writer.write(encode_head("HTTP/1.1 200 OK", [("content-length", "0")]))
        return True

    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port), max_kept_bytes=100_000) as relay:
        headers = [("content-encoding", "gzip")]
        requests = [asyncio.create_task(relay.send("POST /up/v1/responses", headers, body)) for _ in range(3)]
        async with asyncio.timeout(10):
            while len(relay.recorder.begun) < 3:  # noqa: ASYNC110 - the recorder has no event for it
                await asyncio.sleep(0.005)
        may_answer.set()
        await asyncio.gather(*requests)
        await relay.wait_for_records(3)
        await relay.send("POST /up/v1/responses", headers, body)
        await relay.wait_for_records(4)
    assert [len(request.body) for request in relay.recorder.begun] == [60_000, 40_000, 0, 60_000]
    assert [request.is_truncated for request in relay.recorder.begun] == [False, True, True, False]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_decompression_bomb_a_cut_off_body_and_damage_are_bounded(encoding: str) -> None:
    bomb = ENCODERS[encoding](bytes(5_000_000))
    text = random.Random(2).randbytes(100_000)
    whole = ENCODERS[encoding](text)
    assert decompress_copy(bomb, encoding, 1_000_000) == (bytes(1_000_000), False)
    assert decompress_copy(whole, encoding, 100_000) == (text, True)
    assert decompress_copy(whole, encoding, 99_999) == (text[:99_999], False)
    part, is_complete = decompress_copy(whole[: len(whole) // 2], encoding, 1_000_000)
    assert text.startswith(part)
    assert not is_complete
    assert decompress_copy(b"\xff\xfe not compressed", encoding, 1000)[1] is False
    assert decompress_copy(b"{}", "unknown", 1000) == (b"", False)


class StuckRecorder(MemoryRecorder):
    """Waits in `begin` until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()

    async def begin(self, request: ExchangeRequest) -> None:
        await self.release.wait()
        await super().begin(request)


async def test_a_recorder_that_is_too_slow_loses_records_and_delays_nothing() -> None:
    recorder = StuckRecorder()
    async with (
        run_upstream(answer_with()) as upstream,
        run_test_relay(up(upstream.port), recorder=recorder, max_waiting=4) as relay,
    ):
        for _ in range(10):
            assert (await relay.send("POST /up/v1/responses", body=b"{}")).status == 200
        recorder.release.set()
        await relay.wait_for_records(2)
    assert relay.recordings.queue.recorded == len(recorder.finished) == len(recorder.begun)
    assert relay.recordings.queue.recorded + relay.recordings.queue.dropped == 10
    assert relay.recordings.queue.dropped > 0
    assert relay.notices == ["the recorder is too slow, so some requests are not recorded"]


async def send_until_held_back(relay: RunningRelay) -> tuple[int, "asyncio.Task[Message]"]:
    """Send requests one after another; return the number of responses, and the request whose response is held back."""
    for number in range(3 * MAX_UNWRITTEN):
        sending = asyncio.create_task(relay.send("POST /up/v1/responses", body=b"{}"))
        await asyncio.wait({sending}, timeout=0.5)
        if not sending.done():
            return number, sending
    raise AssertionError("no response was held back")


async def test_responses_are_held_back_while_too_many_records_wait_so_a_kill_loses_few() -> None:
    recorder = StuckRecorder()
    async with (
        run_upstream(answer_with()) as upstream,
        run_test_relay(up(upstream.port), recorder=recorder) as relay,
    ):
        count, held_back = await send_until_held_back(relay)
        assert 2 * count <= MAX_UNWRITTEN + 2  # the entries of requests and of responses
        async with asyncio.timeout(60):
            while len(upstream.requests) <= count:  # noqa: ASYNC110 - it reaches the upstream at once
                await asyncio.sleep(0.005)
        assert len(upstream.requests) == count + 1
        recorder.release.set()
        assert (await held_back).status == 200
        await relay.wait_for_records(count + 1)
    assert relay.recordings.queue.dropped == 0


async def test_a_recorder_that_stays_too_slow_holds_no_response_back_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_queue, "MAX_HELD_BACK_S", 0.01)
    recorder = StuckRecorder()
    async with (
        run_upstream(answer_with()) as upstream,
        run_test_relay(up(upstream.port), recorder=recorder) as relay,
    ):
        for _ in range(2 * MAX_UNWRITTEN):
            assert (await relay.send("POST /up/v1/responses", body=b"{}")).status == 200
        assert recorder.begun == []
        recorder.release.set()
        await relay.wait_for_records(2 * MAX_UNWRITTEN)


async def test_records_that_were_not_written_at_the_end_are_counted_once_each() -> None:
    recorder = StuckRecorder()
    async with run_upstream(answer_with()) as upstream, run_test_relay(up(upstream.port), recorder=recorder) as relay:
        for _ in range(3):
            assert (await relay.send("POST /up/v1/responses", body=b"{}")).status == 200
        await relay.recordings.queue.aclose(0.01)
        assert relay.recordings.queue.dropped == 2 + 1  # one was being written
        recorder.release.set()
    assert relay.recordings.queue.recorded == 0


CHAT_DELTA = b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n'
MESSAGES_DELTA = (
    b'event: x\r\ndata: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "%b"}}\r\n\r\n'
)
RESPONSES_DELTA = b'data: {"type": "response.output_text.delta", "delta": "%b"}\n\n'


@pytest.mark.parametrize(
    ("path", "delta"), [("chat/completions", CHAT_DELTA), ("messages", MESSAGES_DELTA), ("responses", RESPONSES_DELTA)]
)
async def test_the_text_of_a_stream_is_recorded_while_it_arrives(
    monkeypatch: pytest.MonkeyPatch, path: str, delta: bytes
) -> None:
    monkeypatch.setattr(exchange_queue, "TEXT_INTERVAL_S", 0.005)
    recorder, go_on = TextRecorder(), asyncio.Event()

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, second = delta % b"Once upon ", delta % b"a time"
        writer.write(STREAM_HEAD + encode_chunk(first) + encode_chunk(second[:30]))
        await go_on.wait()
        writer.write(encode_chunk(second[30:]))
        await recorder.has_text("Once upon a time")
        writer.write(b"0\r\n\r\n")
        return True

    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port), recorder=recorder) as relay:
        async with asyncio.timeout(10):
            sending = asyncio.create_task(relay.send(f"POST /up/v1/{path}", body=b"{}"))
            await recorder.has_text("Once upon ")
            assert recorder.finished == []
            go_on.set()
            await sending
        await relay.wait_for_records(1)
    assert recorder.finished[0][1].body.count(b"data: ") == 2


class TextRecorder(MemoryRecorder):
    """Notifies a test of new text."""

    def __init__(self) -> None:
        super().__init__()
        self._has_changed = asyncio.Condition()

    async def add_text(self, request: ExchangeRequest, text: str) -> None:
        await super().add_text(request, text)
        async with self._has_changed:
            self._has_changed.notify_all()

    async def has_text(self, text: str) -> None:
        async with self._has_changed:
            await self._has_changed.wait_for(lambda: text in self.texts.values())


class FailingRecorder(MemoryRecorder):
    """Fails with `begin_error` for bodies that say so, and in `finish` for others."""

    async def begin(self, request: ExchangeRequest) -> None:
        if request.body == b"begin":
            raise StoreFault("the disk is full")
        await super().begin(request)

    async def finish(self, request: ExchangeRequest, response: ExchangeResponse) -> None:
        if request.body == b"finish":
            raise StoreFault("the disk is full")
        await super().finish(request, response)


async def test_a_recorder_that_fails_is_reported_once_and_used_again() -> None:
    async with (
        run_upstream(answer_with()) as upstream,
        run_test_relay(up(upstream.port), recorder=FailingRecorder()) as relay,
    ):
        for body in (b"begin", b"finish", b"{}"):
            assert (await relay.send("POST /up/v1/responses", body=body)).status == 200
        await relay.wait_for_records(1)
    assert (relay.recordings.queue.recorded, relay.recordings.queue.dropped) == (1, 2)
    assert relay.notices == ["requests are not recorded: the disk is full"]


POST = b"POST /up/v1/responses HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"


async def test_odd_requests_of_http_are_relayed_as_they_are_or_refused() -> None:
    """HTTP/1.0, pipelined requests, a client that waits for 100 Continue, and chunks with trailers."""
    async with run_upstream(answer_with()) as upstream, run_test_relay(up(upstream.port)) as relay:
        head = POST % relay.port
        old = head.replace(b"HTTP/1.1", b"HTTP/1.0") + b"content-length: 3\r\n\r\nold"
        pipelined = (head + b"content-length: 5\r\n\r\nfirst") + (head + b"content-length: 6\r\n\r\nsecond")
        trailers = head + b"transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\nsum\r\n0\r\nx-sum: 1\r\n\r\n"
        for data, count in ((old, 1), (pipelined, 2), (trailers, 1)):
            async with asyncio.timeout(10), await relay.open() as client:
                await client.write(data)
                responses = [await client.read_response() for _ in range(count)]
                assert [(response.status, response.body) for response in responses] == [(200, b"{}")] * count

        async with await relay.open() as client:
            await client.write(head + b"expect: 100-continue\r\ncontent-length: 6\r\n\r\n")
            async with asyncio.timeout(10):
                assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
                await client.write(b"waited")
                assert (await client.read_response()).status == 200
        await relay.wait_for_records(5)
    assert [request.body for request in upstream.requests] == [b"old", b"first", b"second", b"sum", b"waited"]
    assert [request.body for request, _ in relay.recorder.finished] == [b"old", b"first", b"second", b"sum", b"waited"]
    assert not any(request.header("expect") for request in upstream.requests)


def count_relay_tasks() -> int:
    """Return the number of tasks, except for the scripted upstream's, whose connections the relay keeps open."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return len([name for name in names if name != "ScriptedUpstream.serve_connection"])


@pytest.mark.parametrize("rounds", [1, pytest.param(40, marks=pytest.mark.full)])
async def test_many_streams_with_disconnects_and_resets_leave_no_task_and_no_copy(rounds: int) -> None:
    """50 parallel streams: whole ones are identical, clients and upstreams that leave disturb no other."""
    pieces = [b"data: %d %b\n\n" % (number, bytes([97 + number % 26]) * 500) for number in range(20)]

    async def answer(request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(STREAM_HEAD)
        for number, piece in enumerate(pieces):
            writer.write(encode_chunk(piece))
            await writer.drain()
            if request.body == b"reset" and number == 10:
                writer.transport.abort()
                return False
        writer.write(b"0\r\n\r\n")
        return True

    async def send_whole(relay: RunningRelay) -> None:
        response = await relay.send("POST /up/v1/responses", body=b"whole")
        assert (response.is_complete, response.body) == (True, b"".join(pieces))

    async def send_and_leave(relay: RunningRelay) -> None:
        async with await relay.open() as client:
            await client.write(POST % relay.port + b"content-length: 5\r\n\r\nleave")
            assert await read_head(client.reader)

    async def send_until_reset(relay: RunningRelay) -> None:
        response = await relay.send("POST /up/v1/responses", body=b"reset")
        assert not response.is_complete

    budget = CopyBudget()
    free_bytes = budget.free_bytes
    async with run_upstream(answer) as upstream, run_test_relay(up(upstream.port), budget=budget) as relay:
        await send_whole(relay)
        task_count = count_relay_tasks()
        for _ in range(rounds):
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task((send_whole, send_and_leave, send_until_reset)[number % 3](relay))
        await relay.wait_for_records(1 + 50 * rounds)
        async with asyncio.timeout(60):
            while count_relay_tasks() > task_count:  # noqa: ASYNC110 - connections that end
                await asyncio.sleep(0.005)
        assert budget.free_bytes == free_bytes
    assert relay.recordings.queue.dropped == 0
    whole = [response for request, response in relay.recorder.finished if request.body == b"whole"]
    assert {(response.body, response.error) for response in whole} == {(b"".join(pieces), None)}
    reset = [response for request, response in relay.recorder.finished if request.body == b"reset"]
    assert all(response.error and b"".join(pieces).startswith(response.body) for response in reset)
