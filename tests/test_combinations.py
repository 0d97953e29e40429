"""The combinations that a default run includes."""

from typing import Any

from tests.combinations import rotated_combinations


def by_default(params: list[Any]) -> list[Any]:
    return [param.values for param in params if not param.marks]


def test_each_value_meets_one_value_of_the_last_column_in_turn() -> None:
    params = rotated_combinations("abcd", "xyz")
    assert by_default(params) == [("a", "x"), ("b", "y"), ("c", "z"), ("d", "x")]
    assert len({param.values for param in params}) == 12


def test_of_three_columns_each_pair_of_the_first_two_is_included() -> None:
    params = by_default(rotated_combinations("ab", "xy", [1, 2, 3]))
    assert [values[:2] for values in params] == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert {values[2] for values in params} == {1, 2, 3}


def test_the_requested_number_of_values_is_included() -> None:
    assert len(by_default(rotated_combinations("ab", "xyz", each=2))) == 4
