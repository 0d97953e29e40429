"""How convo behaves, in 118 sentences, beside the Agents SDK.

`sentences.md` is the table. Each sentence has its number, our short wording of it, and what holds:

    same       convo does what the SDK does
    better     convo does something else instead; the line below says what
    not ours   convo has no such thing; the line says why

Behind the first two stand the tests that show it, each as module::function under `tests`. A test that runs
agents is marked "both ways": it reads the run event by event as a screen does, and then as a whole, as a
program does. A line without a verdict is a remark that belongs to the ones above it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("sentences.md")

HEAD = re.compile(r"(\d+)\. (.+)")
SHOWN = re.compile(r"(same|better)(, both ways)?: (\S+)::(test_\w+)")
NOT_OURS = re.compile(r"not ours: (.+)")


@dataclass(frozen=True)
class Shown:
    """One test. module: under `tests`; both: it reads its runs in both ways"""

    verdict: str
    module: str
    function: str
    both: bool


@dataclass(frozen=True)
class Sentence:
    """One line of the table. remarks: what we do instead, or why it is not ours"""

    number: int
    said: str
    shown: tuple[Shown, ...]
    remarks: tuple[str, ...]
    ours: bool

    @property
    def verdicts(self) -> set[str]:
        return {one.verdict for one in self.shown} if self.ours else {"not ours"}


def sentences() -> tuple[Sentence, ...]:
    """The table. raises: ValueError  a line in it means nothing"""
    return tuple(_sentence(entry) for entry in _entries(FILE.read_text(encoding="utf-8")))


def _entries(text: str) -> Iterator[list[str]]:
    """The lines of each sentence; titles and empty lines belong to none."""
    entry: list[str] = []
    for line in filter(None, text.split("\n")):
        if not line.startswith(" "):
            yield from [entry] if entry else []
            entry = [] if line.startswith("#") else [line]
        else:
            entry.append(line.strip())
    yield from [entry] if entry else []


def _sentence(entry: list[str]) -> Sentence:
    head = HEAD.fullmatch(entry[0])
    if head is None:
        raise ValueError(f"no sentence begins like this: {entry[0]}")
    shown = tuple(Shown(one[1], one[3], one[4], bool(one[2])) for line in entry[1:] if (one := SHOWN.fullmatch(line)))
    why = tuple(one[1] for line in entry[1:] if (one := NOT_OURS.fullmatch(line)))
    remarks = tuple(line for line in entry[1:] if not SHOWN.fullmatch(line) and not NOT_OURS.fullmatch(line))
    return Sentence(int(head[1]), head[2], shown, (*why, *remarks), ours=not why)
