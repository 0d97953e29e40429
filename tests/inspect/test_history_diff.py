"""Two histories are aligned row by row."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.history.items import Item, assistant_message, user_message
from convo.inspect.diff import HistoryDiff, build_history_diff_report, diff_histories
from convo.report import to_json

ONE = (user_message("one"), assistant_message("first"))
TWO = (user_message("two"), assistant_message("second"))


def row_marks(found: HistoryDiff) -> list[tuple[int | None, int | None, str]]:
    return [(pair.a, pair.b, pair.status) for pair in found.pairs]


def test_an_answer_in_another_form_is_equal() -> None:
    forms: list[Item] = [
        {"role": "user", "content": "one"},
        {"type": "message", "id": "msg_1", "status": "completed", **assistant_message("first")},
    ]
    assert diff_histories(ONE, forms) == HistoryDiff(ONE, forms, 2, "", ())


def test_a_longer_history_is_shown_to_its_end() -> None:
    found = diff_histories(ONE, (*ONE, *TWO))
    assert (found.common_count, found.path, found.is_equal) == (2, "", False)
    assert row_marks(found) == [(None, 2, "only b"), (None, 3, "only b")]


def test_the_first_difference_has_a_path_into_the_item() -> None:
    found = diff_histories((*ONE, user_message("two")), (*ONE, user_message("too")))
    assert (found.common_count, found.path) == (2, "content[0].text")
    assert row_marks(found) == [(2, 2, "changed")]


def test_an_inserted_item_is_on_one_side_only_and_the_rest_is_equal_again() -> None:
    found = diff_histories((*ONE, *TWO), (*ONE, user_message("between"), *TWO))
    assert row_marks(found) == [(None, 2, "only b"), (2, 3, "same"), (3, 4, "same")]


def test_a_compaction_is_paired_with_an_item_that_it_replaced() -> None:
    after = ({"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}, *TWO)
    found = diff_histories((*ONE, *ONE, *TWO), after)
    assert [found.count_pairs(mark) for mark in ("changed", "only a", "only b", "same")] == [1, 3, 0, 2]


def test_the_json_has_the_first_difference_and_every_row_after_it() -> None:
    assert to_json(build_history_diff_report(diff_histories(ONE, ONE[:1]))) == {
        "same": 1,
        "first": {"at": 1, "path": None, "a": ONE[1], "b": None},
        "rest": [{"a": 1, "b": None, "mark": "only a"}],
    }
    assert to_json(build_history_diff_report(diff_histories(ONE, ONE))) == {"same": 2, "first": None, "rest": []}


HISTORIES = some.lists(some.sampled_from([*ONE, *TWO]), max_size=8)


@given(HISTORIES, HISTORIES)
def test_every_item_of_both_sides_is_in_one_row_in_its_order(a: Sequence[Item], b: Sequence[Item]) -> None:
    found = diff_histories(a, b)
    assert [pair.a for pair in found.pairs if pair.a is not None] == list(range(found.common_count, len(a)))
    assert [pair.b for pair in found.pairs if pair.b is not None] == list(range(found.common_count, len(b)))
    for pair in found.pairs:
        if pair.status == "same" and pair.a is not None and pair.b is not None:
            assert a[pair.a] == b[pair.b]


@pytest.mark.parametrize("many", [5_000])
def test_thousands_of_equal_items_are_aligned(many: int) -> None:
    again = [user_message("go on")] * many
    found = diff_histories([user_message("a"), *again], [user_message("b"), *again])
    assert found.count_pairs("same") + found.count_pairs("changed") + found.count_pairs("only a") == many + 1


def test_rows_after_the_first_difference_are_aligned_again() -> None:
    a = (*ONE, user_message("x"), user_message("y"), *TWO)
    b = (*ONE, user_message("z"), *TWO, user_message("end"))
    found = diff_histories(a, b)
    assert row_marks(found) == [
        (2, 2, "changed"),
        (3, None, "only a"),
        (4, 3, "same"),
        (5, 4, "same"),
        (None, 5, "only b"),
    ]
    assert [found.count_pairs(mark) for mark in ("changed", "only a", "only b", "same")] == [1, 1, 1, 2]
    assert to_json(build_history_diff_report(found)) == {
        "same": 2,
        "first": {"at": 2, "path": "content[0].text", "a": a[2], "b": b[2]},
        "rest": [
            {"a": 2, "b": 2, "mark": "changed"},
            {"a": 3, "b": None, "mark": "only a"},
            {"a": 4, "b": 3, "mark": "same"},
            {"a": 5, "b": 4, "mark": "same"},
            {"a": None, "b": 5, "mark": "only b"},
        ],
    }


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        ({"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "input_text", "text": "b"}]}, ""),
        ({"type": "x", "b": 1, "a": {"c": 1}}, {"type": "x", "b": 2, "a": {"c": 2}}, "a.c"),
        ({"type": "x", "l": [1, 2]}, {"type": "x", "l": [1]}, "l[1]"),
    ],
)
def test_the_path_leads_to_the_first_difference_by_name(a: Item, b: Item, path: str) -> None:
    assert diff_histories([a], [b]).path == (path or "content[0].text")
