"""Secrets in a document are found in every form and replaced consistently; all other text is unchanged."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.errors import InputFault
from convo.history.items import Item, assistant_message, get_call_id, user_message
from convo.inspect.redaction import (
    RedactionResult,
    count_replacements,
    is_iban_valid,
    is_luhn_valid,
    is_machine_address,
    redact_document,
)
from convo.inspect.serialize import ConversationDocument
from tests.history.json_strategies import ITEMS

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\nQ8z\n-----END RSA PRIVATE KEY-----"

PPK = "Private-Lines: 2\n" + "aB3/" * 16 + "\nq8zAAA=="

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

SECRETS: dict[str, list[str]] = {
    "private-key": [PEM, PEM[:60], PEM.replace("RSA ", "OPENSSH "), "AGE-SECRET-KEY-1" + "Q" * 58, PPK],
    "api-key": [
        "sk-proj-abcdEFGH1234_ijklMNOP-5678",
        "sk-ant-api03-" + "a1B2" * 23 + "AA",
        "gsk_" + "aB3d" * 13,
        "hf_" + "aBcD" * 9,
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 15,
        "glpat-abcdefghij1234567890",
        "xoxb-123456789012-abcdefghij",
        "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
        "SG." + "abcdEFGH12345678" + "." + "abcdEFGH12345678abcdEFGH",
        "npm_" + "a1B2" * 9,
        "1234567890:AA" + "aB3_" * 9,
    ],
    "token": [JWT, "Bearer aGVsbG8tdGhlcmUtdGhpcw", "Basic dXNlcjpwYXNzd29yZA=="],
    "password": [
        "postgresql://me:hunter2!@db.internal:5432/x",
        "password=hunter2hunter2",
        'DB_PASSWORD: "correct-horse"',
        "API_KEY = 0123456789abcdef",
        '{"client_secret": "0123abcd-x"}',
        "my passphrase is swordfish-7",
    ],
    "email": ["ada@example.com", "ada.b+c@sub.example.co.uk", "Ádá@exämple.org"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"],
    "card": ["4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005"],
    "phone": ["+49 30 901820", "+1 (415) 555-2671"],
    "ip": ["203.0.113.7", "2001:db8::8a2e:370:7334", "10.1.2.3"],
}

HARMLESS = [
    "max_tokens: 4096 and token_count=12",
    "127.0.0.1 and ::1 and 0.0.0.0",
    "version 1.2.3 at 12:30:45 on 2026-11-21",
    "std::vector<int> a::b",
    "the number 1234567890123 and 4111111111111112",
    "resp_68f2a1b4c8d08190a3b1c2d3e4f5a6b7 call_Oslo fc_1",
    "a task-force and risk-averse desk-bound people",
    "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "@decorator def f(x): return x@y",
]


def redact(*items: Item, **more: Any) -> RedactionResult:
    return redact_document(ConversationDocument(items=items, confirmed_count=len(items), **more))


def redacted_text(found: RedactionResult) -> str:
    return json.dumps([found.document.items, found.document.name, found.document.instructions], ensure_ascii=False)


def secret_core(secret: str) -> str:
    """Return the part of a planted secret that must be redacted: the value after a name, the password in a URL."""
    match = re.search(r"://me:(.+)@|(?:=|:|\bis) ?\"?([\w-]+-?\w+)\"?\}?$", secret)
    return (
        next(filter(None, match.groups())) if match and "BEGIN" not in secret else secret.split("\n")[-1].split(" ")[-1]
    )


PLANTED = [(kind, secret) for kind, secrets in SECRETS.items() for secret in secrets]


@pytest.mark.parametrize(("kind", "secret"), PLANTED)
def test_a_secret_in_text_is_replaced_by_its_kind(kind: str, secret: str) -> None:
    found = redact(user_message(f"Look: {secret}"))
    assert secret_core(secret) not in redacted_text(found)
    assert f"[redacted-{kind}-1]" in redacted_text(found)
    assert count_replacements(found.replacements) == {kind: 1}


POSITIONS: list[Callable[[str], Item]] = [
    lambda secret: user_message(secret),
    lambda secret: {"role": "user", "content": f"({secret})"},
    lambda secret: {"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({"q": secret})},
    lambda secret: {"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({secret: [secret]})},
    lambda secret: {
        "type": "function_call_output",
        "call_id": "c",
        "output": json.dumps({"deep": json.dumps([secret])}),
    },
    lambda secret: {"type": "reasoning", "summary": [{"type": "summary_text", "text": secret}]},
    lambda secret: {"type": "from_the_future", "metadata": {secret: {"x": [None, secret]}}},
    lambda secret: {"type": "reasoning", "encrypted_content": f"{secret}"},
    lambda secret: user_message("", {"type": "input_image", "image_url": f"data:image/png;base64,{secret}"}),
    lambda secret: user_message("", {"type": "input_image", "image_url": f"https://example.net/{secret}"}),
    lambda secret: user_message("", {"type": "input_file", "filename": f"{secret} .txt", "file_data": inline(secret)}),
]


def inline(text: str) -> str:
    return f"data:text/plain;base64,{base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize("position", range(len(POSITIONS)))
@pytest.mark.parametrize("secret", ["ada@example.com", "sk-proj-abcdEFGH1234_ijklMNOP-5678", JWT, PEM])
def test_a_secret_is_redacted_in_every_position(position: int, secret: str) -> None:
    found = redact(POSITIONS[position](secret), name=f"on {secret}", instructions=f"Use {secret}.")
    redacted = redacted_text(found)
    decoded = [base64.b64decode(one).decode() for one in re.findall(r"text/plain;base64,([A-Za-z0-9+/=]+)", redacted)]
    for text in (redacted, *decoded):
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text
    assert {"name", "instructions", "item 1"} == {one.location for one in found.replacements}


KEY = "sk-proj-abcdEFGH1234_ijklMNOP-5678"


def encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SPELLINGS: dict[str, Item] = {
    "a file without its type": {"type": "input_file", "file_data": encode_base64(f"KEY={KEY}")},
    "a file in several lines": {
        "type": "input_file",
        "file_data": f"{encode_base64(f'KEY={KEY}' * 3)[:76]}\n{encode_base64(f'KEY={KEY}' * 3)[76:]}",
    },
    "an image that contains text": user_message(
        "", {"type": "input_image", "image_url": f"data:image/svg+xml;base64,{encode_base64(KEY)}"}
    ),
    "a file of an unknown type": {
        "file_data": f'DATA:application/x-ndjson;charset="utf-8";base64,{encode_base64(KEY)}'
    },
    "a file in URL-safe base64": {
        "file_data": f"data:;base64,{base64.urlsafe_b64encode(f'>>>???{KEY}'.encode()).decode()}"
    },
    "a truncated file": {"file_data": f"data:text/plain;base64,{encode_base64(f'{KEY} ').rstrip('=')}"},
    "a link to a file": user_message(f"see ![x](data:text/plain;base64,{encode_base64(KEY)}) there"),
    "base64 within text": user_message(f"kubectl says password: {encode_base64(f'my {KEY}')}, and more"),
    "escapes in a truncated document": {"output": '{"a": "\\u0073' + KEY[1:]},
    "escapes after text": {"output": 'Result: {"a": "\\u0073' + KEY[1:] + '"}'},
    "escapes under a duplicate name": {"arguments": '{"a": "\\u0073' + KEY[1:] + '", "a": 1}'},
    "an address in a URL": user_message("https://example.net/?who=ada%40example.com&x=1"),
    "quoted text": user_message('password: "correct horse sk-proj battery"'),
    "a whole header": user_message("Cookie: a=sk-proj-1; b=ada@example.com"),
    "a decimal number": {"type": "x", "paid": 4111111111111111.0},
}
"""Items with a secret in another spelling, in encoded data or within other text."""


@pytest.mark.parametrize("case", SPELLINGS)
def test_a_secret_with_another_spelling_is_redacted(case: str) -> None:
    found = redact(SPELLINGS[case])
    assert found.replacements
    redacted = redacted_text(found)
    files = re.findall(r"[A-Za-z0-9+/_-]{20,}={0,2}", redacted)
    texts = [redacted, *(base64.urlsafe_b64decode(one + "==").decode("utf-8", "ignore") for one in files)]
    for text in texts:
        for secret in ("sk-proj", "u0073k-proj", "ada", "4111", "horse"):
            assert secret not in text


def test_text_without_secrets_keeps_its_spelling() -> None:
    item = {
        "content": f"a%20b \\u0041 {encode_base64('nothing to see in here')} /usr/lib/python3/dist-packages/pip",
        "file_data": f"data:text/plain;base64,{encode_base64('hi')[:2]}\n{encode_base64('hi')[2:].rstrip('=')}",
    }
    assert redact(item).document.items == (item,)


def test_binary_data_without_a_media_type_is_reported_as_unchecked() -> None:
    audio = base64.b64encode(bytes(range(256))).decode()
    assert redact({"type": "input_audio", "input_audio": {"data": audio, "format": "wav"}}).unchecked_locations == (
        "item 1",
    )
    assert redact({"type": "x", "data": "success"}).unchecked_locations == ()


HEX = "0123456789abcdef"

KEY_FORMS: list[tuple[str, str, int, str]] = [
    ("sk-", "aB3_", 16, ""),
    *(
        (f"{prefix}-", "aB3_", 20, "")
        for prefix in ("gsk", "hf", "r8", "xai", "pplx", "tvly", "nvapi", "fw", "csk", "co")
    ),
    ("AIza", "aB3_", 30, ""),
    ("ya29.", "aB3.", 20, ""),
    ("GOCSPX-", "aB3_", 20, ""),
    *((prefix, "AB3D", 16, "") for prefix in ("A3TX", "AKIA", "ASIA", "ABIA", "ACCA", "LTAI")),
    *((f"gh{letter}_", "aB3d", 20, "") for letter in "opsur"),
    ("github_pat_", "aB3_", 20, ""),
    *((f"gl{name}-", "aB3.", 16, "") for name in ("pat", "dt", "rt", "soat", "ptt", "cbt")),
    *((f"xox{letter}-", "aB3-", 10, "") for letter in "abeoprs"),
    ("xapp-", "aB3-", 10, ""),
    *((prefix, "aB3d", 16, "") for prefix in ("sk_", "rk_live_", "pk_test_", "whsec_prod_")),
    ("SG.abcdEFGH1234_678.", "aB3_", 16, ""),
    ("key-", HEX, 32, ""),
    ("", HEX, 32, "-us12"),
    ("npm_", "aB3d", 30, ""),
    ("pypi-", "aB3_", 30, ""),
    ("dckr_pat_", "aB3_", 20, ""),
    ("rubygems_", HEX, 40, ""),
    *((f"do{letter}_v1_", HEX, 40, "") for letter in "opr"),
    ("lin_api_", "aB3d", 30, ""),
    *((f"shp{name}_", "aB3F", 32, "") for name in ("at", "ca", "pa", "ss")),
    ("ATATT3", "aB3=", 40, ""),
    ("ATCTT3", "aB3=", 40, ""),
    ("hvs.", "aB3_", 20, ""),
    ("glc_", "aB3+", 30, ""),
    ("sntrys_", "aB3_", 30, ""),
    ("dapi", HEX, 32, ""),
    ("EAA", "aB3d", 60, ""),
    ("secret_", "aB3d", 40, ""),
    ("12345678:AA", "aB3_", 30, ""),
    ("Mabcdefghij1234567890_-.aB3_x9.", "aB3_", 27, ""),
    ("Oabcdefghij1234567890_-.aB3_x9.", "aB3_", 27, ""),
]
"""Keys by issuer: the prefix, the characters that follow, their minimum number, and the end."""


@pytest.mark.parametrize(("prefix", "characters", "count", "end"), KEY_FORMS)
def test_a_key_of_a_known_issuer_is_found_from_its_minimum_length_on(
    prefix: str, characters: str, count: int, end: str
) -> None:
    key, short = (f"{prefix}{(characters * count)[:length]}{end}" for length in (count, count - 1))
    found = redact(user_message(f"({key}) and ({short})"))
    assert found.document.items == (user_message(f"([redacted-api-key-1]) and ({short})"),)


@pytest.mark.parametrize(
    ("is_valid", "text", "expected"),
    [
        (is_luhn_valid, "4222 2222 2222 2", True),
        (is_luhn_valid, "30569309025904", True),
        (is_luhn_valid, "378282246310005", True),
        (is_luhn_valid, "4111-1111-1111-1111", True),
        (is_luhn_valid, "4111111111111112", False),
        (is_luhn_valid, "6304000000000000000", True),
        (is_luhn_valid, "6304000000000000001", False),
        (is_luhn_valid, "63040000000000003", False),
        (is_luhn_valid, "424242424242", False),
        (is_luhn_valid, "0000000000000000", False),
        (is_iban_valid, "DE89 3704 0044 0532 0130 00", True),
        (is_iban_valid, "NO9386011117947", True),
        (is_iban_valid, "NO938601111794", False),
        (is_iban_valid, "MT84MALT011000012345MTLCAST001S", True),
        (is_iban_valid, "DE88 3704 0044 0532 0130 00", False),
        (is_iban_valid, "XX90" + "0" * 10, False),
        (is_iban_valid, "XX90" + "0" * 11, True),
        (is_iban_valid, "XX90" + "0" * 30, True),
        (is_iban_valid, "XX90" + "0" * 31, False),
        (is_machine_address, "10.1.2.3", True),
        (is_machine_address, "127.0.0.1", False),
        (is_machine_address, "0.0.0.0", False),
        (is_machine_address, "256.1.1.1", False),
        (is_machine_address, "2001:db8::1", True),
        (is_machine_address, "abcdef::", False),
        (is_machine_address, "fe8::1", True),
        (is_machine_address, "fe::1", False),
        (is_machine_address, "abcd::", False),
        (is_machine_address, "0000::1", False),
        (is_machine_address, "12:30:45", False),
    ],
)
def test_a_number_is_a_secret_only_if_it_is_valid(is_valid: Callable[[str], bool], text: str, expected: bool) -> None:
    assert is_valid(text) is expected


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_unchanged(text: str) -> None:
    found = redact(user_message(text))
    assert found.replacements == ()
    assert found.document.items == (user_message(text),)


def test_equal_secrets_have_the_same_placeholder_and_different_ones_have_different_placeholders() -> None:
    found = redact(user_message("ada@example.com, bob@example.com"), assistant_message("To ada@example.com?"))
    redacted = redacted_text(found)
    assert redacted.count("[redacted-email-1]") == 2
    assert redacted.count("[redacted-email-2]") == 1
    assert [(one.location, one.occurrences) for one in found.replacements] == [("item 1", 2), ("item 2", 1)]


def test_a_call_and_its_output_keep_the_same_id() -> None:
    call = {"type": "function_call", "call_id": "ada@example.com", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "ada@example.com", "output": "4"}
    one, two = redact(call, output).document.items
    assert get_call_id(one) == get_call_id(two) == "[redacted-email-1]"


def test_a_field_name_determines_the_kind_of_its_secret() -> None:
    call = {"type": "function_call", "name": "f", "arguments": '{"password": "swordfish", "x-api-key": "abcdef1"}'}
    odd = {"type": "odd", "headers": {"Authorization": ["Token zzz-zzz"], "pwd": 90210, "cookie": None}}
    found = redact(call, odd)
    assert not [one for one in ("swordfish", "abcdef1", "zzz-zzz", "90210") if one in redacted_text(found)]
    assert count_replacements(found.replacements) == {"password": 4}


def test_a_numeric_card_number_is_redacted() -> None:
    found = redact(
        {"type": "function_call", "name": "pay", "arguments": '{"card": 4111111111111111, "at": 1700000000000}'}
    )
    assert json.loads(found.document.items[0]["arguments"]) == {"card": "[redacted-card-1]", "at": 1700000000000}


def test_a_token_of_logprobs_is_no_secret() -> None:
    item = {
        "role": "assistant",
        "content": [{"type": "output_text", "logprobs": [{"token": "elephant", "logprob": 0}]}],
    }
    assert redact(item).replacements == ()


def test_custom_patterns_come_first_and_leave_the_vocabulary_of_the_api() -> None:
    document = ConversationDocument((user_message("Project Bluebird for user 7"),), 1, name="bluebird")
    found = redact_document(document, [re.compile("(?i)bluebird"), re.compile("user|message")])
    assert found.document.items == (user_message("Project [redacted-own-1] for [redacted-own-2] 7"),)
    assert found.document.name == "[redacted-own-3]"


def test_a_placeholder_is_not_replaced_by_a_custom_pattern_again() -> None:
    document = ConversationDocument((user_message("[redacted-email-1] of Ada"),), 1)
    found = redact_document(document, [re.compile(r"\[redacted-.*?\]|(?i:ada)")])
    assert found.document.items == (user_message("[redacted-email-1] of [redacted-own-1]"),)
    named = ConversationDocument((user_message("ticket 77 of [redacted-own-3]"),), 1)
    (item,) = redact_document(named, [re.compile(r"ticket (?P<secret>\d+)")]).document.items
    assert item == user_message("ticket [redacted-own-1] of [redacted-own-3]")


def test_content_that_cannot_be_checked_is_named() -> None:
    image = user_message("", {"type": "input_image", "image_url": "data:image/png;base64,AAAA"})
    found = redact(image, {"type": "reasoning", "encrypted_content": "gAAAA"}, user_message("plain"))
    assert (found.unchecked_locations, found.replacements) == (("item 1", "item 2"), ())
    assert found.document.items[0] == image


def test_content_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InputFault, match=r"^a value is nested too deeply to be searched for secrets$"):
        redact(user_message("[" * 5000 + '"ada@example.com"' + "]" * 5000))


def test_links_are_redacted_too() -> None:
    link = {
        "id": "resp_1",
        "saw": 0,
        "head": 1,
        "sent": 1,
        "model": "a/b",
        "strategy": "chain",
        "status": "failed",
        "created_at": 1.5,
        "endpoint": ["https://me:hunter2@example.com/v1", None, None],
        "parent": None,
        "conversation_id": None,
        "previous_response_id": None,
        "seconds": None,
        "first_token_s": None,
        "parameters": {"user": "ada@example.com"},
        "usage": None,
        "error": None,
        "stored": True,
    }
    found = redact(user_message("hi"), links=(link,))
    (redacted_link,) = found.document.links
    assert not re.search("hunter2|ada@", json.dumps(redacted_link))
    assert (redacted_link["id"], redacted_link["model"], redacted_link["created_at"], redacted_link["stored"]) == (
        "resp_1",
        "a/b",
        1.5,
        True,
    )
    assert redacted_link["endpoint"][0].endswith("@example.com/v1") or "example.com/v1" in redacted_link["endpoint"][0]
    assert redacted_link.keys() == link.keys()
    assert {one.location for one in found.replacements} == {"link 1"}


@given(items=st.lists(ITEMS, max_size=4).map(tuple), secret=st.sampled_from([one[1] for one in PLANTED]))
def test_a_document_without_secrets_is_unchanged_and_redaction_is_idempotent(
    items: tuple[Item, ...], secret: str
) -> None:
    redacted = redact_document(ConversationDocument((*items, user_message(secret)), 0)).document
    again = redact_document(redacted)
    assert (again.document, again.replacements) == (redacted, ())
