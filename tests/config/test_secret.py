"""Secrets are not printed, and a key is not accepted as the name of a variable."""

import copy
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.config.values import Secret, is_variable_name, redact_passwords


@given(st.text(min_size=5))
def test_a_secret_is_not_printed_in_any_form(text: str) -> None:
    secret = Secret(f"<{text}>")

    output = f"{secret} {secret!r} {secret!s} {[secret]} {[secret]!s:>9}"
    assert secret.reveal() not in output
    assert secret.reveal() == f"<{text}>"
    assert (repr(secret), str(secret)) == ("Secret(***)", "***")


def test_a_secret_equals_only_the_same_secret() -> None:
    assert Secret("a") == copy.copy(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


@pytest.mark.parametrize(
    "name",
    [
        "K",
        "_",
        "OPENAI_API_KEY",
        "OPENAI_API_KEY_2",
        "MY_COMPANY_GATEWAY_OPENAI_KEY_2026",
        "http_proxy_secret_name",
        "k1",
        "a3f91c0d5e6b7a8f9c0",
    ],
)
def test_a_variable_name_is_accepted(name: str) -> None:
    assert is_variable_name(name)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "1A",
        "A B",
        "A-B",
        "$OPENAI_API_KEY",
        "sk-proj-abc",
        "gsk_abcdefghij0123456789",
        "gsk_ABCDEFGHIJKLMNOPQRst",
        "hf_AbCdEfGhIjKlMnOpQrStUv",
        "AIzaSyA0000000000000000",
        "a3f91c0d5e6b7a8f9c0d",
        "a3f91c0d5e6b7a8f9c0d1e2f",
        "A3F91C0D5E6B7A8F9C0D1E2F",
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_a_key_is_not_accepted_as_a_variable_name(key: str) -> None:
    assert not is_variable_name(key)


@given(st.text(string.ascii_uppercase + "_", min_size=1, max_size=60))
def test_every_name_in_capitals_is_accepted(name: str) -> None:
    assert is_variable_name(name)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("postgresql://me:pw@db.example/x", "postgresql://me:***@db.example/x"),
        ("postgres:/me:p@w@db/x and more", "postgres:/me:***@db/x and more"),
        ("https://me:pw@host/x", "https://me:***@host/x"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("host=db password='a b' user=me", "host=db password=*** user=me"),
        ("https://host/x?api_key=abc&b=1", "https://host/x?api_key=***&b=1"),
        ("sslpassword = secret", "sslpassword = ***"),
        ("nothing here", "nothing here"),
    ],
)
def test_passwords_are_redacted_in_urls_and_connection_strings(text: str, redacted: str) -> None:
    assert redact_passwords(text) == redacted
