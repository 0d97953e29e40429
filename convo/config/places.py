"""Where convo keeps what it keeps.

Three folders, as the platform has them: data (the database, weights), state (what may be lost:
the prompt's history, locks) and config. `CONVO_HOME` puts all three under one folder. Naming a
place makes nothing; who is about to write there calls `private` first.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from convo.errors import BadSettings, StoreFault, StoreFull, StoreReadOnly, StoreUnavailable

APP = "convo"
PROJECT_FILE = ".convo.toml"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
PRIVATE_FILE = 0o600
"""The mode of a file that only its owner may read."""

TRIED = 65_536
"""Bytes that a folder must have room for."""


class Places(NamedTuple):
    """The three folders, absolute, made or not."""

    data: Path
    state: Path
    config: Path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Places":
        """The places of this user.

        raises:  BadSettings  there is neither CONVO_HOME nor a home folder
        """
        if home := environ.get("CONVO_HOME"):
            folder = Path(os.path.abspath(os.path.expanduser(home)))
            return cls(folder / "data", folder / "state", folder / "config")
        if not os.path.isabs(os.path.expanduser("~")):
            raise BadSettings("this user has no home folder", hint="set CONVO_HOME to a folder that convo may write")
        from platformdirs import PlatformDirs  # takes as long as this whole package, and CONVO_HOME needs none of it

        dirs = PlatformDirs(APP, appauthor=False)
        return cls(dirs.user_data_path, dirs.user_state_path, dirs.user_config_path)

    @property
    def settings(self) -> Path:
        """The user's settings file."""
        return self.config / "config.toml"

    @property
    def trust(self) -> Path:
        """The folder that records which project files the user trusts."""
        return self.config / "trust"

    @property
    def database(self) -> Path:
        return self.data / "convo.db"

    @property
    def models(self) -> Path:
        """The folder of weights that convo fetched."""
        return self.data / "models"

    @property
    def paused(self) -> Path:
        """The folder of the states of paused runs."""
        return self.data / "paused"

    @property
    def prompts(self) -> Path:
        """The file of what was typed, for the arrow keys."""
        return self.state / "prompts"

    @property
    def locks(self) -> Path:
        """The folder of lock files and sockets."""
        return self.state / "locks"


def private(folder: Path) -> Path:
    """Make `folder`, and the folders above it that are missing, for this user alone (0700).

    What is there already stays as it is. Returns `folder`.

    raises:  StoreReadOnly, StoreFull, StoreUnavailable  it cannot be made
    """
    missing = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(folder))
    except OSError as wrong:
        raise _fault(folder, wrong) from wrong
    return folder


def check_writable(folder: Path) -> Path:
    """Make sure that `folder` takes a file of some size, or could be made; nothing of it stays there.

    returns:  the folder, or the one above it that is there
    raises:   StoreReadOnly, StoreFull, StoreUnavailable  it takes none
    """
    import tempfile  # for the few who look

    there = folder
    try:
        there = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(TRIED))
    except OSError as wrong:
        raise _fault(there, wrong, "written to") from wrong
    return there


def _fault(folder: Path, wrong: OSError, done: str = "made") -> StoreFault:
    said = f"the folder {folder} cannot be {done}: {wrong.strerror}"
    if wrong.errno in NOT_ALLOWED:
        return StoreReadOnly(said)
    return StoreFull(said) if wrong.errno in NO_ROOM else StoreUnavailable(said)
