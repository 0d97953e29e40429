"""API keys in headers and in keys files."""

from hashlib import sha256


def bearer(key: str) -> dict[str, str]:
    """Return the header of a request with this key."""
    return {"authorization": f"Bearer {key}"}


def key_hash(key: str) -> str:
    """Return the hash of a key as a keys file contains it."""
    return sha256(key.encode()).hexdigest()
