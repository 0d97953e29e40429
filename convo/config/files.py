"""Settings files, as they lie on the disk: the one edge of this package.

A project's `.convo.toml` is searched from the working folder upwards, as far as the root of the
repository (the folder with `.git`) or the home folder; outside both only the working folder counts.
It is untrusted input: `convo.config.trust` decides what it may set. The user's file is
`config.toml` in the config folder, or the one that `--config` or `CONVO_CONFIG` names in its place,
which then has to be there.

Which profile was chosen is said before a command's name and holds for all that the process does,
as a variable of the environment would.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from convo.config.checks import Unfit, folders
from convo.config.layers import TRUSTED, File, Flags, Sources, resolve
from convo.config.model_lists import read_lists
from convo.config.origin import Layer, Origin
from convo.config.places import PROJECT_FILE, Places
from convo.config.settings import Settings
from convo.config.storage import path_of
from convo.config.trust import ProjectNotice, Trust, filter_untrusted, is_below, sha256_hex, trust_of
from convo.errors import BadSettings
from convo.notices import notify

POSITION = re.compile(r"(?P<what>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL)
NO_FLAGS = Flags()
PROFILE: ContextVar[str | None] = ContextVar("profile", default=None)
BYTES = 4 * 1024 * 1024
"""The most that is read: a link in somebody's project may lead to a device that never ends."""

UNTRUSTED_BYTES = 64 * 1024
"""The most that is parsed of a project file that the user does not trust."""

NAMES = 32
"""Names in one dotted key. Python's parser takes time that grows with the square of their number."""

NAME = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
LONG_KEY = rf"(?<![\w-]){NAME}(?:[ \t]*+\.[ \t]*+{NAME}){{{NAMES}}}"

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

    A project file that is not used in full is notified.

    raises:  BadSettings  a file that the user named or trusts cannot be read or is not TOML
    """
    environ = dict(os.environ)
    folder, home = _working_folder(), _home()
    places = Places.of(environ)
    user = _user_file(config, environ, places, folder)
    project, notice = _load_project(find_project_file(folder, home), user, places, folder, home)
    if notice is not None:
        notify(f"convo: {notice.line}")
    said = flags._replace(profile=flags.profile or PROFILE.get())
    files = tuple(file for file in (project, user) if file)
    return Sources(said, environ, files, places, folder, home, read_lists(places), notice)


def settings_file(config: Path | None = None, *, project: bool = False) -> Path:
    """The file that a value would be written into, there or not: the user's, or the project's. raises: BadSettings"""
    environ, folder = dict(os.environ), _working_folder()
    if not project:
        return user_file(config, environ, Places.of(environ), folder)
    return find_project_file(folder, _home()) or folder / PROJECT_FILE


def parse(raw: bytes, place: str) -> Mapping[str, object]:
    """TOML from bytes. raises: BadSettings  names `place` and the line"""
    import tomllib  # most runs have no file to read

    try:
        text = raw.decode("utf-8-sig")
        if long := re.search(LONG_KEY, text):
            line = text.count("\n", 0, long.start()) + 1
            raise BadSettings(f"{place}, line {line}: has a key of more than {NAMES} names")
        return tomllib.loads(text)
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


def _home() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))


# -- the project's file -----------------------------------------------------------------------------


class ProjectFile(NamedTuple):
    """A project file as it was read: `path` is its folder's real path and its name."""

    path: Path
    content: bytes
    trust: Trust

    @property
    def origin(self) -> Origin:
        return Origin(Layer.PROJECT, self.path.name, self.path.parent)


def find_project_file(folder: Path, home: Path) -> Path | None:
    """The nearest project file, there or a broken link; None where there is none.

    folder, home:  real paths
    """
    for place in search_path(folder, home):
        path = place / PROJECT_FILE
        if os.path.lexists(path):
            return path
    return None


def search_path(folder: Path, home: Path) -> Sequence[Path]:
    """The folders that may hold the project file of `folder`, the nearest first."""
    above = (folder, *folder.parents)
    for number, place in enumerate(above, 1):
        if (place == home and home.parent != home) or os.path.lexists(place / ".git"):
            return above[:number]
    return above[:1]


def read_project_file(path: Path, places: Places, trusted: Sequence[Path] = ()) -> ProjectFile | ProjectNotice | None:
    """The project file at `path`, a notice where it must not be read, or None where there is none.

    trusted:  real paths of folders whose files the user trusts
    raises:   BadSettings  it cannot be read
    """
    path = Path(os.path.realpath(path.parent), path.name)
    try:
        notice = _foreign(os.lstat(path), path) if os.path.islink(path) else None
        content = notice or _content(path)
    except OSError as wrong:
        if wrong.errno in ABSENT:
            return None
        raise _unreadable(path, wrong) from wrong
    if isinstance(content, ProjectNotice):
        return content
    return ProjectFile(path, content, trust_of(path, content, recorded_trust(path, places), trusted))


