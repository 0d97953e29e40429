"""What was typed before, in one file for all prompts of this user.

Prompts in several terminals add to it at the same time: an entry is written in one piece, under a
lock, and what the others wrote is there at the next prompt, and for a search at this one. The form is
the library's own, so an older file stays. To remember is a convenience: a disk that is full costs the
memory and nothing else.
"""

import fcntl
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.history import History, InMemoryHistory

from convo.config import private
from convo.errors import StoreFault

RECENT = 1024 * 1024
"""Bytes at the end of the file that are read."""

BEGINS = "\n# "
"""What stands before every entry."""


class Remembered(History):
    """The entries of a file, newest first."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place, self._size = place, -1

    async def load(self) -> AsyncGenerator[str, None]:
        size = self._now()
        if size != self._size:
            self._loaded_strings, self._size = list(self.load_history_strings()), size
        for entry in self._loaded_strings:
            yield entry

    def behind(self) -> bool:
        """Whether somebody else has added to it since it was read."""
        return self._now() != self._size

    def load_history_strings(self) -> Iterable[str]:
        try:
            with self._place.open("rb") as file:
                begin = max(0, self._now() - RECENT)
                file.seek(begin)
                text = file.read().decode("utf-8", "replace")
                return entries(text.partition(BEGINS)[2] if begin else text)
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            file = os.open(self._place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                mine = os.fstat(file).st_size == self._size
                os.write(file, entry(string).encode("utf-8", "replace"))
                self._size = os.fstat(file).st_size if mine else -1
            finally:
                os.close(file)

    def _now(self) -> int:
        try:
            return self._place.stat().st_size
        except OSError:
            return 0


def catch_up(buffer: Buffer) -> None:
    """Let a prompt that stands, and in which nothing is typed, know what other terminals have typed meanwhile."""
    if isinstance(buffer.history, Remembered) and buffer.history.behind():
        buffer.reset()
        buffer.load_history_if_not_yet_loaded()


def entry(words: str) -> str:
    """One entry as it stands in the file: when, then a line for each line with a + in front."""
    return f"{BEGINS}{datetime.now()}\n" + "".join(f"+{line}\n" for line in words.split("\n"))


def entries(text: str) -> list[str]:
    """What `text` holds, newest first."""
    found: list[list[str]] = []
    open_entry = False
    for line in text.split("\n"):
        if line.startswith("+"):
            if not open_entry:
                found.append([])
            open_entry = True
            found[-1].append(line[1:])
        else:
            open_entry = False
    return ["\n".join(lines) for lines in reversed(found)]


def remembered(place: Path) -> History:
    """The history in `place`, for this user alone (0600); in memory where that cannot be had."""
    try:
        private(place.parent)
        place.touch(mode=0o600, exist_ok=True)
        if place.stat().st_mode & 0o077:
            place.chmod(0o600)
        place.open("ab").close()
    except (OSError, StoreFault):
        return InMemoryHistory()
    return Remembered(place)
