"""The item tree: keys, nodes, paths, and comparison of histories.

The key of a node is SHA-256 over the parent's key and the item's hash, so histories with a common prefix share nodes,
and a fork or an edit only adds nodes. Keys start at the tenant's root: tenants share nothing. `Path` and `Prefix` are
immutable; appending shares the list and costs only the new elements.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import chain, count
from operator import is_
from typing import Any, NamedTuple, NewType, TypeAlias, TypeVar, overload

from convo.errors import Conflict
from convo.history.canonical import Hash, digest, item_hash
from convo.history.items import Item

Element = TypeVar("Element")
Result = TypeVar("Result")


MakeStep: TypeAlias = Callable[..., Callable[[Sequence[Element]], Iterable[Result]]]
"""Returns a step: a function that is called with one part of a sequence after the other, and returns its results."""


class _Derived(NamedTuple):
    """The results of a step for the first `length` elements of a shared list."""

    arguments: tuple[Hashable, ...]
    step: Callable[[Any], Iterable[Any]]
    length: int
    results: "Prefix[Any]"


class Prefix(Sequence[Element]):
    """An immutable sequence that shares its list, and what was derived from it, with longer ones.

    A slice of it is a tuple.
    """

    __slots__ = ("_count", "_derived", "_shared")

    def __init__(self, elements: Iterable[Element] = ()) -> None:
        self._shared = list(elements)
        self._derived: dict[Hashable, _Derived] = {}
        self._count = len(self._shared)

    def derive(self, make_step: MakeStep[Element, Result], *arguments: Hashable) -> "Prefix[Result]":
        """Return the results of a step; those of a shorter sequence with the same list are not made again.

        arguments:  of `make_step`; only the results with the last ones are kept
        """
        # taken out while it changes: a step may raise, and another thread makes its own
        derived = self._derived.pop(make_step, None)
        if derived is None or derived.arguments != arguments or derived.length > self._count:
            step = make_step(*arguments)
            derived = _Derived(arguments, step, self._count, Prefix(step(self._shared[: self._count])))
        elif derived.length < self._count:
            new = list(derived.step(self._shared[derived.length : self._count]))
            results = derived.results.append(new) if new else derived.results
            derived = _Derived(arguments, derived.step, self._count, results)
        self._derived[make_step] = derived
        return derived.results

    def first(self, count: int) -> "Prefix[Element]":
        """Return the first `count` elements, or all where there are fewer."""
        return self._sharing(self._shared, self._derived, min(count, self._count))

    def append(self, elements: Iterable[Element]) -> "Prefix[Element]":
        """Return this sequence followed by `elements`.

        Safe in concurrent threads: the list is copied when another thread has appended other elements to it.
        """
        new, shared, derived = list(elements), self._shared, self._derived
        end = self._count + len(new)
        if len(shared) == self._count:
            shared.extend(new)
        tail = shared[self._count : end]
        if len(tail) < len(new) or not all(map(is_, tail, new)):
            # the newest list is the one that grows: a part of a response is replaced by the whole one
            longer, shared, derived = derived, [*shared[: self._count], *new], {}
            for make_step, each in list(longer.items()):
                if each.length <= self._count and longer.pop(make_step, None) is each:
                    derived[make_step] = each
        return self._sharing(shared, derived, end)

    def shared_element(self, index: int) -> Element | None:
        """Return the element at `index` of a longer sequence that shares the list; None where there is none."""
        return self._shared[index] if index < len(self._shared) else None

    @staticmethod
    def _sharing(shared: list[Element], derived: "dict[Hashable, _Derived]", count: int) -> "Prefix[Element]":
        prefix: Prefix[Element] = Prefix.__new__(Prefix)
        prefix._shared, prefix._derived, prefix._count = shared, derived, count
        return prefix

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Element]:
        return iter(self._shared[: self._count])

    @overload
    def __getitem__(self, key: int) -> Element: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[Element, ...]: ...

    def __getitem__(self, key: int | slice) -> Element | tuple[Element, ...]:
        if isinstance(key, slice):
            return tuple(self._shared[slice(*key.indices(self._count))]) if key.step is None else tuple(self)[key]
        index = key if key >= 0 else key + self._count
        if not 0 <= index < self._count:
            raise IndexError(key)
        return self._shared[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Prefix | tuple) else NotImplemented

    def __repr__(self) -> str:
        return f"Prefix({tuple(self)!r})"


class JoinedList(list[Element]):
    """A list that is not changed, made of `parts`; what is derived from those that are a `Prefix` is kept."""

    def __init__(self, *parts: Sequence[Element]) -> None:
        super().__init__(chain.from_iterable(parts))
        self.parts = parts


def derive(elements: Sequence[Element], make_step: MakeStep[Element, Result], *arguments: Hashable) -> Sequence[Result]:
    """Return the results of a step for any sequence; only those of a `Prefix`, or a list of one, are kept."""
    if isinstance(elements, JoinedList) and len(elements.parts) == 1:
        elements = elements.parts[0]
    if type(elements) is Prefix:  # isinstance is slow for an abstract class, and for most requests it is a list
        return elements.derive(make_step, *arguments)
    return tuple(make_step(*arguments)(elements))


def where(predicate: Callable[[Item], object]) -> MakeStep[Item, int]:
    """Return a `make_step` for the indexes of the items for which `predicate` is true."""

    def make_step() -> Callable[[Sequence[Item]], Iterator[int]]:
        indexes = count()

        def step(items: Sequence[Item]) -> Iterator[int]:
            for item, index in zip(items, indexes, strict=False):
                if predicate(item):
                    yield index

        return step

    return make_step


Key = NewType("Key", str)
"""64 hex digits: one node in one tenant's tree."""


