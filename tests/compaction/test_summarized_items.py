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


def sized(items: Sequence[Item]) -> list[int]:
    return [1] * len(items)


def test_without_a_question_everything_is_summarized() -> None:
    made = split_for_summary([RULE, ASK, ANSWER], [1, 1, 1])
    assert (made.instructions, made.summarized_items, made.user_messages, made.kept_items) == (
        (RULE,),
        (ASK, ANSWER),
        (ASK,),
        (),
    )


def test_the_turn_to_be_answered_is_kept() -> None:
    made = split_for_summary([ASK, ANSWER, MORE], [1, 1, 1], keep_tokens=10)
    assert (made.summarized_items, made.kept_items) == ((ASK, ANSWER), (MORE,))


def test_a_turn_that_is_too_long_is_cut_between_its_steps() -> None:
    """An agent's work of an hour can be one turn. The last steps and the user message are kept unchanged."""
    work = [ASK, call(1), output(1), call(2), output(2), call(3), output(3)]
    made = split_for_summary(work, sized(work), keep_tokens=4)
    assert (made.user_messages, made.kept_items) == ((ASK,), (call(2), output(2), call(3), output(3)))


def test_a_last_step_that_exceeds_the_limit_is_kept() -> None:
    work = [ASK, call(1), call(2), output(1), output(2)]
    assert split_for_summary(work, sized(work), keep_tokens=1).kept_items == tuple(work[1:])


def test_the_newest_user_messages_are_kept_and_the_older_ones_summarized() -> None:
    assert split_for_summary([ASK, ANSWER, MORE, ANSWER], [5, 5, 5, 5], user_message_tokens=9).user_messages == (MORE,)


def test_an_earlier_summary_is_summarized_again_and_is_no_user_message() -> None:
    earlier = summary_message("They looked once.")
    made = split_for_summary([earlier, MORE, ANSWER], [1, 1, 1])
    assert (made.summarized_items, made.user_messages) == ((earlier, MORE, ANSWER), (MORE,))


def test_an_empty_history_has_nothing_to_summarize() -> None:
    assert split_for_summary([], [], keep_tokens=5).kept_items == split_for_summary([], []).summarized_items == ()


@given(histories(), some.none() | some.integers(0, 12), some.integers(0, 12))
def test_every_item_is_summarized_or_kept_and_no_pair_is_split(items: list[Item], keep: int | None, said: int) -> None:
    made = split_for_summary(items, sized(items), keep_tokens=keep, user_message_tokens=said)

    early = items[: len(items) - len(made.kept_items)]
    assert [*early, *made.kept_items] == items
    assert list(made.instructions) == instructions(early)
    assert list(made.summarized_items) == [
        item for item in early if item not in made.instructions or not instructions([item])
    ]
    assert has_complete_pairs(made.summarized_items)
    assert has_complete_pairs(made.kept_items)
    asked = [item for item in made.summarized_items if is_user_message(item)]
    assert list(made.user_messages) == asked[len(asked) - min(said, len(asked)) :]
