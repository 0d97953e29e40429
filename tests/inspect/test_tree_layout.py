"""The order and the indentation of links in a tree."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.inspect.tree import ancestor_ids, children_by_parent, iter_link_rows
from tests.inspect.conversation_builder import ConversationBuilder, build_chain


def tree_lines(builder: ConversationBuilder, head: str | None) -> list[str]:
    """Return each row as "> > id", with one mark for each level of indentation and "+" at the start of a branch."""
    return [
        "> " * row.depth + ("+" if row.starts_branch else "") + row.link.id
        for row in iter_link_rows(builder.links, head)
    ]


def test_a_chain_of_any_length_is_drawn_straight() -> None:
    builder = build_chain(5_000)
    found = list(iter_link_rows(builder.links, "resp_5000"))
    assert [row.link for row in found] == builder.links
    assert {row.depth for row in found} == {0}


def test_the_branch_of_the_head_is_straight_and_the_other_is_indented_before_it() -> None:
    builder = build_chain(2)
    builder.turn("resp_b", "other", "way", after="resp_1")
    builder.turn("resp_b2", "on", "and on", after="resp_b")
    assert tree_lines(builder, "resp_2") == ["resp_1", "> +resp_b", "> resp_b2", "resp_2"]
    assert tree_lines(builder, "resp_b2") == ["resp_1", "> +resp_2", "resp_b", "resp_b2"]


def test_without_a_head_the_newest_branch_is_straight() -> None:
    builder = build_chain(2)
    builder.turn("resp_b", "other", "way", after="resp_1")
    assert tree_lines(builder, None) == ["resp_1", "> +resp_2", "resp_b"]


def test_fifty_consecutive_retries_are_indented_once() -> None:
    builder = build_chain(1)
    last = "resp_1"
    for number in range(50):
        builder.turn(f"try_{number}", "again", None, after=last)
        builder.turn(f"resp_n{number}", "again", "at last", after=last)
        last = f"resp_n{number}"
    assert max(row.depth for row in iter_link_rows(builder.links, last)) == 1
    assert tree_lines(builder, last)[-2:] == ["> +try_49", "resp_n49"]


def test_a_fork_within_a_fork_is_indented_twice() -> None:
    builder = build_chain(2)
    builder.turn("resp_b", "other", "way", after="resp_1")
    builder.turn("resp_c", "inner", "left", after="resp_b")
    builder.turn("resp_d", "inner", "right", after="resp_b")
    assert tree_lines(builder, "resp_2") == ["resp_1", "> +resp_b", "> > +resp_c", "> resp_d", "resp_2"]


def test_conversations_with_several_roots_are_drawn_completely() -> None:
    builder = ConversationBuilder()
    builder.turn("try_1", "hi", None)
    builder.turn("try_2", "hi", None)
    builder.turn("resp_1", "hi", "there")
    assert tree_lines(builder, "resp_1") == ["> +try_1", "> +try_2", "resp_1"]


def test_a_link_with_a_missing_parent_is_a_root() -> None:
    builder = build_chain(3)
    builder.links.pop(0)
    assert tree_lines(builder, "resp_3") == ["resp_2", "resp_3"]
    assert [link.id for link in children_by_parent(builder.links)[None]] == ["resp_2"]


@given(some.lists(some.integers(0, 30), max_size=30), some.integers(0, 30))
def test_any_tree_is_drawn_once_with_parents_first_and_indented_no_deeper_than_it_forks(
    after: list[int], at: int
) -> None:
    """Link number n continues one of the links before it, or none."""
    builder = ConversationBuilder()
    for number, before in enumerate(after):
        parent = f"resp_{before % (number + 1) - 1}" if before % (number + 1) else None
        builder.turn(f"resp_{number}", "hi", "ho", after=parent)
    head = f"resp_{at % len(after)}" if after else None
    found = list(iter_link_rows(builder.links, head))
    places = {row.link.id: index for index, row in enumerate(found)}
    depths = {row.link.id: row.depth for row in found}
    assert sorted(places) == sorted(link.id for link in builder.links)
    for row in found:
        parent = row.link.parent_id
        assert parent is None or places[parent] < places[row.link.id]
        assert row.depth == (depths[parent] if parent else 0) + row.starts_branch
    assert head is None or depths[head] == 0


def set_parents(builder: ConversationBuilder, parents: dict[str, str | None]) -> ConversationBuilder:
    builder.links = [replace(link, parent_id=parents.get(link.id, link.parent_id)) for link in builder.links]
    return builder


def test_the_first_link_of_a_cycle_is_a_root() -> None:
    """A file or an endpoint that reuses an id can cause a cycle."""
    builder = set_parents(build_chain(4), {"resp_1": "resp_3"})
    children = children_by_parent(builder.links)
    assert {parent: [link.id for link in links] for parent, links in children.items()} == {
        None: ["resp_1"],
        "resp_1": ["resp_2"],
        "resp_2": ["resp_3"],
        "resp_3": ["resp_4"],
    }
    assert tree_lines(builder, "resp_4") == ["resp_1", "resp_2", "resp_3", "resp_4"]
    assert ancestor_ids("resp_4", builder.links) == {"resp_1", "resp_2", "resp_3", "resp_4"}


def test_a_link_that_leads_into_a_cycle_stays_below_it() -> None:
    builder = set_parents(build_chain(3), {"resp_1": "resp_2", "resp_2": "resp_3", "resp_3": "resp_2"})
    assert [link.id for link in children_by_parent(builder.links)[None]] == ["resp_2"]
    assert tree_lines(builder, None) == ["resp_2", "> +resp_1", "resp_3"]


def test_two_cycles_have_a_root_each() -> None:
    builder = set_parents(
        build_chain(4), {"resp_1": "resp_2", "resp_2": "resp_1", "resp_3": "resp_4", "resp_4": "resp_3"}
    )
    assert [link.id for link in children_by_parent(builder.links)[None]] == ["resp_1", "resp_3"]


@pytest.mark.parametrize(
    ("head", "ids"), [("resp_2", {"resp_1", "resp_2"}), ("resp_9", set()), (None, set()), ("resp_1", {"resp_1"})]
)
def test_the_ancestors_of_a_link_lead_to_the_root(head: str | None, ids: set[str]) -> None:
    assert ancestor_ids(head, build_chain(3).links) == ids


def test_without_a_head_the_newest_completed_line_is_straight() -> None:
    builder = build_chain(2)
    builder.turn("resp_b", "other", "way", after="resp_1")
    builder.turn("try_c", "again", None, after="resp_1")
    assert tree_lines(builder, None) == ["resp_1", "> +resp_2", "> +try_c", "resp_b"]
    failed_builder = ConversationBuilder()
    failed_builder.turn("try_1", "hi", None)
    failed_builder.turn("try_2", "hi", None)
    assert tree_lines(failed_builder, None) == ["> +try_1", "try_2"]
