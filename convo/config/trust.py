"""Trust in a project's `.convo.toml`, and which URLs reach another machine.

The file comes with a clone, so it is untrusted input: until the user trusts its path and content, or
a folder above it, only `UNTRUSTED_SETTINGS` of `convo.config.schema` are used. The rest is ignored and
listed in a `ProjectNotice`.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from convo.config.values import Setting, format_setting_key

TRUST_COMMAND = "convo config trust"

_MAX_LISTED_KEYS = 8
_MAX_KEY_CHARS = 60
"""Limits of the line about ignored settings: the number of keys, and the characters of each."""


class Trust(Enum):
    """Whether the user trusts the current content of a project file."""

    TRUSTED = "trusted"
    CHANGED = "changed since it was trusted"
    UNKNOWN = "not trusted"


def determine_trust(path: Path, content: bytes, trusted_digest: str | None, folders: Sequence[Path]) -> Trust:
    """Return the trust in a project file with this content.

    path:            the real path of its folder, and its name
    trusted_digest:  the digest that the user trusted for the path; None without a record
    folders:         real paths of the folders that the user trusts
    """
    if is_in_folders(path, folders) or trusted_digest == sha256_hex(content):
        return Trust.TRUSTED
    return Trust.UNKNOWN if trusted_digest is None else Trust.CHANGED


def is_in_folders(path: Path, folders: Sequence[Path]) -> bool:
    """Whether `path` is inside one of `folders`."""
    return any(map(path.is_relative_to, folders))


def sha256_hex(content: bytes) -> str:
    """Return the SHA-256 of a file's content as hex digits."""
    from hashlib import sha256  # most folders have no project file to hash

    return sha256(content).hexdigest()


class ProjectNotice(NamedTuple):
    """A project file that is not used, or not fully.

    problem:  a sentence that names the file, without a final full stop
    ignored:  its ignored settings; a value is None if it is invalid or may be a secret
    hint:     a command or advice for the user
    """

    path: Path
    problem: str
    ignored: tuple[Setting, ...] = ()
    hint: str = TRUST_COMMAND

    @property
    def line(self) -> str:
        """The notice on one line, without control characters."""
        return f"{self.summary}; try: {escape_unprintable(self.hint)}"

    @property
    def summary(self) -> str:
        """The line without the hint."""
        if not self.ignored:
            return escape_unprintable(self.problem)
        shown_keys = [
            _shorten(escape_unprintable(format_setting_key(setting.key))) for setting in self.ignored[:_MAX_LISTED_KEYS]
        ]
        hidden_count = len(self.ignored) - len(shown_keys)
        keys = ", ".join(shown_keys) + (f" and {hidden_count} more" if hidden_count else "")
        return f"{escape_unprintable(self.problem)}, so these settings are ignored: {keys}"


def escape_unprintable(text: str) -> str:
    """Escape all characters that are not printable."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_KEY_CHARS else f"{text[:_MAX_KEY_CHARS]}…"


# -- hosts ------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost` or a literal loopback address. No name is resolved.

    An IPv6 address may be in brackets. Names below `localhost`, names with a final dot, short forms (127.1) and
    addresses with a zone are not loopback: their meaning depends on the resolver.
    """
    if host.lower() == "localhost":
        return True
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        return (address.ipv4_mapped or address).is_loopback
    return address.is_loopback and not bracketed


_POSTGRES_SCHEME_NAMES = ("postgresql", "postgres")


def is_remote_url(url: str) -> bool:
    """Whether data sent to `url`, of HTTP or PostgreSQL, can reach another machine.

    A PostgreSQL URL may name several servers, some of them in its query; one other machine is enough. A service file is
    not read and counts as another machine.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in _POSTGRES_SCHEME_NAMES:
            return not all(map(_is_local_postgres_host, _postgres_hosts(parts)))
        return not is_loopback(parts.hostname or "")
    except ValueError:
        return True


def _postgres_hosts(parts: SplitResult) -> Iterator[str]:
    """Yield the hosts of a PostgreSQL URL as libpq parses them; "?" for a host that is not known here."""
    for server in parts.netloc.rpartition("@")[2].split(","):
        # libpq decodes %2F in a host, which urlsplit leaves as it is
        yield (
            unquote(server).partition("]")[0].removeprefix("[")
            if server.startswith("[")
            else unquote(server.partition(":")[0])
        )
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("host", "hostaddr"):
            yield from value.split(",")
        if name in ("service", "servicefile"):
            yield "?"
        # libpq takes such a value as a whole connection string, with hosts of its own.
        if name == "dbname" and ("=" in value or "://" in value):
            yield "?"


def _is_local_postgres_host(host: str) -> bool:
    """Whether a host is this machine. "" is the default socket; / or @ begins a socket's path or name."""
    return host == "" or host.startswith(("/", "@")) or is_loopback(host)
