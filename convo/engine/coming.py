"""What the next request of a conversation would be; nothing is sent and nothing is stored.

A handle stands for a conversation as its owner would go on with it: a session as its record says, a
response as the end of a chain, a file as what it holds. The request is built as a turn builds it, by
the owner's strategy, so what is shown is what will travel.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from convo.config import Room
from convo.endpoints.contract import COUNTED, Endpoint, Wire
from convo.engine.record import handle_of
from convo.engine.turn import Asking
from convo.errors import ConvoError, ItemDeleted
from convo.history import OURS, OWNERS, Link, Strategy
from convo.inspection import Known
from convo.inspection.coming import Coming
from convo.inspection.window import Filling, by_kind, filled, requested
from convo.items import Item, Json
from convo.strategies import Held, Sent
from convo.tokens import window_of
from convo.tokens.windows import NONE

OF_THE_LAST = OURS | {"instructions", "generate", "background"}
"""Fields of a request that are not simply said again with the next one."""


def stands(known: Known) -> Held:
    """What is known, as its owner goes on with it. raises: ItemDeleted  a part of it is gone"""
    if known.lost:
        raise ItemDeleted(known.lost)
    session, at = known.session, link_at(known)
    if session:
        return Held(session.strategy, known.path, known.mark, handle_of(session))
    if at is None:
        handle = known.handle if OWNERS[known.strategy].remembers else None
        return Held(known.strategy, known.path, known.mark, handle)
    if not at.stored:
        owner = Strategy.REPLAY if at.strategy is Strategy.REPLAY else Strategy.SESSION
        return Held(owner, known.path, known.path.head)
    if known.strategy is Strategy.CONVERSATION and known.handle == at.conversation_id:
        return Held(Strategy.CONVERSATION, known.path, known.mark, known.handle)
    answered = known.mark == known.path.head
    return Held(Strategy.CHAIN, known.path, known.mark, at.id if answered else at.previous_response_id)


def link_at(known: Known) -> Link | None:
    """The link at which the handle stands."""
    return next((link for link in known.links if link.id == known.at), None)


def repeated(known: Known) -> dict[str, Json]:
    """The fields that whoever asked last would say again: tools, temperature and so on; a session says its own."""
    at = None if known.session else link_at(known)
    return {name: value for name, value in at.parameters.items() if name not in OF_THE_LAST} if at else {}


def spoken_with(known: Known) -> str | None:
    """The instructions that go with every turn of this conversation."""
    if known.session:
        return known.session.instructions
    at = link_at(known)
    said = at.parameters.get("instructions") if at else None
    return said if isinstance(said, str) else None


QUICK = 1_000
"""Items of a request that an endpoint counts while somebody waits."""

Counting: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[int | None]]
"""Exact tokens of a request by somebody who can tell; None: it is counted here."""


async def counted_here(body: Mapping[str, Json]) -> None:
    """Nobody else is asked."""


def tried(endpoint: Endpoint) -> Counting:
    """The endpoint's own count, where asking for it works and is quick; what keeps it from counting is no error."""

    async def count(body: Mapping[str, Json]) -> int | None:
        if len(body.get("input") or ()) > QUICK:
            return None
        try:
            return await endpoint.count(body)
        except ConvoError:
            return None

    return count


async def coming(
    handle: str,
    held: Held,
    items: Sequence[Item],
    asking: Asking,
    endpoint: Endpoint,
    count: Counting,
    *,
    key_env: str | None = None,
    own: Mapping[str, Room] = NONE,
    sent: Sent | None = None,
) -> Coming:
    """The request that says `items` next.

    own:     windows that a person gave
    sent:    what travels, where agents decided on it; None: what the owner lacks
    raises:  Conflict  the path no longer passes through its mark;  what `count` raises
    """
    body = asking.body(sent or asking.sent(replace(held, path=held.path.grow(items))))
    wire = endpoint.wire(body) or Wire("", body, {})
    before = tuple(held.path.upto(held.mark).nodes) if held.remembers else ()
    window = window_of(asking.model, own)
    parts = requested([node.item for node in before], f"held by {held.handle}", wire.body, window)
    return Coming(
        handle=handle,
        strategy=held.strategy,
        owner=held.handle if before else None,
        before=before,
        model=asking.model,
        url=wire.url or None,
        body=wire.body,
        filling=filled(parts, window, await count(_counted(body))),
        headers=wire.headers,
        key_env=key_env,
    )


async def window_now(
    held: Held, asking: Asking, count: Counting, own: Mapping[str, Room] = NONE, *, sent: Sent | None = None
) -> Filling:
    """What fills the model's window when the conversation goes on as it stands. raises: what `count` raises

    own, sent:  as `coming` has them
    """
    body = asking.body(sent or asking.sent(held))
    window = window_of(asking.model, own)
    before = held.path.upto(held.mark).items if held.remembers else ()
    parts = by_kind([*before, *body["input"]], body, window)
    counted = await count(_counted(body)) if held.path else None
    return filled(parts, window, counted)


def _counted(body: Mapping[str, Json]) -> dict[str, Json]:
    """As much of a request as its tokens depend on."""
    return {name: body[name] for name in body if name in COUNTED}
