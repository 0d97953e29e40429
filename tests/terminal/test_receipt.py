"""The receipt: one line for each turn."""

from dataclasses import replace

import pytest

from convo.config.sections import Price
from convo.history.items import Json
from convo.history.records import Link, LinkStatus, Session, Strategy
from convo.history.tree import root_key
from convo.terminal.status_line import LoadingTime, combine_links, format_owner_handle, format_receipt

ROOT = root_key("local")
LINK = Link(
    id="resp_1",
    input_head=ROOT,
    head=ROOT,
    sent_count=1,
    model="openai/gpt-5",
    strategy=Strategy.SESSION,
    status="completed",
    created_at=0.0,
    duration_s=1.25,
)
SESSION = Session("ses_1", "mine", Strategy.SESSION, "openai/gpt-5", ROOT, ROOT, 0.0, 0.0)


def usage(
    input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0, with_details: bool = True
) -> dict[str, Json]:
    """A usage object; `with_details`: with the details that an endpoint may omit."""
    details = {
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }
    return {"input_tokens": input_tokens, "output_tokens": output_tokens, **(details if with_details else {})}


def test_unknown_figures_are_omitted() -> None:
    assert format_receipt(replace(LINK, id="try_1", duration_s=None), SESSION) == "session mine"


def test_cached_and_reasoning_tokens_are_shown_if_there_are_any() -> None:
    link = replace(LINK, usage=usage(12_345, 67, cached=12_288, reasoning=64))
    assert (
        format_receipt(link, SESSION)
        == "12,345 input (12,288 cached) · 67 output (64 reasoning) · 1.2 s · resp_1 · session mine"
    )
    link = replace(LINK, usage=usage(3, 4, with_details=False))
    assert format_receipt(link, SESSION) == "3 input · 4 output · 1.2 s · resp_1 · session mine"


def test_the_receipt_of_a_run_has_the_total_of_its_requests() -> None:
    written = {"input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 7}}
    calls = [
        replace(LINK, usage={**usage(10, 5, reasoning=3), **written}),
        replace(LINK, usage=None, duration_s=None),
        replace(LINK, id="resp_3", usage=usage(20, 6, cached=4, reasoning=1)),
    ]
    total = combine_links(calls)
    assert total == replace(
        calls[-1],
        duration_s=2.5,
        usage={
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 7},
            "output_tokens": 11,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 41,
        },
    )
    assert combine_links([replace(LINK, usage=None, duration_s=None)]) == replace(LINK, usage=None, duration_s=None)


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (Price(input=1.0, output=2.0, cached=0.5), "$0.00090"),
        (Price(input=1000.0, output=2000.0, cached=500.0), "$0.9000"),
        (Price(input=10_000.0, output=20_000.0, cached=5_000.0), "$9.00"),
        (Price(input=0.001, output=0.002, cached=0.001), "$0.0000010"),
        (Price(input=0.0, output=0.0, cached=0.0), "$0.0000"),
    ],
)
def test_a_small_cost_is_not_shown_as_zero(price: Price, cost: str) -> None:
    link = replace(LINK, usage=usage(600, 200, cached=200))
    assert f" output · {cost} · 1.2 s" in format_receipt(link, SESSION, price)


def test_each_call_of_a_run_has_the_price_of_its_model_and_calls_without_a_price_make_the_cost_a_lower_bound() -> None:
    calls = [replace(LINK, id=id_, usage=usage(600, 200)) for id_ in ("resp_1", "resp_2", "resp_3")]
    cheap, dear = Price(input=1.0, output=2.0, cached=0.5), Price(input=10.0, output=20.0, cached=5.0)
    total = combine_links(calls)
    receipt = format_receipt(total, SESSION, cheap, calls, call_prices=[cheap, dear, cheap])
    assert " · $0.0120 · " in receipt
    receipt = format_receipt(total, SESSION, cheap, calls, call_prices=[cheap, None, dear])
    assert " output · at least $0.0110 (1 of 3 calls has no price) · " in receipt
    assert " output · at least $0.0110 · " in format_receipt(
        total, SESSION, cheap, calls, call_prices=[cheap, None, dear], columns=70
    )


