"""API keys: from a variable, a file or the keyring, in this order.

The keyring is queried only for providers with `keyring = true`, because a query is slow; its package
is an extra and is imported on first use.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from convo.config.sections import Provider
from convo.config.values import Secret, read_secret
from convo.errors import InvalidSettings

KEYRING_SERVICE = "convo"
"""Under which service a keyring has our keys."""

KEYRING_LOCATION = "the keyring"

_MAX_KEY_FILE_BYTES = 65_536
"""Bytes of a key's file that are read; a pipe or a device is not waited for."""


class FoundKey(NamedTuple):
    """A key, and where it was: the name of a variable, the path of a file, or `KEYRING_LOCATION`."""

    key: Secret
    place: str


def load_provider_key(provider: Provider, environ: Mapping[str, str]) -> Secret | None:
    """The provider's key; None when it takes none, or when nothing holds one. raises: BadSettings"""
    found = find_provider_key(provider, environ)
    return found.key if found else None


def find_provider_key(provider: Provider, environ: Mapping[str, str]) -> FoundKey | None:
    """The provider's key and where it is.

    raises:  InvalidSettings  a file or a keyring does not give it out
    """
    if key := read_secret(environ, provider.key_env):
        return FoundKey(key, str(provider.key_env))
    if provider.key_file:
        return FoundKey(_read_key_file(provider.key_file, provider.name), str(provider.key_file))
    key = read_keyring(get_keyring_username(provider)) if provider.keyring else None
    return FoundKey(key, KEYRING_LOCATION) if key else None


def load_provider_token(provider: Provider, environ: Mapping[str, str]) -> Secret | None:
    """Azure's Entra ID token, where one is set."""
    return read_secret(environ, provider.token_env)


def has_stored_key(provider: Provider) -> bool:
    """Whether the settings say that a file or a keyring holds its key; neither is looked into."""
    return provider.key_file is not None or provider.keyring


def has_provider_key(provider: Provider, environ: Mapping[str, str]) -> bool:
    """Whether somebody set its key, or put one away."""
    return read_secret(environ, provider.key_env) is not None or has_stored_key(provider)


def get_keyring_username(provider: Provider) -> str:
    """What a keyring knows the provider's key by: the name of the variable that would hold it."""
    return provider.key_env or provider.name


def _read_key_file(path: Path, provider: str) -> Secret:
    again = f"convo config key set {provider} --file"
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InvalidSettings(f"the key of {provider} cannot be read: {path} is no file", hint=again)
        with path.open("rb") as file:
            text = file.read(_MAX_KEY_FILE_BYTES).decode().strip()
    except OSError as wrong:
        why = (wrong.strerror or str(wrong)).lower()
        raise InvalidSettings(f"the key of {provider} cannot be read: {path}: {why}", hint=again) from wrong
    except UnicodeDecodeError as wrong:
        raise InvalidSettings(f"the key of {provider} cannot be read: {path} is not text", hint=again) from wrong
    if not text:
        raise InvalidSettings(f"the key of {provider} is missing: {path} is empty", hint=again)
    return Secret(text)


# -- the keyring ----------------------------------------------------------------------------------


def read_keyring(name: str) -> Secret | None:
    """What the keyring has under `name`; None where it has nothing. raises: BadSettings"""
    with _open_keyring() as keyring:
        text = keyring.get_password(KEYRING_SERVICE, name)
    return Secret(text) if text else None


def has_keyring() -> bool:
    """Whether there is a keyring to ask; it may be locked."""
    try:
        from keyring import get_keyring
        from keyring.backends.fail import Keyring as NoKeyring
    except ImportError:
        return False
    return not isinstance(get_keyring(), NoKeyring)


def write_keyring(name: str, key: Secret) -> None:
    """raises: InvalidSettings  there is no keyring, or it is locked"""
    with _open_keyring() as keyring:
        keyring.set_password(KEYRING_SERVICE, name, key.reveal())


def delete_from_keyring(name: str) -> bool:
    """Take it out; whether it was there. raises: BadSettings"""
    with _open_keyring() as keyring:
        there = keyring.get_password(KEYRING_SERVICE, name) is not None
        if there:
            keyring.delete_password(KEYRING_SERVICE, name)
        return there


@contextmanager
def _open_keyring() -> Iterator[ModuleType]:
    try:
        import keyring
        from keyring.errors import KeyringError, NoKeyringError
    except ImportError as wrong:
        raise InvalidSettings("keyring is not installed", hint="pip install 'convo-state[keyring]'") from wrong
    try:
        yield keyring
    except NoKeyringError as wrong:
        raise InvalidSettings("this machine has no keyring to use", hint="keep the key in a variable") from wrong
    except (KeyringError, OSError) as wrong:  # some of them are files
        raise InvalidSettings(f"the keyring does not open: {type(wrong).__name__}", hint="unlock it") from wrong
