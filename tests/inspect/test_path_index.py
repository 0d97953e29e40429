"""The items before a node, without a copy of any history."""

import pytest

from convo.history.items import user_message
from convo.history.tree import Path
from convo.inspect.view import PathIndex
from convo.usage.counting import estimate_tokens
from tests.inspect.conversation_builder import ROOT, alternating_messages, keys


def test_the_depth_of_a_node_is_the_number_of_items_up_to_it() -> None:
    path = Path(ROOT).append(alternating_messages("a", "b", "c"))
    places = PathIndex(ROOT)
    places.add(path)
    assert [places.depth(key) for key in (ROOT, *path.keys)] == [0, 1, 2, 3]


def test_the_last_keys_are_listed_oldest_first_up_to_the_root() -> None:
    path = Path(ROOT).append(alternating_messages("a", "b", "c"))
    places = PathIndex(ROOT)
    places.add(path)
    assert places.last_keys(path.head, 2) == keys(path, 2, 3)
    assert places.last_keys(path.head, 9) == keys(path, 1, 2, 3)
    assert (places.key_before_last(path.head, 2), places.key_before_last(path.head, 3)) == (path.nodes[0].key, ROOT)


def test_adding_a_fork_adds_only_its_new_nodes() -> None:
    path = Path(ROOT).append(alternating_messages("a", "b", "c"))
    fork = path.first(2).append([user_message("d")])
    places = PathIndex(ROOT)
    places.add(path)
    places.add(fork)
    assert [key for key, _ in places] == [*path.keys, fork.head]
    assert places.last_keys(fork.head, 2) == [path.nodes[1].key, fork.head]


def test_tokens_add_up_along_a_path() -> None:
    items = alternating_messages("a", "much longer than one letter")
    path = Path(ROOT).append(items)
    places = PathIndex(ROOT)
    places.add(path)
    assert places.tokens_up_to(ROOT) == 0
    assert places.tokens_up_to(path.head) == estimate_tokens(items[0]) + estimate_tokens(items[1])


def test_a_node_that_was_never_added_is_missing() -> None:
    path = Path(ROOT).append(alternating_messages("a"))
    places = PathIndex(ROOT)
    assert ROOT in places
    assert path.head not in places
    assert places.item(path.head) is None
    with pytest.raises(KeyError):
        places.depth(path.head)