def test_without_usage_no_cost_is_guessed() -> None:
    assert "$" not in format_receipt(LINK, SESSION, Price(input=1.0, output=1.0, cached=1.0))


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled"])
def test_a_status_other_than_completed_comes_first(status: LinkStatus) -> None:
    link = replace(LINK, status=status)
    assert format_receipt(link, SESSION).startswith(f"{status} · ")


@pytest.mark.parametrize(
    ("strategy", "handle", "text"),
    [
        (Strategy.SESSION, None, "session mine"),
        (Strategy.REPLAY, "/tmp/talk.json", "replay /tmp/talk.json"),
        (Strategy.CHAIN, "resp_1", "chain resp_1"),
        (Strategy.CHAIN, None, "chain mine"),
        (Strategy.CONVERSATION, "conv_1", "conversation conv_1"),
    ],
)
def test_the_strategy_is_named_with_the_handle_to_continue(strategy: Strategy, handle: str | None, text: str) -> None:
    assert format_owner_handle(replace(SESSION, strategy=strategy, handle=handle)) == text


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "3 input · 4 output · 1.2 s · resp_0123456789ab · session mine"),
        (60, "3 input · 4 output · 1.2 s · session mine"),
        (40, "3 input · 4 output · 1.2 s"),
        (20, "3 input · 4 output"),
        (10, "3 input"),
    ],
)
def test_a_line_for_a_terminal_has_short_ids_and_leaves_out_those_that_do_not_fit(columns: int, line: str) -> None:
    link = replace(LINK, id="resp_0123456789abcdef0123456789abcdef", usage=usage(3, 4))
    assert format_receipt(link, SESSION, columns=columns) == line


def test_a_narrow_receipt_leaves_out_the_cached_tokens_and_cuts_no_number() -> None:
    link = replace(LINK, usage={**usage(11, 156), "input_tokens_details": {"cached_tokens": 9}})
    assert format_receipt(link, SESSION, columns=45).startswith("11 input (9 cached) · 156 output")
    assert format_receipt(link, SESSION, columns=35) == "11 input · 156 output · 1.2 s"


def test_a_line_for_a_terminal_has_the_handle_of_its_owner_once() -> None:
    chain_id, conversation_id = f"resp_{'0123456789abcdef' * 2}", f"conv_{'fedcba9876543210' * 2}"
    chain = replace(SESSION, strategy=Strategy.CHAIN, handle=chain_id)
    assert format_receipt(replace(LINK, id=chain_id), chain, columns=80).endswith(" s · chain resp_0123456789ab")
    assert format_receipt(replace(LINK, id=chain_id), chain) == f"1.2 s · chain {chain_id}"
    assert format_receipt(replace(LINK, id="resp_2"), chain) == f"1.2 s · resp_2 · chain {chain_id}"
    conversation = replace(SESSION, strategy=Strategy.CONVERSATION, handle=conversation_id)
    line = format_receipt(replace(LINK, id=chain_id), conversation, columns=80)
    assert line.endswith(" s · resp_0123456789ab · conversation conv_fedcba987654")
    replay = replace(SESSION, strategy=Strategy.REPLAY, handle="/home/you/some/folder/talk.json")
    assert format_receipt(LINK, replay, columns=80).endswith(" · replay talk.json")


def test_several_calls_are_counted() -> None:
    link = replace(LINK, usage=usage(3, 4))
    assert format_receipt(link, SESSION, None, [LINK, LINK], columns=80).startswith("2 calls · 3 input")
    assert format_receipt(link, SESSION, None, [LINK]).startswith("3 input")


def test_the_loading_of_a_model_is_beside_the_duration_or_a_part_of_it() -> None:
    assert format_receipt(LINK, SESSION, loading=LoadingTime(0.84, is_in_duration=False)) == (
        "1.2 s · loaded in 0.8 s · resp_1 · session mine"
    )
    waited = LoadingTime(0.84, is_in_duration=True)
    assert format_receipt(LINK, SESSION, loading=waited) == "1.2 s (0.8 s loading) · resp_1 · session mine"
    assert format_receipt(LINK, SESSION, loading=waited, columns=8) == "1.2 s"
