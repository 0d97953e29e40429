"""Expansion of variables in a connection string."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.config.values import InvalidValue, expand_variables

names = st.text(string.ascii_letters + "_", min_size=1).flatmap(
    lambda head: st.text(string.ascii_letters + string.digits + "_").map(lambda tail: head + tail)
)
environs = st.dictionaries(names, st.text())
plain = st.text(st.characters(blacklist_characters="$"))


@given(plain, environs)
def test_text_without_a_dollar_sign_is_unchanged(text: str, environ: dict[str, str]) -> None:
    assert expand_variables(text, environ) == text


@given(plain, names, st.text(), plain)
def test_a_braced_name_is_expanded_inside_other_text(before: str, name: str, value: str, after: str) -> None:
    assert expand_variables(f"{before}${{{name}}}{after}", {name: value}) == before + value + after


@given(names, st.text(), st.text(st.sampled_from("@:/-. ä=")))
def test_a_bare_name_ends_at_the_first_character_that_no_name_contains(name: str, value: str, after: str) -> None:
    assert expand_variables(f"${name}{after}", {name: value}) == value + after


@given(names, names)
def test_the_value_of_a_variable_is_not_expanded_again(outer: str, inner: str) -> None:
    value = f"${inner}${{{inner}}}$$"
    assert expand_variables(f"<${{{outer}}}>", {outer: value, inner: value}) == f"<{value}>"


@given(st.text(), environs)
def test_doubled_dollar_signs_escape_any_text(text: str, environ: dict[str, str]) -> None:
    assert expand_variables(text.replace("$", "$$"), environ) == text


@given(names, plain)
def test_a_missing_variable_is_named(name: str, before: str) -> None:
    with pytest.raises(InvalidValue) as error:
        expand_variables(f"{before}${{{name}}}", {})
    assert str(error.value) == f"refers to the variable {name}, which is not set"


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${A-B}", "${1}", "a${ A}"])
def test_an_empty_or_unclosed_brace_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^has a '\$\{' that is not followed by a variable name and '\}'$"):
        expand_variables(text, {"A": "1"})


@pytest.mark.parametrize("text", ["$", "a$", "$5", "$ A", "pa$-s", "$ä"])
def test_a_dollar_sign_before_another_character_is_literal(text: str) -> None:
    assert expand_variables(text, {"A": "1"}) == text


def test_an_empty_variable_is_set() -> None:
    assert expand_variables("a${EMPTY}b", {"EMPTY": ""}) == "ab"
