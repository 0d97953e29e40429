"""What a change would make, as far as it says so itself.

Keys follow from items. So everything that has a name is named here, before the database is asked:
what it must be asked for, and what then remains to be written.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from convo.history import Key, child
from convo.items import Item, hash_of
from convo.stores import rules
from convo.stores.contract import Change, Growth
from convo.stores.postgres import names
from convo.stores.postgres.bodies import packed


class Grown(NamedTuple):
    """A place that a change makes, unless it is there."""

    parent: Key
    item: Item
    hash: UUID
    body: bytes


class There(NamedTuple):
    """A place that the database has; `empty` where its item was erased, and at the root."""

    depth: int
    empty: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A change, and the places that it grows.

    grown:  by key, each behind its parent, which comes first or is not among them
    """

    change: Change
    grown: Mapping[Key, Grown]

    def kept(self, final: Container[str]) -> frozenset[Key]:
        """The grown places that something will stand on, or behind.

        final:  links that have ended already: they stay where they stand
        """
        links = tuple(link for link in self.change.links if link.id not in final)
        kept: set[Key] = set()
        for key in rules.places(replace(self.change, links=links)):
            while key in self.grown and key not in kept:
                kept.add(key)
                key = self.grown[key].parent
        return frozenset(kept)

    @property
    def asked(self) -> list[Key]:
        """The places that the database must be asked for."""
        change = self.change
        named = (*(growth.after for growth in change.grow), *self.grown, *rules.places(change), *change.erase)
        return sorted({key for key in named if names.is_key(key)})

    @property
    def bases(self) -> list[UUID]:
        """The places that records will stand on or behind, as far as they can be there already."""
        return sorted({names.half(self.base(key)) for key in rules.places(self.change) if names.is_key(key)})

    def base(self, key: Key) -> Key:
        """The last place before `key`, or `key` itself, that this change does not grow."""
        while key in self.grown:
            key = self.grown[key].parent
        return key

    def behind(self, key: Key) -> list[Key]:
        """The grown places from the base of `key` to `key`, oldest first."""
        back = []
        while key in self.grown:
            back.append(key)
            key = self.grown[key].parent
        return back[::-1]

    def check(self, there: Mapping[Key, There]) -> None:
        """Make sure that every place that is named is there or grown. raises: NotFound"""
        for growth in self.change.grow:
            self._check(growth.after, there)
        for key in (*rules.places(self.change), *self.change.erase):
            self._check(key, there)

    def _check(self, key: Key, there: Mapping[Key, There]) -> None:
        if key not in there and key not in self.grown:
            raise rules.no_place(key)

    def depth(self, key: Key, there: Mapping[Key, There]) -> int:
        """How many items lead to `key`."""
        count = 0
        while key not in there:
            count, key = count + 1, self.grown[key].parent
        return count + there[key].depth


def plan(change: Change) -> Plan:
    """What `change` makes. raises: NotCanonical, NotFound"""
    rules.check_names(change)
    return Plan(change, _grown(change.grow))


def _grown(growths: Iterable[Growth]) -> dict[Key, Grown]:
    grown: dict[Key, Grown] = {}
    for growth in growths:
        at = growth.after
        if not names.is_key(at):
            raise rules.no_place(at)
        for item in growth.items:
            hashed = hash_of(item)
            parent, at = at, child(at, hashed)
            if at not in grown:
                grown[at] = Grown(parent, item, names.item_name(hashed), packed(item))
    return grown
