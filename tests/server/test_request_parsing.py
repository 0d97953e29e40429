"""Request parsing before the endpoint: JSON within limits, queries, content headers, and the headers of an error."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from convo.errors import ConvoError, KeyRefused, LimitReached, RequestRefused, TryLater
from convo.server import errors, http
from convo.server.http import ClientConnection, ClientDisconnected, HttpExchange, parse_json_object, parse_strict_json
from tests.clock import FixedClock
from tests.config.settings_inputs import make_settings
from tests.endpoints.endpoint_calls import error_fields

SERVE = make_settings().serve


def body_refusal(raw: bytes, **limits: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parse_json_object(raw, SERVE._replace(**limits))
    return caught.value


# -- JSON -----------------------------------------------------------------------------------------


def test_a_body_is_accepted_up_to_its_limits_and_not_beyond() -> None:
    for name in ("input", "items"):
        two, three = (json.dumps({name: [1] * count}).encode() for count in (2, 3))
        assert parse_json_object(two, SERVE._replace(max_items=2)) == {name: [1, 1]}
        assert error_fields(body_refusal(three, max_items=2)) == ("array_above_max_length", 400, name)
    assert parse_json_object(b'{"tools": [1, 2, 3]}', SERVE._replace(max_items=2))
    assert parse_json_object(b'{"a": 1}', SERVE._replace(max_body_bytes=8)) == {"a": 1}
    large = body_refusal(b'{"a": 1} ', max_body_bytes=8)
    assert (large.message, large.code, large.status) == (
        "The body of your request is larger than 8 bytes",
        "request_too_large",
        413,
    )


@pytest.mark.parametrize(
    ("raw", "depth", "accepted"),
    [
        (b"[[1]]", 2, True),
        (b"[[1]]", 1, False),
        (b'{"a": {"b": [1]}}', 3, True),
        (b'{"a": {"b": [1]}}', 2, False),
        (b"[[], [], [], []]", 2, True),
        (b'{"a": 1, "b": [{}]}', 3, True),
        (b'{"a": 1, "b": [{}]}', 2, False),
        (b"7", 0, True),
        (b"[]", 0, False),
    ],
)
def test_nesting_is_counted_in_objects_and_arrays(raw: bytes, depth: int, accepted: bool) -> None:
    if accepted:
        assert parse_strict_json(raw, depth=depth) == json.loads(raw)
        return
    with pytest.raises(http.JsonTooDeep, match=f"it is nested deeper than {depth} levels"):
        parse_strict_json(raw, depth=depth)


def test_half_a_million_values_are_accepted_and_one_more_is_not() -> None:
    def values(count: int) -> bytes:
        return b"[" + b"1," * (count - 1) + b"1]"

    assert len(parse_strict_json(values(500_000), depth=1)) == 500_000
    with pytest.raises(http.InvalidJson, match="it contains more than 500,000 values"):
        parse_strict_json(values(500_001), depth=1)


def test_the_time_to_refuse_a_repeated_key_grows_with_the_number_of_keys() -> None:
    """The refusal compared each key with all others: 100,000 keys took minutes."""
    raw = b'{"k0": 0, ' + b", ".join(b'"k%d": 0' % number for number in range(1, 100_000)) + b', "k99999": 1}'
    with pytest.raises(http.InvalidJson, match='the key "k99999" occurs twice'):
        parse_strict_json(raw, depth=3)


@pytest.mark.parametrize("text", ['"' * 3, "\\" * 3, '\\"[', ",[{"], ids=ascii)
def test_signs_inside_text_are_no_values(text: str) -> None:
    document = {"a": text * 300_000}
    assert parse_strict_json(json.dumps(document).encode(), depth=1) == document


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a": 1, "a": 2}', 'the key "a" occurs twice in one object'),
        (b'{"a": 1, "b": 1, "b": 2}', 'the key "b" occurs twice in one object'),
        (b'{"%b": 1, "%b": 2}' % (b"k" * 65, b"k" * 65), f'the key "{"k" * 64}" occurs twice in one object'),
        (b"1e999", "a number in it is larger than any double"),
        (b"-1e999", "a number in it is larger than any double"),
        (b"Infinity", "Infinity is not JSON"),
        (b"NaN", "NaN is not JSON"),
        (b"9" * 5000, "a number in it has too many digits"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b"\n\n  x", "Expecting value at line 3, column 3"),
        (b"[" * 100_000, "it is nested deeper than 3 levels"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_that_readers_could_read_differently_is_refused_with_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(http.InvalidJson) as caught:
        parse_strict_json(raw, depth=3)
    assert str(caught.value) == reason


def test_json_is_written_in_ascii_without_spaces() -> None:
    value = {"a": [1, 2.5, None, True], "ü": "\ud83d"}
    data = http.serialize_strict_json(value)
    assert data == b'{"a":[1,2.5,null,true],"\\u00fc":"\\ud83d"}'
    assert parse_strict_json(data, depth=2) == value
    with pytest.raises(ValueError, match="JSON"):
        http.serialize_strict_json(float("nan"))


# -- queries --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("-7", -7), ("0", 0), ("9" * 18, 10**18 - 1), ("-" + "9" * 18, 1 - 10**18)],
)
def test_an_integer_of_a_query_has_up_to_eighteen_digits(text: str, number: int) -> None:
    assert http.parse_integer_value("limit", text) == number


@pytest.mark.parametrize("text", ["", "-", "--1", "+1", "1.0", " 1", "1_0", "9" * 19, "\u0661"], ids=ascii)
def test_anything_else_is_no_integer_of_a_query(text: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        http.parse_integer_value("limit", text)
    assert (caught.value.message, error_fields(caught.value)) == (
        "Invalid type for 'limit': expected an integer",
        ("invalid_type", 400, "limit"),
    )


def test_a_boolean_of_a_query_is_true_or_false() -> None:
    with pytest.raises(RequestRefused, match="Invalid type for 'stream': expected a boolean"):
        http.parse_query(b"stream=True", (http.STREAM_PARAMETER,))


# -- one exchange ---------------------------------------------------------------------------------


class Wire:
    """The ASGI side of one request: the chunks to receive, and the messages that were sent."""

    def __init__(self, *chunks: bytes | None, headers: dict[str, str] | None = None, clock: FixedClock | None = None):
        """`None` in `chunks` is a disconnect of the client."""
        self.sent: list[dict[str, Any]] = []
        self._chunks = list(chunks)
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.exchange = HttpExchange(
            {"type": "http", "method": "POST", "headers": pairs},
            self._receive,
            self._send,  # type: ignore[arg-type]  # plain dicts instead of ASGI messages
            request_id="req_1",
            clock=clock or FixedClock(),
        )

    async def _receive(self) -> dict[str, Any]:
        chunk = self._chunks.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])


JSON_HEADERS = {"content-type": "application/json"}


async def body_error(wire: Wire, **limits: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        await wire.exchange.read_json_body(SERVE._replace(**limits), optional=False)
    return caught.value


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        " application/json ; charset=utf-8",
        'application/json; charset="UTF-8"',
        "application/json; charset=utf8",
        "application/json; charset= utf-8 ",
        "application/json; x=1",
    ],
)
async def test_a_body_is_json_in_utf_8(content_type: str) -> None:
    wire = Wire(b'{"a"', b": 1}", headers={"content-type": content_type, "content-encoding": "Identity"})
    assert (await wire.exchange.read_json_body(SERVE, optional=False))[1] == {"a": 1}


async def test_a_body_in_another_encoding_is_refused() -> None:
    content_type = "application/json; charset=latin-1"
    error = await body_error(Wire(b"{}", headers={"content-type": content_type}))
    assert error.message.startswith(f"Unsupported content type: '{content_type}'")


async def test_an_optional_body_may_be_empty_and_needs_no_type_then() -> None:
    assert (await Wire(b"").exchange.read_json_body(SERVE, optional=True))[1] == {}
    with pytest.raises(RequestRefused):
        await Wire(b"{}").exchange.read_json_body(SERVE, optional=True)
    assert (await body_error(Wire(b"", headers=JSON_HEADERS))).message.endswith("Expecting value at line 1, column 1")


async def test_a_body_is_limited_by_its_announced_and_by_its_real_size() -> None:
    for headers in ({"content-length": "8"}, {"content-length": "x"}, {}):
        wire = Wire(b'{"a"', b": 1}", headers={**JSON_HEADERS, **headers})
        assert (await wire.exchange.read_json_body(SERVE._replace(max_body_bytes=8), optional=False))[1] == {"a": 1}
    for announced in ("9", "9" * 5000):
        wire = Wire(b"{}", headers={**JSON_HEADERS, "content-length": announced})
        assert (await body_error(wire, max_body_bytes=8)).status == 413
    assert (await body_error(Wire(b'{"a":', b" 1} ", headers=JSON_HEADERS), max_body_bytes=8)).status == 413


async def test_a_large_body_is_read_as_a_small_one() -> None:
    """A large body is parsed in a thread."""
    document = {"a": "x" * 300_000}
    wire = Wire(json.dumps(document).encode(), headers=JSON_HEADERS)
    assert (await wire.exchange.read_json_body(SERVE, optional=False))[1] == document


async def test_a_client_that_disconnects_before_its_body_is_complete_gets_no_response() -> None:
    with pytest.raises(ClientDisconnected):
        await Wire(b"{", None, headers=JSON_HEADERS).exchange.read_json_body(SERVE, optional=False)


async def test_a_response_has_its_id_its_duration_and_its_length() -> None:
    clock = FixedClock()
    wire = Wire(clock=clock)
    assert wire.exchange.status == 0
    clock.advance(0.25)
    await wire.exchange.send_json({"a": "ü"}, 201, [(b"x-more", b"1")])
    assert wire.sent[0] == {
        "type": "http.response.start",
        "status": 201,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", b"14"),
            (b"x-more", b"1"),
            (b"x-request-id", b"req_1"),
            (b"openai-processing-ms", b"250"),
        ],
    }
    assert wire.sent[1:] == [{"type": "http.response.body", "body": b'{"a":"\\u00fc"}', "more_body": False}]
    assert (wire.exchange.status, wire.exchange.duration_s) == (201, 0.25)


async def test_a_response_without_content_has_no_length() -> None:
    wire = Wire()
    await wire.exchange.send_bytes(b"", b"image/x-icon", 204)
    assert (b"content-length" in wire.headers, wire.sent[0]["status"]) == (False, 204)


async def test_an_error_is_sent_and_kept_for_the_log() -> None:
    wire = Wire()
    wire.exchange.allowed_methods = "GET, HEAD"
    await wire.exchange.send_error(errors.method_not_allowed_error("PUT", "/x", "GET, HEAD"))
    assert (wire.sent[0]["status"], wire.headers[b"allow"]) == (405, b"GET, HEAD")
    assert json.loads(wire.body)["error"]["code"] == "method_not_supported"
    assert (wire.exchange.error_code, wire.exchange.limit_name) == ("method_not_supported", "")
    limited = Wire()
    await limited.exchange.send_error(LimitReached("answer_s", 5))
    assert (limited.exchange.error_code, limited.exchange.limit_name) == ("limit_reached", "limits.answer_s")
    assert (limited.headers[b"x-convo-limit"], b"allow" in limited.headers) == (b"limits.answer_s", False)


def test_the_last_event_tells_the_log_why_a_response_ended() -> None:
    exchange = Wire().exchange
    assert exchange.record_limit({"type": "response.completed"}) == []
    assert (exchange.limit_name, exchange.text_differs) == ("", False)
    limited = {"type": "response.incomplete", "limit": {"name": "limits.answer_s", "message": "slow"}}
    assert exchange.record_limit(limited) == [(b"x-convo-limit", b"limits.answer_s")]
    assert exchange.record_limit({"type": "x", "streamed_text_differs": True}) == []
    assert (exchange.limit_name, exchange.text_differs) == ("limits.answer_s", True)
    exchange.record_limit({"type": "x"})
    assert exchange.text_differs


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (RequestRefused("no"), []),
        (TryLater("busy", retry_after_s=1.25), [(b"retry-after", b"2"), (b"retry-after-ms", b"1250")]),
        (TryLater("busy", retry_after_s=0.0), [(b"retry-after", b"0"), (b"retry-after-ms", b"0")]),
        (TryLater("busy"), []),
        (KeyRefused("no"), [(b"www-authenticate", b"Bearer")]),
        (LimitReached("answer_s", 5), [(b"x-convo-limit", b"limits.answer_s")]),
        (errors.not_ready_error(), [(b"retry-after", b"1"), (b"retry-after-ms", b"1000")]),
        (errors.request_timeout_error(1), [(b"connection", b"close")]),
        (errors.body_too_large_error(1), [(b"connection", b"close")]),
        (errors.headers_too_large_error(1), [(b"connection", b"close")]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_headers_of_an_error_tell_a_client_what_to_do(
    error: ConvoError, headers: list[tuple[bytes, bytes]]
) -> None:
    assert http.build_error_headers(error) == headers


def test_an_error_without_a_request_is_a_whole_response() -> None:
    raw = http.serialize_raw_error(errors.invalid_http_error(), b"x-request-id: req_1\r\n")
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"x-request-id: req_1",
        b"connection: close",
    ]
    assert json.loads(body)["error"]["message"] == "The request is not an HTTP/1.1 request."


def test_a_client_that_disconnects_is_reported_once_and_late_listeners_at_once() -> None:
    calls: list[str] = []

    def recorder(name: str) -> Callable[[], object]:
        return lambda: calls.append(name)

    connection = ClientConnection()
    connection.set_close_callback(recorder("first"))
    assert (connection.closed, calls) == (False, [])
    connection.close()
    connection.close()
    assert (connection.closed, calls) == (True, ["first"])
    connection.set_close_callback(recorder("late"))
    assert calls == ["first", "late"]
    other = ClientConnection()
    other.set_close_callback(recorder("never"))
    other.set_close_callback(None)
    other.close()
    assert (other.closed, calls) == (True, ["first", "late"])
