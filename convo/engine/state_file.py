"""A file that holds a RunState, or a pipe that one comes through.

The bytes are taken whole and judged by `convo.runstate`; what is written takes the file's place in
one step and belongs to its owner alone, because a state holds everything that was said and the
application's own context.
"""

import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from convo.engine.whole_file import PRIVATE, lies_at, put, why
from convo.errors import BadState, NotFound, StoreFault, StoreReadOnly, Unreadable, Usage
from convo.runstate import State, read, text
from convo.runstate.text import BYTES

MEMBERS = (b"$schemaVersion", b"current_agent", b"current_turn", b'"currentAgent"')
"""Some of what stands in every state, so that one that lost a member is still known for what it was."""

A_STATE = "a path to what RunState.to_string() gave"
ANOTHER = "choose another file"

LIST = re.compile(rb"\s*\[\s*(?!\{\s*\"\$schemaVersion\")")
"""How a replay file begins. What is said in it may be about states."""


def load(place: str) -> State:
    """The state in a file. raises: NotFound, Unreadable; BadState  with the file's name in front"""
    return judged(taken(place), place)


def judged(data: bytes, name: str) -> State:
    """The state that `data` is. raises: BadState  with `name` in front"""
    try:
        return read(data)
    except BadState as wrong:
        raise wrong.in_file(name)  # noqa: B904  it is the same error


def taken(place: str) -> bytes:
    """The bytes of a file, no more than a state may have. raises: NotFound, Unreadable"""
    target = Path(os.path.expanduser(place))
    if not place:
        raise NotFound("file", place, hint=A_STATE)
    try:
        if stat.S_ISDIR(target.stat().st_mode):
            raise Unreadable(f"{place} is a folder, not a state")
        with open(target, "rb") as file:
            return piped(file)
    except FileNotFoundError as wrong:
        raise NotFound("file", place, hint=A_STATE) from wrong
    except OSError as wrong:
        raise Unreadable(f"{place} cannot be read: {why(wrong)}") from wrong


def piped(stream: BinaryIO) -> bytes:
    """All that comes, up to one byte more than a state may have."""
    return stream.read(BYTES + 1)


def means_to_be_a_state(data: bytes) -> bool:
    """Whether these bytes are meant as a state, in whichever encoding and however broken."""
    plain = data.replace(b"\0", b"")
    return not LIST.match(plain) and any(member in plain for member in MEMBERS)


def save(state: State, place: str) -> None:
    """Put `state` in a file's place, atomically, 0600.

    raises:  Usage, StoreReadOnly, StoreFull, StoreFault, Unreadable  the file is as it was
    """
    put(writable(place), text(state), mode=PRIVATE)


def writable(place: str) -> Path:
    """Where the file lies that a state can be kept in, as far as is known before it is written. raises: as `save`"""
    if not place:
        raise Usage("a state is kept in a file, and its name is empty", hint=ANOTHER)
    target = lies_at(Path(os.path.abspath(os.path.expanduser(place))))
    if not target.parent.is_dir():
        raise StoreFault(f"{target.parent} is not a folder", hint=ANOTHER)
    if target.is_dir() or (target.exists() and not target.is_file()):
        raise Unreadable(f"{place} is not a file that a state can be kept in", hint=ANOTHER)
    if not os.access(target.parent, os.W_OK):
        raise StoreReadOnly(f"{target.parent} cannot be written", hint=ANOTHER)
    return target
