"""Read and write RunState files.

Files are written atomically with mode 0600: a state has the whole history and the application's context.
At most one byte more than a state may have is read.
"""

import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from convo.chat.files import PRIVATE_MODE, format_os_error, resolve_links, write_atomic
from convo.errors import InvalidRunState, InvalidUsage, NotFound, StoreFault, StoreReadOnly, Unreadable
from convo.runstate.document import MAX_STATE_BYTES
from convo.runstate.reader import parse_run_state
from convo.runstate.state import RunState
from convo.runstate.writer import serialize_run_state

STATE_MARKERS = (b"$schemaVersion", b"current_agent", b"current_turn", b'"currentAgent"')
"""Some of what stands in every state, so that one that lost a member is still known for what it was."""

STATE_FILE_HINT = "a path to what RunState.to_string() gave"
OTHER_FILE_HINT = "choose another file"

ITEM_LIST_PATTERN = re.compile(rb"\s*\[\s*(?!\{\s*\"\$schemaVersion\")")
"""How a replay file begins. What is said in it may be about states."""


def load_state_file(place: str) -> RunState:
    """The state in a file. raises: NotFound, Unreadable; InvalidRunState  with the file's name in front"""
    return parse_state_bytes(read_state_bytes(place), place)


def parse_state_bytes(data: bytes, name: str) -> RunState:
    """The state that `data` is. raises: InvalidRunState  with `name` in front"""
    try:
        return parse_run_state(data)
    except InvalidRunState as wrong:
        raise wrong.in_file(name)  # noqa: B904  it is the same error


def read_state_bytes(place: str) -> bytes:
    """The bytes of a file, no more than a state may have. raises: NotFound, Unreadable"""
    target = Path(os.path.expanduser(place))
    if not place:
        raise NotFound("file", place, hint=STATE_FILE_HINT)
    try:
        if stat.S_ISDIR(target.stat().st_mode):
            raise Unreadable(f"{place} is a folder, not a state")
        with open(target, "rb") as file:
            return read_state_stream(file)
    except FileNotFoundError as wrong:
        raise NotFound("file", place, hint=STATE_FILE_HINT) from wrong
    except OSError as wrong:
        raise Unreadable(f"{place} cannot be read: {format_os_error(wrong)}") from wrong


def read_state_stream(stream: BinaryIO) -> bytes:
    """All that comes, up to one byte more than a state may have."""
    return stream.read(MAX_STATE_BYTES + 1)


def is_state_like(data: bytes) -> bool:
    """Whether these bytes are meant as a state, in whichever encoding and however broken."""
    plain = data.replace(b"\0", b"")
    return not ITEM_LIST_PATTERN.match(plain) and any(member in plain for member in STATE_MARKERS)


def save_state_file(state: RunState, place: str) -> None:
    """Put `state` in a file's place, atomically, 0600.

    raises:  InvalidUsage, StoreReadOnly, StoreFull, StoreFault, Unreadable  the file is as it was
    """
    write_atomic(check_state_path(place), serialize_run_state(state), mode=PRIVATE_MODE)


def check_state_path(place: str) -> Path:
    """Where the file lies that a state can be kept in, as far as is known before it is written.

    raises:  as `save_state_file`
    """
    if not place:
        raise InvalidUsage("a state is kept in a file, and its name is empty", hint=OTHER_FILE_HINT)
    target = resolve_links(Path(os.path.abspath(os.path.expanduser(place))))
    if not target.parent.is_dir():
        raise StoreFault(f"{target.parent} is not a folder", hint=OTHER_FILE_HINT)
    if target.is_dir() or (target.exists() and not target.is_file()):
        raise Unreadable(f"{place} is not a file that a state can be kept in", hint=OTHER_FILE_HINT)
    if not os.access(target.parent, os.W_OK):
        raise StoreReadOnly(f"{target.parent} cannot be written", hint=OTHER_FILE_HINT)
    return target
