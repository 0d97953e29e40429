"""One tenant's places and items, and who needs them.

A place is counted by its children and by every head, mark and link that stands on it, an item by
its places. What nobody needs is gone at once, and the place before it with it if that was its last.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from convo.history import Key, Link, Session, child
from convo.items import Hash, hash_of
from convo.stores import rules
from convo.stores.contract import Conversation, Growth
from convo.stores.terms import terms_of
from convo.stores.verbatim import dumps, loads


@dataclass(slots=True)
class Place:
    """A node: `number` counts up, `item` is None at the root and where the item was erased."""

    number: int
    depth: int
    parent: Key | None
    item: Hash | None


@dataclass(slots=True)
class Body:
    """An item as text, its own id, the terms that a search finds it by; `number` counts up."""

    number: int
    text: str
    id: str
    terms: str

    @classmethod
    def of(cls, number: int, text: str) -> "Body":
        item = loads(text)
        return cls(number, text, rules.own_id(item), terms_of(item))


Grown = dict[Key, tuple[Key, Hash, str]]
"""Places that a change makes: parent, item and the item's text."""

Record = Link | Session | Conversation
"""What stands on places and so keeps them."""


class Tree:
    """One tenant's places and items, and who needs them."""

    def __init__(self, top: Key) -> None:
        self.places: dict[Key, Place] = {top: Place(0, 0, None, None)}
        self.bodies: dict[Hash, Body] = {}
        self._named: defaultdict[str, set[Hash]] = defaultdict(set)
        self._needs: Counter[str] = Counter({top: 1})
        self._loose: list[Key] = []
        self._made = 0

    def walk(self, key: Key) -> Iterator[tuple[Key, Place]]:
        """The places from `key` back to the first behind the root."""
        while (place := self.places[key]).parent is not None:
            yield key, place
            key = place.parent

    def plan(self, grow: Iterable[Growth]) -> Grown:
        """What `grow` would make. raises: NotFound"""
        grown: Grown = {}
        for growth in grow:
            at = growth.after
            if at not in self.places and at not in grown:
                raise rules.no_place(at)
            for item in growth.items:
                hashed = hash_of(item)
                parent, at = at, child(at, hashed)
                grown.setdefault(at, (parent, hashed, dumps(item)))
        return grown

    def length(self, key: Key, grown: Grown) -> int:
        """How many items lead to `key`, which may stand on a place that is only planned."""
        count = 0
        while key not in self.places:
            count, key = count + 1, grown[key][0]
        return count + self.places[key].depth

    def plant(self, grown: Grown) -> None:
        for key, (parent, item, text) in grown.items():
            if key not in self.places:
                self._made += 1
                self.places[key] = Place(self._made, self.places[parent].depth + 1, parent, None)
                self._needs[parent] += 1
            self._loose.append(key)
            if self.places[key].item is None:
                self.places[key].item = item
                self._needs[item] += 1
                self._keep(item, text)

    def _keep(self, item: Hash, text: str) -> None:
        if item not in self.bodies:
            self._made += 1
            self.bodies[item] = body = Body.of(self._made, text)
            self._named[body.id].add(item)

    def move(self, old: Record | None, new: Record | None) -> None:
        """A record that stood where `old` says stands where `new` says."""
        self._needs.update(stands(new))
        self._needs.subtract(stands(old))
        self._loose.extend(stands(old))

    def empty(self, key: Key) -> None:
        """Take the item out of a place, and its body with it if that was its last place."""
        item, self.places[key].item = self.places[key].item, None
        if item is not None:
            self._needs[item] -= 1
            if not self._needs[item]:
                del self._needs[item]
                self._named[self.bodies.pop(item).id].discard(item)

    def named(self, item_id: str) -> set[Hash]:
        """The items that carry this id themselves."""
        return self._named.get(item_id, set()) if item_id else set()

    def beginning(self, digits: str) -> Key | None:
        """The place whose key begins so."""
        return next((key for key in self.places if key.startswith(digits)), None) if digits else None

    def sweep(self) -> None:
        """Take every place that nobody needs any more."""
        while self._loose:
            key = self._loose.pop()
            if key in self.places and not self._needs[key]:
                self.empty(key)
                parent = self.places.pop(key).parent
                assert parent is not None  # the root is always needed
                self._needs[parent] -= 1
                self._loose.append(parent)


def stands(record: Record | None) -> tuple[Key, ...]:
    """The places that a record stands on."""
    if record is None:
        return ()
    if isinstance(record, Link):
        return (record.saw, record.head)
    if isinstance(record, Conversation):
        return (record.head,)
    return (record.head, record.mark, *((record.written,) if record.written else ()))
