"""Mutated requests: a valid request with one change.

A mutation changes the JSON (an unexpected value at any place), the bytes, the framing, or the request head.
The result is a raw HTTP/1.1 request, or the text of one WebSocket message.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

HEADERS = (("host", "127.0.0.1"), ("content-type", "application/json"), ("connection", "close"))

PLACEHOLDER = "\x00here\x00"

DEEP = (50, 99, 100, 101, 500, 100_000)

LITERALS: Sequence[str] = (
    *("null", "true", "false", "0", "-1", "1", "1.0", "-0.0", "1e308", "1e309", "-1e999", "1e-999", "NaN", "-Infinity"),
    *("9007199254740993", "1" + "0" * 400, "1" * 5000, "0.1" + "0" * 400, "01", "+1", "0x10", ".5", "1.", "--1"),
    *('""', '"x"', '" "', '"\\u0000"', '"\\ud800"', '"\\udfff\\ud800"', '"\\u202e\\ufeff"', '"\\x"', "'x'", '"', "x"),
    *('"🙂\u2028é\u0301漢"', '"\x01"', '"\n"', '"' + "x" * 70_000 + '"', '"%00../../x"', "\"'; drop table links\""),
    *("[]", "{}", "[[]]", "[{}]", "[null]", "[1]", '["x"]', "[,]", "[1,]", "{,}", '{"a"}', '{"a":1,"a":2}', '{"": 1}'),
    *('{"type":null}', '{"type":"x"}', '[{"type":"message","role":"user"}]', '[{"role":"nobody","content":"x"}]'),
    *('[{"type":"function_call_output","call_id":"c","output":"x"}]', '[{"type":"item_reference","id":"msg_x"}]'),
    *('[{"type":"reasoning"}]', '[{"type":"compaction","encrypted_content":"x"}]', '[{"type":"compaction_trigger"}]'),
    *('[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]', "[" + "1," * 11_000 + "1]"),
    *("[" * depth + "]" * depth for depth in DEEP),
    *('{"a":' * depth + "1" + "}" * depth for depth in DEEP),
)  # fmt: skip
"""Values for any place in a body; some are not valid JSON."""

PATHS = (
    *("/", "//", "/v1", "/v1/", "/v1/responses/", "/v1/responses//", "/v1/nope", "/v1/responses/%00", "/%", "/%zz"),
    *("/v1/responses/..%2f..", "/../../etc/passwd", "/v1/responses/" + "x" * 30_000, "/v1/responses/\xff\xfe", "*"),
    *("/v1/responses/resp_x?limit=1", "/v1/responses/resp_x/input_items?limit=x", "/v1/models/%F0%9F%99%82/x/y"),
    *("/v1/conversations/conv_x/items?limit=" + "9" * 5000, "/v1/conversations/x/items?after=%00&order=up"),
    *(
        "/v1/conversations/x/items?include[]=a&include=b",
        "/v1/responses/x?stream=true&starting_after=-1",
        "http://x/v1",
    ),
)

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "P\x00ST", "")

ODD_HEADERS: Sequence[tuple[str, str]] = (
    *(("content-type", value) for value in ("text/plain", "", "application/json; charset=utf-16", "x" * 9000, "\x00")),
    *(("content-encoding", value) for value in ("gzip", "br", "identity", "x")),
    *(("content-length", size) for size in ("-1", "x", "", "0", "1", "99999999999999999999", "1, 2", "+5", "0x5")),
    *(("transfer-encoding", value) for value in ("chunked", "gzip", "chunked, chunked", "identity", "x")),
    *(("host", name) for name in ("", "evil.example", "127.0.0.1:x", "[::1]", "\xff", "a" * 5000, "localhost:1\tx")),
    *(("origin", name) for name in ("null", "https://evil.example", "http://127.0.0.1", "\xff")),
    *(("authorization", value) for value in ("", "Bearer", "Bearer ", "Basic eDp5", "Bearer \xff", "x" * 70_000)),
    *(("upgrade", protocol) for protocol in ("websocket", "h2c", "TLS/1.3")),
    *(("expect", "100-continue"), ("x-any", "y" * 70_000), ("x y", "z"), ("", "z"), ("x-nul", "\x00"), ("te", "x")),
)  # fmt: skip

NOT_HTTP = (
    *(b"\r\n\r\n", b"hello\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    *(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40, b"\x00" * 100, b"\xff" * 100),
    *(b"GET / HTTP/1.1\r\nhost 127.0.0.1\r\n\r\n", b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", b"{}" * 100 + b"\r\n\r\n"),
)


HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
)
"""A valid request that opens a WebSocket."""


@dataclass(frozen=True)
class Request:
    """A valid request."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RawRequest:
    """The parts of a request on the wire."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def to_bytes(self) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace") + self.body


def frame(request: Request, body: bytes) -> RawRequest:
    headers = (*HEADERS, ("content-length", str(len(body)))) if request.body is not None else HEADERS
    return RawRequest(request.method, request.path, headers, body)


def value_paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value in `value`, parents first."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from value_paths(child, (*path, key))


def replace_at(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """Return `value` with `new` at the path `path`."""
    if not path:
        return new
    if isinstance(value, list):
        return [replace_at(child, path[1:], new) if key == path[0] else child for key, child in enumerate(value)]
    return {key: replace_at(child, path[1:], new) if key == path[0] else child for key, child in value.items()}


@st.composite
def mutated_json(draw: DrawFn, body: Mapping[str, Any]) -> str:
    """Draw `body` as JSON with another value at one of its paths, or with one more or replaced field."""
    literal = draw(st.sampled_from(LITERALS) | st.text().map(json.dumps))
    if draw(st.booleans()):
        return json.dumps(replace_at(body, draw(st.sampled_from(list(value_paths(body)))), PLACEHOLDER)).replace(
            json.dumps(PLACEHOLDER), literal
        )
    name = draw(st.sampled_from(FIELDS) | st.text())
    return json.dumps({**body, name: PLACEHOLDER}).replace(json.dumps(PLACEHOLDER), literal)


FIELDS = (
    *("model", "input", "previous_response_id", "conversation", "store", "stream", "stream_options", "background"),
    *("context_management", "include", "instructions", "max_output_tokens", "metadata", "prompt", "reasoning", "text"),
    *("service_tier", "temperature", "tool_choice", "tools", "top_logprobs", "truncation", "user", "items", "generate"),
    *("limit", "order", "type", "stream_id", "id", "client_metadata", "max_tool_calls", "prompt_cache_options"),
)


@st.composite
def mutated_bytes(draw: DrawFn, raw: bytes) -> bytes:
    """Draw `raw` with up to 20 bytes replaced by up to 20 other bytes."""
    start = draw(st.integers(0, len(raw)))
    end = draw(st.integers(start, min(len(raw), start + 20)))
    return raw[:start] + draw(st.binary(max_size=20)) + raw[end:]


@st.composite
def wrong_json(draw: DrawFn, request: Request) -> RawRequest:
    return frame(request, draw(mutated_json(request.body or {})).encode("utf-8", "surrogatepass"))


@st.composite
def wrong_bytes(draw: DrawFn, request: Request) -> RawRequest:
    good = json.dumps(request.body or {}).encode()
    reencoded = st.sampled_from(
        (b"", b"\xef\xbb\xbf" + good, good.decode().encode("utf-16"), gzip.compress(good), good * 2)
    )
    return frame(request, draw(reencoded | mutated_bytes(good)))


@st.composite
def wrong_head(draw: DrawFn, request: Request) -> RawRequest:
    """Draw another method, path or header. Content-Length stays correct unless the header replaces it."""
    raw = frame(request, json.dumps(request.body or {}).encode())
    match draw(st.integers(0, 3)):
        case 0:
            return replace(raw, method=draw(st.sampled_from(METHODS)))
        case 1:
            return replace(raw, path=draw(st.sampled_from(PATHS)))
        case 2:
            name, value = draw(st.sampled_from(ODD_HEADERS))
            return replace(raw, headers=(*(header for header in raw.headers if header[0] != name), (name, value)))
        case _:
            return replace(raw, headers=(*raw.headers, draw(st.sampled_from(ODD_HEADERS))))


def mutated_requests(requests: Sequence[Request]) -> SearchStrategy[bytes]:
    """Return a strategy for raw requests, most of them mutations of `requests`."""
    valid = st.sampled_from(requests)
    parts = valid.flatmap(lambda request: wrong_json(request) | wrong_bytes(request) | wrong_head(request)).map(
        RawRequest.to_bytes
    )
    good = valid.map(lambda request: frame(request, json.dumps(request.body or {}).encode()).to_bytes())
    return parts | parts | parts | good.flatmap(mutated_bytes) | mutated_bytes(HANDSHAKE) | st.sampled_from(NOT_HTTP)


def mutated_messages(body: Mapping[str, Any]) -> SearchStrategy[str]:
    """Return a strategy for WebSocket messages, most of them mutations of `body`."""
    good = json.dumps(body)
    truncated = st.integers(0, len(good)).map(lambda length: good[:length])
    return mutated_json(body) | mutated_json(body) | truncated | st.text()
