"""One request and its answer, at the level of ASGI messages.

It reads a body within the limits and writes what a handler came to. Whatever is answered carries
the request's id and how long it took; whatever is refused is the API's error object.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import TYPE_CHECKING

from convo.clock import Clock
from convo.config import Serve
from convo.endpoints.contract import LIMIT
from convo.endpoints.errors import error_object
from convo.errors import ConvoError, KeyRefused, LimitReached
from convo.gateway import documents, refusals
from convo.gateway.documents import NotJson
from convo.items import Event, Json
from convo.items.partial import STREAMED

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

JSON = b"application/json"
ENDS_THE_CONNECTION = frozenset({408, 413, 431})
"""After these the rest of the request is not worth reading."""

NO_CONTENT = 204
"""An answer that has no body, and so none of a length."""

CLIENT_GONE = 499
"""The status, in logs and figures alone, of a request whose client did not wait for an answer."""

LIMIT_HEADER = b"x-convo-limit"
"""The setting that ended an answer early; in a stream it is a comment before the last event."""

LARGE = 256 * 1024
"""A body of more bytes is read beside the loop, where it takes milliseconds from nobody."""

LISTS = ("input", "items")
"""Fields of a body that hold items."""

Header = tuple[bytes, bytes]


CONNECTION = "convo.connection"
"""The ASGI extension under which a connection says that its client has left."""


class ClientGone(Exception):
    """The client disconnected before it was answered."""


class Connection:
    """Whether the client of one request is still connected.

    A client that closes only its sending half counts as gone: HTTP cannot tell the two apart.
    """

    def __init__(self) -> None:
        self.closed = False
        self._on_close: Callable[[], object] | None = None

    def on_close(self, call: Callable[[], object] | None) -> None:
        """Call `call` once, when the client leaves; at once where it has left; None: nothing any more."""
        self._on_close = call
        if self.closed and call is not None:
            call()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._on_close is not None:
                self._on_close()


class Exchange:
    """One request on its way.

    id:       "req_..." as the client sees it
    route:    the template of its path, for metrics; "" until one is found
    tenant:   whose key it carried; "" until that is known
    status:   of the answer, 0 until it began
    connection: tells when the client leaves
    code:     of the error that it was refused with
    limit:    the setting that ended its answer early
    differs:  the final text of its answer is not the text that the model streamed
    ignored:  the fields of the request that the model was not sent, for a header of the answer
    allow:    the methods of its path, when it came with another one
    """

    def __init__(self, scope: "Scope", receive: "Receive", send: "Send", *, request_id: str, clock: Clock) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.id, self.route, self.tenant, self.status, self.allow = request_id, "", "", 0, ""
        self.code = self.limit = ""
        self.differs = False
        self.ignored: tuple[str, ...] = ()
        self.connection: Connection = (scope.get("extensions") or {}).get(CONNECTION) or Connection()
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._clock, self._began = clock, clock.ticks()

    @property
    def method(self) -> str:
        return str(self.scope.get("method", "WEBSOCKET"))

    @property
    def took_s(self) -> float:
        return self._clock.ticks() - self._began

    # -- the request ------------------------------------------------------------------------------

    async def document(self, serve: Serve, *, optional: bool) -> dict[str, Json]:
        """The JSON object in the body; {} for none where it is `optional`.

        raises:  Refused, ClientGone
        """
        raw = await self._body(serve)
        if not raw and optional:
            return {}
        self._check_form()
        if len(raw) > LARGE:
            return await asyncio.to_thread(object_in, raw, serve)
        return object_in(raw, serve)

    def _check_form(self) -> None:
        given = self.headers.get(b"content-type", b"").decode("latin-1")
        form, _, more = given.lower().partition(";")
        charset = more.partition("charset=")[2].strip(' "')
        if form.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
            raise refusals.wrong_form(given)
        coding = self.headers.get(b"content-encoding", b"identity").decode("latin-1")
        if coding.lower() != "identity":
            raise refusals.encoded(coding)

    async def _body(self, serve: Serve) -> bytes:
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced[:20]) > serve.max_body_bytes:
            raise refusals.body_too_large(serve.max_body_bytes)
        try:
            async with asyncio.timeout(serve.read_s):
                return await self._gathered(serve.max_body_bytes)
        except TimeoutError as late:
            raise refusals.too_slow(serve.read_s) from late

    async def _gathered(self, most: int) -> bytes:
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size > most:
                raise refusals.body_too_large(most)
            pieces.append(piece)
        return b"".join(pieces)

    # -- the answer -------------------------------------------------------------------------------

    async def begin(self, status: int, headers: Iterable[Header]) -> None:
        self.status = status
        if self.ignored:
            headers = (*headers, (b"x-convo-ignored", ", ".join(self.ignored).encode()))
        took = b"%d" % (self.took_s * 1000)
        common = ((b"x-request-id", self.id.encode()), (b"openai-processing-ms", took))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *common]})

    async def piece(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, value: Json, status: int = 200, headers: Iterable[Header] = ()) -> None:
        await self.answer_bytes(documents.write(value), JSON, status, headers)

    async def answer_bytes(self, body: bytes, form: bytes, status: int = 200, headers: Iterable[Header] = ()) -> None:
        length = ((b"content-length", b"%d" % len(body)),) if status != NO_CONTENT else ()
        await self.begin(status, ((b"content-type", form), *length, *headers))
        await self.piece(body, more=False)

    def reached(self, event: Event) -> list[Header]:
        """The header that names the limit which ended an answer with `event`; the log names it as well.

        The log also says that the text of the answer is not the text that was streamed.
        """
        self.differs = self.differs or STREAMED in event
        limit = event.get(LIMIT)
        self.limit = limit["name"] if limit else self.limit
        return [(LIMIT_HEADER, self.limit.encode())] if limit else []

    async def refuse(self, fault: ConvoError) -> None:
        """Answer with the error object of `fault`, under its status."""
        self.code = fault.code
        self.limit = fault.limit if isinstance(fault, LimitReached) else ""
        allow = ((b"allow", self.allow.encode()),) if self.allow else ()
        await self.answer({"error": error_object(fault)}, fault.status, (*headers_of(fault), *allow))


def object_in(raw: bytes, serve: Serve) -> dict[str, Json]:
    """The JSON object that `raw` holds, within the limits. raises: Refused"""
    if len(raw) > serve.max_body_bytes:
        raise refusals.body_too_large(serve.max_body_bytes)
    try:
        document = documents.read(raw, depth=serve.max_depth)
    except NotJson as wrong:
        raise refusals.not_json(str(wrong)) from wrong
    if not isinstance(document, dict):
        raise refusals.not_an_object()
    for name in LISTS:
        listed = document.get(name)
        if isinstance(listed, list) and len(listed) > serve.max_items:
            raise refusals.too_many_items(name, serve.max_items, len(listed))
    return document


def headers_of(fault: ConvoError) -> list[Header]:
    """What a refusal says beside its error object."""
    headers: list[Header] = []
    wait_s = getattr(fault, "retry_after_s", None)
    if wait_s is not None:
        headers += [(b"retry-after", b"%d" % ceil(wait_s)), (b"retry-after-ms", b"%d" % (wait_s * 1000))]
    if isinstance(fault, LimitReached):
        headers.append((LIMIT_HEADER, fault.limit.encode()))
    if isinstance(fault, KeyRefused):
        headers.append((b"www-authenticate", b"Bearer"))
    if fault.status in ENDS_THE_CONNECTION:
        headers.append((b"connection", b"close"))
    return headers
