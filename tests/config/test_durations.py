"""Durations such as `30d`, parsed and formatted."""

import pytest

from convo.config.values import InvalidValue, format_duration_setting, parse_duration, parse_durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("90m", 5_400), ("2h", 7_200), ("30d", 2_592_000), ("1w", 604_800), (" 007d ", 604_800)],
)
def test_a_number_with_a_unit_becomes_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "30", "-1d", "1.5h", "1 d", "1D", "1y", "1d2h", "٣d", "9999999999s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0s", "5300w", "999999999w"])
def test_zero_and_infinite_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="more than 0"):
        parse_duration(text)


def test_some_settings_accept_never() -> None:
    assert parse_durations({"a": "1m", "b": "never"}) == {"a": 60.0, "b": None}


@pytest.mark.parametrize("text", ["1s", "61s", "90m", "2h", "30d", "25h", "14d"])
def test_a_duration_is_formatted_in_its_largest_unit_up_to_days(text: str) -> None:
    assert format_duration_setting(parse_duration(text)) == text
    assert format_duration_setting(parse_duration("2w")) == "14d"
