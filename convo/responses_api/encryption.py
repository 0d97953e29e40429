"""Encrypt and decrypt compaction items, for one tenant.

    convoseal1:gAAAAABnPz...    Fernet over the encoded compaction content

Keys: the setting's passphrase (shared by replicas, encrypts if set), and a key generated once in
the database. Both decrypt. The tenant is part of the content; an item of another tenant is
refused exactly as a damaged one.
"""

import asyncio
import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from convo.compaction.window import CompactionContent, decode_compaction, encode_compaction
from convo.errors import InputFault
from convo.history.items import Item
from convo.responses_api import errors
from convo.secrets import Secret
from convo.stores.base import Store

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


ENCRYPTED_PREFIX = "convoseal1:"
DATABASE_KEY_NAME, KEY_SIZE_BYTES = "seal", 32
"""The database's own key: its name in the database, and its size."""

SCRYPT_SALT = b"convo compaction items, form 1"
SCRYPT_COST, SCRYPT_BLOCK_SIZE, SCRYPT_PARALLELISM = 2**14, 8, 1
"""Parameters of scrypt: 16 MB and about 50 milliseconds, once for each key."""


def _is_encrypted_by_convo(item: Item) -> bool:
    """Whether this or another convo gateway encrypted the compaction item."""
    return str(item.get("encrypted_content")).startswith(ENCRYPTED_PREFIX)


class CompactionCipher:
    """Encrypts and decrypts compaction items of one tenant; `passphrase` comes from the setting, if set."""

    def __init__(self, store: Store, passphrase: Secret | None = None) -> None:
        self._store, self._passphrase = store, passphrase
        self._fernet: MultiFernet | None = None

    async def encrypt(self, content: CompactionContent) -> str:
        """Return `content` as `encrypted_content`. Raises RequestRefused and StoreFault if there is no key."""
        return ENCRYPTED_PREFIX + (await self.load_fernet()).encrypt(encode_compaction(content)).decode("ascii")

    async def load_decryptor(self) -> Callable[[Item], CompactionContent | None]:
        """Return a decryptor of compaction items. Raises RequestRefused and StoreFault if there is no key.

        The decryptor returns None for an item that convo did not encrypt, and raises RequestRefused for one that it
        cannot decrypt.
        """
        fernet = await self.load_fernet()
        return lambda item: _decrypt_item(item, fernet, self._store.tenant) if _is_encrypted_by_convo(item) else None

    async def load_fernet(self) -> "MultiFernet":
        """Return the keys, loaded once. Raises RequestRefused and StoreFault if there is no key."""
        if self._fernet is None:
            database_key = await self._store.admin.get_or_create_secret(
                DATABASE_KEY_NAME, secrets.token_bytes(KEY_SIZE_BYTES)
            )
            passphrases = [self._passphrase.reveal().encode()] if self._passphrase else []
            # In a thread, because scrypt takes about 50 ms. The database's key opens what was encrypted before the
            # setting.
            self._fernet = await asyncio.to_thread(_build_fernet, [*passphrases, database_key])
        return self._fernet


def _decrypt_item(item: Item, fernet: "MultiFernet", tenant: str) -> CompactionContent:
    from cryptography.fernet import InvalidToken

    try:
        content = decode_compaction(
            fernet.decrypt(item["encrypted_content"].removeprefix(ENCRYPTED_PREFIX).encode("ascii", "replace"))
        )
    except (InvalidToken, InputFault) as error:
        raise errors.invalid_encrypted_content_error(item) from error
    # All tenants of a database share its key.
    if content.tenant != tenant:
        raise errors.invalid_encrypted_content_error(item)
    return content


def _build_fernet(passphrases: Sequence[bytes]) -> "MultiFernet":
    """Build the cipher: the first key encrypts, all of them decrypt."""
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError as error:
        raise errors.missing_cryptography_error() from error
    return MultiFernet([Fernet(_derive_key(passphrase)) for passphrase in passphrases])


@lru_cache(maxsize=8)
def _derive_key(passphrase: bytes) -> bytes:
    return urlsafe_b64encode(
        hashlib.scrypt(
            passphrase, salt=SCRYPT_SALT, n=SCRYPT_COST, r=SCRYPT_BLOCK_SIZE, p=SCRYPT_PARALLELISM, dklen=KEY_SIZE_BYTES
        )
    )
