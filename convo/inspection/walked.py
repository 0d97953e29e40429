"""A chain as its endpoint still tells it.

Of a chain that nobody mirrored, the endpoint gives two things: each response by its id, with its
output and the id before it, and the whole input of one response as a list. Laid together they say
what every response saw and sent: its output stands in that list, and what stands between two
outputs was sent in between.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from convo.history import Key, Link, Path, Scope, Strategy
from convo.inspection.places import Places
from convo.items import Item, Response, digest


@dataclass(frozen=True)
class Walked:
    """A chain that was walked: the path to the end of its last response, links oldest first."""

    path: Path
    links: tuple[Link, ...]
    places: Places


def walked(responses: Sequence[Response], context: Sequence[Item], root: Key, scope: Scope, provider: str) -> Walked:
    """Put links together from what the endpoint tells.

    responses:  a chain's response resources, oldest first
    context:    the whole input of the last one, oldest first
    provider:   the name that stands before the model's
    """
    path = Path(root).grow([*context, *(responses[-1].get("output") or ())])
    places, links, at = Places(root), list[Link](), 0
    places.add(path)
    outputs = Outputs(context)
    for response in responses:
        output = response.get("output") or ()
        span = (len(context), len(path)) if response is responses[-1] else outputs.find(output, at)
        start, end = span or (at, at)
        saw, head = _key(path, start), _key(path, end)
        if output and not span:
            aside = path.first(start).grow(output)
            places.add(aside)
            head = aside.head
        parent = links[-1].id if links else None
        links.append(_link(response, parent, saw, head, start - at, scope, provider))
        at = end
    return Walked(path, tuple(links), places)


class Outputs:
    """Finds the output of earlier responses in the input of a later one."""

    def __init__(self, context: Sequence[Item]) -> None:
        self._names = [_names(item) for item in context]
        self._at: dict[str, list[int]] = {}
        for at, names in enumerate(self._names):
            for name in names:
                self._at.setdefault(name, []).append(at)

    def find(self, output: Sequence[Item], start: int) -> tuple[int, int] | None:
        """Where `output` begins and ends, from `start` on; None when none of it stands there.

        Some of it may be missing: endpoints do not hand all reasoning on.
        """
        names = {name for item in output for name in _names(item)}
        first = min((at for name in names if (at := self._next(name, start)) is not None), default=None)
        if first is None:
            return None
        end = first + 1
        while end < min(len(self._names), first + len(output)) and names.intersection(self._names[end]):
            end += 1
        return first, end

    def _next(self, name: str, start: int) -> int | None:
        at = self._at.get(name, [])
        place = bisect_left(at, start)
        return at[place] if place < len(at) else None


def _key(path: Path, count: int) -> Key:
    return path.nodes[count - 1].key if count else path.root


def _names(item: Item) -> tuple[str, ...]:
    """What an item can be known by: its id, and what it says."""
    return (*([item["id"]] if isinstance(item.get("id"), str) else []), digest(item))


def _link(response: Response, parent: str | None, saw: Key, head: Key, sent: int, scope: Scope, provider: str) -> Link:
    conversation = (response.get("conversation") or {}).get("id")
    begun, ended = response.get("created_at") or 0, response.get("completed_at")
    return Link(
        id=response["id"],
        saw=saw,
        head=head,
        sent=sent,
        model=f"{provider}/{response.get('model') or 'unknown'}",
        strategy=Strategy.CONVERSATION if conversation else Strategy.CHAIN,
        status=response.get("status") or "completed",
        created_at=begun,
        parent=parent,
        scope=scope,
        conversation_id=conversation,
        previous_response_id=response.get("previous_response_id"),
        seconds=ended - begun if ended else None,
        parameters={"instructions": said} if (said := response.get("instructions")) else {},
        usage=response.get("usage"),
        error=response.get("error"),
        stored=bool(response.get("store", True)),
    )
