"""Streams of server-sent events: how they are requested and read, for every provider.

The openai and anthropic packages make many objects of a request and look at an answer line by line several
times; for an answer of a few words that was a third of the gateway's work. Their decoders also join an
event's lines one by one, so one event of many lines takes time by the square of its size. So the packages
give headers and addresses, and the request is sent through their transport and read here.

Every stream has limits (`convo.config.settings.Limits`): its bytes, its events, the bytes of one event. The
bytes of its items and its time are limited above, by `convo.models.limited`.
"""

import asyncio
import json
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, suppress
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.errors import EndpointFault, LimitReached
from convo.items import Json
from convo.models.bodies import STREAMED
from convo.models.foreign import Asked, edge, refused

if TYPE_CHECKING:
    from httpx2 import URL, AsyncClient, Request, Response

OVER = "[DONE]"

NO_HEADERS: Mapping[str, str] = MappingProxyType({})

REST_S = 0.25
"""Seconds that the end of an answer may be behind the end of its events."""

SLICE_S = 0.002
"""Seconds after which a stream that never waits lets the rest of the process run."""

LARGE = 256 * 1024
"""Bytes of an event above which it is parsed in steps, with others in between."""

A_VALUE = 64
"""Bytes that a JSON value takes besides its text, counted for the limits."""

ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


class Client(Protocol):
    """What is needed of a package's client: `AsyncOpenAI` or `AsyncAnthropic`."""

    timeout: Any

    @property
    def base_url(self) -> "URL": ...

    @property
    def default_headers(self) -> Mapping[str, Any]: ...

    @property
    def auth_headers(self) -> Mapping[str, Any]: ...


