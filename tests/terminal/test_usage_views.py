"""The lines of /usage and /cost."""

from dataclasses import replace

from convo.config.sections import Price
from convo.terminal.usage_views import cost_lines, format_session_usage
from tests.terminal.test_receipt import LINK, usage

PRICES = {"openai/gpt-5": Price(input=10.0, output=20.0, cached=5.0)}
FIRST = replace(LINK, usage=usage(1_000, 200, cached=400, reasoning=50))
SECOND = replace(LINK, id="resp_2", sent_count=3, usage=usage(1_500, 100))
UNPRICED = replace(SECOND, model="local/model")
UNREPORTED = replace(LINK, id="resp_3")
STOPPED = replace(UNREPORTED, status="cancelled")


def test_before_the_first_request_there_are_no_requests() -> None:
    assert format_session_usage([], PRICES) == "  no requests yet"
    assert [*cost_lines([], [], PRICES)] == ["no requests yet"]


def test_a_stopped_request_without_tokens_is_counted() -> None:
    assert format_session_usage([STOPPED], PRICES).splitlines() == [
        "  last     cancelled, tokens not reported",
        "  session  1 request, tokens not reported",
    ]
    assert [*cost_lines([STOPPED], [STOPPED], PRICES)] == ["cost unknown: 1 request without reported tokens"]
    assert format_session_usage([STOPPED, FIRST], {}).splitlines()[1] == (
        "  session  1 request · 1,000 input (400 cached) · 200 output (50 reasoning) · 1 more without reported tokens"
    )


def test_usage_has_a_line_for_the_last_request_and_one_for_the_session() -> None:
    assert format_session_usage([FIRST], PRICES).splitlines() == [
        "  last     1,000 input (400 cached) · 200 output (50 reasoning) · $0.0120",
        "  session  1 request · 1,000 input (400 cached) · 200 output (50 reasoning) · $0.0120",
    ]
    assert format_session_usage([FIRST, SECOND], PRICES).splitlines() == [
        "  last     1,500 input · 100 output · $0.0170",
        "  session  2 requests · 2,500 input (400 cached) · 300 output (50 reasoning) · $0.0290",
    ]
    assert format_session_usage([FIRST, UNREPORTED], {}).splitlines() == [
        "  last     completed, tokens not reported",
        "  session  1 request · 1,000 input (400 cached) · 200 output (50 reasoning) · 1 more without reported tokens",
    ]


def test_cost_is_the_sum_and_that_of_the_turn() -> None:
    assert [*cost_lines([FIRST, SECOND], [SECOND], PRICES)] == ["$0.0290 for 2 requests; last turn $0.0170"]
    assert [*cost_lines([FIRST, SECOND], [FIRST, SECOND], PRICES, "this turn")] == [
        "$0.0290 for 2 requests; this turn $0.0290 for 2 requests"
    ]
    assert [*cost_lines([FIRST, UNREPORTED], [UNREPORTED], PRICES)] == [
        "$0.0120 for 1 request; 1 more without reported tokens"
    ]


def test_models_without_a_price_are_named_once() -> None:
    line = "no price for local/model; add it under [prices] in config.toml"
    assert [*cost_lines([UNPRICED, UNPRICED], [UNPRICED], PRICES)] == [line]
    assert [*cost_lines([FIRST, UNPRICED, UNPRICED], [UNPRICED], PRICES)][-1] == line


def test_requests_without_a_price_leave_the_cost_of_the_others_as_a_lower_bound() -> None:
    links = [FIRST, UNPRICED, replace(SECOND, id="resp_4")]
    cost = "at least $0.0290 (1 of 3 requests has no price)"
    assert format_session_usage(links, PRICES).splitlines()[1].endswith(f" · {cost}")
    assert [*cost_lines(links, links[-1:], PRICES)] == [
        f"{cost}; last turn $0.0170",
        "no price for local/model; add it under [prices] in config.toml",
    ]
