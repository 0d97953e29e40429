"""What `convo config` does once its arguments are read: shows settings, and writes one into its file.

A change is tried before it is written: what made usable settings unusable is refused, and the file
stays as it was. Where they were unusable before, only the new value itself is judged, so that a
broken file can be mended from here.
"""

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from convo.cli.saying import note, say, say_json
from convo.config import Layer, Origin, Places, Setting, Settings, Sources, load, private, read, resolve
from convo.config.editing import key_in, value_in, with_value, without
from convo.config.files import (
    PROFILE,
    ProjectFile,
    parse,
    read_project_file,
    recorded_path,
    settings_file,
    trust_record,
    trusted_in,
)
from convo.config.layers import TRUSTED, File
from convo.config.origin import Key, dotted
from convo.config.places import PROJECT_FILE
from convo.config.shape import leaves
from convo.config.storage import Written
from convo.config.trust import TRUST, ProjectNotice, Trust, filter_untrusted, is_below, leaves_here, sha256_hex, visible
from convo.engine.whole_file import PRIVATE, lies_at, put, why
from convo.errors import BadSettings, NotFound, StoreFault, Unreadable, Usage
from convo.ui.medium import medium_of
from convo.ui.settings import as_rows, shown, table


class Target(NamedTuple):
    """The file that is changed: the project's, or the user's own, which is `config` where one was named."""

    config: Path | None
    project: bool = False

    @property
    def place(self) -> Path:
        return settings_file(self.config, project=self.project)

    @property
    def layer(self) -> Layer:
        return Layer.PROJECT if self.project else Layer.USER


def show(config: Path | None, part: str | None, *, as_json: bool) -> None:
    """Print the values, or those at and below a key. raises: NotFound  nothing is set there; Usage"""
    key = key_in(part) if part else ()
    settings = load(config)
    there = [one for one in settings.listed if one.key[: len(key)] == key]
    ignored = [one for one in settings.notice.ignored if one.key[: len(key)] == key] if settings.notice else []
    if not there and not ignored:
        raise NotFound("value for", dotted(key), hint="convo config")
    if as_json:
        say_json(as_rows(there, ignored))
    else:
        say(table(there, medium_of(sys.stdout, os.environ), ignored))


def put_value(target: Target, name: str, written: str) -> None:
    """Write one value. raises: Usage, BadSettings, StoreFault  the file is as it was"""
    key = _in_profile(key_in(name))
    value = value_in(written, key, "config set")
    obeyed = change(target, lambda text: with_value(text, key, value, str(target.place)))
    note(f"{dotted(key)} is {shown(value)} in {target.place}")
    if obeyed:
        _tell_stronger(target, key)
    else:
        _note_untrusted(target)


def take_value(target: Target, name: str) -> None:
    """Take one value out. raises: NotFound  it is not there; Usage, BadSettings, StoreFault"""
    key, place = _in_profile(key_in(name)), target.place

    def taken(text: str) -> str:
        left = without(text, key, str(place))
        if left is None:
            raise NotFound(f"value in {place} for", dotted(key), hint=f"convo config list {dotted(key)}")
        return left

    obeyed = change(target, taken)
    note(f"{dotted(key)} is no longer in {place}")
    if not obeyed:
        _note_untrusted(target)


def change(target: Target, edit: Callable[[str], str]) -> bool:
    """Replace the file with what `edit` makes of it, and return whether all of it is obeyed.

    A project's file that is new or was trusted is trusted afterwards. One with other content that
    the user never trusted stays untrusted: its author is not known.

    raises: BadSettings, Unreadable, StoreFault
    """
    place = target.place
    if not target.project:
        private(place.parent)
    with _alone_in(place.parent):
        found = _project_file(place, target.config) if target.project else None
        sources = _usable_sources(target)
        before = found.content.decode("utf-8-sig", "surrogateescape") if found else ""
        if not target.project:
            before = _text(place)
        document = parse(before.encode("utf-8", "surrogateescape"), str(place))
        obeyed = not target.project or not document or (found is not None and found.trust is Trust.TRUSTED)
        after = edit(before)
        _check(target, after, sources, obeyed=obeyed)
        put(lies_at(place), after, mode=None if target.project else PRIVATE)
        if target.project and obeyed:
            _record_trust(place, after.encode())
    return obeyed


def _note_untrusted(target: Target) -> None:
    note(f"{target.place} is still not trusted; to trust it: {TRUST}")


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process changes settings in `folder`, so that none writes over what another wrote."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError as wrong:
        raise Unreadable(f"{folder} cannot be read: {why(wrong)}") from wrong
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _text(place: Path) -> str:
    """What is in the file; nothing where there is none. raises: Unreadable"""
    try:
        return place.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as wrong:
        raise Unreadable(f"{place} cannot be read: {why(wrong)}") from wrong


def _usable_sources(target: Target) -> Sources | None:
    """What the settings are made of before the change; None where they cannot be used."""
    try:
        sources = read(target.config)
        resolve(sources)
    except BadSettings:
        return None
    return sources


def _check(target: Target, after: str, sources: Sources | None, *, obeyed: bool) -> None:
    """raises: BadSettings  it would make usable settings unusable"""
    place = target.place
    origin = Origin(target.layer, place.name, place.parent)
    document = parse(after.encode("utf-8", "surrogateescape"), str(place))
    if sources is None:
        return
    new = File(origin, document if obeyed else filter_untrusted(document, origin).allowed)
    others = [file for file in sources.files if file.origin.layer is not target.layer]
    resolve(sources._replace(files=tuple(sorted([*others, new], key=lambda file: file.origin.layer))))


