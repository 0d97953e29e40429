"""The text of a file that somebody named, and no more of it than such a file can have.

A path may lead to a device that never ends, or to a pipe that nobody writes into: neither may hold
a command up or fill the memory. A pipe that somebody writes into is read to its end, because that is how a shell
hands over what a command says: `<(jq .customer order.json)`.
"""

import os
import stat

from convo.engine.whole_file import why
from convo.errors import Unreadable

BYTES = 16 * 1024 * 1024
"""The most that a file of values, agents or the like may have."""


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
