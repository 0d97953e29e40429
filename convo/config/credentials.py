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
from convo.errors import InvalidSettings
from convo.secrets import Secret, read_secret

KEYRING_SERVICE = "convo"
"""The service name of convo's keys in a keyring."""

KEYRING_LOCATION = "the keyring"

_MAX_KEY_FILE_BYTES = 65_536
"""Bytes of a key file that are read."""


class FoundKey(NamedTuple):
    """A key and its location: the name of a variable, the path of a file, or `KEYRING_LOCATION`."""

    key: Secret
    location: str


def load_provider_key(provider: Provider, environ: Mapping[str, str]) -> Secret | None:
    """Return the provider's key; None if it needs none or none is found. Raises InvalidSettings."""
    found = find_provider_key(provider, environ)
    return found.key if found else None


def find_provider_key(provider: Provider, environ: Mapping[str, str]) -> FoundKey | None:
    """Return the provider's key and its location. Raises InvalidSettings for an unreadable file or keyring."""
    if key := read_secret(environ, provider.key_env):
        return FoundKey(key, str(provider.key_env))
    if provider.key_file:
        return FoundKey(_read_key_file(provider.key_file, provider.name), str(provider.key_file))
    key = read_keyring(get_keyring_username(provider)) if provider.keyring else None
    return FoundKey(key, KEYRING_LOCATION) if key else None


def load_provider_token(provider: Provider, environ: Mapping[str, str]) -> Secret | None:
    """Return Azure's Entra ID token, or None if it is not set."""
    return read_secret(environ, provider.token_env)


def has_stored_key(provider: Provider) -> bool:
    """Whether the settings name a key file or the keyring; neither is read."""
    return provider.key_file is not None or provider.keyring


def has_provider_key(provider: Provider, environ: Mapping[str, str]) -> bool:
    """Whether the variable of the key is set, or a key is stored; files and the keyring are not read."""
    return read_secret(environ, provider.key_env) is not None or has_stored_key(provider)


def get_keyring_username(provider: Provider) -> str:
    """Return the user name of the provider's key in a keyring: the name of the key's variable."""
    return provider.key_env or provider.name


def _read_key_file(path: Path, provider: str) -> Secret:
    command = f"convo config key set {provider} --file"
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            # Opening a pipe without a writer blocks, also when a signal arrives.
            raise InvalidSettings(f"the key of {provider} cannot be read: {path} is not a file", hint=command)
        with path.open("rb") as file:
            text = file.read(_MAX_KEY_FILE_BYTES).decode().strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidSettings(f"the key of {provider} cannot be read: {path}: {reason}", hint=command) from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"the key of {provider} cannot be read: {path} is not text", hint=command) from error
    if not text:
        raise InvalidSettings(f"the key of {provider} is missing: {path} is empty", hint=command)
    return Secret(text)


# -- the keyring ----------------------------------------------------------------------------------


def read_keyring(name: str) -> Secret | None:
    """Return the keyring's key for `name`, or None. Raises InvalidSettings."""
    with _open_keyring() as keyring:
        text = keyring.get_password(KEYRING_SERVICE, name)
    return Secret(text) if text else None


def has_keyring() -> bool:
    """Whether this machine has a keyring that can store keys; it may be locked."""
    try:
        from keyring import get_keyring
        from keyring.backends.fail import Keyring as NoKeyring
        from keyring.backends.null import Keyring as DisabledKeyring  # of `keyring --disable`: it loses every key
    except ImportError:
        return False
    return not isinstance(get_keyring(), NoKeyring | DisabledKeyring)


class KeyringInfo(NamedTuple):
    """The keyring in use.

    name:             its module and class
    plain_text_file:  the file with its keys as plain text, or "a file" if the path is unknown; None if the keys are
                      encrypted
    """

    name: str
    plain_text_file: str | None = None


def find_keyring() -> KeyringInfo | None:
    """Return the keyring in use; None without one. Does not open it: it may be locked."""
    if not has_keyring():
        return None
    from keyring import get_keyring

    backend = get_keyring()
    backends = getattr(backend, "backends", None)  # of a chain of keyrings, the first stores new keys
    if isinstance(backends, list | tuple) and backends:
        backend = backends[0]
    name = f"{type(backend).__module__}.{type(backend).__qualname__}"
    # keyrings.alt's PlaintextKeyring, the backend of many servers.
    if "plaintext" not in type(backend).__name__.lower():
        return KeyringInfo(name)
    return KeyringInfo(name, str(getattr(backend, "file_path", None) or "a file"))


def check_keyring() -> None:
    """Raises InvalidSettings if there is no keyring. Does not open it: it may be locked."""
    with _open_keyring():
        if not has_keyring():
            from keyring.errors import NoKeyringError

            raise NoKeyringError


def write_keyring(name: str, key: Secret) -> None:
    """Store a key. Raises InvalidSettings if there is no keyring or it is locked."""
    with _open_keyring() as keyring:
        keyring.set_password(KEYRING_SERVICE, name, key.reveal())


def delete_from_keyring(name: str) -> bool:
    """Delete a key; returns whether it existed. Raises InvalidSettings."""
    with _open_keyring() as keyring:
        exists = keyring.get_password(KEYRING_SERVICE, name) is not None
        if exists:
            keyring.delete_password(KEYRING_SERVICE, name)
        return exists


@contextmanager
def _open_keyring() -> Iterator[ModuleType]:
    try:
        import keyring
        from keyring.errors import KeyringError, NoKeyringError
    except ImportError as error:
        from convo.installation import make_missing_extra_error

        raise make_missing_extra_error(InvalidSettings, "the keyring", "keyring") from error
    try:
        yield keyring
    except NoKeyringError as error:
        raise InvalidSettings("this machine has no keyring", hint="set the key in an environment variable") from error
    # Only its type: the message of a backend may contain a key.
    except (KeyringError, OSError) as error:  # some keyrings are files
        raise InvalidSettings(
            f"the keyring cannot be opened: {type(error).__name__}", hint="unlock the keyring"
        ) from error
