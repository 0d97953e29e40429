"""The first elements of a list that several values share.

A history grows at its end, and what it was before stays as it was. Both are so many of the first
elements of one list: who has all of it adds to it, who has less finds there what was added already,
or gets a list of its own. So to grow costs what is added and not what was there.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import TypeVar, overload

Element = TypeVar("Element")


class Prefix(Sequence[Element]):
    """A sequence that never changes; what is cut out of it is a tuple."""

    __slots__ = ("_count", "_shared")

    def __init__(self, elements: Iterable[Element] = ()) -> None:
        self._shared = list(elements)
        self._count = len(self._shared)

    def first(self, count: int) -> "Prefix[Element]":
        """The first `count` elements, or all where there are fewer."""
        return self._of(self._shared, min(count, self._count))

    def grow(self, more: Iterable[Element]) -> "Prefix[Element]":
        """These elements and `more`. Threads may do so at once: who comes late finds another's elements there."""
        new, shared = list(more), self._shared
        end = self._count + len(new)
        if len(shared) == self._count:
            shared.extend(new)
        there = shared[self._count : end]
        if len(there) < len(new) or not all(map(is_, there, new)):
            shared = [*shared[: self._count], *new]
        return self._of(shared, end)

    def behind(self, at: int) -> Element | None:
        """What a longer one that shares the list has at `at`; None where there is nothing."""
        return self._shared[at] if at < len(self._shared) else None

    @staticmethod
    def _of(shared: list[Element], count: int) -> "Prefix[Element]":
        made: Prefix[Element] = Prefix.__new__(Prefix)
        made._shared, made._count = shared, count
        return made

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Element]:
        return iter(self._shared[: self._count])

    @overload
    def __getitem__(self, at: int) -> Element: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Element, ...]: ...

    def __getitem__(self, at: int | slice) -> Element | tuple[Element, ...]:
        if isinstance(at, slice):
            return tuple(self._shared[slice(*at.indices(self._count))]) if at.step is None else tuple(self)[at]
        place = at if at >= 0 else at + self._count
        if not 0 <= place < self._count:
            raise IndexError(at)
        return self._shared[place]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Prefix | tuple) else NotImplemented

    def __repr__(self) -> str:
        return f"Prefix({tuple(self)!r})"
