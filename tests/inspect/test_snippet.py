"""The part of a text that contains the search terms."""

from hypothesis import given
from hypothesis import strategies as some

from convo.inspect.view import search_snippet

LONG = "one two three four five six seven eight nine ten " * 4 + "monad " + "eleven twelve thirteen " * 10


def test_a_short_text_is_shown_completely_on_one_line() -> None:
    assert search_snippet("what is\n  a monad?", "monad") == "what is a monad?"


def test_a_long_text_is_shown_around_the_first_matching_word() -> None:
    found = search_snippet(LONG, "nothing monad", width=60)
    assert "monad" in found
    assert (found[0], found[-1], len(found)) == ("…", "…", 60)


def test_a_match_at_the_end_is_not_followed_by_an_ellipsis() -> None:
    found = search_snippet(LONG + "coda", "coda", width=40)
    assert found.endswith("coda")
    assert len(found) == 40


def test_case_and_diacritics_are_ignored() -> None:
    assert "Café" in search_snippet(LONG + "Café " + LONG, "cafe")


def test_without_a_match_the_beginning_is_shown() -> None:
    assert search_snippet(LONG, "zebra", width=20) == "one two three four …"


@given(some.text(), some.text(), some.integers(10, 80))
def test_a_snippet_is_never_wider_than_requested(text: str, words: str, width: int) -> None:
    assert len(search_snippet(text, words, width)) <= width
