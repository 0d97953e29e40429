"""Asking a server for a stream, and reading it, with nothing in between that a stream does not need.

The openai package makes many objects of a request and looks at an answer line by line several times;
for an answer of a few words that was a third of all that a gateway did. So the package says who asks
and where, by its headers and its address, and here it is sent through the package's own transport and
read. An Azure resource of the older kind has its key and its address in other places, which the package
knows: it is asked through the package.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from convo.errors import EndpointFault, StreamBroken
from convo.items import Json
from convo.models.account import stream
from convo.models.foreign import Asked, edge, refused

if TYPE_CHECKING:
    from httpx2 import URL, AsyncClient, Request, Response
    from openai import AsyncOpenAI

OVER = "[DONE]"

REST_S = 0.25
"""Seconds that the end of an answer may be behind the end of its events."""

LONGEST = 64 * 2**20
"""Bytes of one event that are waited for: more than any answer, and less than a server's memory."""

A_PIECE = 64
"""Bytes that a line takes besides its own."""

ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


class Line:
    """The way to one server: the package's client for it, and the transport below that."""

    def __init__(self, client: "AsyncOpenAI", http: "AsyncClient") -> None:
        from httpx2 import Headers, Timeout
        from openai import AsyncAzureOpenAI

        said = {**client.default_headers, **client.auth_headers}
        self.client, self._http = client, http
        self._by_package = isinstance(client, AsyncAzureOpenAI)
        kept = {name: value for name, value in said.items() if isinstance(value, str)}
        self._headers = Headers({**kept, "accept-encoding": "identity"})
        self._patience = {"timeout": Timeout(client.timeout).as_dict()}
        self._urls: dict[str, URL] = {}

    def streamed(self, path: str, body: Mapping[str, Json], asked: Asked) -> AsyncGenerator[Json, None]:
        """What the server streams in answer to `body`, one JSON value at a time and exactly as it came.

        What it iterates raises EndpointFault.
        """
        return stream(self.client, path, body, asked) if self._by_package else self._streamed(path, body, asked)

    async def _streamed(self, path: str, body: Mapping[str, Json], asked: Asked) -> AsyncGenerator[Json, None]:
        with edge(asked):
            answer = await self._http.send(self._request(path, body), stream=True)
        try:
            if not answer.is_success:
                with edge(asked):
                    await answer.aread()
                raise refused(answer, asked)
            async with aclosing(_values(answer, asked)) as values:
                async for value in values:
                    yield value
        finally:
            with edge(asked, answering=True):
                await answer.aclose()

    def _request(self, path: str, body: Mapping[str, Json]) -> "Request":
        from httpx2 import Request

        if path not in self._urls:
            base = self.client.base_url
            self._urls[path] = base.copy_with(raw_path=base.raw_path + path.lstrip("/").encode())
        content = ENCODER.encode(body).encode()
        return Request("POST", self._urls[path], headers=self._headers, content=content, extensions=self._patience)


class ServerSent:
    """The data of server-sent events, out of pieces that end anywhere. Nothing else of them is looked at."""

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0
        self._returned = False

    def read(self, piece: bytes) -> list[str]:
        """The data of each event that is whole with `piece`. raises: UnicodeDecodeError, StreamBroken"""
        if self._returned and piece.startswith(b"\n"):  # the other half of one line's end
            piece = piece[1:]
        self._returned = piece.endswith(b"\r")
        lines = (self._line(line) for line in piece.splitlines(keepends=True))
        found = [data.decode() for data in lines if data is not None]
        if self._held > LONGEST:
            raise StreamBroken(f"the server began an event of more than {LONGEST // 2**20} MB")
        return found

    def _line(self, line: bytes) -> bytes | None:
        """The data of the event that this line ends."""
        if not line.endswith((b"\n", b"\r")):
            self._hold(self._open, line)
            return None
        if self._open:
            line = self._let_go(self._open, b"") + line
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            self._hold(self._data, line[5:].removeprefix(b" "))
        if line or not self._data:
            return None
        return self._let_go(self._data, b"\n")

    def _hold(self, pieces: list[bytes], piece: bytes) -> None:
        pieces.append(piece)
        self._held += len(piece) + A_PIECE

    def _let_go(self, pieces: list[bytes], between: bytes) -> bytes:
        whole = between.join(pieces)
        self._held -= sum(map(len, pieces)) + A_PIECE * len(pieces)
        pieces.clear()
        return whole


async def _values(answer: "Response", asked: Asked) -> AsyncGenerator[Json, None]:
    """The JSON values of `answer`, to its end. raises: EndpointFault"""
    sent, begun = ServerSent(), False
    async with aclosing(answer.aiter_bytes()) as pieces:
        while True:
            with edge(asked, answering=begun):
                piece = await anext(pieces, None)
                found = sent.read(piece or b"")
            if piece is None:
                return
            for data in found:
                if data.startswith(OVER):
                    await _rest(pieces, asked)
                    return
                with edge(asked, answering=begun):
                    value = json.loads(data)
                begun = True
                yield value


async def _rest(pieces: AsyncIterator[bytes], asked: Asked) -> None:
    """Read what is behind the end, so that the connection can be used again."""
    from asyncio import timeout

    with suppress(TimeoutError, EndpointFault):
        async with timeout(REST_S):
            with edge(asked, answering=True):
                async for _ in pieces:
                    pass
