"""Two names for every item: its hash names the exact form, its digest names the meaning.

The same answer comes in at least four forms: as output of a response, as input for the next
request, as `{role, content: [output_text]}` and as `{role, content: "text"}`. Items are stored
by hash, so each form is kept as it travelled; histories are compared by digest, so an answer
that came back without its id is still itself.

Both are SHA-256 over sorted-key JSON with every non-ASCII character escaped and integers exact.
(RFC 8785 would merge 2**53 with 2**53 + 1 and cannot encode a lone surrogate.) The letter and
figure in front name the form, so that it can change without old names changing their meaning.
"""

import json
from hashlib import sha256
from typing import NewType

from convo.errors import NotCanonical
from convo.items.shapes import Item, Json

Hash = NewType("Hash", str)
Digest = NewType("Digest", str)

SERVER_ONLY = frozenset({"id", "status", "created_at", "created_by"})
"""Fields of an item that only a server gives; they say nothing about what was said."""

EXACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
"""Made once: to make it takes as long as to write a short item with it."""

SERVER_ONLY_IN_PARTS = frozenset({"annotations", "logprobs"})


def hash_of(item: Item) -> Hash:
    """Name the exact form of `item`; the order of its keys does not count.

    returns:  "h1:" + 64 hex digits
    raises:   NotCanonical  a number is NaN or infinite, or a value is not JSON
    """
    return Hash("h1:" + sha256(_exact(item)).hexdigest())


def digest(item: Item) -> Digest:
    """Name what `item` means, whichever form it came in.

    returns:  "d1:" + 64 hex digits
    raises:   NotCanonical  as for `hash_of`
    """
    return Digest("d1:" + sha256(_exact(normal(item))).hexdigest())


def normal(item: Item) -> dict[str, Json]:
    """Spell `item` out: easy messages in parts, server-only and empty fields left out."""
    said = {key: value for key, value in item.items() if key not in SERVER_ONLY and value is not None}
    if "role" in said and said.get("type", "message") == "message":
        said["type"] = "message"
        said["content"] = _parts(said["role"], said.get("content", []))
    return said


def _parts(role: str, content: Json) -> Json:
    if isinstance(content, str):
        return [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content]


def _part(part: Json) -> Json:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if key not in SERVER_ONLY_IN_PARTS and value is not None}


def _exact(value: Json) -> bytes:
    try:
        return EXACT.encode(value).encode("ascii")
    except (TypeError, ValueError, RecursionError) as wrong:
        raise NotCanonical(f"an item has no exact JSON form: {wrong}") from wrong
