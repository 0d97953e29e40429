"""What is read of a file that somebody named, and no more of it than such a file can have.

A path may lead to a device that never ends, or to a pipe that nobody writes into: neither may hold
a command up or fill the memory. A file of values, agents or the like is small, so there is a limit to
it; a history may be of any length, so only a device is stopped. A pipe that somebody writes into is read to its
end, because that is how a shell hands over what a command says: `<(jq .customer order.json)`.
"""

import os
import stat
from typing import BinaryIO

from convo.engine.whole_file import why
from convo.errors import Unreadable

BYTES = 16 * 1024 * 1024
"""The most that a file of values, agents or the like may have."""

ENDLESS = 64 * 1024 * 1024
"""Bytes; a device that has so many has more."""


def text_of(name: str) -> str:
    """The text in UTF-8 of the file `name`. raises: Unreadable  it is no text, never ends, or has no writer"""
    try:
        data = _read(name)
        if data is None:
            raise Unreadable(f"{name} is a pipe that nobody writes into")
        if len(data) > BYTES:
            raise Unreadable(f"{name} is larger than {BYTES // 1024**2} MB, and is not read")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as wrong:
        raise Unreadable(f"{name} cannot be read: {why(wrong)}") from wrong


def all_of(opened: BinaryIO) -> bytes:
    """What is left in a file or a pipe, whatever its length.

    raises:  OSError;  Unreadable  a device does not come to an end
    """
    if not stat.S_ISCHR(os.fstat(opened.fileno()).st_mode) or opened.isatty():
        return opened.read()
    said = opened.read(ENDLESS)
    if len(said) == ENDLESS:
        raise Unreadable(f"{opened.name} is a device that does not come to an end")
    return said


def _read(name: str) -> bytes | None:
    """Up to one byte more than a file may have; None of a pipe that has no writer. raises: OSError"""
    with open(os.path.expanduser(name), "rb", opener=_at_once) as file:
        first = file.raw.read(1)
        if first == b"" and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            return None
        os.set_blocking(file.fileno(), True)
        return (first or b"") + file.read(BYTES)


def _at_once(place: str, flags: int) -> int:
    """Open without waiting for whoever has the other end."""
    return os.open(place, flags | os.O_NONBLOCK)
