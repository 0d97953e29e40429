"""Truncation of the oldest turns."""

from hypothesis import given
from hypothesis import strategies as some

from convo.compaction.planning import keep_last_turn, truncate_to_fit
from convo.compaction.window import is_instruction, turn_starts
from convo.history.items import Item
from tests.compaction.history_strategies import has_complete_pairs, histories, instructions, message

HISTORY: list[Item] = [
    message("system", "Be kind."),
    *(message(role, f"{role} {turn}") for turn in range(3) for role in ("user", "assistant")),
]
ONE_EACH = [1] * len(HISTORY)


def test_the_oldest_turns_are_dropped_first_and_instructions_stay() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 5) == (HISTORY[0], *HISTORY[3:])


def test_a_history_that_fits_is_unchanged() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 7) == tuple(HISTORY)


def test_a_turn_that_does_not_fit_completely_is_dropped() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 4) == (HISTORY[0], *HISTORY[5:])


def test_a_last_turn_that_does_not_fit_is_not_truncated() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 2) is None


def test_the_last_turn_keeps_the_instructions_of_all_turns() -> None:
    assert keep_last_turn(HISTORY) == (HISTORY[0], *HISTORY[5:])
    assert keep_last_turn([]) == ()


def test_an_empty_history_always_fits() -> None:
    assert truncate_to_fit([], [], 0) == ()


@given(histories(), some.integers(0, 40))
def test_only_complete_turns_are_dropped_from_the_front_and_the_rest_fits(items: list[Item], room: int) -> None:
    sizes = [1 + index % 3 for index in range(len(items))]
    remaining = truncate_to_fit(items, sizes, room)
    if remaining is None:
        last = turn_starts(items)[-1]
        required_size = sum(size for index, size in enumerate(sizes) if index >= last or is_instruction(items[index]))
        assert required_size > room
        return
    assert instructions(remaining) == instructions(items)
    assert has_complete_pairs(remaining)
    dropped_rest = [item for item in remaining if not is_instruction(item)]
    turns = [
        [item for item in items[begin:] if not is_instruction(item)] for begin in (*turn_starts(items), len(items))
    ]
    assert dropped_rest in turns
