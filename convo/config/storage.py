"""Where conversations are stored: `[state_storage]`, `--store` and PostgreSQL URLs.

The table is one value: the highest layer that has it gives all of it. `parse_storage_*` read the
written form, `resolve_storage` expands variables and paths. PostgreSQL URLs are validated without a
driver, and no message repeats a password.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, cast, get_args
from urllib.parse import SplitResult, quote, urlsplit

from convo.config.values import InvalidValue, Secret, check_text, expand_variables

StorageType = Literal["none", "memory", "sqlite", "postgres"]
STORAGE_TYPES: tuple[StorageType, ...] = get_args(StorageType)

_TYPES_WITHOUT_CONNECTION: dict[str, StorageType] = {"none": "none", "memory": "memory"}
_OPTION_PROBLEM = "must be none, memory, sqlite:PATH or postgresql://..."
_URL_PROBLEM = "must be a URL that begins with postgresql:// when the type is postgres"

TenantTtls = Mapping[str, float | None]
"""Seconds by tenant; None: never."""

_NO_TTLS: TenantTtls = MappingProxyType({})


class Storage(NamedTuple):
    """What to open. Its `str` is what `--store` would take, without the password.

    path:  the database file, absolute; for sqlite alone
    url:   the server and the way in; for postgres alone
    ttl:   seconds after which what was not used goes; None: never
    ttls:  the same for single tenants
    """

    type: StorageType
    path: Path | None = None
    url: Secret | None = None
    ttl: float | None = None
    ttls: TenantTtls = _NO_TTLS

    def ttl_s(self, tenant: str) -> float | None:
        """Seconds after which what `tenant` did not use goes; None: it stays."""
        return self.ttls.get(tenant, self.ttl)

    def __str__(self) -> str:
        if self.url is not None:
            return redact_postgres_url(self.url.reveal())
        return f"sqlite:{self.path}" if self.path is not None else self.type


class StorageOption(NamedTuple):
    """A storage as somebody wrote it.

    variables:  whether `$NAME` in it stands for a variable; a shell has seen to its own words
    """

    type: StorageType
    connection: Secret | None = None
    variables: bool = False
    ttl: float | None = None
    ttls: TenantTtls = _NO_TTLS

    def __str__(self) -> str:
        """The kind of storage and its place. Only a place in which no password can hide is shown."""
        place = (self.connection.reveal() if self.connection else "").removeprefix("sqlite:")
        if self.type == "postgres" and place.startswith(POSTGRES_URL_SCHEMES):
            try:
                check_postgres_url(place)
            except InvalidValue:
                return self.type
            return redact_postgres_url(place)
        return f"{self.type}:{place}" if self.type == "sqlite" and place and "://" not in place else self.type


def parse_storage_table(table: Mapping[str, object]) -> StorageOption:
    """What `[state_storage]` says."""
    kind = next((kind for kind in STORAGE_TYPES if kind == table.get("type")), None)
    if kind is None:
        raise InvalidValue(f"needs a type: {', '.join(STORAGE_TYPES)}")
    connection = table.get("connection_string")
    ttl, ttls = cast("float | None", table.get("ttl")), cast(TenantTtls, table.get("ttls", _NO_TTLS))
    return StorageOption(kind, None if connection is None else Secret(check_text(connection)), True, ttl, ttls)


def parse_storage_option(value: object) -> StorageOption:
    """What `--store` or `CONVO_STORE` says."""
    word = check_text(value)
    if word.startswith(POSTGRES_URL_SCHEMES):
        return StorageOption("postgres", Secret(word))
    kind, _, rest = word.partition(":")
    if kind == "sqlite":
        return StorageOption("sqlite", Secret(rest) if rest else None)
    if word in _TYPES_WITHOUT_CONNECTION:
        return StorageOption(_TYPES_WITHOUT_CONNECTION[word])
    raise InvalidValue(_OPTION_PROBLEM)


def resolve_storage(
    written: StorageOption, environ: Mapping[str, str], *, base: Path, home: Path, database: Path
) -> Storage:
    """What `written` means.

    base:      where relative paths begin: the folder of the file, else the working folder
    database:  the file of a sqlite storage that names none
    raises:    InvalidValue
    """
    path, url = None, None
    if written.type not in _TYPES_WITHOUT_CONNECTION:
        connection = written.connection.reveal() if written.connection else ""
        connection = expand_variables(connection, environ) if written.variables else connection
        if written.type == "sqlite":
            path = _parse_sqlite_path(connection, base, home) if connection else database
        else:
            url = _parse_postgres_url(connection)
    return Storage(written.type, path, url, written.ttl, written.ttls)


def _parse_postgres_url(connection: str) -> Secret:
    if not connection.startswith(POSTGRES_URL_SCHEMES):
        raise InvalidValue(_URL_PROBLEM)
    check_postgres_url(connection)
    return Secret(connection)


def resolve_setting_path(written: str, base: Path, home: Path) -> Path:
    """A path from a setting: `~` is the home folder, a relative one begins at `base`."""
    if written == "~" or written.startswith("~/"):
        return home / written[2:]
    return base / written


def _parse_sqlite_path(connection: str, base: Path, home: Path) -> Path:
    path = connection.removeprefix("sqlite:")
    if path.startswith("//"):  # sqlite:///path, as other programs write it
        path = "/" + path.lstrip("/")
    if "://" in path:
        raise InvalidValue("must be a path when the type is sqlite")
    return resolve_setting_path(path, base, home)


POSTGRES_URL_SCHEMES = ("postgresql://", "postgres://")
_RESERVED_CHARACTERS = "@:/?#%[]"
"""The signs that a user's name or a password cannot hold as they are."""

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^][:@]*)(?::[0-9]*)?")
"""One host with its port; the name of a folder, for a socket, is percent-encoded."""

