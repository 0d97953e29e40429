"""Comparison of the behaviour of convo with the Agents SDK in 118 sentences.

`sentences.md` contains the table. Each sentence has a number, a short text and a verdict:

    same           convo behaves like the SDK
    better         convo behaves differently; the line below describes its behaviour
    unsupported    convo lacks the feature; the line gives the reason

A line with one of the first two verdicts names a test that shows it, as module::function under `tests`. "both
read modes" marks a test that runs agents twice: it reads the run event by event, like a screen, and as a whole, like
a program. A line without a verdict is a remark about the lines above it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("sentences.md")

SENTENCE_LINE = re.compile(r"(\d+)\. (.+)")
TEST_LINE = re.compile(r"(same|better)(, both read modes)?: (\S+)::(test_\w+)")
UNSUPPORTED_LINE = re.compile(r"unsupported: (.+)")


@dataclass(frozen=True)
class ListedTest:
    """One test of a sentence; `module` is relative to `tests`; `both_modes`: the test uses both read modes."""

    verdict: str
    module: str
    function: str
    both_modes: bool


@dataclass(frozen=True)
class Sentence:
    """One entry of the table; `remarks`: the different behaviour of convo, or the reason for "unsupported"."""

    number: int
    text: str
    tests: tuple[ListedTest, ...]
    remarks: tuple[str, ...]
    is_supported: bool

    @property
    def verdicts(self) -> set[str]:
        return {test.verdict for test in self.tests} if self.is_supported else {"unsupported"}


def load_sentences() -> tuple[Sentence, ...]:
    """Parse the table. Raises ValueError if an entry does not start with a numbered sentence."""
    return tuple(_parse_sentence(entry) for entry in _entries(FILE.read_text(encoding="utf-8")))


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


def _parse_sentence(entry: list[str]) -> Sentence:
    first = SENTENCE_LINE.fullmatch(entry[0])
    if first is None:
        raise ValueError(f"not a numbered sentence: {entry[0]}")
    tests = tuple(
        ListedTest(match[1], match[3], match[4], bool(match[2]))
        for line in entry[1:]
        if (match := TEST_LINE.fullmatch(line))
    )
    reasons = tuple(match[1] for line in entry[1:] if (match := UNSUPPORTED_LINE.fullmatch(line)))
    remarks = tuple(
        line for line in entry[1:] if not TEST_LINE.fullmatch(line) and not UNSUPPORTED_LINE.fullmatch(line)
    )
    return Sentence(int(first[1]), first[2], tests, (*reasons, *remarks), is_supported=not reasons)
