"""What is known of a conversation as one JSON object.

Items stand once, under the key of their place; links name the keys. A long list of keys that is
simply the whole path to a place is written as `{"through": key}`: a client that resends its
history would otherwise fill the output with the square of it. Where that happens, `parents`
gives the place before each place, so that such a path can be spelled out.
"""

from collections.abc import Mapping, Sequence

from convo.config import Price
from convo.history import IGNORED, PROVIDER, Key, Link
from convo.inspection.bill import cost_of
from convo.inspection.forks import children
from convo.inspection.known import Known
from convo.inspection.places import Places
from convo.items import Json
from convo.items.partial import STREAMED

LONG = 100
"""The longest path from the first item that is spelled out for every link."""


def as_json(known: Known) -> dict[str, Json]:
    """The object of `convo inspect --json`; links oldest first, items as they are stored."""
    places, after = known.places, children(known.links)
    links = [_link(link, places, after.get(link.id, []) if known.forks else None, known.prices) for link in known.links]
    shape: dict[str, Json] = {
        "handle": known.handle,
        "strategy": str(known.strategy),
        "endpoint": str(known.scope) if known.scope else None,
        "head": known.head,
        "items": {key: place.item for key, place in places},
        "links": links,
    }
    if any(isinstance(link["saw"], dict) for link in links):
        shape["parents"] = {key: place.before if place.depth > 1 else None for key, place in places}
    return shape


def _link(link: Link, places: Places, after: Sequence[Link] | None, prices: Mapping[str, Price]) -> dict[str, Json]:
    limit = (link.error or {}).get("limit")
    return {
        "response_id": link.id,
        "previous_response_id": link.previous_response_id,
        "conversation_id": link.conversation_id,
        "model": link.model,
        "provider": provider_of(link),
        "status": link.status,
        "created_at": link.created_at,
        "sent": _path(link.saw, link.sent, places),
        "saw": _path(link.saw, None, places),
        "output": _added(link, places),
        "usage": dict(link.usage) if link.usage is not None else None,
        "cost_usd": cost_of(link, prices),
        **({"ignored": list(link.parameters[IGNORED])} if IGNORED in link.parameters else {}),
        "children": None if after is None else [child.id for child in after],
        **({"limit": limit} if limit else {}),
        **({STREAMED: True} if STREAMED in (link.error or {}) else {}),
    }


def provider_of(link: Link) -> str | None:
    """The provider that was asked, where it is known."""
    named, slash, _ = link.model.partition("/")
    return link.parameters.get(PROVIDER) or (named if slash else None)


def _path(key: Key, count: int | None, places: Places) -> Json:
    """The last `count` keys of the path to `key`; all of them for None."""
    if key not in places:
        return {"through": key}
    depth = places.depth(key)
    if depth > LONG and (count is None or count >= depth):
        return {"through": key}
    return places.back(key, depth if count is None else count)


def _added(link: Link, places: Places) -> list[Key]:
    if link.head not in places or link.saw not in places:
        return []
    return places.back(link.head, places.depth(link.head) - places.depth(link.saw))
