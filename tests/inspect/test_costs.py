"""The usage and cost of the last request and of all requests, with the re-sent input."""

from dataclasses import replace
from typing import Any

import pytest

from convo.compaction.window import summary_message
from convo.config.sections import Price
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import COMPACTION_CONTEXT_MANAGEMENT, Strategy
from convo.history.tree import Key, Path
from convo.inspect.view import PathIndex, count_resent_tokens, link_cost_usd, sum_link_usage
from convo.usage.cost import Usage
from tests.inspect.conversation_builder import ROOT, USAGE, ConversationBuilder, path_index_of

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


# -- compactions -----------------------------------------------------------------------------------

LONG_TEXT = "and so on " * 20
COMPACTION_ITEM: Item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x" * 4000}


def compact(builder: ConversationBuilder, id_: str, window: list[Item], after: str, **fields: Any) -> None:
    """Add the link of a compaction, whose result is `window`."""
    path = Path(ROOT).append(window)
    builder.turn(id_, "", None, after=after, usage=make_usage(180, 10), status="completed")
    builder.links[-1] = replace(
        builder.links[-1],
        input_head=path.head,
        head=path.head,
        sent_count=0,
        parameters={"context_management": COMPACTION_CONTEXT_MANAGEMENT},
        **fields,
    )
    builder.paths[id_] = path


class CountingIndex(PathIndex):
    """An index that counts the items that are read from it."""

    read_count = 0

    def item(self, key: Key) -> Item | None:
        self.read_count += 1
        return super().item(key)


def resent(builder: ConversationBuilder) -> dict[str, int]:
    return count_resent_tokens(builder.links, path_index_of(builder.paths.values()))


@pytest.mark.parametrize(
    ("kept", "tokens"),
    [
        ([], 0),
        ([user_message("one")], 47),  # 5 of 16 estimated tokens of an input of 150
        ([user_message("one"), assistant_message("first"), user_message("two")], 150),
        ([assistant_message("second")], 0),  # no request had it as input
        ([user_message("one"), user_message("one")], 47),
    ],
)
def test_after_a_compaction_only_the_items_that_it_kept_are_resent(kept: list[Item], tokens: int) -> None:
    builder = ConversationBuilder(Strategy.SESSION)
    builder.turn("resp_1", "one", "first", usage=make_usage(100, 10))
    builder.turn("resp_2", "two", "second", after="resp_1", usage=make_usage(150, 20))
    compact(builder, "try_1", [summary_message(LONG_TEXT), *kept], "resp_2")
    builder.turn("resp_3", "three", "third", after="try_1", usage=make_usage(500, 5))
    builder.turn("resp_4", "four", "fourth", after="resp_3", usage=make_usage(510, 5))
    found = resent(builder)
    assert (found["resp_2"], found["try_1"], found["resp_4"]) == (100, 150, 500)
    assert found["resp_3"] == tokens


def test_two_compactions_in_a_row_and_a_cycle_of_compactions_are_counted_once() -> None:
    builder = ConversationBuilder(Strategy.SESSION)
    builder.turn("resp_1", "one", "first", usage=make_usage(100, 10))
    compact(builder, "try_1", [summary_message("short"), user_message("one")], "resp_1")
    compact(builder, "try_2", [summary_message("shorter")], "try_1")
    builder.turn("resp_2", "two", "second", after="try_2", usage=make_usage(30, 5))
    assert resent(builder) == {"try_1": 100, "try_2": 100, "resp_2": 0}
    builder.links = [replace(link, parent_id="try_2") if link.id == "try_1" else link for link in builder.links]
    assert resent(builder) == {}


def test_many_forks_of_a_compaction_compare_the_items_once() -> None:
    """A comparison for each of 2,000 forks of a long history would take minutes."""
    builder, history = ConversationBuilder(Strategy.SESSION), [user_message(f"message {n}") for n in range(100)]
    builder.turn("resp_1", "one", "first", usage=make_usage(100, 10))
    path = Path(ROOT).append(history)
    builder.links[-1] = replace(builder.links[-1], input_head=path.head, head=path.head)
    builder.paths["resp_1"] = path
    compact(builder, "try_1", [summary_message("short"), *history[50:]], "resp_1")
    for number in range(40):
        builder.turn(f"fork_{number}", "two", "second", after="try_1", usage=make_usage(80, 5))
    index = CountingIndex(ROOT)
    for path in builder.paths.values():
        index.add(path)
    found = count_resent_tokens(builder.links, index)
    assert {found[f"fork_{number}"] for number in range(40)} == {50}
    assert index.read_count < 2 * len(history)


