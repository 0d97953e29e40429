"""The screen of a context window and its use."""

import pytest

from convo.inspect.context_window import COUNTED_BY_ENDPOINT, ContextPart, sum_context_usage
from convo.terminal.status_line import format_share
from convo.terminal.terminal import DisplayOptions, text_width
from convo.terminal.usage_views import METER_COLUMNS, context_meter_lines, context_table_lines
from convo.usage.counting import TokenCount
from convo.usage.model_info import ModelWindow

PARTS = (ContextPart("tools", 2, TokenCount(250, False)), ContextPart("your messages", 3, TokenCount(500, True)))


def test_estimates_are_marked_and_counts_are_not() -> None:
    assert list(context_table_lines(sum_context_usage(PARTS, ModelWindow(1_000)), "x/m", DisplayOptions())) == [
        "part           items  tokens",
        "tools              2  250",
        "your messages      3  ~500",
        "~750 tokens, estimated; 75.0% of the context window of 1,000",
    ]


def test_a_meter_shows_the_share_of_each_part_and_the_free_space() -> None:
    lines = list(context_meter_lines(sum_context_usage(PARTS, ModelWindow(1_000)), "x/m", DisplayOptions()))
    assert [line.count("█") for line in lines] == [METER_COLUMNS // 4, METER_COLUMNS // 2, 0, 0]
    assert lines[2].split() == ["free", "250", "25.0%"]
    assert len({line.rindex("%") for line in lines[:3]}) == 1


def test_a_part_without_tokens_has_an_empty_bar() -> None:
    parts = (ContextPart("tools", 1, TokenCount(0, False)), ContextPart("your messages", 1, TokenCount(4, False)))
    usage = sum_context_usage(parts, None)
    assert list(context_meter_lines(usage, "x/m", DisplayOptions(has_box_chars=False)))[:2] == [
        f"  tools          {'.' * METER_COLUMNS}  0  0.0%",
        f"  your messages  {'#' * METER_COLUMNS}  4  100.0%",
    ]


def test_without_a_known_window_the_parts_are_shares_of_the_total() -> None:
    lines = list(context_meter_lines(sum_context_usage(PARTS, None), "x/m", DisplayOptions()))
    assert [line.split()[-1] for line in lines[:2]] == ["33.3%", "66.7%"]
    assert not any("free" in line for line in lines)
    assert lines[-2:] == [
        "  ~750 tokens, estimated; context window unknown",
        "  set it: convo config set 'windows.\"x/m\".context' TOKENS",
    ]


def test_a_total_of_the_endpoint_makes_no_part_larger_than_the_whole() -> None:
    usage = sum_context_usage(PARTS, None)._replace(total=TokenCount(100, False), counted_by=COUNTED_BY_ENDPOINT)
    assert [line.split()[-1] for line in list(context_meter_lines(usage, "x/m", DisplayOptions()))[:2]] == [
        "33.3%",
        "66.7%",
    ]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_meter_fits_and_shows_its_bars(columns: int) -> None:
    parts = (
        ContextPart("calls and outputs", 2, TokenCount(120_000, False)),
        ContextPart("yours", 3, TokenCount(500, True)),
    )
    lines = list(context_meter_lines(sum_context_usage(parts, ModelWindow(400_000)), "x/m", DisplayOptions(columns)))
    assert max(map(text_width, lines)) <= columns
    assert [line.count("█") > 0 for line in lines[:2]] == [True, True]
    small_lines = list(
        context_meter_lines(sum_context_usage(PARTS, ModelWindow(1_000)), "x/m", DisplayOptions(columns))
    )
    assert all("█" in line for line in small_lines[:2])


def test_more_than_the_window_is_a_full_bar_without_free_space() -> None:
    lines = list(
        context_meter_lines(
            sum_context_usage((ContextPart("input", 1, TokenCount(5_000, False)),), ModelWindow(1_000)),
            "x/m",
            DisplayOptions(),
        )
    )
    assert lines[0].count("█") == METER_COLUMNS
    assert lines[1].split() == ["free", "0", "0.0%"]


def test_an_ascii_terminal_gets_a_meter_too() -> None:
    assert all(
        line.isascii()
        for line in context_meter_lines(
            sum_context_usage(PARTS, ModelWindow(1_000)), "x/m", DisplayOptions(has_box_chars=False)
        )
    )


@pytest.mark.parametrize(
    ("tokens", "total", "text"), [(0, 10, "0.0%"), (1, 1_000_000, "<0.1%"), (1, 1_000, "0.1%"), (5, 10, "50.0%")]
)
def test_a_small_share_is_not_shown_as_zero(tokens: int, total: int, text: str) -> None:
    assert format_share(tokens, total) == text
