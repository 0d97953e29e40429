"""Server-sent events are read alike, wherever the network cuts them."""

import pytest

from convo.errors import StreamBroken
from convo.models.line import LONGEST, ServerSent

ENDS = ("\n", "\r\n", "\r")

SENT = (
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

MEANT = ['{"type": "response.created", "words": "für dich"}', " two\nlines", "[DONE]"]


def whole(end: str) -> bytes:
    return end.join(SENT).encode()


@pytest.mark.parametrize("end", ENDS)
def test_each_event_gives_its_data(end: str) -> None:
    assert ServerSent().read(whole(end)) == MEANT


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("end", ENDS)
def test_events_are_the_same_in_pieces_of_any_size(end: str, size: int) -> None:
    sent, raw = ServerSent(), whole(end)

    assert [data for at in range(0, len(raw), size) for data in sent.read(raw[at : at + size])] == MEANT


def test_an_event_is_told_with_the_piece_that_ends_it() -> None:
    sent = ServerSent()

    assert sent.read(b"data: 1\n") == []
    assert sent.read(b"\ndata: 2\r\n\r") == ["1", "2"]
    assert sent.read(b"\ndata: 3\n\n") == ["3"]


def test_bytes_that_are_no_text_are_told_as_such() -> None:
    with pytest.raises(UnicodeDecodeError):
        ServerSent().read(b"data: \xff\n\n")


@pytest.mark.parametrize("piece", [b"data: endless " * 100_000, b"data: x\n" * 100_000])
def test_an_event_that_never_ends_is_not_waited_for(piece: bytes) -> None:
    sent = ServerSent()

    def read() -> None:
        for _ in range(2 * LONGEST // len(piece)):
            sent.read(piece)

    with pytest.raises(StreamBroken, match="more than 64 MB"):
        read()


def test_events_that_end_are_let_go_of_however_many_come() -> None:
    sent = ServerSent()
    for _ in range(80):
        assert len(sent.read(b"data: " + b"x" * 2**20 + b"\n\n: still there\n\n")) == 1