def test_compactions_in_a_row_are_looked_at_once() -> None:
    builder = ConversationBuilder(Strategy.SESSION)
    builder.turn("resp_1", "one", "first", usage=make_usage(100, 10))
    for number in range(3000):
        compact(builder, f"try_{number}", [summary_message("short")], f"try_{number - 1}" if number else "resp_1")
    builder.turn("resp_2", "two", "second", after="try_2999", usage=make_usage(30, 5))
    found = resent(builder)
    assert (found.pop("try_0"), len(found), set(found.values())) == (100, 3000, {0})  # they sent only a summary


def test_a_compaction_whose_items_are_unknown_makes_the_resent_tokens_unknown() -> None:
    builder = ConversationBuilder(Strategy.SESSION)
    builder.turn("resp_1", "one", "first", usage=make_usage(100, 10))
    compact(builder, "try_1", [summary_message("short")], "resp_1")
    builder.turn("resp_2", "two", "second", after="try_1", usage=make_usage(30, 5))
    assert count_resent_tokens(builder.links, None) == {"try_1": 100}
    without_compaction = [link for link in builder.links if link.id != "try_1"]
    assert count_resent_tokens(without_compaction, path_index_of(builder.paths.values())) == {}


def test_instructions_and_tools_that_are_sent_after_a_compaction_as_before_are_resent() -> None:
    fields: dict[str, Any] = {"parameters": {"instructions": LONG_TEXT, "tools": [{"type": "web_search"}]}}
    builder = ConversationBuilder(Strategy.SESSION)
    builder.turn("resp_1", "one", "first", usage=make_usage(100, 10), **fields)
    compact(builder, "try_1", [summary_message("short")], "resp_1")
    builder.turn("resp_2", "two", "second", after="try_1", usage=make_usage(300, 5), **fields)
    builder.turn("resp_3", "two", "second", after="try_1", usage=make_usage(300, 5))
    found = resent(builder)
    assert 90 < found["resp_2"] < 100
    assert found["resp_3"] == 0


@pytest.mark.parametrize("parameters", [{}, {"context_management": COMPACTION_CONTEXT_MANAGEMENT}])
def test_after_a_compaction_by_the_server_only_messages_of_the_user_are_resent(parameters: dict[str, Any]) -> None:
    builder = ConversationBuilder(Strategy.CONVERSATION)
    builder.turn("resp_1", "one", f"first {LONG_TEXT}", usage=make_usage(100, 10))
    builder.turn("resp_2", "two", "second", after="resp_1", usage=make_usage(200, 20))
    before = builder.paths["resp_2"]
    compacted = before.append([COMPACTION_ITEM])
    link = replace(builder.links[-1], id="resp_3", parent_id="resp_2", parameters=parameters)
    builder.links.append(replace(link, input_head=before.head, head=compacted.head))
    builder.paths["resp_3"] = compacted
    builder.turn("resp_4", "three", "third", after="resp_3", usage=make_usage(60, 5))
    messages = resent(builder)["resp_4"]
    assert messages == round(200 * 10 / 66)  # "one" and "two" of the estimated tokens of the input of resp_2


def test_after_a_response_that_compacted_its_own_input_only_later_items_are_new() -> None:
    builder = ConversationBuilder(Strategy.CHAIN)
    builder.turn("resp_1", f"one {LONG_TEXT}", "first", usage=make_usage(100, 10))
    builder.turn("resp_2", "two", "second", after="resp_1", usage=make_usage(260, 20))
    path = builder.paths["resp_1"].append([user_message("two")])
    answered = path.append([COMPACTION_ITEM, assistant_message("second")])
    builder.links[-1] = replace(builder.links[-1], head=answered.head)
    builder.paths["resp_2"] = answered
    builder.turn("resp_3", "three", "third", after="resp_2", usage=make_usage(80, 5))
    builder.turn("resp_4", "four", "fourth", after="resp_3", usage=make_usage(95, 5))
    found = resent(builder)
    assert found["resp_3"] == 80 - 6 - 6  # without "second" and "three"
    assert found["resp_4"] == 80
