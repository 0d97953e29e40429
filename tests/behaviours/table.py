"""Comparison of the behaviour of convo with the Agents SDK in 118 sentences.

`sentences.md` contains the table. Each sentence has a number, a short text and a verdict:

    same       convo behaves like the SDK
    better     convo behaves differently; the line below describes its behaviour
    not ours   convo lacks the feature; the line gives the reason

A line with one of the first two verdicts names a test that shows it, as module::function under `tests`. "both
ways" marks a test that runs agents twice: it reads the run event by event, like a screen, and as a whole, like a
program. A line without a verdict is a remark about the lines above it.
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
    """One test; `module` is relative to `tests`; `both`: the test reads its runs in both ways."""

    verdict: str
    module: str
    function: str
    both: bool


@dataclass(frozen=True)
class Sentence:
    """One entry of the table; `remarks`: the different behaviour of convo, or the reason for "not ours"."""

    number: int
    said: str
    shown: tuple[Shown, ...]
    remarks: tuple[str, ...]
    ours: bool

    @property
    def verdicts(self) -> set[str]:
        return {one.verdict for one in self.shown} if self.ours else {"not ours"}


def sentences() -> tuple[Sentence, ...]:
    """Parse the table. Raises ValueError if an entry does not start with a numbered sentence."""
    return tuple(_sentence(entry) for entry in _entries(FILE.read_text(encoding="utf-8")))


def _entries(text: str) -> Iterator[list[str]]:
    """Yield the lines of each sentence, without titles and empty lines."""
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
