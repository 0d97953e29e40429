"""In which order and how far to the right links are drawn."""

from convo.inspection import children, rows
from tests.inspection.built import Talk, chain


def drawn(talk: Talk, head: str | None) -> list[str]:
    """Each row as "> > id", one mark for every step to the right, "+" where it steps aside."""
    return ["> " * row.depth + ("+" if row.begins else "") + row.link.id for row in rows(talk.links, head)]


def test_a_chain_goes_straight_down_however_long_it_is() -> None:
    talk = chain(5_000)
    found = list(rows(talk.links, "resp_5000"))
    assert [row.link for row in found] == talk.links
    assert {row.depth for row in found} == {0}


def test_the_line_to_the_head_stays_straight_and_the_other_steps_aside_before_it() -> None:
    talk = chain(2)
    talk.turn("resp_b", "other", "way", after="resp_1")
    talk.turn("resp_b2", "on", "and on", after="resp_b")
    assert drawn(talk, "resp_2") == ["resp_1", "> +resp_b", "> resp_b2", "resp_2"]
    assert drawn(talk, "resp_b2") == ["resp_1", "> +resp_2", "resp_b", "resp_b2"]


def test_without_a_head_the_newest_line_is_straight() -> None:
    talk = chain(2)
    talk.turn("resp_b", "other", "way", after="resp_1")
    assert drawn(talk, None) == ["resp_1", "> +resp_2", "resp_b"]


def test_fifty_retries_in_a_row_are_one_step_deep() -> None:
    talk = chain(1)
    last = "resp_1"
    for number in range(50):
        talk.turn(f"try_{number}", "again", None, after=last)
        talk.turn(f"resp_n{number}", "again", "at last", after=last)
        last = f"resp_n{number}"
    assert max(row.depth for row in rows(talk.links, last)) == 1
    assert drawn(talk, last)[-2:] == ["> +try_49", "resp_n49"]


def test_a_fork_within_a_fork_is_two_steps_deep() -> None:
    talk = chain(2)
    talk.turn("resp_b", "other", "way", after="resp_1")
    talk.turn("resp_c", "inner", "left", after="resp_b")
    talk.turn("resp_d", "inner", "right", after="resp_b")
    assert drawn(talk, "resp_2") == ["resp_1", "> +resp_b", "> > +resp_c", "> resp_d", "resp_2"]


def test_conversations_that_begin_several_times_are_all_drawn() -> None:
    talk = Talk()
    talk.turn("try_1", "hi", None)
    talk.turn("try_2", "hi", None)
    talk.turn("resp_1", "hi", "there")
    assert drawn(talk, "resp_1") == ["> +try_1", "> +try_2", "resp_1"]


def test_a_link_whose_parent_is_gone_begins_a_line_of_its_own() -> None:
    talk = chain(3)
    talk.links.pop(0)
    assert drawn(talk, "resp_3") == ["resp_2", "resp_3"]
    assert [link.id for link in children(talk.links)[None]] == ["resp_2"]
