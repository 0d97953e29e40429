"""Links in the order in which a tree is drawn.

A chain is drawn straight down, however long it is. Where several links go on from one, the line
that leads to the head stays where it is, or the newest answer where the head is elsewhere; the
others are drawn before it, one step to the right. So depth counts forks within forks, never the
length of a conversation, and fifty retries in a row are still one step deep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convo.history import Link


@dataclass(frozen=True, slots=True)
class Row:
    """A link and where it is drawn.

    depth:   how many lines run on at its left
    begins:  whether it leaves the line at its left here
    """

    link: Link
    depth: int = 0
    begins: bool = False


def children(links: Sequence[Link]) -> dict[str | None, list[Link]]:
    """The links that go on from each link, in the order given; under None those that go on from none.

    A link whose parent is not among `links` counts as going on from none.
    """
    ids = {link.id for link in links}
    found: dict[str | None, list[Link]] = {}
    for link in links:
        found.setdefault(link.parent if link.parent in ids else None, []).append(link)
    return found


def rows(links: Sequence[Link], head: str | None) -> Iterator[Row]:
    """`links` as they are drawn; `head` is the id of the link whose line stays straight."""
    after, straight = children(links), line_to(head, links)
    waiting = _drawn(after.get(None, []), 0, straight)
    while waiting:
        row = waiting.pop()
        yield row
        waiting += _drawn(after.get(row.link.id, []), row.depth, straight)


def line_to(head: str | None, links: Sequence[Link]) -> set[str]:
    """The ids of `head` and of every link before it."""
    parents = {link.id: link.parent for link in links}
    found: set[str] = set()
    while head is not None and head in parents and head not in found:
        found.add(head)
        head = parents[head]
    return found


def _drawn(siblings: Sequence[Link], depth: int, straight: set[str]) -> list[Row]:
    """The rows of links that go on from the same place, last one first."""
    if not siblings:
        return []
    answered = [link for link in siblings if link.status == "completed"]
    main = next((link for link in siblings if link.id in straight), (answered or siblings)[-1])
    aside = [Row(link, depth + 1, begins=True) for link in siblings if link is not main]
    return [Row(main, depth), *reversed(aside)]
