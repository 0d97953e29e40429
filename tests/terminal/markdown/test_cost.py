"""The cost of an answer is proportional to its length, in bytes to the terminal and in characters that are parsed."""

import pytest

from convo.terminal.markdown import MAX_TEXT_CHARS, MarkdownOptions, MarkdownStream
from tests.bench.markdown import KINDS, Cost, make_text, naive, streaming
from tests.call_count import CallCount

PIECE = 64

MAX_OPEN_CHARS = MAX_TEXT_CHARS + 2 * PIECE
"""Maximum of open characters: a paragraph that is as long as it may be."""


def costs(kind: str, *lengths: int) -> list[Cost]:
    return [streaming(make_text(kind, length), PIECE) for length in lengths]


def check_costs(small: Cost, large: Cost) -> None:
    assert large.written_per_char < 1.25 * small.written_per_char + 0.05
    assert large.most_open < MAX_OPEN_CHARS
    assert large.examined_per_char < 1.25 * small.examined_per_char + 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_answer_costs_no_more_per_character(kind: str) -> None:
    check_costs(*costs(kind, 5_000, 15_000))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_megabyte_costs_no_more_per_character_than_ten_kilobytes(kind: str) -> None:
    check_costs(*costs(kind, 10_000, 1_000_000))


def test_redrawing_everything_has_quadratic_cost() -> None:
    """The baseline of the benchmark: an answer of twice the length has twice the cost per character."""
    small, large = (naive(make_text("answer", length), 250) for length in (3_000, 6_000))
    assert large.written_per_char > 1.6 * small.written_per_char
    assert large.examined_per_char > 1.6 * small.examined_per_char


def count_calls(text: str) -> int:
    stream = MarkdownStream(MarkdownOptions())
    stream.feed(text)
    with CallCount() as calls:
        stream.render_open()
    return calls.total


@pytest.mark.parametrize("marks", ["[", "![", "[a ", "![[]()"])
def test_open_brackets_cost_no_search_for_their_ends(marks: str) -> None:
    text = marks * 150
    count_calls(text)
    assert count_calls(text) < 30 * len(text)


def test_a_link_has_its_address_also_in_brackets() -> None:
    stream = MarkdownStream(MarkdownOptions(has_links=False))
    stream.feed("[" * 10 + "[see](http://a.b)" + "]" * 10)
    assert "see (http://a.b)" in "".join(stream.finish())
