"""The folders and files of this user: data, state and config.

`CONVO_HOME` puts all three folders under one. Reading a path creates nothing; call
`make_private_folder` before writing into a folder (mode 0700).
"""

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from convo.errors import InvalidSettings, StoreFault, StoreFull, StoreReadOnly, StoreUnavailable

_APP_NAME = "convo"
PROJECT_FILE = ".convo.toml"
_NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PERMISSION_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)

_PROBE_BYTES = 65_536
"""Bytes of free space that a writable folder must have."""


class AppPaths(NamedTuple):
    """The three folders, absolute, existing or not."""

    data: Path
    state: Path
    config: Path

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "AppPaths":
        """Find the folders of this user. Raises InvalidSettings without CONVO_HOME and a home folder."""
        if home := environ.get("CONVO_HOME"):
            folder = Path(os.path.abspath(os.path.expanduser(home)))
            return cls(folder / "data", folder / "state", folder / "config")
        if not os.path.isabs(os.path.expanduser("~")):
            raise InvalidSettings("this user has no home folder", hint="set CONVO_HOME to a writable folder")
        from platformdirs import PlatformDirs  # as slow to import as this package; not needed with CONVO_HOME

        dirs = PlatformDirs(_APP_NAME, appauthor=False)
        return cls(dirs.user_data_path, dirs.user_state_path, dirs.user_config_path)

    @property
    def settings_file(self) -> Path:
        """The user's settings file."""
        return self.config / "config.toml"

    @property
    def templates(self) -> Path:
        """The folder of the user's templates of chats."""
        return self.config / "templates"

    @property
    def trust(self) -> Path:
        """The folder that records which project files the user trusts."""
        return self.config / "trust"

    @property
    def database(self) -> Path:
        return self.data / "convo.db"

    @property
    def weights(self) -> Path:
        """The folder of downloaded weights."""
        return self.data / "models"

    @property
    def paused_runs(self) -> Path:
        """The folder of paused runs."""
        return self.data / "paused"

    @property
    def prompt_history(self) -> Path:
        """The file of the prompt history."""
        return self.state / "prompts"

    @property
    def declined_server_offer(self) -> Path:
        """The file that exists if the user declined to use a model server on this machine by default."""
        return self.state / "local-server-declined"


def make_private_folder(folder: Path) -> Path:
    """Create `folder` and its missing parents with mode 0700, and return it. Existing folders stay as they are.

    Raises StoreReadOnly, StoreFull or StoreUnavailable if it cannot be created.
    """
    missing = [parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]
    try:
        for parent in reversed(missing):
            parent.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(folder))
    except OSError as error:
        raise _folder_fault(folder, error) from error
    return folder


def check_folder_writable(folder: Path) -> Path:
    """Check that files can be written to `folder`, or that it could be created; no file remains.

    Returns the folder, or its nearest existing parent. Raises StoreReadOnly, StoreFull or StoreUnavailable.
    """
    import tempfile  # slow to import and rarely needed

    existing = folder
    try:
        for parent in (folder, *folder.parents):
            with suppress(FileNotFoundError, NotADirectoryError):  # `exists` hides a missing permission since 3.14
                parent.stat()
                existing = parent
                break
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise _folder_fault(existing, error, "written to") from error
    return existing


def _folder_fault(folder: Path, error: OSError, verb: str = "made") -> StoreFault:
    message = f"the folder {folder} cannot be {verb}: {error.strerror}"
    if error.errno in _PERMISSION_ERRNOS:
        return StoreReadOnly(message)
    return StoreFull(message) if error.errno in _NO_SPACE_ERRNOS else StoreUnavailable(message)
