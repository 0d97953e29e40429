"""What the inspector page is given of one conversation: all that `convo inspect --json` says, and more.

The more is what the page would have to find out again: the order in which the tree is drawn, figures
and first words of each link, and each request as it travelled without its items. Such requests are
often the same, tools and all, so each stands once and links say which is theirs.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256

from convo.engine.sent_request import fields
from convo.history import IGNORED, OWNERS, Link
from convo.inspection import Known, as_json, figures, rows
from convo.inspection.bill import bill
from convo.items import Json, first_words

HANDLES = ("previous_response_id", "conversation")
"""Fields of a request that its link has anyway."""


def version(known: Known) -> str:
    """Another one whenever something of `known` is."""
    links = [(link.id, link.status, link.saw, link.head, link.session) for link in known.links]
    return sha256(repr((known.handle, known.path.head, known.mark, known.at, known.notes, links)).encode()).hexdigest()


def conversation(known: Known) -> dict[str, Json]:
    """One conversation for the page; a superset of the object of `convo inspect --json`."""
    shape, requests = as_json(known), Requests()
    drawn = {row.link.id: (row.depth, row.begins) for row in rows(known.links, known.at)}
    told = {link.id: _link(link, known, requests) for link in known.links}
    return {
        **shape,
        "version": version(known),
        "name": known.session.name if known.session else known.handle,
        "owner": OWNERS[known.strategy].words,
        "owners": {str(strategy): owner.words for strategy, owner in OWNERS.items()},
        "model": known.model,
        "at": known.at,
        "path": {"through": known.path.head} if len(known.path) else [],
        "items_at_head": len(known.path),
        "unacknowledged": [node.key for node in known.unacknowledged],
        "notes": list(known.notes),
        "bill": _bill(known),
        "parents": {key: place.before if place.depth > 1 else None for key, place in known.places},
        "links": [_whole(link, told[link["response_id"]], *drawn[link["response_id"]]) for link in shape["links"]],
        "rows": list(drawn),
        "requests": requests.listed,
    }


def together(found: Mapping[str, Known]) -> dict[str, Json]:
    """What a page that is one file shows: conversations by their handles, and the list of them."""
    return {
        "list": {"sessions": [_entry(handle, known) for handle, known in found.items()], "others": [], "more": False},
        "conversations": {handle: conversation(known) for handle, known in found.items()},
    }


def _entry(handle: str, known: Known) -> dict[str, Json]:
    items = known.path.items
    last = max((link.created_at for link in known.links), default=None)
    return {
        "id": handle,
        "name": known.session.name if known.session else known.handle,
        "strategy": str(known.strategy),
        "items": len(items),
        "unacknowledged": len(known.unacknowledged),
        "used_at": known.session.used_at if known.session else last,
        "first_words": first_words(items[0]) if items else "",
    }


class Requests:
    """Requests without their items, each once, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, request: Mapping[str, Json]) -> int:
        text = json.dumps(request, sort_keys=True)
        return self._places.setdefault(text, len(self._places))

    @property
    def listed(self) -> Sequence[Json]:
        return [json.loads(text) for text in self._places]


def _whole(link: Mapping[str, Json], more: Mapping[str, Json], depth: int, begins: bool) -> dict[str, Json]:
    return {**link, **more, "depth": depth, "begins": begins}


def _link(link: Link, known: Known, requests: Requests) -> dict[str, Json]:
    was = figures(link, known.places)
    request = {name: value for name, value in fields(link).items() if name not in HANDLES}
    return {
        "parent": link.parent,
        "strategy": str(link.strategy),
        "session": known.names.get(link.session, "a session that was removed") if link.session else None,
        "seconds": link.seconds,
        "ignored": list(link.parameters.get(IGNORED, ())),
        "error": dict(link.error) if link.error else None,
        "items_sent": was.sent,
        "items_saw": was.saw,
        "sent_tokens": was.sent_tokens,
        "full": was.full,
        "said": was.said,
        "answered": was.answered,
        "request": requests.place(request),
    }


def _bill(known: Known) -> Json:
    found = bill(known.links, known.prices)
    if found is None:
        return None
    used = found.used
    return {
        "requests": found.requests,
        "input": used.input,
        "cached": used.cached,
        "output": used.output,
        "again": found.again,
        "cost_usd": found.cost_usd,
    }
