"""Read and write RunState files.

Files are written atomically with mode 0600: a state has the whole history and the application's context.
At most one byte more than a state may have is read. The reader and the writer of states are imported with the
first state: commands look whether a handle names a state, and most handles do not.
"""

import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from convo.chat.files import PRIVATE_MODE, format_os_error, resolve_links, write_atomic
from convo.errors import InvalidRunState, InvalidUsage, NotFound, StoreFault, StoreReadOnly, Unreadable
from convo.history.items import Json

if TYPE_CHECKING:
    from convo.runstate.run_state import RunState

STATE_FIELDS = ("$schemaVersion", "current_agent", "current_turn", "currentAgent")
"""Fields of every state, by which one that lacks some of them is still recognized."""

STATE_FILE_HINT = "pass a file with the output of RunState.to_string(); convo approvals decides the calls of a session"
OTHER_FILE_HINT = "choose another file"

STATE_START = rb"[\xef\xbb\xbf\xfe\xff\s]*(?:\[\s*)?\{\s*\"(?:%s)\"" % "|".join(map(re.escape, STATE_FIELDS)).encode()
"""The beginning of a state, also of a truncated one; `RunState.to_string` writes the version first."""


def load_state_file(path: str, *, javascript: bool = False) -> "RunState":
    """Return the state in a file; `javascript` as in `parse_state_bytes`.

    Raises NotFound, Unreadable, and InvalidRunState with the file name in front.
    """
    return parse_state_bytes(read_state_bytes(path), path, javascript=javascript)


def parse_state_bytes(data: bytes, name: str, *, javascript: bool = False) -> "RunState":
    """Parse a state. Raises InvalidRunState with `name` in front.

    javascript:  a state of the JavaScript SDK is returned as a `JavaScriptState`; else it raises JavaScriptRunState
    """
    from convo.runstate.javascript import parse_state_of_either_sdk
    from convo.runstate.reader import parse_run_state

    try:
        return parse_state_of_either_sdk(data) if javascript else parse_run_state(data)
    except InvalidRunState as error:
        raise error.in_file(name)  # noqa: B904  it is the same error


def read_state_bytes(path: str) -> bytes:
    """Return the bytes of a file, at most one more than a state may have. Raises NotFound, Unreadable."""
    target = Path(os.path.expanduser(path))
    if not path:
        raise NotFound("file", path, hint=STATE_FILE_HINT)
    try:
        if stat.S_ISDIR(target.stat().st_mode):
            raise Unreadable(f"{path} is a folder, not a state")
        with open(target, "rb") as file:
            return read_state_stream(file)
    except FileNotFoundError as error:
        raise NotFound("file", path, hint=STATE_FILE_HINT) from error
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {format_os_error(error)}") from error


def read_state_stream(stream: BinaryIO) -> bytes:
    """Read a stream, at most one byte more than a state may have."""
    from convo.runstate.document import MAX_STATE_BYTES

    return stream.read(MAX_STATE_BYTES + 1)


def is_state_like(data: bytes) -> bool:
    """Return whether these bytes are probably a state, in any encoding, also a damaged one.

    Only the fields of the document count: a message, or `reasoning.context` of a request, may contain the same words.
    """
    # In UTF-16 and UTF-32 an ASCII character has zero bytes.
    plain = data.replace(b"\0", b"")
    if re.match(STATE_START, plain):
        return True
    if not any(field.encode() in plain for field in STATE_FIELDS):
        return False
    try:
        document: Json = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and not document.keys().isdisjoint(STATE_FIELDS)


def save_state_file(state: "RunState", path: str) -> None:
    """Replace the content of a file by `state`, atomically, with mode 0600.

    Raises InvalidUsage, StoreReadOnly, StoreFull, StoreFault, Unreadable; the file is then unchanged.
    """
    from convo.runstate.writer import serialize_run_state

    write_atomic(check_state_path(path), serialize_run_state(state), mode=PRIVATE_MODE)


def check_state_path(path: str) -> Path:
    """Return the path of the file to write a state to, after the checks that are possible before writing.

    Raises the errors of `save_state_file`.
    """
    if not path:
        raise InvalidUsage("the name of the state file is empty", hint=OTHER_FILE_HINT)
    target = resolve_links(Path(os.path.abspath(os.path.expanduser(path))))
    if not target.parent.is_dir():
        raise StoreFault(f"{target.parent} is not a folder", hint=OTHER_FILE_HINT)
    if target.is_dir() or (target.exists() and not target.is_file()):
        raise Unreadable(f"{path} is not a regular file, so a state cannot be written to it", hint=OTHER_FILE_HINT)
    if not os.access(target.parent, os.W_OK):
        raise StoreReadOnly(f"{target.parent} cannot be written", hint=OTHER_FILE_HINT)
    return target
