"""The responses of one conversation, one behind the other.

A conversation is one list at its owner, and every response goes on from all that is in it, whoever
asked. Only clients that keep a record say which response they went on from; for the others it is
the one whose answer is the last in the list before what they saw.
"""

from collections.abc import Iterable
from dataclasses import replace

from convo.history import Link
from convo.inspection.places import Places

ANSWERED = ("completed", "incomplete")


def strung(links: Iterable[Link], places: Places) -> tuple[Link, ...]:
    """`links` of one conversation, in its order, each with the one before it as parent where it names none."""
    found: list[Link] = []
    last: Link | None = None
    for link in sorted(links, key=lambda link: places.depth(link.saw) if link.saw in places else 0):
        found.append(link if link.parent or last is None else replace(link, parent=last.id))
        if link.status in ANSWERED:
            last = link
    return tuple(found)
