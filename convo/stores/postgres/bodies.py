"""An item's JSON as a column holds it.

PostgreSQL compresses only what is larger than a quarter of a page, and a turn is smaller. So the text
is compressed here, if that makes it shorter, which for prose it does by about half. What begins with
"{" is not.
"""

import zlib
from collections.abc import Sequence

from convo.items import Item
from convo.stores.verbatim import dumps, loads

QUICK = 1
"""The level of zlib: half the time of the next ones, for a twentieth more bytes."""

PLAIN = b"{"


def packed(item: Item) -> bytes:
    """What a column holds of `item`. raises: NotCanonical"""
    text = dumps(item).encode()
    tight = zlib.compress(text, QUICK)
    return tight if len(tight) < len(text) else text


def item_of(body: bytes) -> Item:
    """The item that was packed."""
    found: Item = loads(_text(body))
    return found


def items_of(bodies: Sequence[bytes]) -> Sequence[Item]:
    """Items from their bodies; as one text they take less time."""
    found: Sequence[Item] = loads(b"[" + b",".join(map(_text, bodies)) + b"]")
    return found


def _text(body: bytes) -> bytes:
    return body if body.startswith(PLAIN) else zlib.decompress(body)
