"""A keyring in memory that replaces the keyring of the machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import keyring
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoRing
from keyring.errors import KeyringLocked


class MemoryKeyring(KeyringBackend):
    """Counts its reads. Raises KeyringLocked while `locked`."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.passwords: dict[tuple[str, str], str] = {}
        self.reads = 0
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self.reads += 1
        if self.locked:
            raise KeyringLocked("sk-the-key is behind a lock")
        return self.passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.passwords[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.passwords[service, username]


@contextmanager
def use_keyring(backend: KeyringBackend) -> Iterator[None]:
    """Use `backend` as the keyring inside the block."""
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        yield
    finally:
        keyring.set_keyring(before)


@contextmanager
def memory_keyring() -> Iterator[MemoryKeyring]:
    """Use an empty keyring inside the block."""
    backend = MemoryKeyring()
    with use_keyring(backend):
        yield backend


@contextmanager
def no_keyring() -> Iterator[None]:
    """Use no keyring inside the block, as on a machine without one."""
    with use_keyring(NoRing()):  # type: ignore[no-untyped-call]
        yield