def _content(path: Path) -> bytes | ProjectNotice:
    """The bytes of a project file, or a notice. What is checked is the open file. raises: OSError, BadSettings"""
    # without O_NONBLOCK a pipe would be waited for
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        found = os.fstat(opened)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(found.st_mode):
            return ProjectNotice(path, f"{path} is not a regular file and is not read", hint=f"rm {quote(str(path))}")
        if notice := _foreign(found, path):
            return notice
        with open(opened, "rb", closefd=False) as file:
            content = file.read(BYTES + 1)
    finally:
        os.close(opened)
    if len(content) > BYTES:
        raise _too_large(path)
    return content


def _foreign(found: os.stat_result, path: Path) -> ProjectNotice | None:
    """A notice where another user could have written the file. Windows has neither such owners nor such modes.

    A file that its group may write is read: with a umask of 002, which many systems have, every file
    is. The folder may be anybody's, as a file that counts in it has to be the user's own.
    """
    if not hasattr(os, "geteuid"):
        return None
    named = quote(str(path))
    if found.st_uid not in (os.geteuid(), 0):
        why = f"{path} belongs to another user (id {found.st_uid}) and is not read"
        return ProjectNotice(path, why, hint="replace it with a copy of your own")
    if found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode):
        return ProjectNotice(path, f"{path} can be written by every user and is not read", hint=f"chmod o-w {named}")
    return None


def _load_project(
    path: Path | None, user: File | None, places: Places, folder: Path, home: Path
) -> tuple[File | None, ProjectNotice | None]:
    """The project file as far as it is obeyed, and a notice about the rest. raises: BadSettings  it is trusted"""
    if path is None or (user and os.path.realpath(user.origin.place) == os.path.realpath(path)):
        return None, None  # --config names it, so that all of it is obeyed already
    trusted = trusted_folders(user, folder, home)
    try:
        found = read_project_file(path, places, trusted)
    except BadSettings as wrong:
        if is_below(path, trusted):
            raise
        return None, ProjectNotice(path, f"{wrong.message}; it is ignored", hint="correct or remove it")
    if not isinstance(found, ProjectFile):
        return None, found
    if found.trust is Trust.TRUSTED:
        return File(found.origin, parse(found.content, str(found.path))), None
    return _untrusted(found)


def _untrusted(found: ProjectFile) -> tuple[File | None, ProjectNotice | None]:
    """The allowed part of a file that is not trusted. A broken one is ignored: it may not stop the user."""
    changed = found.trust is Trust.CHANGED
    problem = f"{found.path} {'changed since it was trusted' if changed else 'is not trusted'}"
    if len(found.content) > UNTRUSTED_BYTES:
        return None, ProjectNotice(found.path, f"{problem} and larger than {UNTRUSTED_BYTES // 1024} KB: it is ignored")
    try:
        document = parse(found.content, str(found.path))
    except BadSettings as wrong:
        return None, ProjectNotice(found.path, f"{wrong.message}; it is ignored", hint="correct or remove it")
    allowed, ignored = filter_untrusted(document, found.origin)
    notice = ProjectNotice(found.path, problem, ignored) if ignored else None
    return File(found.origin, allowed), notice


def trusted_in(config: Path | None) -> tuple[Path, ...]:
    """The folders that the user's own settings trust; none where these cannot be read."""
    environ, folder = dict(os.environ), _working_folder()
    try:
        user = _user_file(config, environ, Places.of(environ), folder)
    except BadSettings:
        return ()
    return trusted_folders(user, folder, _home())


def trusted_folders(user: File | None, folder: Path, home: Path) -> tuple[Path, ...]:
    """The real paths of the folders that the user's own settings trust; none where the value is invalid."""
    if user is None or TRUSTED not in user.document:
        return ()
    try:
        named = folders(user.document[TRUSTED])
    except Unfit:
        return ()  # `resolve` says so
    return tuple(Path(os.path.realpath(path_of(one, folder, home))) for one in named)


def recorded_trust(path: Path, places: Places) -> str | None:
    """The digest under which the user trusted the project file at `path`; None if never."""
    record = _record(trust_record(path, places))
    return record["sha256"] if record.get("path") == str(path) and "sha256" in record else None


def recorded_path(record: Path) -> Path | None:
    """The project file that a record of trust is about; None where the record is broken."""
    path = _record(record).get("path")
    return Path(path) if path else None


def _record(place: Path) -> dict[str, str]:
    """The texts in a record of trust; none where there is no usable record."""
    import json

    try:
        found = json.loads(place.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: text for name, text in found.items() if isinstance(text, str)} if isinstance(found, dict) else {}


def trust_record(path: Path, places: Places) -> Path:
    """The file that records the trust in one project file: one each, so that writers cannot meet."""
    return places.trust / f"{sha256_hex(os.fsencode(path))}.json"


# -- the user's file --------------------------------------------------------------------------------


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
        raise _unreadable(origin.place, wrong) from wrong
    if len(raw) > BYTES:
        raise _too_large(origin.place)
    return File(origin, parse(raw, origin.place))


def _unreadable(place: str | Path, wrong: OSError) -> BadSettings:
    why = IN_WORDS.get(wrong.errno or 0, f"cannot be read ({wrong.strerror})")
    return BadSettings(f"{place}: {why}")


def _too_large(place: str | Path) -> BadSettings:
    return BadSettings(f"{place}: is larger than {BYTES // 1024**2} MB, the limit of a settings file")
