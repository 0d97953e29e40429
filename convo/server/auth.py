"""Authentication: API keys map to tenants; without keys, only local callers.

A keys file has one "NAME SHA256 [admin]" a line and is reloaded when it changes; NAME is the
tenant. An admin key also sees the metrics of the whole server, never another tenant's state.
Without a keys file there is one tenant, and Host and Origin headers must be local (DNS
rebinding, cross-origin requests).
"""

import hmac
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Protocol

from convo.config.paths import make_private_folder
from convo.config.settings import LOCAL_TENANT
from convo.config.trust import is_loopback
from convo.config.values import TENANT_PATTERN
from convo.errors import InvalidSettings, StoreFault
from convo.runtime import PRIVATE_FILE_MODE
from convo.server import errors

KEY_LINE = re.compile(rf"(?P<name>{TENANT_PATTERN.pattern})\s+(?P<hash>[0-9a-f]{{64}})(?P<admin>\s+admin)?")
BUCKET_DIGITS = 8
BEARER_PREFIX = "bearer "


class Authenticator(Protocol):
    """Maps API keys to tenants."""

    def authenticate(self, authorization: str | None) -> str:
        """Return the tenant of the key in this header. Raises KeyRefused."""
        ...

    def is_admin(self, authorization: str | None) -> bool:
        """Whether the key in this header may see the metrics of the whole server."""
        ...


class SingleTenant:
    """One tenant for every caller."""

    def authenticate(self, authorization: str | None) -> str:
        return LOCAL_TENANT

    def is_admin(self, authorization: str | None) -> bool:
        return True


class KeysFile:
    """The keys in one file. Raises InvalidSettings if the file or a line of it is invalid."""

    def __init__(self, path: Path) -> None:
        self._path, self._stamp = path, read_file_stamp(path)
        if self._stamp is None:
            raise InvalidSettings(f"{path}: no such keys file", hint="convo serve --new-key NAME creates one")
        entries = list(read_key_entries(path))
        for shared_hash in find_shared_hashes(entries):
            names = ", ".join(sorted({name for name, key_hash in entries if key_hash == shared_hash}))
            raise InvalidSettings(
                f"{path}: one key has several names: {names}", hint="use a separate key for each name"
            )
        self._names_by_hash, self._admin_hashes = group_by_hash_prefix(entries), read_admin_hashes(path)

    def authenticate(self, authorization: str | None) -> str:
        """Return the tenant of the key in this header. Raises KeyRefused."""
        if not authorization:
            raise errors.missing_api_key_error()
        if not authorization[: len(BEARER_PREFIX)].lower() == BEARER_PREFIX:
            raise errors.incorrect_api_key_error()
        self._reload_if_changed()
        digest = _hash_api_key(authorization[len(BEARER_PREFIX) :].strip())
        tenant = ""
        for key_hash, name in self._names_by_hash.get(digest[:BUCKET_DIGITS], ()):
            if hmac.compare_digest(key_hash, digest):
                tenant = name
        if not tenant:
            raise errors.incorrect_api_key_error()
        return tenant

    def _reload_if_changed(self) -> None:
        stamp = read_file_stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            # An invalid line that is added while the server runs locks out no other key.
            entries = list(read_key_entries(self._path, strict=False)) if stamp else []
            shared_hashes = find_shared_hashes(entries)
            self._names_by_hash = group_by_hash_prefix([entry for entry in entries if entry[1] not in shared_hashes])
            self._admin_hashes = read_admin_hashes(self._path) if stamp else frozenset()

    def is_admin(self, authorization: str | None) -> bool:
        return _hash_api_key((authorization or "")[len(BEARER_PREFIX) :].strip()) in self._admin_hashes


