"""Limits on the bodies that servers send back, whatever library asked for them.

`limit_bodies` adds a hook to an HTTP client. The hook replaces the stream of each response before anything
reads it, so it covers our own requests, those of the openai and anthropic packages, every transport
(httpx, aiohttp, a unix socket) and proxies. A compressed body is decompressed here, a piece at a time:
the libraries decompress a piece whole, and 64 KB of gzip hold 64 MB.

    error       the first 64 KB, for ten seconds; the rest is not read and the connection is closed
    stream      `limits.answer_bytes`; asked for by `Line`, which bounds its events and its time
    any other   `limits.body_bytes`, within `limits.idle_s`
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from convo.config.settings import Limits
from convo.errors import LimitReached, StreamBroken

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream, AsyncClient, Response

ERROR_BYTES = 64 * 1024
ERROR_S = 10.0
"""Seconds for the body of an error after its headers; what has arrived by then is used."""

PIECE = 64 * 1024
"""Bytes that are decompressed at a time."""

STREAMED = "convo.streamed"
"""The request extension that marks an answer as a stream of events."""

A_VALUE = 32
"""A body of N bytes may hold N/32 JSON values at its limit: a value takes up to 30 times its text in memory."""


def limit_bodies(http: "AsyncClient", limits: Limits) -> "AsyncClient":
    """`http`, whose responses obey `limits` from now on. It asks for no compression."""

    async def hook(response: "Response") -> None:
        response.stream = _stream(response, limits)

    http.headers["accept-encoding"] = "identity"
    http.event_hooks = {**http.event_hooks, "response": [*http.event_hooks["response"], hook]}
    return http


def _stream(response: "Response", limits: Limits) -> "AsyncByteStream":
    from httpx2 import AsyncByteStream

    source = response.stream
    assert isinstance(source, AsyncByteStream)
    close = source.aclose
    coding = response.headers.pop("content-encoding", "identity").strip().lower()
    if not response.is_success:
        pieces = _beginning(_decoded(source, coding, skip=True))
    elif response.request.extensions.get(STREAMED):
        pieces = _at_most(_decoded(source, coding), limits.answer_bytes, "answer_bytes")
    else:
        pieces = _in_time(
            _few_values(_at_most(_decoded(source, coding), limits.body_bytes, "body_bytes"), limits), limits
        )

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece

        async def aclose(self) -> None:
            await close()

    return Bounded()


async def _beginning(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The first bytes of an error's body. A body that breaks off or is late ends early: its status is enough."""
    from httpx2 import HTTPError

    left, until = ERROR_BYTES, asyncio.get_running_loop().time() + ERROR_S
    while left > 0:
        try:
            async with asyncio.timeout_at(until):
                piece = await anext(pieces, None)
        except (TimeoutError, HTTPError, StreamBroken):
            return
        if piece is None:
            return
        yield piece[:left]
        left -= len(piece)


async def _at_most(pieces: AsyncIterator[bytes], most: int, limit: str) -> AsyncGenerator[bytes, None]:
    """raises: LimitReached  there is more than `most` bytes"""
    read = 0
    async for piece in pieces:
        read += len(piece)
        if read > most:
            raise LimitReached(limit, most)
        yield piece


async def _few_values(pieces: AsyncIterator[bytes], limits: Limits) -> AsyncGenerator[bytes, None]:
    """raises: LimitReached  the body holds so many JSON values that reading it would take too much memory"""
    values = 0
    async for piece in pieces:
        values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if values > limits.body_bytes // A_VALUE:
            raise LimitReached("body_bytes", limits.body_bytes)
        yield piece


async def _in_time(pieces: AsyncGenerator[bytes, None], limits: Limits) -> AsyncGenerator[bytes, None]:
    """raises: LimitReached  the body takes too long"""
    until = asyncio.get_running_loop().time() + limits.idle_s
    while True:
        try:
            async with asyncio.timeout_at(until):
                piece = await anext(pieces, None)
        except TimeoutError as late:
            raise LimitReached("idle_s", limits.idle_s) from late
        if piece is None:
            return
        yield piece


async def _decoded(source: AsyncIterable[bytes], coding: str, *, skip: bool = False) -> AsyncGenerator[bytes, None]:
    """The pieces of `source` without compression.

    skip:    a body of an unknown coding is empty
    raises:  StreamBroken  the coding is unknown, or the data is not of that coding
    """
    if coding in ("identity", ""):
        async for piece in source:
            yield piece
        return
    if coding not in ("gzip", "x-gzip", "deflate"):
        if skip:
            return
        raise StreamBroken(f"the server compressed its answer with {coding[:20]!r}, which was not asked for")
    unzip = Unzip()
    try:
        async for piece in source:
            for out in unzip.read(piece):
                yield out
                await asyncio.sleep(0)
    except zlib.error as wrong:
        raise StreamBroken("the server's compressed answer cannot be read") from wrong


def _window(head: bytes) -> int:
    """zlib's parameter for data that begins with `head`: gzip and zlib say what they are, bare deflate does not."""
    named = head[:2] == b"\x1f\x8b" or (head[0] & 15 == 8 and int.from_bytes(head[:2]) % 31 == 0)
    return zlib.MAX_WBITS | 32 if named else -zlib.MAX_WBITS


class Unzip:
    """Decompresses gzip, zlib or bare deflate, at most `PIECE` bytes at a time."""

    def __init__(self) -> None:
        self._zlib: Any = None
        self._head = b""

    def read(self, piece: bytes) -> Iterator[bytes]:
        """raises: zlib.error"""
        if self._zlib is None:
            self._head += piece
            if len(self._head) < 2:
                return
            piece, self._zlib = self._head, zlib.decompressobj(_window(self._head))
        while piece and not self._zlib.eof:
            out = self._zlib.decompress(piece, PIECE)
            piece = self._zlib.unconsumed_tail
            if out:
                yield out
