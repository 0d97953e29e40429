"""Link trees: order of rows, and links rebuilt from an owner's response resources.

The branch that leads to the head is drawn straight; forks are one step to the right, so depth counts forks and not
links. Links of a conversation get their parents from the order of its items; a remote chain is rebuilt from its
responses and the input items of the last one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from convo.history.canonical import digest
from convo.history.items import Item, Response
from convo.history.records import ANSWERED_STATUSES, Link, Scope, Strategy
from convo.history.tree import Key, Path
from convo.inspect.view import PathIndex


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link and its position in the drawing.

    depth:          number of branch lines to its left
    starts_branch:  whether it forks from the line to its left
    """

    link: Link
    depth: int = 0
    starts_branch: bool = False


def children_by_parent(links: Sequence[Link]) -> dict[str | None, list[Link]]:
    """Return the children of each link, in the order given; the roots are under None.

    A link whose parent is not among `links` is a root, and so is the first link of a cycle, which a file or an
    endpoint that reuses ids can produce.
    """
    parents = _break_cycles({link.id: link.parent_id for link in links})
    found: dict[str | None, list[Link]] = {}
    for link in links:
        found.setdefault(parents[link.id], []).append(link)
    return found


def _break_cycles(parents: dict[str, str | None]) -> dict[str, str | None]:
    """Return the parent of each id; None if it is not in `parents`, and for the first id of each cycle."""
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


def iter_link_rows(links: Sequence[Link], head: str | None) -> Iterator[LinkRow]:
    """Yield the rows of `links` in drawing order; `head` is the id of the link whose branch is drawn straight."""
    after, straight = children_by_parent(links), ancestor_ids(head, links)
    waiting = _sibling_rows(after.get(None, []), 0, straight)
    while waiting:
        row = waiting.pop()
        yield row
        waiting += _sibling_rows(after.get(row.link.id, []), row.depth, straight)


def ancestor_ids(head: str | None, links: Sequence[Link]) -> set[str]:
    """Return the ids of `head` and of all its ancestors."""
    parents = {link.id: link.parent_id for link in links}
    found: set[str] = set()
    while head is not None and head in parents and head not in found:
        found.add(head)
        head = parents[head]
    return found


def _sibling_rows(siblings: Sequence[Link], depth: int, straight: set[str]) -> list[LinkRow]:
    """Return the rows of links with the same parent, last one first."""
    if not siblings:
        return []
    answered = [link for link in siblings if link.status == "completed"]
    main = next((link for link in siblings if link.id in straight), (answered or siblings)[-1])
    aside = [LinkRow(link, depth + 1, starts_branch=True) for link in siblings if link is not main]
    return [LinkRow(main, depth), *reversed(aside)]


def order_by_conversation(links: Iterable[Link], places: PathIndex) -> tuple[Link, ...]:
    """Order `links` by their conversation; a link without a parent becomes the child of the answered link before it."""
    found: list[Link] = []
    last: Link | None = None
    for link in sorted(links, key=lambda link: places.depth(link.input_head) if link.input_head in places else 0):
        found.append(link if link.parent_id or last is None else replace(link, parent_id=last.id))
        if link.status in ANSWERED_STATUSES:
            last = link
    return tuple(found)


@dataclass(frozen=True)
class RemoteChain:
    """A remote chain: the path to the end of its last response, and its links, oldest first."""

    path: Path
    links: tuple[Link, ...]
    path_index: PathIndex


def build_remote_chain(
    responses: Sequence[Response], context: Sequence[Item], root: Key, scope: Scope, provider: str
) -> RemoteChain:
    """Build links from an endpoint's response resources.

    responses:  the response resources of a chain, oldest first
    context:    the whole input of the last one, oldest first
    provider:   the prefix of the model's name
    """
    path = Path(root).append([*context, *(responses[-1].get("output") or ())])
    places, links, at = PathIndex(root), list[Link](), 0
    places.add(path)
    outputs = OutputFinder(context)
    for response in responses:
        output = response.get("output") or ()
        span = (len(context), len(path)) if response is responses[-1] else outputs.find(output, at)
        start, end = span or (at, at)
        saw, head = path.key_at(start), path.key_at(end)
        if output and not span:
            aside = path.first(start).append(output)
            places.add(aside)
            head = aside.head
        parent = links[-1].id if links else None
        links.append(_link_from_response(response, parent, saw, head, start - at, scope, provider))
        at = end
    return RemoteChain(path, tuple(links), places)


class OutputFinder:
    """Finds the output of earlier responses in the input of a later one."""

    def __init__(self, context: Sequence[Item]) -> None:
        self._identities = [_item_identities(item) for item in context]
        self._indexes: dict[str, list[int]] = {}
        for at, names in enumerate(self._identities):
            for name in names:
                self._indexes.setdefault(name, []).append(at)

    def find(self, output: Sequence[Item], start: int) -> tuple[int, int] | None:
        """Return the start and end index of `output` at or after `start`; None if no item of it is there.

        Some of its items may be missing: endpoints do not pass on all reasoning.
        """
        names = {name for item in output for name in _item_identities(item)}
        first = min((at for name in names if (at := self._next_index(name, start)) is not None), default=None)
        if first is None:
            return None
        end = first + 1
        while end < min(len(self._identities), first + len(output)) and names.intersection(self._identities[end]):
            end += 1
        return first, end

    def _next_index(self, name: str, start: int) -> int | None:
        at = self._indexes.get(name, [])
        place = bisect_left(at, start)
        return at[place] if place < len(at) else None


def _item_identities(item: Item) -> tuple[str, ...]:
    """Return the identities of an item: its id, if any, and its digest."""
    return (*([item["id"]] if isinstance(item.get("id"), str) else []), digest(item))


def _link_from_response(
    response: Response, parent: str | None, saw: Key, head: Key, sent: int, scope: Scope, provider: str
) -> Link:
    conversation = (response.get("conversation") or {}).get("id")
    begun, ended = response.get("created_at") or 0, response.get("completed_at")
    return Link(
        id=response["id"],
        input_head=saw,
        head=head,
        sent_count=sent,
        model=f"{provider}/{response.get('model') or 'unknown'}",
        strategy=Strategy.CONVERSATION if conversation else Strategy.CHAIN,
        status=response.get("status") or "completed",
        created_at=begun,
        parent_id=parent,
        scope=scope,
        conversation_id=conversation,
        previous_response_id=response.get("previous_response_id"),
        duration_s=ended - begun if ended else None,
        parameters={"instructions": said} if (said := response.get("instructions")) else {},
        usage=response.get("usage"),
        error=response.get("error"),
        is_stored=bool(response.get("store", True)),
    )