def _hash_api_key(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def read_file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return values that change with the file; None if it does not exist."""
    try:
        file_status = os.stat(path)
    except OSError:
        return None
    return file_status.st_mtime_ns, file_status.st_size, file_status.st_ino


def read_key_entries(path: Path, *, strict: bool = True) -> Iterator[tuple[str, str]]:
    """Yield (name, hash) of each line with a key.

    Raises InvalidSettings if `strict` and the file is unreadable or a line is neither a key, empty nor a comment.
    """
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        if not strict:
            return
        hint = "convo serve --new-key NAME --keys FILE creates such a file"
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        match = KEY_LINE.fullmatch(text)
        if match:
            yield match["name"], match["hash"]
        elif text and strict:
            raise InvalidSettings(
                f"{path}, line {number}: is not a name and the SHA-256 of a key",
                hint="convo serve --new-key NAME adds such a line",
            )


def read_admin_hashes(path: Path) -> frozenset[str]:
    """Return the hashes of the admin keys in the file; empty if it is unreadable."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    matches = (KEY_LINE.fullmatch(line.partition("#")[0].strip()) for line in lines)
    return frozenset(match["hash"] for match in matches if match and match["admin"])


def find_shared_hashes(entries: Sequence[tuple[str, str]]) -> Set[str]:
    """Return the hashes that have more than one name."""
    name_by_hash: dict[str, str] = {}
    return {digest for name, digest in entries if name_by_hash.setdefault(digest, name) != name}


def group_by_hash_prefix(entries: Sequence[tuple[str, str]]) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Group (hash, name) by the first digits of the hash.

    The lookup uses the hash of the presented key: its duration reveals nothing about a key that the
    caller does not have.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, digest in entries:
        groups.setdefault(digest[:BUCKET_DIGITS], []).append((digest, name))
    return groups


def create_api_key(path: Path, name: str) -> str:
    """Create a key for `name` and append its hash to the file; a new file is readable only by this user.

    Raises InvalidSettings for an invalid name, and StoreFault if the file cannot be written.
    """
    if not TENANT_PATTERN.fullmatch(name):
        raise InvalidSettings(
            f"{name!r} cannot be used as a key name",
            hint="use up to 64 letters, digits and . _ @ -, a letter or digit first",
        )
    key = f"convo_{token_urlsafe(32)}"
    make_private_folder(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE_FILE_MODE)
        with os.fdopen(descriptor, "r+b") as file:
            content = file.read()
            # An editor may leave the last line without its end: the new key would be appended to it.
            is_line_complete = not content or content.endswith(b"\n")
            file.write(b"%b%b %b\n" % (b"" if is_line_complete else b"\n", name.encode(), _hash_api_key(key).encode()))
    except OSError as error:
        raise StoreFault(f"{path} cannot be written: {error.strerror}", hint="name another file with --keys") from error
    return key


MAX_HOST_CHARS = 253
"""Characters of the longest host name."""

_is_loopback_cached = lru_cache(maxsize=256)(is_loopback)
"""Cached because every request needs it."""


def check_local_caller(
    headers: Sequence[tuple[bytes, bytes]],
    allowed_origins: Collection[str] = (),
    peer: tuple[str, int] | None = None,
) -> None:
    """Raise RequestRefused if a Host or Origin is not local: the request may come from a web page.

    allowed_origins:  other origins that are accepted
    peer:             the address and port of the caller: under `asgi_app`, another server chose the one to listen on
    """
    if peer and not _is_loopback_cached(peer[0]):
        raise errors.caller_not_allowed_error()
    # All of them: of two Host headers only the last one was checked.
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    for host in filter(None, hosts):
        name = strip_port(host)
        if len(name) > MAX_HOST_CHARS or not _is_loopback_cached(name):
            raise errors.host_not_allowed_error(host)
    for origin in (value.decode("latin-1") for name, value in headers if name == b"origin"):
        if origin and origin.partition("://")[2] not in (hosts or [""]) and origin not in allowed_origins:
            raise errors.origin_not_allowed_error(origin)


def strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
