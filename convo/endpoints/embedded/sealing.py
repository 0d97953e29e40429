"""The seal on a compaction item: only this gateway opens it, and only for whose history it was.

    convoseal1:gAAAAABnPz...
    form       Fernet over the bytes of `convo.compaction.sealed`

The key is the setting's, which several replicas share, or else the database's own, which is made once
and never leaves it. Both may open, so setting a key later makes no older item useless; the setting's
seals. A passphrase of any length is a key: scrypt makes one of it, so that a short one is not guessed
cheaply. The tenant stands inside, and another one's item is answered as a damaged one would be.
"""

import asyncio
import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from convo.compaction import Sealed, dumps, loads
from convo.config import Secret
from convo.endpoints.embedded import refusals
from convo.errors import InputFault
from convo.items import Item
from convo.stores.contract import Store

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

FORM = "convoseal1:"
NAMED, KEY_BYTES = "seal", 32
"""The database's own key: what it is called there, and its length."""

SALT = b"convo compaction items, form 1"
COST, BLOCK, LANES = 2**14, 8, 1
"""Of scrypt: 16 MB and about 50 milliseconds, once for each key."""


def is_ours(item: Item) -> bool:
    """Whether a compaction item was sealed by a gateway of this kind, be it another one."""
    return str(item.get("encrypted_content")).startswith(FORM)


class Sealing:
    """Seals and opens for one tenant; `passphrase` is the setting's, where there is one."""

    def __init__(self, store: Store, passphrase: Secret | None = None) -> None:
        self._store, self._passphrase = store, passphrase
        self._keys: MultiFernet | None = None

    async def seal(self, sealed: Sealed) -> str:
        """The `encrypted_content` that holds `sealed`. raises: Refused, StoreFault  there is nothing to seal with"""
        return FORM + (await self._opened()).encrypt(dumps(sealed)).decode("ascii")

    async def opener(self) -> Callable[[Item], Sealed | None]:
        """Opens compaction items; what somebody else sealed is None, and what does not open is Refused.

        raises:  Refused, StoreFault  there is nothing to open with
        """
        keys = await self._opened()
        return lambda item: _open(item, keys, self._store.tenant) if is_ours(item) else None

    async def _opened(self) -> "MultiFernet":
        if self._keys is None:
            own = await self._store.upkeep.secret(NAMED, secrets.token_bytes(KEY_BYTES))
            given = [self._passphrase.reveal().encode()] if self._passphrase else []
            self._keys = await asyncio.to_thread(_keys, [*given, own])
        return self._keys


def _open(item: Item, keys: "MultiFernet", tenant: str) -> Sealed:
    from cryptography.fernet import InvalidToken

    try:
        sealed = loads(keys.decrypt(item["encrypted_content"].removeprefix(FORM).encode("ascii", "replace")))
    except (InvalidToken, InputFault) as wrong:
        raise refusals.not_verified(item) from wrong
    if sealed.tenant != tenant:
        raise refusals.not_verified(item)
    return sealed


def _keys(phrases: Sequence[bytes]) -> "MultiFernet":
    """The first seals; all of them open."""
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError as missing:
        raise refusals.nothing_to_seal_with() from missing
    return MultiFernet([Fernet(_key(phrase)) for phrase in phrases])


@lru_cache(maxsize=8)
def _key(phrase: bytes) -> bytes:
    return urlsafe_b64encode(hashlib.scrypt(phrase, salt=SALT, n=COST, r=BLOCK, p=LANES, dklen=KEY_BYTES))
