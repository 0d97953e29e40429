"""Keys, hashes and names as columns take them.

PostgreSQL's text holds neither U+0000 nor half a surrogate pair, and ids and names may hold both.
They are written with an escape that keeps beginnings: what begins alike is still found together.
"""

import re
from hashlib import sha256
from uuid import UUID

from convo.history import Key
from convo.items import Hash

ESCAPE = "\x1a"
UNFIT = re.compile(f"[\0{ESCAPE}\ud800-\udfff]")
ESCAPED = re.compile(f"{ESCAPE}([0-9a-f]{{4}})")
DIGITS = re.compile(r"[0-9a-f]{64}\Z")
HALF = 32
"""The digits of half a key."""


def written(name: str) -> str:
    """`name` as a column takes it."""
    return UNFIT.sub(lambda sign: f"{ESCAPE}{ord(sign[0]):04x}", name)


def maybe(name: str | None) -> str | None:
    return None if name is None else written(name)


def read(column: str) -> str:
    """The name that was written."""
    return ESCAPED.sub(lambda sign: chr(int(sign[1], 16)), column)


def half(key: Key) -> UUID:
    """The first half of a key, which names its place."""
    return UUID(hex=key[:HALF])


def rest(key: Key) -> UUID:
    return UUID(hex=key[HALF:])


def is_key(key: str) -> bool:
    return DIGITS.match(key) is not None


def item_name(hashed: Hash) -> UUID:
    """Half of an item's hash, which names its row."""
    return UUID(hex=hashed.partition(":")[2][:HALF])


def text_name(text: str) -> UUID:
    """Half of the hash of JSON that is stored once."""
    return UUID(bytes=sha256(text.encode()).digest()[:16])


def number(name: str) -> int:
    """Eight bytes of the hash of an id, by which an index finds it."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], signed=True)
