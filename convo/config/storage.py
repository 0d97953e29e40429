"""Where conversations are stored: `[state_storage]`, `--store` and PostgreSQL URLs.

The table is one value: the highest layer that has it sets all of it. `parse_storage_*` parse the written form,
`resolve_storage` expands variables and paths. PostgreSQL URLs are validated without a driver, and no message repeats a
password.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import SplitResult, quote, urlsplit

from convo.config.values import (
    ChoiceCheck,
    InvalidValue,
    SettingRow,
    check_text,
    expand_variables,
    find_closest_word,
    parse_duration,
    parse_durations,
)
from convo.secrets import Secret

StorageType = Literal["none", "memory", "sqlite", "postgres"]
STORAGE_TYPES: tuple[StorageType, ...] = get_args(StorageType)

EPHEMERAL_STORE_TYPES = ("none", "memory")
"""Types of stores that are empty once the command has ended."""

_TYPES_WITHOUT_CONNECTION: dict[str, StorageType] = {"none": "none", "memory": "memory"}
_STORE_FORMS = {"sqlite": "sqlite:PATH", "postgresql": "postgresql://...", "postgres": "postgresql://..."}
"""The form of a store by its scheme."""

_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]{0,31}):(?://)?"
_FILE_PATH = r"[A-Za-z0-9_./~ -]{0,300}(?:/|\.(?:db|sqlite3?))[A-Za-z0-9_./~ -]{0,300}"
"""A text that is probably the path of a file, and contains no password."""

_OPTION_PROBLEM = "must be none, memory, sqlite:PATH or postgresql://..."
_URL_PROBLEM = "must be a URL that begins with postgresql:// when the type is postgres"

TenantTtls = Mapping[str, float | None]
"""Seconds by tenant; None: no expiry."""

_NO_TTLS: TenantTtls = MappingProxyType({})


class Storage(NamedTuple):
    """A resolved storage. `str` is the value for `--store`, without the password.

    path:           the absolute path of the database file; sqlite only
    url:            the server's URL with credentials; postgres only
    default_ttl_s:  seconds after the last use before data expires; None: never
    tenant_ttls_s:  the same for single tenants
    """

    type: StorageType
    path: Path | None = None
    url: Secret | None = None
    default_ttl_s: float | None = None
    tenant_ttls_s: TenantTtls = _NO_TTLS

    def get_ttl_s(self, tenant: str) -> float | None:
        """Return the seconds after the last use before the tenant's data expires; None: never."""
        return self.tenant_ttls_s.get(tenant, self.default_ttl_s)

    def __str__(self) -> str:
        if self.url is not None:
            return redact_postgres_url(self.url.reveal())
        return f"sqlite:{self.path}" if self.path is not None else self.type


def get_store_url(storage: Storage) -> str:
    """Return the argument for `convo.stores.factory.open_store`; a chat without a store uses one in memory."""
    return storage.url.reveal() if storage.url else "memory" if storage.type == "none" else str(storage)


class StorageOption(NamedTuple):
    """A storage as written in a setting or option.

    has_variables:  replace `$NAME` by the variable; not in an option, where the shell has replaced it
    """

    type: StorageType
    connection_string: Secret | None = None
    has_variables: bool = False
    default_ttl_s: float | None = None
    tenant_ttls_s: TenantTtls = _NO_TTLS

    def __str__(self) -> str:
        """Return the type and location; the location is omitted where it may contain a password."""
        location = (self.connection_string.reveal() if self.connection_string else "").removeprefix("sqlite:")
        if self.type == "postgres" and location.startswith(POSTGRES_URL_SCHEMES):
            try:
                check_postgres_url(location)
            except InvalidValue:
                return self.type
            return redact_postgres_url(location)
        return f"{self.type}:{location}" if self.type == "sqlite" and location and "://" not in location else self.type


