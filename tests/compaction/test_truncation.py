"""Leaving the oldest turns out."""

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


def test_the_oldest_turns_go_first_and_instructions_stay() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 5) == (HISTORY[0], *HISTORY[3:])


def test_what_fits_is_left_as_it_is() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 7) == tuple(HISTORY)


def test_half_a_turn_of_room_holds_no_half_a_turn() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 4) == (HISTORY[0], *HISTORY[5:])


def test_a_last_turn_that_does_not_fit_is_not_cut() -> None:
    assert truncate_to_fit(HISTORY, ONE_EACH, 2) is None


def test_the_last_turn_alone_has_the_instructions_of_all() -> None:
    assert keep_last_turn(HISTORY) == (HISTORY[0], *HISTORY[5:])
    assert keep_last_turn([]) == ()


def test_nothing_fits_everywhere() -> None:
    assert truncate_to_fit([], [], 0) == ()


@given(histories(), some.integers(0, 40))
def test_only_whole_turns_go_from_the_front_and_what_stays_fits(items: list[Item], room: int) -> None:
    sizes = [1 + at % 3 for at in range(len(items))]
    left = truncate_to_fit(items, sizes, room)
    if left is None:
        last = turn_starts(items)[-1]
        must = sum(size for at, size in enumerate(sizes) if at >= last or is_instruction(items[at]))
        assert must > room
        return
    assert instructions(left) == instructions(items)
    assert has_complete_pairs(left)
    told = [item for item in left if not is_instruction(item)]
    whole = [
        [item for item in items[begin:] if not is_instruction(item)] for begin in (*turn_starts(items), len(items))
    ]
    assert told in whole
