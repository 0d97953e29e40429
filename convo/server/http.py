"""One HTTP request and its response: body, query, headers, strict JSON.

JSON is decoded exactly: duplicate keys, NaN, overflowing numbers, deep nesting and too many
values are refused; integers of any length and lone surrogates survive. Every response carries
a request id and its duration; every error is the API's error object.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from math import ceil, isinf
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from convo.config.settings import ServeSettings
from convo.endpoints.base import LIMIT_FIELD, error_object
from convo.errors import AlreadyDecided, ConvoError, KeyRefused, LimitReached
from convo.history.accumulator import STREAMED_TEXT_DIFFERS
from convo.history.canonical import MAX_JSON_VALUES, has_too_many_values
from convo.history.items import Json, StreamEvent
from convo.models.request_fields import INCLUDABLE, REQUEST_FIELDS
from convo.runtime import Clock
from convo.server import errors
from convo.server.forms import MAX_FORM_OVERHEAD_BYTES, UploadForm, parse_upload_form
from convo.server.rate_limits import BodyShare

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


JSON_MEDIA_TYPE = "application/json"
JSON_CONTENT_TYPE = JSON_MEDIA_TYPE.encode()
CLOSING_STATUSES = frozenset({408, 413, 431})
"""Statuses after which the connection is closed: the rest of the request is not read."""

ERROR_STATUS = 400
"""The first status of a refused request."""

NO_CONTENT_STATUS = 204
"""A response without a body, and so without a content length."""

CLIENT_CLOSED_STATUS = 499
"""The status, in logs and metrics only, of a request whose client disconnected before the response."""

FINAL_SEND_TIMEOUT_S = 0.5
"""Seconds in which a client can receive the last events of a response that a shutdown stopped."""

LIMIT_HEADER = b"x-convo-limit"
"""The setting that ended a response early; in a stream it is a comment before the last event."""

DECODE_IN_THREAD_BYTES = 256 * 1024
"""A larger body is decoded in a thread: it would block the event loop for milliseconds."""

ITEM_LIST_FIELDS = ("input", "items")
"""Fields of a body that contain items."""

ANTHROPIC_PATH_PREFIX = "/v1/messages/"

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
        self._close_callback: Callable[[], object] | None = None

    def set_close_callback(self, callback: Callable[[], object] | None) -> None:
        """Call `callback` once when the client disconnects, at once if it has already; None removes the callback."""
        self._close_callback = callback
        if self.closed and callback is not None:
            callback()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._close_callback is not None:
                self._close_callback()


PLAIN_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]+")
"""A host, with or without a port, as it occurs in a URL."""


class HttpExchange:
    """One HTTP request and its response.

    id:               "req_...", sent to the client
    route:            the template of its path, for metrics; "" until it is matched
    tenant:           the tenant of its key; "" until authenticated
    status:           of the response; 0 until it is started
    sent_bytes:       of the body of the response, so far
    body_share:       counts the bytes of the body; None for no limit
    connection:       reports when the client disconnects
    error_code:       of the error response
    limit_name:       the setting that ended the response early
    text_differs:     the final text of the response is not the text that the model streamed
    ignored_fields:   fields of the request that the model was not sent, for a response header
    recording_header: of a request that is recorded
    records_errors:   whether a response with an error status is recorded, too
    allowed_methods:  the methods of its path, if it has another one
    is_anthropic:     whether its path is one of Anthropic's API, whose errors have another form
    """

    def __init__(self, scope: "Scope", receive: "Receive", send: "Send", *, request_id: str, clock: Clock) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.body_share: BodyShare | None = None
        self.id, self.route, self.tenant, self.status, self.allowed_methods = request_id, "", "", 0, ""
        self.sent_bytes = 0
        self.error_code = self.limit_name = ""
        self.text_differs = False
        self.is_anthropic = f"{scope.get('path', '')}/".startswith(ANTHROPIC_PATH_PREFIX)
        self.ignored_fields: tuple[str, ...] = ()
        self.recording_header: Header | None = None
        self.records_errors = False
        self.connection: ClientConnection = (scope.get("extensions") or {}).get(
            CONNECTION_EXTENSION
        ) or ClientConnection()
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._clock, self._started_s = clock, clock.monotonic()

    @property
    def method(self) -> str:
        return str(self.scope.get("method", "WEBSOCKET"))

    @property
    def base_url(self) -> str:
        """The base URL of the API at the host that the request names, with /v1."""
        host = self.headers.get(b"host", b"").decode("latin-1")
        name = host if PLAIN_HOST.fullmatch(host) else "localhost"
        return f"{self.scope.get('scheme', 'http')}://{name}{self.scope.get('root_path', '')}/v1"

    @property
    def duration_s(self) -> float:
        return self._clock.monotonic() - self._started_s

    # -- request ----------------------------------------------------------------------------------

    async def read_json_body(self, serve: ServeSettings, *, optional: bool) -> tuple[bytes, dict[str, Json]]:
        """Read the JSON object in the body; {} for an empty body if `optional`. Return its bytes too.

        Raises RequestRefused and ClientDisconnected.
        """
        raw = await self._read_body(serve, serve.max_body_bytes)
        if not raw and optional:
            return raw, {}
        self._check_content_headers()
        if len(raw) > DECODE_IN_THREAD_BYTES:
            return raw, await asyncio.to_thread(parse_json_object, raw, serve)
        return raw, parse_json_object(raw, serve)

    async def read_form(self, serve: ServeSettings) -> UploadForm:
        """Read the form in the body. Raises RequestRefused and ClientDisconnected."""
        raw = await self._read_body(serve, serve.files.max_file_bytes + MAX_FORM_OVERHEAD_BYTES)
        self._check_content_encoding()
        content_type = self.headers.get(b"content-type", b"")
        return await asyncio.to_thread(parse_upload_form, content_type, raw)

    def _check_content_headers(self) -> None:
        content_type = self.headers.get(b"content-type", b"").decode("latin-1")
        media_type, _, parameters = content_type.lower().partition(";")
        charset = parameters.partition("charset=")[2].strip(' "')
        if media_type.strip() != JSON_MEDIA_TYPE or charset not in ("", "utf-8", "utf8"):
            raise errors.unsupported_content_type_error(content_type)
        self._check_content_encoding()

    def _check_content_encoding(self) -> None:
        encoding = self.headers.get(b"content-encoding", b"identity").decode("latin-1")
        if encoding.lower() != "identity":
            raise errors.unsupported_encoding_error(encoding)

    async def _read_body(self, serve: ServeSettings, max_bytes: int) -> bytes:
        content_length = self.headers.get(b"content-length", b"")
        # The slice bounds the digits that int() parses; a wrong length is found while reading.
        if content_length.isdigit() and int(content_length[:20]) > max_bytes:
            raise errors.body_too_large_error(max_bytes)
        try:
            async with asyncio.timeout(serve.read_s):
                return await self._receive_body(max_bytes)
        except TimeoutError as error:
            raise errors.request_timeout_error(serve.read_s) from error

    async def _receive_body(self, max_bytes: int) -> bytes:
        chunks: list[bytes] = []
        size, has_more = 0, True
        while has_more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk, has_more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > max_bytes:
                raise errors.body_too_large_error(max_bytes)
            if self.body_share is not None:
                self.body_share.take(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    # -- response ---------------------------------------------------------------------------------

    async def start_response(self, status: int, headers: Iterable[Header]) -> None:
        self.status = status
        if self.ignored_fields:
            headers = (*headers, (b"x-convo-ignored", ", ".join(self.ignored_fields).encode()))
        if self.recording_header is not None and (self.records_errors or status < ERROR_STATUS):
            headers = (*headers, self.recording_header)
        duration_ms = b"%d" % (self.duration_s * 1000)
        # Headers of OpenAI's API; its package gives callers the request id.
        common = ((b"x-request-id", self.id.encode()), (b"openai-processing-ms", duration_ms))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *common]})

    async def send_raw(self, message: MutableMapping[str, Any]) -> None:
        """Send an ASGI message without this server's own headers."""
        await self._send(message)

    async def send_chunk(self, body: bytes, *, more_body: bool = True) -> None:
        self.sent_bytes += len(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": more_body})

    async def send_json(self, value: Json, status: int = 200, headers: Iterable[Header] = ()) -> None:
        await self.send_bytes(serialize_strict_json(value), JSON_CONTENT_TYPE, status, headers)

    async def send_bytes(
        self, body: bytes, content_type: bytes, status: int = 200, headers: Iterable[Header] = ()
    ) -> None:
        length = ((b"content-length", b"%d" % len(body)),) if status != NO_CONTENT_STATUS else ()
        await self.start_response(status, ((b"content-type", content_type), *length, *headers))
        await self.send_chunk(body, more_body=False)

    def record_limit(self, event: StreamEvent) -> list[Header]:
        """Return the header with the limit that ended the response with `event`, and record the limit for the log.

        Also records for the log whether the response's text differs from the streamed text.
        """
        self.text_differs = self.text_differs or STREAMED_TEXT_DIFFERS in event
        limit = event.get(LIMIT_FIELD)
        self.limit_name = limit["name"] if limit else self.limit_name
        return [(LIMIT_HEADER, self.limit_name.encode())] if limit else []

    def record_fault(self, fault: ConvoError) -> None:
        """Record the error for the log."""
        self.error_code = fault.code
        self.limit_name = fault.limit if isinstance(fault, LimitReached) else ""

    async def send_error(self, fault: ConvoError) -> None:
        """Respond with the error object of `fault`, under its status."""
        self.record_fault(fault)
        allow = ((b"allow", self.allowed_methods.encode()),) if self.allowed_methods else ()
        await self.send_json(self.build_error_body(fault), fault.status, (*build_error_headers(fault), *allow))

    def build_error_body(self, fault: ConvoError) -> dict[str, Json]:
        """Build the error object of the API that the path belongs to."""
        error = error_object(fault)
        if isinstance(fault, AlreadyDecided):
            error["decision"] = fault.decision
        if not self.is_anthropic:
            return {"error": error}
        error_type = ANTHROPIC_ERROR_TYPES.get(fault.status, "api_error" if fault.status >= 500 else DEFAULT_ERROR_TYPE)
        anthropic_error = {"type": error_type, "message": error["message"]}
        return {"type": "error", "error": anthropic_error, "request_id": self.id}


DEFAULT_ERROR_TYPE = "invalid_request_error"
ANTHROPIC_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The type of an error in Anthropic's API, by its status."""


def parse_json_object(raw: bytes, serve: ServeSettings) -> dict[str, Json]:
    """Parse `raw` as a JSON object within the limits. Raises RequestRefused."""
    if len(raw) > serve.max_body_bytes:
        raise errors.body_too_large_error(serve.max_body_bytes)
    try:
        document = parse_strict_json(raw, depth=serve.max_depth)
    except InvalidJson as error:
        raise errors.invalid_json_error(str(error)) from error
    if not isinstance(document, dict):
        raise errors.body_not_an_object_error()
    for name in ITEM_LIST_FIELDS:
        items = document.get(name)
        if isinstance(items, list) and len(items) > serve.max_items:
            raise errors.too_many_items_error(name, serve.max_items, len(items))
    return document


def build_error_headers(fault: ConvoError) -> list[Header]:
    """Build the headers of an error response."""
    headers: list[Header] = []
    wait_s = getattr(fault, "retry_after_s", None)
    if wait_s is not None:
        # The openai package reads the milliseconds first; other clients know the seconds only.
        headers += [(b"retry-after", b"%d" % ceil(wait_s)), (b"retry-after-ms", b"%d" % (wait_s * 1000))]
    if isinstance(fault, LimitReached):
        headers.append((LIMIT_HEADER, fault.limit.encode()))
    if isinstance(fault, KeyRefused):
        headers.append((b"www-authenticate", b"Bearer"))
    if fault.status in CLOSING_STATUSES:
        headers.append((b"connection", b"close"))
    return headers


def serialize_raw_error(fault: ConvoError, headers: bytes = b"") -> bytes:
    """Serialize an error response that no exchange sends, from its headers on; `headers` are lines of further ones."""
    body = serialize_strict_json({"error": error_object(fault)})
    head = b"content-type: %b\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n"
    return head % (JSON_CONTENT_TYPE, len(body), headers) + body


class InvalidJson(ValueError):
    """Bytes that are not acceptable JSON; the message ends a sentence."""


class JsonTooDeep(InvalidJson):
    """Nested deeper than allowed."""


def parse_strict_json(raw: bytes, *, depth: int) -> Json:
    """Parse the JSON value in `raw`.

    depth:  maximum nesting of objects and arrays

    Raises InvalidJson and JsonTooDeep.
    """
    # Before parsing: 32 MB with eleven million empty objects took 3.7 GB.
    if has_too_many_values(raw):
        raise InvalidJson(f"it contains more than {MAX_JSON_VALUES:,} values")
    try:
        value = JSON_DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidJson(f"byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise JsonTooDeep(f"it is nested deeper than {depth} levels") from error
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from error
    except InvalidJson:
        raise
    except ValueError as error:  # an integer with more digits than Python parses
        raise InvalidJson("a number in it has too many digits") from error
    # The walk is only needed if there are enough brackets.
    if raw.count(b"[") + raw.count(b"{") > depth and _is_deeper(value, depth):
        raise JsonTooDeep(f"it is nested deeper than {depth} levels")
    return value


def serialize_strict_json(value: Json) -> bytes:
    """Serialize `value` as ASCII JSON; every value of `parse_strict_json` is unchanged."""
    return JSON_ENCODER.encode(value).encode("ascii")


def _is_deeper(value: Json, depth: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth):
        level = [child for node in level if isinstance(node, dict | list) for child in _child_values(node)]
        if not level:
            return False
    return any(isinstance(node, dict | list) for node in level)


def _child_values(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _reject_duplicate_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # One pass: comparing each key with all others took minutes for 100,000 keys.
    unique = dict(pairs)
    if len(unique) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = next(name for name in unique if counts[name] > 1)
        raise InvalidJson(f"the key {json.dumps(duplicate[:64])} occurs twice in one object")
    return unique


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
    is_required:    whether it must be given
    """

    name: str
    parse: Callable[[str, str], Any]
    schema: Mapping[str, Json]
    description: str
    is_repeatable: bool = False
    is_required: bool = False


def parse_text_value(name: str, text: str) -> str:
    return text


def parse_integer_value(name: str, text: str) -> int:
    # int() also accepts spaces, underscores and digits of other scripts.
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise errors.http_parameter_type_error(name, "an integer")
    return int(text)


def _parse_boolean_value(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise errors.http_parameter_type_error(name, "a boolean")
    return text == "true"


def _parse_include_value(name: str, text: str) -> str:
    if text not in INCLUDABLE:
        raise errors.http_parameter_value_error(name, text, INCLUDABLE)
    return text


def parse_order_value(name: str, text: str) -> str:
    if text not in ("asc", "desc"):
        raise errors.http_parameter_value_error(name, text, ("asc", "desc"))
    return text


INCLUDE_PARAMETER = QueryParameter(
    "include",
    _parse_include_value,
    REQUEST_FIELDS["include"].schema,
    "Additional fields to return. All stored fields are always returned.",
    is_repeatable=True,
)
PAGE_PARAMETERS = (
    QueryParameter(
        "limit",
        parse_integer_value,
        {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "Maximum number of items on a page.",
    ),
    QueryParameter(
        "order",
        parse_order_value,
        {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
        "Order by age.",
    ),
    QueryParameter("after", parse_text_value, {"type": "string"}, "Return the items after the item with this id."),
    QueryParameter("before", parse_text_value, {"type": "string"}, "Return the items before the item with this id."),
)
LIST_PARAMETERS = (*PAGE_PARAMETERS, INCLUDE_PARAMETER)
STREAM_PARAMETER = QueryParameter(
    "stream", _parse_boolean_value, {"type": "boolean", "default": False}, "Respond with server-sent events."
)
FILE_LIST_PARAMETERS = (
    QueryParameter(
        "limit",
        parse_integer_value,
        {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10_000},
        "Maximum number of items on a page.",
    ),
    QueryParameter(
        "order", parse_order_value, {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "Order by age."
    ),
    QueryParameter("after", parse_text_value, {"type": "string"}, "Return the items after the item with this id."),
    QueryParameter("purpose", parse_text_value, {"type": "string"}, "Return only the files with this purpose."),
)
STARTING_AFTER_PARAMETER = QueryParameter(
    "starting_after",
    parse_integer_value,
    {"type": "integer"},
    "Return the events after this sequence number.",
)
BETA_PARAMETER = QueryParameter(
    "beta", _parse_boolean_value, {"type": "boolean"}, "A parameter of Anthropic's clients; it is passed on."
)
OBFUSCATION_PARAMETER = QueryParameter(
    "include_obfuscation", _parse_boolean_value, {"type": "boolean"}, "Accepted without effect: events have no padding."
)


def parse_query(raw: bytes, parameters: Sequence[QueryParameter]) -> dict[str, Any]:
    """Parse the parameters of a query string, by name; lists as lists.

    Raises RequestRefused for an unknown parameter, a repeated or missing one, or an invalid value.
    """
    if not raw:
        return _require_parameters({}, parameters)
    values: dict[str, Any] = {}
    by_name = {parameter.name: parameter for parameter in parameters}
    for raw_name, text in parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="replace"):
        # The openai package writes lists as include[]=a&include[]=b.
        name = raw_name.removesuffix("[]")
        parameter = by_name.get(name)
        if parameter is None or (raw_name != name and not parameter.is_repeatable):
            raise errors.unknown_http_parameter_error(raw_name)
        if parameter.is_repeatable:
            values.setdefault(name, []).append(parameter.parse(name, text))
        elif name in values:
            raise errors.repeated_parameter_error(name)
        else:
            values[name] = parameter.parse(name, text)
    return _require_parameters(values, parameters)


def _require_parameters(values: dict[str, Any], parameters: Sequence[QueryParameter]) -> dict[str, Any]:
    for parameter in parameters:
        if parameter.is_required and parameter.name not in values:
            raise errors.missing_http_parameter_error(parameter.name)
    return values


def to_page_arguments(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an endpoint's list methods."""
    return {name: value for name, value in query.items() if name != "include"}
