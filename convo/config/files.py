"""Settings files, as they lie on the disk: the one edge of this package.

`.convo.toml` is searched from the working folder upwards, as far as the home folder or the root
of the file system. The user's file is `config.toml` in the config folder, or the one that
`--config` or `CONVO_CONFIG` names in its place, which then has to be there.

Which profile was chosen is said before a command's name and holds for all that the process does,
as a variable of the environment would.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from convo.config.layers import File, Flags, Sources, resolve
from convo.config.origin import Layer, Origin
from convo.config.places import PROJECT_FILE, Places
from convo.config.settings import Settings
from convo.errors import BadSettings

POSITION = re.compile(r"(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL)
NO_FLAGS = Flags()
PROFILE: ContextVar[str | None] = ContextVar("profile", default=None)
BYTES = 4 * 1024 * 1024
"""The most that is read: a link in somebody's project may lead to a device that never ends."""

ABSENT = (errno.ENOENT, errno.ENOTDIR)
IN_WORDS = {
    errno.EISDIR: "is a folder, not a settings file",
    errno.EACCES: "may not be read (permission denied)",
    errno.EPERM: "may not be read (permission denied)",
}


@contextmanager
def under_profile(name: str | None) -> Iterator[None]:
    """Read settings under the profile that `--profile` named, as long as the block runs."""
    before = PROFILE.set(name)
    try:
        yield
    finally:
        PROFILE.reset(before)


def load(config: Path | None = None, flags: Flags = NO_FLAGS) -> Settings:
    """The settings of this process. `config` is the file that `--config` named.

    raises:  BadSettings
    """
    return resolve(read(config, flags))


def read(config: Path | None = None, flags: Flags = NO_FLAGS) -> Sources:
    """Everything that the settings of this process are made of; `resolve` goes on from here.

    raises:  BadSettings  a file that cannot be read or is not TOML
    """
    environ = dict(os.environ)
    folder, home = _working_folder(), Path(os.path.expanduser("~"))
    places = Places.of(environ)
    files = (_project_file(folder, home), _user_file(config, environ, places, folder))
    said = flags._replace(profile=flags.profile or PROFILE.get())
    return Sources(said, environ, tuple(file for file in files if file), places, folder, home)


def settings_file(config: Path | None = None, *, project: bool = False) -> Path:
    """The file that a value would be written into, there or not: the user's, or the project's. raises: BadSettings"""
    environ, folder = dict(os.environ), _working_folder()
    if not project:
        return user_file(config, environ, Places.of(environ), folder)
    found = _project_file(folder, Path(os.path.expanduser("~")))
    return Path(found.origin.place) if found else folder / PROJECT_FILE


def parse(raw: bytes, place: str) -> Mapping[str, object]:
    """TOML from bytes. raises: BadSettings  names `place` and the line"""
    import tomllib  # most runs have no file to read

    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as wrong:
        line = raw.count(b"\n", 0, wrong.start) + 1
        raise BadSettings(f"{place}, line {line}: is not UTF-8") from wrong
    except RecursionError as wrong:
        raise BadSettings(f"{place}: is nested too deeply") from wrong
    except ValueError as wrong:
        raise _not_toml(str(wrong), raw, place) from wrong


def _not_toml(message: str, raw: bytes, place: str) -> BadSettings:
    found = POSITION.fullmatch(message)
    if found is None:
        return BadSettings(f"{place}: is not TOML: {message}")
    line = found["line"] or str(max(1, len(raw.splitlines())))
    return BadSettings(f"{place}, line {line}: is not TOML: {found['what'][:1].lower()}{found['what'][1:]}")


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as wrong:
        raise BadSettings("the working folder does not exist any more", hint="cd to a folder that does") from wrong


def _project_file(folder: Path, home: Path) -> File | None:
    last = home.resolve()
    for place in (folder, *folder.parents):
        file = _file(Origin(Layer.PROJECT, PROJECT_FILE, place))
        if file is not None or place == last:
            return file
    return None


def user_file(config: Path | None, environ: Mapping[str, str], places: Places, folder: Path) -> Path:
    """Where the user's file lies, or would."""
    named = os.path.expanduser(config or environ.get("CONVO_CONFIG") or "")
    return folder / named if named else places.settings


def _user_file(config: Path | None, environ: Mapping[str, str], places: Places, folder: Path) -> File | None:
    path = user_file(config, environ, places, folder)
    file = _file(Origin(Layer.USER, path.name, path.parent))
    if file is None and (config or environ.get("CONVO_CONFIG")):
        said = "CONVO_CONFIG" if config is None else "--config"
        raise BadSettings(f"{path}: there is no such settings file", hint=f"name another one with {said}")
    return file


def _file(origin: Origin) -> File | None:
    """The file at `origin`, or None where there is none."""
    try:
        with open(origin.place, "rb") as opened:
            raw = opened.read(BYTES + 1)
    except OSError as wrong:
        if wrong.errno in ABSENT:
            return None
        why = IN_WORDS.get(wrong.errno or 0, f"cannot be read ({wrong.strerror})")
        raise BadSettings(f"{origin.place}: {why}") from wrong
    if len(raw) > BYTES:
        raise BadSettings(f"{origin.place}: is larger than {BYTES // 1024**2} MB, which no settings file is")
    return File(origin, parse(raw, origin.place))
