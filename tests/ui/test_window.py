"""A window on a screen."""

import pytest

from convo.inspection.window import ENDPOINT, Part, filled
from convo.tokens import Count, Window
from convo.ui.bar import share
from convo.ui.medium import Medium, width
from convo.ui.window import METER, meter, table

PARTS = (Part("tools", 2, Count(250, False)), Part("your messages", 3, Count(500, True)))


def test_estimates_are_marked_and_counts_are_not() -> None:
    assert list(table(filled(PARTS, Window(1_000)), Medium())) == [
        "part           items  tokens",
        "tools              2  250",
        "your messages      3  ~500",
        "~750 tokens, an estimate; 75.0% of a window of 1,000",
    ]


def test_a_meter_shows_the_share_of_each_part_and_what_is_free() -> None:
    lines = list(meter(filled(PARTS, Window(1_000)), Medium()))
    assert [line.count("█") for line in lines] == [METER // 4, METER // 2, 0, 0]
    assert lines[2].split() == ["free", "250", "25.0%"]
    assert len({line.rindex("%") for line in lines[:3]}) == 1


def test_without_a_window_the_parts_are_shares_of_the_sum() -> None:
    lines = list(meter(filled(PARTS, None), Medium()))
    assert [line.split()[-1] for line in lines[:2]] == ["33.3%", "66.7%"]
    assert not any("free" in line for line in lines)


def test_a_sum_that_somebody_else_counted_makes_no_part_more_than_the_whole() -> None:
    counted = filled(PARTS, None)._replace(total=Count(100, False), by=ENDPOINT)
    assert [line.split()[-1] for line in list(meter(counted, Medium()))[:2]] == ["33.3%", "66.7%"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_meter_fits_and_shows_its_bars(columns: int) -> None:
    wide = (Part("calls and outputs", 2, Count(120_000, False)), Part("yours", 3, Count(500, True)))
    lines = list(meter(filled(wide, Window(400_000)), Medium(columns)))
    assert max(map(width, lines)) <= columns
    assert [line.count("█") > 0 for line in lines[:2]] == [True, True]
    small = list(meter(filled(PARTS, Window(1_000)), Medium(columns)))
    assert all("█" in line for line in small[:2])


def test_more_than_the_window_is_a_full_bar_and_nothing_is_free() -> None:
    lines = list(meter(filled((Part("input", 1, Count(5_000, False)),), Window(1_000)), Medium()))
    assert lines[0].count("█") == METER
    assert lines[1].split() == ["free", "0", "0.0%"]


def test_an_ascii_terminal_gets_a_meter_too() -> None:
    assert all(line.isascii() for line in meter(filled(PARTS, Window(1_000)), Medium(boxes=False)))


@pytest.mark.parametrize(
    ("tokens", "whole", "said"), [(0, 10, "0.0%"), (1, 1_000_000, "<0.1%"), (1, 1_000, "0.1%"), (5, 10, "50.0%")]
)
def test_a_share_is_never_none_when_it_is_something(tokens: int, whole: int, said: str) -> None:
    assert share(tokens, whole) == said
