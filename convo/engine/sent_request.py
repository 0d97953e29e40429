"""A request that was sent, put together again from what is kept of it.

Nobody keeps requests: a link says what its model saw, what of that travelled and with which
parameters, and the owner's strategy makes the same body of it that it made then. A request is less than
a turn: one in which tools were called took several.
"""

from convo.errors import NotFound
from convo.history import HERE, OWNERS, Link, Node, Path, Prefix, Strategy, requested, root
from convo.inspection import Known
from convo.inspection.forks import line_to
from convo.inspection.requests import Request
from convo.items import Json
from convo.strategies import Held, body, send
from convo.tokens import Usage, seals_reasoning


def request_of(known: Known, number: int | None) -> Request:
    """A request that was sent, put together again from what is kept of it.

    number:  from 1, along the line that leads to the handle; the last one for None
    raises:  NotFound  there are not so many requests, or what it saw is gone
    """
    on_line = line_to(known.at, known.links)
    line = [link for link in known.links if link.id in on_line]
    at = len(line) - 1 if number is None else number - 1 if number > 0 else len(line) + number
    if not 0 <= at < len(line):
        raise NotFound("request", f"{known.handle}@{number or 1}", hint=f"it has {len(line)}; a file has none")
    return as_sent(line[at], known)


def as_sent(link: Link, known: Known) -> Request:
    """The request of `link`. raises: NotFound  what it saw is gone"""
    places = known.places
    if link.saw not in places:
        raise NotFound("input of", link.id, hint="an item of it was deleted")
    keys = places.back(link.saw, places.depth(link.saw))
    path = Path(places.root, Prefix(Node(key, places.item(key) or {}) for key in keys))
    before = path.first(len(path) - link.sent)
    return Request(
        name=link.id,
        model=link.model,
        body=travelled(link, path, before),
        before=before.items if OWNERS[_owner_of(link)[0]].remembers else (),
        usage=Usage.read(link.usage),
    )


def fields(link: Link) -> dict[str, Json]:
    """The request of `link` as it travelled, without its items; they need not be known."""
    nothing = Path(root(""))
    return {name: value for name, value in travelled(link, nothing, nothing).items() if name != "input"}


def travelled(link: Link, path: Path, before: Path) -> dict[str, Json]:
    """The request of `link`, whose model saw `path`; its owner had `before`."""
    strategy, handle = _owner_of(link)
    remote, wire_model = link.scope != HERE, link.model.partition("/")[2]
    sent = send(
        Held(strategy, path, before.head, handle), store=link.stored, seal=remote and seals_reasoning(wire_model)
    )
    return body(
        sent,
        model=wire_model if remote else link.model,
        instructions=link.parameters.get("instructions"),
        parameters={name: value for name, value in requested(link.parameters).items() if name != "instructions"},
    )


def _owner_of(link: Link) -> tuple[Strategy, str | None]:
    """Whose the request went to, and the handle that it named. What named no conversation went on from none."""
    handle = link.conversation_id or link.previous_response_id
    return (link.strategy if link.strategy is not Strategy.CONVERSATION or handle else Strategy.CHAIN), handle
