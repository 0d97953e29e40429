"""The part of a text in which a search found its words."""

from hypothesis import given
from hypothesis import strategies as some

from convo.inspect.view import search_snippet

LONG = "one two three four five six seven eight nine ten " * 4 + "monad " + "eleven twelve thirteen " * 10


def test_a_short_text_is_shown_whole_on_one_line() -> None:
    assert search_snippet("what is\n  a monad?", "monad") == "what is a monad?"


def test_a_long_text_is_shown_around_the_first_word_found() -> None:
    found = search_snippet(LONG, "nothing monad", width=60)
    assert "monad" in found
    assert (found[0], found[-1], len(found)) == ("…", "…", 60)


def test_a_word_at_the_end_leaves_nothing_out_behind_it() -> None:
    found = search_snippet(LONG + "coda", "coda", width=40)
    assert found.endswith("coda")
    assert len(found) == 40


def test_case_and_marks_do_not_count() -> None:
    assert "Café" in search_snippet(LONG + "Café " + LONG, "cafe")


def test_words_that_stand_nowhere_give_the_beginning() -> None:
    assert search_snippet(LONG, "zebra", width=20) == "one two three four …"


@given(some.text(), some.text(), some.integers(10, 80))
def test_it_is_never_wider_than_asked(text: str, words: str, width: int) -> None:
    assert len(search_snippet(text, words, width)) <= width
