"""Lines with labels."""

from convo.history.items import user_message
from convo.terminal.terminal import DisplayOptions, format_count, key_value_lines, unconfirmed_rows

ROWS = [("owner", "the local store"), ("note", "one two three four five six seven"), ("", "eight")]


def test_values_are_aligned() -> None:
    assert "\n".join(key_value_lines(ROWS, DisplayOptions())) == (
        "  owner  the local store\n"  #
        "  note   one two three four five six seven\n"
        "         eight"
    )


def test_lines_wrap_between_words() -> None:
    assert "\n".join(key_value_lines(ROWS, DisplayOptions(30))) == (
        "  owner  the local store\n"  #
        "  note   one two three four\n"
        "         five six seven\n"
        "         eight"
    )


def test_a_handle_is_never_truncated() -> None:
    assert "\n".join(key_value_lines([("at", "see " + "x" * 40)], DisplayOptions(20))) == (
        f"  at  see\n      {'x' * 14}\n      {'x' * 14}\n      {'x' * 12}"
    )
    assert list(key_value_lines([("at", "日" * 3)], DisplayOptions(1))) == ["  at  日", "      日", "      日"]


def test_a_long_value_is_split_after_a_separator() -> None:
    rows = [("url", "http://127.0.0.1:8000/v1"), ("model", "SmolLM2-135M-Instruct")]
    assert list(key_value_lines(rows, DisplayOptions(20))) == [
        "  url    http://",
        "         127.0.0.1:8",
        "         000/v1",
        "  model  SmolLM2-",
        "         135M-Instru",
        "         ct",
    ]


def test_only_the_label_is_coloured() -> None:
    assert list(key_value_lines([("a", "b")], DisplayOptions(80, has_color=True))) == ["  \x1b[2ma\x1b[0m  b"]


def test_control_characters_are_escaped() -> None:
    assert list(key_value_lines([("a", "\x1b[2J")], DisplayOptions())) == ["  a  \\x1b[2J"]


def test_counts_distinguish_singular_and_plural() -> None:
    assert [format_count(0), format_count(1), format_count(1_024, "link")] == ["0 items", "1 item", "1,024 links"]


def test_no_unconfirmed_items_is_stated() -> None:
    assert list(unconfirmed_rows([])) == [("unconfirmed", "none")]
    assert list(unconfirmed_rows([user_message("hi")])) == [("unconfirmed", "1 item"), ("", "user: hi")]


def test_a_long_id_is_a_whole_line_below_its_label_where_it_does_not_fit_beside_it() -> None:
    rows = [("unconfirmed", "none"), ("id", "ses_" + "1" * 32)]
    assert list(key_value_lines(rows, DisplayOptions(40))) == ["  unconfirmed  none", "  id", "    ses_" + "1" * 32]
    assert list(key_value_lines(rows, DisplayOptions(60)))[1:] == ["  id           ses_" + "1" * 32]
