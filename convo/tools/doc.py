"""What a docstring tells of a function or a record: its first words, and a line for each field.

Four ways of writing are known, because people write all four: `Args:` and a block below it
(Google), `:param name:` (Sphinx), a heading underlined with dashes (NumPy), and `name:  words`
in a plain block, as this package does. Whatever else a docstring holds is not for the model.
"""

import inspect
import re
from collections.abc import Collection
from dataclasses import dataclass, field

SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)$")
SPHINX_OTHER = re.compile(r"^:\w+.*?:")
HEADING = re.compile(r"^(Args|Arguments|Params|Parameters|Attributes):\s*$", re.IGNORECASE)
OTHER_HEADING = re.compile(r"^(Returns?|Raises|Yields|Examples?|Notes?|Warnings?):?\s*", re.IGNORECASE)
GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
NUMPY = re.compile(r"^\*{0,2}(\w+)\s*(?::.*)?$")
UNDERLINE = re.compile(r"^-{3,}\s*$")


@dataclass(frozen=True, slots=True)
class Told:
    """What a docstring says: the words before any list, and those of each field by name."""

    words: str = ""
    fields: dict[str, str] = field(default_factory=dict)


def told(documented: object, names: Collection[str] = ()) -> Told:
    """Read the docstring of `documented`.

    names:  the fields that there are; a plain `name:  words` is only taken for one of these
    """
    lines = (inspect.getdoc(documented) or "").splitlines()
    if inspect.isclass(documented) and _made_up(documented, lines):
        return Told()
    begin = next((at for at, line in enumerate(lines) if _ends_the_words(lines, at, names)), len(lines))
    return Told("\n".join(lines[:begin]).strip(), _fields(lines[begin:], names))


def _made_up(kind: type, lines: list[str]) -> bool:
    """Dataclasses without words of their own are given their signature as words."""
    return len(lines) == 1 and lines[0].startswith(f"{kind.__name__}(")


def _ends_the_words(lines: list[str], at: int, names: Collection[str]) -> bool:
    line = lines[at]
    underlined = at + 1 < len(lines) and bool(UNDERLINE.match(lines[at + 1])) and bool(line.strip())
    plain = GOOGLE.match(line)
    named = plain is not None and plain.group(1) in names
    return bool(underlined or named or SPHINX_OTHER.match(line) or HEADING.match(line) or OTHER_HEADING.fullmatch(line))


def _fields(lines: list[str], names: Collection[str]) -> dict[str, str]:
    """Each field's words, lines that go on joined to one."""
    found: dict[str, list[str]] = {}
    current: str | None = None
    block = ""
    for at, line in enumerate(lines):
        if _is_heading(lines, at):
            block, current = _kind_of(line), None
            continue
        began = _begins(line, block, names)
        if began:
            current = began[0]
            found[current] = [began[1]]
        elif line.strip() and current and line.startswith((" ", "\t")):
            found[current].append(line.strip())
        elif line.strip() or not block:
            current = None
    return {name: " ".join(part for part in parts if part) for name, parts in found.items() if any(parts)}


def _is_heading(lines: list[str], at: int) -> bool:
    line = lines[at]
    below = at + 1 < len(lines) and bool(UNDERLINE.match(lines[at + 1]))
    return below or bool(UNDERLINE.match(line) or HEADING.match(line) or OTHER_HEADING.fullmatch(line))


def _kind_of(line: str) -> str:
    if UNDERLINE.match(line):
        return "numpy"
    if HEADING.match(line):
        return "google"
    return "numpy" if line.strip().lower() in ("parameters", "attributes") else "other"


def _begins(line: str, block: str, names: Collection[str]) -> tuple[str, str] | None:
    """The field whose words begin on this line, and the first of them."""
    if sphinx := SPHINX.match(line):
        return sphinx.group(1), sphinx.group(2).strip()
    if block == "google" and line.startswith((" ", "\t")) and (google := GOOGLE.match(line.strip())):
        deep = len(line) - len(line.lstrip()) > 4 and google.group(1) not in names
        return None if deep else (google.group(1), google.group(2).strip())
    if block == "numpy" and (numpy := NUMPY.match(line)):
        return numpy.group(1), ""
    plain = GOOGLE.match(line)
    if not block and plain and plain.group(1) in names:
        return plain.group(1), plain.group(2).strip()
    return None
