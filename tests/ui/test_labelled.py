"""Lines with labels."""

from convo.items import user
from convo.ui.labelled import counted, labelled, waiting
from convo.ui.medium import Medium

ROWS = [("owner", "the local store"), ("note", "one two three four five six seven"), ("", "eight")]


def test_words_stand_below_each_other() -> None:
    assert "\n".join(labelled(ROWS, Medium())) == (
        "  owner  the local store\n"  #
        "  note   one two three four five six seven\n"
        "         eight"
    )


def test_a_terminal_wraps_between_words() -> None:
    assert "\n".join(labelled(ROWS, Medium(30))) == (
        "  owner  the local store\n"  #
        "  note   one two three four\n"
        "         five six seven\n"
        "         eight"
    )


def test_a_handle_is_never_cut() -> None:
    assert "\n".join(labelled([("at", "see " + "x" * 40)], Medium(20))) == f"  at  see\n      {'x' * 40}"


def test_only_the_label_is_painted() -> None:
    assert list(labelled([("a", "b")], Medium(80, colour=True))) == ["  \x1b[2ma\x1b[0m  b"]


def test_control_characters_are_spelled_out() -> None:
    assert list(labelled([("a", "\x1b[2J")], Medium())) == ["  a  \\x1b[2J"]


def test_counting_knows_one_from_many() -> None:
    assert [counted(0), counted(1), counted(1_024, "link")] == ["0 items", "1 item", "1,024 links"]


def test_nothing_waiting_is_said_as_well() -> None:
    assert list(waiting([])) == [("waiting", "nothing is unacknowledged")]
    assert list(waiting([user("hi")])) == [("waiting", "1 item unacknowledged"), ("", "user: hi")]
