"""Put a whole file in the place of another, so that a reader sees the old one or the new one.

The text goes into a new file beside it, is on the disk before the name changes hands, and takes
the place in one step; a kill at any instruction leaves one of the two, whole. The next write in the same
folder removes the new file that a killed process left. A pipe or a device is no
file whose place could be taken: it is given the text as it stands.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from convo.errors import StoreFault, StoreFull, StoreReadOnly, Unreadable
from convo.temporary import open_temporary

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""The error numbers of a full disk, a used up quota, a file size limit."""

PRIVATE = 0o600


def lies_at(place: Path) -> Path:
    """Where the file itself lies, past all links. raises: Unreadable  they lead in a circle"""
    if _is_stream(place):
        return place  # what a pipe of this process is called has no way to it but the link
    target = Path(os.path.realpath(place))
    if os.path.islink(target):
        raise Unreadable(f"{place} is a link that leads in a circle")
    return target


def put(target: Path, text: str, *, mode: int | None = None) -> None:
    """Put `text` in the place of `target`, atomically.

    mode:    the rights of the file; without it an old file's are kept and a new one is private
    raises:  StoreReadOnly, StoreFull, StoreFault  the file is as it was
    """
    try:
        if _is_stream(target):
            target.write_text(text, encoding="utf-8")
        else:
            _replace(target, text, mode)
    except OSError as wrong:
        raise _fault(target, wrong) from wrong


def why(wrong: Exception) -> str:
    """What the system says of a file that could not be read or written, in words."""
    if isinstance(wrong, UnicodeDecodeError):
        return "it is not UTF-8"
    return (getattr(wrong, "strerror", None) or str(wrong)).lower()


def _is_stream(place: Path) -> bool:
    """Whether a pipe, a device or a socket stands there."""
    return os.path.exists(place) and not (os.path.isfile(place) or os.path.isdir(place))


def _replace(target: Path, text: str, mode: int | None) -> None:
    if mode is None:
        mode = target.stat().st_mode & 0o777 if os.path.exists(target) else PRIVATE
    handle, name = open_temporary(target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
        os.replace(name, target)
    except OSError:
        with suppress(OSError):
            os.unlink(name)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _fault(target: Path, wrong: OSError) -> StoreFault:
    if wrong.errno in NO_ROOM:
        return StoreFull(f"no room to write {target}")
    if isinstance(wrong, PermissionError) or wrong.errno == errno.EROFS:
        return StoreReadOnly(
            f"{target} cannot be written: {why(wrong)}", hint="choose another file, or make it writable"
        )
    return StoreFault(f"{target} cannot be written: {why(wrong)}", hint="choose another file")
