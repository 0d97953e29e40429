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

    A link whose parent is not among `links` counts as going on from none, and so does the first link of a circle,
    which a file or an endpoint that reuses ids can make.
    """
    parents = _without_circles({link.id: link.parent for link in links})
    found: dict[str | None, list[Link]] = {}
    for link in links:
        found.setdefault(parents[link.id], []).append(link)
    return found


def _without_circles(parents: dict[str, str | None]) -> dict[str, str | None]:
    """The parent of each id among `parents`; None where it is unknown, and once in each circle."""
    order = {name: at for at, name in enumerate(parents)}
    cut = {name: parent if parent in parents else None for name, parent in parents.items()}
    ends: set[str] = set()
    for name in parents:
        walk: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in ends and at not in walk:
            walk[at] = None
            at = cut[at]
        if at is not None and at in walk:
            circle = list(walk)[list(walk).index(at) :]
            cut[min(circle, key=order.__getitem__)] = None
        ends.update(walk)
    return cut


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
