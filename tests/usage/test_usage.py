"""The usage of a call, parsed from the report of any endpoint, and its cost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.config.sections import Price
from convo.usage.cost import Usage

USAGE = {
    "input_tokens": 1_000,
    "input_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 0},
    "output_tokens": 200,
    "output_tokens_details": {"reasoning_tokens": 150},
    "total_tokens": 1_200,
}


def test_a_usage_object_is_read_with_its_details() -> None:
    assert Usage.from_json(USAGE) == Usage(
        input_tokens=1_000, cached_tokens=400, output_tokens=200, reasoning_tokens=150
    )


@pytest.mark.parametrize("reported", [None, {}], ids=["null", "empty"])
def test_missing_usage_is_not_zero_usage(reported: Any) -> None:
    assert Usage.from_json(reported) is None


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ({"input_tokens": 7, "output_tokens": 3}, Usage(input_tokens=7, output_tokens=3)),
        ({"input_tokens": 7, "input_tokens_details": None, "output_tokens": None}, Usage(input_tokens=7)),
        ({"input_tokens": 7, "input_tokens_details": {"cached_tokens": None}}, Usage(input_tokens=7)),
        ({"output_tokens": 3, "output_tokens_details": {}, "cost": 0.1}, Usage(output_tokens=3)),
        ({"input_tokens": 10**400, "output_tokens": 3}, Usage(output_tokens=3)),
        (
            {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2}},
            Usage(input_tokens=9, cached_tokens=1, cache_write_tokens=2),
        ),
        (
            {"input_tokens": 9, "input_tokens_details": {"cache_write_tokens": 5, "cache_write_1h_tokens": 3}},
            Usage(input_tokens=9, cache_write_tokens=5, cache_write_1h_tokens=3),
        ),
    ],
    ids=[
        "no details",
        "null details",
        "null in the details",
        "additional fields",
        "more than any response uses",
        "cache writes",
        "writes for an hour",
    ],
)
def test_fields_that_an_endpoint_omits_count_as_zero(reported: Any, found: Usage) -> None:
    assert Usage.from_json(reported) == found


def test_cached_tokens_cost_their_own_price_and_are_not_paid_twice() -> None:
    price = Price(input=1.0, cached=0.1, output=10.0)
    cost_usd = Usage(
        input_tokens=1_000_000, cached_tokens=400_000, output_tokens=200_000, reasoning_tokens=150_000
    ).cost_usd(price)
    assert cost_usd == pytest.approx(0.6 + 0.04 + 2.0)


def test_a_million_tokens_cost_exactly_the_price() -> None:
    price = Price(input=3.0, cached=0.5, output=15.0, written=4.0)
    million = 1_000_000
    for usage, cost_usd in [
        (Usage(input_tokens=million), 3.0),
        (Usage(input_tokens=million, cached_tokens=million), 0.5),
        (Usage(input_tokens=million, cache_write_tokens=million), 4.0),
        (Usage(output_tokens=million), 15.0),
    ]:
        assert usage.cost_usd(price) == cost_usd


def test_the_tokens_of_two_calls_are_added_by_kind() -> None:
    first = Usage(input_tokens=1, cached_tokens=2, output_tokens=3, reasoning_tokens=4, cache_write_tokens=5)
    second = Usage(input_tokens=10, cached_tokens=20, output_tokens=30, reasoning_tokens=40, cache_write_tokens=50)
    assert first + second == Usage(
        input_tokens=11, cached_tokens=22, output_tokens=33, reasoning_tokens=44, cache_write_tokens=55
    )


def test_without_a_price_the_cost_is_unknown_and_not_zero() -> None:
    assert Usage(input_tokens=1).cost_usd(None) is None
    assert Usage().cost_usd(Price(1.0, 1.0, 1.0)) == 0


COUNT = some.integers(0, 10**9)
AMOUNT = some.floats(0, 1_000)


@given(COUNT, COUNT, COUNT, AMOUNT, AMOUNT)
def test_caching_never_makes_a_call_dearer_than_its_input_price(
    fresh: int, cached: int, output: int, usd: float, cheaper: float
) -> None:
    price = Price(input=usd, output=1.0, cached=min(usd, cheaper))
    uncached = Usage(input_tokens=fresh + cached, output_tokens=output).cost_usd(price)
    got = Usage(input_tokens=fresh + cached, cached_tokens=cached, output_tokens=output).cost_usd(price)
    assert uncached is not None
    assert got is not None
    assert 0 <= got <= uncached * (1 + 1e-12)


@pytest.mark.parametrize(
    "odd",
    [
        {"input_tokens": "many", "output_tokens": True},
        {"input_tokens": -5, "input_tokens_details": 3, "output_tokens_details": ["x"]},
        {"input_tokens": 1.5, "input_tokens_details": {"cached_tokens": {}}},
        {"input_tokens": -1, "output_tokens": 0, "input_tokens_details": {"cached_tokens": False}},
    ],
)
def test_invalid_token_counts_count_as_zero(odd: Any) -> None:
    assert Usage.from_json(odd) == Usage()
