"""What could stand where the cursor is: commands, what they take, and files.

A command's name is completed at the beginning of a line and its words behind it; `@` begins a
file's name anywhere. What a command takes stands in its row of the table, and whoever knows
models and handles is asked for them only then.
"""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

FILE = "file"
COMMAND = "command"

MOST = 1_000
"""Names of one folder that are offered."""


class Place(NamedTuple):
    """Where something is to be completed.

    kind:  "command", "file", or what a command takes; "" for nothing
    word:  what stands there already
    """

    kind: str
    word: str


class Offer(NamedTuple):
    """One thing that could stand there, and a few words about it."""

    word: str
    about: str = ""


Suggest: TypeAlias = Callable[[str], Awaitable[tuple[int, Sequence[Offer]]]]
"""From what stands before the cursor to how many characters are replaced, and by what."""


def place(before: str, taken: Callable[[str], str]) -> Place:
    """What is to be completed behind `before`; `taken` says what a command takes, by its name."""
    if before.startswith("/") and not before.startswith("//"):
        name, space, words = before[1:].partition(" ")
        return Place(taken(name.lower()), words.lstrip()) if space else Place(COMMAND, before)
    last = before[_last_word(before) :]
    if last.startswith("@"):
        return Place(FILE, last[1:])
    return Place(FILE, last) if before.startswith("!") else Place("", "")


def _last_word(before: str) -> int:
    """Where the last word begins, one in quotes behind an @ as a whole."""
    quoted = before.rfind('@"')
    if quoted >= 0 and before.count('"', quoted) == 1:
        return quoted
    return max(before.rfind(blank) for blank in " \t\n") + 1


def files(word: str) -> list[Offer]:
    """The files and folders that begin like `word`; names with blanks in quotes."""
    written = word.lstrip("\"'")
    folder, begin = os.path.split(written)
    try:
        there = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda one: one.name)
    except OSError:
        return []
    shown = [one for one in there if one.name.startswith(begin) and (begin or not one.name.startswith("."))]
    return list(_named(folder, shown[:MOST]))


def _named(folder: str, there: Sequence["os.DirEntry[str]"]) -> Iterator[Offer]:
    for one in there:
        whole = os.path.join(folder, one.name)
        is_folder = one.is_dir()
        if any(sign.isspace() for sign in whole):
            yield Offer(f'"{whole}/' if is_folder else f'"{whole}"')
        else:
            yield Offer(f"{whole}/" if is_folder else whole)


def fitting(offers: Sequence[Offer], word: str) -> list[Offer]:
    """Those that begin like `word`; where none does, those that have it in them."""
    low = word.lower()
    begin = [one for one in offers if one.word.lower().startswith(low)]
    return begin or [one for one in offers if low in one.word.lower()]
