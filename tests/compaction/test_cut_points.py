"""The positions at which a history may be cut."""

import pytest
from hypothesis import given

from convo.compaction.window import cut_points, is_instruction, middle_cut_point, summary_message, turn_starts
from convo.history.items import Item, is_user_message
from tests.compaction.history_strategies import call, has_complete_pairs, histories, message, output

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
ASK, ANSWER = message("user", "Look."), message("assistant", "I looked.")


@given(histories())
def test_no_cut_splits_a_pair(items: list[Item]) -> None:
    assert all(has_complete_pairs(items[:cut]) and has_complete_pairs(items[cut:]) for cut in cut_points(items))


@given(histories())
def test_a_history_may_be_cut_at_both_ends(items: list[Item]) -> None:
    assert {0, len(items)} <= set(cut_points(items))


@given(histories())
def test_a_turn_starts_at_a_cut_before_a_user_message(items: list[Item]) -> None:
    starts = turn_starts(items)
    assert set(starts) <= set(cut_points(items))
    assert all(is_user_message(items[start]) for start in starts[1:])


def test_parallel_calls_and_their_outputs_are_not_cut() -> None:
    items = [ASK, call(1), call(2), output(1), output(2), ANSWER]
    assert cut_points(items) == (0, 1, 5, 6)


def test_reasoning_is_not_separated_from_the_next_item() -> None:
    assert cut_points([ASK, THOUGHT, call(1), output(1), THOUGHT, ANSWER]) == (0, 1, 4, 6)


def test_a_user_message_before_an_output_starts_no_turn() -> None:
    """The message is between a call and its output, and a cut there would separate the pair."""
    assert turn_starts([ASK, call(1), message("user", "Are you there?"), output(1), ANSWER, ASK]) == (0, 5)


def test_an_approval_request_and_its_response_stay_together() -> None:
    approval_request = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "rm", "arguments": "{}"}
    given_ = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert cut_points([ASK, approval_request, given_, ANSWER]) == (0, 1, 3, 4)


def test_the_output_of_a_local_shell_is_paired_by_its_id() -> None:
    call = {"type": "local_shell_call", "call_id": "call_1", "action": {}}
    printed = {"type": "local_shell_call_output", "id": "call_1", "output": "ok"}
    assert cut_points([ASK, call, printed]) == (0, 1, 3)


def test_a_repeated_call_id_is_another_call() -> None:
    assert cut_points([call(1), output(1), call(1), output(1)]) == (0, 2, 4)


@pytest.mark.parametrize(
    ("items", "starts"),
    [
        ([], ()),
        ([ANSWER, ASK], (0, 1)),
        ([ASK, ASK, ANSWER, ASK], (0, 3)),
        ([message("system", "Be kind."), ASK, ANSWER], (0,)),
        ([ASK, ANSWER, message("developer", "Be brief."), ASK], (0, 3)),
    ],
    ids=["nothing", "a greeting", "two messages in a row", "instructions first", "instructions in between"],
)
def test_a_turn_starts_at_the_first_of_several_user_messages(items: list[Item], starts: tuple[int, ...]) -> None:
    assert turn_starts(items) == starts


@pytest.mark.parametrize(
    ("items", "middle"),
    [
        ([], None),
        ([ASK], None),
        ([ASK, ANSWER], 1),
        ([ASK, ANSWER, ASK], 2),
        ([ASK, ANSWER, ASK, ANSWER], 2),
        ([call(1), output(1)], None),
        ([ASK, call(1), output(1), ANSWER], 3),
    ],
)
def test_the_middle_is_the_middle_one_of_the_inner_cuts(items: list[Item], middle: int | None) -> None:
    assert middle_cut_point(items) == middle


@pytest.mark.parametrize(
    ("items", "cuts"),
    [
        ([output(1), call(1)], (0, 1, 2)),
        ([THOUGHT], (0, 1)),
        ([THOUGHT, ASK], (0, 2)),
        ([{"type": "function_call"}, {"type": "function_call_output"}], (0, 1, 2)),
        ([{"type": "x", "call_id": "call_1"}, output(1)], (0, 1, 2)),
        ([call(1), {"type": "x", "call_id": "call_1"}], (0, 1, 2)),
        ([call(1), call(2), output(1), ANSWER, output(2)], (0, 5)),
        ([call(1), output(1), output(1)], (0, 3)),
        ([{"type": "local_shell_call_output", "id": 7}, ANSWER], (0, 1, 2)),
        ([{"type": "function_call", "id": "x"}, {"type": "function_call_output", "id": "x"}], (0, 1, 2)),
        (
            [{"type": "mcp_approval_request", "id": 7}, {"type": "mcp_approval_response", "approval_request_id": 7}],
            (0, 1, 2),
        ),
    ],
)
def test_only_pairs_hold_items_together(items: list[Item], cuts: tuple[int, ...]) -> None:
    assert cut_points(items) == cuts


def test_a_summary_starts_no_turn_and_a_message_after_it_does() -> None:
    summary = summary_message("They looked.")
    assert turn_starts([ASK, ANSWER, summary, ASK, ANSWER]) == (0, 3)
    assert turn_starts([summary, ANSWER, summary]) == (0,)
    assert turn_starts([message("system", "a"), message("developer", "b"), ASK, ANSWER]) == (0,)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "system", "content": "a"}, True),
        ({"type": "message", "role": "developer", "content": "a"}, True),
        ({"type": "message", "role": "user", "content": "a"}, False),
        ({"type": "x", "role": "system"}, False),
    ],
)
def test_an_instruction_is_a_message_of_the_system_or_the_developer(item: Item, expected: bool) -> None:
    assert is_instruction(item) is expected
