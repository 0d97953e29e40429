"""A `Prefix` behaves like a tuple; only its cost differs."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.history.tree import Prefix

MOVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.lists(st.sampled_from("abc"), max_size=3)))
"""For each step: the index of an earlier value, the length of its prefix, and the elements to append."""


@given(MOVES)
def test_appending_to_any_prefix_leaves_every_other_value_unchanged(moves: list[tuple[int, int, list[str]]]) -> None:
    versions: list[tuple[Prefix[str], tuple[str, ...]]] = [(Prefix(), ())]
    for which, count, more in moves:
        prefix, plain = versions[which % len(versions)]
        versions.append((prefix.first(count).append(more), (*plain[:count], *more)))

    for prefix, plain in versions:
        assert tuple(prefix) == plain
        assert len(prefix) == len(plain)
        assert [prefix[index] for index in range(len(plain))] == list(plain)


@given(st.lists(st.integers()), st.lists(st.integers()), st.slices(6))
def test_a_prefix_stays_the_same_while_its_list_grows(own: list[int], more: list[int], part: slice) -> None:
    prefix = Prefix(own)
    prefix.append(more)

    assert prefix[part] == tuple(own)[part]
    assert prefix == Prefix(own)
    assert list(reversed(prefix)) == own[::-1]
    for index in (len(own), -len(own) - 1):
        with pytest.raises(IndexError):
            prefix[index]


def test_an_existing_continuation_is_reused() -> None:
    one, two = object(), object()
    base: Prefix[Any] = Prefix([one])
    longer = base.append([two])
    copies: list[Any] = [base.append([two]), base.append([object()])]

    assert [longer.shared_element(1), base.shared_element(1), base.shared_element(2)] == [two, two, None]
    assert [copy.shared_element(1) is two for copy in copies] == [True, False]
    assert len(longer.append([one])) == 3
    assert [base.shared_element(2), copies[0].shared_element(2), copies[1].shared_element(2)] == [one, one, None]


def test_what_was_derived_is_continued_by_the_newest_continuation() -> None:
    base, seen = Prefix([1, 2]), list[int]()

    def make_step() -> Callable[[Sequence[int]], list[int]]:
        return lambda numbers: [seen.append(number) or -number for number in numbers]  # type: ignore[func-returns-value]

    base.derive(make_step)
    part, whole = base.append([3]), base.append([4])

    assert whole.derive(make_step) == (-1, -2, -4)
    assert seen == [1, 2, 4]
    assert part.derive(make_step) == (-1, -2, -3)


def test_equal_but_distinct_values_are_not_merged() -> None:
    base: Prefix[Any] = Prefix()
    base.append([1])

    assert [type(at) for at in base.append([True])] == [bool]


def test_threads_that_append_concurrently_get_their_own_elements() -> None:
    threads, rounds = 4, 200
    ready = Barrier(threads)
    bases = [Prefix[int](range(3)) for _ in range(rounds)]

    def append_values(number: int) -> list[Prefix[int]]:
        ready.wait()
        return [base.append([1000 + number] * 2) for base in bases]

    with ThreadPoolExecutor(threads) as pool:
        for number, made in enumerate(pool.map(append_values, range(threads))):
            assert {tuple(one) for one in made} == {(0, 1, 2, 1000 + number, 1000 + number)}


def test_a_list_that_another_value_made_longer_is_extended() -> None:
    one, two, three = object(), object(), object()
    base: Prefix[object] = Prefix([one])
    longer = base.append([two])
    assert tuple(base.append([two, three])) == (one, two, three)
    assert (tuple(base), tuple(longer)) == ((one,), (one, two))


def test_a_prefix_equals_only_a_prefix_or_a_tuple() -> None:
    assert Prefix([1]) == (1,)
    assert Prefix([1]) != [1]
    assert Prefix([1]) != 1
    assert repr(Prefix([1])) == "Prefix((1,))"
