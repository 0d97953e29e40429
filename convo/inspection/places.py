"""The places that a set of paths passes through, each once.

A link names where its input and its output ended and copies nothing. To say what it saw, sent
and added, the paths that lead there are laid over each other: a history of ten thousand items
with a fork at its end is ten thousand places and a few, not twice as many. Every question is
then a few steps back from a place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from convo.history import Key, Path
from convo.items import Item
from convo.tokens import estimate


@dataclass(frozen=True, slots=True)
class Place:
    """One node, with what leads up to it.

    before:  the node before; the root before the first
    depth:   how many items lead up to and include it
    """

    before: Key
    item: Item
    depth: int


class Places:
    """An index of places by key; grows by whole paths of one tree."""

    def __init__(self, root: Key) -> None:
        self.root = root
        self._places: dict[Key, Place] = {}
        self._tokens: dict[Key, int] = {root: 0}

    def add(self, path: Path) -> None:
        """Take in `path`; what it shares with those that are here costs nothing."""
        known = next((at for at in range(len(path), 0, -1) if path.nodes[at - 1].key in self._places), 0)
        before = path.nodes[known - 1].key if known else self.root
        for depth, node in enumerate(path.nodes[known:], known + 1):
            self._places[node.key] = Place(before, node.item, depth)
            before = node.key

    def __contains__(self, key: Key) -> bool:
        return key == self.root or key in self._places

    def __iter__(self) -> Iterator[tuple[Key, Place]]:
        """The places, each after the one before it."""
        return iter(self._places.items())

    def item(self, key: Key) -> Item | None:
        """What stands at `key`; None for the root and for what is not known."""
        place = self._places.get(key)
        return place.item if place else None

    def depth(self, key: Key) -> int:
        """How many items lead up to and include `key`; 0 for the root. raises: KeyError"""
        return 0 if key == self.root else self._places[key].depth

    def tokens(self, key: Key) -> int:
        """What the items up to and including `key` take, as an estimate. raises: KeyError

        Nobody asks this of a history without links, so nothing is estimated before somebody does.
        """
        if key not in self._tokens:
            for place in islice(self._places, len(self._tokens) - 1, None):
                found = self._places[place]
                self._tokens[place] = self._tokens[found.before] + estimate(found.item)
        return self._tokens[key]

    def back(self, key: Key, count: int) -> list[Key]:
        """The last `count` places of the path to `key`, oldest first. raises: KeyError"""
        found: list[Key] = []
        while len(found) < count and key != self.root:
            found.append(key)
            key = self._places[key].before
        return found[::-1]

    def start(self, key: Key, count: int) -> Key:
        """The place before the last `count` of the path to `key`. raises: KeyError"""
        if count >= self.depth(key):
            return self.root
        for _ in range(count):
            key = self._places[key].before
        return key