class Line:
    """The way to one server: the package's client for it, and the transport below that."""

    def __init__(
        self, client: Any, http: "AsyncClient", limits: Limits = DEFAULT_LIMITS, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """`headers` are sent beside those of `client`."""
        from httpx2 import Headers, Timeout

        named: Client = client
        said = {**named.default_headers, **named.auth_headers, **headers}
        self.client, self._http, self._limits = client, http, limits
        kept = {name: value for name, value in said.items() if isinstance(value, str)}
        self._headers = Headers({**kept, "accept-encoding": "identity"})
        self._extensions = {"timeout": Timeout(named.timeout).as_dict(), STREAMED: True}
        self._urls: dict[str, URL] = {}

    async def streamed(
        self,
        path: str,
        body: Mapping[str, Json] | None,
        asked: Asked,
        query: Mapping[str, Any] | None = None,
        *,
        exact: bool = False,
    ) -> AsyncGenerator[Json, None]:
        """The JSON values that the server streams in answer to `body`, or to a GET without one.

        exact:   refuse NaN, and numbers beyond a double: the values are kept as items, which have an exact form
        raises:  EndpointFault
        """
        with edge(asked):
            answer = await self._http.send(self._request(path, body, query), stream=True)
        try:
            if not answer.is_success:
                with edge(asked):
                    await answer.aread()
                raise refused(answer, asked)
            async with aclosing(_values(answer, asked, self._limits, EXACT if exact else DECODER)) as values:
                async for value in values:
                    yield value
        finally:
            with edge(asked, answering=True):
                await answer.aclose()

    def _request(self, path: str, body: Mapping[str, Json] | None, query: Mapping[str, Any] | None) -> "Request":
        from httpx2 import Request

        if path not in self._urls:
            base: URL = self.client.base_url
            self._urls[path] = base.copy_with(raw_path=base.raw_path + path.lstrip("/").encode())
        url = self._urls[path] if body is not None else self._urls.pop(path)
        given = {**getattr(self.client, "default_query", {}), **(query or {})}
        if given:
            url = url.copy_merge_params(given)
        content = None if body is None else ENCODER.encode(body).encode()
        method = "GET" if body is None else "POST"
        return Request(method, url, headers=self._headers, content=content, extensions=self._extensions)


class ServerSent:
    """The data of server-sent events, out of pieces that end anywhere. Nothing else of them is looked at."""

    def __init__(self, most: int = DEFAULT_LIMITS.event_bytes) -> None:
        """`most` bytes of one event are waited for."""
        self._most = most
        self._open, self._data = BytesIO(), BytesIO()
        self._returned, self._first = False, True

    def read(self, piece: bytes) -> list[str]:
        """The data of each event that is whole with `piece`. raises: UnicodeDecodeError, LimitReached"""
        if self._returned and piece.startswith(b"\n"):  # the other half of one line's end
            piece = piece[1:]
        self._returned = piece.endswith(b"\r")
        found = [data.decode() for line in piece.splitlines(keepends=True) if (data := self._line(line)) is not None]
        if self._open.tell() + self._data.tell() > self._most:
            raise LimitReached("event_bytes", self._most)
        return found

    def _line(self, line: bytes) -> bytes | None:
        """The data of the event that this line ends."""
        if not line.endswith((b"\n", b"\r")):
            self._open.write(line)
            return None
        if self._open.tell():
            line = _taken(self._open) + line
        if self._first:
            line, self._first = line.removeprefix(BOM_UTF8), False
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            said = line[5:].removeprefix(b" ")
            self._data.write(said + b"\n")
        if line or not self._data.tell():
            return None
        return _taken(self._data)[:-1]


def _taken(held: BytesIO) -> bytes:
    whole = held.getvalue()
    held.seek(0)
    held.truncate()
    return whole


async def _values(
    answer: "Response", asked: Asked, limits: Limits, decoder: json.JSONDecoder
) -> AsyncGenerator[Json, None]:
    """The JSON values of `answer`, to its end. raises: EndpointFault"""
    sent, begun, events = ServerSent(limits.event_bytes), False, 0
    pace = Pace()
    async with aclosing(answer.aiter_bytes()) as pieces:
        while True:
            with edge(asked, answering=begun):
                piece = await anext(pieces, None)
            for part in _parts(piece):
                with edge(asked, answering=begun):
                    found = sent.read(part)
                await pace.step()
                for data in found:
                    if data.startswith(OVER):
                        await _rest(pieces, asked)
                        return
                    with edge(asked, answering=begun):
                        small = len(data) < LARGE
                        value = decoder.decode(data) if small else await parsed(data, limits.event_bytes, decoder)
                    begun, events = True, events + 1
                    if events > limits.answer_events:
                        raise LimitReached("answer_events", limits.answer_events)
                    yield value
                    await pace.step()
            if piece is None:
                return


PART = 8 * 1024
"""Bytes of a stream that are looked at before others may run."""


def _parts(piece: bytes | None) -> list[bytes]:
    if piece is None:
        return [b""]
    return [piece] if len(piece) <= PART else [piece[at : at + PART] for at in range(0, len(piece), PART)]


async def _rest(pieces: AsyncIterator[bytes], asked: Asked) -> None:
    """Read what is behind the end, so that the connection can be used again."""
    with suppress(TimeoutError, EndpointFault):
        async with asyncio.timeout(REST_S):
            with edge(asked, answering=True):
                async for _ in pieces:
                    pass


# -- taking turns ---------------------------------------------------------------------------------


class Pace:
    """Lets the rest of the process run when a stream has kept it busy for a while.

    Of all streams that are busy one runs in each pass of the event loop: ten of them take no more from
    others than one does.
    """

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()

    async def step(self) -> None:
        """Wait for a turn, if this stream has run for long. Waiting for the network counts too, and costs a pass."""
        if self._clock() - self._since > SLICE_S:
            await TURNS.setdefault(asyncio.get_running_loop(), Turns()).wait()
            self._since = self._clock()


class Turns:
    """The busy streams of one event loop in the order in which they run, one in each pass."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called = False

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._called:
            self._called = True
            loop.call_soon(self._next, loop)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self._called = bool(self._waiting)
        if self._called:
            loop.call_soon(self._next, loop)


TURNS: "WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]" = WeakKeyDictionary()


# -- large events ---------------------------------------------------------------------------------

SPACE = re.compile(r"[ \t\n\r]*")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (INFINITY, -INFINITY):
        raise ValueError("a number is larger than any double")
    return number


INFINITY = float("inf")
DECODER = json.JSONDecoder()
EXACT = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
CLOSES = {"[": "]", "{": "}"}


async def parsed(text: str, most: int, decoder: json.JSONDecoder = DECODER) -> Json:
    """The JSON value of `text`, parsed in steps: `json.loads` of some megabytes stops everything else meanwhile.

    raises:  ValueError    it is no JSON
             LimitReached  its values take more than `most` bytes
    """
    reading, pace = _read(text, most, decoder), Pace()
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return end.value
        await pace.step()


def _read(text: str, most: int, decoder: json.JSONDecoder) -> Generator[None, None, Json]:
    """Parse `text`, pausing behind every few values. Strings and numbers are left to the library."""
    left, at, name = (most - len(text)) // A_VALUE, 0, ""
    holders: list[Any] = []
    root: Json = None
    while True:
        at = _space(text, at)
        opens = text[at : at + 1]
        value: Json = [] if opens == "[" else {} if opens == "{" else None
        at += 1
        if value is None:
            value, at = decoder.raw_decode(text, at - 1)
        if not holders:
            root = value
        elif isinstance(holders[-1], dict):
            holders[-1][name] = value
        else:
            holders[-1].append(value)
        left -= 1
        if left < 0:
            raise LimitReached("event_bytes", most)
        if left % 256 == 0:
            yield
        if opens in CLOSES:
            at = _space(text, at)
            if text[at : at + 1] != CLOSES[opens]:
                holders.append(value)
                if opens == "{":
                    name, at = _name(text, at)
                continue
            at += 1
        while holders:
            at = _space(text, at) + 1
            sign, of_object = text[at - 1 : at], isinstance(holders[-1], dict)
            if sign == ",":
                if of_object:
                    name, at = _name(text, _space(text, at))
                break
            if sign != ("}" if of_object else "]"):
                raise ValueError("neither a comma nor an end")
            holders.pop()
        else:
            if _space(text, at) != len(text):
                raise ValueError("something follows the value")
            return root


def _space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def _name(text: str, at: int) -> tuple[str, int]:
    """The name of a member and where its value begins. raises: ValueError"""
    if text[at : at + 1] != '"':
        raise ValueError("a name is missing")
    name, at = DECODER.raw_decode(text, at)
    at = _space(text, at)
    if text[at : at + 1] != ":":
        raise ValueError("a colon is missing")
    return name, at + 1
