"""Text that differs in each run, such as ids and times, and its stable placeholders.

Recorded outputs contain `resp_#1`, `HASH#1`, `TIME`, `N s`, `SIZE` and `FOLDER` instead of ids, hashes, times,
durations, sizes of files and the working folder, `ENCRYPTED` for encrypted content and `WEIGHTS`
for the file of the built-in model.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

ID = re.compile(r"\b(resp|conv|ses|run|msg|rs|fc|fco|cmp|call|req)_[0-9a-f]{8,}\b")
HASH = re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{12}(?=, [\d,]+ items?\b)")
CHANGING: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"/\S+\.gguf\b"), "WEIGHTS"),
    (re.compile(r"\bgAAAA[\w-]{40,}=*"), "ENCRYPTED"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]+\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?"), "TIME"),
    (re.compile(r"(?:(?<=_at\": )|(?<=_at\":)|(?<=created\": ))\d{9,}(?:\.\d+)?"), "TIME"),
    (re.compile(r"\b\d+\.\d+(?= s\b)"), "N"),
    (re.compile(r"(?:(?<=seconds\": )|(?<=_s\": )|(?<=since\": )|(?<=before\": ))\d[\d.e-]*"), "N"),
    (
        re.compile(r"\b(completed|failed|cancelled|incomplete)( {2,}\d+\.\d)(?=  )"),
        lambda match: match[1] + "N.N".rjust(len(match[2])),
    ),
    (re.compile(r"\b\d+\.\d [KM]B\b|(?<=bytes\": )\d{5,}"), "SIZE"),
)
"""Patterns of times, durations in seconds, and sizes of files, with their replacement. A column keeps its width."""

PLACEHOLDER = re.compile(r"(?:[a-z]+_|HASH)#\d+")


class Placeholders:
    """The placeholders of one transcript in the working folder."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._folder = os.fspath(Path.cwd())

    def stable(self, text: str) -> str:
        """Return `text` with placeholders."""
        if self._folder in text:  # in a table, its length decides the position of the next column
            text = re.sub(r"(?<=\S)  +", "  ", text.replace(self._folder, "FOLDER"))
        text = ID.sub(lambda match: self._name(match[0], f"{match[1]}_"), text)
        text = HASH.sub(lambda match: self._name(match[0], "HASH"), text)
        for pattern, replacement in CHANGING:
            text = pattern.sub(replacement, text)
        return text

    def actual(self, text: str) -> str:
        """Return `text` with the ids and hashes of this run instead of their placeholders."""
        return PLACEHOLDER.sub(
            lambda match: next((actual for actual, name in self._names.items() if name == match[0]), match[0]), text
        )

    def _name(self, actual: str, kind: str) -> str:
        """Return the placeholder of an id or a hash, which may be shortened."""
        for known, name in self._names.items():
            if known.startswith(actual) or actual.startswith(known):
                return name
        number = 1 + sum(name.startswith(f"{kind}#") for name in self._names.values())
        return self._names.setdefault(actual, f"{kind}#{number}")
