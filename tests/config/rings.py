"""A keyring as the package of that name takes it: one in memory stands where the machine's own would."""

from collections.abc import Iterator
from contextlib import contextmanager

import keyring
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoRing
from keyring.errors import KeyringLocked


class Ring(KeyringBackend):
    """A keyring that is held in memory."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}
        self.asked = 0
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        if self.locked:
            raise KeyringLocked("sk-the-key is behind a lock")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@contextmanager
def standing(one: KeyringBackend) -> Iterator[None]:
    """Let `one` be the keyring of whoever is logged in, as long as the block runs."""
    before = keyring.get_keyring()
    keyring.set_keyring(one)
    try:
        yield
    finally:
        keyring.set_keyring(before)


@contextmanager
def logged_in() -> Iterator[Ring]:
    """An empty keyring."""
    one = Ring()
    with standing(one):
        yield one


@contextmanager
def without_any() -> Iterator[None]:
    """A machine that has no keyring."""
    with standing(NoRing()):  # type: ignore[no-untyped-call]
        yield
