"""Conversion of values to patterns that are equal in all runs.

Random and measured parts are replaced: `resp_07c0...` becomes `resp_<hex32>`, a time `<time>`, a number `number`, a
sentence `<text>`. Single words are unchanged, because programs compare them.
"""

import re
from collections.abc import Callable, Mapping

LITERAL = frozenset({"version", "schema", "$schemaVersion", "status", "exit", "sequence_number", "run_format"})
"""Members whose numbers are not masked."""

PARTS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-f])"), "<uuid>"),
    (re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-f]*\d)[0-9a-f]{8,}(?![0-9A-Za-z])"), lambda found: f"<hex{len(found[0])}>"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "<port>"),
    (re.compile(r"(?<![\w+/=-])(?=[\w+/-]*[A-Z])(?=[\w+/-]*[a-z])(?=[\w+/-]*\d)[\w+/-]{40,}={0,2}"), "<base64>"),
)

FIGURES = re.compile(r"[\d.,\[\]-]+")


class Masks:
    """Replaces the parts of values that differ between two runs.

    known:  strings of this run, such as its folder, and the names that replace them
    """

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = sorted(known.items(), key=lambda pair: -len(pair[0]))

    def masked(self, text: str) -> str:
        """Replace each random part of `text` by a name."""
        for known, name in self._known:
            text = text.replace(known, name)
        for part, replacement in PARTS:
            text = part.sub(replacement, text)
        return text

    def pattern(self, path: str, value: object) -> str:
        """The pattern of the leaf at `path` of a JSON document."""
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, int | float):
            return repr(value) if path.rpartition(".")[2] in LITERAL else "number"
        if not isinstance(value, str):
            return "[]" if isinstance(value, list) else "{}"
        if not value:
            return "''"
        if FIGURES.fullmatch(value) and path.rpartition(".")[2] not in LITERAL:
            return "<figures>"
        return "<text>" if any(sign.isspace() for sign in value.strip()) else self.masked(value)
