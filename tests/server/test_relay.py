"""The relay: bytes and headers of both directions, streaming, limits, failures, credentials."""

import asyncio
import gzip
import json
import random
import zlib
from importlib import import_module
from typing import Any

import brotli
import pytest

from convo.server.relay import Upstream
from tests.server.relay_peers import (
    Message,
    encode_chunk,
    encode_head,
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
