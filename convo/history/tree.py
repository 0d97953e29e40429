"""Places in a history, and the paths that lead to them.

A node is a place: its key is SHA-256 over the key of its parent and the hash of its item. So two
histories that begin alike share their nodes without asking each other, a history that is sent
again names the nodes that are there already, a fork is a second head, and an edit in the middle
makes new nodes behind it and touches nothing. Keys begin at the tenant's root: nothing is shared
between tenants.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, NewType

from convo.errors import Conflict
from convo.history.prefix import Prefix
from convo.items import Hash, Item, hash_of

Key = NewType("Key", str)
"""64 hex digits: one place in one tenant's tree."""


def root(tenant: str) -> Key:
    """The place before the first item of every history of `tenant`."""
    return Key(sha256(b"n1\0" + tenant.encode()).hexdigest())


def child(parent: Key, item: Hash) -> Key:
    """The place that an item with this hash takes after `parent`."""
    return Key(sha256(bytes.fromhex(parent) + item.encode()).hexdigest())


class Node(NamedTuple):
    """An item in its place."""

    key: Key
    item: Item


@dataclass(frozen=True)
class Path:
    """The nodes from a root to a head, oldest first. Growing or cutting makes another path."""

    root: Key
    nodes: Prefix[Node] = field(default_factory=Prefix)

    @property
    def head(self) -> Key:
        return self.nodes[-1].key if self.nodes else self.root

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(node.item for node in self.nodes)

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(node.key for node in self.nodes)

    def grow(self, items: Iterable[Item]) -> "Path":
        """This path with `items` after its head."""
        head, new = self.head, list[Node]()
        for at, item in enumerate(items, len(self)):
            head = child(head, hash_of(item))
            there = self.nodes.behind(at)
            new.append(there if there and there.key == head else Node(head, item))
        return Path(self.root, self.nodes.grow(new))

    def place(self, key: Key) -> int:
        """How many nodes lead up to and include `key`; 0 for the root.

        raises:  Conflict  the path does not pass through `key`
        """
        for place in range(len(self.nodes), 0, -1):  # what is asked for is nearly always near the head
            if self.nodes[place - 1].key == key:
                return place
        if key == self.root:
            return 0
        raise Conflict(f"this history does not pass through {key[:12]}")

    def passes(self, key: Key) -> bool:
        return key == self.root or any(node.key == key for node in reversed(self.nodes))

    def upto(self, key: Key) -> "Path":
        """The path that ends at `key`. raises: Conflict  as for `place`."""
        return self.first(self.place(key))

    def after(self, key: Key) -> tuple[Node, ...]:
        """The nodes behind `key`. raises: Conflict  as for `place`."""
        return self.nodes[self.place(key) :]

    def first(self, count: int) -> "Path":
        return Path(self.root, self.nodes.first(count))

    def shared(self, other: "Path") -> int:
        """How many nodes both paths begin with. Keys name whole prefixes, so this is a search."""
        least = min(len(self), len(other))
        if not least or self.nodes[least - 1].key == other.nodes[least - 1].key:
            return least
        return bisect_left(range(least), True, key=lambda at: self.nodes[at].key != other.nodes[at].key)

    def __len__(self) -> int:
        return len(self.nodes)