# -- trust in project files -------------------------------------------------------------------------


def trust(config: Path | None, path: Path | None) -> None:
    """Trust a project's file as it is now, and print the settings that it makes.

    raises:  NotFound     there is no such file
             BadSettings  another user could have written it, or it is no usable settings file
    """
    place = _project_path(path)
    found = _project_file(place, config)
    if found is None:
        raise NotFound("project file", str(place), hint="create one: convo config set --project KEY VALUE")
    document = parse(found.content, str(place))
    there = [Setting(key, value, found.origin) for key, value in leaves(document, str(place))]
    if TRUSTED in document:
        raise BadSettings(f"{place}: {TRUSTED!r} can only be set in your own settings", hint="convo config path")
    if there:
        say(table(there, medium_of(sys.stdout, os.environ)))
    for one in there:
        if elsewhere := _place_elsewhere(one):
            note(visible(f"{dotted(one.key)} sends conversations to another machine: {elsewhere}"))
    _record_trust(place, found.content)
    note(f"{place} is trusted as it is now; a change or convo config untrust ends the trust")


def untrust(config: Path | None, path: Path | None) -> None:
    """Forget the trust in a project's file, there or not. raises: NotFound  it was not trusted; StoreFault"""
    place = _project_path(path)
    trusted_below = is_below(place, trusted_in(config))
    try:
        trust_record(place, _places()).unlink()
    except FileNotFoundError:
        if not trusted_below:
            raise NotFound("trusted file", str(place), hint=f"{TRUST} --list") from None
    except OSError as wrong:
        raise StoreFault(f"the trust in {place} cannot be removed: {why(wrong)}") from wrong
    else:
        note(f"{place} is not trusted any more")
    if trusted_below:
        raise BadSettings(
            f"{place} is still trusted, by {TRUSTED!r} in your settings", hint="convo config list trusted"
        )


def list_trusted() -> None:
    """Print the project files that are trusted by path and content, with the state of each."""
    places = _places()
    empty = True
    for record in sorted(places.trust.glob("*.json")):
        path = recorded_path(record)
        if path is None or record != trust_record(path, places):
            continue
        try:
            found = read_project_file(path, places)
        except BadSettings:
            found = None
        state = found.trust.value if isinstance(found, ProjectFile) else "not readable"
        say(f"{visible(str(path))}  {state if os.path.lexists(path) else 'no longer there'}")
        empty = False
    if empty:
        note(f"no file is trusted with {TRUST}")


def _project_path(path: Path | None) -> Path:
    """The project file that `path` names: itself, the one in this folder, or the nearest. raises: NotFound, Usage"""
    if path is None:
        found = settings_file(project=True)
        if not os.path.lexists(found):
            raise NotFound("project file", PROJECT_FILE, hint=f"{TRUST} PATH")
    else:
        found = Path(os.path.abspath(os.path.expanduser(path)))
        found = found / PROJECT_FILE if found.is_dir() and found.name != PROJECT_FILE else found
        if not os.path.lexists(found) and found.name != PROJECT_FILE:
            raise NotFound("file or folder", str(path), hint=f"{TRUST} PATH, of a {PROJECT_FILE} or its folder")
        if found.name != PROJECT_FILE:
            hint = f"convo --config {quote(str(path))} COMMAND"
            raise Usage(f"only files named {PROJECT_FILE} are searched for", hint=hint)
    return Path(os.path.realpath(found.parent), found.name)


def _project_file(place: Path, config: Path | None) -> ProjectFile | None:
    """The project file at `place`, or None where there is none. raises: BadSettings  it must not or cannot be read"""
    found = read_project_file(place, _places(), trusted_in(config))
    if isinstance(found, ProjectNotice):
        raise BadSettings(found.problem, hint=found.hint)
    return found


def _record_trust(place: Path, content: bytes) -> None:
    """Record that this content at `place` is trusted. raises: StoreFault"""
    path = Path(os.path.realpath(place.parent), place.name)
    record = trust_record(path, _places())
    private(record.parent)
    put(record, json.dumps({"path": str(path), "sha256": sha256_hex(content)}) + "\n", mode=PRIVATE)


def _places() -> Places:
    return Places.of(os.environ)


def _place_elsewhere(one: Setting) -> str | None:
    """The server on another machine that a setting names, without a password."""
    if isinstance(one.value, Written):
        connection = one.value.connection.reveal() if one.value.type == "postgres" and one.value.connection else ""
        return str(one.value) if connection and leaves_here(connection) else None
    is_url = one.key[-1] == "base_url"
    return str(one.value) if is_url and leaves_here(str(one.value)) else None


def _in_profile(key: Key) -> Key:
    """The same key in the profile that `--profile` named, where one was."""
    name = PROFILE.get()
    return ("profiles", name, *key) if name and key[0] not in ("profile", "profiles") else key


def _tell_stronger(target: Target, key: Key) -> None:
    """Say who goes before the new value, where somebody does."""
    try:
        settings: Settings = load(target.config)
    except BadSettings:
        return
    own = key[2:] if key[0] == "profiles" else key
    origin = settings.origin(*own)
    if origin.layer is not Layer.DEFAULT and origin.place != str(target.place):
        note(f"{origin.place} says otherwise, and goes before it")
