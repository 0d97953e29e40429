"""Secrets are not printed, and a key is not accepted as the name of a variable."""

import copy
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.secrets import Secret, is_variable_name, redact_secrets, redact_server_address


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
        ("http://me:1234@h/x", "http://me:***@h/x"),
        ("postgresql://me:1234@h/d", "postgresql://me:***@h/d"),
        ("no user 'a@b' at postgresql://h:5432/d", "no user 'a@b' at postgresql://h:5432/d"),
        ("cannot open postgresql://h:5432/d: no user a@b", "cannot open postgresql://h:5432/d: no user a@b"),
        ("http://[::1]:8788/v1 refuses a@b", "http://[::1]:8788/v1 refuses a@b"),
        ("http://me:pw@[::1]:8788/v1", "http://me:***@[::1]:8788/v1"),
        ("see https://h.example: write to a@b", "see https://h.example: write to a@b"),
        ("host=db password='a b' user=me", "host=db password=*** user=me"),
        ("https://host/x?api_key=abc&b=1", "https://host/x?api_key=***&b=1"),
        ("sslpassword = secret", "sslpassword = ***"),
        ("nothing here", "nothing here"),
        ("https://glpat-abcdefghij0123456789@host/x", "https://***@host/x"),
        ("https://q7wn2mzk4x9c8v1b3n5l6j@host/x.git", "https://***@host/x.git"),
        ("https://Qw7_zK2-pL9vB4xN8mTr@host", "https://***@host"),
        ("https://550e8400-e29b-41d4-a716-446655440000@host", "https://***@host"),
        ("postgresql://alice@host/db", "postgresql://alice@host/db"),
        ("postgresql://reporting_service_readonly_2@host/db", "postgresql://reporting_service_readonly_2@host/db"),
        (
            "postgresql://my-service-account-01%40project.iam@h/d",
            "postgresql://my-service-account-01%40project.iam@h/d",
        ),
        ("postgresql://averylongnameofsomedepartment@h/d", "postgresql://averylongnameofsomedepartment@h/d"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("git@host:x/y.git", "git@host:x/y.git"),
    ],
)
def test_passwords_are_redacted_in_urls_and_connection_strings(text: str, redacted: str) -> None:
    assert redact_secrets(text) == redacted


KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"no session '{KEY}'", "no session '***'"),
        (f"no option '--{KEY}'", "no option '--***'"),
        (f"-m{KEY} and /tmp/{KEY}/x", "-m*** and /tmp/***/x"),
        (f"no option '-x{KEY}'", "no option '-x***'"),
        (repr(f"\n{KEY} \x1b{KEY} \x1b[1m{KEY} \u2028{KEY}"), repr("\n*** \x1b*** \x1b[1m*** \u2028***")),
        (repr("\napi_key=hunter2222 \x1b[1mtoken=hunter2222"), repr("\napi_key=*** \x1b[1mtoken=***")),
        ("-mpassword=hunter2222 épostgres://u:pw@h", "-mpassword=*** épostgres://u:***@h"),
        ("https://a:***@h and b@c", "https://a:***@h and b@c"),
        ("AKIAIOSFODNN7EXAMPLE, ghp_abcdefghijklmnopqrstuvwxyz0123456789", "***, ***"),
        ("key convo_" + "Ab1" * 14 + "x", "key ***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "***"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----.", "***."),
        ("api_key=hunter2222 is not a field", "api_key=*** is not a field"),
        ("Authorization: Bearer hunter2222", "Authorization: Bearer ***"),
        ("export OPENAI_API_KEY=...", "export OPENAI_API_KEY=..."),
        ("export SIGNING_KEY=$(openssl rand -hex 32)", "export SIGNING_KEY=$(openssl rand -hex 32)"),
        ("use Basic authentication", "use Basic authentication"),
        ("Basic bWU6c2VjcmV0MTI=, sent", "Basic ***, sent"),
        ("basic python3.12 and basic tutorial-2026", "basic python3.12 and basic tutorial-2026"),
        ("'api_key' is unknown; the token is missing", "'api_key' is unknown; the token is missing"),
        ("sk-learn-pipeline-notes-2024", "sk-learn-pipeline-notes-2024"),
        ("co-author-of-the-report-2026", "co-author-of-the-report-2026"),
        ("hf-mirror-DeepSeek-R1-Distill-Qwen-7B-Q4_K_M.gguf", "hf-mirror-DeepSeek-R1-Distill-Qwen-7B-Q4_K_M.gguf"),
        ("/work/co-operation_2026-11-24T20_06/notes.md", "/work/co-operation_2026-11-24T20_06/notes.md"),
        ("sk-lf-550e8400-e29b-41d4-a716-446655440000", "***"),
        ("task-550e8400-e29b-41d4-a716-446655440000", "task-550e8400-e29b-41d4-a716-446655440000"),
        ("resp_0123456789abcdef0123456789abcdef", "resp_0123456789abcdef0123456789abcdef"),
        ("0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
    ],
)
def test_keys_are_redacted_and_names_that_begin_like_keys_are_not(text: str, redacted: str) -> None:
    assert redact_secrets(text) == redacted
    assert redact_secrets(redacted) == redacted


@pytest.mark.parametrize(
    "unit", ["sk-", "a://b:", "a://b:1/", "https://", "key=", "a-", "@", "=", "eyJ", "bearer ", "basic ", "token is "]
)
def test_the_time_of_redaction_is_proportional_to_the_length(unit: str) -> None:
    """32 KB of a search that is quadratic take minutes."""
    assert redact_secrets(f"@{unit * (32_768 // len(unit))}")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://x.org/api/s/NGYzODc0YmUtZGI4Yi00ZDhi/mcp", "https://x.org/api/s/***/mcp"),
        ("https://x.org/u/123e4567-e89b-12d3-a456-426614174000", "https://x.org/u/***"),
        ("https://x.org/mcp?tavilyApiKey=abcdef0123456789abcdef", "https://x.org/mcp?tavilyApiKey=***"),
        ("npx mcp-remote http://x.org/AbCdEf0123456789abcdefgh/sse -v", "npx mcp-remote http://x.org/***/sse -v"),
        ("https://abcdefghij1234567890abcdef.on.aws/team-2025/my-long-project-2025/mcp", None),
        ("uvx --from git+https://github.com/org/Some-Long-Repository-Name2 server", None),
        ("server /nix/store/0c3vxabcdef0123456789abcdef01234-notes", None),
    ],
)
def test_the_address_of_an_mcp_server_is_shown_without_keys(address: str, shown: str | None) -> None:
    assert redact_server_address(address) == (shown or address)
