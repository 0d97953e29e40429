"""One HTTP request and its response: body, query, headers, strict JSON.

JSON is decoded exactly: duplicate keys, NaN, overflowing numbers, deep nesting and too many
values are refused; integers of any length and lone surrogates survive. Every response carries
a request id and its duration; every error is the API's error object.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isinf
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from convo.config.settings import ServeSettings
from convo.endpoints.base import INCLUDABLE, LIMIT_FIELD, error_object
from convo.errors import ConvoError, KeyRefused, LimitReached
from convo.history.accumulator import STREAMED_TEXT_DIFFERS
from convo.history.items import Json, StreamEvent
from convo.runtime import Clock
from convo.server import errors

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


JSON_CONTENT_TYPE = b"application/json"
CLOSING_STATUSES = frozenset({408, 413, 431})
"""Statuses after which the connection is closed: the rest of the request is not read."""

NO_CONTENT_STATUS = 204
"""A response without a body, and so without a content length."""

CLIENT_CLOSED_STATUS = 499
"""The status, in logs and metrics only, of a request whose client disconnected before the response."""

LIMIT_HEADER = b"x-convo-limit"
"""The setting that ended an answer early; in a stream it is a comment before the last event."""

DECODE_IN_THREAD_BYTES = 256 * 1024
"""A larger body is decoded in a thread: it would block the event loop for milliseconds."""

ITEM_LIST_FIELDS = ("input", "items")
"""Fields of a body that contain items."""

Header = tuple[bytes, bytes]


CONNECTION_EXTENSION = "convo.connection"
"""The ASGI extension through which a connection reports that its client disconnected."""


class ClientDisconnected(Exception):
    """The client disconnected before the response."""


class ClientConnection:
    """Whether the client of one request is still connected.

    A client that closes only its sending half counts as disconnected: HTTP cannot distinguish the two.
    """

    def __init__(self) -> None:
        self.closed = False
        self._on_close: Callable[[], object] | None = None

    def on_close(self, call: Callable[[], object] | None) -> None:
        """Call `callback` once when the client disconnects, at once if it has already; None removes the callback."""
        self._on_close = call
        if self.closed and call is not None:
            call()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._on_close is not None:
                self._on_close()


class HttpExchange:
    """One HTTP request and its response.

    id:               "req_...", sent to the client
    route:            the template of its path, for metrics; "" until it is matched
    tenant:           the tenant of its key; "" until authenticated
    status:           of the response; 0 until it is started
    connection:       reports when the client disconnects
    error_code:       of the error response
    limit_name:       the setting that ended the answer early
    text_differs:     the final text of the answer is not the text that the model streamed
    ignored_fields:   fields of the request that the model was not sent, for a response header
    allowed_methods:  the methods of its path, if it has another one
    """

    def __init__(self, scope: "Scope", receive: "Receive", send: "Send", *, request_id: str, clock: Clock) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.id, self.route, self.tenant, self.status, self.allow = request_id, "", "", 0, ""
        self.code = self.limit = ""
        self.differs = False
        self.ignored: tuple[str, ...] = ()
        self.connection: ClientConnection = (scope.get("extensions") or {}).get(
            CONNECTION_EXTENSION
        ) or ClientConnection()
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._clock, self._began = clock, clock.ticks()

    @property
    def method(self) -> str:
        return str(self.scope.get("method", "WEBSOCKET"))

    @property
    def took_s(self) -> float:
        return self._clock.ticks() - self._began

    # -- request ----------------------------------------------------------------------------------

    async def document(self, serve: ServeSettings, *, optional: bool) -> dict[str, Json]:
        """Read the JSON object in the body; {} for an empty body if `optional`.

        Raises RequestRefused and ClientDisconnected.
        """
        raw = await self._body(serve)
        if not raw and optional:
            return {}
        self._check_form()
        if len(raw) > DECODE_IN_THREAD_BYTES:
            return await asyncio.to_thread(parse_json_object, raw, serve)
        return parse_json_object(raw, serve)

    def _check_form(self) -> None:
        given = self.headers.get(b"content-type", b"").decode("latin-1")
        form, _, more = given.lower().partition(";")
        charset = more.partition("charset=")[2].strip(' "')
        if form.strip() != "application/json" or charset not in ("", "utf-8", "utf8"):
            raise errors.unsupported_content_type_error(given)
        coding = self.headers.get(b"content-encoding", b"identity").decode("latin-1")
        if coding.lower() != "identity":
            raise errors.unsupported_encoding_error(coding)

    async def _body(self, serve: ServeSettings) -> bytes:
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced[:20]) > serve.max_body_bytes:
            raise errors.body_too_large_error(serve.max_body_bytes)
        try:
            async with asyncio.timeout(serve.read_s):
                return await self._gathered(serve.max_body_bytes)
        except TimeoutError as late:
            raise errors.request_timeout_error(serve.read_s) from late

    async def _gathered(self, most: int) -> bytes:
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size > most:
                raise errors.body_too_large_error(most)
            pieces.append(piece)
        return b"".join(pieces)

    # -- response ---------------------------------------------------------------------------------

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
        await self.answer_bytes(serialize_strict_json(value), JSON_CONTENT_TYPE, status, headers)

    async def answer_bytes(self, body: bytes, form: bytes, status: int = 200, headers: Iterable[Header] = ()) -> None:
        length = ((b"content-length", b"%d" % len(body)),) if status != NO_CONTENT_STATUS else ()
        await self.begin(status, ((b"content-type", form), *length, *headers))
        await self.piece(body, more=False)

    def reached(self, event: StreamEvent) -> list[Header]:
        """Return the header that names the limit which ended the answer with `event`, and record the limit for the log.

        Also records for the log whether the answer's text differs from the streamed text.
        """
        self.differs = self.differs or STREAMED_TEXT_DIFFERS in event
        limit = event.get(LIMIT_FIELD)
        self.limit = limit["name"] if limit else self.limit
        return [(LIMIT_HEADER, self.limit.encode())] if limit else []

    async def refuse(self, fault: ConvoError) -> None:
        """Respond with the error object of `fault`, under its status."""
        self.code = fault.code
        self.limit = fault.limit if isinstance(fault, LimitReached) else ""
        allow = ((b"allow", self.allow.encode()),) if self.allow else ()
        await self.answer({"error": error_object(fault)}, fault.status, (*build_error_headers(fault), *allow))


def parse_json_object(raw: bytes, serve: ServeSettings) -> dict[str, Json]:
    """Parse `raw` as a JSON object within the limits. Raises RequestRefused."""
    if len(raw) > serve.max_body_bytes:
        raise errors.body_too_large_error(serve.max_body_bytes)
    try:
        document = parse_strict_json(raw, depth=serve.max_depth)
    except InvalidJson as wrong:
        raise errors.invalid_json_error(str(wrong)) from wrong
    if not isinstance(document, dict):
        raise errors.body_not_an_object_error()
    for name in ITEM_LIST_FIELDS:
        listed = document.get(name)
        if isinstance(listed, list) and len(listed) > serve.max_items:
            raise errors.too_many_items_error(name, serve.max_items, len(listed))
    return document


def build_error_headers(fault: ConvoError) -> list[Header]:
    """Build the headers of an error response."""
    headers: list[Header] = []
    wait_s = getattr(fault, "retry_after_s", None)
    if wait_s is not None:
        headers += [(b"retry-after", b"%d" % ceil(wait_s)), (b"retry-after-ms", b"%d" % (wait_s * 1000))]
    if isinstance(fault, LimitReached):
        headers.append((LIMIT_HEADER, fault.limit.encode()))
    if isinstance(fault, KeyRefused):
        headers.append((b"www-authenticate", b"Bearer"))
    if fault.status in CLOSING_STATUSES:
        headers.append((b"connection", b"close"))
    return headers


MAX_JSON_VALUES = 500_000
"""Maximum number of values in a document, nested ones included: fifty for each of the maximum number of items."""


class InvalidJson(ValueError):
    """Bytes that are not acceptable JSON; the message ends a sentence."""


class JsonTooDeep(InvalidJson):
    """Nested deeper than allowed."""


def parse_strict_json(raw: bytes, *, depth: int) -> Json:
    """Parse the JSON value in `raw`.

    depth:  maximum nesting of objects and arrays

    Raises InvalidJson and JsonTooDeep.
    """
    if len(raw) > MAX_JSON_VALUES and _has_too_many_values(raw):
        raise InvalidJson(f"it holds more than {MAX_JSON_VALUES:,} values")
    try:
        value = JSON_DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as wrong:
        raise InvalidJson(f"byte {wrong.start} is not UTF-8") from wrong
    except RecursionError as wrong:
        raise JsonTooDeep(f"it is nested deeper than {depth} levels") from wrong
    except json.JSONDecodeError as wrong:
        raise InvalidJson(f"{wrong.msg} at line {wrong.lineno}, column {wrong.colno}") from wrong
    except InvalidJson:
        raise
    except ValueError as wrong:  # an integer with more digits than Python parses
        raise InvalidJson("a number in it has too many digits") from wrong
    if raw.count(b"[") + raw.count(b"{") > depth and _is_deeper(value, depth):
        raise JsonTooDeep(f"it is nested deeper than {depth} levels")
    return value


def serialize_strict_json(value: Json) -> bytes:
    """Serialize `value` as ASCII JSON; every value of `parse_strict_json` is unchanged."""
    return JSON_ENCODER.encode(value).encode("ascii")


def _has_too_many_values(raw: bytes) -> bool:
    """Whether there are too many values; strings are removed only if the faster count is too high."""
    return _count_value_signs(raw) > MAX_JSON_VALUES and _count_value_signs(_remove_strings(raw)) > MAX_JSON_VALUES


def _remove_strings(raw: bytes) -> bytes:
    return b"".join(raw.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


def _count_value_signs(raw: bytes) -> int:
    """Count the characters that precede a value."""
    return sum(map(raw.count, (b",", b"[", b"{")))


def _is_deeper(value: Json, depth: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth):
        level = [inner for one in level if isinstance(one, dict | list) for inner in _child_values(one)]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def _child_values(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _reject_duplicate_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise InvalidJson(f"the key {json.dumps(twice[:64])} stands twice in one object")
    return found


def _parse_finite(digits: str) -> float:
    value = float(digits)
    if isinf(value):
        raise InvalidJson("a number in it is larger than any double")
    return value


def _reject_constant(name: str) -> float:
    raise InvalidJson(f"{name} is not JSON")


JSON_DECODER = json.JSONDecoder(
    object_pairs_hook=_reject_duplicate_keys, parse_float=_parse_finite, parse_constant=_reject_constant
)
JSON_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """One query parameter.

    parse:          converts the given text; raises RequestRefused
    schema:         the same as JSON Schema, for the OpenAPI document
    is_repeatable:  whether it may be given more than once
    """

    name: str
    read: Callable[[str, str], Any]
    schema: Mapping[str, Json]
    words: str
    many: bool = False


def parse_text_value(name: str, said: str) -> str:
    return said


def parse_integer_value(name: str, said: str) -> int:
    digits = said.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise errors.http_parameter_type_error(name, "an integer")
    return int(said)


def _parse_boolean_value(name: str, said: str) -> bool:
    if said not in ("true", "false"):
        raise errors.http_parameter_type_error(name, "a boolean")
    return said == "true"


def _parse_include_value(name: str, said: str) -> str:
    if said not in INCLUDABLE:
        raise errors.http_parameter_value_error(name, said, INCLUDABLE)
    return said


def _parse_order_value(name: str, said: str) -> str:
    if said not in ("asc", "desc"):
        raise errors.http_parameter_value_error(name, said, ("asc", "desc"))
    return said


INCLUDE_PARAMETER = QueryParameter(
    "include",
    _parse_include_value,
    {"type": "array", "items": {"type": "string", "enum": list(INCLUDABLE)}},
    "What to show as well; everything that is kept is shown in any case.",
    many=True,
)
PAGE_PARAMETERS = (
    QueryParameter(
        "limit",
        parse_integer_value,
        {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "Items on a page.",
    ),
    QueryParameter(
        "order", _parse_order_value, {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "By age."
    ),
    QueryParameter("after", parse_text_value, {"type": "string"}, "The id of the item that the page begins behind."),
    QueryParameter("before", parse_text_value, {"type": "string"}, "The id of the item that the page ends before."),
)
LIST_PARAMETERS = (*PAGE_PARAMETERS, INCLUDE_PARAMETER)
STREAM_PARAMETER = QueryParameter(
    "stream", _parse_boolean_value, {"type": "boolean", "default": False}, "Answer with server-sent events."
)
STARTING_AFTER_PARAMETER = QueryParameter(
    "starting_after", parse_integer_value, {"type": "integer"}, "The sequence number of the event to go on behind."
)
OBFUSCATION_PARAMETER = QueryParameter(
    "include_obfuscation", _parse_boolean_value, {"type": "boolean"}, "Padding of events; there is none."
)


def parse_query(raw: bytes, known: Sequence[QueryParameter]) -> dict[str, Any]:
    """Parse the parameters of a query string, by name; lists as lists.

    Raises RequestRefused for an unknown parameter, a repeated one, or an invalid value.
    """
    if not raw:
        return {}
    found: dict[str, Any] = {}
    by_name = {query.name: query for query in known}
    for said_name, said in parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="replace"):
        name = said_name.removesuffix("[]")
        query = by_name.get(name)
        if query is None or (said_name != name and not query.many):
            raise errors.unknown_http_parameter_error(said_name)
        if query.many:
            found.setdefault(name, []).append(query.read(name, said))
        elif name in found:
            raise errors.repeated_parameter_error(name)
        else:
            found[name] = query.read(name, said)
    return found


def to_page_arguments(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an endpoint's list methods."""
    return {name: value for name, value in query.items() if name != "include"}
