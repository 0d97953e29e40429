"""The file that owns a replayed conversation: a JSON list of input items that people may edit.

It is read before every turn and written whole after it: into a new file beside it that takes its
place, so that a reader sees the old list or the new one and a kill leaves one of them.
"""

import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from convo.engine.whole_file import lies_at, put, why
from convo.errors import StoreReadOnly, Unreadable
from convo.items import Item, Json, kind

LOOKS_LIKE = 'a replay file looks like [{"role": "user", "content": "hi"}]'


class ReplayFile:
    """One replay file; a missing one is an empty conversation."""

    def __init__(self, place: str | Path) -> None:
        self.place = Path(os.path.abspath(os.path.expanduser(place)))
        self._seen: tuple[int, int, int] | None = None

    def exists(self) -> bool:
        """Whether anything is at its place, if only a link that leads nowhere."""
        return os.path.lexists(self.place)

    def changed(self) -> bool:
        """Whether somebody else wrote the file since it was last read or written here."""
        return self._seen != self._stamp()

    def read(self) -> list[Item]:
        """The items of the file. raises: Unreadable"""
        self._seen = self._stamp()
        try:
            if not _is_there(self.place):
                return []
            text = self.place.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as wrong:
            raise Unreadable(f"{self.place} cannot be read: {why(wrong)}") from wrong
        return _items(self.place, text) if text.strip() else []

    def said(self) -> list[Item]:
        """The items of the file, as somebody would go on from them. raises: Unreadable  one is none, or no message"""
        items = self.read()
        for number, item in enumerate(items, 1):
            fault = _lack(item)
            if fault:
                raise Unreadable(f"{self.place}: item {number} {fault}", hint=LOOKS_LIKE)
        return items

    def write(self, items: Sequence[Item]) -> None:
        """Put `items` in the file's place, atomically; a new file is 0600.

        raises:  StoreReadOnly, StoreFull, StoreFault  the file is as it was
        """
        put(lies_at(self.place), as_text(items))
        self._seen = self._stamp()

    def check(self) -> None:
        """Make sure that the file could be written, before anything is sent. raises: as `write`; Unreadable"""
        target = lies_at(self.place)
        folder = target.parent
        if not os.path.isdir(folder):
            raise Unreadable(f"{folder} is not a folder, so {target.name} cannot be written there")
        try:
            there = _is_there(target)
        except OSError as wrong:
            raise Unreadable(f"{target} cannot be reached: {why(wrong)}") from wrong
        if not os.access(folder, os.W_OK) or (there and not os.access(target, os.W_OK)):
            raise StoreReadOnly(f"{target} cannot be written", hint="choose another file, or make it writable")

    def _stamp(self) -> tuple[int, int, int] | None:
        with suppress(OSError):
            found = self.place.stat()
            return found.st_mtime_ns, found.st_size, found.st_ino
        return None


def as_text(items: Sequence[Item]) -> str:
    """A replay file with these items, one a line."""
    return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=True) for item in items) + "\n]\n"


def _is_there(place: Path) -> bool:
    """Whether there is a file. raises: OSError; Unreadable  there is something that no list can be kept in"""
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise Unreadable(f"{place} is a folder, not a replay file")
    if not stat.S_ISREG(mode):
        raise Unreadable(f"{place} is a pipe or a device, not a replay file")
    return True


def _items(place: Path, text: str) -> list[Item]:
    try:
        found: Json = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise Unreadable(
            f"{place} is not JSON: {wrong}", hint="it may be half written; mend it, or name another file"
        ) from wrong
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise Unreadable(f"{place} holds no list of items", hint=LOOKS_LIKE)
    return found


def _lack(item: Item) -> str | None:
    """What keeps an item from being one that a server could take; of other kinds than messages little is known."""
    if kind(item) == "unknown":
        return "has neither a type nor a role"
    if kind(item) == "message" and not isinstance(item.get("role"), str):
        return "is a message without a role"
    if kind(item) == "message" and not isinstance(item.get("content"), str | list):
        return "is a message without content"
    return None
