"""Lines that begin with a label, as the head of a screen has them.

What begins a line says what the line is about, so a screen can be read aloud or searched without
its layout.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from convo.items import Item, first_words, kind
from convo.ui.answer import safe
from convo.ui.medium import Medium, width

INDENT = 4
"""Columns before and behind a label."""

MOST = 3
"""Unacknowledged items that are named; the others are counted."""

PLAIN: Mapping[str, str] = MappingProxyType({})

Line = tuple[str, str]
"""A label, or "" to go on with the one before, and what it says."""


def labelled(rows: Iterable[Line], medium: Medium, styles: Mapping[str, str] = PLAIN) -> Iterator[str]:
    """The lines, their words one below the other and wrapped where the terminal ends.

    styles:  of `convo.ui.medium.STYLES`, by label; the others are dim
    """
    kept = [(label, safe(words)) for label, words in rows]
    wide = max((len(label) for label, _ in kept), default=0)
    for label, words in kept:
        for at, line in enumerate(_wrapped(words, medium, wide + INDENT)):
            beside = medium.paint(f"{label:<{wide}}", styles.get(label, "dim")) if at == 0 else " " * wide
            yield f"  {beside}  {line}".rstrip()


def _wrapped(words: str, medium: Medium, indent: int) -> list[str]:
    """`words` in lines that fit behind an indent; a word that is longer than a line stays whole."""
    if medium.width is None or width(words) <= medium.width - indent:
        return [words]
    found = [""]
    for word in words.split(" "):
        longer = f"{found[-1]} {word}" if found[-1] else word
        if width(longer) <= medium.width - indent:
            found[-1] = longer
        else:
            found.append(word)
    return [line for line in found if line]


def waiting(items: Sequence[Item], run: str = "") -> Iterator[Line]:
    """What was said and not confirmed, in words; first what an open run waits for, where there is one."""
    if run:
        yield "waiting", run
    if not items:
        yield from () if run else [("waiting", "nothing is unacknowledged")]
        return
    yield "" if run else "waiting", f"{counted(len(items))} unacknowledged"
    for item in items[:MOST]:
        yield "", f"{item.get('role') or kind(item)}: {first_words(item)}"
    if len(items) > MOST:
        yield "", f"and {len(items) - MOST} more"


def counted(number: int, one: str = "item") -> str:
    """Figure and noun: "1 item", "1,024 items"."""
    return f"{number:,} {one}" + ("" if number == 1 else "s")
