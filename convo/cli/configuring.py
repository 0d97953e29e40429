"""What `convo config` does once its arguments are read: shows settings, and writes one into its file.

A change is tried before it is written: what made usable settings unusable is refused, and the file
stays as it was. Where they were unusable before, only the new value itself is judged, so that a
broken file can be mended from here.
"""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from convo.cli.saying import note, say, say_json
from convo.config import Layer, Origin, Settings, load, private, read, resolve
from convo.config.editing import key_in, value_in, with_value, without
from convo.config.files import PROFILE, parse, settings_file
from convo.config.layers import File
from convo.config.origin import Key, dotted
from convo.engine.whole_file import PRIVATE, lies_at, put, why
from convo.errors import BadSettings, NotFound, Unreadable
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
    there = [one for one in load(config).listed if one.key[: len(key)] == key]
    if not there:
        raise NotFound("value for", dotted(key), hint="convo config")
    if as_json:
        say_json(as_rows(there))
    else:
        say(table(there, medium_of(sys.stdout, os.environ)))


def put_value(target: Target, name: str, written: str) -> None:
    """Write one value. raises: Usage, BadSettings, StoreFault  the file is as it was"""
    key = _in_profile(key_in(name))
    value = value_in(written, key, "config set")
    change(target, lambda text: with_value(text, key, value, str(target.place)))
    note(f"{dotted(key)} is {shown(value)} in {target.place}")
    _tell_stronger(target, key)


def take_value(target: Target, name: str) -> None:
    """Take one value out. raises: NotFound  it is not there; Usage, BadSettings, StoreFault"""
    key, place = _in_profile(key_in(name)), target.place

    def taken(text: str) -> str:
        left = without(text, key, str(place))
        if left is None:
            raise NotFound(f"value in {place} for", dotted(key), hint=f"convo config list {dotted(key)}")
        return left

    change(target, taken)
    note(f"{dotted(key)} is no longer in {place}")


def change(target: Target, edit: Callable[[str], str]) -> None:
    """Put what `edit` makes of the file in its place. raises: BadSettings, Unreadable, StoreFault"""
    place = target.place
    if not target.project:
        private(place.parent)
    with _alone_in(place.parent):
        before = _text(place)
        parse(before.encode(), str(place))
        after = edit(before)
        _check(target, after)
        put(lies_at(place), after, mode=None if target.project else PRIVATE)


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


def _check(target: Target, after: str) -> None:
    """raises: BadSettings  it would make usable settings unusable"""
    place = target.place
    new = File(
        Origin(target.layer, place.name, place.parent), parse(after.encode("utf-8", "surrogateescape"), str(place))
    )
    try:
        sources = read(target.config)
        resolve(sources)
    except BadSettings:
        return
    others = [file for file in sources.files if file.origin.layer is not target.layer]
    resolve(sources._replace(files=tuple(sorted([*others, new], key=lambda file: file.origin.layer))))


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
