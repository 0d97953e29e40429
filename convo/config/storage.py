"""Where conversations are kept, as it is written and as it is meant.

A file says `type` and `connection_string`; `--store` and `CONVO_STORE` say the same in one word:
none, memory, sqlite:PATH, postgresql://... Either way the table is one value: the highest layer
that has it gives all of it, so that a path never meets another layer's type, and one store is
never emptied after a time that was meant for another:

    [state_storage]
    type = "postgres"
    connection_string = "postgresql://convo:$DB_PASSWORD@db/convo"
    ttl = "90d"                 what nobody used for so long goes; without it everything stays

    [state_storage.ttls]        by tenant, before `ttl`
    alice = "30d"
    archive = "never"
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, cast, get_args

from convo.config.checks import Unfit, text
from convo.config.expand import expand
from convo.config.postgres import SCHEMES, check_url, without_credentials
from convo.config.secret import Secret

StorageType = Literal["none", "memory", "sqlite", "postgres"]
TYPES: tuple[StorageType, ...] = get_args(StorageType)

PLAIN: dict[str, StorageType] = {"none": "none", "memory": "memory"}
ONE_WORD = "must be none, memory, sqlite:PATH or postgresql://..."
NEEDS_A_URL = "must be a URL that begins with postgresql:// when the type is postgres"

Ttls = Mapping[str, float | None]
"""Seconds by tenant; None: never."""

NO_TTLS: Ttls = MappingProxyType({})


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
    ttls: Ttls = NO_TTLS

    def ttl_s(self, tenant: str) -> float | None:
        """Seconds after which what `tenant` did not use goes; None: it stays."""
        return self.ttls.get(tenant, self.ttl)

    def __str__(self) -> str:
        if self.url is not None:
            return without_credentials(self.url.reveal())
        return f"sqlite:{self.path}" if self.path is not None else self.type


class Written(NamedTuple):
    """A storage as somebody wrote it.

    variables:  whether `$NAME` in it stands for a variable; a shell has seen to its own words
    """

    type: StorageType
    connection: Secret | None = None
    variables: bool = False
    ttl: float | None = None
    ttls: Ttls = NO_TTLS

    def __str__(self) -> str:
        """The kind of storage and its place. Only a place in which no password can hide is shown."""
        place = (self.connection.reveal() if self.connection else "").removeprefix("sqlite:")
        if self.type == "postgres" and place.startswith(SCHEMES):
            try:
                check_url(place)
            except Unfit:
                return self.type
            return without_credentials(place)
        return f"{self.type}:{place}" if self.type == "sqlite" and place and "://" not in place else self.type


def from_table(table: Mapping[str, object]) -> Written:
    """What `[state_storage]` says."""
    kind = next((kind for kind in TYPES if kind == table.get("type")), None)
    if kind is None:
        raise Unfit(f"needs a type: {', '.join(TYPES)}")
    connection = table.get("connection_string")
    ttl, ttls = cast("float | None", table.get("ttl")), cast(Ttls, table.get("ttls", NO_TTLS))
    return Written(kind, None if connection is None else Secret(text(connection)), True, ttl, ttls)


def from_word(value: object) -> Written:
    """What `--store` or `CONVO_STORE` says."""
    word = text(value)
    if word.startswith(SCHEMES):
        return Written("postgres", Secret(word))
    kind, _, rest = word.partition(":")
    if kind == "sqlite":
        return Written("sqlite", Secret(rest) if rest else None)
    if word in PLAIN:
        return Written(PLAIN[word])
    raise Unfit(ONE_WORD)


def storage(written: Written, environ: Mapping[str, str], *, base: Path, home: Path, database: Path) -> Storage:
    """What `written` means.

    base:      where relative paths begin: the folder of the file, else the working folder
    database:  the file of a sqlite storage that names none
    raises:    Unfit
    """
    path, url = None, None
    if written.type not in PLAIN:
        connection = written.connection.reveal() if written.connection else ""
        connection = expand(connection, environ) if written.variables else connection
        if written.type == "sqlite":
            path = _file(connection, base, home) if connection else database
        else:
            url = _url(connection)
    return Storage(written.type, path, url, written.ttl, written.ttls)


def _url(connection: str) -> Secret:
    if not connection.startswith(SCHEMES):
        raise Unfit(NEEDS_A_URL)
    check_url(connection)
    return Secret(connection)


def path_of(written: str, base: Path, home: Path) -> Path:
    """A path from a setting: `~` is the home folder, a relative one begins at `base`."""
    if written == "~" or written.startswith("~/"):
        return home / written[2:]
    return base / written


def _file(connection: str, base: Path, home: Path) -> Path:
    path = connection.removeprefix("sqlite:")
    if path.startswith("//"):  # sqlite:///path, as other programs write it
        path = "/" + path.lstrip("/")
    if "://" in path:
        raise Unfit("must be a path when the type is sqlite")
    return path_of(path, base, home)
