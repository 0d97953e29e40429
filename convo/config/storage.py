"""Where conversations are kept, as it is written and as it is meant.

A file says `type` and `connection_string`; `--store` and `CONVO_STORE` say the same in one word:
none, memory, sqlite:PATH, postgresql://... Either way the table is one value: the highest layer
that has it gives all of it, so that a path never meets another layer's type.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from convo.config.checks import Unfit, text
from convo.config.expand import expand
from convo.config.secret import Secret

StorageType = Literal["none", "memory", "sqlite", "postgres"]
TYPES: tuple[StorageType, ...] = get_args(StorageType)

PLAIN: dict[str, StorageType] = {"none": "none", "memory": "memory"}
POSTGRES = ("postgresql://", "postgres://")
ONE_WORD = "must be none, memory, sqlite:PATH or postgresql://..."
NEEDS_A_URL = "must be a URL that begins with postgresql:// when the type is postgres"


class Storage(NamedTuple):
    """What to open. Its `str` is what `--store` would take, without the password.

    path:  the database file, absolute; for sqlite alone
    url:   the server and the way in; for postgres alone
    """

    type: StorageType
    path: Path | None = None
    url: Secret | None = None

    def __str__(self) -> str:
        if self.url is not None:
            return _shown(self.url.reveal())
        return f"sqlite:{self.path}" if self.path is not None else self.type


class Written(NamedTuple):
    """A storage as somebody wrote it.

    variables:  whether `$NAME` in it stands for a variable; a shell has seen to its own words
    """

    type: StorageType
    connection: Secret | None = None
    variables: bool = False


def from_table(table: Mapping[str, object]) -> Written:
    """What `[state_storage]` says."""
    kind = next((kind for kind in TYPES if kind == table.get("type")), None)
    if kind is None:
        raise Unfit(f"needs a type: {', '.join(TYPES)}")
    connection = table.get("connection_string")
    return Written(kind, None if connection is None else Secret(text(connection)), variables=True)


def from_word(value: object) -> Written:
    """What `--store` or `CONVO_STORE` says."""
    word = text(value)
    if word.startswith(POSTGRES):
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
    if written.type in PLAIN:
        return Storage(written.type)
    connection = written.connection.reveal() if written.connection else ""
    if written.variables:
        connection = expand(connection, environ)
    if written.type == "sqlite":
        return Storage("sqlite", path=_file(connection, base, home) if connection else database)
    if not connection.startswith(POSTGRES):
        raise Unfit(NEEDS_A_URL)
    return Storage("postgres", url=Secret(connection))


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


def _shown(url: str) -> str:
    """`url` without its password and its query, which may hold another one."""
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    behind = rest[len(authority) :]
    if "@" in behind:  # a sign in the password that is not encoded: nothing here can be told apart
        return f"{scheme}://***"
    who, at, host = authority.rpartition("@")
    user, colon, _ = who.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{host}{re.split(r'[?#]', behind, maxsplit=1)[0]}"
