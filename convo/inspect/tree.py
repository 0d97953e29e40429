"""Link trees: order of rows, and links rebuilt from an owner's response resources.

The branch that leads to the head is drawn straight; forks are one step to the right, so depth counts forks and not
links. Links of a conversation get their parents from the order of its items; a remote chain is rebuilt from its
responses and the input items of the last one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from convo.history.canonical import digest
from convo.history.items import Item, Response
from convo.history.records import ANSWERED_STATUSES, Link, Scope, Strategy, pick_reported_fields
from convo.history.tree import Key, Path
from convo.inspect.view import ConversationView, PathIndex


class LinkRow(NamedTuple):
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
    children: dict[str | None, list[Link]] = {}
    for link in links:
        children.setdefault(parents[link.id], []).append(link)
    return children


def _break_cycles(parents: dict[str, str | None]) -> dict[str, str | None]:
    """Return the parent of each id; None if it is not in `parents`, and for the first id of each cycle."""
    order = {name: index for index, name in enumerate(parents)}
    acyclic = {name: parent if parent in parents else None for name, parent in parents.items()}
    finished: set[str] = set()
    for name in parents:
        visited: dict[str, None] = {}
        current: str | None = name
        while current is not None and current not in finished and current not in visited:
            visited[current] = None
            current = acyclic[current]
        if current is not None and current in visited:
            cycle = list(visited)[list(visited).index(current) :]
            acyclic[min(cycle, key=order.__getitem__)] = None
        finished.update(visited)
    return acyclic


def iter_link_rows(links: Sequence[Link], head: str | None) -> Iterator[LinkRow]:
    """Yield the rows of `links` in drawing order; `head` is the id of the last link of the main branch."""
    children, head_branch_ids = children_by_parent(links), ancestor_ids(head, links)
    stack = _sibling_rows(children.get(None, []), 0, head_branch_ids)
    while stack:
        row = stack.pop()
        yield row
        stack += _sibling_rows(children.get(row.link.id, []), row.depth, head_branch_ids)


def ancestor_ids(head: str | None, links: Sequence[Link]) -> set[str]:
    """Return the ids of `head` and of all its ancestors."""
    parents = {link.id: link.parent_id for link in links}
    ancestors: set[str] = set()
    while head is not None and head in parents and head not in ancestors:
        ancestors.add(head)
        head = parents[head]
    return ancestors


def find_branch_links(view: ConversationView) -> Sequence[Link]:
    """Return the links of the branch that leads to the handle, oldest first; no forks."""
    branch_ids = ancestor_ids(view.current_link_id, view.links)
    return [link for link in view.links if link.id in branch_ids]


def split_branch_links(view: ConversationView) -> tuple[Sequence[Link], Sequence[Link]]:
    """Return the links of the branch that leads to the handle, and all others: forks, later ones, failed attempts.

    Without a link of the handle no branch is known, and every link is in the first list.
    """
    branch_links = find_branch_links(view)
    if not branch_links:
        return view.links, ()
    branch_ids = {link.id for link in branch_links}
    return branch_links, [link for link in view.links if link.id not in branch_ids]


def _sibling_rows(siblings: Sequence[Link], depth: int, head_branch_ids: set[str]) -> list[LinkRow]:
    """Return the rows of links with the same parent, last one first."""
    if not siblings:
        return []
    completed = [link for link in siblings if link.status == "completed"]
    main = next((link for link in siblings if link.id in head_branch_ids), (completed or siblings)[-1])
    forks = [LinkRow(link, depth + 1, starts_branch=True) for link in siblings if link is not main]
    return [LinkRow(main, depth), *reversed(forks)]


def order_by_conversation(links: Iterable[Link], path_index: PathIndex) -> tuple[Link, ...]:
    """Order `links` by their conversation; a link without a parent becomes the child of the answered link before it."""
    ordered: list[Link] = []
    last: Link | None = None
    for link in sorted(
        links, key=lambda link: path_index.depth(link.input_head) if link.input_head in path_index else 0
    ):
        ordered.append(link if link.parent_id or last is None else replace(link, parent_id=last.id))
        if link.status in ANSWERED_STATUSES:
            last = link
    return tuple(ordered)


class RemoteChain(NamedTuple):
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
    path_index, links, position = PathIndex(root), list[Link](), 0
    path_index.add(path)
    outputs = OutputFinder(context)
    for response in responses:
        output = response.get("output") or ()
        span = (len(context), len(path)) if response is responses[-1] else outputs.find(output, position)
        start, end = span or (position, position)
        input_head, head = path.key_at(start), path.key_at(end)
        if output and not span:
            branch = path.first(start).append(output)
            path_index.add(branch)
            head = branch.head
        parent = links[-1].id if links else None
        links.append(_link_from_response(response, parent, input_head, head, start - position, scope, provider))
        position = end
    return RemoteChain(path, tuple(links), path_index)


class OutputFinder:
    """Finds the output of earlier responses in the input of a later one."""

    def __init__(self, context: Sequence[Item]) -> None:
        self._identities = [_item_identities(item) for item in context]
        self._indexes: dict[str, list[int]] = {}
        for index, identities in enumerate(self._identities):
            for identity in identities:
                self._indexes.setdefault(identity, []).append(index)

    def find(self, output: Sequence[Item], start: int) -> tuple[int, int] | None:
        """Return the start and end index of `output` at or after `start`; None if no item of it is there.

        Some of its items may be missing: endpoints do not pass on all reasoning.
        """
        identities = {identity for item in output for identity in _item_identities(item)}
        first = min(
            (index for identity in identities if (index := self._next_index(identity, start)) is not None), default=None
        )
        if first is None:
            return None
        end = first + 1
        while end < min(len(self._identities), first + len(output)) and identities.intersection(self._identities[end]):
            end += 1
        return first, end

    def _next_index(self, identity: str, start: int) -> int | None:
        indexes = self._indexes.get(identity, [])
        position = bisect_left(indexes, start)
        return indexes[position] if position < len(indexes) else None


def _item_identities(item: Item) -> tuple[str, ...]:
    """Return the identities of an item: its id, if any, and its digest."""
    return (*([item["id"]] if isinstance(item.get("id"), str) else []), digest(item))


def _link_from_response(
    response: Response, parent: str | None, input_head: Key, head: Key, sent_count: int, scope: Scope, provider: str
) -> Link:
    conversation = (response.get("conversation") or {}).get("id")
    created_at, completed_at = response.get("created_at") or 0, response.get("completed_at")
    return Link(
        id=response["id"],
        input_head=input_head,
        head=head,
        sent_count=sent_count,
        model=f"{provider}/{response.get('model') or 'unknown'}",
        strategy=Strategy.CONVERSATION if conversation else Strategy.CHAIN,
        status=response.get("status") or "completed",
        created_at=created_at,
        parent_id=parent,
        scope=scope,
        conversation_id=conversation,
        previous_response_id=response.get("previous_response_id"),
        duration_s=completed_at - created_at if completed_at else None,
        parameters={"instructions": instructions} if (instructions := response.get("instructions")) else {},
        usage=response.get("usage"),
        reported=pick_reported_fields(response),
        error=response.get("error"),
        is_stored=bool(response.get("store", True)),
    )
