"""The differences of two surfaces, and their printed form."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.surface.document import Surface, SurfaceEntry


class Difference(NamedTuple):
    """One difference. `kind` is "removed", "changed" or "added"; `words` are printed after the name."""

    section: str
    kind: str
    name: str
    words: str = ""


def differences(before: Surface, after: Surface) -> list[Difference]:
    """All differences, by section, removals first."""
    sections = sorted({*before, *after})
    found = [change for one in sections for change in _in_section(one, before.get(one, {}), after.get(one, {}))]
    order = ("removed", "changed", "added")
    return sorted(found, key=lambda change: (change.section, order.index(change.kind), change.name))


def _in_section(section: str, before: dict[str, SurfaceEntry], after: dict[str, SurfaceEntry]) -> Iterator[Difference]:
    for name, entry in before.items():
        if name not in after:
            yield Difference(section, "removed", name, _words(entry))
        else:
            yield from _in_entry(section, name, entry, after[name])
    for name in after.keys() - before.keys():
        yield Difference(section, "added", name, _words(after[name]))


def _in_entry(section: str, name: str, before: SurfaceEntry, after: SurfaceEntry) -> Iterator[Difference]:
    if not (isinstance(before, list) and isinstance(after, list)):
        if before != after:
            yield Difference(section, "changed", name, f"{_words(before)} -> {_words(after)}")
        return
    for kind, these, others in (("removed", before, after), ("added", after, before)):
        if words := [word for word in these if word not in others]:
            yield Difference(section, kind, name, ", ".join(words))


def _words(entry: SurfaceEntry) -> str:
    return ", ".join(entry) if isinstance(entry, list) else entry


def is_refused(found: Sequence[Difference], *, additions: bool = False) -> bool:
    """Whether one of the differences breaks the surface; with `additions` an addition does too."""
    return any(additions or change.kind != "added" for change in found)


def difference_lines(found: Sequence[Difference], longest: int = 200) -> Iterator[str]:
    """Lines that name every change, by section; words are cut after `longest` characters."""
    section = ""
    for change in found:
        if change.section != section:
            section = change.section
            yield f"{section}:"
        words = change.words if len(change.words) <= longest else f"{change.words[:longest]}…"
        suffix = "" if words in ("present", "") else f"  ({words})"
        yield f"  {change.kind:<8} {change.name}{suffix}"
    counts = {kind: sum(change.kind == kind for change in found) for kind in ("removed", "changed", "added")}
    yield ", ".join(f"{count} {kind}" for kind, count in counts.items()) if found else "no differences"