_UNENCODED_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PARAMETER = re.compile(r"[A-Za-z_]+=.*")
_PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_ -]*\]|<[A-Za-z][A-Za-z0-9_ -]*>|\{\{?[A-Za-z][A-Za-z0-9_ -]*\}?\}")
"""A place of a template that is to be filled in: [USER], <host>, {{DATABASE}}."""

_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f]")


_PASSWORD_PARAMETERS = ("password", "sslpassword")
"""The parameters of a URL that are secret."""


def check_postgres_url(url: str) -> None:
    """Make sure that `url` can only be read in one way. raises: Unfit"""
    if left := _find_placeholders(url):
        raise InvalidValue(
            f"still has {' and '.join(left)} from a template in it: write your own value there, as in"
            " postgresql://myuser@db.example.com:5432/postgres"
        )
    if _FORBIDDEN_CHARACTERS.search(url):
        raise InvalidValue("has a space or a line break in it, which no URL has; a space is %20")
    if not _is_unambiguous(url):
        signs = ", ".join(f"{sign} as {quote(sign, safe='')}" for sign in _RESERVED_CHARACTERS)
        raise InvalidValue(
            f"cannot be read as a URL; in a user's name or a password these signs must be percent-encoded: {signs};"
            " the whole is postgresql://user@host:port/database, with :password after the user's name if there is one"
        )


def _find_placeholders(url: str) -> list[str]:
    """Placeholders of a template in `url`, such as [USER].

    A password counts where it is nothing but a place in square brackets, which a real one has percent-encoded.
    """
    who, at, rest = url.partition("?")[0].partition("://")[2].rpartition("@")
    if not at and "@" in url:  # the end of a password, perhaps
        return []
    user, _, password = who.partition(":")
    found = [match[0] for part in (user, rest) for match in _PLACEHOLDER.finditer(part)]
    found += [match[0] for match in _PLACEHOLDER.finditer(password) if match[0] == password and password[0] == "["]
    return list(dict.fromkeys(found))


def _is_unambiguous(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    who, _, hosts = parts.netloc.rpartition("@")
    return (
        not set("@[]") & set(who)
        and all(_HOST.fullmatch(host) for host in hosts.split(","))
        and not _UNENCODED_PERCENT.search(url)
        and _has_valid_path_and_query(url, parts)
    )


def _has_valid_path_and_query(url: str, parts: SplitResult) -> bool:
    """Whether what stands behind the hosts is a database and parameters, and not half a password."""
    named = all(_PARAMETER.fullmatch(part) for part in parts.query.split("&") if part)
    return "#" not in url and "@" not in parts.path and named


def redact_postgres_url(url: str) -> str:
    """A URL that was checked, without its password and its parameters, which may hold another one."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    authority, slash, database = rest.partition("/")
    who, at, hosts = authority.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{hosts}{slash}{database}"


def strip_postgres_passwords(url: str) -> str:
    """A URL that was checked, with all that it says but its passwords."""
    before, mark, query = url.partition("?")
    scheme, _, rest = before.partition("://")
    authority, slash, database = rest.partition("/")
    who, at, hosts = authority.rpartition("@")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] not in _PASSWORD_PARAMETERS]
    return f"{scheme}://{who.partition(':')[0]}{at}{hosts}{slash}{database}{mark if kept else ''}{'&'.join(kept)}"
