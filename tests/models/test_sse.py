"""Server-sent events are parsed the same way for any chunk boundaries, up to the size limits."""

import asyncio
import json
from codecs import BOM_UTF8
from itertools import pairwise

import pytest

from convo.errors import LimitReached
from convo.models.http import RoundRobin, SSEDecoder, parse_large_json

ENDS = ("\n", "\r\n", "\r")

LINES = (
    ": a comment",
    "event: response.created",
    'data: {"type": "response.created", "words": "für dich"}',
    "id: 1",
    "",
    "",
    "event: only a name",
    "",
    "data:  two",
    "data:lines",
    "",
    "data: [DONE]",
    "",
    "data: never ended",
)

EXPECTED = ['{"type": "response.created", "words": "für dich"}', " two\nlines", "[DONE]"]


def stream_bytes(end: str) -> bytes:
    return end.join(LINES).encode()


@pytest.mark.parametrize("end", ENDS)
def test_each_event_yields_its_data(end: str) -> None:
    assert SSEDecoder().feed(stream_bytes(end)) == EXPECTED


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("end", ENDS)
def test_chunks_of_any_size_yield_the_same_events(end: str, size: int) -> None:
    decoder, raw = SSEDecoder(), stream_bytes(end)

    assert [data for index in range(0, len(raw), size) for data in decoder.feed(raw[index : index + size])] == EXPECTED


@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_a_leading_byte_order_mark_is_ignored(size: int) -> None:
    decoder, raw = SSEDecoder(), BOM_UTF8 + b"data: first\n\ndata: " + BOM_UTF8 + b"second\n\n"

    found = [data for index in range(0, len(raw), size) for data in decoder.feed(raw[index : index + size])]

    assert found == ["first", "\ufeffsecond"]


def test_an_event_is_yielded_with_the_chunk_that_ends_it() -> None:
    decoder = SSEDecoder()

    assert decoder.feed(b"data: 1\n") == []
    assert decoder.feed(b"\ndata: 2\r\n\r") == ["1", "2"]
    assert decoder.feed(b"\ndata: 3\n\n") == ["3"]


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        ([b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n"], ["1\n2"]),
        ([b"data: 1\r", b"data: 2\r", b"\r"], ["1\n2"]),
        ([b"data: 1\n", b"\n", b"data: 2\n\n"], ["1", "2"]),
    ],
)
def test_a_line_break_that_is_split_between_chunks_is_one(chunks: list[bytes], events: list[str]) -> None:
    decoder = SSEDecoder()
    assert [event for chunk in chunks for event in decoder.feed(chunk)] == events


def test_bytes_that_are_no_text_are_reported() -> None:
    with pytest.raises(UnicodeDecodeError):
        SSEDecoder().feed(b"data: \xff\n\n")


@pytest.mark.parametrize("piece", [b"data: endless " * 10_000, b"data: x\n" * 10_000])
def test_an_event_beyond_the_size_limit_is_refused(piece: bytes) -> None:
    decoder = SSEDecoder(2**20)

    def read() -> None:
        for _ in range(2 * 2**20 // len(piece) * 4):
            decoder.feed(piece)

    with pytest.raises(LimitReached, match=r"limits\.event_bytes = 1048576"):
        read()


def test_the_memory_of_completed_events_is_freed() -> None:
    decoder = SSEDecoder()
    for _ in range(80):
        assert len(decoder.feed(b"data: " + b"x" * 2**20 + b"\n\n: still there\n\n")) == 1


VALUES = (
    "1", "-2.5e3", "null", "true", '"a\\u00e9\\n"', "[]", "{}", " [ ] ", '{"a": [], "b": {}, "c": [1, {"d": null}]}',
    '[[[1], 2], {"a": {"b": [3]}}]', '{"a":1,"a":2}',
)  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
async def test_a_large_event_is_parsed_like_any_other(text: str) -> None:
    many = f"[{','.join([text] * 300)}]"

    assert await parse_large_json(text, 2**20) == json.loads(text)
    assert await parse_large_json(many, 2**20) == json.loads(many)


@pytest.mark.parametrize(
    "text", ["", "[", "{", "[1", "[1,", "[1,]", "[,1]", '{"a"}', '{"a":}', '{"a":1', "{1:2}", "[1 2]", "1 2", "]", "[}"]
)
async def test_a_large_event_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        await parse_large_json(text, 2**20)


async def test_an_event_with_too_many_values_is_not_parsed() -> None:
    with pytest.raises(LimitReached, match=r"limits\.event_bytes"):
        await parse_large_json("[" + "[]," * 50_000 + "0]", 2**20)


@pytest.mark.parametrize("text", ["[" + "[]," * 10_000 + "0]", '{"a": {"b":' * 2_000 + "1" + "}}" * 2_000])
async def test_other_tasks_run_while_a_large_event_is_parsed(text: str) -> None:
    tick_count = 0

    async def other() -> None:
        nonlocal tick_count
        while True:
            tick_count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await parse_large_json(text, 2**22)
    task.cancel()

    assert tick_count >= 2


@pytest.mark.parametrize(
    "data", [b"data: " + b"x" * 94, b"data: " + b"x" * 99 + b"\n", b"data:x\n\ndata: " + b"x" * 94]
)
def test_an_event_may_be_as_long_as_the_limit_and_no_longer(data: bytes) -> None:
    assert SSEDecoder(100).feed(data) is not None
    with pytest.raises(LimitReached, match=r"limits\.event_bytes = 99$"):
        SSEDecoder(99).feed(data)


@pytest.mark.parametrize(("text", "values"), [("1", 1), ("[1, 2, {}]", 4), ('{"a": [], "b": 1}', 3)])
async def test_an_event_may_have_as_many_values_as_the_limit_and_no_more(text: str, values: int) -> None:
    size = len(text) + 64 * values

    assert await parse_large_json(text, size) == json.loads(text)
    with pytest.raises(LimitReached, match=rf"limits\.event_bytes = {size - 1}$"):
        await parse_large_json(text, size - 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1 2]", "a comma or the end is missing"),
        ("{1:2}", "a name is missing"),
        ('{"a" 1}', "a colon is missing"),
        ("1 2", "extra data after the value"),
    ],
)
async def test_the_error_names_the_missing_piece(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        await parse_large_json(text, 2**20)


@pytest.mark.parametrize("text", [' { "a" : [ 1 , 2 ] , "b" :\t{ } }\r\n', '{"a":{"b":1},"c":[[]],"d":{"e":{}}}'])
async def test_spaces_and_the_ends_of_inner_values_are_skipped(text: str) -> None:
    assert await parse_large_json(text, 2**20) == json.loads(text)


async def test_one_waiting_stream_runs_in_each_pass_of_the_event_loop() -> None:
    streams = RoundRobin()
    order: list[str] = []

    async def wait(name: str) -> None:
        await streams.wait_turn()
        order.append(name)

    async def run(*names: str) -> list[int]:
        """Return the number of streams that ran before each pass of the loop."""
        tasks = {name: asyncio.create_task(wait(name)) for name in names}
        await asyncio.sleep(0)
        tasks["cancelled"].cancel()
        counts = []
        while not all(task.done() for task in tasks.values()):
            counts.append(len(order))
            await asyncio.sleep(0)
        order.clear()
        return counts

    for _ in range(2):
        counts = await run("a", "cancelled", "b", "c")
        assert {later - earlier for earlier, later in pairwise(counts)} <= {0, 1}
        assert counts[-1] == 2