def root_key(tenant: str) -> Key:
    """Return the key before the first item of every history of `tenant`."""
    return Key(sha256(b"n1\0" + tenant.encode()).hexdigest())


def child_key(parent: Key, item: Hash) -> Key:
    """Return the key of an item with this hash after `parent`."""
    return Key(sha256(bytes.fromhex(parent) + item.encode()).hexdigest())


class Node(NamedTuple):
    """An item and its key."""

    key: Key
    item: Item


@dataclass(frozen=True)
class Path:
    """The nodes from a root to a head, oldest first. Appending or cutting makes another path."""

    root: Key
    nodes: Prefix[Node] = field(default_factory=Prefix)

    @cached_property
    def head(self) -> Key:
        return self.nodes[-1].key if self.nodes else self.root

    @cached_property
    def items(self) -> Prefix[Item]:
        return Prefix(node.item for node in self.nodes)

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(node.key for node in self.nodes)

    def append(self, items: Iterable[Item]) -> "Path":
        """Return this path with `items` after its head."""
        if type(items) is Prefix and items and not self.nodes:
            return items.derive(_make_path_step, self.root)[-1]
        head, new = self.head, list[Node]()
        for index, item in enumerate(items, len(self.nodes)):
            head = child_key(head, item_hash(item))
            existing = self.nodes.shared_element(index)
            new.append(existing if existing and existing.key == head else Node(head, item))
        path = Path(self.root, self.nodes.append(new))
        path.__dict__["items"] = self.items.append(node.item for node in new)  # shares what was derived from them
        return path

    def depth(self, key: Key) -> int:
        """Return the number of nodes up to and including `key`; 0 for the root.

        Raises Conflict when the path does not contain `key`.
        """
        for depth in range(len(self.nodes), 0, -1):  # nearly all lookups are near the head
            if self.nodes[depth - 1].key == key:
                return depth
        if key == self.root:
            return 0
        raise Conflict(f"this history does not pass through {key[:12]}")

    def key_at(self, depth: int) -> Key:
        """Return the key at which the first `depth` nodes end."""
        return self.nodes[depth - 1].key if depth else self.root

    def contains(self, key: Key) -> bool:
        """Return whether `key` is the root or a node of this path."""
        # From the end, as `depth` does.
        return key == self.root or any(node.key == key for node in reversed(self.nodes))

    def up_to(self, key: Key) -> "Path":
        """Return the path that ends at `key`. Raises the Conflict of `depth`."""
        return self.first(self.depth(key))

    def after(self, key: Key) -> tuple[Node, ...]:
        """Return the nodes after `key`. Raises the Conflict of `depth`."""
        return self.nodes[self.depth(key) :]

    def first(self, count: int) -> "Path":
        """Return the path of the first `count` nodes."""
        path = Path(self.root, self.nodes.first(count))
        path.__dict__["items"] = self.items.first(count)
        return path

    def common_depth(self, other: "Path") -> int:
        """Return the number of nodes that both paths begin with.

        Keys identify whole prefixes, so this is a binary search.
        """
        least = min(len(self.nodes), len(other.nodes))
        if not least or self.nodes[least - 1].key == other.nodes[least - 1].key:
            return least
        return bisect_left(range(least), True, key=lambda index: self.nodes[index].key != other.nodes[index].key)

    def __len__(self) -> int:
        return len(self.nodes)


def _make_path_step(root: Key) -> Callable[[Sequence[Item]], tuple[Path]]:
    """Return a step of `derive` for the path of the items; its last result has all of them."""
    path = Path(root)

    def step(items: Sequence[Item]) -> tuple[Path]:
        nonlocal path
        path = path.append(items)
        return (path,)

    return step


class Difference(NamedTuple):
    """The first position at which two histories differ; an item is None where its history has ended.

    shared_count:  the number of common items before it
    """

    shared_count: int
    a: Item | None
    b: Item | None


def is_same_item(item: Item, other: Item) -> bool:
    """Return whether two items have the same meaning, in any form."""
    return item == other or digest(item) == digest(other)


def common_prefix_length(a: Sequence[Item], b: Sequence[Item]) -> int:
    """Return the number of items that the two histories share from the start."""
    for index, (item, other) in enumerate(zip(a, b, strict=False)):
        if not is_same_item(item, other):
            return index
    return min(len(a), len(b))


def first_difference(a: Sequence[Item], b: Sequence[Item]) -> Difference | None:
    """Return the first difference, or None when both have the same meaning."""
    shared_count = common_prefix_length(a, b)
    if shared_count == len(a) == len(b):
        return None
    return Difference(
        shared_count,
        a[shared_count] if shared_count < len(a) else None,
        b[shared_count] if shared_count < len(b) else None,
    )
