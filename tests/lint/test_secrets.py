"""Secrets in a RunState: the path and the kind of each, without its value."""

from typing import Any

import pytest

from convo.lint.secrets import find_exposed_secrets

KEY = "sk-proj-abcdEFGH1234_ijklMNOP-5678"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({}, []),
        ({"a": "hello there", "b": 7, "c": None, "d": [True, 1.5]}, []),
        ({"context": {"key": KEY}}, [(".context.key", "an API key")]),
        (
            {"context": ["x", {"a b": KEY}, [KEY]]},
            [(".context[1]['a b']", "an API key"), (".context[2][0]", "an API key")],
        ),
        ({"a": PEM}, [(".a", "a private key")]),
        ({"a": "Bearer aGVsbG8tdGhlcmUtdGhpcw"}, [(".a", "a token")]),
        ({"a": "postgresql://me:hunter2!@db.internal:5432/x"}, [(".a", "a password")]),
        ({"a": "x " * 60 + KEY}, [(".a", "an API key")]),
        ({"a": "ada@example.com or 4111 1111 1111 1111"}, []),
        ({"password": "abc"}, [(".password", "a secret, by the name of its field (password)")]),
        ({"api_key": ["abc", " ", ""]}, [(".api_key[0]", "a secret, by the name of its field (api_key)")]),
        ({"api_key": KEY}, [(".api_key", "an API key")]),
        ({"api_key": "[redacted-api-key-1]"}, []),
        ({"api_key": 12345678}, []),
        ({"encrypted_content": KEY}, []),
        ({"logprobs": [{"token": "elephant", "logprob": -0.1}]}, []),
        ({"logprobs": [{"token": "elephant"}]}, [(".logprobs[0].token", "a secret, by the name of its field (token)")]),
        ({KEY: {"b": KEY}}, [(".*", "an API key"), (".*.b", "an API key")]),
        (
            {"b": KEY, "a": [{"y": KEY, "x": KEY}], "$c_1": KEY},
            [(path, "an API key") for path in (".b", ".a[0].y", ".a[0].x", ".$c_1")],
        ),
    ],
)
def test_each_secret_is_named_by_path_and_kind_in_the_order_of_the_document(
    document: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    assert [tuple(secret) for secret in find_exposed_secrets(document)] == found
