"""Where a provider's key is: in a variable, in a file of its own, or in the keyring of whoever is logged in.

They are looked through in this order, and the first that has something wins: what was said for
this run before what was put away. A keyring is asked only for a provider whose settings say that
its key is there (`keyring = true`), because to ask one takes longer than most commands; its
package is an extra and loads on first use.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from convo.config.providers import Provider
from convo.config.secret import Secret, secret_in
from convo.errors import BadSettings

SERVICE = "convo"
"""Under which service a keyring has our keys."""

KEYRING = "the keyring"

LONGEST = 65_536
"""Bytes of a key's file that are read; a pipe or a device is not waited for."""


class Found(NamedTuple):
    """A key, and where it was: the name of a variable, the path of a file, or `KEYRING`."""

    key: Secret
    place: str


def key_of(provider: Provider, environ: Mapping[str, str]) -> Secret | None:
    """The provider's key; None when it takes none, or when nothing holds one. raises: BadSettings"""
    found = find_key(provider, environ)
    return found.key if found else None


def find_key(provider: Provider, environ: Mapping[str, str]) -> Found | None:
    """The provider's key and where it is.

    raises:  BadSettings  a file or a keyring does not give it out
    """
    if key := secret_in(environ, provider.key_env):
        return Found(key, str(provider.key_env))
    if provider.key_file:
        return Found(_in_file(provider.key_file, provider.name), str(provider.key_file))
    key = in_keyring(account(provider)) if provider.keyring else None
    return Found(key, KEYRING) if key else None


def token_of(provider: Provider, environ: Mapping[str, str]) -> Secret | None:
    """Azure's Entra ID token, where one is set."""
    return secret_in(environ, provider.token_env)


def put_away(provider: Provider) -> bool:
    """Whether the settings say that a file or a keyring holds its key; neither is looked into."""
    return provider.key_file is not None or provider.keyring


def is_keyed(provider: Provider, environ: Mapping[str, str]) -> bool:
    """Whether somebody set its key, or put one away."""
    return secret_in(environ, provider.key_env) is not None or put_away(provider)


def account(provider: Provider) -> str:
    """What a keyring knows the provider's key by: the name of the variable that would hold it."""
    return provider.key_env or provider.name


def _in_file(path: Path, provider: str) -> Secret:
    again = f"convo config key set {provider} --file"
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise BadSettings(f"the key of {provider} cannot be read: {path} is no file", hint=again)
        with path.open("rb") as file:
            text = file.read(LONGEST).decode().strip()
    except OSError as wrong:
        why = (wrong.strerror or str(wrong)).lower()
        raise BadSettings(f"the key of {provider} cannot be read: {path}: {why}", hint=again) from wrong
    except UnicodeDecodeError as wrong:
        raise BadSettings(f"the key of {provider} cannot be read: {path} is not text", hint=again) from wrong
    if not text:
        raise BadSettings(f"the key of {provider} is missing: {path} is empty", hint=again)
    return Secret(text)


# -- the keyring ----------------------------------------------------------------------------------


def in_keyring(name: str) -> Secret | None:
    """What the keyring has under `name`; None where it has nothing. raises: BadSettings"""
    with _keyring() as keyring:
        text = keyring.get_password(SERVICE, name)
    return Secret(text) if text else None


def has_keyring() -> bool:
    """Whether there is a keyring to ask; it may be locked."""
    try:
        from keyring import get_keyring
        from keyring.backends.fail import Keyring as NoKeyring
    except ImportError:
        return False
    return not isinstance(get_keyring(), NoKeyring)


def into_keyring(name: str, key: Secret) -> None:
    """raises: BadSettings  there is no keyring, or it is locked"""
    with _keyring() as keyring:
        keyring.set_password(SERVICE, name, key.reveal())


def out_of_keyring(name: str) -> bool:
    """Take it out; whether it was there. raises: BadSettings"""
    with _keyring() as keyring:
        there = keyring.get_password(SERVICE, name) is not None
        if there:
            keyring.delete_password(SERVICE, name)
        return there


@contextmanager
def _keyring() -> Iterator[ModuleType]:
    try:
        import keyring
        from keyring.errors import KeyringError, NoKeyringError
    except ImportError as wrong:
        raise BadSettings("keyring is not installed", hint="pip install 'convo-state[keyring]'") from wrong
    try:
        yield keyring
    except NoKeyringError as wrong:
        raise BadSettings("this machine has no keyring to use", hint="keep the key in a variable") from wrong
    except (KeyringError, OSError) as wrong:  # some of them are files
        raise BadSettings(f"the keyring does not open: {type(wrong).__name__}", hint="unlock it") from wrong
