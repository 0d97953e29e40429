"""The usage and cost of the last request and of all requests, with the re-sent input."""

import pytest

from convo.config.sections import Price
from convo.history.records import Strategy
from convo.inspect.view import link_cost_usd, sum_link_usage
from convo.usage.cost import Usage
from tests.inspect.conversation_builder import USAGE, ConversationBuilder

OWN = {"scripted/echo": Price(1.0, 10.0, 0.5)}


def make_usage(input_: int, output: int) -> dict[str, int]:
    return {"input_tokens": input_, "output_tokens": output}


def build_conversation(strategy: Strategy = Strategy.CHAIN) -> ConversationBuilder:
    builder = ConversationBuilder(strategy)
    builder.turn("resp_1", "one", "first", usage=make_usage(100, 10), model="scripted/echo")
    builder.turn("resp_2", "two", "second", after="resp_1", usage=make_usage(150, 20), model="scripted/echo")
    builder.turn("resp_3", "three", "third", after="resp_2", usage=make_usage(200, 30), model="scripted/echo")
    return builder


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.SESSION])
def test_all_earlier_input_is_billed_again_with_every_strategy(strategy: Strategy) -> None:
    found = sum_link_usage(build_conversation(strategy).links, OWN)
    assert found
    assert (found.request_count, found.usage, found.resent_tokens) == (
        3,
        Usage(input_tokens=450, output_tokens=60),
        250,
    )
    assert found.cost_usd == pytest.approx((450 + 60 * 10) / 1_000_000)


def test_a_fork_is_billed_for_the_history_before_it() -> None:
    builder = build_conversation()
    builder.turn("resp_4", "other", "fourth", after="resp_1", usage=make_usage(140, 5), model="scripted/echo")
    found = sum_link_usage(builder.links, OWN)
    assert found
    assert found.resent_tokens == 250 + 100


def test_an_unknown_price_makes_the_total_unknown_and_the_other_costs_stay_known() -> None:
    builder = build_conversation()
    builder.turn("resp_4", "other", "fourth", after="resp_3", usage=make_usage(1, 1), model="nobody/knows")
    found = sum_link_usage(builder.links, OWN)
    assert found
    assert found.cost_usd is None
    assert found.known_cost_usd == pytest.approx((450 + 60 * 10) / 1_000_000)
    assert found.unpriced_count == 1
    assert [link_cost_usd(link, OWN) is None for link in builder.links] == [False, False, False, True]


def test_requests_without_usage_are_not_counted() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_1", "one", "first", usage=None)
    assert sum_link_usage(builder.links, OWN) is None
    assert link_cost_usd(builder.links[0], OWN) is None
    builder.turn("resp_2", "two", "second", after="resp_1", usage=USAGE)
    found = sum_link_usage(builder.links, {})
    assert found
    assert (found.known_cost_usd, found.unpriced_count) == (None, 1)
    assert (found.request_count, found.resent_tokens, found.usage.cached_tokens, found.usage.reasoning_tokens) == (
        1,
        0,
        4,
        2,
    )
