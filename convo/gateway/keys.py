"""Who may ask, and whose state they see.

A keys file has one "NAME SHA256" a line: the name is the tenant, the other the hash of a key, so
that the file gives no key away. Several lines may share a name, which is how a key is replaced. The
file is read again when it changes. A line that cannot be read then counts as none, so that its key
opens nothing; at the start it is an error. So is a key under two names: nobody can say whose it is.

A line "NAME SHA256 admin" makes the key an admin's: it also sees the figures of the whole server at
`/metrics`. It sees no other name's state.

Without a file there is one tenant, "local", and any key or none is taken: then only this machine
may ask, see `convo.gateway.callers`.
"""

import hmac
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Protocol

from convo.config import ALONE, TENANT, private
from convo.errors import BadSettings, StoreFault
from convo.gateway import refusals

LINE = re.compile(rf"(?P<name>{TENANT.pattern})\s+(?P<hash>[0-9a-f]{{64}})(?P<admin>\s+admin)?")
BUCKET = 8
BEARER = "bearer "


class Keys(Protocol):
    """Knows tenants by their keys."""

    def tenant(self, authorization: str | None) -> str:
        """Whose key this header carries. raises: KeyRefused"""
        ...

    def is_admin(self, authorization: str | None) -> bool:
        """Whether this header, which carries a key, may see the figures of the whole server."""
        ...


class NoKeys:
    """One tenant, whatever is said."""

    def tenant(self, authorization: str | None) -> str:
        return ALONE

    def is_admin(self, authorization: str | None) -> bool:
        return True


class KeysFile:
    """The keys in one file.

    raises:  BadSettings  the file cannot be read, or a line of it
    """

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, stamp(path)
        if self._seen is None:
            raise BadSettings(f"{path}: there is no such keys file", hint="convo serve --new-key NAME makes one")
        listed = list(entries(path))
        for digest in shared(listed):
            names = ", ".join(sorted({name for name, known in listed if known == digest}))
            raise BadSettings(f"{path}: one key stands under several names: {names}", hint="give each a key of its own")
        self._known, self._admins = buckets(listed), admins(path)

    def tenant(self, authorization: str | None) -> str:
        """Whose key this header carries. raises: KeyRefused"""
        if not authorization:
            raise refusals.no_key()
        if not authorization[: len(BEARER)].lower() == BEARER:
            raise refusals.wrong_key()
        self._look_again()
        digest = hash_of(authorization[len(BEARER) :].strip())
        found = ""
        for known, name in self._known.get(digest[:BUCKET], ()):
            if hmac.compare_digest(known, digest):
                found = name
        if not found:
            raise refusals.wrong_key()
        return found

    def _look_again(self) -> None:
        seen = stamp(self._path)
        if seen != self._seen:
            self._seen = seen
            listed = list(entries(self._path, strict=False)) if seen else []
            unclear = shared(listed)
            self._known = buckets([entry for entry in listed if entry[1] not in unclear])
            self._admins = admins(self._path) if seen else frozenset()

    def is_admin(self, authorization: str | None) -> bool:
        return hash_of((authorization or "")[len(BEARER) :].strip()) in self._admins


def hash_of(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with the file; None when it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def entries(path: Path, *, strict: bool = True) -> Iterator[tuple[str, str]]:
    """(name, hash) of each line that holds one.

    raises:  BadSettings  where `strict`: it cannot be read, or another line is neither empty nor a comment
    """
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError as wrong:
        if not strict:
            return
        raise BadSettings(f"{path}: cannot be read: {wrong.strerror}") from wrong
    for number, line in enumerate(lines, 1):
        said = line.partition("#")[0].strip()
        found = LINE.fullmatch(said)
        if found:
            yield found["name"], found["hash"]
        elif said and strict:
            raise BadSettings(
                f"{path}, line {number}: is not a name and the SHA-256 of a key",
                hint="convo serve --new-key NAME writes such a line",
            )


def admins(path: Path) -> frozenset[str]:
    """The hashes of the keys in the file that are an admin's; none where it cannot be read."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = (LINE.fullmatch(line.partition("#")[0].strip()) for line in lines)
    return frozenset(one["hash"] for one in found if one and one["admin"])


def shared(listed: Sequence[tuple[str, str]]) -> Set[str]:
    """The hashes that stand under more than one name."""
    owner: dict[str, str] = {}
    return {digest for name, digest in listed if owner.setdefault(digest, name) != name}


def buckets(listed: Sequence[tuple[str, str]]) -> Mapping[str, Sequence[tuple[str, str]]]:
    """(hash, name) by the first digits of the hash.

    What is looked up is the hash of what somebody presented: how long that takes tells nothing
    about a key that they do not have.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for name, digest in listed:
        found.setdefault(digest[:BUCKET], []).append((digest, name))
    return found


def new_key(path: Path, name: str) -> str:
    """A fresh key for `name`, whose hash now stands in the file; the file is this user's alone.

    raises:  BadSettings  the name cannot be one;  StoreFault  the file cannot be written
    """
    if not TENANT.fullmatch(name):
        raise BadSettings(
            f"{name!r} cannot be the name of a key", hint="letters, digits and . _ @ - in between, 64 at most"
        )
    key = f"convo_{token_urlsafe(32)}"
    private(path.parent)
    try:
        opened = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(opened, "r+b") as file:
            before = file.read()
            ended = not before or before.endswith(b"\n")
            file.write(b"%b%b %b\n" % (b"" if ended else b"\n", name.encode(), hash_of(key).encode()))
    except OSError as wrong:
        raise StoreFault(f"{path} cannot be written: {wrong.strerror}", hint="name another file with --keys") from wrong
    return key
