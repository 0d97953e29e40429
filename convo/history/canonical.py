"""Item hash and item digest.

`item_hash` identifies the exact form of an item ("h1:" + SHA-256), `digest` its meaning ("d1:" + SHA-256 of the
normalized item). Items are stored by hash; histories are compared by digest, because the same answer has at least four
forms: response output, request input, `{role, content: [output_text]}` and `{role, content: "text"}`. Both hash
sorted-key ASCII JSON with exact integers (RFC 8785 would merge 2**53 with 2**53 + 1 and rejects lone surrogates).

JSON from outside is decoded by `STRICT_JSON_DECODER`, which refuses numbers without a canonical form.
"""

import json
from hashlib import sha256
from math import isinf
from typing import NewType

from convo.errors import NotCanonical
from convo.history.items import Item, Json

Hash = NewType("Hash", str)
Digest = NewType("Digest", str)

SERVER_FIELDS = frozenset({"id", "status", "created_at", "created_by"})
"""Fields of an item that only a server sets; they are no part of its meaning."""

CANONICAL_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
"""Made once: making an encoder takes as long as encoding a short item."""

SERVER_PART_FIELDS = frozenset({"annotations", "logprobs"})


def refuse_json_constant(name: str) -> Json:
    """Raise ValueError for NaN, Infinity and -Infinity, which Python's decoder accepts: its `parse_constant`."""
    raise ValueError(f"{name} is not a JSON number")


def _parse_finite_float(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError("a number is larger than any double")
    return number


STRICT_JSON_DECODER = json.JSONDecoder(parse_constant=refuse_json_constant, parse_float=_parse_finite_float)
"""Raises ValueError for constants that are not JSON, and for numbers beyond every double."""


def describe_json_error(error: Exception) -> str:
    """Describe an error of Python's JSON parser in words of JSON."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "set_int_max_str_digits" in str(error):
        return "a number in it has too many digits"
    return str(error)


MAX_JSON_VALUES = 500_000
"""Maximum number of values in a document, nested ones included: fifty for each of the maximum number of items."""


def has_too_many_values(raw: bytes) -> bool:
    """Whether a JSON document has more than `MAX_JSON_VALUES` values: parsed, they would take fifty times its size."""
    if len(raw) <= MAX_JSON_VALUES or count_value_signs(raw) <= MAX_JSON_VALUES:
        return False
    return count_value_signs(_remove_strings(raw)) > MAX_JSON_VALUES  # slower, so only if the first count is too high


def _remove_strings(raw: bytes) -> bytes:
    return b"".join(raw.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


def count_value_signs(raw: bytes) -> int:
    """Count the characters that precede a value, also in strings."""
    return sum(map(raw.count, (b",", b"[", b"{")))


def item_hash(item: Item) -> Hash:
    """Hash the exact form of `item`; the order of its keys does not count.

    Returns "h1:" + 64 hex digits. Raises NotCanonical when a number is NaN or infinite, or a value is not JSON.
    """
    return Hash("h1:" + sha256(_canonical_bytes(item)).hexdigest())


def digest(item: Item) -> Digest:
    """Hash the meaning of `item`, independent of its form.

    Returns "d1:" + 64 hex digits. Raises the errors of `item_hash`.
    """
    return Digest("d1:" + sha256(_canonical_bytes(normalize_item(item))).hexdigest())


def normalize_item(item: Item) -> dict[str, Json]:
    """Normalize `item`: easy messages get content parts; server-only and empty fields are left out."""
    normalized = {key: value for key, value in item.items() if key not in SERVER_FIELDS and value is not None}
    if "role" in normalized and normalized.get("type", "message") == "message":
        normalized["type"] = "message"
        normalized["content"] = _normalize_content(normalized["role"], normalized.get("content", []))
    return normalized


def _normalize_content(role: str, content: Json) -> Json:
    if isinstance(content, str):
        return [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    if not isinstance(content, list):
        return content
    return [_normalize_part(part) for part in content]


def _normalize_part(part: Json) -> Json:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if key not in SERVER_PART_FIELDS and value is not None}


def _canonical_bytes(value: Json) -> bytes:
    try:
        return CANONICAL_ENCODER.encode(value).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise NotCanonical(f"an item has no exact JSON form: {error}") from error


def is_utf8_encodable(text: str) -> bool:
    """Return whether `text` can be encoded as UTF-8; it cannot with half a surrogate pair."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