STORAGE_ROWS = {
    "type": SettingRow(
        None,
        ChoiceCheck(*STORAGE_TYPES),
        "The kind of store. `none` keeps nothing, `memory` until the command ends.",
        "sqlite",
        "required; without the table `sqlite`",
    ),
    "connection_string": SettingRow(
        None,
        check_text,
        "SQLite: the path of the database, relative to the settings file. PostgreSQL: a URL with `postgresql://`."
        " `$NAME` is replaced by a variable.",
        "convo.db",
        "`convo.db` in the data folder",
        variable="CONVO_STORE",
        flag="--store",
    ),
    "ttl": SettingRow(
        None, parse_duration, "`convo serve` deletes data that was not used for this time.", "30d", "never"
    ),
    "ttls": SettingRow(
        None, parse_durations, "The same for single tenants.", '{ alice = "1w", audit = "never" }', "none"
    ),
}


def parse_storage_table(table: Mapping[str, Any]) -> StorageOption:
    """Parse `[state_storage]`. Raises InvalidValue."""
    kind = next((kind for kind in STORAGE_TYPES if kind == table.get("type")), None)
    if kind is None:
        raise InvalidValue(f"needs a type: {', '.join(STORAGE_TYPES)}")
    connection = table.get("connection_string")
    secret = None if connection is None else Secret(connection)
    return StorageOption(kind, secret, True, table.get("ttl"), table.get("ttls", _NO_TTLS))


def parse_storage_option(value: object) -> StorageOption:
    """Parse `--store` or `CONVO_STORE`. Raises InvalidValue."""
    text = check_text(value)
    if text.startswith(POSTGRES_URL_SCHEMES):
        return StorageOption("postgres", Secret(text))
    kind, _, rest = text.partition(":")
    if kind == "sqlite":
        return StorageOption("sqlite", Secret(rest) if rest else None)
    if text in _TYPES_WITHOUT_CONNECTION:
        return StorageOption(_TYPES_WITHOUT_CONNECTION[text])
    raise InvalidValue(_OPTION_PROBLEM, hint=_suggest_store(text))


def _suggest_store(text: str) -> str | None:
    """Return a hint for an invalid store, or None. Of a URL it has only the scheme: the rest may have a password."""
    scheme = re.match(_SCHEME, text)
    if scheme is None:
        return f"sqlite:{text}" if re.fullmatch(_FILE_PATH, text) else None
    name = scheme[1].lower().partition("+")[0]  # "postgresql+psycopg://" is the form of SQLAlchemy
    closest = find_closest_word(name, _STORE_FORMS)
    if closest is None:
        return f"{scheme[0]!r} is not the scheme of a store" if scheme[0].endswith("//") else None
    return f"{scheme[0]!r} is not the scheme of a store; did you mean {_STORE_FORMS[closest]}?"


def resolve_storage(
    option: StorageOption, environ: Mapping[str, str], *, base_folder: Path, home: Path, database: Path
) -> Storage:
    """Resolve variables and paths of a storage.

    base_folder:  the base of relative paths: the folder of the settings file, else the working folder
    database:     the database file for sqlite without a path

    Raises InvalidValue.
    """
    path, url = None, None
    if option.type not in _TYPES_WITHOUT_CONNECTION:
        connection = option.connection_string.reveal() if option.connection_string else ""
        connection = expand_variables(connection, environ) if option.has_variables else connection
        if option.type == "sqlite":
            path = _parse_sqlite_path(connection, base_folder, home) if connection else database
        else:
            url = _parse_postgres_url(connection)
    return Storage(option.type, path, url, option.default_ttl_s, option.tenant_ttls_s)


def _parse_postgres_url(connection: str) -> Secret:
    if not connection.startswith(POSTGRES_URL_SCHEMES):
        raise InvalidValue(_URL_PROBLEM, hint=_suggest_store(connection) if re.match(_SCHEME, connection) else None)
    check_postgres_url(connection)
    return Secret(connection)


def resolve_setting_path(text: str, base_folder: Path, home: Path) -> Path:
    """Resolve a path of a setting: `~` is the home folder, a relative path starts at `base_folder`."""
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return base_folder / text


