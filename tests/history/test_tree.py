"""The history tree: a history is a path, and a path never changes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.errors import Conflict
from convo.history.canonical import item_hash
from convo.history.items import Item, assistant_message, user_message
from convo.history.tree import Path, child_key, common_prefix_length, first_difference, is_same_item, root_key
from tests.history.json_strategies import ITEMS

HISTORIES = st.lists(ITEMS, max_size=8)
FEW = st.lists(
    st.sampled_from(
        [user_message("a"), user_message("b"), assistant_message("a"), {"role": "assistant", "content": "a"}]
    ),
    max_size=6,
)
"""Histories of a few different items, which often share a prefix."""

ROOT_KEY = root_key("local")
EMPTY = Path(ROOT_KEY)


def common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the common prefix of both lists."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


@given(HISTORIES)
def test_equal_items_have_equal_keys(items: list[Item]) -> None:
    path, parts = EMPTY.append(items), EMPTY
    for item in items:
        parts = parts.append([item])

    assert path.keys == parts.keys
    assert list(path.items) == items


@given(FEW, FEW)
def test_two_histories_share_keys_as_far_as_their_items_are_equal(ours: list[Item], theirs: list[Item]) -> None:
    one, other = EMPTY.append(ours), EMPTY.append(theirs)
    common = common_length([item_hash(item) for item in ours], [item_hash(item) for item in theirs])

    assert common_length(one.keys, other.keys) == one.common_depth(other) == other.common_depth(one) == common
    assert set(one.keys[common:]).isdisjoint(other.keys)


@given(FEW)
def test_all_nodes_of_a_history_have_distinct_keys(items: list[Item]) -> None:
    keys = (ROOT_KEY, *EMPTY.append(items).keys)

    assert len(set(keys)) == len(keys)


@given(HISTORIES, ITEMS, st.integers(min_value=0, max_value=8))
def test_a_fork_keeps_its_prefix_and_does_not_change_the_source(items: list[Item], new: Item, at: int) -> None:
    path = EMPTY.append(items)
    before = path.nodes
    forked = path.first(at).append([new])

    assert forked.nodes[:-1] == before[:at]
    assert path.nodes == before
    assert forked.head == child_key(path.first(at).head, item_hash(new))


@given(HISTORIES, st.integers(min_value=0, max_value=8))
def test_an_erased_item_is_reported_with_its_node(items: list[Item], at: int) -> None:
    path = EMPTY.append(items)
    cut = path.first(at)

    assert path.contains(cut.head)
    assert path.depth(cut.head) == len(cut) == min(at, len(items))
    assert path.up_to(cut.head) == cut
    assert (*cut.nodes, *path.after(cut.head)) == path.nodes
    assert cut.append(node.item for node in path.after(cut.head)) == path


@given(FEW, ITEMS)
def test_an_unknown_node_is_a_conflict(items: list[Item], other: Item) -> None:
    path = EMPTY.append(items)
    elsewhere = path.append([other]).head

    assert not path.contains(elsewhere)
    for lookup in (path.depth, path.up_to, path.after):
        with pytest.raises(Conflict):
            lookup(elsewhere)


@given(st.text(min_size=1), st.text(min_size=1), HISTORIES)
def test_tenants_share_no_node(one: str, other: str, items: list[Item]) -> None:
    own_path, other_path = (Path(root_key(tenant)).append(items) for tenant in (one, other))

    assert (set(own_path.keys) | {own_path.root}).isdisjoint({*other_path.keys, other_path.root}) == (one != other)


def test_keys_equal_those_of_the_first_release() -> None:
    """A change of the key format would make every stored history unreachable."""
    path = EMPTY.append([user_message("hi"), assistant_message("hello")])

    assert path.keys == (
        "714a6fdd2f5e33fe51b5338374b0562a9009c288b2b0dd0ca27129977c6a7d3b",
        "e3c53bbc2d696d9d4797e4b5f24812435637860bc7a917501a4202527345e49d",
    )


# -- the first difference of two histories --------------------------------------------------------


@given(FEW, FEW)
def test_the_first_difference_is_the_first_item_with_another_meaning(ours: list[Item], theirs: list[Item]) -> None:
    depth = common_prefix_length(ours, theirs)
    difference = first_difference(ours, theirs)

    assert all(is_same_item(one, other) for one, other in zip(ours[:depth], theirs[:depth], strict=True))
    if difference is None:
        assert depth == len(ours) == len(theirs)
    else:
        assert difference.shared_count == depth
        assert difference.a == next(iter(ours[depth:]), None)
        assert difference.b == next(iter(theirs[depth:]), None)
        assert difference.a is None or difference.b is None or not is_same_item(difference.a, difference.b)


@given(FEW, FEW)
def test_a_difference_is_symmetric(ours: list[Item], theirs: list[Item]) -> None:
    one, other = first_difference(ours, theirs), first_difference(theirs, ours)

    assert (one and (one.shared_count, one.a, one.b)) == (other and (other.shared_count, other.b, other.a))


def test_an_answer_in_another_form_is_no_difference() -> None:
    sent = [user_message("hi"), {**assistant_message("hello"), "id": "msg_1", "status": "completed"}]
    returned = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, user_message("more")]
    difference = first_difference(sent, returned)

    assert difference is not None
    assert (difference.shared_count, difference.a, difference.b) == (2, None, user_message("more"))
