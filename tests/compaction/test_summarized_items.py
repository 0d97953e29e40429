"""The items that a summary replaces."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as some

from convo.compaction.planning import split_for_summary
from convo.compaction.window import summary_message
from convo.history.items import Item, is_user_message
from tests.compaction.history_strategies import call, has_complete_pairs, histories, instructions, message, output

ASK, ANSWER, MORE = message("user", "Look."), message("assistant", "I looked."), message("user", "Look again.")
RULE = message("developer", "Be brief.")


def unit_sizes(items: Sequence[Item]) -> list[int]:
    return [1] * len(items)


def test_without_a_question_everything_is_summarized() -> None:
    split = split_for_summary([RULE, ASK, ANSWER], [1, 1, 1])
    assert (split.instructions, split.summarized_items, split.user_messages, split.kept_items) == (
        (RULE,),
        (ASK, ANSWER),
        (ASK,),
        (),
    )


def test_the_turn_to_be_answered_is_kept() -> None:
    split = split_for_summary([ASK, ANSWER, MORE], [1, 1, 1], keep_tokens=10)
    assert (split.summarized_items, split.kept_items) == ((ASK, ANSWER), (MORE,))


def test_a_turn_that_is_too_long_is_cut_between_its_steps() -> None:
    """An agent's work of an hour can be one turn. The last steps and the user message are kept unchanged."""
    items = [ASK, call(1), output(1), call(2), output(2), call(3), output(3)]
    split = split_for_summary(items, unit_sizes(items), keep_tokens=4)
    assert (split.user_messages, split.kept_items) == ((ASK,), (call(2), output(2), call(3), output(3)))


def test_a_last_step_that_exceeds_the_limit_is_kept() -> None:
    items = [ASK, call(1), call(2), output(1), output(2)]
    assert split_for_summary(items, unit_sizes(items), keep_tokens=1).kept_items == tuple(items[1:])


def test_the_newest_user_messages_are_kept_and_the_older_ones_summarized() -> None:
    assert split_for_summary([ASK, ANSWER, MORE, ANSWER], [5, 5, 5, 5], user_message_tokens=9).user_messages == (MORE,)


def test_an_earlier_summary_is_summarized_again_and_is_no_user_message() -> None:
    earlier = summary_message("They looked once.")
    split = split_for_summary([earlier, MORE, ANSWER], [1, 1, 1])
    assert (split.summarized_items, split.user_messages) == ((earlier, MORE, ANSWER), (MORE,))


def test_an_empty_history_has_nothing_to_summarize() -> None:
    assert split_for_summary([], [], keep_tokens=5).kept_items == split_for_summary([], []).summarized_items == ()


@given(histories(), some.none() | some.integers(0, 12), some.integers(0, 12))
def test_every_item_is_summarized_or_kept_and_no_pair_is_split(items: list[Item], keep: int | None, said: int) -> None:
    split = split_for_summary(items, unit_sizes(items), keep_tokens=keep, user_message_tokens=said)

    summarized = items[: len(items) - len(split.kept_items)]
    assert [*summarized, *split.kept_items] == items
    assert list(split.instructions) == instructions(summarized)
    assert list(split.summarized_items) == [
        item for item in summarized if item not in split.instructions or not instructions([item])
    ]
    assert has_complete_pairs(split.summarized_items)
    assert has_complete_pairs(split.kept_items)
    user_messages = [item for item in split.summarized_items if is_user_message(item)]
    assert list(split.user_messages) == user_messages[len(user_messages) - min(said, len(user_messages)) :]