def _parse_sqlite_path(connection: str, base_folder: Path, home: Path) -> Path:
    path = connection.removeprefix("sqlite:")
    if path.startswith("//"):  # sqlite:///path, the form of other programs
        path = "/" + path.lstrip("/")
    if "://" in path:
        raise InvalidValue("must be a path when the type is sqlite")
    return resolve_setting_path(path, base_folder, home)


POSTGRES_URL_SCHEMES = ("postgresql://", "postgres://")
_RESERVED_CHARACTERS = "@:/?#%[]"
"""Characters that must be percent-encoded in a user name or password."""

_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^][:@]*)(?::[0-9]*)?"
"""One host with an optional port; the folder of a socket is percent-encoded."""

_UNENCODED_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PARAMETER = re.compile(r"[A-Za-z_]+=.*")
_PLACEHOLDER = r"\[[A-Z][A-Z0-9_ -]*\]|<[A-Za-z][A-Za-z0-9_ -]*>|\{\{?[A-Za-z][A-Za-z0-9_ -]*\}?\}"
"""A placeholder of a template: [USER], <host>, {{DATABASE}}."""

_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f]")


_PASSWORD_PARAMETERS = ("password", "sslpassword")
"""The secret parameters of a URL."""


def check_postgres_url(url: str) -> None:
    """Check that `url` is valid and unambiguous. Raises InvalidValue."""
    if placeholders := _find_placeholders(url):
        raise InvalidValue(
            f"still contains {' and '.join(placeholders)} from a template: replace it with your own value, as in"
            " postgresql://myuser@db.example.com:5432/postgres"
        )
    if _FORBIDDEN_CHARACTERS.search(url):
        raise InvalidValue("contains a space or a line break, which a URL cannot contain; write a space as %20")
    if not _is_unambiguous(url):
        encodings = ", ".join(f"{char} as {quote(char, safe='')}" for char in _RESERVED_CHARACTERS)
        raise InvalidValue(
            "cannot be parsed as a URL; in a user name or password these characters must be percent-encoded:"
            f" {encodings}; the form is postgresql://user@host:port/database,"
            " with an optional :password after the user name"
        )


def _find_placeholders(url: str) -> list[str]:
    """Return the placeholders of a template in `url`, such as [USER].

    A password is a placeholder only if all of it is in square brackets, which a real password has percent-encoded.
    """
    userinfo, at, rest = url.partition("?")[0].partition("://")[2].rpartition("@")
    if not at and "@" in url:  # possibly the end of a password
        return []
    user, _, password = userinfo.partition(":")
    placeholders = [match[0] for part in (user, rest) for match in re.finditer(_PLACEHOLDER, part)]
    placeholders += [
        match[0] for match in re.finditer(_PLACEHOLDER, password) if match[0] == password and password[0] == "["
    ]
    return list(dict.fromkeys(placeholders))


def _is_unambiguous(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    userinfo, _, hosts = parts.netloc.rpartition("@")
    return (
        not set("@[]") & set(userinfo)
        and all(re.fullmatch(_HOST, host) for host in hosts.split(","))
        and not _UNENCODED_PERCENT.search(url)
        and _has_valid_path_and_query(url, parts)
    )


def _has_valid_path_and_query(url: str, parts: SplitResult) -> bool:
    """Whether a database and parameters follow the hosts, rather than the rest of a password."""
    has_valid_parameters = all(_PARAMETER.fullmatch(part) for part in parts.query.split("&") if part)
    return "#" not in url and "@" not in parts.path and has_valid_parameters


def redact_postgres_url(url: str) -> str:
    """Return a checked URL without its password and its parameters, which may contain another one."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    authority, slash, database = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    user, colon, _ = userinfo.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{hosts}{slash}{database}"


def strip_postgres_passwords(url: str) -> str:
    """Return a checked URL without its passwords, otherwise unchanged."""
    before, question, query = url.partition("?")
    scheme, _, rest = before.partition("://")
    authority, slash, database = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] not in _PASSWORD_PARAMETERS]
    return (
        f"{scheme}://{userinfo.partition(':')[0]}{at}{hosts}{slash}{database}{question if kept else ''}{'&'.join(kept)}"
    )
